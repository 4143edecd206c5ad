"""Fine-tuning on triplets (section 4.5.3 of the RoFormer paper), and saving the model with card and curves."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import EvalResult
from transformers import (
    DataCollatorForMultipleChoice,
    EarlyStoppingCallback,
    PreTrainedTokenizerBase,
    ProgressCallback,
    TrainingArguments,
    set_seed,
)

from ...files.atomic_folder import output_folder
from ...model_cards.trained_card import write_trained_card
from ...output.console import no_transformers_bar, no_transformers_report
from ...registration import transformers
from ...rotary import longest_text
from ...triplet_matching import RoFormerForTripletMatching
from ..comparing.curves import draw_learning_curves
from ..errors import TrainingError
from ..metrics import metric
from ..runs.device import ON_CPU, device_batch_size
from ..runs.digests import digest_of_model
from ..runs.finite import FiniteTrainer, require_finite_start
from ..runs.models import has_tokenizer, saved_config
from ..runs.nothing_learned import NothingLearned
from .arguments import Recipe
from .baselines import TEXT_BLIND, decide
from .reading import Split, encode_triplets
from .results import Row, percent


@dataclass(frozen=True)
class StartingModel:
    """Saved model to fine-tune, with its tokenizer.

    name: name of its rows.
    longest: maximum number of tokens, for learned positions; None without a limit.
    weights: digests of the model; see `digest_of_model`.
    """

    place: str
    name: str
    tokenizer: PreTrainedTokenizerBase
    longest: int | None
    weights: str

    def model(self, scorer: str, seed: int = 0) -> RoFormerForTripletMatching:
        """Load the model in float32. If the checkpoint has no scorer, initialise one from the seed.

        Raises NotFinite if a weight is not finite.
        """
        set_seed(seed)
        # Hide the report that the scorer is new; other missing weights are refused below.
        with no_transformers_bar(), no_transformers_report():
            model, loading = RoFormerForTripletMatching.from_pretrained(
                self.place, triplet_scorer=scorer, dtype=torch.float32, output_loading_info=True
            )
        if missing := [name for name in loading["missing_keys"] if not name.startswith("scorer.")]:
            raise TrainingError(f"{self.place} lacks {len(missing)} weights of the model, such as {sorted(missing)[0]}")
        require_finite_start(model, self.place)
        return model


def load_starting_model(place: str | Path) -> StartingModel:
    """Load a saved RoFormer with any head. Raise a TrainingError if it is another model or its tokenizer does not
    fit."""
    place = str(place)
    config = saved_config(place)
    if not has_tokenizer(place):
        raise TrainingError(f"{place} has no tokenizer: copy the vocab.txt of its training into that folder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    if config.vocab_size < len(tokenizer):
        raise TrainingError(
            f"{place}: the tokenizer has {len(tokenizer):,} entries, but the model {config.vocab_size:,}: copy the "
            "vocab.txt of its training into that folder"
        )
    name = os.path.basename(os.path.abspath(place))
    return StartingModel(place, name, tokenizer, longest_text(config), digest_of_model(place))


@dataclass
class Trained:
    """Result of a fine-tuning: the model of the best epoch, its validation accuracy, its decisions on the test triplets
    (0 for B, 1 for C, -1 for a tie), and Trainer's log."""

    model: RoFormerForTripletMatching
    validation: float
    test: np.ndarray
    log: list[dict]


