"""Fine-tune a RoFormer on triplets (is text A closer to B or to C?), with several seeds, and keep the best model.

    python examples/finetune_triplet.py MODEL --train triplets.jsonl --output run --seeds 0 1 2 --baselines

Triplets are in .csv, .tsv, .jsonl or .parquet files, or in data sets on the Hub: three texts, and the label B or C.
Without --test, each seed splits --train 6:2:2, as in the paper; without --validation, 8:2. --epochs 0 only evaluates.
See docs/triplets.md.
"""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

import datasets
import torch
from transformers import AutoConfig, AutoTokenizer, EarlyStoppingCallback, Trainer, TrainingArguments, set_seed

from modeling_roformer import RoFormerForTripletMatching, training

PARTS, TRAINED = ("train", "validation", "test"), "trained"


def make_parser(description: str | None = __doc__) -> training.ScriptParser:
    parser = training.ScriptParser(description)
    parser.add_argument("model", help="folder of a saved RoFormer, or its name on the Hub")
    parser.add_argument("--train", required=True, help="training triplets")
    parser.add_argument("--validation", help="triplets for choosing the epoch and the seed")
    parser.add_argument("--test", help="test triplets")
    parser.add_argument(
        "--columns", nargs=4, default=["A", "B", "C", "label"], help="their names; default: %(default)s"
    )
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--resume", action="store_true", help="resume the run in --output")
    seeds = "seeds of the scorer, the order and dropout"
    parser.add_argument(
        "--seeds", type=training.random_seed, nargs="+", default=[0], action=training.Distinct, help=seeds
    )
    parser.add_argument("--baselines", action="store_true", help="add rows without training")
    parser.add_argument("--scorer", choices=("cross", "bi"), default="cross", help="score pairs, or texts separately")
    parser.add_argument("--max-length", type=int, default=512, help="maximum number of tokens of a pair or a text")
    parser.add_argument("--epochs", type=training.at_least(0), default=10, help="maximum number of epochs")
    parser.add_argument(
        "--patience", type=training.at_least(0), default=3, help="epochs without a better accuracy before it stops"
    )
    parser.add_argument(
        "--batch-size", type=training.at_least(1), default=16, help="triplets that are computed at once"
    )
    parser.add_argument("--accumulation", type=training.at_least(1), default=1, help="batches per step")
    parser.add_argument("--learning-rate", type=training.positive, help="default: chosen by the width of the model")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    return parser


def split(parts: dict[str, datasets.Dataset], seed: int) -> dict[str, datasets.Dataset]:
    """Return the triplets of all parts; those that are missing are taken from the training triplets."""
    for part, share in ("test", 0.2), ("validation", 0.2 if "test" in parts else 0.25):
        if part not in parts:
            train, some = training.split_off(parts["train"], share, seed)
            parts = parts | {"train": train, part: some}
    return parts


def result_of(decisions: dict, parts: dict[str, datasets.Dataset], **more) -> dict:
    """Return the accuracies, and the result of each test triplet for `paired_bootstrap`."""
    results = {part: training.triplet_results(decided, parts[part]["label"]) for part, decided in decisions.items()}
    accuracies = {part: sum(scores) / len(scores) for part, scores in results.items()}
    return {**accuracies, "rows": parts["test"]["row"][:], "results": results["test"], **more}


def make_trainer(chosen: argparse.Namespace, parts: dict[str, datasets.Dataset], seed: int, folder: Path) -> Trainer:
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(chosen.model, model_max_length=chosen.max_length)
    with training.new_head():
        model = RoFormerForTripletMatching.from_pretrained(chosen.model, triplet_scorer=chosen.scorer, dtype="float32")
    arguments = TrainingArguments(
        str(folder),
        seed=seed,
        num_train_epochs=chosen.epochs,
        learning_rate=chosen.learning_rate,
        warmup_steps=0.1,  # of all steps
        weight_decay=0.01,
        per_device_train_batch_size=chosen.batch_size,
        per_device_eval_batch_size=chosen.batch_size,
        gradient_accumulation_steps=chosen.accumulation,
        bf16=chosen.bf16,
        use_cpu=not torch.accelerator.is_available(),  # else Trainer refuses bfloat16 there
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        remove_unused_columns=False,  # the collator reads the texts
        report_to=[],
    )
    return Trainer(
        model,
        arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        data_collator=training.TripletCollator(tokenizer, chosen.scorer, chosen.max_length),
        processing_class=tokenizer,
        compute_metrics=training.triplet_accuracy,
        callbacks=[training.FiniteCallback(), EarlyStoppingCallback(chosen.patience)],
    )


