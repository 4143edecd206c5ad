"""Softmax attention for training in bfloat16 on a CPU, on texts of up to 512 tokens.

There torch's fused kernel (2.13) computes its backward pass tile by tile, in products too small for the matrix units: with the
matrix of probabilities in memory, forward and backward pass together take a sixth of its time at 16 tokens, half at 256.

Dimensions in the shapes: b batch, s sequence length, k length of the keys, h heads, d head_dim.
"""

import torch
from torch.nn import functional as F

from .inputs import is_traced

LONGEST = 512  # tokens; the matrix grows with their square


def is_short_training(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether `short_attention_forward` is the faster one here."""
    if is_traced() or query.device.type != "cpu" or query.dtype != torch.bfloat16:
        return False
    return torch.is_grad_enabled() and query.requires_grad and key.shape[-2] <= LONGEST


def short_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """softmax(q·kᵀ / √d + mask)·v, in place of transformers' function for "sdpa".

    Args:
        query: shape (b, h, s, d).
        key, value: shape (b, h, k, d).
        attention_mask: boolean, True for what is attended to, or added to the scores, shape broadcastable to (b, h, s, k);
            where None, `module.is_causal` says who sees whom.

    Returns:
        The output, shape (b, s, h, d), and None.
    """
    s, k = query.shape[-2], key.shape[-2]
    if attention_mask is None and module.is_causal and s > 1:
        attention_mask = torch.ones(s, k, dtype=torch.bool).tril()  # as sdpa's, from the upper left
    # Scaling the query first costs d multiplications a token, the scores k.
    scores = torch.matmul(query * scaling, key.transpose(-1, -2))
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    probabilities = F.dropout(F.softmax(scores, dim=-1), dropout)
    return torch.matmul(probabilities.to(value.dtype), value).transpose(1, 2).contiguous(), None
