"""Learning rate for fine-tuning, if the user gives none."""

from ...configuration import RoFormerConfig

_RATE, _WIDTH = 3e-5, 768  # those of the paper's section 4.3
_HIGHEST = 1e-3


def fine_tuning_rate(config: RoFormerConfig) -> float:
    """Return a learning rate for fine-tuning a model, and print it: 3e-5 at a width of 768, more for narrower models.

    It is in inverse proportion to the square of the width, at most 1e-3, and has one digit.

    >>> fine_tuning_rate(RoFormerConfig(hidden_size=256))
    learning rate 0.0003, chosen for a model of width 256; --learning-rate sets another
    0.0003
    """
    rate = float(f"{min(_RATE * (_WIDTH / config.hidden_size) ** 2, _HIGHEST):.0e}")
    print(f"learning rate {rate:g}, chosen for a model of width {config.hidden_size:,}; --learning-rate sets another")
    return rate
