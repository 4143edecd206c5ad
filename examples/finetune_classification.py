"""Fine-tune a saved RoFormer to classify texts, with several seeds, and keep the best model.

    python examples/finetune_classification.py MODEL --train reviews.csv --output classifier --seeds 0 1 2

Texts are in .csv, .tsv, .jsonl or .parquet files, or in data sets: NAME or NAME:CONFIG on the Hub, or a folder. A .tsv
file may also have a text, a TAB and a label in each line, in either order. With --train alone, the texts are split
6:2:2; if only --validation is missing, a fifth of --train replaces it. See docs/fine-tuning.md.
"""

import argparse
import math
import shutil
from pathlib import Path

import roformer_command  # noqa: F401, first: the package then imports models where they are used
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.runs.arguments import (
    positive_integer,
    positive_rate,
    require_place,
    seed_number,
    text_length,
)
from modeling_roformer.training.runs.data_sets import require_sources

LEAST = 5  # minimum number of texts to split
BATCH, PATIENCE = 32, 2
# With few texts, smaller batches and more epochs, because a model needs some steps before its accuracy rises.
SMALLEST_BATCH, STEPS, PATIENT_STEPS = 4, 6, 40  # at least so many steps per epoch, and without a better accuracy
SCORES = ("accuracy", "macro_f1")
PARTS = ("train", "validation", "test")
HYPERPARAMETERS = ("learning_rate", "batch_size", "epochs", "patience", "length", "bf16")
# Options that may change when a run resumes. The texts are compared by content.
NOT_COMPARED = ("output", "seeds", *PARTS, "text", "text_pair", "label")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a saved RoFormer, or its name on the Hub")
    parser.add_argument("--train", required=True, help="training texts")
    parser.add_argument("--validation", help="texts for early stopping and for choosing the best seed")
    parser.add_argument("--test", help="texts for the scores of the best model; default: those of --validation")
    parser.add_argument("--output", type=Path, required=True, help="folder for the model, its scores and its curves")
    parser.add_argument("--text", help="column with the texts; default: one with a usual name, such as text")
    parser.add_argument(
        "--text-pair", metavar="COLUMN", help="column with the second text of pairs, which needs --text"
    )
    parser.add_argument("--label", help="column with the labels; default: one with a usual name, such as label")
    parser.add_argument("--most", type=positive_integer, metavar="N", help="train on N of the texts; default: all")
    parser.add_argument(
        "--split-seed", type=seed_number, default=0, help="seed of the split, and of the choice of --most"
    )
    parser.add_argument(
        "--seeds", type=seed_number, nargs="+", default=[0], help="seeds of the head, the order and dropout"
    )
    parser.add_argument("--length", type=text_length, default=512, help="maximum number of tokens of a text")
    parser.add_argument("--batch-size", type=positive_integer, help=f"default: {BATCH}, or less for few texts")
    parser.add_argument("--learning-rate", type=positive_rate, help="default: chosen by the width of the model")
    parser.add_argument("--epochs", type=positive_rate, default=10, help="maximum number of epochs")
    parser.add_argument(
        "--patience",
        type=positive_integer,
        help=f"epochs without a better accuracy after which it stops; default: {PATIENCE}, or more for few texts",
    )
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    chosen = parser.parse_args()
    if chosen.text_pair and not chosen.text:
        parser.error("--text-pair needs --text, the column with the first text of the pairs")
    require_place(chosen.model)
    require_sources(getattr(chosen, part) for part in PARTS)
    return chosen


with exit_on_error("finetune_classification"):
    if __name__ == "__main__":
        read_arguments()  # before the imports, which take seconds
    import datasets
    import torch
    from huggingface_hub import EvalResult
    from rich.console import Console
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        EarlyStoppingCallback,
        EvalPrediction,
        TrainingArguments,
        set_seed,
    )

    from modeling_roformer import RoFormerConfig
    from modeling_roformer.files.atomic_folder import output_folder
    from modeling_roformer.model_cards.trained_card import published_name, write_trained_card
    from modeling_roformer.training.comparing.curves import draw_learning_curves
    from modeling_roformer.training.finetuning.labelled_text import read_labelled
    from modeling_roformer.training.finetuning.results import SeedResults
    from modeling_roformer.training.metrics import metric
    from modeling_roformer.training.runs.data_sets import require_outside
    from modeling_roformer.training.runs.device import ON_CPU, require_one_process
    from modeling_roformer.training.runs.digests import digest_of_model, digest_of_rows
    from modeling_roformer.training.runs.finite import FiniteTrainer, NotFinite, require_finite_start, show_failed
    from modeling_roformer.training.runs.kept_model import digest_of_kept, is_kept, keeps_one_of, require_room, to_train
    from modeling_roformer.training.runs.learning_rate import fine_tuning_rate
    from modeling_roformer.training.runs.models import saved_config
    from modeling_roformer.training.runs.nothing_learned import NothingLearned
    from modeling_roformer.training.runs.resuming import recorded_setting, run_lock


