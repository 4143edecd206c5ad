"""Train a character language model with Performer, without and with RoPE: Figure 3 (right) of the RoFormer paper.

    python examples/paper/char_lm.py TEXT --output RUNS [--unit byte] [--seeds 0 1 2] [--paper]

TEXT is any text file; the paper uses enwik8, a dump of Wikipedia. The first 90 % are for training, the next 5 % for the
validation loss, and the last 5 % for the bits per character that are printed at the end. All models of a seed start
with the same weights and random features and read the same batches. They differ in their positions: "none", "learned"
ones that are added to the embeddings, RoPE "after" Performer's feature map (equation 19) or "before" it, or "both",
learned ones and RoPE before the map. `--paper` sets the paper's size: 12 layers of 768 with 12 heads, texts of 1,024
tokens, batches of 128, learning rate 1e-4; and the 266 features of the cited code, 64·ln 64 for heads of 64.

Each run is a folder, RUNS/seed-0/none. Several processes may share RUNS, such as `--variants none --seeds 1`. The whole
command with --resume then prints the table.
"""

import argparse
import math
import shutil
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from run_curves import mean_curve, smooth
from transformers import Trainer, TrainingArguments, set_seed

from modeling_roformer import RoFormerConfig, RoFormerForCausalLM
from modeling_roformer.rotary import LearnedPositionEmbeddings
from modeling_roformer.training import (
    Distinct,
    FiniteCallback,
    ScriptParser,
    TrainingError,
    draw_panels,
    exit_on_error,
    last_checkpoint,
    random_seed,
    spread,
    start_run,
)
from modeling_roformer.training.comparing.curves import points

VARIANTS = {  # fields of the configuration
    "none": {"position_encoding": "none"},
    "learned": {"position_encoding": "learned"},
    "after": {"linear_rotation": "after"},
    "before": {"linear_rotation": "before"},
    "both": {"linear_rotation": "before"},
}
TITLES = {"after": "RoPE after the map", "before": "RoPE before the map", "both": "learned, RoPE before the map"}
PAPER = dict(layers=12, hidden_size=768, heads=12, length=1024, batch_size=128, learning_rate=1e-4, features=266)


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--resume", action="store_true", help="resume the runs in --output")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="positions")
    parser.add_argument("--unit", choices=("character", "byte"), default="character", help="a token")
    parser.add_argument("--paper", action="store_true", help="the paper's size, in place of the next seven options")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=256, help="tokens per text")
    parser.add_argument("--batch-size", type=int, default=16, help="texts per step")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--features", type=int, default=64, help="random features per head")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--eval-steps", type=int, default=100, help="steps between evaluations, and checkpoints")
    parser.add_argument("--device-batch", type=int, help="texts that a device computes at once; default: all")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument(
        "--seeds",
        type=random_seed,
        nargs="+",
        default=[0],
        action=Distinct,
        help="seeds of weights, features and batches",
    )
    chosen = parser.parse_args()
    if chosen.paper:
        vars(chosen).update(PAPER)
    if chosen.length < 2:
        parser.error(f"--length is {chosen.length}; expected at least 2: each token is predicted from those before it")
    chosen.device_batch = chosen.device_batch or chosen.batch_size
    if chosen.batch_size % chosen.device_batch:
        parser.error(f"--batch-size {chosen.batch_size} is not a multiple of --device-batch {chosen.device_batch}")
    return chosen


def number_units(text: str, unit: str) -> tuple[torch.Tensor, int]:
    """Return the ids of the characters of a text, or of its bytes in UTF-8, and the size of the vocabulary."""
    if unit == "byte":
        return torch.frombuffer(bytearray(text, "utf-8"), dtype=torch.uint8).long(), 256
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([numbers[character] for character in text], dtype=torch.long), len(numbers)


