"""Relative positions of NEZHA (arXiv:1909.00204, equations 1 to 3): self-attention with a vector for each distance.

With p the position vector of the distance j − i, clipped to ±K (K is `max_relative_position`),

    e_ij = q_i · (k_j + p_ij) / √d,   α_i = softmax(e_i),   o_i = Σ_j α_ij (v_j + p_ij),

    p_ij = a[clip(j − i, −K, K) + K],   a[t]_2n = sin(t / 10000^(2n / d)),   a[t]_2n+1 = cos(t / 10000^(2n / d)).

The p_ij of all pairs are never materialised: there are only 2K + 1 vectors. Each query is multiplied by these, and the
products are gathered by distance; the probabilities are summed by distance before they weight the vectors.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim, K max_relative_position.
"""

from typing import cast

import torch
from torch import nn

from .attention import RoFormerSelfAttention
from .configuration import RoFormerConfig
from .nezha_configuration import NezhaConfig
from .rotary import inverse_frequencies


def relative_position_embeddings(
    position_ids: torch.Tensor, head_dim: int, max_relative_position: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vectors of all distances, and the row of each pair of positions among them.

    Args:
        position_ids: integer positions i, shape (b, s), or (1, s) if all texts share them.

    Returns:
        The vectors a, shape (2K + 1, d), float32, computed in float64 in each call, as rotary positions are; and the
        row of each pair, clip(j − i, −K, K) + K, shape (b or 1, 1, s, s).

    ```python
    >>> vectors, rows = relative_position_embeddings(torch.arange(4)[None], head_dim=2, max_relative_position=2)
    >>> rows[0, 0]
    tensor([[2, 3, 4, 4],
            [1, 2, 3, 4],
            [0, 1, 2, 3],
            [0, 0, 1, 2]])
    ```
    """
    distances = position_ids[:, None, :] - position_ids[:, :, None]
    rows = distances.clamp(-max_relative_position, max_relative_position) + max_relative_position
    inv_freq = inverse_frequencies(head_dim, device=position_ids.device)
    t = torch.arange(2 * max_relative_position + 1, dtype=inv_freq.dtype, device=inv_freq.device)
    angles = t[:, None] * inv_freq
    vectors = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    return vectors.to(device=position_ids.device, dtype=torch.float32), rows[:, None]


class NezhaSelfAttention(RoFormerSelfAttention):
    """Self-attention with relative positions in the scores and in the values."""

    def __init__(self, config: NezhaConfig, layer_idx: int):
        super().__init__(cast(RoFormerConfig, config), layer_idx)
        self.register_load_state_dict_pre_hook(drop_positions_encoding)

    @staticmethod
    def can_pack(config: RoFormerConfig, implementation: str) -> bool:
        """Return False: the rows of `position_embeddings` are of padded texts."""
        return False

    def forward(
        self,
        hidden_states: torch.Tensor,
        vectors: torch.Tensor,
        rows: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        query, key, value = (x.transpose(1, 2) for x in self.project(hidden_states))
        vectors = vectors.to(query.dtype)
        rows = rows.expand(*query.shape[:3], -1)  # (b, h, s, s), without a copy

        by_distance = torch.matmul(query, vectors.T)  # (b, h, s, 2K + 1)
        scores = (torch.matmul(query, key.transpose(-1, -2)) + by_distance.gather(-1, rows)) * self.head_dim**-0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        probabilities = self.dropout(nn.functional.softmax(scores, dim=-1))

        # A sum over a long text needs float32.
        wide = torch.promote_types(probabilities.dtype, torch.float32)
        weights = torch.zeros_like(by_distance, dtype=wide).scatter_add(-1, rows, probabilities.to(wide))
        context = torch.matmul(probabilities, value) + torch.matmul(weights.to(vectors.dtype), vectors)
        return context.transpose(1, 2).flatten(-2), probabilities


def drop_positions_encoding(module: nn.Module, state_dict: dict, prefix: str, *args) -> None:
    """Remove the p_ij that transformers 4 saved in each layer; they are computed here."""
    state_dict.pop(f"{prefix}relative_positions_encoding.positions_encoding", None)
