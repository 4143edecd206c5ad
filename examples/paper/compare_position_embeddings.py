"""Compare rotary positions with others: train masked language models that differ in their positions only.

    python examples/paper/compare_position_embeddings.py examples/stages/figure3.yaml --corpus TEXT... --eval TEXT... \
        --tokenizer vocab.txt --config examples/stages/figure3.json --seeds 0 1 2 --learning-rates 1e-3 3e-3 \
        --output RUNS

Figure 3 (left) of the RoFormer paper compares with BERT's learned positions. All models of a seed start with the same
weights, except for the table of learned positions, and read the same batches with the same masks. Each run is a folder,
RUNS/seed-0/rotary. With --learning-rates, each encoding is first tried with each rate, in RUNS/trials; the rate with
the lowest held-out loss is used for its runs. With --resume, the same command resumes a stopped comparison.

Several processes may share RUNS: first the trials, such as `--encodings rotary --learning-rates 1e-3 --trials-only`,
then the runs, such as `--encodings rotary --seeds 1 --resume` with all rates. The whole command with --resume then
prints the tables.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table
from run_curves import RunCurves, mean_curve, run_curves, steps_to
from transformers import PreTrainedTokenizerBase, set_seed

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer.training import (
    Corpus,
    Distinct,
    ScriptParser,
    Stage,
    TrainingError,
    draw_panels,
    exit_on_error,
    fresh_model,
    load_tokenizer,
    pretrain,
    random_seed,
    read_stages,
    spread,
)

ENCODINGS = ("rotary", "learned", "sinusoidal", "none")
Runs = dict[str, dict[int, RunCurves]]  # encoding -> seed -> run


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    add = parser.add_argument
    add("stages", metavar="STAGES.yaml", help="list of stages")
    add("--corpus", nargs="+", required=True, help="files, folders or names of data sets")
    add("--eval", nargs="+", required=True, help="held-out documents, in the same forms as --corpus")
    add("--tokenizer", required=True, help="a vocab.txt, or a saved model's folder")
    add("--characters", action="store_true", help="one token per character; jieba's words are masked")
    add("--config", default="mini", help="size of the models, or a JSON file with fields of RoFormerConfig")
    add("--output", type=Path, required=True, help="folder of the runs")
    add("--resume", action="store_true", help="resume runs that were stopped")
    add("--encodings", nargs="+", choices=ENCODINGS, default=ENCODINGS[:3], help="values of position_encoding")
    add(
        "--seeds",
        type=random_seed,
        nargs="+",
        default=[0],
        action=Distinct,
        help="seeds of weights, order, masks and dropout",
    )
    add("--learning-rates", type=float, nargs="+", default=[], help="rates to try, in place of the stage's")
    add("--trial-steps", type=int, default=300, help="steps of a trial of a rate")
    add("--trials-only", action="store_true", help="stop after the trials")
    add("--save-steps", type=int, default=500, help="steps between checkpoints, and between evaluations")
    add("--logging-steps", type=int, default=50, help="steps between log entries")
    add(
        "--device-tokens", type=int, help="tokens that a device computes at once; default: by a GPU's memory, or 16,384"
    )
    add("--bf16", action=argparse.BooleanOptionalAction, default=False, help="bfloat16 autocast")
    return parser.parse_args()


def new_model(
    encoding: str, tokenizer: PreTrainedTokenizerBase, config: str, longest: int, seed: int
) -> RoFormerForMaskedLM:
    """Return a fresh model for texts of at most `longest` tokens, with the weights of all models of this seed."""
    common = fresh_model(tokenizer, config, seed)
    fields = common.config.to_dict()
    fields |= {"position_encoding": encoding, "sinusoidal_scale": fields["initializer_range"]}
    fields["max_position_embeddings"] = max(fields["max_position_embeddings"], longest)
    set_seed(seed)
    model = RoFormerForMaskedLM(RoFormerConfig(**fields))
    model.load_state_dict(common.state_dict(), strict=False)  # only learned positions have a table
    return model


def train(folder: Path, encoding: str, seed: int, stages: list[Stage], chosen: argparse.Namespace) -> None:
    """Train a model with an encoding in a folder."""
    tokenizer = load_tokenizer(chosen.tokenizer, **({"word_segmentation": None} if chosen.characters else {}))
    model = new_model(encoding, tokenizer, chosen.config, max(stage.length for stage in stages), seed)
    print(f"{encoding} positions, seed {seed}, {model.num_parameters():,} parameters: {folder}")
    options = ("resume", "device_tokens", "save_steps", "logging_steps", "bf16")
    options = {name: value for name, value in vars(chosen).items() if name in options}
    corpus, held_out = Corpus(chosen.corpus), Corpus(chosen.eval)
    pretrain(model, tokenizer, stages, corpus, folder, held_out, seed, **options)


def trial_folder(encoding: str, rate: float, chosen: argparse.Namespace) -> Path:
    return chosen.output / "trials" / f"{encoding}-{rate:g}-{chosen.trial_steps}"


def best_rate(encoding: str, stage: Stage, chosen: argparse.Namespace) -> float:
    """Try each learning rate, and return the one with the lowest held-out loss."""
    losses = {}
    for rate in chosen.learning_rates:
        folder = trial_folder(encoding, rate, chosen)
        if not (chosen.resume and (folder / "model").exists()):  # several processes may read a finished trial
            trial = replace(stage, learning_rate=rate, steps=chosen.trial_steps)
            train(folder, encoding, 0, [trial], chosen)  # seed 0, whatever the process's own
        losses[rate] = run_curves(folder).loss
    best = min(losses, key=losses.get)
    tried = ", ".join(f"{loss:.3f} with {rate:g}" for rate, loss in losses.items())
    print(f"{encoding} positions: learning rate {best:g}; held-out loss after {chosen.trial_steps:,} steps: {tried}")
    return best


def check_trials(folder: Path, encoding: str, chosen: argparse.Namespace) -> None:
    """Raise a TrainingError if a trial differs from the run in `folder` in more than its rate, steps and seed."""

    def common(path: Path) -> dict:
        saved = json.loads((path / "settings.json").read_text(encoding="utf-8"))
        stages = [stage | {"learning_rate": None, "steps": None} for stage in saved["settings"]["stages"]]
        return {"data": saved["data"], "settings": saved["settings"] | {"seed": None, "stages": stages}}

    for rate in chosen.learning_rates:
        trial = trial_folder(encoding, rate, chosen)
        if common(trial) != common(folder):
            raise TrainingError(f"{trial} had other settings or data than {folder}: begin again in another --output")


def tables(runs: Runs, rates: dict[str, float]) -> dict[str, Table]:
    """Return two tables: final losses and their distance from rotary positions, and steps to the other final losses.

    Values are means and standard deviations over seeds. A gap is between runs of the same seed.
    """
    columns = "final held-out loss", "accuracy", "gap to rotary, final", "largest gap"
    final = Table("positions", "seeds", "learning rate", *columns)
    reached = Table("positions", "at the final loss of", "seeds", "after steps")
    rotary = runs.get("rotary", {})
    for name, seeds in runs.items():
        losses, accuracies = ([getattr(run, value) for run in seeds.values()] for value in ("loss", "accuracy"))
        gaps = defaultdict(list)  # of each step
        pairs = [
            (run, dict(rotary[seed].compared)) for seed, run in seeds.items() if seed in rotary and name != "rotary"
        ]
        for run, reference in pairs:
            for step, loss in run.compared:
                gaps[step] += [loss - reference[step]] if step in reference else []
        largest = max(gaps, key=lambda step: mean(gaps[step]), default=None)
        cells = [spread(gaps[max(gaps)], ".3f"), f"{spread(gaps[largest], '.3f')} at step {largest:,}"] if gaps else []
        row = name, str(len(seeds)), f"{rates[name]:g}", spread(losses, ".3f"), spread(accuracies, ".1%")
        final.add_row(*row, *cells)
        for other_name, others in runs.items():
            steps = [steps_to(seeds[seed].compared, others[seed].loss) for seed in seeds if seed in others]
            if other_name != name and steps:
                known = [step for step in steps if step is not None]
                never = f", never for {len(steps) - len(known)}" if len(known) < len(steps) else ""
                cell = spread(known, ",.0f") + never if known else "never"
                reached.add_row(name, other_name, str(len(steps)), cell)
    return {"final": final, "reached": reached}


def main() -> None:
    chosen = read_arguments()
    stages = read_stages(chosen.stages)
    rates = dict.fromkeys(chosen.encodings, stages[-1].learning_rate)
    if chosen.learning_rates:
        if len(stages) > 1:
            raise TrainingError(f"{chosen.stages} has {len(stages)} stages: --learning-rates is for one stage")
        rates = {encoding: best_rate(encoding, stages[0], chosen) for encoding in chosen.encodings}
    if chosen.trials_only:
        return
    runs: Runs = defaultdict(dict)
    for seed, (encoding, rate) in product(chosen.seeds, rates.items()):
        folder = chosen.output / f"seed-{seed}" / encoding
        train(folder, encoding, seed, [*stages[:-1], replace(stages[-1], learning_rate=rate)], chosen)
        check_trials(folder, encoding, chosen)
        runs[encoding][seed] = run_curves(folder)
    panels = {}
    for title, curve in ("training loss, smoothed", "training"), ("held-out loss", "held_out"):
        curves = {name: mean_curve(getattr(run, curve) for run in seeds.values()) for name, seeds in runs.items()}
        panels[f"{title} (nats per masked token)"] = curves
    picture = draw_panels(chosen.output / "curves.png", panels)
    Console(markup=False).print(*tables(runs, rates).values(), sep="\n")
    print(f"losses, means and ranges over the seeds: {picture}")


if __name__ == "__main__":
    with exit_on_error("compare_position_embeddings"):
        main()
