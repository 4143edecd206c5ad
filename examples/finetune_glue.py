"""Fine-tune saved RoFormers on tasks of GLUE and compare them, as Table 2 of the paper does.

    python examples/finetune_glue.py --models BERT ROFORMER --data glue --tasks mrpc sst2 qnli stsb --output RUNS

As in section 4.3: texts of up to 512 tokens, batches of 32, three epochs, learning rates 2e-5 to 5e-5. For each task,
the table shows the learning rate with the best mean validation score over the seeds, and the standard deviation. The
scores are GLUE's. DATA is a folder with a subfolder per task, or a data set such as nyu-mll/glue. A BERT is a model
with position_encoding="learned". RUNS gets results.json, and the best model per checkpoint and task. The same command
resumes a stopped run; further models, tasks, learning rates and seeds are added to the results.
"""

import argparse
import math
import shutil
import statistics
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import roformer_command  # noqa: F401, first: the package then imports models where they are used
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.finetuning.glue import TASKS
from modeling_roformer.training.runs.arguments import (
    positive_integer,
    positive_rate,
    require_place,
    seed_number,
    text_length,
)
from modeling_roformer.training.runs.data_sets import require_sources

METRICS = {"accuracy": "classification", "f1": "f1", "spearman": "spearman"}  # score -> the metric that has it


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="DIR", help="saved RoFormers")
    parser.add_argument("--data", required=True, help="a folder with a subfolder per task, or the name of a data set")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--learning-rates", type=positive_rate, nargs="+", default=[2e-5, 3e-5, 4e-5, 5e-5])
    parser.add_argument(
        "--seeds", type=seed_number, nargs="+", default=[0], help="seeds of the head, the order and dropout"
    )
    parser.add_argument("--epochs", type=positive_rate, default=3)
    parser.add_argument("--batch-size", type=positive_integer, default=32)
    parser.add_argument("--length", type=text_length, default=512, help="maximum number of tokens of a text or a pair")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    chosen = parser.parse_args()
    for place in chosen.models:
        require_place(place)
    require_sources([chosen.data])
    return chosen


with exit_on_error("finetune_glue"):
    if __name__ == "__main__":
        read_arguments()  # before the imports, which take seconds
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

    from modeling_roformer.files.atomic_folder import output_folder
    from modeling_roformer.model_cards.trained_card import published_name, write_trained_card
    from modeling_roformer.training.finetuning.glue import read_task
    from modeling_roformer.training.metrics import metric
    from modeling_roformer.training.runs.device import ON_CPU, require_one_process
    from modeling_roformer.training.runs.digests import digest_of_model, digest_of_rows
    from modeling_roformer.training.runs.finite import FiniteTrainer, NotFinite, require_finite_start, show_failed
    from modeling_roformer.training.runs.kept_model import digest_of_kept, is_kept, keeps_one_of, require_room, to_train
    from modeling_roformer.training.runs.models import saved_config
    from modeling_roformer.training.runs.resuming import ResultsFile, check_rows, require_values, run_lock


def fine_tune(place: str, task: str, parts, rate: float, seed: int, chosen: argparse.Namespace) -> FiniteTrainer:
    """Fine-tune a model and return the Trainer. The caller removes its folder. Raises NotFinite if the run fails."""
    tokenizer = AutoTokenizer.from_pretrained(place)
    classes = TASKS[task].classes
    set_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        place,
        id2label=dict(enumerate(classes or ["similarity"])),
        label2id={name: number for number, name in enumerate(classes or ["similarity"])},
        problem_type="single_label_classification" if classes else "regression",
        ignore_mismatched_sizes=True,  # the checkpoint may have a head for other labels
        dtype="float32",
    )
    require_finite_start(model, place)
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
    """Return GLUE's score on each validation split, in percent. Raise NotFinite if scores are not finite."""
    name, scores = TASKS[task].score, {}
    for part, texts in trainer.eval_dataset.items():
        predicted = trainer.predict(texts)
        answers = predicted.predictions.argmax(-1) if TASKS[task].classes else predicted.predictions.reshape(-1)
        scores[part] = 100 * metric(METRICS[name]).compute(predictions=answers, references=predicted.label_ids)[name]
    return scores


