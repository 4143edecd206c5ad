"""Multi-head softmax attention with rotary position embedding: equations 2 and 16 of the RoFormer paper
(arXiv:2104.09864).

Each kind of self-attention is a class, with its forward pass, its mask, its cache and its buffers. Softmax attention is
`RoFormerSelfAttention`; other kinds are in linear_attention.py and nezha.py. The kernels and the masks are
transformers'.

Dimensions in the shapes: b batch, s sequence length, k length of the keys (those in the cache included), h heads,
d head_dim.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask, packed_sequence_mask_function
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration import RoFormerConfig
from .rotary import attention_factor, rotate, rotate_query_and_key
from .unpadding import Packing

if TYPE_CHECKING:
    from .call import Call


def eager_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(q·kᵀ / √d + mask)·v with the matrix of probabilities in memory.

    Args:
        query: shape (b, h, s, d).
        key, value: shape (b, h, k, d).
        attention_mask: added to the scores, shape broadcastable to (b, h, s, k), or None.

    Returns:
        The output, shape (b, s, h, d), and the probabilities, shape (b, h, s, k).
    """
    scores = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = F.softmax(scores, dim=-1)
    probabilities = F.dropout(probabilities, p=dropout, training=module.training)
    return torch.matmul(probabilities, value).transpose(1, 2).contiguous(), probabilities


