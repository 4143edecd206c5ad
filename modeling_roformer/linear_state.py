"""The sums of linear attention: in one product where every query has the same keys, in chunks where it is causal.

No tensor has an entry for each pair of positions, and none has a matrix for each position: a chunk has as many of either
as it has tokens. Autograd goes through the same products backwards.

Dimensions in the shapes: b batch, s sequence length, h heads, f features, e width of the values, c chunks, i and n
positions within a chunk.
"""

from typing import NamedTuple

import torch

from .input_checks import is_traced
from .linear_chunks import CHUNK, in_chunks, last_of_group, out_of_chunks
from .linear_feature_maps import Features


class RunningSums(NamedTuple):
    """All that causal linear attention needs to know of the tokens before.

    numerator: Σ_n ϕ(k_n) v_nᵀ, rotated, shape (b, h, f, e).
    denominator: Σ_n ϕ(k_n), shape (b, h, f).
    log_scale: the logarithm of what both were divided by, shape (b, h), where the map has one.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    log_scale: torch.Tensor | None = None


def sum_keys(key: Features, value: torch.Tensor) -> RunningSums:
    """The sums over all of these keys, and their values of shape (b, s, h, e)."""
    numerator = torch.matmul(key.numerator.permute(0, 2, 3, 1), value.transpose(1, 2))
    log_scale = None if key.log_scale is None else key.log_scale[:, -1]
    return RunningSums(numerator, key.denominator.sum(1), log_scale)


def add_sums(sums: RunningSums, others: RunningSums) -> RunningSums:
    """The sums over the keys of both."""
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
    """The two sums of equation 19 where every query has the same keys.

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
    groups: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, RunningSums]:
    """The two sums of equation 19 over the keys so far.

    Args:
        value: shape (b, s, h, e).
        sums: of the tokens before these.
        groups: integers that never fall along a text, shape (b, s): a query has the keys whose number is not above its
            own, in place of those that are not after it.

    Returns:
        The numerators, shape (b, s, h, e), the denominators, shape (b, s, h), and the sums of all tokens so far.
    """
    b, s, h, e = value.shape
    if sums is None:
        f = key.numerator.shape[-1]
        lowest = torch.finfo(value.dtype).min
        sums = RunningSums(
            value.new_zeros(b, h, f, e),
            value.new_zeros(b, h, f),
            None if key.log_scale is None else value.new_full((b, h), lowest),
        )
    size = CHUNK if is_traced() else min(CHUNK, s)
    same = key.numerator is key.denominator
    shift = key.log_scale
    own_shift = shift  # of a query: that of the last key it has
    if groups is not None:
        last = last_of_group(groups)
        own_shift = None if shift is None else shift.gather(1, last[..., None].expand_as(shift))
        groups = in_chunks(groups[..., None], size, groups.max() + 1)  # (b, 1, c, n)
    q, k, v = in_chunks(query.numerator, size), in_chunks(key.numerator, size), in_chunks(value, size)
    q_below, k_below = (q, k) if same else (in_chunks(query.denominator, size), in_chunks(key.denominator, size))

    # Within a chunk: all pairs of its positions.
    if groups is None:
        visible = torch.ones(size, size, dtype=torch.bool, device=v.device).tril()
    else:
        visible = groups[..., None, :] <= groups[..., None]
    if shift is None:
        decay = visible.to(v.dtype)
        to_end, at_ends, from_start = None, None, None
    else:
        shift, own_shift = in_chunks(shift, size, None), in_chunks(own_shift, size, None)  # (b, h, c, n)
        decay = (shift[..., None, :] - own_shift[..., None]).masked_fill(~visible, -torch.inf).exp()
        at_ends = torch.cat([sums.log_scale[..., None], shift[..., -1]], dim=-1)  # (b, h, 1 + c), the first before all
        to_end = (shift - at_ends[..., 1:, None]).exp()
        from_start = (at_ends[..., :-1, None] - own_shift).exp()
    weights = torch.matmul(q, k.mT) * decay  # (b, h, c, i, n)
    weights_below = weights if same else torch.matmul(q_below, k_below.mT) * decay
    numerators, denominators = torch.matmul(weights, v), weights_below.sum(-1)

    # Of the chunks before: one sum each, added up.
    scaled, scaled_below = (k, k_below) if to_end is None else (k * to_end[..., None], k_below * to_end[..., None])
    before = torch.cat([sums.numerator[:, :, None], torch.matmul(scaled.mT, v)], dim=2)  # (b, h, 1 + c, f, e)
    before_below = torch.cat([sums.denominator[:, :, None], scaled_below.sum(-2)], dim=2)  # (b, h, 1 + c, f)
    chunks = before.shape[2]
    earlier = torch.ones(chunks, chunks, dtype=torch.bool, device=v.device).tril()
    if at_ends is None:
        earlier = earlier.to(v.dtype)
    else:
        earlier = (at_ends[..., None, :] - at_ends[..., None]).masked_fill(~earlier, -torch.inf).exp()
    before = torch.matmul(earlier, before.flatten(-2)).unflatten(-1, before.shape[-2:])
    before_below = torch.matmul(earlier, before_below)
    others = torch.matmul(q, before[:, :, :-1])
    others_below = torch.matmul(q_below, before_below[:, :, :-1, :, None]).squeeze(-1)
    if from_start is not None:
        others, others_below = others * from_start[..., None], others_below * from_start
    numerators, denominators = numerators + others, denominators + others_below

    if groups is not None:
        after, after_below = _rest_of_group(k, k_below, v, shift, own_shift, groups)
        in_last = (groups == groups[..., -1:]).to(v.dtype)  # (b, 1, c, i)
        numerators = numerators + torch.matmul(q, after) * in_last[..., None]
        denominators = denominators + torch.matmul(q_below, after_below[..., None]).squeeze(-1) * in_last
    sums = RunningSums(before[:, :, -1], before_below[:, :, -1], None if at_ends is None else at_ends[..., -1])
    return out_of_chunks(numerators, s), out_of_chunks(denominators, s), sums


def _rest_of_group(
    k: torch.Tensor,
    k_below: torch.Tensor,
    v: torch.Tensor,
    shift: torch.Tensor | None,
    own_shift: torch.Tensor | None,
    groups: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each chunk the sums of the keys in later chunks that belong to the group of its last position.

    Since groups are runs, those are the first ones of their chunks.
    """
    first, last = groups[..., 0], groups[..., -1]  # (b, 1, c)
    in_first = groups == first[..., None]  # (b, 1, c, n)
    chunks = first.shape[-1]
    later = torch.ones(chunks, chunks, dtype=torch.bool, device=v.device).triu(1)
    later = later & (last[..., None] == first[..., None, :])  # (b, 1, c, c')
    if shift is None:
        scale, later = in_first.to(v.dtype), later.to(v.dtype)
    else:
        shift = shift.masked_fill(~in_first, torch.finfo(v.dtype).min)
        ends = shift.amax(-1)  # (b, h, c)
        scale = (shift - ends[..., None]).exp() * in_first
        later = (ends[..., None, :] - own_shift[..., -1:]).masked_fill(~later, -torch.inf).exp()
    k, k_below = k * scale[..., None], k_below * scale[..., None]
    parts = torch.matmul(k.mT, v)
    later = later.expand(*v.shape[:2], -1, -1)
    after = torch.matmul(later, parts.flatten(-2)).unflatten(-1, parts.shape[-2:])
    return after, torch.matmul(later, k_below.sum(-2))