def main_score(run: dict) -> float:
    """Return the score by which runs are compared: the mean over the validation splits (MNLI has two)."""
    return statistics.mean(run["scores"].values())


def read_runs(saved: dict) -> list[dict]:
    """Return the runs of a results.json. Raise a ValueError, TypeError or KeyError if one of them is misshapen."""
    runs = list(saved["runs"])
    if len({tuple(run[name] for name in ("model", "task", "rate", "seed")) for run in runs}) < len(runs):
        raise ValueError("a run twice")
    for run in runs:
        require_values([run["model"], run.get("failed") or "", run.get("weights") or ""], [run["rate"], run["seed"]])
        if run["task"] not in TASKS or not isinstance(run["seed"], int):
            raise ValueError("a run of no task or seed")
        scores = {} if run.get("failed") else run["scores"]
        if not all(part.startswith("validation") and -100 <= score <= 100 for part, score in scores.items()):
            raise ValueError("a score that is none")
        if not scores and not run.get("failed"):
            raise ValueError("a run without a score")
    return runs


def succeeded(runs: list[dict]) -> list[dict]:
    return [run for run in runs if not run.get("failed")]


def best_rate(runs: list[dict]) -> list[dict]:
    """Return the runs of the best learning rate: the one with the fewest failed seeds, then with the best mean
    score."""

    def rank(same: list[dict]) -> tuple[int, float]:
        good = succeeded(same)
        return len(good) - len(same), statistics.mean(map(main_score, good)) if good else -math.inf

    rates = {run["rate"] for run in runs}
    return max(([run for run in runs if run["rate"] == rate] for rate in sorted(rates)), key=rank)


def cell(runs: list[dict]) -> str:
    """Format mean and standard deviation over the seeds, per validation split, the learning rate, and the failed
    seeds."""
    shown, good = [], succeeded(runs)
    if not good:
        return "failed"
    for part in good[0]["scores"]:
        values = [run["scores"][part] for run in good]
        shown.append(f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if values[1:] else ""))
    failed = f"; {len(runs) - len(good)} of {len(runs)} failed" if len(good) < len(runs) else ""
    return f"{' / '.join(shown)} ({runs[0]['rate']:g}{failed})"


def of_model(runs: list[dict], task: str, model: str) -> list[dict]:
    """Return the runs of a model on a task that have not failed."""
    return [run for run in succeeded(runs) if (run["task"], run["model"]) == (task, model)]


def weights_of(runs: list[dict]) -> list[str | None]:
    """Return the digests of the models of runs."""
    return [run.get("weights") for run in runs]


def names_in(runs: list[dict], starts: dict[str, str]) -> dict[str, str]:
    """Return the name of each model in the runs: the name of its folder, or an earlier one if the folder was renamed.

    Args:
        starts: name of each model's folder -> digest of the model.
    """
    recorded = {run["start"]: run["model"] for run in runs if "start" in run}
    names = {name: recorded.get(start, name) for name, start in starts.items()}
    if len(set(starts.values())) < len(starts):
        raise TrainingError(f"{', '.join(starts)}: two of these are the same model: name it once")
    if len(set(names.values())) < len(names):
        renamed = next(f"{name} was {old}" for name, old in names.items() if name != old)
        raise TrainingError(
            f"{renamed} in an earlier run, but now another model has that name: rename or link a folder"
        )
    return names


