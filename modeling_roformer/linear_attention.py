"""Linear attention with rotary position embedding: equations 17 to 19 of the RoFormer paper (arXiv:2104.09864).

Attention weighs values by a similarity of query and key (17),

    o_m = Σ_n sim(q_m, k_n) v_n / Σ_n sim(q_m, k_n),

for softmax attention e^(q_mᵀk_n / √d), which takes all pairs (m, n) to compute. If it is a product of non-negative
features, sim(q, k) = φ(q)ᵀ ϕ(k) (18), the sums over n are computed once for all queries, at a cost that is linear in
the length. Rotation preserves lengths, so it can follow the maps (19):

    o_m = Σ_n (R_m φ(q_m))ᵀ (R_n ϕ(k_n)) v_n  /  Σ_n φ(q_m)ᵀ ϕ(k_n).

Products of rotated features can be negative, so the denominator, which must stay away from 0, is not rotated. The maps
φ and ϕ are in linear_feature_maps.py, the sums over all keys or over those so far in linear_state.py. Only Performer's
map divides by √d, and there is no attention dropout, since there is no matrix of probabilities.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim.
"""

from contextlib import nullcontext
from itertools import repeat
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache

from .attention import MultiHeadAttention
from .configuration import RoFormerConfig
from .input_checks import is_traced
from .linear_feature_maps import CosineMap, Positions, make_feature_map
from .linear_state import (
    CHUNK,
    Features,
    RunningSums,
    add_sums,
    attend_causally,
    attend_to_sums,
    sum_keys,
)
from .rotary import rotate
from .unpadding import Packing

LONGEST_MATRIX = 4096


def check_matrix(s: int, past: int | torch.Tensor) -> None:
    """Raise a ValueError if linear attention cannot return the weights of all pairs of tokens."""
    if isinstance(past, torch.Tensor) or past:
        raise ValueError(
            "output_attentions=True needs every token, but linear attention caches only sums: pass the whole text with "
            "use_cache=False"
        )
    if s > LONGEST_MATRIX:
        raise ValueError(
            f"output_attentions=True makes a matrix of all pairs of tokens, which linear attention otherwise avoids: "
            f"the text has {s:,} tokens; expected at most {LONGEST_MATRIX:,}"
        )


class RoFormerLinearSelfAttention(MultiHeadAttention):
    """Self-attention with equation 19, or equation 18 if `position_embeddings` is empty.

    Feature maps and sums are computed in float32, or float64 if the model is: half precision is too coarse for sums
    over a long text.
    """

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.feature_map = make_feature_map(config, layer_idx)
        self.counts_keys = isinstance(self.feature_map, CosineMap)  # its last feature is 1 for every key

    @property
    def is_causal(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.is_decoder

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, ...],
        past_key_values: Cache | None = None,
        output_attentions: bool | None = None,
        packing: Packing | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        query, key, value = self.project(hidden_states)
        layer: Any = None
        weights = None
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
                    query, key, value, position_embeddings, attention_mask, sums, output_attentions
                )
                if layer is not None:
                    layer.extend(sums, value.shape[1])
        return context.flatten(-2), weights

    def attend_linearly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_embeddings: Positions,
        keep: torch.Tensor | None = None,
        sums: RunningSums | None = None,
        output_attentions: bool | None = None,
    ) -> tuple[torch.Tensor, RunningSums | None, torch.Tensor | None]:
        """Compute equation 19.

        Args:
            query, key, value: shape (b, s, h, d).
            position_embeddings: cos and sin for the features, then those for the values if they differ; or nothing.
            keep: False for padding, boolean, shape (b, s); None if there is none.
            sums: sums over the preceding tokens.

        Returns:
            The output, shape (b, s, h, d); in a causal model the sums over all tokens so far; and with
            `output_attentions` the weights of all pairs, shape (b, h, s, s). A query's weights add up to 1 only if
            both sums of equation 19 have the same weights.
        """
        whole = Part(query, key, value, position_embeddings, keep)
        if output_attentions:
            return self.attend_by_matrix(whole)
        # Compilers cannot loop over a number of parts that depends on the length.
        parts = [whole] if is_traced() else whole.split(tokens_at_once(query))
        outputs = []
        if self.is_causal:
            for part in parts:
                output, sums = self.attend_to_earlier(part, sums)
                outputs.append(output)
            return _joined(outputs), sums, None
        for part in parts:
            own = sum_keys(*self.map_keys(part))
            sums = own if sums is None else add_sums(sums, own)
        assert sums is not None  # there is at least one part
        count = sums.denominator[:, :1, -1] if self.counts_keys else None
        for part in parts:
            numerators, denominators = attend_to_sums(self.map_queries(part), sums)
            outputs.append(self.divide(numerators, denominators, count).to(part.query.dtype))
        return _joined(outputs), None, None

    def attend_to_earlier(self, part: "Part", sums: RunningSums | None) -> tuple[torch.Tensor, RunningSums]:
        """Return the output of a causal model for one part, and the sums over all tokens up to its end."""
        query = self.map_queries(part)
        key, value = self.map_keys(part, None if sums is None else sums.log_scale)
        count = number_of_keys(value, True, part.keep) if self.counts_keys else None
        if count is not None and sums is not None:
            count = count + sums.denominator[:, :1, -1]
        numerators, denominators, sums = attend_causally(query, key, value, sums)
        return self.divide(numerators, denominators, count).to(part.query.dtype), sums

    def attend_by_matrix(self, part: "Part") -> tuple[torch.Tensor, None, torch.Tensor]:
        """Return the output, and the weights of all pairs, from which it is computed."""
        query = self.map_queries(part)
        key, value = self.map_keys(part)
        weights, below = weights_of_all_pairs(query, key, self.is_causal)
        count = number_of_keys(value, self.is_causal, part.keep) if self.counts_keys else None
        weights = self.divide(weights.transpose(1, 2), below.sum(-1).transpose(1, 2), count).transpose(1, 2)
        return torch.matmul(weights, value.transpose(1, 2)).transpose(1, 2).to(part.query.dtype), None, weights

    def map_queries(self, part: "Part") -> Features:
        """Return the features of the queries."""
        return self.feature_map.query(_wide(part.query), part.positions[:2])

    def map_keys(self, part: "Part", log_scale: torch.Tensor | None = None) -> tuple[Features, torch.Tensor]:
        """Return the features of the keys, and the values, rotated if the model has `rotary_value`. `log_scale` is from
        the sums over earlier keys."""
        value = _wide(part.value)
        if part.positions and self.config.rotary_value:
            value = rotate(value, *part.positions[-2:])
        key = self.feature_map.key(_wide(part.key), part.positions[:2], part.keep, self.is_causal, log_scale)
        return key, value

    def divide(self, numerators: torch.Tensor, denominators: torch.Tensor, count: torch.Tensor | None) -> torch.Tensor:
        """Divide shape (b, s, h, e) by (b, s, h). Return 0 where the denominator is below `least_denominator`."""
        attends = denominators > self.feature_map.least_denominator(denominators.dtype, count)
        return numerators / denominators.where(attends, torch.inf)[..., None]


