"""The long-term decay of rotary positions: section 3.4.3 and Figure 2 of the RoFormer paper.

Pairs are counted from 0 to d/2 − 1, as in that section, and ι is the imaginary unit. h_i = q_i k_i* are the products of
a query's and a key's pairs as complex numbers. Their product at the relative distance r is Re Σ_i h_i e^{ιrθ_i}.
Summation by parts (equations 35 to 37) bounds it:

    |Σ_i h_i e^{ιrθ_i}| ≤ (max_i |h_{i+1} − h_i|) Σ_{i=1}^{d/2} |S_i|,   S_i = Σ_{j=0}^{i−1} e^{ιrθ_j},   h_{d/2} = 0.

The border h_{d/2} = 0 belongs to the maximum: if all h_i are equal, it is the only difference. The second factor
depends on the distance alone. Figure 2 shows it, divided by d/2.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ...output.extras import not_installed
from ..errors import TrainingError
from .curves import Points, draw_panels

if TYPE_CHECKING:  # `roformer plot decay` checks its arguments before it imports torch
    import torch

BASE = 10000.0
_PAIRS = 1000  # random vectors whose mean is drawn
_DRAWN = 2000  # distances, at most
_LARGEST_WIDTH, _LONGEST = 1 << 14, 1 << 40


def upper_bound(distances: torch.Tensor, head_dim: int, theta: float = BASE) -> torch.Tensor:
    """Return the mean of |S_1|, …, |S_{d/2}| at each of n relative distances: float64, shape (n,)."""
    import torch

    from ...rotary import inverse_frequencies

    angles = distances[:, None].double() * inverse_frequencies(head_dim, theta)
    return torch.polar(torch.ones_like(angles), angles).cumsum(-1).abs().mean(-1)


def mean_products(
    queries: torch.Tensor, keys: torch.Tensor, distances: torch.Tensor, theta: float = BASE
) -> torch.Tensor:
    """Return the mean of |qᵀ R_r k| over p pairs of vectors, shape (p, d), at each of n relative distances: shape
    (n,)."""
    import torch

    from ...rotary import inverse_frequencies, rotary_position_embeddings, rotate

    cos, sin = rotary_position_embeddings(distances[:, None], inverse_frequencies(keys.shape[-1], theta))
    means = []
    for cos_r, sin_r in zip(cos, sin, strict=True):  # one distance at a time: all at once would take p·n·d numbers
        rotated = rotate(keys[None, None], cos_r[None], sin_r[None])[0, 0]
        means.append((queries * rotated).sum(-1).abs().mean())
    return torch.stack(means)


def draw_decay(picture: str | Path, head_dim: int = 128, theta: float = BASE, longest: int = 256) -> Points:
    """Draw the upper bound of section 3.4.3 against the relative distance, and the products of random vectors.

    The vectors are standard normal. The mean of |qᵀ R_r k| of independent vectors is the same at every distance, since
    a rotation does not change their distribution. The mean for q = k falls as the bound does.

    Args:
        picture: the PNG to write. It appears whole or not at all.
        head_dim: d, even.
        theta: the base of the frequencies θ_i = theta^(−2i/d).
        longest: the largest distance, in tokens.

    Returns:
        Pairs of distance and bound, from 0 to `longest`.

    Raises a TrainingError that names the wrong argument, before torch is imported.
    """
    picture = Path(picture)
    if head_dim % 2 or not 2 <= head_dim <= _LARGEST_WIDTH:
        raise TrainingError(f"head_dim is {head_dim}; expected an even number from 2 to {_LARGEST_WIDTH:,}")
    if not (theta > 0 and math.isfinite(theta)):
        raise TrainingError(f"theta is {theta}; expected a finite number above 0")
    if not 1 <= longest <= _LONGEST:
        raise TrainingError(f"longest is {longest}; expected a distance from 1 to {_LONGEST:,}")
    if picture.suffix.lower() != ".png" or picture.is_dir():
        raise TrainingError(f"{picture} cannot be the picture: name a file that ends in .png")
    if not picture.parent.is_dir():
        raise TrainingError(f"the folder {picture.parent} does not exist: create it, or name another folder")
    if find_spec("matplotlib") is None:
        raise TrainingError(not_installed("train", "matplotlib"))

    import torch

    distances = torch.linspace(0, longest, min(longest + 1, _DRAWN), dtype=torch.float64).round().long()
    bound = upper_bound(distances, head_dim, theta)
    queries, keys = torch.randn(2, _PAIRS, head_dim, generator=torch.Generator().manual_seed(0))
    curves = {
        f"upper bound (3.4.3), d = {head_dim}, base {theta:g}": {"mean of |S_i|": bound},
        "mean |q·k| of random vectors": {
            "q and k independent": mean_products(queries, keys, distances, theta),
            "q = k": mean_products(keys, keys, distances, theta),
        },
    }
    panels = {
        title: {name: list(zip(distances.tolist(), values.tolist(), strict=True)) for name, values in group.items()}
        for title, group in curves.items()
    }
    draw_panels(picture, panels, xlabel="relative distance")
    return list(zip(distances.tolist(), bound.tolist(), strict=True))
