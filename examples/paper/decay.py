"""Draw the long-term decay of rotary positions: section 3.4.3 and Figure 2 of the RoFormer paper.

    python examples/paper/decay.py decay.png [--head-dim 128] [--theta 10000] [--longest 256]

Pairs are counted from 0 to d/2 − 1, as in that section, and ι is the imaginary unit. h_i = q_i k_i* are the products of
a query's and a key's pairs as complex numbers. Their product at the relative distance r is Re Σ_i h_i e^{ιrθ_i}.
Summation by parts (equations 35 to 37) bounds it:

    |Σ_i h_i e^{ιrθ_i}| ≤ (max_i |h_{i+1} − h_i|) Σ_{i=1}^{d/2} |S_i|,   S_i = Σ_{j=0}^{i−1} e^{ιrθ_j},   h_{d/2} = 0.

The border h_{d/2} = 0 belongs to the maximum: if all h_i are equal, it is the only difference. The second factor
depends on the distance alone. Figure 2 shows it, divided by d/2.

The second panel shows the mean of |qᵀ R_r k| of standard normal vectors. If q and k are independent, it is the same at
every distance, since a rotation does not change their distribution; if q = k, it falls as the bound does.
"""

from pathlib import Path

import torch

from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings, rotate
from modeling_roformer.training import ScriptParser, TrainingError, draw_panels, exit_on_error

BASE = 10000.0
PAIRS = 1000  # random vectors whose mean is drawn
MAX_DISTANCES = 2000  # in the picture


def upper_bound(distances: torch.Tensor, head_dim: int, theta: float = BASE) -> torch.Tensor:
    """Return the mean of |S_1|, …, |S_{d/2}| at each of n relative distances: float64, shape (n,)."""
    angles = distances[:, None].double() * inverse_frequencies(head_dim, theta)
    return torch.polar(torch.ones_like(angles), angles).cumsum(-1).abs().mean(-1)


def mean_products(
    queries: torch.Tensor, keys: torch.Tensor, distances: torch.Tensor, theta: float = BASE
) -> torch.Tensor:
    """Return the mean of |qᵀ R_r k| over p pairs of vectors, shape (p, d), at each of n relative distances: shape
    (n,)."""
    rotations = rotary_position_embeddings(distances[:, None], inverse_frequencies(keys.shape[-1], theta))
    means = []
    for rotation in rotations:  # one distance at a time: all at once would take p·n·d numbers
        rotated = rotate(keys[None, None], rotation[None])[0, 0]
        means.append((queries * rotated).sum(-1).abs().mean())
    return torch.stack(means)


def main() -> None:
    parser = ScriptParser(__doc__)
    parser.add_argument("picture", type=Path, help="PNG to write")
    parser.add_argument("--head-dim", type=int, default=128, help="d, even; default: 128")
    parser.add_argument("--theta", type=float, default=BASE, help="base of the frequencies; default: 10,000")
    parser.add_argument("--longest", type=int, default=256, help="largest distance, in tokens; default: 256")
    chosen = parser.parse_args()
    head_dim, theta, longest = chosen.head_dim, chosen.theta, chosen.longest
    if chosen.picture.suffix != ".png":
        raise TrainingError(f"{chosen.picture} cannot be the picture: name a file that ends in .png")

    distances = torch.linspace(0, longest, min(longest + 1, MAX_DISTANCES), dtype=torch.float64).round().long()
    bound = upper_bound(distances, head_dim, theta)
    queries, keys = torch.randn(2, PAIRS, head_dim, generator=torch.Generator().manual_seed(0))
    curves = {
        f"upper bound of 3.4.3, d = {head_dim}, base {theta:g}": {"mean of |S_i|": bound},
        "mean |q·k| of random vectors": {
            "q and k independent": mean_products(queries, keys, distances, theta),
            "q = k": mean_products(keys, keys, distances, theta),
        },
    }
    panels = {
        title: {name: list(zip(distances.tolist(), values.tolist(), strict=True)) for name, values in group.items()}
        for title, group in curves.items()
    }
    draw_panels(chosen.picture, panels, xlabel="relative distance")
    print(f"{chosen.picture}: the bound is {bound[0]:.2f} at distance 0, and {bound[-1]:.2f} at {longest:,}")


if __name__ == "__main__":
    with exit_on_error("decay"):
        main()
