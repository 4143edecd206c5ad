"""Figure 2 of the RoFormer paper as a picture: what `roformer plot decay` draws."""

import math
from importlib.util import find_spec
from pathlib import Path

from ...output.extras import install_command
from ..errors import TrainingError
from .curves import Points, draw_panels

_PAIRS = 1000  # random vectors of which a mean is taken
_DRAWN = 2000  # distances, at most
_WIDEST, _FURTHEST = 1 << 14, 1 << 40


def draw_decay(picture: str | Path, head_dim: int = 128, theta: float = 10000.0, longest: int = 256) -> Points:
    """Draw the upper bound of section 3.4.3 against the relative distance, and under it what random vectors do.

    Those are standard normal. A query and a key that are independent have the same mean of |qᵀ R_r k| at every distance,
    since a rotation changes nothing in their distribution; of equal ones it falls as the bound does.

    Args:
        picture: the PNG to write, which appears whole.
        head_dim: d, even.
        theta: the base of the frequencies θ_i = theta^(−2(i−1)/d).
        longest: the largest distance, in tokens.

    Returns:
        Distance and bound, from 0 to `longest`.

    Raises a TrainingError that names what is wrong, before torch is imported.
    """
    picture = Path(picture)
    if head_dim % 2 or not 2 <= head_dim <= _WIDEST:
        raise TrainingError(f"head_dim is {head_dim}, but must be even and from 2 to {_WIDEST:,}")
    if not (theta > 0 and math.isfinite(theta)):
        raise TrainingError(f"theta is {theta}, but must be greater than 0 and finite")
    if not 1 <= longest <= _FURTHEST:
        raise TrainingError(f"the longest distance is {longest}, but must be from 1 to {_FURTHEST:,}")
    if picture.suffix.lower() != ".png" or picture.is_dir():
        raise TrainingError(f"{picture} cannot be the picture: name a file that ends in .png, and is no folder")
    if not picture.parent.is_dir():
        raise TrainingError(f"{picture.parent} is no folder: make it, or name another one for the picture")
    if find_spec("matplotlib") is None:
        raise TrainingError(f"drawing needs matplotlib, which the extra train brings: {install_command('train')}")

    import torch

    from .decay import mean_products, upper_bound

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
