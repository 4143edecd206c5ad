"""Transformer-XL (Dai et al. 2019, arXiv:1901.02860): equation 7 of the RoFormer paper.

With x + p in equation 3 the product of a query and a key has four terms:

    q_mᵀ k_n = x_mᵀ W_qᵀ W_k x_n + x_mᵀ W_qᵀ W_k p_n + p_mᵀ W_qᵀ W_k x_n + p_mᵀ W_qᵀ W_k p_n     (6)

Transformer-XL replaces p_n by p̃_{m−n}, the sinusoids of equation 4 at the distance, with a matrix W̃_k of their own. It
replaces p_m by two trained vectors u and v, since the distance already has the query's position:

    q_mᵀ k_n = x_mᵀ W_qᵀ W_k x_n + x_mᵀ W_qᵀ W̃_k p̃_{m−n} + uᵀ W_qᵀ W_k x_n + vᵀ W_qᵀ W̃_k p̃_{m−n}   (7)

This is the equation's form. In Transformer-XL itself, u and v are vectors of each head that W_q does not multiply, each
layer has its own W̃_k, and a causal model reads the states of earlier segments. Here all layers share W̃_k, u and v.
"""

import torch
from torch import nn

from modeling_roformer.rotary import SinusoidalPositionEmbeddings

from .base import PositionEncoding
from .distances import distances, pick


class TransformerXL(PositionEncoding):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.p = SinusoidalPositionEmbeddings(sizes.width)
        self.key = nn.Linear(sizes.width, sizes.width, bias=False)  # W̃_k
        self.u = nn.Parameter(torch.zeros(sizes.width))
        self.v = nn.Parameter(torch.zeros(sizes.width))

    def bias(self, query, key, layer, positions) -> torch.Tensor:
        apart = distances(positions)
        furthest = int(apart.max())
        every = torch.arange(-furthest, furthest + 1, device=apart.device)  # each distance once, shape (r,)
        relative_keys = layer.heads(self.key(self.p(every[None])[0].to(self.u.dtype)))  # (r, h, d)
        u, v = layer.heads(layer.query(self.u)), layer.heads(layer.query(self.v))  # (h, d)
        by_distance = torch.einsum("bmhd,rhd->bhmr", query + v, relative_keys)
        return pick(by_distance, apart + furthest) + torch.einsum("hd,bnhd->bhn", u, key)[:, :, None]
