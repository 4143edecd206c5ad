"""ALiBi (Press et al. 2022, arXiv:2108.12409), which came after the RoFormer paper: the further, the less.

    a_{m,n} ∝ exp(q_mᵀ k_n / √d − 2^{−8i/h} |m − n|)

for head i = 1, …, h. Nothing is learned. The original looks to the left only; here either side is equally
far, so that a text read backwards looks the same.
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
        # The original's slopes are not divided by √d, as the sum will be.
        return -slopes * distances(positions).abs() * query.shape[-1] ** 0.5
