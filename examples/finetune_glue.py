"""Fine-tune saved RoFormers on tasks of GLUE and compare them, as Table 2 of the paper does.

    python examples/finetune_glue.py --models BERT ROFORMER --data glue --tasks mrpc sst2 qnli stsb --output RUNS

As in section 4.3: texts of up to 512 tokens, batches of 32, three epochs, learning rates 2e-5 to 5e-5. For each task,
the table shows the learning rate with the best mean validation score over the seeds, and the standard deviation. The
scores are GLUE's. DATA is a folder with a subfolder per task, or a data set such as nyu-mll/glue. A BERT is a model
with position_encoding="learned". RUNS gets results.json, and the best model per checkpoint and task.
"""

import argparse
import shutil
import statistics
from functools import partial
from itertools import product
from pathlib import Path

import datasets
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    set_seed,
)

from modeling_roformer import training  # registers RoFormer with the Auto classes too
from modeling_roformer.model_cards import published_name

TASKS = training.GLUE_TASKS


def read_arguments() -> argparse.Namespace:
    parser = training.ScriptParser(__doc__)
    add = parser.add_argument
    add("--models", nargs="+", required=True, metavar="DIR", help="saved RoFormers, in folders with different names")
    add("--data", required=True, help="a folder with a subfolder per task, or the name of a data set")
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS), action=training.Distinct)
    add("--output", type=Path, required=True, help="folder of the runs")
    add("--resume", action="store_true", help="resume runs that were stopped")
    add(
        "--learning-rates",
        type=training.positive,
        nargs="+",
        default=[2e-5, 3e-5, 4e-5, 5e-5],
        action=training.Distinct,
    )
    seeds = "seeds of the head, the order and dropout"
    add("--seeds", type=training.random_seed, nargs="+", default=[0], action=training.Distinct, help=seeds)
    add("--epochs", type=training.positive, default=3)
    add("--batch-size", type=training.at_least(1), default=32)
    add("--length", type=int, default=512, help="maximum number of tokens of a text or a pair")
    add("--bf16", action="store_true", help="bfloat16 autocast")
    return parser.parse_args()


def order_labels(parts: datasets.DatasetDict, place: str) -> datasets.DatasetDict:
    """Return the splits with classes in the order of the checkpoint's head, if it was trained for the same ones: its
    order need not be GLUE's. Names are compared without capitals."""
    labels = parts["train"].features["label"]
    order = [name.lower() for _, name in sorted(AutoConfig.from_pretrained(place).id2label.items())]
    if not isinstance(labels, datasets.ClassLabel) or order == labels.names or sorted(order) != sorted(labels.names):
        return parts
    return parts.align_labels_with_mapping({name: number for number, name in enumerate(order)}, "label")


def fine_tune(place: str, parts, rate: float, seed: int, chosen: argparse.Namespace, folder: Path) -> Trainer:
    """Fine-tune a checkpoint, from the last one in `folder` on. Return the Trainer."""
    tokenizer, labels = AutoTokenizer.from_pretrained(place), parts["train"].features["label"]
    classes = getattr(labels, "names", None)
    set_seed(seed)
    with training.new_head():
        model = AutoModelForSequenceClassification.from_pretrained(
            place,
            id2label=dict(enumerate(classes or ["similarity"])),
            label2id={name: number for number, name in enumerate(classes or ["similarity"])},
            problem_type="single_label_classification" if classes else "regression",
            ignore_mismatched_sizes=True,  # the checkpoint may have a head for other labels
            dtype="float32",
        )
    arguments = TrainingArguments(
        str(folder),
        seed=seed,
        num_train_epochs=chosen.epochs,
        learning_rate=rate,
        warmup_steps=0.1,
        weight_decay=0.01,
        per_device_train_batch_size=chosen.batch_size,
        bf16=chosen.bf16,
        use_cpu=not torch.accelerator.is_available(),  # else Trainer refuses bfloat16 there
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="epoch",
        report_to=[],
    )
    texts = [name for name in ("text", "pair") if name in parts["train"].column_names]
    encode = partial(tokenizer, truncation=True, max_length=chosen.length)
    train = parts["train"].map(encode, batched=True, input_columns=texts, remove_columns=texts, desc="tokenizing")
    callbacks = [training.FiniteCallback()]
    trainer = Trainer(model, arguments, train_dataset=train, processing_class=tokenizer, callbacks=callbacks)
    training.train_or_resume(trainer)
    return trainer


