"""No positions: a text is a bag of tokens."""

from .base import PositionEncoding


class NoPositions(PositionEncoding):
    """Encoding without positions: scores are x_mᵀ W_qᵀ W_k x_n."""
