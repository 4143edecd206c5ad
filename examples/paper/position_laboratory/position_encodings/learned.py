"""Learned positions (BERT, arXiv:1810.04805): equation 3 of the RoFormer paper with a trained vector for each position.

    f_t(x_i, i) = W_t (x_i + p_i),   t ∈ {q, k, v},   i < L                                     (3)

L is the trained length; there are no further positions.
"""

import torch
from torch import nn

from .base import PositionEncoding


class Learned(PositionEncoding):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.longest = sizes.length
        self.p = nn.Embedding(sizes.length, sizes.width)

    def embeddings(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return x + self.p(positions)