def texts_of(ids: torch.Tensor, length: int, name: str) -> list[dict[str, torch.Tensor]]:
    """Split ids into consecutive texts of `length` tokens."""
    pieces = ids[: len(ids) // length * length].view(-1, length)
    if not len(pieces):
        raise TrainingError(
            f"TEXT is too short: its {name} part has {len(ids):,} tokens, fewer than --length {length:,}. Give a "
            "longer text, or a smaller --length"
        )
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def new_model(variant: str, vocabulary: int, seed: int, chosen: argparse.Namespace) -> RoFormerForCausalLM:
    """Return a model with random weights from the seed."""
    config = RoFormerConfig(
        vocab_size=vocabulary,
        hidden_size=chosen.hidden_size,
        num_hidden_layers=chosen.layers,
        num_attention_heads=chosen.heads,
        intermediate_size=4 * chosen.hidden_size,
        pad_token_id=None,
        is_decoder=True,
        use_cache=False,
        attention_type="linear",
        linear_feature_map="favor",
        linear_num_features=chosen.features,
        linear_seed=seed,
        max_position_embeddings=chosen.length,
        **VARIANTS[variant],
    )
    set_seed(seed)
    model = RoFormerForCausalLM(config)
    if variant == "both":  # which no configuration has
        model.roformer.embeddings.position_embeddings = LearnedPositionEmbeddings(chosen.length, chosen.hidden_size)
    return model


def train(
    model: RoFormerForCausalLM, parts: dict[str, list], seed: int, chosen: argparse.Namespace, folder: Path
) -> Trainer:
    """Train, from the last checkpoint if there is one."""
    arguments = TrainingArguments(
        str(folder),
        seed=seed,
        max_steps=chosen.steps,
        per_device_train_batch_size=chosen.device_batch,
        per_device_eval_batch_size=chosen.device_batch,
        gradient_accumulation_steps=chosen.batch_size // chosen.device_batch,
        learning_rate=chosen.learning_rate,
        warmup_steps=min(100, chosen.steps // 10),
        bf16=chosen.bf16,
        use_cpu=not torch.accelerator.is_available(),  # else Trainer refuses bfloat16 there
        eval_strategy="steps",
        eval_steps=chosen.eval_steps,
        save_steps=chosen.eval_steps,
        save_total_limit=2,
        logging_steps=max(1, chosen.steps // 200),
        report_to=[],
    )
    data = {"train_dataset": parts["training"], "eval_dataset": parts["validation"]}
    trainer = Trainer(model, arguments, callbacks=[FiniteCallback()], **data)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    return trainer


def table(runs: dict[str, list[dict]]) -> Table:
    """Return a table with means and standard deviations over the runs of each variant."""
    found = Table("positions", "seeds", "bits per character", "validation loss")
    for name, results in runs.items():
        bits, losses = ([of[value] for of in results] for value in ("bits_per_character", "validation_loss"))
        found.add_row(TITLES.get(name, name), str(len(results)), spread(bits, ".3f"), spread(losses, ".4f"))
    return found


def main() -> None:
    """Train a model of each variant and seed, and show the results."""
    chosen = read_arguments()
    ids, vocabulary = number_units(chosen.text.read_text(encoding="utf-8-sig"), chosen.unit)
    ends = [0, len(ids) * 18 // 20, len(ids) * 19 // 20, len(ids)]
    parts = {
        name: texts_of(ids[first:last], chosen.length, name)
        for name, first, last in zip(("training", "validation", "test"), ends, ends[1:], strict=False)
    }
    characters = 1.0  # per token of the test part
    if chosen.unit == "byte":  # a character's further bytes have these first bits
        characters = (ids[ends[2] :] & 0b11000000 != 0b10000000).float().mean().item()
    settings = {name: value for name, value in vars(chosen).items() if name not in ("seeds", "variants")}
    runs: dict[str, list[dict]] = {name: [] for name in chosen.variants}
    for seed, name in product(chosen.seeds, chosen.variants):
        data, folder = {"text": chosen.text}, chosen.output / f"seed-{seed}" / name
        with start_run(folder, settings | {"seed": seed, "variant": name}, data, chosen.resume) as run:
            if not run.results:
                model = new_model(name, vocabulary, seed, chosen)
                start = new_model("learned", vocabulary, seed, chosen).state_dict()
                model.load_state_dict(start, strict=False)  # others than "learned" and "both" have no table
                print(f"{name}, seed {seed}: {model.num_parameters():,} parameters, {len(parts['training']):,} texts")
                trainer = train(model, parts, seed, chosen, folder / "checkpoints")
                loss = trainer.evaluate(parts["test"], metric_key_prefix="test")["test_loss"]
                run.results |= {
                    "bits_per_character": loss / math.log(2) / characters,
                    "validation_loss": points(trainer.state.log_history, "eval_loss")[-1][1],
                    "log": trainer.state.log_history,
                }
                run.save_results()
                shutil.rmtree(folder / "checkpoints")
            runs[name].append(run.results)
    Console(markup=False).print(table(runs))
    logs = {TITLES.get(name, name): [result["log"] for result in results] for name, results in runs.items()}
    panels = {"training loss, smoothed (nats per token)": "loss", "validation loss (nats per token)": "eval_loss"}
    for title, value in panels.items():
        curves = {name: [points(log, value) for log in runs_of_name] for name, runs_of_name in logs.items()}
        smoothed = smooth if value == "loss" else list
        panels[title] = {name: mean_curve(map(smoothed, runs_of_name)) for name, runs_of_name in curves.items()}
    picture = draw_panels(chosen.output / "curves.png", panels)
    print(f"losses, means and ranges over the seeds: {picture}")


if __name__ == "__main__":
    with exit_on_error("char_lm"):
        main()
