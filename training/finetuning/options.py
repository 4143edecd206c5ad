"""Options of the scripts that fine-tune a head, and their values for few texts."""

import argparse
import math
from pathlib import Path

from transformers import TrainingArguments

from modeling_roformer.configuration import RoFormerConfig

from ..runs.arguments import Distinct, ScriptParser, at_least, positive, random_seed
from ..runs.starting_models import fine_tuning_rate

PARTS = ("train", "validation", "test")


def add_fine_tuning_options(parser: ScriptParser, score: str = "accuracy") -> None:
    """Add the options that the scripts have in common: the model, the data, the folder of the run, and the training.

    `score` is the name of the score that ends the training.
    """
    add = parser.add_argument
    add("model", help="folder of a saved RoFormer, or its name on the Hub")
    add("--train", required=True, help="training texts")
    add("--validation", help="texts for early stopping and for choosing the best seed")
    add("--test", help="texts for the scores of the best model; default: those of --validation")
    add("--output", type=Path, required=True, help="folder for the model, its scores and its curves")
    add("--resume", action="store_true", help="resume a run that was stopped")
    add(
        "--predictions",
        metavar="FILE",
        help="write the best model's predictions of the test texts: .csv, or JSON Lines",
    )
    seeds = "seeds of the head, the order and dropout"
    add("--seeds", type=random_seed, nargs="+", default=[0], action=Distinct, help=seeds)
    add("--length", type=int, default=512, help="maximum number of tokens of a text")
    add("--batch-size", type=at_least(1), help="default: 32, or less for few texts")
    add("--learning-rate", type=positive, help="default: chosen by the width of the model")
    add("--epochs", type=positive, default=10, help="maximum number of epochs")
    patience = f"it stops after these epochs without a better {score}; default: 2, or more"
    add("--patience", type=at_least(0), help=patience)


def choose_defaults(chosen: argparse.Namespace, config: RoFormerConfig, texts: int, pairs: bool = False) -> None:
    """Set the learning rate, the batch size and the patience that were not given, and print them.

    With few texts, batches are smaller and more epochs are tried: scores rise only after some steps, some 100 for pairs
    of texts.

    Args:
        chosen: the options, which are changed.
        config: the model's configuration.
        texts: number of training texts.
        pairs: whether the model reads pairs of texts.
    """
    if chosen.learning_rate is None:
        chosen.learning_rate = fine_tuning_rate(config, pairs)
    if chosen.batch_size is None:
        least = 60 if pairs else 6  # steps per epoch
        chosen.batch_size = next((size for size in (32, 16, 8) if texts / size >= least), 4)
    if chosen.patience is None:
        chosen.patience = max(2, math.ceil((150 if pairs else 40) * chosen.batch_size / texts))
    print(f"batch size {chosen.batch_size} and patience {chosen.patience}, for {texts:,} training texts")


def best_epoch_arguments(
    chosen: argparse.Namespace, folder: Path, seed: int, metric: str, greater_is_better: bool = True
) -> TrainingArguments:
    """Return arguments of a Trainer that evaluates, logs and saves each epoch, and ends with the model of the best one.

    Args:
        chosen: the options, after `choose_defaults`.
        folder: folder of the checkpoints.
        seed: seed of the order and dropout.
        metric: name of the score of the best epoch.
        greater_is_better: whether the best score is the highest.
    """
    return TrainingArguments(
        str(folder),
        seed=seed,
        num_train_epochs=chosen.epochs,
        learning_rate=chosen.learning_rate,
        warmup_steps=0.1,  # of all steps
        per_device_train_batch_size=chosen.batch_size,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=metric,
        greater_is_better=greater_is_better,
        report_to=[],
    )
