"""No positions: an encoder to which a text is a bag of tokens."""

from .base import PositionEncoding


class NoPositions(PositionEncoding):
    """x_mᵀ W_qᵀ W_k x_n alone."""
