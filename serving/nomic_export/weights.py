"""The weights of a RoFormer under the names of `nomic_bert`'s original format, which rotates halves of heads."""

import re

import torch

# Parts of our names -> theirs. Queries, keys and values are joined, and the pooler is a file of its own.
_NAMES = {
    "embeddings.LayerNorm": "emb_ln",
    "encoder.layer.": "encoder.layers.",
    "attention.output.dense": "attn.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "norm2",
}
_PATTERN = re.compile("|".join(map(re.escape, _NAMES)))
_QUERY, _PARTS = "attention.self.query.", ("attention.self.", "pooler.")


def nomic_weights(state: dict[str, torch.Tensor], heads: int) -> dict[str, torch.Tensor]:
    """Return the tensors of `nomic_bert`, from those of a bare RoFormerModel with this number of heads."""
    found = {
        _PATTERN.sub(lambda part: _NAMES[part[0]], name): tensor
        for name, tensor in state.items()
        if not any(part in name for part in _PARTS)
    }
    for name in (name for name in state if _QUERY in name):
        query, key, value = (state[name.replace("query", part)] for part in ("query", "key", "value"))
        joined = torch.cat([halves_of_pairs(query, heads), halves_of_pairs(key, heads), value])
        found[name.replace("encoder.layer.", "encoder.layers.").replace(_QUERY, "attn.Wqkv.")] = joined
    return {name: tensor.contiguous() for name, tensor in found.items()}


def halves_of_pairs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Return the rows of a projection, or of its bias, in the order in which dimensions 2i and 2i + 1, a pair that
    rotates (equation 34), are dimensions i and i + d/2 of a head."""
    by_pair = rows.unflatten(0, (heads, -1, 2))
    return by_pair.transpose(1, 2).flatten(0, 2)
