"""Multi-head attention with rotary position embedding: equations 2 and 16 of the RoFormer paper (arXiv:2104.09864).

The kernels are transformers' (`ALL_ATTENTION_FUNCTIONS`).

Dimensions in the shapes: b batch, s sequence length, k length of the keys, h heads, d head_dim.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration import RoFormerConfig
from .fast_short_attention import is_short_training, short_attention_forward
from .masks import implementation_for
from .rope_scaling import attention_factor
from .rotary import rotate
from .unpadding import Packing


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

    supports_unpadding = True
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

    @property
    def scaling(self) -> float:
        """Factor on the scores."""
        return self.head_dim**-0.5

    def by_head(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape (b, s, hidden_size) to (b, s, h, d)."""
        return x.view(*x.shape[:-1], -1, self.head_dim)

    def project(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return query, key and value of the same tokens, each of shape (b, s, h, d)."""
        query = self.by_head(self.query(hidden_states))
        key = self.by_head(self.key(hidden_states))
        value = self.by_head(self.value(hidden_states))
        return query, key, value

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        output_attentions: bool | None,
        packing: Packing | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return softmax attention, shape (b, s, hidden_size), of query, key and value of shape (b, h, s or k, d), and
        the probabilities, None if the implementation does not return them."""
        implementation = implementation_for(self.config, output_attentions)
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        longest = key.shape[-2] if packing is None else packing.max_length
        if implementation == "sdpa" and is_short_training(query, longest, attention_mask):
            attention = partial(short_attention_forward, eager=eager_attention_forward)
        kwargs |= {"dropout": self.dropout.p if self.training else 0.0, "scaling": self.scaling}
        if packing is not None:
            return packing.attend(attention, self, query, key, value, **kwargs).flatten(-2), None
        context, probabilities = attention(self, query, key, value, attention_mask, **kwargs)
        return context.flatten(-2).contiguous(), probabilities


class RoFormerSelfAttention(MultiHeadAttention):
    """Self-attention with equation 16: (R(m)·q)ᵀ(R(n)·k) in place of qᵀk; qᵀk if `position_embeddings` is empty.

    The config is read in each call, as the model reads it for the mask and the frequencies: it may be changed.
    """

    @property
    def is_causal(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.is_decoder and not self.config.prefix_lm

    @property
    def scaling(self) -> float:
        """Factor on the scores, with that of YaRN."""
        return self.head_dim**-0.5 * attention_factor(self.config)

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
        if position_embeddings:
            query = rotate(query, *position_embeddings)
            key = rotate(key, *position_embeddings)
            if self.config.rotary_value:
                value = rotate(value, *position_embeddings)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        if past_key_values is not None:
            if isinstance(past_key_values, EncoderDecoderCache):
                past_key_values = past_key_values.self_attention_cache
            # The cache holds rotated keys, which is all that equation 16 needs.
            key, value = past_key_values.update(key, value, self.layer_idx)
        return self.attend(query, key, value, attention_mask, output_attentions, packing, **kwargs)


class RoFormerCrossAttention(MultiHeadAttention):
    """Attention of a decoder to an encoder's output. The two texts share no positions, so nothing is rotated."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor,
        past_key_values: Cache | None = None,
        output_attentions: bool | None = None,
        packing: Packing | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        query = self.by_head(self.query(hidden_states))
        if packing is not None:  # each text attends to a source of its own
            query = packing.unpack(query)
        query = query.transpose(1, 2)
        cached = isinstance(past_key_values, EncoderDecoderCache)
        if cached and past_key_values.is_updated.get(self.layer_idx):
            layer: Any = past_key_values.cross_attention_cache.layers[self.layer_idx]
            key, value = layer.keys, layer.values
        else:
            key = self.by_head(self.key(encoder_hidden_states)).transpose(1, 2)
            value = self.by_head(self.value(encoder_hidden_states)).transpose(1, 2)
            if cached:
                key, value = past_key_values.cross_attention_cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True
        context, probabilities = self.attend(query, key, value, attention_mask, output_attentions, **kwargs)
        return context if packing is None else packing.pack(context), probabilities
