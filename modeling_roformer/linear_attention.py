"""Linear attention with rotary position embedding: equations 17 to 19 of the RoFormer paper (arXiv:2104.09864).

Attention weighs values by a similarity of query and key (17),

    o_m = Σ_n sim(q_m, k_n) v_n / Σ_n sim(q_m, k_n),

which for softmax attention is e^(q_mᵀk_n / √d), and takes all pairs (m, n) to compute. Where it is a product of features
that are never negative, sim(q, k) = φ(q)ᵀ ϕ(k) (18), the sums over n can be made before any query is looked at, at a cost
that grows with the length and not with its square. Rotation keeps lengths, so that it may follow the maps (19):

    o_m = Σ_n (R_m φ(q_m))ᵀ (R_n ϕ(k_n)) v_n  /  Σ_n φ(q_m)ᵀ ϕ(k_n).

Rotated features may have a negative product, hence the denominator is not rotated, lest it come near 0. The maps φ and ϕ
are those of linear_feature_maps.py, the sums over all keys or over those so far those of linear_state.py. Nothing is divided by
√d, but in Performer's map, and there is no matrix of probabilities whose entries could be dropped out.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim.
"""

from contextlib import nullcontext
from itertools import repeat
from typing import NamedTuple

import torch
from transformers.cache_utils import Cache

from .attention import MultiHeadAttention
from .configuration import RoFormerConfig
from .input_checks import is_traced
from .linear_chunks import CHUNK, last_of_group
from .linear_feature_maps import CosineMap, Features, make_feature_map
from .linear_state import RunningSums, add_sums, attend_causally, attend_to_sums, sum_keys
from .rotary import rotate
from .unpadding import Packing

LONGEST_MATRIX = 4096


def check_matrix(s: int, past: int | torch.Tensor) -> None:
    """Raise a ValueError if linear attention cannot return the weights of all pairs of tokens."""
    if isinstance(past, torch.Tensor) or past:
        raise ValueError(
            "output_attentions=True needs every token, but linear attention caches only their sums: pass the whole text "
            "with use_cache=False"
        )
    if s > LONGEST_MATRIX:
        raise ValueError(
            f"output_attentions=True makes a matrix of all pairs of tokens, which linear attention otherwise avoids: "
            f"the text has {s:,} tokens; expected at most {LONGEST_MATRIX:,}"
        )


