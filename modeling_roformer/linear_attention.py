"""Linear attention with rotary position embedding: equations 17 to 19 of the RoFormer paper (arXiv:2104.09864).

Attention weighs values by a similarity of query and key (17),

    o_m = Σ_n sim(q_m, k_n) v_n / Σ_n sim(q_m, k_n),

for softmax attention e^(q_mᵀk_n / √d), which takes all pairs (m, n) to compute. If it is a product of non-negative
features, sim(q, k) = φ(q)ᵀ ϕ(k) (18), the sums over n are computed once for all queries, at a cost that is linear in
the length. Rotation preserves lengths, so it can follow the maps (19):

    o_m = Σ_n (R_m φ(q_m))ᵀ (R_n ϕ(k_n)) v_n  /  Σ_n φ(q_m)ᵀ ϕ(k_n).

Products of rotated features can be negative, so the denominator, which must stay away from 0, is not rotated. The maps
φ and ϕ are in linear_feature_maps.py. Only Performer's map divides by √d, and there is no attention dropout, since
there is no matrix of probabilities.

The sums are one product if every query has the same keys. If it is causal, they are computed chunk by chunk: no tensor
has an entry for each pair of positions of a text, or a matrix for each position, since pairs are formed within a chunk,
and there is one matrix per chunk. The sums over all tokens so far are the cache, whose size is constant.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim, f features, e width of the values, c chunks,
i and n positions of queries and keys within a chunk.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import repeat
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from .attention import RoFormerSelfAttention
from .call import Call
from .configuration import RoFormerConfig
from .inputs import is_traced
from .linear_feature_maps import (
    CHUNK,
    FEATURE_MAPS,
    counted_steps,
    in_chunks,
    out_of_chunks,
    redraw_features,
)
from .model import RoFormerPreTrainedModel
from .rotary import rotate
from .unpadding import Packing

Positions = Sequence[torch.Tensor]  # the rotation of the features, then that of values of another width; or nothing


def check_cache(layer: Any, b: int, output_attentions: bool | None) -> None:
    """Raise a ValueError unless the cache of a layer, with its preceding tokens, is one of b texts, and the weights of
    all pairs of tokens are not asked for."""
    cached = layer.sums.denominator.shape[0]
    if cached != b:
        raise ValueError(
            f"past_key_values is of {cached} texts, but the input has {b}: cache.batch_repeat_interleave(n) repeats "
            "those of a cache"
        )
    if output_attentions:
        raise ValueError(
            "output_attentions=True needs every token, but linear attention caches only sums: pass the whole text with "
            "use_cache=False"
        )


class RoFormerLinearSelfAttention(RoFormerSelfAttention):
    """Self-attention with equation 19, or equation 18 if `position_embeddings` is empty.

    Feature maps and sums are computed in float32, or float64 if the model is: half precision is too coarse for sums
    over a long text.
    """

    computes_pairs = False

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.feature_map = FEATURE_MAPS[config.linear_feature_map](config, layer_idx)

    def forward(
        self,
        hidden_states: torch.Tensor,
        *position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        output_attentions: bool | None = None,
        packing: Packing | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        cache: Any = getattr(past_key_values, "self_attention_cache", past_key_values)
        layer = None if cache is None else cache.layers[self.layer_idx]
        if layer is not None and layer.sums is not None:
            check_cache(layer, hidden_states.shape[0], output_attentions)
        query, key, value = self.project(hidden_states)
        device = query.device.type
        has_autocast = device != "meta" and torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if has_autocast else nullcontext():
            if packing is not None:
                groups = packing.by_length(query, key, value, *position_embeddings)
                contexts = [self.attend_linearly(q, k, v, positions)[0] for q, k, v, *positions in groups]
                return torch.cat([context.flatten(0, 1) for context in contexts])[None].flatten(-2), None
            inputs = query, key, value, position_embeddings, attention_mask
            context, divisors, sums = self.attend_linearly(*inputs, None if layer is None else layer.sums)
            if layer is not None:
                layer.update(sums, value.shape[1])
            weights = None
            if output_attentions:
                context, weights = self.attend_by_pairs(*inputs, divisors)
        return context.flatten(-2), weights

    @staticmethod
    def can_pack(config: RoFormerConfig) -> bool:
        """Return True: texts of one length are computed at once, whatever kernel softmax attention would have."""
        return True

    @staticmethod
    def make_mask(call: Call, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return False for padding, boolean, shape (b, s); None if there is none. Cached sums leave padding out
        already."""
        if call.packing is not None or call.attention_mask is None:
            return None
        return call.attention_mask[:, -hidden_states.shape[1] :] != 0

    @staticmethod
    def make_cache(config: RoFormerConfig) -> Cache:
        """Return a new cache for a decoder of that config."""
        return LinearAttentionCache(config)

    @staticmethod
    def shared_buffers(config: RoFormerConfig) -> dict[str, torch.Tensor]:
        """Return the number of training steps so far, if random features are redrawn."""
        return {"training_steps": torch.zeros((), dtype=torch.long)} if config.linear_feature_map == "favor" else {}

    counted_steps = staticmethod(counted_steps)
    redraw = staticmethod(redraw_features)

    def attend_linearly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_embeddings: Positions,
        keep: torch.Tensor | None = None,
        sums: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor, "RunningSums"]:
        """Compute equation 19.

        Args:
            query, key, value: shape (b, s, h, d).
            keep: False for padding, boolean, shape (b, s); None if there is none.
            sums: `RunningSums` over the preceding tokens; None if there are none.

        Returns:
            The output, shape (b, s, h, d); the denominators, shape (b, s, h), infinite where they are not above
            `least_denominator`, so that the output is 0; and the sums over all tokens so far.
        """
        parts = split(query, key, value, keep, *position_embeddings)
        if not self.is_causal:
            for _, k, v, keep, *positions in parts:
                sums = add_sums(sums, sum_keys(*self.map_keys(k, v, positions, keep)))
        outputs, divisors = [], []
        for q, k, v, keep, *positions in parts:
            queries, before = self.map(self.feature_map.query, q, positions), sums
            if self.is_causal:
                keys, values = self.map_keys(k, v, positions, keep, sums)
                numerators, below, sums = attend_causally(queries, keys, values, sums)
            else:
                keys, (numerators, below) = None, attend_to_sums(queries, sums)
            least = self.feature_map.least_denominator(below.dtype, keys, before)
            divisors.append(below.where(below > least, torch.inf))
            outputs.append((numerators / divisors[-1][..., None]).to(q.dtype))
        return outputs[0] if len(parts) == 1 else torch.cat(outputs, dim=1), torch.cat(divisors, dim=1), sums

    def attend_by_pairs(
        self, query, key, value, position_embeddings, keep, divisors
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output of `attend_linearly` for these arguments and its `divisors`, computed from the weights of
        all pairs so that gradients reach them; and these weights, shape (b, h, s, s).

        A query's weights add up to 1 only if both sums of equation 19 have the same weights.
        """
        queries = self.map(self.feature_map.query, query, position_embeddings)
        keys, values = self.map_keys(key, value, position_embeddings, keep)
        weights = torch.matmul(queries.numerator.transpose(1, 2), keys.numerator.permute(0, 2, 3, 1))
        if self.is_causal:
            log_scale = None if keys.log_scale is None else keys.log_scale.transpose(1, 2)
            weights = weights * pair_scales(weights.shape[-1], log_scale, weights)
        weights = weights / divisors.transpose(1, 2)[..., None]
        return torch.matmul(weights, values.transpose(1, 2)).transpose(1, 2).to(query.dtype), weights

    def map(self, feature_map: Callable, x: torch.Tensor, positions: Positions, *args) -> "Features":
        """Return the features of queries or keys x, shape (b, s, h, d), by that method of the feature map."""
        x, positions = _wide(x), positions[:1]
        if positions and self.feature_map.rotates_first:
            x, positions = rotate(x, *positions), ()
        features, log_scale = feature_map(x, *args)
        return Features(rotate(features, *positions) if positions else features, features, log_scale)

    def map_keys(self, key, value, positions, keep, sums: Any = None) -> tuple["Features", torch.Tensor]:
        """Return the features of the keys, and the values, rotated if the model has `rotary_value`. `sums` are over
        earlier keys."""
        value = _wide(value)
        if positions and self.config.rotary_value:
            value = rotate(value, positions[-1])
        log_scale = None if sums is None else sums.log_scale
        return self.map(self.feature_map.key, key, positions, keep, self.is_causal, log_scale), value


def split(query: torch.Tensor, *others: torch.Tensor | None) -> list[tuple[Any, ...]]:
    """Return tensors of shape (b, s, …) in parts that are computed at once: few enough tokens for the CPU's cache,
    enough to saturate a GPU."""
    b, s = query.shape[:2]
    tokens = max(CHUNK, 256 // b // CHUNK * CHUNK) if query.device.type == "cpu" else 8192
    # Compilers cannot loop over a number of parts that depends on the length.
    if is_traced() or s <= tokens:
        return [(query, *others)]
    parts = (repeat(None) if x is None else x.split(tokens, dim=1) for x in (query, *others))
    return list(zip(*parts, strict=False))


class Features(NamedTuple):
    """Features of queries or keys.

    numerator, denominator: for the two sums of equation 19, both of shape (b, s, h, f); the same tensor if both sums
        have the same weights.
    log_scale: logarithm of the number that the features were divided by (see `FeatureMap.key`); None for none.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    log_scale: Any = None


class RunningSums(NamedTuple):
    """Sums over the preceding tokens, the state of causal linear attention.

    numerator: Σ_n ϕ(k_n) v_nᵀ, rotated, shape (b, h, f, e).
    denominator: Σ_n ϕ(k_n), shape (b, h, f).
    log_scale: logarithm of the number that both were divided by, shape (b, h); None if the map does not scale.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    log_scale: Any = None


def sum_keys(key: Features, value: torch.Tensor) -> RunningSums:
    """Return the sums over all of these keys, with values of shape (b, s, h, e)."""
    numerator = torch.matmul(key.numerator.permute(0, 2, 3, 1), value.transpose(1, 2))
    log_scale = None if key.log_scale is None else key.log_scale[:, -1]
    return RunningSums(numerator, key.denominator.sum(1), log_scale)


def add_sums(sums: RunningSums | None, others: RunningSums) -> RunningSums:
    """Return the sums over the keys of both."""
    if sums is None:
        return others
    if sums.log_scale is None:
        return RunningSums(sums.numerator + others.numerator, sums.denominator + others.denominator)
    log_scale = torch.maximum(sums.log_scale, others.log_scale)
    first, second = ((x.log_scale - log_scale).exp()[..., None] for x in (sums, others))
    return RunningSums(
        sums.numerator * first[..., None] + others.numerator * second[..., None],
        sums.denominator * first + others.denominator * second,
        log_scale,
    )


def attend_to_sums(query: Features, sums: RunningSums) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two sums of equation 19 if every query has the same keys.

    Returns:
        The numerators, shape (b, s, h, e), and denominators, shape (b, s, h).
    """
    numerators = torch.matmul(query.numerator.transpose(1, 2), sums.numerator).transpose(1, 2)
    denominators = torch.matmul(query.denominator.transpose(1, 2), sums.denominator[..., None])
    return numerators, denominators.squeeze(-1).transpose(1, 2)


def attend_causally(
    query: Features, key: Features, value: torch.Tensor, sums: RunningSums | None
) -> tuple[torch.Tensor, torch.Tensor, RunningSums]:
    """Return the two sums of equation 19 over the keys so far.

    Args:
        value: shape (b, s, h, e).
        sums: sums over the preceding tokens.

    Returns:
        The numerators, shape (b, s, h, e), the denominators, shape (b, s, h), and the sums over all tokens so far.
    """
    s = value.shape[1]
    if s == 1 and not is_traced():  # a step of generation
        sums = add_sums(sums, sum_keys(key, value))
        return *attend_to_sums(query, sums), sums
    if sums is None:
        (b, _, h, f), e, least = key.numerator.shape, value.shape[-1], torch.finfo(value.dtype).min
        lowest = None if key.log_scale is None else value.new_full((b, h), least)
        sums = RunningSums(value.new_zeros(b, h, f, e), value.new_zeros(b, h, f), lowest)
    size = CHUNK if is_traced() else min(CHUNK, s)
    log_scale: Any = None
    ends: Any = None  # (b, h, 1 + c), log-scales of the preceding tokens, then at the end of each chunk
    if key.log_scale is not None:
        log_scale = in_chunks(key.log_scale, size, repeats_last=True)  # (b, h, c, n)
        ends = torch.cat([sums.log_scale[..., None], log_scale[..., -1]], dim=-1)
    within = pair_scales(size, log_scale, value)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, before: torch.Tensor):
        """Return Σ_n (q_mᵀ k_n) v_n, shape (b, s, h, e), and `before` + Σ_n k_n v_nᵀ, shape (b, h, f, e)."""
        q, k, v = in_chunks(q, size), in_chunks(k, size), in_chunks(v, size)
        outputs = torch.matmul(torch.matmul(q, k.mT) * within, v)  # over the pairs of each chunk, (b, h, c, i, n)
        if log_scale is not None:
            k = k * (log_scale - ends[..., 1:, None]).exp()[..., None]
        chunk_sums = torch.cat([before[:, :, None], torch.matmul(k.mT, v)], dim=2)  # (b, h, 1 + c, f, e)
        across = pair_scales(chunk_sums.shape[2], ends, value)
        totals = torch.matmul(across, chunk_sums.flatten(-2)).unflatten(-1, chunk_sums.shape[-2:])
        earlier = torch.matmul(q, totals[:, :, :-1])  # over the preceding tokens, and all earlier chunks
        if log_scale is not None:
            earlier = earlier * (ends[..., :-1, None] - log_scale).exp()[..., None]
        return out_of_chunks(outputs + earlier, s), totals[:, :, -1]

    ones = torch.ones_like(value[..., :1])
    before, below = sums.numerator, sums.denominator[..., None]
    if key.numerator is key.denominator:
        joined = attend(query.numerator, key.numerator, torch.cat([value, ones], -1), torch.cat([before, below], -1))
        (numerators, denominators), (numerator, denominator) = (x.split([value.shape[-1], 1], dim=-1) for x in joined)
    else:
        numerators, numerator = attend(query.numerator, key.numerator, value, before)
        denominators, denominator = attend(query.denominator, key.denominator, ones, below)
    sums = RunningSums(numerator, denominator.squeeze(-1), None if ends is None else ends[..., -1])
    return numerators, denominators.squeeze(-1), sums


