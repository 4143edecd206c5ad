"""T5 (Raffel et al. 2020, arXiv:1910.10683): equation 8 of the RoFormer paper.

    q_mᵀ k_n = x_mᵀ W_qᵀ W_k x_n + b_{m,n}                                                      (8)

b_{m,n} is a trained number for each head and for each of 32 ranges of n − m: 16 to either side, of which the first 8 are
single distances, and the others grow by the logarithm. The last begins at 91 and has no end: it is trained by texts of 92
tokens or more.
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

    def bias(self, query, key, layer, positions) -> torch.Tensor:
        ranges = T5Attention._relative_position_bucket(-distances(positions))  # 32 of them, up to 128, to either side
        # The original does not divide b by √d, as the sum will be: it would learn that many times slower.
        return self.b(ranges).permute(2, 0, 1)[None] * query.shape[-1] ** 0.5
