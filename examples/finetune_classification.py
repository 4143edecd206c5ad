"""Fine-tune a saved RoFormer to classify texts, with several seeds, and keep the best model.

    python examples/finetune_classification.py MODEL --train reviews.csv --output classifier --seeds 0 1 2

Texts are in .csv, .tsv, .jsonl or .parquet files, or in data sets, NAME or NAME:CONFIG on the Hub. With --train alone,
they are split 6:2:2; if only --validation is missing, a quarter of --train replaces it. A text may have one class,
several labels (a list, or --label-separator), or a number (--numbers).
"""

import argparse
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from modeling_roformer import training  # registers RoFormer with the Auto classes too


def read_arguments() -> argparse.Namespace:
    parser = training.ScriptParser(__doc__)
    training.add_fine_tuning_options(parser, "score")
    add = parser.add_argument
    add("--text", nargs="+", default=["text"], help="column with the texts, or two columns with pairs of texts")
    add("--label", default="label", help="column with the labels")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--numbers", action="store_true", help="labels are numbers, which the model predicts")
    kind.add_argument("--label-separator", metavar="SIGN", help="what separates the labels of a text")
    folders = "--train and the others are folders, with a folder of .txt files for each label"
    kind.add_argument("--label-from-folders", action="store_true", help=folders)
    add("--ignore-label", nargs="+", default=[], metavar="LABEL", help="leave out the rows with these labels")
    add("--class-weights", choices=["balanced"], help="let errors in rare classes count more")
    chosen = parser.parse_args()
    if len(chosen.text) > 2:
        parser.error("--text has more than two columns")
    if chosen.label_from_folders and chosen.text != ["text"]:
        parser.error("--label-from-folders reads whole files: leave --text out")
    if chosen.label_separator == "":
        parser.error("--label-separator is empty")
    return chosen


def read_parts(chosen: argparse.Namespace, order: list[str]) -> tuple[DatasetDict, int]:
    """Return the splits, as `load_labelled`, and the number of rows that were left out."""
    parts, left_out = training.load_labelled(
        {part: vars(chosen)[part] for part in training.PARTS if vars(chosen)[part]},
        chosen.text,
        chosen.label,
        numbers=chosen.numbers,
        separator=chosen.label_separator,
        from_folders=chosen.label_from_folders,
        ignored=chosen.ignore_label,
        order=order,
    )
    return training.split_missing(parts), left_out


def fine_tune(chosen: argparse.Namespace, tokenizer, labels: training.Labels, parts, seed: int, folder: Path):
    """Fine-tune with one seed, from the last checkpoint in `folder` on. Return the Trainer, with the model of the best
    epoch."""
    set_seed(seed)
    arguments = training.best_epoch_arguments(chosen, folder, seed, labels.metrics[0], labels.greater_is_better)
    trainer = Trainer(
        labels.model(chosen.model),
        arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        data_collator=training.LabelCollator(tokenizer, labels),
        processing_class=tokenizer,
        compute_loss_func=labels.loss,
        compute_metrics=labels.scores,
        callbacks=[EarlyStoppingCallback(chosen.patience), training.FiniteCallback()],
    )
    training.train_or_resume(trainer)
    return trainer


def predict(folder: Path, tokenizer, rows: Dataset) -> np.ndarray:
    """Return the logits of the saved model in a folder."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype="float32")
    arguments = TrainingArguments(str(folder.parent), report_to=[], dataloader_pin_memory=False)
    return Trainer(model, arguments, processing_class=tokenizer).predict(rows.remove_columns("label")).predictions


def main() -> None:
    chosen = read_arguments()
    sources = {name: vars(chosen)[name] for name in ("model", *training.PARTS)}
    if chosen.predictions:
        training.check_predictions_file(chosen.predictions, [*sources.values()], replace=chosen.resume)
    training.check_model_source(chosen.model)
    tokenizer, config = AutoTokenizer.from_pretrained(chosen.model), AutoConfig.from_pretrained(chosen.model)
    training.check_length(tokenizer, chosen.length, len(chosen.text))
    parts, left_out = read_parts(chosen, [name for _, name in sorted(config.id2label.items())])
    labels = training.label_kind(parts["train"], chosen.label, chosen.class_weights)
    sizes, tested = parts.num_rows, "test" if "test" in parts else "validation"
    training.choose_defaults(chosen, config, sizes["train"], pairs=len(chosen.text) == 2)
    counts = {**{part: sizes[part] for part in training.PARTS if part in sizes}, "left out": left_out}
    print(", ".join(f"{part}: {count:,} texts" for part, count in counts.items() if count))
    texts = [name for name in parts["train"].column_names if name != "label"]
    columns = {name: parts[tested][name] for name in texts}
    parts = training.tokenize_parts(parts, tokenizer, chosen.length)
    tokenizer = training.with_trained_length(tokenizer, chosen.length)
    settings = {name: value for name, value in vars(chosen).items() if name != "predictions"}
    with training.start_run(chosen.output, settings, sources, chosen.resume) as run:

        def train(seed: int, folder: Path) -> Trainer:
            return fine_tune(chosen, tokenizer, labels, parts, seed, folder)

        def scores_of(trainer: Trainer) -> dict[str, dict[str, float]]:
            measured = {part: trainer.predict(parts[part]).metrics for part in dict.fromkeys(["validation", tested])}
            return {part: {name: of[f"test_{name}"] for name in labels.metrics} for part, of in measured.items()}

        def save(trainer: Trainer, seed: int, scores: dict[str, dict[str, float]]) -> None:
            labels.finish(trainer.model)
            text = f"Fine-tuned on {sizes['train']:,} {labels.described}; {sizes['validation']:,} chose the epoch."
            names = ("learning_rate", "batch_size", "epochs", "patience", "class_weights")
            facts = {name: vars(chosen)[name] for name in names} | {"seed": seed}
            card = {"base": chosen.model, "data": [chosen.train], "hyperparameters": facts, "pairs": len(texts) == 2}
            source = vars(chosen)[tested] or chosen.train, tested
            run.save(trainer.model, tokenizer, text, "text-classification", scores[tested], source, **card)

        training.train_seeds(run, chosen.seeds, train, scores_of, save, labels.metrics[0], texts=sizes)
        predictions = labels.predictions(
            parts[tested]["label"], predict(run.folder / "model", tokenizer, parts[tested])
        )
        print(f"the best model on the {tested} texts:")
        predictions.print_table()
        picture = predictions.draw_confusion(run.folder / "confusion.png")
        if chosen.predictions:
            predictions.write(chosen.predictions, columns)
    advice = f"try --learning-rate {chosen.learning_rate / 3:.0e}, more --epochs with more --patience, or more texts"
    predictions.warn_of_one_class("the best model", advice)
    print(f"best model: {run.folder / 'model'}, curves: {run.folder / 'curves.png'}")
    made = {"which classes it confuses": picture, "predictions": chosen.predictions}
    if any(made.values()):
        print(", ".join(f"{what}: {file}" for what, file in made.items() if file))


if __name__ == "__main__":
    with training.exit_on_error("finetune_classification"), training.one_bar():
        main()
