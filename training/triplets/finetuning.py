"""Fine-tuning on triplets with transformers' Trainer (section 4.5.3 of the RoFormer paper)."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoTokenizer,
    DataCollatorForMultipleChoice,
    EarlyStoppingCallback,
    PreTrainedTokenizerBase,
    ProgressCallback,
    TrainingArguments,
    set_seed,
)

from ...absolute_positions import longest_text
from ...output.console import no_transformers_bar, no_transformers_report
from ...triplet_matching import RoFormerForTripletMatching
from ..errors import TrainingError
from ..metrics import metric
from ..runs.device import ON_CPU
from ..runs.digests import digest_of_model
from ..runs.finite import FiniteTrainer
from ..runs.models import has_tokenizer, saved_config
from .baselines import decide
from .reading import Split, encode_triplets


@dataclass(frozen=True)
class Recipe:
    """How each model is trained, beside its length and its seed.

    scorer: "cross" or "bi"; see `RoFormerForTripletMatching`.
    epochs: at most.
    patience: training stops when validation accuracy has not risen for so many epochs; the best epoch is kept.
    batch_size: triplets of a step.
    learning_rate: at its highest, after a tenth of the steps; from there it falls linearly.
    device_tokens: most tokens that a device computes at once; batches are divided accordingly.
    bf16: compute in bfloat16.
    """

    scorer: str = "cross"
    epochs: int = 10
    patience: int = 3
    batch_size: int = 16
    learning_rate: float = 5e-5
    device_tokens: int = 16_384
    bf16: bool = False


@dataclass(frozen=True)
class Start:
    """A saved model from which training starts, with its tokenizer.

    name: what its rows are called.
    longest: most tokens that its positions allow, None where they have no end.
    weights: what tells it from another one of its name; see `digest_of_model`.
    """

    place: str
    name: str
    tokenizer: PreTrainedTokenizerBase
    longest: int | None
    weights: str

    def model(self, scorer: str, seed: int = 0) -> RoFormerForTripletMatching:
        """In float32; a scorer that the checkpoint does not have is fresh, from the seed."""
        set_seed(seed)
        # The report would say that the scorer is fresh; any other weight that is missing is refused below.
        with no_transformers_bar(), no_transformers_report():
            model, loading = RoFormerForTripletMatching.from_pretrained(
                self.place, triplet_scorer=scorer, dtype=torch.float32, output_loading_info=True
            )
        if missing := [name for name in loading["missing_keys"] if not name.startswith("scorer.")]:
            raise TrainingError(
                f"{self.place} lacks {len(missing)} of the model's weights, {sorted(missing)[0]} among them"
            )
        return model


def load_start(place: str | Path) -> Start:
    """A saved RoFormer, of any head; a TrainingError where it is another model, or not with its own tokenizer."""
    place = str(place)
    config = saved_config(place)
    if not has_tokenizer(place):
        raise TrainingError(f"{place} has no tokenizer: copy the vocab.txt there with which the model was trained")
    tokenizer = AutoTokenizer.from_pretrained(place)
    if config.vocab_size < len(tokenizer):
        raise TrainingError(
            f"{place}: the tokenizer has {len(tokenizer):,} entries and the model {config.vocab_size:,}, so it is of another "
            "vocabulary: give the model its own vocab.txt"
        )
    name = os.path.basename(os.path.abspath(place))
    return Start(place, name, tokenizer, longest_text(config), digest_of_model(place))


@dataclass
class Trained:
    """What came out: the model of the best epoch, with its accuracy on the validation part.

    test: decisions on the test part, 0 for B, 1 for C, -1 for neither, shape (n,).
    log: Trainer's, an entry for each epoch's training and for its validation.
    """

    model: RoFormerForTripletMatching
    validation: float
    test: np.ndarray
    log: list[dict]


def fine_tune(
    start: Start, split: Split, length: int, seed: int, recipe: Recipe, work: str | Path, title: str = ""
) -> Trained:
    """Train on one part, stop by the accuracy on another, and answer a third.

    Args:
        start: what to train.
        split: the three parts.
        length: most tokens of a pair ("cross") or of a text ("bi").
        seed: of the fresh scorer, the order and dropout.
        recipe: how.
        work: folder for checkpoints, removed in the end.
        title: what the progress bar is called.

    Raises NotFinite where the run fails.
    """
    train, validation, test = (
        encode_triplets(part, start.tokenizer, recipe.scorer, length)
        for part in (split.train, split.validation, split.test)
    )
    model = start.model(recipe.scorer, seed)
    unpad_inputs, model.config.unpad_inputs = model.config.unpad_inputs, True
    trainer = FiniteTrainer(
        model,
        _arguments(length, seed, recipe, work),
        train_dataset=train,
        eval_dataset=validation,
        data_collator=DataCollatorForMultipleChoice(start.tokenizer),
        compute_metrics=_accuracy,
        callbacks=[EarlyStoppingCallback(recipe.patience)],
    )
    trainer.remove_callback(ProgressCallback)
    bar = _ProgressBar(title)
    trainer.add_callback(bar)
    shutil.rmtree(work, ignore_errors=True)  # what a stopped run left
    try:
        with no_transformers_bar():  # of each file that is saved
            trainer.train()
        logits = trainer.predict(test).predictions
    finally:
        bar.close()
        shutil.rmtree(work, ignore_errors=True)
    model.config.unpad_inputs = unpad_inputs
    return Trained(model, trainer.state.best_metric, decide(logits), trainer.state.log_history)


def _arguments(length: int, seed: int, recipe: Recipe, work: str | Path) -> TrainingArguments:
    most = max(1, recipe.device_tokens // (length * (2 if recipe.scorer == "cross" else 3)))
    on_device = next(n for n in range(min(most, recipe.batch_size), 0, -1) if recipe.batch_size % n == 0)
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
    arguments._n_gpu = min(1, arguments.n_gpu)  # DataParallel does not know these inputs
    return arguments


def _accuracy(answers) -> dict[str, float]:
    predictions = decide(answers.predictions)
    return metric("triplet_accuracy").compute(predictions=predictions, references=answers.label_ids)


class _ProgressBar(ProgressCallback):
    """Trainer's bar, with the last figures beside it in place of a line for each."""

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
        """Leave the line to what is said next, wherever training has ended."""
        for bar in (self.prediction_bar, self.training_bar):
            if bar is not None:
                bar.close()
