"""T5 (Raffel et al. 2020, arXiv:1910.10683): equation 8 of the RoFormer paper.

    q_mᵀ k_n = x_mᵀ W_qᵀ W_k x_n + b_{m,n}                                                      (8)

b_{m,n} is a trained number for each head and each of 32 ranges of n − m: 16 per direction. The first 8 are single
distances, and the others grow logarithmically. The last range starts at 91 and has no end, so only texts of at least 92
tokens train it. As in T5's code, the numbers begin with a standard deviation of w^(−1/2).
"""

import torch
from torch import nn
from transformers.models.t5.modeling_t5 import T5Attention

from .base import PositionEncoding
from .distances import distances


class T5(PositionEncoding):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.b = nn.Embedding(32, sizes.heads)
        nn.init.normal_(self.b.weight, std=sizes.width**-0.5)

    def bias(self, query, key, layer, positions) -> torch.Tensor:
        ranges = T5Attention._relative_position_bucket(-distances(positions))  # 32 ranges, up to the distance 128
        # The original does not divide b by √d, which happens after this sum and would make b learn √d times more
        # slowly.
        return self.b(ranges).permute(2, 0, 1)[None] * query.shape[-1] ** 0.5
