"""Columns and hyperparameters of a training on triplets, without importing torch."""

from dataclasses import dataclass

COLUMNS = {"--a": "A", "--b": "B", "--c": "C", "--label": "label"}  # option -> column that it names by default


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters that all runs share.

    scorer: "cross" or "bi"; see `RoFormerForTripletMatching`.
    epochs: maximum number of epochs.
    patience: epochs without a better validation accuracy after which training stops; the best epoch is kept.
    batch_size: triplets per step.
    learning_rate: maximum learning rate, after a tenth of the steps; then it falls linearly. None stands for that of
        `fine_tuning_rate`, which depends on the model.
    device_tokens: maximum number of tokens that a device computes at once; larger batches are accumulated.
    bf16: bfloat16 autocast.
    """

    scorer: str = "cross"
    epochs: int = 10
    patience: int = 3
    batch_size: int = 16
    learning_rate: float | None = None
    device_tokens: int = 16_384
    bf16: bool = False
