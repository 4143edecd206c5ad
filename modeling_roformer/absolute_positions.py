"""Absolute position embeddings, for baselines: what the RoFormer paper (arXiv:2104.09864) compares rotation with.

Equation 3 adds a vector p_i to the embedding of the token at position i, before anything else sees it:

    f_t(x_i, i) = W_t (x_i + p_i),   t ∈ {q, k, v}.

It is a row of a trained table in BERT ("learned"), and in the original transformer (arXiv:1706.03762) equation 4
("sinusoidal"), with d the width of the embeddings:

    p_{i,2t} = sin(i / 10000^(2t/d)),   p_{i,2t+1} = cos(i / 10000^(2t/d)).

Dimensions in the shapes: b batch, s sequence length, d embedding_size.
"""

import torch
from torch import nn

from .configuration import RoFormerConfig
from .rotary import inverse_frequencies, rotary_position_embeddings


class LearnedPositionEmbeddings(nn.Embedding):
    """BERT's table, of shape (max_position_embeddings, d): integer positions of shape (b or 1, s) in, (b or 1, s, d) out."""


class SinusoidalPositionEmbeddings(nn.Module):
    """Equation 4. There is no table, hence no longest length, and nothing to load or to save.

    Args:
        width: d.
        in_halves: all sines before all cosines, as Marian has them, in place of pairs.

    ```python
    >>> SinusoidalPositionEmbeddings(4)(torch.tensor([[0, 1]]))
    tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
             [0.8415, 0.5403, 0.0100, 0.9999]]])
    ```
    """

    def __init__(self, width: int, in_halves: bool = False):
        super().__init__()
        self.width = width
        self.in_halves = in_halves

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Positions of shape (b or 1, s) to vectors of shape (b or 1, s, d), float32.

        Their angles are those of rotation over a width of d, and are computed as there: in float64, for exactly the
        positions asked for.
        """
        cos, sin = rotary_position_embeddings(position_ids, inverse_frequencies(self.width, device=position_ids.device))
        return torch.stack((sin, cos), dim=-2 if self.in_halves else -1).flatten(2)

    def extra_repr(self) -> str:
        return str(self.width)


def make_position_embeddings(config: RoFormerConfig) -> nn.Module | None:
    """What gives the vectors to add, or None where positions are not put into the embeddings."""
    if config.position_encoding == "learned":
        return LearnedPositionEmbeddings(config.max_position_embeddings, config.embedding_size)
    if config.position_encoding == "sinusoidal":
        return SinusoidalPositionEmbeddings(config.embedding_size)
    return None


def longest_text(config: RoFormerConfig) -> int | None:
    """How many positions there are; None where there is no end of them."""
    return config.max_position_embeddings if config.position_encoding == "learned" else None


def check_length(config: RoFormerConfig, length: int) -> None:
    """Raises a ValueError where a text, with what is in the cache before it, has more tokens than there are positions."""
    longest = longest_text(config)
    if longest is not None and length > longest:
        raise ValueError(
            f"the text has {length} tokens, but max_position_embeddings is {longest}, and "
            'position_encoding="learned" knows no others: shorten the text'
        )