def read_data(chosen: argparse.Namespace) -> datasets.DatasetDict:
    """Return the splits train, validation and, unless --validation is given alone, test. See `read_labelled`."""

    def read(source: str, split: str, names: list[str] | None = None) -> datasets.Dataset:
        return read_labelled(source, split, chosen.text, chosen.label, names, chosen.text_pair)

    def split(texts: datasets.Dataset, share: float) -> list[datasets.Dataset]:
        return list(texts.train_test_split(share, seed=chosen.split_seed).values())

    train = read(chosen.train, "train")
    names = train.features["label"].names
    validation = read(chosen.validation, "validation", names) if chosen.validation else None
    test = read(chosen.test, "test", names) if chosen.test else None
    if validation is None:
        if len(train) < LEAST:
            raise TrainingError(f"{chosen.train} has {len(train)} texts; expected at least {LEAST} to split")
        share = 0.2
        if test is None:
            train, test = split(train, 0.2)
            share = 0.25  # of the rest
        train, validation = split(train, share)
    if chosen.most is not None:
        train = train.shuffle(seed=chosen.split_seed).select(range(min(chosen.most, len(train))))
    if missing := set(range(len(names))) - set(train["label"]):
        print(f"no training text has the label {', '.join(names[number] for number in sorted(missing))}")
    parts = {"train": train, "validation": validation, "test": test}
    return datasets.DatasetDict({part: texts for part, texts in parts.items() if texts is not None})


def choose_defaults(chosen: argparse.Namespace, config: RoFormerConfig, texts: int) -> None:
    """Set the options that are not given: as in the run that is resumed, or fitted to the model and the training
    texts."""
    for name in ("learning_rate", "batch_size", "patience"):
        if getattr(chosen, name) is None:
            setattr(chosen, name, recorded_setting(chosen.output, name))
    if chosen.learning_rate is None:
        chosen.learning_rate = fine_tuning_rate(config)
    if chosen.batch_size is None:
        chosen.batch_size = BATCH
        while texts / chosen.batch_size < STEPS and chosen.batch_size > SMALLEST_BATCH:
            chosen.batch_size //= 2
    if chosen.patience is None:
        chosen.patience = max(PATIENCE, math.ceil(PATIENT_STEPS * chosen.batch_size / max(texts, 1)))
    print(f"batch size {chosen.batch_size} and patience {chosen.patience}, for {texts:,} training texts")


def fine_tune(
    chosen: argparse.Namespace, tokenizer, parts: datasets.DatasetDict, seed: int, folder: str
) -> FiniteTrainer:
    """Fine-tune with one seed. Return the Trainer, with the model of the best epoch. Checkpoints are in `folder`.

    Raises NotFinite if the run fails.
    """
    names, measure = parts["train"].features["label"].names, metric("classification")

    def scores(predicted: EvalPrediction) -> dict[str, float]:
        return measure.compute(predictions=predicted.predictions.argmax(-1), references=predicted.label_ids)

    set_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        chosen.model,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
        ignore_mismatched_sizes=True,  # the checkpoint may have a head for other labels
        dtype="float32",
    )
    require_finite_start(model, chosen.model)
    arguments = TrainingArguments(
        folder,
        seed=seed,
        num_train_epochs=chosen.epochs,
        learning_rate=chosen.learning_rate,
        warmup_steps=0.1,
        weight_decay=0.01,
        per_device_train_batch_size=chosen.batch_size,
        per_device_eval_batch_size=chosen.batch_size,
        bf16=chosen.bf16,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        save_only_model=True,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        logging_steps=0.05,  # of all steps
        use_cpu=ON_CPU,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
    )
    trainer = FiniteTrainer(
        model,
        arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=scores,
        callbacks=[EarlyStoppingCallback(chosen.patience), NothingLearned(parts["validation"]["label"])],
    )
    trainer.train()
    return trainer


