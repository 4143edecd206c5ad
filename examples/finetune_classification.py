"""Fine-tune a saved RoFormer to classify texts, with several seeds, and keep the best.

    python examples/finetune_classification.py MODEL --train reviews.tsv --output classifier --seeds 0 1 2

A file has a text, a TAB and a label in each line, or the label first, or is JSON Lines; either may be compressed (.gz). Names
of data sets are those of the Hub or of this machine, NAME or NAME:CONFIG. One that is given to --train alone is split 6:2:2;
where --validation alone is missing, a fifth of --train takes its place. docs/fine-tuning.md tells more.
"""

import argparse
import shutil
from pathlib import Path

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

from modeling_roformer.output.atomic_folder import output_folder
from modeling_roformer.training.comparing.curves import draw_learning_curves
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.finetuning.labelled_text import read_labelled
from modeling_roformer.training.finetuning.scored_card import write_scored_card
from modeling_roformer.training.finetuning.seed_results import SeedResults
from modeling_roformer.training.metrics import metric
from modeling_roformer.training.runs.device import ON_CPU
from modeling_roformer.training.runs.digests import digest_of_model, digest_of_rows
from modeling_roformer.training.runs.fingerprint import run_lock
from modeling_roformer.training.runs.finite import FiniteTrainer, NotFinite, positive_rate, show_failed
from modeling_roformer.training.runs.models import saved_config

LEAST = 5  # texts that can be split
SCORES = ("accuracy", "macro_f1")
PARTS = ("train", "validation", "test")
# What makes no other run: a seed is a part of it, and where texts and labels stood does not matter.
NOT_COMPARED = ("output", "seeds", *PARTS, "text", "label")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a saved RoFormer, or its name on the Hub")
    parser.add_argument("--train", required=True, help="texts to learn from")
    parser.add_argument("--validation", help="texts by which to stop and to choose")
    parser.add_argument("--test", help="texts to measure the chosen model with; those of --validation if not given")
    parser.add_argument("--output", type=Path, required=True, help="folder for the model, its scores and its curves")
    parser.add_argument("--text", default="text", help="where JSON Lines and data sets keep the text")
    parser.add_argument("--label", default="label", help="where they keep the label")
    parser.add_argument("--most", type=int, help="texts to learn from; all if not given")
    parser.add_argument("--split-seed", type=int, default=0, help="of the split, and of the choice of --most")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the head, the order and dropout")
    parser.add_argument("--length", type=int, default=512, help="tokens after which a text is cut")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=positive_rate, default=3e-5)
    parser.add_argument("--epochs", type=float, default=10, help="at most")
    parser.add_argument("--patience", type=int, default=2, help="epochs without a better accuracy before it stops")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 where autocast does")
    return parser.parse_args()


def read_data(chosen: argparse.Namespace) -> datasets.DatasetDict:
    """The parts train and validation, and test unless --validation is given alone; columns text and label."""

    def read(source: str, split: str, names: list[str] | None = None) -> datasets.Dataset:
        return read_labelled(source, split, chosen.text, chosen.label, names)

    def split(texts: datasets.Dataset, share: float) -> list[datasets.Dataset]:
        return list(texts.train_test_split(share, seed=chosen.split_seed).values())

    train = read(chosen.train, "train")
    names = train.features["label"].names
    validation = read(chosen.validation, "validation", names) if chosen.validation else None
    test = read(chosen.test, "test", names) if chosen.test else None
    if validation is None:
        if len(train) < LEAST:
            raise TrainingError(f"{chosen.train} holds {len(train)} texts, and fewer than {LEAST} cannot be split")
        share = 0.2
        if test is None:
            train, test = split(train, 0.2)
            share = 0.25  # of the rest
        train, validation = split(train, share)
    if chosen.most is not None:
        train = train.shuffle(seed=chosen.split_seed).select(range(min(chosen.most, len(train))))
    parts = {"train": train, "validation": validation, "test": test}
    return datasets.DatasetDict({part: texts for part, texts in parts.items() if texts is not None})