class Part(NamedTuple):
    """Tokens that are computed at once: query, key and value of shape (b, s, h, d), cos and sin of their positions, and
    False for padding, boolean, shape (b, s), or None."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    positions: Positions
    keep: torch.Tensor | None

    def split(self, tokens: int) -> list["Part"]:
        """Return the same in parts of at most `tokens` tokens of each text."""
        if self.value.shape[1] <= tokens:
            return [self]
        query, key, value, *positions = (
            x.split(tokens, dim=1) for x in (self.query, self.key, self.value, *self.positions)
        )
        keep = repeat(None) if self.keep is None else self.keep.split(tokens, dim=1)
        positions = zip(*positions, strict=True) if positions else repeat(())
        return [Part(*each) for each in zip(query, key, value, positions, keep, strict=False)]


def tokens_at_once(query: torch.Tensor) -> int:
    """Return the number of tokens per part: few enough for the CPU's cache, enough to saturate a GPU."""
    if query.device.type != "cpu":
        return 8192
    return max(CHUNK, 256 // query.shape[0] // CHUNK * CHUNK)


def weights_of_all_pairs(query: Features, key: Features, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the terms of both sums of equation 19, each of shape (b, h, s, s), for `output_attentions`."""
    visible = None
    if causal:
        s = query.numerator.shape[1]
        visible = torch.ones(s, s, dtype=torch.bool, device=query.numerator.device).tril()
    weights, below = (
        torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1))
        for q, k in ((query.numerator, key.numerator), (query.denominator, key.denominator))
    )
    if visible is None:
        return weights, below
    scale = visible
    if key.log_scale is not None:
        shift = key.log_scale.transpose(1, 2)[:, :, None]  # (b, h, 1, s)
        own_shift = shift.masked_fill(~visible, torch.finfo(shift.dtype).min).amax(-1, keepdim=True)
        scale = (shift - own_shift).masked_fill(~visible, -torch.inf).exp()
    return weights * scale, below * scale


def number_of_keys(value: torch.Tensor, causal: bool, keep: torch.Tensor | None) -> torch.Tensor:
    """Return the number of keys that each query sees, shape (b, s or 1)."""
    b, s = value.shape[:2]
    ones = value.new_ones(b, s) if keep is None else keep.to(value.dtype)
    return ones.cumsum(1) if causal else ones.sum(1, keepdim=True)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _without_autocast(device_type: str):
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
