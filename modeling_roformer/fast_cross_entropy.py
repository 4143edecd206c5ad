"""Cross-entropy over a vocabulary, on a CPU without copies of the logits.

When: training on a CPU with more than 2^20 logits, outside compilers and torch.func; otherwise it is torch's.
Gain: a third to two thirds of the time of torch 2.13 from 10,000 words on.
Benchmark: benchmarks/cross_entropy.py, two threads.

The logits are the largest tensor of a training step: 300 MB for 2,048 tokens over 37,000 words. torch makes three more
of that size: the log-probabilities, their gradient, which is 0 but for one element per row, and the gradient of the
logits. Only the last is made here. Probabilities are computed in chunks of rows, and again in the backward pass.

Dimensions in the shapes: n labels, v vocab_size.
"""

import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

from .inputs import is_traced, is_transformed

ELEMENTS = 1 << 20  # logits per chunk of rows, at least one row
IGNORED = -100


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Compute `torch.nn.functional.cross_entropy`.

    Args:
        logits: shape (n, v).
        labels: shape (n,), int64 or uint8, from 0 to v - 1, or -100 for none.
        reduction: "mean" over the labels that are not -100, or "none".

    Returns:
        The mean, or for "none" shape (n,), with 0 for the label -100.

    Raises:
        IndexError: for labels out of range.
    """
    if logits.numel() <= ELEMENTS or not _is_plain(logits, labels, reduction):
        return F.cross_entropy(logits, labels, reduction=reduction)
    labels = labels.long()  # in uint8, -100 would equal 156
    _check_range(labels, logits.shape[1])
    losses = _CrossEntropy.apply(logits, labels)
    if reduction == "mean":
        losses = losses.sum() / (labels != IGNORED).sum()
    return losses if torch.is_autocast_enabled("cpu") else losses.to(logits.dtype)


def _is_plain(logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> bool:
    """Return False for what is left to torch: other devices and types, compilers, transforms, and errors."""
    if is_traced() or is_transformed() or reduction not in ("mean", "none"):
        return False
    if any(type(x) is not torch.Tensor or x.device.type != "cpu" for x in (logits, labels)):
        return False
    if not logits.is_floating_point() or labels.dtype not in (torch.int64, torch.uint8):
        return False
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        return False
    return forward_ad.unpack_dual(logits).tangent is None


def _check_range(labels: torch.Tensor, end: int) -> None:
    """Raise torch's IndexError unless all labels are from 0 to `end` - 1, or -100."""
    outside = ((labels < 0) | (labels >= end)) & (labels != IGNORED)
    if outside.any():
        raise IndexError(f"Target {labels[outside][0].item()} is out of bounds.")


class _CrossEntropy(torch.autograd.Function):
    """-log softmax(logits)[label] of each row, shape (n,), in float32 or wider."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits, labels)
        dtype = torch.promote_types(logits.dtype, torch.float32)
        counts, classes = _classes(labels)
        logs = [rows.log_softmax(-1, dtype=dtype).gather(1, some) for rows, some in _chunks(logits, classes)]
        return torch.where(counts, -torch.cat(logs), 0.0).squeeze(1)

    @staticmethod
    def backward(ctx, gradient):
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():  # second-order derivatives
            losses = F.cross_entropy(logits.to(gradient.dtype), labels, reduction="none")
            return torch.autograd.grad(losses, logits, gradient, create_graph=True)[0], None
        counts, classes = _classes(labels)
        gradient = torch.where(counts, gradient[:, None], 0.0)
        logits_gradient = torch.empty_like(logits)
        for part, rows, some, factors in _chunks(logits_gradient, logits, classes, gradient):
            probabilities = rows.softmax(-1, dtype=gradient.dtype)
            part.copy_(probabilities.mul_(factors).scatter_add_(1, some, -factors))
        return logits_gradient, None


def _classes(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whether each label counts, and its class, 0 if it does not; both of shape (n, 1)."""
    counts = (labels != IGNORED)[:, None]
    return counts, labels[:, None].where(counts, 0)


def _chunks(logits: torch.Tensor, *others: torch.Tensor):
    """Yield chunks of rows of all tensors."""
    rows = max(1, ELEMENTS // logits.shape[1])
    return zip(*(x.split(rows) for x in (logits, *others)), strict=True)
