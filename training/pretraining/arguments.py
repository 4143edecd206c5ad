"""The command line of a script that pre-trains: what is read, where it goes, and how it is computed."""

import argparse
from pathlib import Path

from .pretrain import Corpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All but what the model starts from, and --tokenizer."""
    parser.add_argument("stages", metavar="STAGES.yaml", help="what to do, stage after stage")
    parser.add_argument("--corpus", nargs="+", required=True, help="files, folders, names of data sets")
    parser.add_argument("--field", default="text", help="where JSON Lines and data sets keep the text")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--config", help="JSON file with fields of RoFormerConfig, for a fresh model")
    parser.add_argument(
        "--characters", action="store_true", help="a token for each character; jieba's words are masked"
    )
    parser.add_argument("--eval", nargs="+", help="held-out documents, as --corpus")
    parser.add_argument("--cache", type=Path, help="folder for the tokenized corpus; in --output where not given")
    parser.add_argument("--num-proc", type=int, help="processes that tokenize")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order, masks and dropout")
    parser.add_argument("--device-tokens", type=int, default=16_384, help="most tokens that a device computes at once")
    parser.add_argument("--save-steps", type=int, default=500, help="steps between checkpoints, and evaluations")
    parser.add_argument("--logging-steps", type=int, default=50, help="steps between entries of the log")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 where autocast does")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")


def tokenizer_options(chosen: argparse.Namespace) -> dict:
    """For `load_tokenizer`."""
    return {"word_segmentation": None} if chosen.characters else {}


def pretraining_options(chosen: argparse.Namespace) -> dict:
    """For `pretrain`: all of its arguments but model, tokenizer, stages and output."""

    def corpus(sources: list[str]) -> Corpus:
        return Corpus(sources, chosen.cache or chosen.output / "corpus", chosen.field, chosen.num_proc)

    return {
        "corpus": corpus(chosen.corpus),
        "held_out": corpus(chosen.eval) if chosen.eval else None,
        "seed": chosen.seed,
        "device_tokens": chosen.device_tokens,
        "save_steps": chosen.save_steps,
        "logging_steps": chosen.logging_steps,
        "bf16": chosen.bf16,
        "torch_compile": chosen.compile,
    }
