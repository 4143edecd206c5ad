"""Arguments of the scripts that pre-train, read without importing torch."""

import argparse
from pathlib import Path

from ..runs.arguments import SIZES, require_files, require_place, seed_number
from ..runs.data_sets import require_sources

SAMPLE_BY = ("line", "document")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options of a pre-training script but --from, --tokenizer and --epochs."""
    parser.add_argument("--corpus", nargs="+", required=True, help="files, folders or names of data sets")
    parser.add_argument(
        "--field",
        "--text",
        default="text",
        help="field of JSON Lines, or column of tables and data sets, with the text",
    )
    parser.add_argument(
        "--sample-by", choices=SAMPLE_BY, default="line", help="what is a document in a text file; default: a line"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument(
        "--config",
        help=f"size of a fresh model ({', '.join(SIZES)}), or a JSON file with fields of RoFormerConfig; default: mini",
    )
    parser.add_argument("--characters", action="store_true", help="one token per character; jieba's words are masked")
    parser.add_argument("--eval", nargs="+", help="held-out documents, in the same forms as --corpus")
    parser.add_argument("--cache", type=Path, help="folder for the tokenized corpus; default: in --output")
    parser.add_argument("--num-proc", type=int, help="number of processes that tokenize")
    parser.add_argument("--seed", type=seed_number, default=0, help="seed of weights, order, masks and dropout")
    parser.add_argument(
        "--device-tokens", type=int, default=16_384, help="maximum number of tokens that a device computes at once"
    )
    parser.add_argument(
        "--save-steps", type=int, default=500, help="steps between checkpoints, and between evaluations"
    )
    parser.add_argument("--logging-steps", type=int, default=50, help="steps between log entries")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")


def require_inputs(chosen: argparse.Namespace) -> None:
    """Raise a TrainingError if a file or a folder does not exist."""
    require_files([chosen.stages, None if chosen.config in SIZES else chosen.config])
    require_sources([*chosen.corpus, *(chosen.eval or [])])
    for place in filter(None, (chosen.tokenizer, vars(chosen).get("start"))):
        require_place(place)
