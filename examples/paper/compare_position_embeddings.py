"""Compare rotary positions with others: train masked language models that differ in their positions only.

    python examples/paper/compare_position_embeddings.py examples/stages/positions.yaml --corpus TEXT... \
        --eval TEXT... --tokenizer vocab.txt --config config.json --output RUNS

Figure 3 (left) of the RoFormer paper compares with BERT's learned positions. All models start with the same weights,
except for the table of learned positions, and read the same batches with the same masks. Each run is a folder in RUNS.
With --resume, the same command goes on where it was stopped.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from transformers import PreTrainedTokenizerBase, set_seed

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer.training import Corpus, exit_on_error, fresh_model, load_tokenizer, pretrain, read_stages
from modeling_roformer.training.comparing.curves import RunCurves, draw_panels, run_curves, steps_to, times_as_fast

ENCODINGS = ("rotary", "learned", "sinusoidal", "none")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("stages", metavar="STAGES.yaml", help="list of stages")
    add("--corpus", nargs="+", required=True, help="files, folders or names of data sets")
    add("--eval", nargs="+", help="held-out documents, in the same forms as --corpus")
    add("--tokenizer", required=True, help="a vocab.txt, or a saved model's folder")
    add("--config", default="mini", help="size of the models, or a JSON file with fields of RoFormerConfig")
    add("--output", type=Path, required=True, help="folder of the runs")
    add("--resume", action="store_true", help="go on with runs that were stopped")
    add("--encodings", nargs="+", choices=ENCODINGS, default=ENCODINGS[:3], help="values of position_encoding")
    add("--seed", type=int, default=0, help="seed of weights, order, masks and dropout")
    add("--save-steps", type=int, default=500, help="steps between checkpoints, and between evaluations")
    add("--logging-steps", type=int, default=50, help="steps between log entries")
    add("--bf16", action="store_true", help="bfloat16 autocast")
    return parser.parse_args()


def equal_models(
    encodings: Sequence[str], tokenizer: PreTrainedTokenizerBase, config: str | None, longest: int, seed: int
) -> dict[str, RoFormerForMaskedLM]:
    """Return a fresh model for each encoding, with the same weights except for a table of positions.

    Args:
        config: size of the models, or a JSON file with fields of RoFormerConfig.
        longest: maximum number of tokens of a text; the minimum number of positions.
    """
    first = fresh_model(tokenizer, config, seed)
    fields = first.config.to_dict()
    fields["max_position_embeddings"] = max(fields["max_position_embeddings"], longest)
    models = {}
    for encoding in encodings:
        set_seed(seed)  # the table of learned positions does not depend on the models before
        fields |= {"position_encoding": encoding, "sinusoidal_scale": first.config.initializer_range}
        models[encoding] = RoFormerForMaskedLM(RoFormerConfig(**fields))
        models[encoding].load_state_dict(first.state_dict(), strict=False)  # only learned positions have a table
    return models


def tables(runs: dict[str, RunCurves], measured: str) -> tuple[Table, Table]:
    """Return two tables: the final loss of each run, and its steps to the final loss of each other run."""
    final = Table("positions", f"final {measured} loss", "accuracy")
    reached = Table("positions", "at the final loss of", "after steps", "times as fast")
    for table in final, reached:
        for column in table.columns[-2:]:
            column.justify = "right"
    for name, run in runs.items():
        final.add_row(name, f"{run.loss:.3f}", f"{run.accuracy:.1%}")
        for other_name, other in runs.items():
            if other is not run:
                steps, times = steps_to(run.compared, other.loss), times_as_fast(run.compared, other.compared)
                cells = ("never", "") if steps is None else (f"{steps:,.0f}", f"{times:.2f}")
                reached.add_row(name, other_name, *cells)
    return final, reached


def main() -> None:
    chosen = read_arguments()
    stages = read_stages(chosen.stages)
    tokenizer = load_tokenizer(chosen.tokenizer)
    models = equal_models(
        chosen.encodings, tokenizer, chosen.config, max(stage.length for stage in stages), chosen.seed
    )
    for encoding, model in models.items():
        print(f"{encoding} positions, {model.num_parameters():,} parameters")
        pretrain(
            model,
            tokenizer,
            stages,
            Corpus(chosen.corpus),
            chosen.output / encoding,
            held_out=Corpus(chosen.eval) if chosen.eval else None,
            seed=chosen.seed,
            resume=chosen.resume,
            save_steps=chosen.save_steps,
            logging_steps=chosen.logging_steps,
            bf16=chosen.bf16,
        )
    runs = {encoding: run_curves(chosen.output / encoding, chosen.eval is not None) for encoding in models}
    panels = {"training loss, smoothed": {encoding: run.training for encoding, run in runs.items()}}
    if chosen.eval:
        panels["held-out loss"] = {encoding: run.held_out for encoding, run in runs.items()}
    picture = draw_panels(chosen.output / "losses.png", panels)
    Console(markup=False).print(*tables(runs, "held-out" if chosen.eval else "smoothed training"), sep="\n")
    print(f"losses: {picture}; each folder beside it is a run")


if __name__ == "__main__":
    with exit_on_error("compare_position_embeddings"):
        main()