def fine_tune(
    start: StartingModel, split: Split, length: int, seed: int, recipe: Recipe, work: str | Path, title: str = ""
) -> Trained:
    """Train on the training triplets, stop early by validation accuracy, and predict the test triplets.

    Args:
        length: maximum number of tokens of a pair ("cross") or of a text ("bi").
        seed: seed of a new scorer, the order and dropout.
        work: folder for checkpoints; it is removed at the end.
        title: title of the progress bar.

    Raises NotFinite if the run fails.
    """
    parts = split.train, split.validation, split.test
    train, validation, test = (encode_triplets(part, start.tokenizer, recipe.scorer, length) for part in parts)
    model = start.model(recipe.scorer, seed)
    unpad_inputs, model.config.unpad_inputs = model.config.unpad_inputs, True
    trainer = FiniteTrainer(
        model,
        _arguments(length, seed, recipe, work),
        train_dataset=train,
        eval_dataset=validation,
        data_collator=DataCollatorForMultipleChoice(start.tokenizer),
        compute_metrics=_accuracy,
        callbacks=[EarlyStoppingCallback(recipe.patience), NothingLearned(one.label for one in split.validation)],
    )
    trainer.remove_callback(ProgressCallback)
    bar = _ProgressBar(title)
    trainer.add_callback(bar)
    shutil.rmtree(work, ignore_errors=True)  # left by a stopped run
    try:
        with no_transformers_bar():  # hides a bar for each file that is saved
            trainer.train()
        logits = trainer.predict(test).predictions
    finally:
        bar.close()
        shutil.rmtree(work, ignore_errors=True)
    model.config.unpad_inputs = unpad_inputs
    return Trained(model, trainer.state.best_metric, decide(logits), trainer.state.log_history)


def _arguments(length: int, seed: int, recipe: Recipe, work: str | Path) -> TrainingArguments:
    texts = 2 if recipe.scorer == "cross" else 3
    on_device = device_batch_size(recipe.batch_size, recipe.device_tokens // (length * texts))
    arguments = TrainingArguments(
        str(work),
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        warmup_steps=0.1,  # of all steps
        weight_decay=0.01,
        per_device_train_batch_size=on_device,
        per_device_eval_batch_size=on_device,
        gradient_accumulation_steps=recipe.batch_size // on_device,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        save_total_limit=2,
        save_only_model=True,
        seed=seed,
        bf16=recipe.bf16,
        use_cpu=ON_CPU,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # DataParallel does not support these inputs
    return arguments


def _accuracy(answers) -> dict[str, float]:
    return metric("triplet_accuracy").compute(predictions=decide(answers.predictions), references=answers.label_ids)


class _ProgressBar(ProgressCallback):
    """Progress bar with the last metrics in it, in place of a line for each log entry."""

    def __init__(self, title: str):
        super().__init__()
        self.title = title

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        self.training_bar.set_description(self.title)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is not None:
            shown = {name: logs[name] for name in ("loss", "eval_loss", "eval_accuracy") if name in logs}
            self.training_bar.set_postfix(shown, refresh=False)

    def close(self) -> None:
        """Close all bars, wherever training has ended."""
        for bar in (self.prediction_bar, self.training_bar):
            if bar is not None:
                bar.close()


_METHOD = """Fine-tuned to decide which of two texts is closer to a third, on {train} triplets of {data.train}; the
epoch was chosen by the accuracy on {validation} others.

![Loss and accuracy against epochs](curves.png)"""
_SCORES = """Accuracy on {test} triplets of {data.test}:

| | validation | test |
| --- | --- | --- |
{lines}

In %; means and standard deviations over seeds. {known} of the {asked} texts of the test are also in triplets of
training or validation."""


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


def describe_trained(
    folder: str | Path, start: StartingModel, row: Row, split: Split, recipe: Recipe, data: Data, blind: Row | None
) -> None:
    """Write curves and card into the folder of a row's best model.

    `split` has the triplets of the best run; `blind` is the row of the text-blind baseline, if there is one.
    """
    folder, best = Path(folder), row.best
    draw_learning_curves({run.seed: run.log for run in row.runs}, folder / "curves.png")
    rows = [(f"this model, seed {best.seed}", [best])]
    if len(row.runs) > 1:
        rows.append((f"{len(row.runs)} seeds", row.runs))
    if blind is not None:
        rows.append((f"{TEXT_BLIND}, without reading", blind.runs))
    scores = [(name, [run.validation for run in runs], [run.accuracy for run in runs]) for name, runs in rows]
    lines = [f"| {name} | {percent(validation)} | {percent(test)} |" for name, validation, test in scores]
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
    write_trained_card(
        folder,
        row.name,
        _METHOD.format(**sizes),
        base=start.place,
        hyperparameters={**vars(recipe), "device_tokens": None, "length": row.length, "seed": best.seed},
        scores=[score],
        results=_SCORES.format(lines="\n".join(lines), known=known, asked=asked, **sizes),
    )
