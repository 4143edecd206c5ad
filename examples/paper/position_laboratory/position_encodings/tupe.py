"""TUPE (Ke et al. 2020, arXiv:2006.15595): equation 9 of the RoFormer paper.

    q_mᵀ k_n = x_mᵀ W_qᵀ W_k x_n + p_mᵀ U_qᵀ U_k p_n + b_{m,n}                                  (9)

It drops the two terms of equation 6 that mix words and positions. Positions have matrices U_q and U_k of their own and
trained vectors p_m, up to the trained length. b_{m,n} is T5's.

This is the equation's form. TUPE itself divides both products by √(2d) and unties [CLS]: trained numbers replace the
product of positions for it. The equation has √d, and texts of characters have no [CLS].
"""

import torch
from torch import nn

from .t5 import T5


class TUPE(T5):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.longest = sizes.length
        self.p = nn.Embedding(sizes.length, sizes.width)
        self.query = nn.Linear(sizes.width, sizes.width, bias=False)  # U_q
        self.key = nn.Linear(sizes.width, sizes.width, bias=False)  # U_k

    def bias(self, query, key, layer, positions) -> torch.Tensor:
        p = self.p(positions)
        of_positions = torch.einsum("mhd,nhd->hmn", layer.heads(self.query(p)), layer.heads(self.key(p)))
        return of_positions + super().bias(query, key, layer, positions)
