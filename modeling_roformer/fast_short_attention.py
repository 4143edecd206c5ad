"""Softmax attention with the matrix of probabilities in memory: where somebody asks for it, and where it is the fastest.

That is in training on a CPU in bfloat16, on texts of up to 512 tokens. torch's fused kernel (2.13) computes its backward pass
there tile by tile, in products too small for the matrix units: forward and backward pass together take three to four times as
long at 16 tokens, 1.3 to 1.5 times at 512, and no longer at 1,024 (benchmarks/short_attention.py, two threads). Here they take
whole matrices, of some texts at a time and computed anew in the backward pass, so that memory stays what it is with the fused
kernel.

Dimensions in the shapes: b batch, s sequence length, k length of the keys, h heads, d head_dim.
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from .input_checks import is_traced, is_transformed

LONGEST = 512  # tokens; at twice that the fused kernel is as fast
ELEMENTS = 1 << 20  # of the matrices that are in memory at once, at least one text's


def is_short_training(query: torch.Tensor, longest: int, attention_mask: torch.Tensor | None) -> bool:
    """Whether `short_attention_forward` is the faster one here, with at most so many keys."""
    if is_traced() or is_transformed() or query.device.type != "cpu" or query.dtype != torch.bfloat16:
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
    eager: Callable | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """What transformers' function for "sdpa" computes, and takes: `attention_mask` is boolean, True for what is attended to,
    or added to the scores, or None, where `module.is_causal` says who sees whom. `eager` is the
    function that computes dropout. Otherwise as `eager_attention_forward`."""
    s, k = query.shape[-2], key.shape[-2]
    if attention_mask is None and module.is_causal and s > 1:
        attention_mask = torch.ones(s, k, dtype=torch.bool).tril()  # as sdpa's, from the upper left
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
        return torch.cat(
            [
                torch.matmul(_probabilities(q, k, m, scaling), v)
                for m, q, k, v in _some_at_a_time(mask, query, key, value)
            ]
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        query, key, value, mask = ctx.saved_tensors
        parts = []
        for m, q, k, v, g in _some_at_a_time(mask, query, key, value, gradient):
            probabilities = _probabilities(q, k, m, ctx.scaling)
            of_value = torch.matmul(probabilities.transpose(-1, -2), g)
            of_scores = torch._softmax_backward_data(
                torch.matmul(g, v.transpose(-1, -2)), probabilities, -1, g.dtype
            ).mul_(ctx.scaling)
            parts.append((torch.matmul(of_scores, k), torch.matmul(of_scores.transpose(-1, -2), q), of_value))
        return *(torch.cat(part) for part in zip(*parts, strict=True)), None, None


def _probabilities(q, k, mask, scaling):
    scores = torch.matmul(q * scaling, k.transpose(-1, -2))  # d products a token, not k
    return F.softmax(scores if mask is None else scores.add_(mask), dim=-1)


def _some_at_a_time(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor, *others: torch.Tensor):
    """The mask, query, key and others of some texts after those of the texts before."""
    b, h, s, _ = query.shape
    texts = max(1, ELEMENTS // (h * s * key.shape[-2]))
    per_text = mask is not None and mask.ndim == 4 and mask.shape[0] == b
    masks = mask.split(texts) if per_text else [mask] * -(-b // texts)
    return zip(masks, *(x.split(texts) for x in (query, key, *others)), strict=True)