class RoFormerLinearSelfAttention(MultiHeadAttention):
    """Equation 19; equation 18 where `position_embeddings` is empty.

    The feature maps and all sums are computed in float32, or in float64 where the model is: sums over a long text need
    more digits than half precision has.
    """

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.is_causal = config.is_decoder or config.prefix_lm
        self.rotary_value = config.rotary_value
        self.feature_map = make_feature_map(config, layer_idx)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, ...],
        past_key_values: Cache | None = None,
        output_attentions: bool | None = None,
        packing: Packing | None = None,
        prefix_groups: torch.Tensor | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        query, key, value = self.project(hidden_states)
        weights = layer = None
        if past_key_values is not None:
            layer = getattr(past_key_values, "self_attention_cache", past_key_values).layers[self.layer_idx]
        with _without_autocast(query.device.type):
            if packing is not None:
                texts = packing.by_length(query, key, value, *position_embeddings)
                contexts = [self.attend_linearly(q, k, v, positions)[0] for q, k, v, *positions in texts]
                context = torch.cat([context.flatten(0, 1) for context in contexts])[None]
            else:
                sums = None if layer is None else layer.sums
                context, sums, weights = self.attend_linearly(
                    query, key, value, position_embeddings, attention_mask, prefix_groups, sums, output_attentions
                )
                if layer is not None:
                    layer.extend(sums, value.shape[1])
        return context.flatten(-2), weights

    def attend_linearly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, ...],
        keep: torch.Tensor | None = None,
        groups: torch.Tensor | None = None,
        sums: RunningSums | None = None,
        output_attentions: bool | None = None,
    ) -> tuple[torch.Tensor, RunningSums | None, torch.Tensor | None]:
        """Equation 19.

        Args:
            query, key, value: shape (b, s, h, d).
            position_embeddings: cos and sin for the features, then those for the values if they differ; or nothing.
            keep: False for padding, boolean, shape (b, s); None if there is none.
            groups: see `masks.prefix_groups`.
            sums: sums over the preceding tokens.

        Returns:
            The output, shape (b, s, h, d); in a causal model the sums over all tokens so far; and with
            `output_attentions` the weights of all pairs, shape (b, h, s, s). A query's weights add up to 1 only if
            numerator and denominator have the same weights.
        """
        whole = Part(query, key, value, position_embeddings, keep)
        if output_attentions:
            return self.attend_by_matrix(whole, groups)
        # A compiler wants no loop over something that depends on the length; groups may reach from one part into the next.
        parts = [whole] if groups is not None or is_traced() else whole.split(tokens_at_once(query))
        outputs = []
        if self.is_causal:
            for part in parts:
                output, sums = self.attend_to_earlier(part, groups, sums)
                outputs.append(output)
            return _joined(outputs), sums, None
        for part in parts:
            _, key, value = self.prepare(part)
            key = self.feature_map.key(key, part.positions[:2], part.keep)
            sums = sum_keys(key, value) if sums is None else add_sums(sums, sum_keys(key, value))
        count = sums.denominator[:, :1, -1] if isinstance(self.feature_map, CosineMap) else None
        for part in parts:
            query = self.feature_map.query(_wide(part.query), part.positions[:2])
            outputs.append(self.divide(*attend_to_sums(query, sums), count).to(part.query.dtype))
        return _joined(outputs), None, None

    def attend_to_earlier(
        self, part: "Part", groups: torch.Tensor | None, sums: RunningSums | None
    ) -> tuple[torch.Tensor, RunningSums]:
        """The output of a causal model, and the sums of all tokens up to the end of the part."""
        query, key, value = self.prepare(part)
        query = self.feature_map.query(query, part.positions[:2])
        key = self.feature_map.key(
            key, part.positions[:2], part.keep, causal=True, log_scale=None if sums is None else sums.log_scale
        )
        count = None
        if isinstance(self.feature_map, CosineMap):
            count = number_of_keys(value, True, part.keep, groups)
            if sums is not None:
                count = count + sums.denominator[:, :1, -1]  # the feature that is 1 for every key
        numerators, denominators, sums = attend_causally(query, key, value, sums, groups)
        return self.divide(numerators, denominators, count).to(part.query.dtype), sums

    def attend_by_matrix(self, part: "Part", groups: torch.Tensor | None) -> tuple[torch.Tensor, None, torch.Tensor]:
        """The output, and the weights of all pairs that it is the product of."""
        query, key, value = self.prepare(part)
        query = self.feature_map.query(query, part.positions[:2])
        key = self.feature_map.key(key, part.positions[:2], part.keep, self.is_causal)
        weights, below = weights_of_all_pairs(query, key, self.is_causal, groups)
        count = None
        if isinstance(self.feature_map, CosineMap):
            count = number_of_keys(value, self.is_causal, part.keep, groups)
        weights = self.divide(weights.transpose(1, 2), below.sum(-1).transpose(1, 2), count).transpose(1, 2)
        return torch.matmul(weights, value.transpose(1, 2)).transpose(1, 2).to(part.query.dtype), None, weights

    def prepare(self, part: "Part") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value in the precision of the sums; the values rotated, where the model has that."""
        value = _wide(part.value)
        if part.positions and self.rotary_value:
            value = rotate(value, *part.positions[-2:])
        return _wide(part.query), _wide(part.key), value

    def divide(self, numerators: torch.Tensor, denominators: torch.Tensor, count: torch.Tensor | None) -> torch.Tensor:
        """Of shapes (b, s, h, e) and (b, s, h); 0 where a query has no weights that are worth the name."""
        attends = denominators > self.feature_map.least_denominator(denominators.dtype, count)
        return numerators / denominators.where(attends, torch.inf)[..., None]


class Part(NamedTuple):
    """Tokens that are computed at once: query, key and value of shape (b, s, h, d), cos and sin of their positions, and
    which of the keys are attended to, boolean, shape (b, s), where there is padding."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    positions: tuple[torch.Tensor, ...]
    keep: torch.Tensor | None

    def split(self, tokens: int) -> list["Part"]:
        """The same in parts of at most so many tokens of each text."""
        if self.value.shape[1] <= tokens:
            return [self]
        query, key, value, *positions = (
            x.split(tokens, dim=1) for x in (self.query, self.key, self.value, *self.positions)
        )
        keep = repeat(None) if self.keep is None else self.keep.split(tokens, dim=1)
        positions = zip(*positions, strict=True) if positions else repeat(())
        return [Part(*each) for each in zip(query, key, value, positions, keep, strict=False)]


def tokens_at_once(query: torch.Tensor) -> int:
    """How many tokens of each text: on a CPU as few as leave all that is made of them in its cache, on others enough to
    keep them busy."""
    if query.device.type != "cpu":
        return 8192
    return max(CHUNK, 256 // query.shape[0] // CHUNK * CHUNK)


def weights_of_all_pairs(
    query: Features, key: Features, causal: bool, groups: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The terms of both sums of equation 19, each of shape (b, h, s, s): for looking at, at the square of the length."""
    visible = None
    if groups is not None:
        visible = (groups[:, None, :] <= groups[:, :, None])[:, None]
    elif causal:
        s = query.numerator.shape[1]
        visible = torch.ones(s, s, dtype=torch.bool, device=query.numerator.device).tril()
    weights, below = (
        torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1))
        for q, k in ((query.numerator, key.numerator), (query.denominator, key.denominator))
    )
    if key.log_scale is not None and visible is not None:
        shift = key.log_scale.transpose(1, 2)[:, :, None]  # (b, h, 1, s)
        own_shift = shift.masked_fill(~visible, torch.finfo(shift.dtype).min).amax(-1, keepdim=True)
        scale = (shift - own_shift).masked_fill(~visible, -torch.inf).exp()
        return weights * scale, below * scale
    if visible is not None:
        weights, below = weights * visible, below * visible
    return weights, below


def number_of_keys(
    value: torch.Tensor, causal: bool, keep: torch.Tensor | None, groups: torch.Tensor | None
) -> torch.Tensor:
    """How many of these keys each query has, shape (b, s or 1)."""
    b, s = value.shape[:2]
    ones = value.new_ones(b, s) if keep is None else keep.to(value.dtype)
    if not causal:
        return ones.sum(1, keepdim=True)
    count = ones.cumsum(1)
    if groups is None:
        return count
    return count.gather(1, last_of_group(groups))


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _without_autocast(device_type: str):
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
