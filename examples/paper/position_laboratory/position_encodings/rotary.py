"""Rotary positions: equation 16 of the RoFormer paper, by the package's own code (modeling_roformer/rotary.py).

    q_mᵀ k_n = (R_m W_q x_m)ᵀ (R_n W_k x_n) = x_mᵀ W_qᵀ R_{n−m} W_k x_n                         (16)

It adds no terms and has no parameters: query and key are rotated, each by its position, so their product depends on the
distance.
"""

import torch

from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings, rotate

from .base import PositionEncoding


class Rotary(PositionEncoding):
    def query_and_key(self, query, key, positions) -> tuple[torch.Tensor, torch.Tensor]:
        frequencies = inverse_frequencies(query.shape[-1], device=query.device)
        rotation = rotary_position_embeddings(positions[None], frequencies)
        return rotate(query, rotation), rotate(key, rotation)
