"""Where can positions come in? The four places, at each of which nothing is added here.

An encoding overrides one or two of these methods. There is one of it in an encoder: what it learns is shared by all layers,
while `layer`, where a method is given it, has that layer's own W_q, W_k and W_v.

Dimensions in the shapes: b batch, s length, h heads, d width of a head, w = h·d width of the encoder. As in the paper, m is
the position of a query and n that of a key; x_m and x_n are what the layer is given there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from encoder import SelfAttention, Sizes


class PositionEncoding(nn.Module):
    longest: int | None = None  # how many positions there are; None where there is no end of them

    def __init__(self, sizes: Sizes):
        super().__init__()

    def embeddings(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """What the first layer is given in place of the tokens' embeddings x, shape (b, s, w)."""
        return x

    def query_and_key(
        self, query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What is compared in place of W_q x_m and W_k x_n, both of shape (b, s, h, d)."""
        return query, key

    def bias(
        self, query: torch.Tensor, key: torch.Tensor, layer: SelfAttention, positions: torch.Tensor
    ) -> torch.Tensor | float:
        """What is added to all products of a query with a key, before they are divided by √d: (b or 1, h or 1, s, s)."""
        return 0.0

    def values(self, weights: torch.Tensor, layer: SelfAttention, positions: torch.Tensor) -> torch.Tensor | float:
        """What is added to the mean of the values W_v x_n, shape (b, s, h, d), for attention weights (b, h, s, s)."""
        return 0.0
