"""Hint for a run that has learned nothing yet."""

import sys
from collections import Counter
from collections.abc import Iterable

from tqdm.auto import tqdm
from transformers import TrainerCallback


class NothingLearned(TrainerCallback):
    """Hint after the first epoch, and at the end, if the model is no better than the most frequent class for all texts.

    labels: labels of the validation split.
    """

    def __init__(self, labels: Iterable[object]):
        counts = Counter(labels)
        self.share = max(counts.values()) / counts.total()

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        if round(state.epoch) == 1:
            self._compare("after one epoch", metrics["eval_accuracy"], args)

    def on_train_end(self, args, state, control, **kwargs):
        if round(state.epoch) > 1 and state.best_metric is not None:
            self._compare("after the best epoch", state.best_metric, args)

    def _compare(self, when: str, accuracy: float, args) -> None:
        if accuracy <= self.share:
            tqdm.write(
                f"hint: {when}, the validation accuracy is {accuracy:.3f}, and {self.share:.3f} with the most frequent "
                f"class for all texts. If this stays so, try another --learning-rate (now {args.learning_rate:g}), "
                "more --epochs and --patience, or a smaller --batch-size",
                file=sys.stderr,
            )
