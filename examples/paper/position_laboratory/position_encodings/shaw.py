"""Relative positions in keys and values (Shaw et al. 2018, arXiv:1803.02155): equation 5 of the RoFormer paper.

    f_q(x_m)    = W_q x_m
    f_k(x_n, n) = W_k (x_n + p^k_r)
    f_v(x_n, n) = W_v (x_n + p^v_r),   r = clip(m − n, r_min, r_max)                            (5)

with trained vectors p^k_r and p^v_r. A key depends on the query's position m, so p^k_r adds to the scores the term

    x_mᵀ W_qᵀ W_k p^k_r.

r_max = −r_min = 16; the original found no difference beyond that.

This is the equation's form. The original adds its vectors to the projected keys and values, where all heads share them,
and each layer has its own. The equation multiplies them by W_k and W_v. Here all layers share them.
"""

import torch
from torch import nn

from .base import PositionEncoding
from .distances import clipped, pick

FURTHEST = 16


class Shaw(PositionEncoding):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.p_k = nn.Embedding(2 * FURTHEST + 1, sizes.width)
        self.p_v = nn.Embedding(2 * FURTHEST + 1, sizes.width)

    def bias(self, query, key, layer, positions) -> torch.Tensor:
        relative_keys = layer.heads(layer.key(self.p_k.weight))  # (r, h, d)
        return pick(torch.einsum("bmhd,rhd->bhmr", query, relative_keys), clipped(positions, FURTHEST))

    def values(self, weights, layer, positions) -> torch.Tensor:
        rows = clipped(positions, FURTHEST).expand_as(weights)
        relative_values = layer.heads(layer.value(self.p_v.weight))  # (r, h, d)
        # Keys at the same r share p^v_r: sum their weights.
        summed = weights.new_zeros(*weights.shape[:3], len(relative_values)).scatter_add(-1, rows, weights)
        return torch.einsum("bhmr,rhd->bmhd", summed, relative_values)