def save(chosen: argparse.Namespace, run: training.Run, trainer: Trainer, accuracy: float, seed: int) -> None:
    """Save the model of a seed, with its card."""
    text = f"Fine-tuned to tell which of two texts is closer to a third, on {len(trainer.train_dataset):,} triplets."
    names, sources = ("max_length", "scorer", "learning_rate"), [chosen.train]
    if not chosen.epochs:
        text, names, sources = "Not fine-tuned, only evaluated.", names[:2], []
    options = {name: getattr(chosen, name) for name in names} | {"seed": seed}
    card = {"base": chosen.model, "data": sources, "hyperparameters": options}
    score, tested = {"accuracy": accuracy}, (chosen.test or chosen.train, "test")
    run.save(trainer.model, trainer.processing_class, text, "sentence-similarity", score, tested, **card)


def fine_tune(chosen: argparse.Namespace, make_trainer: Callable[..., Trainer] = make_trainer) -> None:
    training.check_model_source(chosen.model)
    texts = 2 if chosen.scorer == "cross" else 1
    training.check_length(AutoTokenizer.from_pretrained(chosen.model), chosen.max_length, texts, "--max-length")
    if chosen.learning_rate is None:
        chosen.learning_rate = training.fine_tuning_rate(AutoConfig.from_pretrained(chosen.model))
    data = {name: getattr(chosen, name) for name in (*PARTS, "model")}
    with training.start_run(chosen.output, vars(chosen), data, chosen.resume) as run:
        options = {"named_by": ["--columns"] * 4}
        loaded = {
            part: training.load_triplets(data[part], chosen.columns, part, **options) for part in PARTS if data[part]
        }
        trained = run.results.setdefault(TRAINED, {})
        for seed in map(str, chosen.seeds):
            folder = run.folder / f"seed-{seed}"
            if seed not in trained:
                parts = split(loaded, int(seed))
                for name, baseline in training.TRIPLET_BASELINES.items() if chosen.baselines else ():
                    decisions = {part: baseline(parts["train"], parts[part]) for part in PARTS[1:]}
                    run.results.setdefault(name, {})[seed] = result_of(decisions, parts)
                print(f"seed {seed}")
                trainer = make_trainer(chosen, parts, int(seed), folder)
                if chosen.epochs:
                    training.train_or_resume(trainer)
                scores = {part: trainer.predict(parts[part]).predictions for part in PARTS[1:]}
                decisions = {part: training.triplet_decisions(logits) for part, logits in scores.items()}
                result = result_of(decisions, parts, log=trainer.state.log_history)
                if all(result["validation"] > other["validation"] for other in trained.values()):
                    save(chosen, run, trainer, result["test"], int(seed))
                trained[seed] = result
                run.save_results()
            shutil.rmtree(folder, ignore_errors=True)  # its checkpoints
        training.draw_learning_curves(
            {seed: result["log"] for seed, result in trained.items()}, run.folder / "curves.png"
        )
        for name, seeds in run.results.items():
            accuracies = (training.spread([result[part] for result in seeds.values()], ".3f") for part in PARTS[1:])
            print(f"{name}: accuracy {' in validation, '.join(accuracies)} in the test, seeds {', '.join(seeds)}")
        print(f"best model: {run.folder / 'model'}")


if __name__ == "__main__":
    with training.exit_on_error("finetune_triplet"), training.one_bar():
        fine_tune(make_parser().parse_args())
