"""Attention that materialises the probabilities, for short texts in bfloat16 on a CPU.

When: training on a CPU in bfloat16 with "sdpa", up to 512 tokens.
Gain: 3 to 4 times as fast as torch's fused kernel (2.13) at 16 tokens, 1.3 to 1.5 times at 512, equal at 1,024.
Benchmark: benchmarks/short_attention.py, two threads.

The fused kernel's backward pass works in tiles too small for the matrix units. Here the products are whole matrices,
for a chunk of the batch at a time and computed again in the backward pass, so that memory is that of the fused kernel.

Dimensions in the shapes: b batch, s sequence length, k length of the keys, h heads, d head_dim.
"""

from typing import Any

import torch
from torch.nn import functional as F

from .inputs import is_traced, is_transformed

LONGEST = 512  # tokens
ELEMENTS = 1 << 20  # probabilities per chunk of the batch, at least one text


def is_short_training(query: torch.Tensor, longest: int, attention_mask: torch.Tensor | None) -> bool:
    """Return whether `short_attention_forward` is faster than the fused kernel for at most `longest` keys."""
    if query.dtype != torch.bfloat16 or query.device.type != "cpu" or is_traced() or is_transformed():
        return False
    if isinstance(attention_mask, torch.Tensor) and attention_mask.requires_grad:
        return False
    return torch.is_grad_enabled() and query.requires_grad and longest <= LONGEST


def short_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    eager: Any = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Compute what transformers' function for "sdpa" computes, with its arguments: `attention_mask` is boolean, False
    for masked pairs, or added to the scores, or None, and then `module.is_causal` decides. `eager` computes dropout.
    Shapes are those of `eager_attention_forward`."""
    s, k = query.shape[-2], key.shape[-2]
    if attention_mask is None and module.is_causal and s > 1:
        attention_mask = torch.ones(s, k, dtype=torch.bool).tril()  # aligned at the upper left, as in sdpa
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        attention_mask = torch.where(attention_mask, 0.0, torch.finfo(query.dtype).min)
    if attention_mask is not None:
        attention_mask = attention_mask.to(query.dtype)
    if dropout:
        return eager(module, query, key, value, attention_mask, scaling, dropout)[0], None
    with torch.autocast("cpu", enabled=False):
        return _ShortAttention.apply(query, key, value, attention_mask, scaling).transpose(1, 2).contiguous(), None


class _ShortAttention(torch.autograd.Function):
    """softmax(scaling · q·kᵀ + mask)·v, of shape (b, h, s, d)."""

    @staticmethod
    def forward(ctx, query, key, value, mask, scaling):
        ctx.save_for_backward(query, key, value, mask)
        ctx.scaling = scaling
        chunks = _chunks(mask, query, key, value)
        return torch.cat([torch.matmul(_probabilities(q, k, m, scaling), v) for m, q, k, v in chunks])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        query, key, value, mask = ctx.saved_tensors
        parts = []
        for m, q, k, v, g in _chunks(mask, query, key, value, gradient):
            probabilities = _probabilities(q, k, m, ctx.scaling)
            value_gradient = torch.matmul(probabilities.mT, g)
            scores = torch._softmax_backward_data(torch.matmul(g, v.mT), probabilities, -1, g.dtype).mul_(ctx.scaling)
            parts.append((torch.matmul(scores, k), torch.matmul(scores.mT, q), value_gradient))
        return *(torch.cat(part) for part in zip(*parts, strict=True)), None, None


def _probabilities(q, k, mask, scaling):
    scores = torch.matmul(q * scaling, k.mT)  # d products per token; scaling the scores would take k
    return F.softmax(scores if mask is None else scores.add_(mask), dim=-1)


def _chunks(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor, *others: torch.Tensor):
    """Yield the mask, query, key and other tensors in chunks of the batch."""
    b, h, s, _ = query.shape
    texts = max(1, ELEMENTS // (h * s * key.shape[-2]))
    masks = [mask] * -(-b // texts)
    if mask is not None and mask.ndim == 4 and mask.shape[0] == b:
        masks = mask.split(texts)
    return zip(masks, *(x.split(texts) for x in (query, key, *others)), strict=True)
