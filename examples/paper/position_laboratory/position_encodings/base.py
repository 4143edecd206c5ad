"""Base class of position encodings: four methods where positions can be added. Here they add nothing.

An encoding overrides one or two of these methods. An encoder has one encoding, whose parameters all layers share. The
argument `layer` gives access to the layer's own W_q, W_k and W_v.

Dimensions in the shapes: b batch, s length, h heads, d width of a head, w = h·d width of the encoder. As in the paper,
m is the position of a query and n that of a key; x_m and x_n are the inputs of the layer there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from encoder import SelfAttention, Sizes


class PositionEncoding(nn.Module):
    longest: int | None = None  # number of positions; None without a limit

    def __init__(self, sizes: Sizes):
        super().__init__()

    def embeddings(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the input of the first layer from the token embeddings x, shape (b, s, w)."""
        return x

    def query_and_key(
        self, query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return query and key from W_q x_m and W_k x_n, both of shape (b, s, h, d)."""
        return query, key

    def bias(
        self, query: torch.Tensor, key: torch.Tensor, layer: SelfAttention, positions: torch.Tensor
    ) -> torch.Tensor | float:
        """Return a term to add to the products of queries and keys, before the division by √d:
        (b or 1, h or 1, s, s)."""
        return 0.0

    def values(self, weights: torch.Tensor, layer: SelfAttention, positions: torch.Tensor) -> torch.Tensor | float:
        """Return a term to add to the weighted mean of W_v x_n, shape (b, s, h, d), for attention weights
        (b, h, s, s)."""
        return 0.0
