"""ALiBi (Press et al. 2022, arXiv:2108.12409): scores fall linearly with the distance. It is newer than the RoFormer
paper.

    a_{m,n} ∝ exp(q_mᵀ k_n / √d − 2^{−8i/h} |m − n|)

for head i = 1, …, h. It has no parameters. The original is causal; here both directions have the same slopes, so that a
reversed text gets the same scores.
"""

import torch

from .base import PositionEncoding
from .distances import distances


class ALiBi(PositionEncoding):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.slopes = [2 ** (-8 * (i + 1) / sizes.heads) for i in range(sizes.heads)]

    def bias(self, query, key, layer, positions) -> torch.Tensor:
        slopes = torch.tensor(self.slopes, device=query.device)[:, None, None]
        # The original does not divide the slopes by √d, which happens after this sum.
        return -slopes * distances(positions).abs() * query.shape[-1] ** 0.5
