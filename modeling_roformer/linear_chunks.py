"""A text in chunks of as many tokens each, for what causal linear attention adds up or compares along it.

Dimensions in the shapes: b batch, s sequence length, h heads, c chunks, i and n positions within a chunk.
"""

import torch

from .input_checks import is_traced

CHUNK = 64  # tokens; at head_dim or near it, what is kept for each token is smallest


def in_chunks(x: torch.Tensor, size: int, fill: int | torch.Tensor | None = 0) -> torch.Tensor:
    """(b, s, h, …) to (b, h, c, size, …), and what is missing at the end filled up: with the last position where
    `fill` is None."""
    s = x.shape[1]
    is_filled = is_traced() or s % size != 0
    if is_traced():
        # What is traced for two chunks or more holds for any number of them: one alone would be a case of its own. An
        # exporter cannot tell that chunks divide a length, so that their positions are of two dimensions from the start.
        places = torch.arange(s // size + 2, device=x.device)[:, None] * size + torch.arange(size, device=x.device)
        x = x[:, places.clamp(max=s - 1)]
    else:
        places = torch.arange(-(-s // size) * size, device=x.device)
        x = (x.index_select(1, places.clamp(max=s - 1)) if is_filled else x).unflatten(1, (-1, size))
    if is_filled and fill is not None:
        x = x.where((places < s).view(1, -1, size, *[1] * (x.ndim - 3)), fill)
    return x.transpose(2, 3).transpose(1, 2).contiguous()  # which products need, once


def out_of_chunks(x: torch.Tensor, s: int) -> torch.Tensor:
    """(b, h, c, n, …) to (b, s, h, …): what `in_chunks` made of s tokens."""
    x = x.transpose(1, 2).transpose(2, 3).flatten(1, 2)
    # An exporter cannot tell that all chunks together are long enough for a slice.
    return x.index_select(1, torch.arange(s, device=x.device)) if is_traced() else x[:, :s]


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
    return out_of_chunks(torch.maximum(within, earlier[..., None]), x.shape[1])


def last_of_group(groups: torch.Tensor) -> torch.Tensor:
    """The position of the last token of each token's group, shape (b, s), for integers that never fall along a text."""
    # ONNX has no `searchsorted`: of the positions that end a group, the nearest that does not come before.
    last = groups.shape[1] - 1
    places = torch.arange(last + 1, device=groups.device)
    ends = (groups != groups.index_select(1, (places + 1).clamp(max=last))) | (places == last)
    to_end = (last - places).where(ends, -1).float()  # exact up to 2^24
    return last - running_maximum(to_end.flip(1)[..., None], None).flip(1).squeeze(-1).long()


def _largest(x: torch.Tensor, diagonal: int) -> torch.Tensor:
    """Of the last dimension, for each position that of those up to it, or for -1 of those before it."""
    n = x.shape[-1]
    visible = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(diagonal)
    return x[..., None, :].masked_fill(~visible, -torch.inf).amax(-1)
