"""Texts in chunks of equal length, for the sums and maxima that causal linear attention computes along a text.

Dimensions in the shapes: b batch, s sequence length, h heads, c chunks, i and n positions within a chunk.
"""

import torch

from .input_checks import is_traced

CHUNK = 64  # tokens; memory per token is smallest near head_dim


def in_chunks(x: torch.Tensor, size: int, fill: int | torch.Tensor | None = 0) -> torch.Tensor:
    """Reshape (b, s, h, …) to (b, h, c, size, …), padded at the end with `fill`, or if None with the last position."""
    s = x.shape[1]
    is_filled = is_traced() or s % size != 0
    if is_traced():
        # At least two chunks, so that the traced graph holds for any number. The positions have two dimensions from the
        # start, since an exporter cannot tell that the chunks divide the length.
        places = torch.arange(s // size + 2, device=x.device)[:, None] * size + torch.arange(size, device=x.device)
        x = x[:, places.clamp(max=s - 1)]
    else:
        places = torch.arange(-(-s // size) * size, device=x.device)
        x = (x.index_select(1, places.clamp(max=s - 1)) if is_filled else x).unflatten(1, (-1, size))
    if is_filled and fill is not None:
        x = x.where((places < s).view(1, -1, size, *[1] * (x.ndim - 3)), fill)
    return x.transpose(2, 3).transpose(1, 2).contiguous()  # for the products


def out_of_chunks(x: torch.Tensor, s: int) -> torch.Tensor:
    """Reshape (b, h, c, n, …) to (b, s, h, …): the inverse of `in_chunks` for s tokens."""
    x = x.transpose(1, 2).transpose(2, 3).flatten(1, 2)
    # An exporter cannot tell that the chunks are long enough for a slice.
    return x.index_select(1, torch.arange(s, device=x.device)) if is_traced() else x[:, :s]


def running_maximum(x: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
    """Return the cumulative maximum along dimension 1 of x, shape (b, s, h), starting from `before`, shape (b, h)."""
    if before is not None:
        x = torch.cat([torch.maximum(x[:, :1], before[:, None]), x[:, 1:]], dim=1)
    if not is_traced():
        return x.cummax(dim=1).values
    # ONNX has no cumulative maximum: take it over all pairs of positions of a chunk, then over all pairs of chunks.
    chunks = in_chunks(x, CHUNK, None)  # (b, h, c, n)
    within = _largest(chunks, 0)
    earlier = _largest(within[..., -1], -1)  # (b, h, c)
    return out_of_chunks(torch.maximum(within, earlier[..., None]), x.shape[1])


def last_of_group(groups: torch.Tensor) -> torch.Tensor:
    """Return the position of the last token of each token's group, shape (b, s); `groups` is non-decreasing along s."""
    # ONNX has no `searchsorted`: take the nearest end of a group at or after the token.
    last = groups.shape[1] - 1
    places = torch.arange(last + 1, device=groups.device)
    ends = (groups != groups.index_select(1, (places + 1).clamp(max=last))) | (places == last)
    to_end = (last - places).where(ends, -1).float()  # exact up to 2^24
    return last - running_maximum(to_end.flip(1)[..., None], None).flip(1).squeeze(-1).long()


def _largest(x: torch.Tensor, diagonal: int) -> torch.Tensor:
    """Return the largest value along the last dimension up to each position (diagonal 0) or before it (-1)."""
    n = x.shape[-1]
    visible = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(diagonal)
    return x[..., None, :].masked_fill(~visible, -torch.inf).amax(-1)