def fine_tune(
    chosen: argparse.Namespace, tokenizer, parts: datasets.DatasetDict, seed: int, folder: str
) -> FiniteTrainer:
    """A Trainer that is done, whose model is that of the best epoch; its checkpoints lie in `folder` until then.

    Raises NotFinite where the run fails.
    """
    names, measure = parts["train"].features["label"].names, metric("classification")

    def scores(predicted: EvalPrediction) -> dict[str, float]:
        return measure.compute(predictions=predicted.predictions.argmax(-1), references=predicted.label_ids)

    set_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        chosen.model,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
        ignore_mismatched_sizes=True,  # of a head for other labels
        unpad_inputs=True,
        dtype="float32",
    )
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
        callbacks=[EarlyStoppingCallback(chosen.patience)],
    )
    trainer.train()
    return trainer


def scores_of(trainer: FiniteTrainer, parts: datasets.DatasetDict) -> dict[str, dict[str, float]]:
    """Accuracy and macro F1 of the best epoch, on the validation part and, where there is one, on the test part."""
    best = trainer.state.best_global_step
    logged = [entry for entry in trainer.state.log_history if entry["step"] == best and "eval_accuracy" in entry]
    scores = {"validation": {name: logged[0][f"eval_{name}"] for name in SCORES}}
    if "test" in parts:
        metrics = trainer.predict(parts["test"]).metrics
        scores["test"] = {name: metrics[f"test_{name}"] for name in SCORES}
    return scores


def main() -> None:
    chosen = read_arguments()
    with run_lock(chosen.output):
        fine_tune_seeds(chosen)


def fine_tune_seeds(chosen: argparse.Namespace) -> None:
    """Fine-tune with each seed, keep the best model, and show how well each does."""
    saved_config(chosen.model)  # refuses what is not a RoFormer
    tokenizer = AutoTokenizer.from_pretrained(chosen.model)
    parts = read_data(chosen)
    settings = {name: value for name, value in vars(chosen).items() if name not in NOT_COMPARED}
    settings |= {"model": digest_of_model(chosen.model), "texts": parts.num_rows}
    settings |= {f"{part}_texts": digest_of_rows(parts[part]) if part in parts else None for part in PARTS}
    results = SeedResults(chosen.output, settings)
    print(", ".join(f"{part}: {len(texts):,} texts" for part, texts in parts.items()))
    parts = parts.map(
        lambda batch: tokenizer(batch["text"], truncation=True, max_length=chosen.length),
        batched=True,
        remove_columns="text",
    )
    results.write()
    checkpoints, model, again = chosen.output / ".checkpoints", chosen.output / "model", []
    if results.best is not None and not model.exists():
        print(f"{model} is missing, so seed {results.best} is trained again")
        again = [int(results.best)]
    tested = "test" if "test" in parts else "validation"
    data = f"{Path(getattr(chosen, tested) or chosen.train).name} ({tested})"
    for seed in [*again, *chosen.seeds]:
        is_lost = seed in again and not model.exists()
        if seed in results and not is_lost:
            continue
        shutil.rmtree(checkpoints, ignore_errors=True)  # what a stopped run left
        try:
            trainer = fine_tune(chosen, tokenizer, parts, seed, str(checkpoints))
            scores = scores_of(trainer, parts)
        except NotFinite as error:
            results.add_failed(seed, str(error))
            continue
        finally:
            shutil.rmtree(checkpoints, ignore_errors=True)
        if is_lost or results.is_better(scores):
            trainer.model.config.unpad_inputs = False  # for training alone
            with output_folder(model, force=True) as folder:
                trainer.model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                measured = [EvalResult("text-classification", data, data, *score) for score in scores[tested].items()]
                write_scored_card(folder, measured, chosen.output.resolve().name)
        results.add(seed, scores, trainer.state.log_history)

    Console().print(results.table())
    show_failed({f"seed {seed}": why for seed, why in results.failed.items()})
    logs = {seed: result["log"] for seed, result in results.seeds.items() if not result.get("failed")}
    draw_learning_curves(logs, chosen.output / "curves.png")
    print(f"{model} is the best model, {chosen.output / 'curves.png'} how it learned")


if __name__ == "__main__":
    with exit_on_error("finetune_classification"):
        main()
