"""Fine-tune saved RoFormers on tasks of GLUE and compare them, as Table 2 of the paper does.

    python examples/finetune_glue.py --models BERT ROFORMER --data glue --tasks mrpc sst2 qnli stsb --output RUNS

As in section 4.3: texts of up to 512 tokens, 32 a step, three epochs, learning rates 2, 3, 4 and 5e-5, of which the one with
the best mean over the seeds on the validation part is what the table shows, with the spread over the seeds. The score is GLUE's
for each task. DATA is a folder with one for each task, or a data set, as nyu-mll/glue. A BERT is a model of
position_encoding="learned". RUNS gets results.json, and of each model and task the best one. The same command goes on where it
was stopped.
"""

import argparse
import shutil
import statistics
from itertools import product
from pathlib import Path

import torch
from huggingface_hub import EvalResult
from rich.console import Console
from rich.table import Table
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from modeling_roformer.output.output_folder import output_folder
from modeling_roformer.training.device import ON_CPU
from modeling_roformer.training.errors import TrainingError, one_sentence
from modeling_roformer.training.glue import TASKS, read_task
from modeling_roformer.training.metrics import metric
from modeling_roformer.training.results_file import ResultsFile
from modeling_roformer.training.scored_card import write_scored_card
from modeling_roformer.training.start import saved_config

METRICS = {"accuracy": "classification", "f1": "f1", "spearman": "spearman"}  # in which each score is


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="DIR", help="saved RoFormers")
    parser.add_argument("--data", required=True, help="a folder with one for each task, or a data set's name")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[2e-5, 3e-5, 4e-5, 5e-5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the head, the order and dropout")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=512, help="tokens after which a text or a pair is cut")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 where autocast does")
    return parser.parse_args()


def fine_tune(place: str, task: str, parts, rate: float, seed: int, chosen: argparse.Namespace) -> Trainer:
    """A Trainer that is done; its folder is left to be removed."""
    tokenizer = AutoTokenizer.from_pretrained(place)
    classes = TASKS[task].classes
    set_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        place,
        id2label=dict(enumerate(classes or ["similarity"])),
        label2id={name: number for number, name in enumerate(classes or ["similarity"])},
        problem_type="single_label_classification" if classes else "regression",
        ignore_mismatched_sizes=True,  # of a head for other labels
        unpad_inputs=True,
        dtype="float32",
    )
    arguments = TrainingArguments(
        str(chosen.output / ".trainer"),
        seed=seed,
        num_train_epochs=chosen.epochs,
        learning_rate=rate,
        warmup_steps=0.1,
        weight_decay=0.01,
        per_device_train_batch_size=chosen.batch_size,
        per_device_eval_batch_size=chosen.batch_size,
        bf16=chosen.bf16,
        save_strategy="no",
        logging_steps=0.05,  # of all steps
        use_cpu=ON_CPU,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
    )
    parts = parts.map(
        lambda batch: tokenizer(
            *(batch[name] for name in ("text", "pair") if name in batch), truncation=True, max_length=chosen.length
        ),
        batched=True,
        remove_columns=[name for name in parts["train"].column_names if name != "label"],
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=parts["train"],
        eval_dataset={part: texts for part, texts in parts.items() if part != "train"},
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


def scores_of(trainer: Trainer, task: str) -> dict[str, float]:
    """GLUE's score on each validation part, in percent."""
    name, scores = TASKS[task].score, {}
    for part, texts in trainer.eval_dataset.items():
        predicted = trainer.predict(texts)
        answers = predicted.predictions.argmax(-1) if TASKS[task].classes else predicted.predictions.reshape(-1)
        scores[part] = 100 * metric(METRICS[name]).compute(predictions=answers, references=predicted.label_ids)[name]
    return scores


def main_score(run: dict) -> float:
    """By which runs are compared: of MNLI's two parts the mean."""
    return statistics.mean(run["scores"].values())


def best_rate(runs: list[dict]) -> list[dict]:
    """The runs of the learning rate whose mean over the seeds is best."""
    rates = {run["rate"] for run in runs}
    by_rate = [[run for run in runs if run["rate"] == rate] for rate in sorted(rates)]
    return max(by_rate, key=lambda same: statistics.mean(map(main_score, same)))


def cell(runs: list[dict]) -> str:
    """Mean and spread over the seeds, of MNLI for each of its parts, and the learning rate."""
    shown = []
    for part in runs[0]["scores"]:
        values = [run["scores"][part] for run in runs]
        shown.append(f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if values[1:] else ""))
    return f"{' / '.join(shown)} ({runs[0]['rate']:g})"


def main() -> None:
    chosen = read_arguments()
    places = {Path(place).absolute().name: place for place in chosen.models}  # a link has its own name
    if len(places) < len(chosen.models):
        raise TrainingError("two models have the same name, by which rows are called: rename or link a folder")
    for place in chosen.models:
        saved_config(place)  # refuses what is not a RoFormer
    tasks = {task: read_task(task, chosen.data) for task in chosen.tasks}
    recipe = {name: getattr(chosen, name) for name in ("data", "epochs", "batch_size", "length", "bf16")}
    file = ResultsFile(chosen.output, recipe)
    runs = file.read(lambda saved: list(saved["runs"])) or []
    file.write(runs=runs)

    for task, (name, place), rate, seed in product(tasks, places.items(), chosen.learning_rates, chosen.seeds):
        run = {"model": name, "task": task, "rate": rate, "seed": seed}
        if any(run.items() <= done.items() for done in runs):
            continue
        print(f"{name}, {TASKS[task].title}, learning rate {rate:g}, seed {seed}")
        trainer = fine_tune(place, task, tasks[task], rate, seed, chosen)
        run["scores"] = scores_of(trainer, task)
        others = [done for done in runs if (done["model"], done["task"]) == (name, task)]
        if all(main_score(run) > main_score(other) for other in others):
            trainer.model.config.unpad_inputs = False  # for training alone
            with output_folder(chosen.output / f"{name}-{task}", force=True) as folder:
                trainer.model.save_pretrained(folder)
                trainer.processing_class.save_pretrained(folder)
                measured = [
                    EvalResult("text-classification", "glue", f"GLUE {TASKS[task].title} ({part})", *score)
                    for part, value in run["scores"].items()
                    for score in [(TASKS[task].score, value / 100)]
                ]
                write_scored_card(folder, measured, f"{name}-{task}")
        runs.append(run)
        file.write(runs=runs)
        shutil.rmtree(chosen.output / ".trainer", ignore_errors=True)

    table = Table("", *(f"{TASKS[task].title}, {TASKS[task].score}" for task in tasks))
    for name in places:
        of_model = [run for run in runs if run["model"] == name and run["rate"] in chosen.learning_rates]
        of_model = [run for run in of_model if run["seed"] in chosen.seeds]
        table.add_row(name, *(cell(best_rate([run for run in of_model if run["task"] == task])) for task in tasks))
    Console().print(table)
    print(f"In percent, in brackets the learning rate. {file.path} has every run")


if __name__ == "__main__":
    with one_sentence("finetune_glue"):
        main()
