"""Fine-tune saved RoFormers on tasks of GLUE and compare them, as Table 2 of the paper does.

    python examples/finetune_glue.py --models BERT ROFORMER --data glue --tasks mrpc sst2 qnli stsb --output RUNS

As in section 4.3: texts of up to 512 tokens, 32 a step, three epochs, learning rates 2, 3, 4 and 5e-5, of which the one with
the best mean over the seeds on the validation part is what the table shows, with the spread over the seeds. The score is GLUE's
for each task. DATA is a folder with one for each task, or a data set, as nyu-mll/glue. A BERT is a model of
position_encoding="learned". RUNS gets results.json, and of each model and task the best one. The same command resumes where it
was stopped, and more models, tasks, learning rates or seeds add to what is there.
"""

import argparse
import math
import shutil
import statistics
from collections.abc import Iterable
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
    TrainingArguments,
    set_seed,
)

from modeling_roformer.output.atomic_folder import output_folder
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.finetuning.glue import TASKS, read_task
from modeling_roformer.training.finetuning.scored_card import write_scored_card
from modeling_roformer.training.metrics import metric
from modeling_roformer.training.runs.device import ON_CPU
from modeling_roformer.training.runs.digests import digest_of_model, digest_of_rows
from modeling_roformer.training.runs.fingerprint import check_rows, run_lock
from modeling_roformer.training.runs.finite import (
    EARLIER,
    FiniteTrainer,
    NotFinite,
    has_null,
    positive_rate,
    show_failed,
)
from modeling_roformer.training.runs.models import saved_config
from modeling_roformer.training.runs.results_file import ResultsFile

METRICS = {"accuracy": "classification", "f1": "f1", "spearman": "spearman"}  # in which each score is


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="DIR", help="saved RoFormers")
    parser.add_argument("--data", required=True, help="a folder with one for each task, or a data set's name")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--learning-rates", type=positive_rate, nargs="+", default=[2e-5, 3e-5, 4e-5, 5e-5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the head, the order and dropout")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=512, help="tokens after which a text or a pair is cut")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 where autocast does")
    return parser.parse_args()


def fine_tune(place: str, task: str, parts, rate: float, seed: int, chosen: argparse.Namespace) -> FiniteTrainer:
    """A Trainer that is done; its folder is left to be removed. Raises NotFinite where the run fails."""
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
    trainer = FiniteTrainer(
        model,
        arguments,
        train_dataset=parts["train"],
        eval_dataset={part: texts for part, texts in parts.items() if part != "train"},
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


def scores_of(trainer: FiniteTrainer, task: str) -> dict[str, float]:
    """GLUE's score on each validation part, in percent; raises NotFinite where the model gives none."""
    name, scores = TASKS[task].score, {}
    for part, texts in trainer.eval_dataset.items():
        predicted = trainer.predict(texts)
        answers = predicted.predictions.argmax(-1) if TASKS[task].classes else predicted.predictions.reshape(-1)
        scores[part] = 100 * metric(METRICS[name]).compute(predictions=answers, references=predicted.label_ids)[name]
    return scores


def main_score(run: dict) -> float:
    """By which runs are compared: of MNLI's two parts the mean."""
    return statistics.mean(run["scores"].values())


def succeeded(runs: list[dict]) -> list[dict]:
    return [run for run in runs if not run.get("failed")]


def best_rate(runs: list[dict]) -> list[dict]:
    """The runs of the learning rate whose mean over the seeds is best, of those at which the fewest seeds failed."""

    def rank(same: list[dict]) -> tuple[int, float]:
        good = succeeded(same)
        return len(good) - len(same), statistics.mean(map(main_score, good)) if good else -math.inf

    rates = {run["rate"] for run in runs}
    return max(([run for run in runs if run["rate"] == rate] for rate in sorted(rates)), key=rank)


def cell(runs: list[dict]) -> str:
    """Mean and spread over the seeds, of MNLI for each of its parts, the learning rate, and how many seeds failed."""
    shown, good = [], succeeded(runs)
    if not good:
        return "failed"
    for part in good[0]["scores"]:
        values = [run["scores"][part] for run in good]
        shown.append(f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if values[1:] else ""))
    failed = f"; {len(runs) - len(good)} of {len(runs)} failed" if len(good) < len(runs) else ""
    return f"{' / '.join(shown)} ({runs[0]['rate']:g}{failed})"


def read_runs(saved: dict) -> list[dict]:
    """The runs of a results.json.

    Where an earlier version has written NaN for a score, the run failed, but was kept as the best: what came after it is left
    out, to be trained again.
    """
    runs, spoilt = [], set()
    for run in saved["runs"]:
        kind = run["model"], run["task"]
        if has_null(run["scores"]) and not run.get("failed"):
            runs.append(run | {"scores": None, "failed": EARLIER})
            spoilt.add(kind)
        elif kind not in spoilt:
            runs.append(run)
    return runs


