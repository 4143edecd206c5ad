"""Multi-head attention with rotary position embedding: equations 2 and 16 of the RoFormer paper (arXiv:2104.09864).

The kernels are transformers' (`ALL_ATTENTION_FUNCTIONS`); the masks they need are made once per forward, here.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim.
"""

import torch
from torch import nn
from transformers.masking_utils import bidirectional_mask_function, create_bidirectional_mask, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration import RoFormerConfig
from .rotary import rotate


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q·kᵀ / √d + mask)·v, with the matrix of probabilities in memory.

    Args:
        query, key, value: shape (b, h, s, d).
        attention_mask: added to the scores, shape broadcastable to (b, h, s, s), or None.

    Returns:
        The output, shape (b, s, h, d), and the probabilities, shape (b, h, s, s).
    """
    scores = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = nn.functional.softmax(scores, dim=-1)
    probabilities = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    return torch.matmul(probabilities, value).transpose(1, 2).contiguous(), probabilities


def implementation_for(config: RoFormerConfig, output_attentions: bool | None) -> str:
    """The attention implementation of one call: eager where the matrices are asked for, since no other has them."""
    return "eager" if output_attentions else config._attn_implementation


def check_implementation(config: RoFormerConfig, implementation: str, hidden_states: torch.Tensor, training: bool):
    """Refuses, in one sentence, what an implementation cannot compute, before anything is computed."""
    if implementation == "flex_attention":
        if training and config.attention_probs_dropout_prob > 0:
            raise ValueError(
                'attn_implementation="flex_attention" has no dropout: set attention_probs_dropout_prob to 0 for '
                'training, or use "sdpa"'
            )
        if hidden_states.device.type == "cpu" and torch.is_grad_enabled() and hidden_states.requires_grad:
            raise ValueError(
                'attn_implementation="flex_attention" computes no gradients on a CPU: run it under torch.no_grad(), '
                'or use "sdpa"'
            )
    if "flash" in implementation and hidden_states.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(
            f'attn_implementation="{implementation}" computes in float16 or bfloat16, but the model is in '
            f'{str(hidden_states.dtype).removeprefix("torch.")}: load it with dtype="bfloat16", or use "sdpa"'
        )


def encoder_mask(
    config: RoFormerConfig, implementation: str, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None
) -> torch.Tensor | None:
    """The mask of bidirectional attention in the form that an implementation takes.

    Args:
        hidden_states: shape (b, s, hidden_size).
        attention_mask: None; or shape (b, s), not 0 for tokens that are attended to; or shape (b or 1, h or 1, s, s),
            boolean (True for what is attended to) or floating (added to the scores).

    Raises:
        ValueError: for any other shape.
    """
    b, s = hidden_states.shape[:2]
    dtype = hidden_states.dtype
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, torch.Tensor):  # a flex BlockMask
        return attention_mask
    if attention_mask.ndim == 4 and attention_mask.shape[-2:] == (s, s) and attention_mask.shape[0] in (1, b):
        if implementation not in ("sdpa", "eager"):
            raise ValueError(
                f'attn_implementation="{implementation}" takes an attention_mask of shape (batch, length) only; '
                'use "sdpa" for one of four dimensions'
            )
        if attention_mask.is_floating_point():
            return attention_mask.to(dtype)
        keep = attention_mask.bool()
        return keep if implementation == "sdpa" else torch.where(keep, 0.0, torch.finfo(dtype).min).to(dtype)
    if attention_mask.shape != (b, s):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but the input needs ({b}, {s}) "
            f"or ({b}, 1, {s}, {s})"
        )
    if implementation == config._attn_implementation:
        return create_bidirectional_mask(config=config, inputs_embeds=hidden_states, attention_mask=attention_mask)
    return eager_mask(
        batch_size=b,
        q_length=s,
        kv_length=s,
        mask_function=bidirectional_mask_function,
        attention_mask=attention_mask.to(device=hidden_states.device, dtype=torch.bool),
        dtype=dtype,
        device=hidden_states.device,
    )


class RoFormerSelfAttention(nn.Module):
    """Projections to query, key and value, and softmax attention over the rotated ones.

    The projections know nothing of positions: what follows them may rotate before its product, as `attend` does
    (equation 16), or after a feature map, as linear attention will (equation 19).
    """

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        self.rotary_value = config.rotary_value
        self.is_causal = False  # read by the kernels

        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        output_attentions: bool | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        by_head = (*hidden_states.shape[:-1], -1, self.head_dim)  # (b, s, h, d)
        context, probabilities = self.attend(
            self.query(hidden_states).view(by_head),
            self.key(hidden_states).view(by_head),
            self.value(hidden_states).view(by_head),
            attention_mask,
            position_embeddings,
            implementation_for(self.config, output_attentions),
            **kwargs,
        )
        return context.reshape(hidden_states.shape).contiguous(), probabilities

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        implementation: str,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Equation 16: (R(m)·q)ᵀ(R(n)·k) in place of qᵀk. query, key, value have shape (b, s, h, d)."""
        query = rotate(query, *position_embeddings)
        key = rotate(key, *position_embeddings)
        if self.rotary_value:
            value = rotate(value, *position_embeddings)
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        return attention(
            self,
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attention_mask,
            dropout=self.dropout.p if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )


class RoFormerSelfOutput(nn.Module):
    """Projection of the heads' output, residual and norm."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)


class RoFormerAttention(nn.Module):
    """Self-attention sub-layer."""

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__()
        self.self = RoFormerSelfAttention(config, layer_idx)
        self.output = RoFormerSelfOutput(config)

    def forward(self, hidden_states: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        context, _ = self.self(hidden_states, *args, **kwargs)
        return self.output(context, hidden_states)
