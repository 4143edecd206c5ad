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

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim, f features, e width of the values, c chunks, i
and n positions of queries and keys within a chunk.
"""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import repeat
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from .attention import MultiHeadAttention, check_states, raise_inseparable
from .configuration import RoFormerConfig
from .inputs import check_shape, is_traced
from .linear_feature_maps import (
    CHUNK,
    CosineMap,
    Features,
    Positions,
    in_chunks,
    is_redrawing,
    make_feature_map,
    out_of_chunks,
    redraw_features,
)
from .rotary import rotate
from .unpadding import FlatPacking, Packing

LONGEST_MATRIX = 4096


def check_matrix(s: int, cache: Cache | None, layer_idx: int) -> None:
    """Raise a ValueError if linear attention cannot return the weights of all pairs of tokens."""
    if cache is not None and cache.get_seq_length(layer_idx):
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

    masks_texts = False

    @property
    def is_causal(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.is_decoder

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
        if output_attentions:
            check_matrix(hidden_states.shape[1], past_key_values, self.layer_idx)
        query, key, value = self.project(hidden_states)
        device = query.device.type
        has_autocast = device != "meta" and torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if has_autocast else nullcontext():
            if packing is not None:
                texts = packing.by_length(query, key, value, *position_embeddings)
                contexts = [self.attend_linearly(q, k, v, positions)[0] for q, k, v, *positions in texts]
                return torch.cat([context.flatten(0, 1) for context in contexts])[None].flatten(-2), None
            inputs = query, key, value, position_embeddings, attention_mask
            if past_key_values is None:
                context, _ = self.attend_linearly(*inputs)
            else:
                layer: Any = getattr(past_key_values, "self_attention_cache", past_key_values).layers[self.layer_idx]
                context, sums = self.attend_linearly(*inputs, layer.sums)
                layer.extend(sums, value.shape[1])
            weights = None
            if output_attentions:
                context, weights = self.attend_by_matrix(*inputs)
        return context.flatten(-2), weights

    @staticmethod
    def check_implementation(config: RoFormerConfig, implementation: str | None) -> None:
        """Raise a ValueError if a kernel for softmax attention is requested and the model has no softmax attention."""
        if (
            implementation
            and ("flash" in implementation or "flex" in implementation)
            and not config.add_cross_attention
        ):
            raise ValueError(
                f'attn_implementation="{implementation}" is for softmax attention, but the model has '
                'attention_type="linear": leave it out'
            )

    @staticmethod
    def can_pack(config: RoFormerConfig) -> bool:
        """Return True: texts of one length are computed at once, whatever kernel softmax attention would have."""
        return True

    @staticmethod
    def check_mask(config: RoFormerConfig, attention_mask: Any, tokens: torch.Tensor, cache: Cache | None) -> None:
        """Raise a ValueError unless an `attention_mask` has the shape (b, k); `tokens` has the shape (b, s, …)."""
        config.check_linear_attention()  # fields may have been set since the model was made
        b, s = tokens.shape[:2]
        k = s if cache is None else s + cache.get_seq_length()
        if attention_mask is not None and getattr(attention_mask, "ndim", 0) != 2:
            raise ValueError(
                f'attention_type="linear" cannot mask pairs of tokens: expected an attention_mask of shape ({b}, {k}), 0 '
                "for padding"
            )
        check_shape("attention_mask", attention_mask, (b, k))

    @staticmethod
    def make_mask(
        config: RoFormerConfig,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        texts: FlatPacking | None = None,
        packing: Packing | None = None,
    ) -> torch.Tensor | None:
        """Return False for padding, boolean, shape (b, s); None if there is none. Cached sums leave padding out already."""
        if packing is not None:
            return None
        if texts is not None:
            raise_inseparable('attention_type="linear"')
        return None if attention_mask is None else attention_mask[:, -hidden_states.shape[1] :] != 0

    @staticmethod
    def make_cache(config: RoFormerConfig) -> Cache:
        """Return a new cache for a decoder of that config."""
        return LinearAttentionCache(config)

    @staticmethod
    def check_cache(cache: Any, config: RoFormerConfig, b: int) -> None:
        """Raise a ValueError unless a decoder of that config can extend this cache for b texts."""
        if not isinstance(cache, LinearAttentionCache):
            raise ValueError(
                f'past_key_values is a {type(cache).__name__}; attention_type="linear" needs a LinearAttentionCache: leave '
                "it out, or use another adapter than a prefix"
            )
        layers: list[Any] = cache.layers
        sums = layers[0].sums if layers else None
        check_states(cache, None if sums is None else sums.numerator, config, b, None)

    @staticmethod
    def read_only(cache: Any) -> Cache:
        """Raise a ValueError: sums have no copy that is only read."""
        raise ValueError(
            'attention_type="linear" takes no past_key_values under gradient checkpointing: leave them out; for '
            "fine-tuning, use another adapter than a prefix"
        )

    @staticmethod
    def shared_buffers(config: RoFormerConfig) -> dict[str, torch.Tensor]:
        """Return the number of training steps so far, if random features are redrawn."""
        return {"training_steps": torch.zeros((), dtype=torch.long)} if config.linear_feature_map == "favor" else {}

    @staticmethod
    def training_steps(model: Any) -> torch.Tensor | None:
        """Return the number of earlier training steps of a `RoFormerModel`, if this call may redraw random features."""
        return model.encoder.training_steps if is_redrawing(model) else None

    @staticmethod
    def redraw(model: Any, training_steps: int) -> None:
        """Redraw the random features if that is due (see `redraw_features`)."""
        redraw_features(model, training_steps)

    def attend_linearly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_embeddings: Positions,
        keep: torch.Tensor | None = None,
        sums: Any = None,
    ) -> tuple[torch.Tensor, "RunningSums"]:
        """Compute equation 19.

        Args:
            query, key, value: shape (b, s, h, d).
            position_embeddings: cos and sin for the features, then those for the values if they differ; or nothing.
            keep: False for padding, boolean, shape (b, s); None if there is none.
            sums: `RunningSums` over the preceding tokens; None if there are none.

        Returns:
            The output, shape (b, s, h, d), and the sums over all tokens so far.
        """
        count = self.number_of_keys(value, keep, sums)
        parts = split(query, key, value, keep, count, *position_embeddings)
        if not self.is_causal:
            for _, k, v, keep, _, *positions in parts:
                sums = add_sums(sums, sum_keys(*self.map_keys(k, v, positions, keep)))
        outputs = []
        for q, k, v, keep, count, *positions in parts:
            features = self.feature_map.query(_wide(q), positions[:2])
            if self.is_causal:
                keys = self.map_keys(k, v, positions, keep, None if sums is None else sums.log_scale)
                numerators, denominators, sums = attend_causally(features, *keys, sums)
            else:
                numerators, denominators = attend_to_sums(features, sums)
            outputs.append(self.divide(numerators, denominators, count).to(q.dtype))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1), sums

    def attend_by_matrix(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_embeddings: Positions,
        keep: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same output, computed from the weights of all pairs, and these, shape (b, h, s, s).

        A query's weights add up to 1 only if both sums of equation 19 have the same weights.
        """
        q = self.feature_map.query(_wide(query), position_embeddings[:2])
        k, v = self.map_keys(key, value, position_embeddings, keep)
        weights, below = (
            torch.matmul(a.transpose(1, 2), b.permute(0, 2, 3, 1))
            for a, b in ((q.numerator, k.numerator), (q.denominator, k.denominator))
        )
        if self.is_causal:
            log_scale = None if k.log_scale is None else k.log_scale.transpose(1, 2)
            scales = pair_scales(_up_to(value.shape[1], value), log_scale, weights.dtype)
            weights, below = weights * scales, below * scales
        count = self.number_of_keys(value, keep)
        weights = self.divide(weights.transpose(1, 2), below.sum(-1).transpose(1, 2), count).transpose(1, 2)
        return torch.matmul(weights, v.transpose(1, 2)).transpose(1, 2).to(query.dtype), weights

    def map_keys(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        positions: Positions,
        keep: torch.Tensor | None,
        log_scale: torch.Tensor | None = None,
    ) -> tuple[Features, torch.Tensor]:
        """Return the features of the keys, and the values, rotated if the model has `rotary_value`. `log_scale` is from
        the sums over earlier keys."""
        value = _wide(value)
        if positions and self.config.rotary_value:
            value = rotate(value, *positions[-2:])
        return self.feature_map.key(_wide(key), positions[:2], keep, self.is_causal, log_scale), value

    def number_of_keys(
        self, value: torch.Tensor, keep: torch.Tensor | None, sums: "RunningSums | None" = None
    ) -> torch.Tensor | None:
        """Return the number of keys that each query sees, shape (b, s), if `divide` reads it."""
        if not isinstance(self.feature_map, CosineMap):
            return None
        dtype = torch.promote_types(value.dtype, torch.float32)
        ones = value.new_ones(value.shape[:2], dtype=dtype) if keep is None else keep.to(dtype)
        if not self.is_causal:
            return ones.sum(1, keepdim=True).expand_as(ones)
        # CosineMap's last feature is 1 for every key, so its sum is their number.
        return ones.cumsum(1) if sums is None else ones.cumsum(1) + sums.denominator[:, :1, -1]

    def divide(self, numerators: torch.Tensor, denominators: torch.Tensor, count: torch.Tensor | None) -> torch.Tensor:
        """Divide shape (b, s, h, e) by (b, s, h). Return 0 where the denominator is below `least_denominator`."""
        attends = denominators > self.feature_map.least_denominator(denominators.dtype, count)
        return numerators / denominators.where(attends, torch.inf)[..., None]


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
    query: Features, key: Features, value: torch.Tensor, sums: RunningSums | None = None
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
    size = CHUNK if is_traced() else min(CHUNK, s)
    log_scale: Any = None if key.log_scale is None else in_chunks(key.log_scale, size, None)  # (b, h, c, n)
    q, k, v = in_chunks(query.numerator, size), in_chunks(key.numerator, size), in_chunks(value, size)
    q_below, k_below = q, k
    if key.numerator is not key.denominator:
        q_below, k_below = in_chunks(query.denominator, size), in_chunks(key.denominator, size)

    # Over the pairs of positions of each chunk.
    scales = pair_scales(_up_to(size, v), log_scale, v.dtype)
    weights = torch.matmul(q, k.mT) * scales  # (b, h, c, i, n)
    weights_below = weights if q is q_below else torch.matmul(q_below, k_below.mT) * scales
    numerators, denominators = torch.matmul(weights, v), weights_below.sum(-1)

    # Over the preceding tokens, and all earlier chunks.
    b, h, _, _, f = k.shape
    if sums is None:
        lowest = None if log_scale is None else v.new_full((b, h), torch.finfo(v.dtype).min)
        sums = RunningSums(v.new_zeros(b, h, f, v.shape[-1]), v.new_zeros(b, h, f), lowest)
    ends: Any = None  # (b, h, 1 + c), log-scales of the preceding tokens, then at the end of each chunk
    if log_scale is not None:
        ends = torch.cat([sums.log_scale[..., None], log_scale[..., -1]], dim=-1)
        to_end = (log_scale - ends[..., 1:, None]).exp()[..., None]
        k, k_below = k * to_end, k_below * to_end
    of_chunks = torch.cat([sums.numerator[:, :, None], torch.matmul(k.mT, v)], dim=2)  # (b, h, 1 + c, f, e)
    of_chunks_below = torch.cat([sums.denominator[:, :, None], k_below.sum(-2)], dim=2)  # (b, h, 1 + c, f)
    scales = pair_scales(_up_to(of_chunks.shape[2], v), ends, v.dtype)
    totals = torch.matmul(scales, of_chunks.flatten(-2)).unflatten(-1, of_chunks.shape[-2:])
    totals_below = torch.matmul(scales, of_chunks_below)
    before = torch.matmul(q, totals[:, :, :-1])
    before_below = torch.matmul(q_below, totals_below[:, :, :-1, :, None]).squeeze(-1)
    if log_scale is not None:
        from_start = (ends[..., :-1, None] - log_scale).exp()
        before, before_below = before * from_start[..., None], before_below * from_start
    sums = RunningSums(totals[:, :, -1], totals_below[:, :, -1], None if ends is None else ends[..., -1])
    return out_of_chunks(numerators + before, s), out_of_chunks(denominators + before_below, s), sums