def scores_of(trainer: FiniteTrainer, parts: datasets.DatasetDict) -> dict[str, dict[str, float]]:
    """Return accuracy and macro F1 of the best epoch on the validation split and, if there is one, on the test
    split."""
    best = trainer.state.best_global_step
    logged = [entry for entry in trainer.state.log_history if entry["step"] == best and "eval_accuracy" in entry]
    scores = {"validation": {name: logged[0][f"eval_{name}"] for name in SCORES}}
    if "test" in parts:
        metrics = trainer.predict(parts["test"]).metrics
        scores["test"] = {name: metrics[f"test_{name}"] for name in SCORES}
    return scores


def main() -> None:
    chosen = read_arguments()
    require_one_process()
    require_outside((getattr(chosen, part) for part in PARTS), chosen.output)
    with run_lock(chosen.output):
        fine_tune_seeds(chosen)


def fine_tune_seeds(chosen: argparse.Namespace) -> None:
    """Fine-tune with each seed, keep the best model, and show the results."""
    config = saved_config(chosen.model)  # raises an error if it is not a RoFormer
    tokenizer = AutoTokenizer.from_pretrained(chosen.model)
    parts = read_data(chosen)
    choose_defaults(chosen, config, len(parts["train"]))
    settings = {name: value for name, value in vars(chosen).items() if name not in NOT_COMPARED}
    settings |= {"model": digest_of_model(chosen.model), "texts": parts.num_rows}
    settings |= {f"{part}_texts": digest_of_rows(parts[part]) if part in parts else None for part in PARTS}
    results = SeedResults(chosen.output, settings)
    print(", ".join(f"{part}: {len(texts):,} texts" for part, texts in parts.items()))
    texts = ["text", "text_pair"] if chosen.text_pair else ["text"]
    parts = parts.map(
        lambda batch: tokenizer(*(batch[name] for name in texts), truncation=True, max_length=chosen.length),
        batched=True,
        remove_columns=texts,
    )
    results.write()
    checkpoints, model = chosen.output / ".checkpoints", chosen.output / "model"
    require_room(model)

    def lost() -> list[int]:
        weights = results.weights
        kept = results.best is None or is_kept(model, weights[results.best], weights.values())
        return [] if kept else [int(results.best)]

    tested, kind = "test" if "test" in parts else "validation", "pairs of texts" if chosen.text_pair else "texts"
    data = published_name(getattr(chosen, tested) or chosen.train)
    for seed, is_lost in to_train(chosen.seeds, results.__contains__, lost):
        if is_lost:
            print(f"{model} does not have the model of seed {seed}, so it is trained again")
        shutil.rmtree(checkpoints, ignore_errors=True)  # left by a stopped run
        try:
            trainer = fine_tune(chosen, tokenizer, parts, seed, str(checkpoints))
            scores = scores_of(trainer, parts)
        except NotFinite as error:
            if is_lost:
                print(f"seed {seed} failed: {error}; its earlier result is kept")
            else:
                results.add_failed(seed, str(error))
            continue
        finally:
            shutil.rmtree(checkpoints, ignore_errors=True)
        weights = ""
        if results.is_best(seed, scores) or (is_lost and not keeps_one_of(model, results.weights.values())):
            with output_folder(model, force=True) as folder:
                trainer.model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                write_trained_card(
                    folder,
                    chosen.output.resolve().name,
                    f"Fine-tuned to classify {kind}, on {parts.num_rows['train']:,} {kind} of "
                    f"{published_name(chosen.train)}; the epoch was chosen by the accuracy on "
                    f"{parts.num_rows['validation']:,} others.",
                    base=chosen.model,
                    data=[chosen.train],
                    hyperparameters={name: getattr(chosen, name) for name in HYPERPARAMETERS} | {"seed": seed},
                    scores=[
                        EvalResult("text-classification", data, data, *score, dataset_split=tested)
                        for score in scores[tested].items()
                    ],
                )
            weights = digest_of_kept(model)
        results.add(seed, scores, trainer.state.log_history, weights)

    Console(markup=False).print(results.table())
    show_failed({f"seed {seed}": why for seed, why in results.failed.items()})
    logs = {seed: result["log"] for seed, result in results.seeds.items() if not result.get("failed")}
    draw_learning_curves(logs, chosen.output / "curves.png")
    missing = f"{model} does not have the best model, of seed {results.best}"
    print(f"best model: {model}, curves: {chosen.output / 'curves.png'}" if not lost() else missing)


if __name__ == "__main__":
    with exit_on_error("finetune_classification"):
        main()
