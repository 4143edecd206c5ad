"""The long-term decay of rotary positions: section 3.4.3 and Figure 2 of the RoFormer paper.

With h_i = q_i k_i* the products of a query's and a key's pairs as complex numbers, their product at the relative distance r
is Re Σ_i h_i e^{i·r·θ_i}. Summation by parts (equations 35 to 37) bounds it by

    |Σ_i h_i e^{i·r·θ_i}| ≤ (max_i |h_{i+1} − h_i|) Σ_{i=1}^{d/2} |S_i|,   S_i = Σ_{j<i} e^{i·r·θ_j},

of which the second factor depends on the distance alone. Divided by d/2, it is what Figure 2 draws.
"""

import torch

from ...rotary import THETA, inverse_frequencies, rotary_position_embeddings, rotate


def upper_bound(distances: torch.Tensor, head_dim: int, theta: float = THETA) -> torch.Tensor:
    """The mean of |S_1|, …, |S_{d/2}| at each of n relative distances: float64, shape (n,)."""
    angles = distances[:, None].double() * inverse_frequencies(head_dim, theta)
    return torch.polar(torch.ones_like(angles), angles).cumsum(-1).abs().mean(-1)


def mean_products(
    queries: torch.Tensor, keys: torch.Tensor, distances: torch.Tensor, theta: float = THETA
) -> torch.Tensor:
    """The mean of |qᵀ R_r k| over p pairs of vectors, shape (p, d), at each of n relative distances: shape (n,)."""
    cos, sin = rotary_position_embeddings(distances[:, None], inverse_frequencies(keys.shape[-1], theta))
    means = []
    for at_one in zip(cos, sin, strict=True):  # one distance after the other: all of them at once take p·n·d numbers
        turned = rotate(keys[None, None], *(part[None] for part in at_one))[0, 0]
        means.append((queries * turned).sum(-1).abs().mean())
    return torch.stack(means)