def pair_scales(visible: torch.Tensor, log_scale: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return e^(s_n − s_i) for each pair of log-scales s, shape (…, i, n), or 1 without them; 0 for masked pairs."""
    if log_scale is None:
        return visible.to(dtype)
    return (log_scale[..., None, :] - log_scale[..., None]).masked_fill(~visible, -torch.inf).exp()


def _up_to(n: int, like: torch.Tensor) -> torch.Tensor:
    """Return True for each pair of n positions (i, n) that a causal query sees, boolean, shape (n, n)."""
    return torch.ones(n, n, dtype=torch.bool, device=like.device).tril()


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class LinearAttentionLayerCache(CacheLayerMixin):
    """Cache of one layer: `sums` over all tokens so far, None before the first."""

    is_compileable = False
    supports_early_init = False

    def __init__(self):
        super().__init__()
        self.reset()

    def extend(self, sums: RunningSums, tokens: int) -> None:
        """Replace the sums by those that include `tokens` more tokens."""
        self.sums, self.length = sums, self.length + tokens
        self.is_initialized = True

    def reset(self) -> None:
        self.sums: RunningSums | None = None
        self.length = 0
        self.is_initialized = False

    def get_seq_length(self) -> int:
        """Return the number of tokens in the sums."""
        return self.length

    def get_max_length(self) -> int:
        return -1  # no maximum

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Reorder the batch: row i takes the state of row `beam_idx[i]`."""
        self._replace(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._replace(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._replace(lambda x: x[indices.to(x.device)])

    @property
    def is_croppable(self) -> bool:
        return False

    def crop(self, tokens_to_remove: int) -> None:
        """Raise a ValueError: tokens cannot be subtracted from the sums."""
        raise ValueError(
            "linear attention cannot crop its cache: create a new one, and use neither assisted decoding nor "
            "prompt_lookup_num_tokens"
        )

    def update(self, *args, **kwargs):
        raise ValueError("linear attention caches sums, not keys and values: use extend, not update")

    def lazy_initialization(self, *args, **kwargs) -> None:
        """Do nothing: the sums come with the first tokens."""

    def offload(self) -> None:
        """Do nothing: the sums of a layer are no larger than one of its weights."""

    def prefetch(self) -> None:
        """Do nothing, as `offload`."""

    def _replace(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        if self.sums is not None:
            changed: Any = (None if x is None else change(x) for x in self.sums)
            self.sums = RunningSums(*changed)


class LinearAttentionCache(Cache):
    """transformers' `Cache` for a decoder with linear attention. Its size does not depend on the length of the text.

    The model creates it if `use_cache` is set, and so does `generate()`. Each call changes it in place.
    """

    def __init__(self, config: RoFormerConfig):
        super().__init__(layers=[LinearAttentionLayerCache() for _ in range(config.num_hidden_layers)])
