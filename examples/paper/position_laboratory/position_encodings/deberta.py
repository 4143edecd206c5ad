"""DeBERTa (He et al. 2020, arXiv:2006.03654): equation 10 of the RoFormer paper.

    q_mᵀ k_n = x_mᵀ W_qᵀ W_k x_n + x_mᵀ W_qᵀ W_k p̃_{m−n} + p̃_{m−n}ᵀ W_qᵀ W_k x_n                (10)

It keeps the two middle terms of equation 6, content to position and position to content, with a trained vector p̃ for
each distance. Distances beyond the trained length use the vector of the largest one.

This is the equation's form. DeBERTa itself has matrices of their own for p̃, takes the distance n − m in the last term,
and divides the sum of the three by √(3d). The equation takes W_q and W_k for p̃, m − n in both terms, and √d.
"""

import torch
from torch import nn

from .base import PositionEncoding
from .distances import clipped, pick


class DeBERTa(PositionEncoding):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.furthest = sizes.length - 1
        self.p = nn.Embedding(2 * self.furthest + 1, sizes.width)

    def bias(self, query, key, layer, positions) -> torch.Tensor:
        rows = clipped(positions, self.furthest)
        relative_queries = layer.heads(layer.query(self.p.weight))  # (r, h, d)
        relative_keys = layer.heads(layer.key(self.p.weight))
        content_to_position = pick(torch.einsum("bmhd,rhd->bhmr", query, relative_keys), rows)
        position_to_content = pick(torch.einsum("bnhd,rhd->bhnr", key, relative_queries), rows.T).mT
        return content_to_position + position_to_content