def pair_scales(n: int, log_scale: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Return e^(s_n − s_i) for each pair (i, n) of log-scales s, shape (…, n), or 1 without them; 0 where i precedes
    n."""
    visible = torch.ones(n, n, dtype=torch.bool, device=like.device).tril()
    if log_scale is None:
        return visible.to(like.dtype)
    return (log_scale[..., None, :] - log_scale[..., None]).masked_fill(~visible, -torch.inf).exp()


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class LinearAttentionLayerCache(CacheLayerMixin):
    """Cache of one layer: `sums` over all tokens so far, None before the first, and the number of these tokens.

    It stays without `keys`, `values` and `is_initialized`, so that transformers neither moves nor resizes them.
    """

    supports_early_init = False
    is_croppable = False

    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.sums: RunningSums | None = None
        self.length = 0

    def update(self, sums: Any, tokens: Any, *args, **kwargs) -> Any:
        """Replace the sums by those that include `tokens` more tokens."""
        self.sums, self.length = sums, self.length + tokens

    def lazy_initialization(self, *args, **kwargs) -> None:
        """Do nothing: the sums come with the first tokens."""

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1  # no maximum

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Reorder the batch: row i takes the state of row `beam_idx[i]`."""
        if self.sums is not None:
            picked: Any = (None if x is None else x[beam_idx.to(x.device)] for x in self.sums)
            self.sums = RunningSums(*picked)

    batch_select_indices = reorder_cache

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.sums is not None:
            self.reorder_cache(torch.arange(len(self.sums.numerator)).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Raise a ValueError: tokens cannot be subtracted from the sums."""
        raise ValueError(
            "linear attention cannot crop its cache: create a new one, and use neither assisted decoding nor "
            "prompt_lookup_num_tokens"
        )


class LinearAttentionCache(Cache):
    """transformers' `Cache` for a decoder with linear attention. Its size does not depend on the length of the text.

    The model creates it if `use_cache` is set, and so does `generate()`. Each call changes it in place.
    """

    def __init__(self, config: RoFormerConfig):
        super().__init__(layers=[LinearAttentionLayerCache() for _ in range(config.num_hidden_layers)])


RoFormerLinearSelfAttention.cache_class = LinearAttentionCache
RoFormerPreTrainedModel.attention_classes["linear"] = RoFormerLinearSelfAttention
