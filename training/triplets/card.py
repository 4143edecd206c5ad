"""Saving a model that was fine-tuned on triplets, ready for `roformer push`: with tokenizer, curves, card and score."""

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import EvalResult

from ...output.atomic_folder import output_folder
from ...output.console import no_transformers_bar
from ..comparing.curves import draw_learning_curves
from ..finetuning.scored_card import write_scored_card
from .baselines import TEXT_BLIND
from .finetuning import Recipe, StartingModel, Trained
from .reading import Split
from .results import Row, percent

_METHOD = """Fine-tuned on {train} triplets of {data.train}; the epoch was chosen by the accuracy on {validation} others. Inputs were \
truncated to {length:,}
tokens, with the scorer `{scorer}`; batches of {batch_size}, learning rate {learning_rate:g}, at most {epochs} epochs, seed {seed}.

![Loss and accuracy against epochs](curves.png)"""
_SCORES = """Accuracy on {test} triplets of {data.test}:

| | validation | test |
| --- | --- | --- |
{lines}

In %; means and standard deviations over seeds. {known} of the {asked} texts of the test are also in triplets of training or
validation."""


@dataclass(frozen=True)
class Data:
    """Names of the training and test triplets in a card."""

    train: str
    test: str


def save_trained(folder: str | Path, start: StartingModel, trained: Trained, length: int) -> None:
    """Save a model, and its tokenizer with the length of training, in place of an earlier seed's model."""
    with no_transformers_bar(), output_folder(folder, force=True) as new:
        trained.model.save_pretrained(new)
        start.tokenizer.model_max_length = length
        start.tokenizer.save_pretrained(new)


def describe_trained(folder: str | Path, row: Row, split: Split, recipe: Recipe, data: Data, blind: Row | None) -> None:
    """Write curves and card into the folder of a row's best model.

    Args:
        folder: folder of the model.
        row: all runs of the row.
        split: the triplets of the best run.
        recipe: the hyperparameters.
        data: names of the triplets.
        blind: the row of the text-blind baseline, if there is one.
    """
    folder, best = Path(folder), row.best
    draw_learning_curves({run.seed: run.log for run in row.runs}, folder / "curves.png")
    rows = [(f"this model, seed {best.seed}", [best])]
    if len(row.runs) > 1:
        rows.append((f"{len(row.runs)} seeds", row.runs))
    if blind is not None:
        rows.append((f"{TEXT_BLIND}, without reading", blind.runs))
    lines = [
        f"| {name} | {percent([run.validation for run in runs])} | {percent([run.accuracy for run in runs])} |"
        for name, runs in rows
    ]
    known, asked = split.test_overlap()
    sizes = {"train": len(split.train), "validation": len(split.validation), "test": len(split.test), "data": data}
    score = EvalResult(
        task_type="sentence-similarity",
        task_name="triplet matching",
        dataset_type=data.test,
        dataset_name=data.test,
        dataset_split="test",
        metric_type="accuracy",
        metric_value=round(best.accuracy, 4),
    )
    write_scored_card(
        folder,
        [score],
        row.name,
        training=_METHOD.format(length=row.length, seed=best.seed, **sizes, **vars(recipe)),
        results=_SCORES.format(lines="\n".join(lines), known=known, asked=asked, **sizes),
        fine_tuned_from=row.model,
    )
