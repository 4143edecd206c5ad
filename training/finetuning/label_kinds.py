"""Kinds of labels: the model that is trained for them, its inputs and its scores."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import datasets
import numpy as np
import torch
from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

from modeling_roformer.registration import registered_transformers

from ..errors import TrainingError
from ..runs.new_head import new_head
from .class_weights import WeightedLoss, balanced_weights
from .evaluation import class_scores, number_scores, several_scores
from .predictions import ClassPredictions, NumberPredictions, Predictions, SeveralPredictions


class Labels(ABC):
    """Labels of a training. `label_kind` returns them.

    names: names of the labels, in the order of their ids.
    problem_type: `problem_type` of the model's configuration.
    described: the texts, for the card of the model.
    metrics: names of the scores. The first one chooses the epoch and the seed.
    loss: `compute_loss_func` of Trainer; None for the loss of the model.
    """

    problem_type: str
    described: str
    metrics: tuple[str, ...]
    greater_is_better = True  # the first score
    loss: Callable | None = None

    def __init__(self, names: Sequence[str]):
        self.names = [*names]

    def model(self, place: str) -> PreTrainedModel:
        """Return the classifier of a folder or of a name on the Hub. Its head is new if it was for other labels."""
        before = registered_transformers.AutoConfig.from_pretrained(place)
        with new_head():
            model = registered_transformers.AutoModelForSequenceClassification.from_pretrained(
                place,
                id2label=dict(enumerate(self.names)),
                label2id={name: number for number, name in enumerate(self.names)},
                problem_type=self.problem_type,
                ignore_mismatched_sizes=True,
                dtype="float32",
            )
        if before.problem_type == self.problem_type:
            self.begin(model)
        return model

    def begin(self, model: PreTrainedModel) -> None:  # noqa: B027, most kinds change nothing
        """Change a model that was saved for such labels into one that is trained on `tensor`."""

    def finish(self, model: PreTrainedModel) -> None:  # noqa: B027
        """Change a trained model into one that is saved."""

    @abstractmethod
    def tensor(self, labels: Sequence) -> torch.Tensor:
        """Return labels of rows as the model is trained on them."""

    @abstractmethod
    def scores(self, output: EvalPrediction) -> dict[str, float]:
        """Return the scores of a model in training, for `compute_metrics` of Trainer."""

    @abstractmethod
    def predictions(self, labels: Sequence, logits: np.ndarray) -> Predictions:
        """Return the predictions of a saved model, and the labels of the rows."""


class ClassLabels(Labels):
    """A class for each text; with `weights`, of each class, in a `WeightedLoss`, and the best epoch by macro F1."""

    problem_type = "single_label_classification"
    described = "labelled texts"
    metrics = ("accuracy", "macro_f1")

    def __init__(self, names: Sequence[str], weights: torch.Tensor | None = None):
        super().__init__(names)
        if weights is not None:
            self.loss, self.metrics = WeightedLoss(weights), self.metrics[::-1]

    def tensor(self, labels: Sequence) -> torch.Tensor:
        return torch.tensor(labels)

    def scores(self, output: EvalPrediction) -> dict[str, float]:
        return class_scores(output.label_ids, output.predictions.argmax(-1))

    def predictions(self, labels: Sequence, logits: np.ndarray) -> ClassPredictions:
        return ClassPredictions(self.names, np.asarray(labels), logits)


class SeveralLabels(Labels):
    """Any number of labels for each text, a list of ids."""

    problem_type = "multi_label_classification"
    described = "texts with several labels each"
    metrics = ("macro_f1", "micro_f1", "exact_match")

    def tensor(self, labels: Sequence) -> torch.Tensor:
        matrix = torch.zeros(len(labels), len(self.names))
        for row, ids in zip(matrix, labels, strict=True):
            row[ids] = 1
        return matrix

    def scores(self, output: EvalPrediction) -> dict[str, float]:
        return several_scores(output.label_ids, output.predictions >= 0)  # a probability of 0.5

    def predictions(self, labels: Sequence, logits: np.ndarray) -> SeveralPredictions:
        return SeveralPredictions(self.names, self.tensor(labels).numpy(), logits)


class NumberLabels(Labels):
    """A number for each text.

    A model is trained on numbers with mean 0 and standard deviation 1, so that learning rates fit all units. Mean and
    deviation then become a part of its last layer, so that the saved model returns the numbers themselves.

    Raises a TrainingError if they differ too little or too much for float32, in which models are saved.
    """

    problem_type = "regression"
    described = "texts with numbers"
    metrics = ("mean_absolute_error", "pearson", "spearman")
    greater_is_better = False

    def __init__(self, name: str, numbers: Sequence[float]):
        super().__init__([name])
        with np.errstate(over="ignore", invalid="ignore"):
            self.mean, self.deviation = float(np.mean(numbers)), float(np.std(numbers))
            saved = np.array([self.mean, self.deviation], dtype=np.float32)
        # Of equal numbers, the deviation may be a rounding error.
        if not (min(numbers) < max(numbers) and np.isfinite(saved).all() and saved[1] > 0):
            raise TrainingError(
                f"the {len(numbers):,} training texts have numbers from {min(numbers):g} to {max(numbers):g}, which no "
                "model can be trained on: add texts with other numbers, or write them in another unit"
            )

    def begin(self, model: PreTrainedModel) -> None:
        self._scale(model, 1 / self.deviation, -self.mean / self.deviation)

    def finish(self, model: PreTrainedModel) -> None:
        self._scale(model, self.deviation, self.mean)

    def tensor(self, labels: Sequence) -> torch.Tensor:
        return torch.tensor((np.asarray(labels) - self.mean) / self.deviation, dtype=torch.float32)

    def scores(self, output: EvalPrediction) -> dict[str, float]:
        return number_scores(output.label_ids * self.deviation, output.predictions * self.deviation)

    def predictions(self, labels: Sequence, logits: np.ndarray) -> NumberPredictions:
        return NumberPredictions(self.names, np.asarray(labels), logits)

    @torch.no_grad()
    def _scale(self, model: PreTrainedModel, factor: float, summand: float) -> None:
        layer = model.classifier.out_proj
        layer.weight.mul_(factor)
        layer.bias.mul_(factor).add_(summand)


def label_kind(rows: datasets.Dataset, column: str = "label", class_weights: str | None = None) -> Labels:
    """Return the kind of the `label` of training rows, as `load_labelled` returns them.

    Args:
        rows: the training rows.
        column: name of the labels in their source, which numbers are called in the model.
        class_weights: "balanced" for `balanced_weights`, None for none.

    Raises a TrainingError if weights are asked for where a text has not one class.
    """
    feature = rows.features["label"]
    if isinstance(feature, datasets.ClassLabel):
        weights = balanced_weights(rows["label"][:], feature.num_classes) if class_weights else None
        return ClassLabels(feature.names, weights)
    if class_weights:
        raise TrainingError(f"--class-weights {class_weights} is for one class per text: leave it out")
    if isinstance(feature, datasets.List):
        return SeveralLabels(feature.feature.names)
    return NumberLabels(column, rows["label"][:])


class LabelCollator:
    """Collator that pads tokenized texts, and makes tensors of their labels.

    >>> Trainer(model, arguments, data_collator=LabelCollator(tokenizer, labels))
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, labels: Labels):
        self.pad, self.labels = DataCollatorWithPadding(tokenizer), labels

    def __call__(self, rows: Sequence[dict]) -> dict[str, torch.Tensor]:
        inputs = [{name: value for name, value in row.items() if name != "label"} for row in rows]
        return {**self.pad(inputs), "labels": self.labels.tensor([row["label"] for row in rows])}