def lost_runs(runs: list[dict], tasks: Iterable[str], names: Iterable[str], output: Path) -> list[tuple]:
    """Task, model, rate and seed of the best run of each task and model whose folder is missing."""
    lost = []
    for task, name in product(tasks, names):
        good = [run for run in succeeded(runs) if (run["model"], run["task"]) == (name, task)]
        if good and not (output / f"{name}-{task}").exists():
            best = max(good, key=main_score)
            lost.append((task, name, best["rate"], best["seed"]))
    return lost


def names_in(runs: list[dict], starts: dict[str, str]) -> dict[str, str]:
    """The name by which each model stands in the runs: that of its folder, unless the folder was renamed since.

    Args:
        starts: the name of each model's folder -> its digest.
    """
    recorded = {run["start"]: run["model"] for run in runs if "start" in run}
    names = {name: recorded.get(start, name) for name, start in starts.items()}
    if len(set(starts.values())) < len(starts):
        raise TrainingError(f"two of {', '.join(starts)} are the same model: name it once")
    if len(set(names.values())) < len(names):
        renamed = next(f"{name} was {old}" for name, old in names.items() if name != old)
        raise TrainingError(
            f"{renamed} in an earlier run, which is the name of another model now: rename or link a folder"
        )
    return names


def main() -> None:
    chosen = read_arguments()
    with run_lock(chosen.output):
        compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """Fine-tune each model on each task with all rates and seeds, and show how well each does."""
    places = {Path(place).absolute().name: place for place in chosen.models}  # a link has its own name
    if len(places) < len(chosen.models):
        raise TrainingError("two models have the same name, by which rows are called: rename or link a folder")
    for place in chosen.models:
        saved_config(place)  # refuses what is not a RoFormer
    tasks = {task: read_task(task, chosen.data) for task in chosen.tasks}
    recipe = {name: getattr(chosen, name) for name in ("epochs", "batch_size", "length", "bf16")}
    file = ResultsFile(chosen.output, recipe)
    runs = file.read(read_runs) or []
    starts = {name: digest_of_model(place) for name, place in places.items()}
    names = names_in(runs, starts)
    places, starts = ({names[name]: value for name, value in of.items()} for of in (places, starts))
    data = {task: " ".join(map(digest_of_rows, parts.values())) for task, parts in tasks.items()}
    check_rows(file.path, runs, "model", "start", starts, "model {}", "or rename or link the model's folder")
    check_rows(file.path, runs, "task", "data", data, "data of {}")
    file.write(runs=runs)

    lost = lost_runs(runs, tasks, places, chosen.output)
    for key in [*lost, *product(tasks, places, chosen.learning_rates, chosen.seeds)]:
        task, name, rate, seed = key
        place = chosen.output / f"{name}-{task}"
        run = {"model": name, "task": task, "rate": rate, "seed": seed, "start": starts[name], "data": data[task]}
        done = next((done for done in runs if run.items() <= done.items()), None)
        if done and key in lost and not place.exists():
            print(f"{place} is missing, so its run is made again:")
        elif done:
            continue
        print(f"{name}, {TASKS[task].title}, learning rate {rate:g}, seed {seed}")
        try:
            trainer = fine_tune(places[name], task, tasks[task], rate, seed, chosen)
            run["scores"] = scores_of(trainer, task)
        except NotFinite as error:
            run |= {"scores": None, "failed": str(error)}
            print(f"failed: {error}")
        others = [other for other in succeeded(runs) if (other["model"], other["task"]) == (name, task)]
        if not run.get("failed") and (done or all(main_score(run) > main_score(other) for other in others)):
            trainer.model.config.unpad_inputs = False  # for training alone
            with output_folder(place, force=True) as folder:
                trainer.model.save_pretrained(folder)
                trainer.processing_class.save_pretrained(folder)
                measured = [
                    EvalResult("text-classification", "glue", f"GLUE {TASKS[task].title} ({part})", *score)
                    for part, value in run["scores"].items()
                    for score in [(TASKS[task].score, value / 100)]
                ]
                write_scored_card(folder, measured, f"{name}-{task}")
        if done:
            runs[runs.index(done)] = run
        else:
            runs.append(run)
        file.write(runs=runs)
        shutil.rmtree(chosen.output / ".trainer", ignore_errors=True)

    table = Table("", *(f"{TASKS[task].title}, {TASKS[task].score}" for task in tasks))
    shown = []
    for name in places:
        of_model = [run for run in runs if run["model"] == name and run["rate"] in chosen.learning_rates]
        of_model = [run for run in of_model if run["seed"] in chosen.seeds and run["task"] in tasks]
        shown += of_model
        table.add_row(name, *(cell(best_rate([run for run in of_model if run["task"] == task])) for task in tasks))
    Console().print(table)
    show_failed(
        {
            f"{run['model']}, {run['task']}, learning rate {run['rate']:g}, seed {run['seed']}": run.get("failed")
            for run in shown
        }
    )
    print(f"In percent, in brackets the learning rate. {file.path} has every run")


if __name__ == "__main__":
    with exit_on_error("finetune_glue"):
        main()
