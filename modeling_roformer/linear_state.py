"""The sums of linear attention: one product if every query has the same keys, chunk by chunk if it is causal.

No tensor has an entry for each pair of positions of a text, or a matrix for each position: pairs are formed within a
chunk, and there is one matrix per chunk.

Dimensions in the shapes: b batch, s sequence length, h heads, f features, e width of the values, c chunks, i and n
positions of queries and keys within a chunk.
"""

from typing import Any, NamedTuple

import torch

from .input_checks import is_traced

CHUNK = 64  # tokens; memory per token is smallest near head_dim


class Features(NamedTuple):
    """Features of queries or keys.

    numerator, denominator: for the two sums of equation 19, both of shape (b, s, h, f); the same tensor if both sums
        have the same weights.
    log_scale: logarithm of the number that the features were divided by, shape (b, s, h), non-decreasing along s, or
        (b, 1, h); None if they were not divided.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    log_scale: Any = None


class RunningSums(NamedTuple):
    """Sums over the preceding tokens, the state of causal linear attention.

    numerator: Σ_n ϕ(k_n) v_nᵀ, rotated, shape (b, h, f, e).
    denominator: Σ_n ϕ(k_n), shape (b, h, f).
    log_scale: logarithm of the number that both were divided by, shape (b, h); None if the map does not scale.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    log_scale: Any = None


class Chunks(NamedTuple):
    """Queries, keys and values in chunks: shape (b, h, c, i, …) for queries and (b, h, c, n, …) for the others.

    query, key: features in the numerator; query_below, key_below: in the denominator.
    log_scale: log-scale of each key, or None.
    """

    query: torch.Tensor
    key: torch.Tensor
    query_below: torch.Tensor
    key_below: torch.Tensor
    value: torch.Tensor
    log_scale: Any


def sum_keys(key: Features, value: torch.Tensor) -> RunningSums:
    """Return the sums over all of these keys, with values of shape (b, s, h, e)."""
    numerator = torch.matmul(key.numerator.permute(0, 2, 3, 1), value.transpose(1, 2))
    log_scale = None if key.log_scale is None else key.log_scale[:, -1]
    return RunningSums(numerator, key.denominator.sum(1), log_scale)


def add_sums(sums: RunningSums, others: RunningSums) -> RunningSums:
    """Return the sums over the keys of both."""
    if sums.log_scale is None:
        return RunningSums(sums.numerator + others.numerator, sums.denominator + others.denominator)
    log_scale = torch.maximum(sums.log_scale, others.log_scale)
    first, second = ((x.log_scale - log_scale).exp()[..., None] for x in (sums, others))
    return RunningSums(
        sums.numerator * first[..., None] + others.numerator * second[..., None],
        sums.denominator * first + others.denominator * second,
        log_scale,
    )


