"""Sinusoidal positions (Vaswani et al. 2017, arXiv:1706.03762): equations 3 and 4 of the RoFormer paper.

    f_t(x_i, i) = W_t (x_i + p_i),   t ∈ {q, k, v}                                              (3)
    p_{i,2t} = sin(i / 10000^{2t/d}),   p_{i,2t+1} = cos(i / 10000^{2t/d})                      (4)

They are added to the token embeddings, before the first layer, so d is the width of the encoder here.
"""

import torch

from modeling_roformer.rotary import SinusoidalPositionEmbeddings

from .base import PositionEncoding


class Sinusoidal(PositionEncoding):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.p = SinusoidalPositionEmbeddings(sizes.width)

    def embeddings(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return x + self.p(positions[None])
