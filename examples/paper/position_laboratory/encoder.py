"""Encoder of the laboratory. A PositionEncoding adds the positions.

BERT's layers without dropout, for texts of equal length. Projections have no biases, as the paper writes them.
Dimensions in the shapes: b batch, s length, h heads, d width of a head, w = h·d width of the encoder.
"""

from dataclasses import dataclass

import torch
from position_encodings import PositionEncoding
from torch import nn


@dataclass(frozen=True)
class Sizes:
    """Sizes of an encoder. `vocabulary` includes [MASK]; `length` is that of the training texts, in tokens."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    length: int


class SelfAttention(nn.Module):
    """Equation 2 of the paper: a_{m,n} = softmax_n(q_mᵀ k_n / √d), o_m = Σ_n a_{m,n} v_n."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.head_width = sizes.width // sizes.heads
        self.query, self.key, self.value = (nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(3))
        self.output = nn.Linear(sizes.width, sizes.width)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape (…, w) to (…, h, d)."""
        return x.unflatten(-1, (-1, self.head_width))

    def scores(self, x: torch.Tensor, encoding: PositionEncoding, positions: torch.Tensor) -> torch.Tensor:
        """Return the attention scores before the softmax, shape (b, h, s, s)."""
        query, key = self.heads(self.query(x)), self.heads(self.key(x))
        query, key = encoding.query_and_key(query, key, positions)
        products = torch.einsum("bmhd,bnhd->bhmn", query, key)
        return (products + encoding.bias(query, key, self, positions)) / self.head_width**0.5

    def forward(self, x: torch.Tensor, encoding: PositionEncoding, positions: torch.Tensor) -> torch.Tensor:
        weights = self.scores(x, encoding, positions).softmax(-1)
        mean = torch.einsum("bhmn,bnhd->bmhd", weights, self.heads(self.value(x)))
        return self.output((mean + encoding.values(weights, self, positions)).flatten(-2))


class Layer(nn.Module):
    """Layer with attention and feed-forward network, each with a residual connection and post-normalisation."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.attention = SelfAttention(sizes)
        self.feed_forward = nn.Sequential(
            nn.Linear(sizes.width, 4 * sizes.width), nn.GELU(), nn.Linear(4 * sizes.width, sizes.width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(2))

    def forward(self, x: torch.Tensor, encoding: PositionEncoding, positions: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](x + self.attention(x, encoding, positions))
        return self.norms[1](x + self.feed_forward(x))


class Encoder(nn.Module):
    """Masked language model. Only the parameters under `encoding` differ between encodings."""

    def __init__(self, sizes: Sizes, encoding: type[PositionEncoding]):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.norm = nn.LayerNorm(sizes.width)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.prediction = nn.Linear(sizes.width, sizes.vocabulary)
        self.encoding = encoding(sizes)

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None, positions: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """Return the `logits` and, with labels, the `loss`.

        Args:
            input_ids: shape (b, s).
            labels: the masked tokens, −100 elsewhere, shape (b, s).
            positions: positions of the tokens in all texts, shape (s,); default 0, 1, 2, … They must be below `longest`
                of the encoding.
        """
        if positions is None:
            positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.encoding.embeddings(self.tokens(input_ids), positions))
        for layer in self.layers:
            x = layer(x, self.encoding, positions)
        logits = self.prediction(x)
        if labels is None:
            return {"logits": logits}
        # The mean, which would be nan for a batch without a masked token.
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return {"loss": loss / (labels != -100).sum().clamp(min=1), "logits": logits}