def scores_of(trainer: Trainer, task: str, parts, length: int) -> dict[str, float]:
    """Return GLUE's score on each validation split, in percent."""
    texts = [name for name in ("text", "pair") if name in parts["train"].column_names]
    encode, scores = partial(trainer.processing_class, truncation=True, max_length=length), {}
    for part in (part for part in parts if part != "train"):
        predicted = trainer.predict(
            parts[part].map(encode, batched=True, input_columns=texts, remove_columns=texts, desc="tokenizing")
        )
        labels, answers = predicted.label_ids, predicted.predictions
        if names := TASKS[task].classes and parts[part].features["label"].names:
            advice = "try other --learning-rates, or more --epochs"
            training.ClassPredictions(names, labels, answers).warn_of_one_class(f"the model of {part}", advice)
        if TASKS[task].score == "spearman":  # of equal answers, the correlation is not defined
            score = np.nan_to_num(spearmanr(labels, answers.reshape(-1)).statistic)
        elif TASKS[task].score == "f1":  # of the class 1, wherever the checkpoint has it
            score = f1_score(labels, answers.argmax(-1), pos_label=names.index("1"))
        else:
            score = accuracy_score(labels, answers.argmax(-1))
        scores[part] = 100 * float(score)
    return scores


def cell(runs: list[dict]) -> str:
    """Format mean and deviation over the seeds, per validation split, of the best learning rate."""
    by_rate = [[run for run in runs if run["rate"] == rate] for rate in sorted({run["rate"] for run in runs})]
    best = max(by_rate, key=lambda same: statistics.mean(run["score"] for run in same))
    parts = (training.spread([run["scores"][part] for run in best], ".1f") for part in best[0]["scores"])
    return f"{' / '.join(parts)} ({best[0]['rate']:g})"


def main() -> None:
    chosen = read_arguments()
    for model in chosen.models:
        training.check_model_source(model)
        pairs = any(len(TASKS[task].texts) == 2 for task in chosen.tasks)
        training.check_length(AutoTokenizer.from_pretrained(model), chosen.length, 2 if pairs else 1)
    places = {Path(place).resolve().name: place for place in chosen.models}
    if len(places) < len(chosen.models):
        raise training.TrainingError(f"two of --models have the same name: rename one of {', '.join(chosen.models)}")
    tasks = {task: training.read_glue(task, chosen.data) for task in chosen.tasks}
    sources = {"models": chosen.models, "data": chosen.data}
    with training.start_run(chosen.output, vars(chosen), sources, chosen.resume) as run:
        runs = run.results.setdefault("runs", [])
        done = [(of["task"], of["model"], of["rate"], of["seed"]) for of in runs]
        for key in product(chosen.tasks, places, chosen.learning_rates, chosen.seeds):
            task, name, rate, seed = key
            folder = run.folder / ".checkpoints" / "-".join(map(str, key))
            if key not in done:
                print(f"{name}, {TASKS[task].title}, learning rate {rate:g}, seed {seed}")
                parts = order_labels(tasks[task], places[name])
                trainer = fine_tune(places[name], parts, rate, seed, chosen, folder)
                scores = scores_of(trainer, task, parts, chosen.length)
                score = statistics.mean(scores.values())  # MNLI has two splits
                if score > max((of["score"] for of in runs if (of["task"], of["model"]) == key[:2]), default=-101):
                    text = f"Fine-tuned on {len(parts['train']):,} texts or pairs of GLUE {TASKS[task].title}."
                    card = {"base": places[name], "data": [chosen.data], "name": f"{name}-{task}"}
                    card["hyperparameters"] = {"learning rate": rate, "epochs": chosen.epochs, "seed": seed}
                    card["pairs"] = "pair" in parts["train"].column_names
                    card["scores"] = {TASKS[task].score: score / 100}
                    source = f"{published_name(chosen.data)}:{task}", "validation"
                    tokenizer = training.with_trained_length(trainer.processing_class, chosen.length)
                    run.save(trainer.model, tokenizer, text, "text-classification", tested_on=source, **card)
                runs.append({"task": task, "model": name, "rate": rate, "seed": seed, "scores": scores, "score": score})
                run.save_results()
            shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(run.folder / ".checkpoints", ignore_errors=True)
    table = Table("", *(f"{TASKS[task].title}, {TASKS[task].score}" for task in tasks))
    for name in places:
        table.add_row(name, *(cell([of for of in runs if (of["task"], of["model"]) == (task, name)]) for task in tasks))
    Console(markup=False).print(table)
    print(f"Scores in percent, with the learning rate in brackets. {chosen.output / 'results.json'} has all runs")


if __name__ == "__main__":
    with training.exit_on_error("finetune_glue"), training.one_bar():
        main()
