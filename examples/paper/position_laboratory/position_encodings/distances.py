"""Relative positions m − n, and terms of the scores for each of them."""

import torch


def distances(positions: torch.Tensor) -> torch.Tensor:
    """Return m − n for all pairs of positions (s,): shape (s, s), with a row per query."""
    return positions[:, None] - positions[None, :]


def clipped(positions: torch.Tensor, furthest: int) -> torch.Tensor:
    """Return clip(m − n, −furthest, furthest) + furthest: row numbers of a table with 2·furthest + 1 rows."""
    return distances(positions).clamp(-furthest, furthest) + furthest


def pick(by_distance: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gather each pair's term at its relative distance.

    Args:
        by_distance: terms of each token at each of r distances, shape (b or 1, h, s, r).
        rows: number of the distance of each pair, shape (s, s).

    Returns:
        The terms, shape (b or 1, h, s, s).
    """
    return by_distance.gather(-1, rows.expand(*by_distance.shape[:2], *rows.shape))
