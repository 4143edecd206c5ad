"""Fine-tune a saved RoFormer to classify texts, with several seeds, and keep the best model.

    python examples/finetune_classification.py MODEL --train reviews.csv --output classifier --seeds 0 1 2

Texts are in .csv, .tsv, .jsonl or .parquet files, or in data sets, NAME or NAME:CONFIG on the Hub. With --train alone,
they are split 6:2:2; if only --validation is missing, a quarter of --train replaces it.
"""

import argparse
import math
import shutil
from pathlib import Path

from datasets import Dataset, DatasetDict
from sklearn.metrics import accuracy_score, f1_score
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

PARTS = ("train", "validation", "test")


def read_arguments() -> argparse.Namespace:
    parser = training.ScriptParser(__doc__)
    add = parser.add_argument
    add("model", help="folder of a saved RoFormer, or its name on the Hub")
    add("--train", required=True, help="training texts")
    add("--validation", help="texts for early stopping and for choosing the best seed")
    add("--test", help="texts for the scores of the best model; default: those of --validation")
    add("--output", type=Path, required=True, help="folder for the model, its scores and its curves")
    add("--resume", action="store_true", help="resume a run that was stopped")
    add("--predictions", metavar="FILE", help="write the best model's class of each test text: .csv, or JSON Lines")
    add("--text", nargs="+", default=["text"], help="column with the texts, or two columns with pairs of texts")
    add("--label", default="label", help="column with the labels")
    seeds = "seeds of the head, the order and dropout"
    add("--seeds", type=training.random_seed, nargs="+", default=[0], action=training.Distinct, help=seeds)
    add("--length", type=int, default=512, help="maximum number of tokens of a text")
    add("--batch-size", type=training.at_least(1), help="default: 32, or less for few texts")
    add("--learning-rate", type=training.positive, help="default: chosen by the width of the model")
    add("--epochs", type=training.positive, default=10, help="maximum number of epochs")
    add(
        "--patience",
        type=training.at_least(0),
        help="it stops after these epochs without a better accuracy; default: 2, or more",
    )
    chosen = parser.parse_args()
    if len(chosen.text) > 2:
        parser.error("--text has more than two columns")
    return chosen


def read_parts(chosen: argparse.Namespace, order: list[str]) -> DatasetDict:
    """Return the splits, with columns `text`, perhaps `text_pair`, and `label`, ids of classes, as `encode_labels`."""
    columns = dict(zip(("text", "text_pair"), chosen.text, strict=False)) | {"label": chosen.label}
    sources = {part: getattr(chosen, part) for part in PARTS if getattr(chosen, part)}
    options = [*["--text"] * len(chosen.text), "--label"]
    parts = DatasetDict(
        {part: training.load_texts(source, columns, part, named_by=options) for part, source in sources.items()}
    )
    parts = training.encode_labels(parts, sources, order, chosen.label)
    if "validation" not in parts:
        for part, share in ("test", 0.2), ("validation", 0.25):
            if part not in parts:
                parts["train"], parts[part] = training.split_off(parts["train"], share)
    return parts


def compute_metrics(predicted) -> dict[str, float]:
    answers, labels = predicted.predictions.argmax(-1), predicted.label_ids
    return {"accuracy": accuracy_score(labels, answers), "macro_f1": f1_score(labels, answers, average="macro")}


def fine_tune(chosen: argparse.Namespace, tokenizer, parts: DatasetDict, seed: int, folder: Path) -> Trainer:
    """Fine-tune with one seed, from the last checkpoint in `folder` on. Return the Trainer, with the model of the best
    epoch."""
    set_seed(seed)
    names = parts["train"].features["label"].names
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    # The checkpoint may have a head for other labels.
    options = {"ignore_mismatched_sizes": True, "dtype": "float32", **labels}
    with training.new_head():
        model = AutoModelForSequenceClassification.from_pretrained(chosen.model, **options)
    arguments = TrainingArguments(
        str(folder),
        seed=seed,
        num_train_epochs=chosen.epochs,
        learning_rate=chosen.learning_rate,
        warmup_steps=0.1,
        per_device_train_batch_size=chosen.batch_size,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to=[],
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        processing_class=tokenizer,  # pads the batches
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(chosen.patience), training.FiniteCallback()],
    )
    training.train_or_resume(trainer)
    return trainer


