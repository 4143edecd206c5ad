"""Relative positions m − n, and terms of the scores that depend on them."""

import torch


def distances(positions: torch.Tensor) -> torch.Tensor:
    """m − n for all pairs of positions (s,): shape (s, s), a row for each query."""
    return positions[:, None] - positions[None, :]


def clipped(positions: torch.Tensor, furthest: int) -> torch.Tensor:
    """clip(m − n, −furthest, furthest), counted from 0: rows of a table with 2·furthest + 1 of them."""
    return distances(positions).clamp(-furthest, furthest) + furthest


def pick(by_distance: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Of the terms (b or 1, h, s, r) that a token has at each of r distances those at its own, rows (s, s): (b or 1, h, s, s)."""
    return by_distance.gather(-1, rows.expand(*by_distance.shape[:2], *rows.shape))