def main() -> None:
    chosen = read_arguments()
    require_one_process()
    with run_lock(chosen.output):
        compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """Fine-tune each model on each task with all learning rates and seeds, and show the results."""
    places = {Path(place).absolute().name: place for place in chosen.models}  # a link has its own name
    if len(places) < len(chosen.models):
        repeated = [Path(place).absolute().name for place in chosen.models]
        raise TrainingError(f"two of --models have the same name ({', '.join(repeated)}): rename or link a folder")
    for place in chosen.models:
        saved_config(place)  # raises an error if it is not a RoFormer
    tasks = {task: read_task(task, chosen.data) for task in chosen.tasks}
    recipe = {name: getattr(chosen, name) for name in ("epochs", "batch_size", "length", "bf16")}
    file = ResultsFile("finetune_glue.py", chosen.output, recipe)
    runs = file.read(read_runs) or []
    starts = {name: digest_of_model(place) for name, place in places.items()}
    names = names_in(runs, starts)
    places, starts = ({names[name]: value for name, value in of.items()} for of in (places, starts))
    data = {task: " ".join(map(digest_of_rows, parts.values())) for task, parts in tasks.items()}
    check_rows(file.path, runs, "model", "start", starts, "model {}", "or rename or link the model's folder")
    check_rows(file.path, runs, "task", "data", data, "data of {}")
    file.write(runs=runs)

    def place_of(key: tuple) -> Path:
        task, name, *_ = key
        return chosen.output / f"{name}-{task}"

    def recorded(key: tuple) -> dict | None:
        return next((run for run in runs if tuple(run[of] for of in ("task", "model", "rate", "seed")) == key), None)

    def lost() -> Iterator[tuple]:
        """Yield task, model, rate and seed of each best run whose model is missing."""
        for task, name in product(tasks, places):
            good = of_model(runs, task, name)
            best = max(good, key=main_score, default=None)
            if best and not is_kept(place_of((task, name)), best.get("weights"), weights_of(good)):
                yield task, name, best["rate"], best["seed"]

    for key in product(tasks, places):
        require_room(place_of(key))
    for key, is_lost in to_train(product(tasks, places, chosen.learning_rates, chosen.seeds), recorded, lost):
        task, name, rate, seed = key
        place = place_of(key)
        run = {"model": name, "task": task, "rate": rate, "seed": seed, "start": starts[name], "data": data[task]}
        if is_lost:
            print(f"{place} does not have the model of this run, so it is repeated")
        print(f"{name}, {TASKS[task].title}, learning rate {rate:g}, seed {seed}")
        try:
            trainer = fine_tune(places[name], task, tasks[task], rate, seed, chosen)
            run |= {"scores": scores_of(trainer, task), "weights": ""}
        except NotFinite as error:
            run |= {"scores": None, "failed": str(error)}
            print(f"failed: {error}" + "; its earlier result is kept" * is_lost)
            if is_lost:
                continue
        if is_lost:
            runs[runs.index(recorded(key))] = run
        else:
            runs.append(run)
        is_best = not run.get("failed") and max(of_model(runs, task, name), key=main_score) is run
        if is_best or (is_lost and not keeps_one_of(place, weights_of(of_model(runs, task, name)))):
            with output_folder(place, force=True) as folder:
                trainer.model.save_pretrained(folder)
                trainer.processing_class.save_pretrained(folder)
                title = f"GLUE {TASKS[task].title}"
                write_trained_card(
                    folder,
                    f"{name}-{task}",
                    f"Fine-tuned on {tasks[task].num_rows['train']:,} texts or pairs of {title} "
                    f"({published_name(chosen.data)}).",
                    base=places[name],
                    data=[chosen.data],
                    hyperparameters={**recipe, "learning_rate": rate, "seed": seed},
                    scores=[
                        EvalResult(
                            "text-classification", "glue", title, TASKS[task].score, value / 100, dataset_split=part
                        )
                        for part, value in run["scores"].items()
                    ],
                )
            run["weights"] = digest_of_kept(place)
        file.write(runs=runs)
        shutil.rmtree(chosen.output / ".trainer", ignore_errors=True)

    table = Table("", *(f"{TASKS[task].title}, {TASKS[task].score}" for task in tasks))
    shown = []
    for name in places:
        of_row = [run for run in runs if run["model"] == name and run["rate"] in chosen.learning_rates]
        of_row = [run for run in of_row if run["seed"] in chosen.seeds and run["task"] in tasks]
        shown += of_row
        table.add_row(name, *(cell(best_rate([run for run in of_row if run["task"] == task])) for task in tasks))
    Console(markup=False).print(table)
    show_failed(
        {
            f"{run['model']}, {run['task']}, learning rate {run['rate']:g}, seed {run['seed']}": run.get("failed")
            for run in shown
        }
    )
    print(f"Scores in percent, with the learning rate in brackets. {file.path} has all runs")


if __name__ == "__main__":
    with exit_on_error("finetune_glue"):
        main()