def predict(folder: Path, tokenizer, rows: Dataset) -> training.ClassPredictions:
    """Return the predictions of the saved model in a folder."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype="float32")
    arguments = TrainingArguments(str(folder.parent), report_to=[], dataloader_pin_memory=False)
    output = Trainer(model, arguments, processing_class=tokenizer).predict(rows)
    return training.ClassPredictions(rows.features["label"].names, output.label_ids, output.predictions)


def main() -> None:
    chosen = read_arguments()
    sources = {name: vars(chosen)[name] for name in ("model", *PARTS)}
    if chosen.predictions:
        training.check_predictions_file(chosen.predictions, [*sources.values()], replace=chosen.resume)
    training.check_model_source(chosen.model)
    tokenizer, config = AutoTokenizer.from_pretrained(chosen.model), AutoConfig.from_pretrained(chosen.model)
    pairs = len(chosen.text) == 2
    training.check_length(tokenizer, chosen.length, len(chosen.text))
    parts = read_parts(chosen, [name for _, name in sorted(config.id2label.items())])
    sizes, tested = parts.num_rows, "test" if "test" in parts else "validation"
    # With few texts, batches are smaller and more epochs are tried: accuracy rises only after some steps, some 100 for
    # pairs of texts.
    if chosen.learning_rate is None:
        chosen.learning_rate = training.fine_tuning_rate(config, pairs)
    if chosen.batch_size is None:
        least = 60 if pairs else 6  # steps per epoch
        chosen.batch_size = next((size for size in (32, 16, 8) if sizes["train"] / size >= least), 4)
    if chosen.patience is None:
        chosen.patience = max(2, math.ceil((150 if pairs else 40) * chosen.batch_size / sizes["train"]))
    print(f"batch size {chosen.batch_size} and patience {chosen.patience}, for {sizes['train']:,} training texts")
    print(", ".join(f"{part}: {sizes[part]:,} texts" for part in PARTS if part in sizes))
    texts = [name for name in parts["train"].column_names if name != "label"]
    columns = {name: parts[tested][name] for name in texts}
    options = {"truncation": True, "max_length": chosen.length}
    work = {"input_columns": texts, "remove_columns": texts, "fn_kwargs": options, "desc": "tokenizing"}
    parts = parts.map(tokenizer, batched=True, **work)
    tokenizer = training.with_trained_length(tokenizer, chosen.length)
    settings = {name: value for name, value in vars(chosen).items() if name != "predictions"}
    with training.start_run(chosen.output, settings, sources, chosen.resume) as run:
        results = run.results.setdefault("seeds", {})
        for seed in map(str, chosen.seeds):
            folder = run.folder / f"seed-{seed}"
            if seed not in results:
                print(f"seed {seed}")
                trainer, scores = fine_tune(chosen, tokenizer, parts, int(seed), folder), {}
                for part in dict.fromkeys(["validation", tested]):
                    metrics = trainer.predict(parts[part]).metrics
                    scores[part] = {name: metrics[f"test_{name}"] for name in ("accuracy", "macro_f1")}
                before = [of["scores"]["validation"]["accuracy"] for of in results.values()]
                if scores["validation"]["accuracy"] > max(before, default=-1):
                    text = f"Fine-tuned on {sizes['train']:,} labelled texts; {sizes['validation']:,} chose the epoch."
                    facts = {name: vars(chosen)[name] for name in ("learning_rate", "batch_size", "epochs", "patience")}
                    card = {"base": chosen.model, "data": [chosen.train], "hyperparameters": facts | {"seed": seed}}
                    card["pairs"] = "text_pair" in texts
                    source = vars(chosen)[tested] or chosen.train, tested
                    run.save(trainer.model, tokenizer, text, "text-classification", scores[tested], source, **card)
                results[seed] = {"scores": scores, "log": trainer.state.log_history}
                run.results["texts"] = sizes
                run.save_results()
            shutil.rmtree(folder, ignore_errors=True)  # its checkpoints
        training.print_scores({f"seed {seed}": result["scores"] for seed, result in results.items()})
        training.draw_learning_curves(
            {seed: result["log"] for seed, result in results.items()}, run.folder / "curves.png"
        )
        predictions = predict(run.folder / "model", tokenizer, parts[tested])
        print(f"the best model on the {tested} texts:")
        predictions.print_table()
        predictions.draw_confusion(run.folder / "confusion.png")
        if chosen.predictions:
            predictions.write(chosen.predictions, columns)
    advice = f"try --learning-rate {chosen.learning_rate / 3:.0e}, more --epochs with more --patience, or more texts"
    predictions.warn_of_one_class("the best model", advice)
    print(f"best model: {run.folder / 'model'}, curves: {run.folder / 'curves.png'}")
    more = f", predictions: {chosen.predictions}" if chosen.predictions else ""
    print(f"which classes it confuses: {run.folder / 'confusion.png'}{more}")


if __name__ == "__main__":
    with training.exit_on_error("finetune_classification"), training.one_bar():
        main()