class MultiHeadAttention(nn.Module):
    """Projections to query, key and value, and softmax attention over heads.

    Subclasses apply positions after the projections: self-attention rotates queries and keys (equation 16), linear
    attention rotates their features (equation 19), cross-attention rotates nothing.
    """

    is_causal = False  # the kernels read it if there is no mask

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.query = nn.Linear(config.hidden_size, config.hidden_size, bias=config.use_bias)
        self.key = nn.Linear(config.hidden_size, config.hidden_size, bias=config.use_bias)
        self.value = nn.Linear(config.hidden_size, config.hidden_size, bias=config.use_bias)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def project(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return query, key and value of the same tokens, each of shape (b, s, h, d)."""
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query, key, value = self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)
        return query.view(shape), key.view(shape), value.view(shape)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        output_attentions: bool | None = None,
        packing: Packing | None = None,
        factor: float = 1.0,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return softmax attention, shape (b, s, hidden_size), of query, key and value of shape (b, h, s or k, d), and
        the probabilities, None if the implementation does not return them. Scores are multiplied by `factor` / √d."""
        implementation = "eager" if output_attentions else self.config._attn_implementation or "eager"
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        if implementation not in ("eager", "sdpa"):
            check_kernel(self, implementation, query)
        kwargs |= {"dropout": self.dropout.p if self.training else 0.0, "scaling": factor * self.head_dim**-0.5}
        if packing is not None:
            return packing.attend(attention, self, query, key, value, **kwargs).flatten(-2), None
        context, probabilities = attention(self, query, key, value, attention_mask, **kwargs)
        return context.flatten(-2).contiguous(), probabilities


class RoFormerSelfAttention(MultiHeadAttention):
    """Self-attention with equation 16: (R(m)·q)ᵀ(R(n)·k) in place of qᵀk; qᵀk without `position_embeddings`.

    The config may be changed between calls: each call reads it, and so does the model for the mask and the frequencies.
    Other kinds of self-attention are subclasses.
    """

    # Whether each pair of tokens has a score. Then a mask can exclude pairs, and a cache has each token.
    computes_pairs = True
    cache_class: type[Cache] = Cache  # class of the caches that `forward` takes

    @property
    def is_causal(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.is_decoder  # UniLM's kernels always get a mask

    def forward(
        self,
        hidden_states: torch.Tensor,
        *position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        query, key, value = self.project(hidden_states)
        if position_embeddings:
            rotation = position_embeddings[0]
            query, key = rotate_query_and_key(query, key, rotation)
            if self.config.rotary_value:
                value = rotate(value, rotation)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        if past_key_values is not None:
            # The cache holds rotated keys, which is all that equation 16 needs.
            cache: Any = getattr(past_key_values, "self_attention_cache", past_key_values)
            key, value = cache.update(key, value, self.layer_idx)
        return self.attend(query, key, value, attention_mask, factor=attention_factor(self.config), **kwargs)

    @staticmethod
    def shared_buffers(config: RoFormerConfig) -> dict[str, torch.Tensor]:
        """Return the buffers that all layers share, by name; they lie in the encoder, and begin at 0."""
        return {}

    @staticmethod
    def counted_steps(model: Any) -> torch.Tensor | None:
        """Return the number of training steps so far, which `redraw` needs on the host, as a 0-d tensor; None if
        nothing is redrawn."""

    @staticmethod
    def redraw(model: Any, counted_steps: int) -> None:
        """Redraw random tensors of the layers, if they are due; softmax attention has none."""

    @staticmethod
    def can_pack(config: RoFormerConfig) -> bool:
        """Return whether the layers can compute packed texts.

        UniLM's mask and flex attention do not support them. Nor does an eager decoder, which is causal only by its
        mask: packed texts have none.
        """
        is_eager_decoder = config._attn_implementation == "eager" and config.is_decoder
        return not (is_eager_decoder or config.prefix_lm or config._attn_implementation == "flex_attention")

    @staticmethod
    def make_mask(call: "Call", hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return the mask of a call in the form that its attention implementation takes; None if nothing is masked, as
        in packed texts. `hidden_states` are those of the first layer, shape (b, s, hidden_size)."""
        config, attention_mask, flat_packing = call.config, call.attention_mask, call.flat_packing
        if attention_mask is not None and attention_mask.ndim == 4:
            return _to_kernel_mask(config, hidden_states, attention_mask)
        is_causal = config.is_decoder or config.prefix_lm
        if call.packing is not None or (attention_mask is None and flat_packing is None and not is_causal):
            return None
        separate = None
        if flat_packing is not None:
            separate = packed_sequence_mask_function(flat_packing.starts.cumsum(dim=1))
        if is_causal:
            return _causal_mask(call, hidden_states, separate)
        # A mask is never skipped where there is padding: to find out whether it can be, transformers would read its
        # values, which fails under vmap and on the meta device.
        kwargs = {"and_mask_function": separate, "allow_is_bidirectional_skip": False}
        return create_bidirectional_mask(config, hidden_states, attention_mask, **kwargs)

    @staticmethod
    def make_cache(config: RoFormerConfig) -> Cache:
        """Return a new cache for a decoder of that config."""
        return DynamicCache(config=config)


class RoFormerCrossAttention(MultiHeadAttention):
    """Attention of a decoder to an encoder's output. The two texts share no positions, so nothing is rotated."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        packing: Packing | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        def by_head(x: torch.Tensor) -> torch.Tensor:
            return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)

        query = self.query(hidden_states)
        query = by_head(query if packing is None else packing.unpack(query))  # each text attends to a source of its own
        cached = isinstance(past_key_values, EncoderDecoderCache)
        if cached and past_key_values.is_updated.get(self.layer_idx):
            layer: Any = past_key_values.cross_attention_cache.layers[self.layer_idx]
            key, value = layer.keys, layer.values
        else:
            key, value = by_head(self.key(encoder_hidden_states)), by_head(self.value(encoder_hidden_states))
            if cached:
                key, value = past_key_values.cross_attention_cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True
        context, probabilities = self.attend(query, key, value, attention_mask, **kwargs)
        return context if packing is None else packing.pack(context), probabilities


def make_source_mask(call: "Call", hidden_states: torch.Tensor) -> torch.Tensor | None:
    """Return the mask of cross-attention; None if nothing is masked."""
    mask = call.encoder_attention_mask
    if mask is None:
        return None
    if mask.ndim == 4:
        return _to_kernel_mask(call.config, hidden_states, mask)
    kwargs = {"encoder_hidden_states": call.encoder_hidden_states, "allow_is_bidirectional_skip": False}
    return create_bidirectional_mask(call.config, hidden_states, mask, **kwargs)


def check_kernel(module: MultiHeadAttention, implementation: str, query: torch.Tensor) -> None:
    """Raise a ValueError if a kernel other than "eager" and "sdpa" cannot compute attention of these queries."""
    if implementation == "flex_attention":
        if query.device.type == "cpu":
            # torch 2.13, narrow heads: NaN in one call, 2e-2 off in the next, right in most.
            raise ValueError(
                'attn_implementation="flex_attention" gives wrong results and no gradients on a CPU: use "sdpa" there'
            )
        if module.training and module.dropout.p > 0:
            raise ValueError(
                'attn_implementation="flex_attention" has no dropout: set attention_probs_dropout_prob to 0 for '
                'training, or use "sdpa"'
            )


def _causal_mask(call: "Call", hidden_states: torch.Tensor, separate: Any) -> torch.Tensor | None:
    """Return the mask of a decoder or of UniLM; `separate` allows the pairs within one text, None allows all."""
    config, attention_mask, s = call.config, call.attention_mask, hidden_states.shape[1]
    if s == 1 and not getattr(call.cache, "is_compileable", False):
        # A step of generation: the token sees itself and all that is cached, so only padding is masked.
        if attention_mask is None:
            return None
        if config._attn_implementation in ("sdpa", "eager"):
            return _to_kernel_mask(config, hidden_states, attention_mask[:, None, None] != 0)
    kwargs: dict[str, Any] = {"and_mask_function": separate, "allow_is_causal_skip": attention_mask is None}
    if config.prefix_lm and s > 1:
        kwargs["or_mask_function"] = see_prefix(hidden_states, call.token_type_ids, call.cache)
    return create_causal_mask(config, hidden_states, attention_mask, call.cache, **kwargs)


def see_prefix(hidden_states: torch.Tensor, token_type_ids: torch.Tensor | None, cache: Cache | None):
    """Return the mask function of the pairs that UniLM's mask adds to the causal mask.

    Token i sees j if Σ_{t≤j} segment_t ≤ Σ_{t≤i} segment_t, so that all tokens of a run of segment 0 see each other.
    Cached tokens precede i, so the causal mask covers them.
    """
    s, past = hidden_states.shape[1], 0 if cache is None else cache.get_seq_length()
    if token_type_ids is None:
        return lambda batch_idx, head_idx, q_idx, kv_idx: (kv_idx >= past) & (kv_idx < past + s)
    group = token_type_ids.to(hidden_states.device).cumsum(dim=1)

    def prefix(batch_idx, head_idx, q_idx, kv_idx):
        q, k = q_idx - past, kv_idx - past
        inside = (k >= 0) & (k < s)
        return inside & (group[batch_idx, k.clamp(0, s - 1)] <= group[batch_idx, q.clamp(0, s - 1)])

    return prefix


def _to_kernel_mask(config: RoFormerConfig, hidden_states: torch.Tensor, attention_mask: Any) -> Any:
    """Return a mask of four dimensions in the form that the kernel takes; a BlockMask of flex attention as it is."""
    implementation, dtype = config._attn_implementation, hidden_states.dtype
    if "flex" in implementation and not isinstance(attention_mask, torch.Tensor):
        return attention_mask
    if attention_mask.is_floating_point():
        # A row of -inf alone, as the least float32 becomes in half precision, has a softmax of NaN.
        return attention_mask.to(dtype).clamp(min=torch.finfo(dtype).min)
    keep = attention_mask.bool()
    return keep if implementation == "sdpa" else ~keep * torch.tensor(torch.finfo(dtype).min, dtype=dtype)
