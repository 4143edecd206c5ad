"""Cross-entropy over a vocabulary, on a CPU without copies of the logits.

The logits of a batch over a vocabulary are the largest tensor of a training step: 300 MB for 2,048 tokens over 37,000 words.
torch (2.13) makes three more of that size: the logarithms of the probabilities, their gradient, which is 0 but for one
element a row, and the gradient of the logits. Here the last is the only one; the others are computed some rows at a time, the
probabilities anew in the backward pass. From 10,000 words on that takes a third to two thirds of the time, most of which goes
into getting fresh memory from the system (benchmarks/cross_entropy.py, two threads).

Dimensions in the shapes: n labels, v vocab_size.
"""

from collections.abc import Iterator

import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

from .input_checks import is_traced, is_transformed

ELEMENTS = 1 << 20  # of the rows that are in memory at once, at least one row's
IGNORED = -100


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """What `torch.nn.functional.cross_entropy` computes.

    Args:
        logits: shape (n, v).
        labels: shape (n,), int64 or uint8, from 0 to v - 1, or -100 for what does not count.
        reduction: "mean" over the labels that count, or "none".

    Returns:
        The mean, or for "none" shape (n,), with 0 for what does not count.

    Raises:
        IndexError: for labels out of range.
    """
    if logits.numel() <= ELEMENTS or not _is_plain(logits, labels, reduction):
        return F.cross_entropy(logits, labels, reduction=reduction)
    labels = labels.long()  # of uint8, 156 is not -100
    _check_range(labels, logits.shape[1])
    losses = _CrossEntropy.apply(logits, labels)
    if reduction == "mean":
        losses = losses.sum() / (labels != IGNORED).sum()
    return losses if torch.is_autocast_enabled("cpu") else losses.to(logits.dtype)


def _is_plain(logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> bool:
    """Whether rows can be taken one after the other, here and now, as the arguments are those that are described.

    The others are left to torch: its transforms, forward-mode differentiation, and its errors.
    """
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
    """Raises torch's IndexError unless all labels are from 0 to `end` - 1, or do not count."""
    outside = ((labels < 0) | (labels >= end)) & (labels != IGNORED)
    if outside.any():
        raise IndexError(f"Target {labels[outside][0].item()} is out of bounds.")


class _CrossEntropy(torch.autograd.Function):
    """-log softmax(logits)[label] of each row, shape (n,), in float32 at least."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits, labels)
        dtype = torch.promote_types(logits.dtype, torch.float32)
        counts, classes = _classes(labels)
        of_labels = [
            rows.log_softmax(-1, dtype=dtype).gather(1, some) for rows, some in _some_at_a_time(logits, classes)
        ]
        return torch.where(counts, -torch.cat(of_labels), 0.0).squeeze(1)

    @staticmethod
    def backward(ctx, gradient):
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():  # for derivatives of the second order
            losses = F.cross_entropy(logits.to(gradient.dtype), labels, reduction="none")
            return torch.autograd.grad(losses, logits, gradient, create_graph=True)[0], None
        counts, classes = _classes(labels)
        of_losses = torch.where(counts, gradient[:, None], 0.0)
        of_logits = torch.empty_like(logits)
        for part, rows, some, factors in _some_at_a_time(of_logits, logits, classes, of_losses):
            probabilities = rows.softmax(-1, dtype=gradient.dtype)
            part.copy_(probabilities.mul_(factors).scatter_add_(1, some, -factors))
        return of_logits, None


def _classes(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which labels count, and the classes, any where they do not; both of shape (n, 1)."""
    counts = (labels != IGNORED)[:, None]
    return counts, labels[:, None].where(counts, 0)


def _some_at_a_time(logits: torch.Tensor, *others: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Some rows of the logits, with as many of the others."""
    rows = max(1, ELEMENTS // logits.shape[1])
    return zip(*(x.split(rows) for x in (logits, *others)), strict=True)
