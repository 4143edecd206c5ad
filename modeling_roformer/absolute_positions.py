"""Absolute position embeddings, the baselines that the RoFormer paper (arXiv:2104.09864) compares with.

Equation 3 adds a vector p_i to the embedding of the token at position i:

    f_t(x_i, i) = W_t (x_i + p_i),   t ∈ {q, k, v}.

It is a row of a trained table in BERT ("learned"), and equation 4 in the original transformer (arXiv:1706.03762,
"sinusoidal"), with d the width of the embeddings:

    p_{i,2t} = sin(i / 10000^(2t/d)),   p_{i,2t+1} = cos(i / 10000^(2t/d)).

Dimensions in the shapes: b batch, s sequence length, d embedding_size.
"""

import torch
from torch import nn

from .configuration import RoFormerConfig
from .rotary import inverse_frequencies, rotary_position_embeddings


class LearnedPositionEmbeddings(nn.Embedding):
    """BERT's table of shape (max_position_embeddings, d): maps positions of shape (b or 1, s) to (b or 1, s, d)."""


class SinusoidalPositionEmbeddings(nn.Module):
    """Equation 4, without a table: there is no maximum length, and nothing to load or to save.

    Args:
        width: d.
        in_halves: all sines before all cosines, as in Marian, in place of pairs.

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
        """Map positions of shape (b or 1, s) to vectors of shape (b or 1, s, d), float32, with rotary.py's angles."""
        cos, sin = rotary_position_embeddings(position_ids, inverse_frequencies(self.width, device=position_ids.device))
        return torch.stack((sin, cos), dim=-2 if self.in_halves else -1).flatten(2)

    def extra_repr(self) -> str:
        return str(self.width)


def make_position_embeddings(config: RoFormerConfig) -> nn.Module | None:
    """Return the module of position embeddings, or None if the config adds none."""
    width = config.embedding_size or config.hidden_size
    if config.position_encoding == "learned":
        return LearnedPositionEmbeddings(config.max_position_embeddings, width)
    if config.position_encoding == "sinusoidal":
        return SinusoidalPositionEmbeddings(width)
    return None


def longest_text(config: RoFormerConfig) -> int | None:
    """Return the number of positions, None if unlimited."""
    return config.max_position_embeddings if config.position_encoding == "learned" else None


def check_length(config: RoFormerConfig, length: int) -> None:
    """Raise a ValueError if a text, with the cached tokens, is longer than the table of positions."""
    longest = longest_text(config)
    if longest is not None and length > longest:
        raise ValueError(
            f'the text has {length} tokens, but max_position_embeddings is {longest} with position_encoding="learned": '
            "shorten the text"
        )