def attend_to_sums(query: Features, sums: RunningSums) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two sums of equation 19 if every query has the same keys.

    Returns:
        The numerators, shape (b, s, h, e), and denominators, shape (b, s, h).
    """
    numerators = torch.matmul(query.numerator.transpose(1, 2), sums.numerator).transpose(1, 2)
    denominators = torch.matmul(query.denominator.transpose(1, 2), sums.denominator[..., None])
    return numerators, denominators.squeeze(-1).transpose(1, 2)


def attend_causally(
    query: Features,
    key: Features,
    value: torch.Tensor,
    sums: RunningSums | None = None,
) -> tuple[torch.Tensor, torch.Tensor, RunningSums]:
    """Return the two sums of equation 19 over the keys so far.

    Args:
        value: shape (b, s, h, e).
        sums: sums over the preceding tokens.

    Returns:
        The numerators, shape (b, s, h, e), the denominators, shape (b, s, h), and the sums over all tokens so far.
    """
    s = value.shape[1]
    if s == 1 and not is_traced():  # a step of generation
        own = sum_keys(key, value)
        sums = own if sums is None else add_sums(sums, own)
        return *attend_to_sums(query, sums), sums
    chunks = _make_chunks(query, key, value)
    numerators, denominators = _attend_within_chunks(chunks)
    before, before_below, sums = _attend_to_earlier_chunks(chunks, _no_sums(key, value) if sums is None else sums)
    numerators, denominators = numerators + before, denominators + before_below
    return out_of_chunks(numerators, s), out_of_chunks(denominators, s), sums


def _make_chunks(query: Features, key: Features, value: torch.Tensor) -> Chunks:
    size = CHUNK if is_traced() else min(CHUNK, value.shape[1])
    log_scale = None if key.log_scale is None else in_chunks(key.log_scale, size, None)
    q, k = in_chunks(query.numerator, size), in_chunks(key.numerator, size)
    q_below, k_below = q, k
    if key.numerator is not key.denominator:
        q_below, k_below = in_chunks(query.denominator, size), in_chunks(key.denominator, size)
    return Chunks(q, k, q_below, k_below, in_chunks(value, size), log_scale)


def _no_sums(key: Features, value: torch.Tensor) -> RunningSums:
    b, _, h, e = value.shape
    f = key.numerator.shape[-1]
    log_scale = None if key.log_scale is None else value.new_full((b, h), torch.finfo(value.dtype).min)
    return RunningSums(value.new_zeros(b, h, f, e), value.new_zeros(b, h, f), log_scale)


def _attend_within_chunks(x: Chunks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return numerators and denominators over all visible pairs of positions of a chunk."""
    size = x.value.shape[-2]
    visible = torch.ones(size, size, dtype=torch.bool, device=x.value.device).tril()
    scales = _pair_scales(x.log_scale, visible, x.value.dtype)
    weights = torch.matmul(x.query, x.key.mT) * scales  # (b, h, c, i, n)
    weights_below = weights if x.query is x.query_below else torch.matmul(x.query_below, x.key_below.mT) * scales
    return torch.matmul(weights, x.value), weights_below.sum(-1)


def _attend_to_earlier_chunks(x: Chunks, sums: RunningSums) -> tuple[torch.Tensor, torch.Tensor, RunningSums]:
    """Return numerators and denominators over `sums` and all earlier chunks, and the sums after the last chunk."""
    k, k_below = x.key, x.key_below
    ends: Any = None
    if x.log_scale is not None:
        # (b, h, 1 + c): of the earlier tokens, then at the end of each chunk
        ends = torch.cat([sums.log_scale[..., None], x.log_scale[..., -1]], dim=-1)
        to_end = (x.log_scale - ends[..., 1:, None]).exp()[..., None]
        k, k_below = k * to_end, k_below * to_end
    parts = torch.cat([sums.numerator[:, :, None], torch.matmul(k.mT, x.value)], dim=2)  # (b, h, 1 + c, f, e)
    parts_below = torch.cat([sums.denominator[:, :, None], k_below.sum(-2)], dim=2)  # (b, h, 1 + c, f)
    chunks = parts.shape[2]
    up_to = torch.ones(chunks, chunks, dtype=torch.bool, device=x.value.device).tril()
    scales = _pair_scales(ends, up_to, x.value.dtype)
    totals = torch.matmul(scales, parts.flatten(-2)).unflatten(-1, parts.shape[-2:])
    totals_below = torch.matmul(scales, parts_below)
    numerators = torch.matmul(x.query, totals[:, :, :-1])
    denominators = torch.matmul(x.query_below, totals_below[:, :, :-1, :, None]).squeeze(-1)
    if x.log_scale is not None:
        from_start = (ends[..., :-1, None] - x.log_scale).exp()
        numerators, denominators = numerators * from_start[..., None], denominators * from_start
    sums = RunningSums(totals[:, :, -1], totals_below[:, :, -1], None if ends is None else ends[..., -1])
    return numerators, denominators, sums


def _pair_scales(log_scale: Any, visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return e^(s_n − s_i) for each pair of log-scales s, shape (…, i, n), or 1 without them; 0 for masked pairs."""
    if log_scale is None:
        return visible.to(dtype)
    return (log_scale[..., None, :] - log_scale[..., None]).masked_fill(~visible, -torch.inf).exp()


def in_chunks(x: torch.Tensor, size: int, fill: int | None = 0) -> torch.Tensor:
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


def _largest(x: torch.Tensor, diagonal: int) -> torch.Tensor:
    """Return the largest value along the last dimension up to each position (diagonal 0) or before it (-1)."""
    n = x.shape[-1]
    visible = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(diagonal)
    return x[..., None, :].masked_fill(~visible, -torch.inf).amax(-1)
