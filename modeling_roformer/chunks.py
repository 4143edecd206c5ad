"""A text in chunks of as many tokens each, for what causal linear attention adds up or compares along it.

Dimensions in the shapes: b batch, s sequence length, h heads, c chunks, i and n positions within a chunk.
"""

import torch

from .inputs import is_traced

CHUNK = 64  # tokens; at head_dim or near it, what is kept for each token is smallest


def in_chunks(x: torch.Tensor, size: int, fill: int | torch.Tensor | None = 0) -> torch.Tensor:
    """(b, s, h, …) to (b, h, c, size, …), and what is missing at the end filled up: with the last position where
    `fill` is None."""
    s = x.shape[1]
    if is_traced() or s % size:
        # What is traced for two chunks or more holds for any number of them: one alone would be a case of its own.
        places = torch.arange((s // size + (2 if is_traced() else 1)) * size, device=x.device)
        x = x.index_select(1, places.clamp(max=s - 1))
        if fill is not None:
            x = x.where((places < s).view(1, -1, *[1] * (x.ndim - 2)), fill)
    return x.unflatten(1, (-1, size)).transpose(2, 3).transpose(1, 2).contiguous()  # which products need, once


def running_maximum(x: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
    """The largest value so far along dimension 1 of x, shape (b, s, h), after those of shape (b, h)."""
    if before is not None:
        x = torch.cat([torch.maximum(x[:, :1], before[:, None]), x[:, 1:]], dim=1)
    if not is_traced():
        return x.cummax(dim=1).values
    # ONNX has no cumulative maximum: of each chunk that of all pairs of its positions, then of all pairs of chunks.
    chunks = in_chunks(x, CHUNK, None)  # (b, h, c, n)
    within = _largest(chunks, 0)
    earlier = _largest(within[..., -1], -1)  # (b, h, c)
    return torch.maximum(within, earlier[..., None]).permute(0, 2, 3, 1).flatten(1, 2)[:, : x.shape[1]]


def _largest(x: torch.Tensor, diagonal: int) -> torch.Tensor:
    """Of the last dimension, for each position that of those up to it, or for -1 of those before it."""
    n = x.shape[-1]
    visible = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(diagonal)
    return x[..., None, :].masked_fill(~visible, -torch.inf).amax(-1)
