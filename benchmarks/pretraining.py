"""Speed of `pretrain` at its steady state, compared with the bare training step on the same pieces.

    python benchmarks/pretraining.py [--device cpu|cuda] [--sizes mini base] [--batch 128]

The bare step is that of benchmarks/training.py: forward, backward and AdamW, on batches that lie on the device, and the
loss is read. `pretrain` also makes the batches, masks words, clips gradients, checks that they are finite, counts right
predictions, and has a schedule and callbacks. Both start from the same weights, and compute in bfloat16 on a GPU that
has it. They take turns in one process: some steps of one, then the bare step on the very pieces of these steps. The
first steps of `pretrain`, and of each turn, are not timed. A third row is the speed of one worker that makes batches.

The corpus is random words of a vocabulary, in documents of 145 tokens on average and of at most 512, as in Chinese
corpora. Padding does not count as tokens. "share" is that of the bare step's speed.
"""

import argparse
import copy
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import datasets
import numpy as np
import reporting
import timing
import torch
from rich.table import Table
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

PRETRAIN, BARE, WORKER = "pretrain", "the bare step", "one worker's batches"
LENGTH, MEAN = 512, 145  # tokens of a piece: at most, and on average
DOCUMENTS = 2_000
VOCAB = reporting.ROOT / "examples" / "roformer-mini-zh" / "vocab.txt"
# Pieces a step, steps before the first turn, those before the clock starts in a turn, and those of a turn; turns.
AMOUNTS = {"cpu": (16, 1, 1, 2, 3), "cuda": (128, 50, 10, 20, 3), "quick": (4, 1, 1, 2, 2)}


class Measured(Exception):
    """Exception that stops `pretrain` once everything is measured."""


def write_corpus(path: Path) -> None:
    """Write a document a line, of random words."""
    words = [word for word in VOCAB.read_text(encoding="utf-8").split("\n") if "\u4e00" <= word[:1] <= "\u9fff"]
    some = np.random.default_rng(0)
    lengths = np.minimum(some.exponential(MEAN, DOCUMENTS) + 1, LENGTH - 2).astype(int)
    path.write_text("\n".join("".join(some.choice(words, length)) for length in lengths), encoding="utf-8")


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Turns(TrainerCallback):
    """Callback that times steps of a trainer, in turns with the bare step on the same pieces.

    times: seconds of each turn, by what was timed. tokens: those of each turn.
    """

    def __init__(self, trainer, chosen: argparse.Namespace, progress: Callable[[str], None]):
        self.trainer, self.chosen, self.progress = trainer, chosen, progress
        self.model = copy.deepcopy(trainer.model).to(trainer.args.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.times: dict[str, list[float]] = {PRETRAIN: [], BARE: [], WORKER: []}
        self.tokens: list[int] = []
        self.next = chosen.warm_up + chosen.settle  # first step that the next turn times

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.next:
            self.progress(f"turn {len(self.tokens) + 1} of {self.chosen.runs}: {PRETRAIN}")
            synchronize(args.device)
            self.start = time.perf_counter()
        elif state.global_step == self.next + self.chosen.steps:
            synchronize(args.device)
            self.times[PRETRAIN].append(time.perf_counter() - self.start)
            self.time_bare_steps(args)
            if len(self.tokens) == self.chosen.runs:
                raise Measured
            self.next = state.global_step + self.chosen.settle

    def time_bare_steps(self, args) -> None:
        start = time.perf_counter()
        steps = [list(self.batches(args, step)) for step in range(self.next, self.next + self.chosen.steps)]
        self.times[WORKER].append(time.perf_counter() - start)
        self.tokens.append(sum(int(part["attention_mask"].sum()) for parts in steps for part in parts))
        on_device = [
            [{name: values.to(args.device) for name, values in part.items()} for part in parts] for parts in steps
        ]
        self.model.train()
        for parts in on_device[: self.chosen.settle]:
            self.bare_step(parts, args)
        synchronize(args.device)
        start = time.perf_counter()
        for parts in on_device:
            self.bare_step(parts, args)
        self.times[BARE].append(time.perf_counter() - start)

    def batches(self, args, step: int) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the parts of a step's batch, as the trainer's data loader makes them."""
        size, parts = args.per_device_train_batch_size, args.gradient_accumulation_steps
        for part in range(step * parts, (step + 1) * parts):
            pieces = self.trainer.train_dataset.__getitems__([*range(part * size, (part + 1) * size)])
            yield self.trainer.data_collator(pieces)

    def bare_step(self, parts: Sequence[dict[str, torch.Tensor]], args) -> float:
        loss = torch.zeros((), device=args.device)
        for part in parts:
            with torch.autocast(args.device.type, torch.bfloat16, enabled=args.bf16):
                part_loss = self.model(**part).loss / len(parts)
            part_loss.backward()
            loss += part_loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


@contextmanager
def in_turns(chosen: argparse.Namespace, progress: Callable[[str], None]) -> Iterator[list[Turns]]:
    """Make `pretrain` take turns with the bare step in a block, and yield a list that will have its `Turns`."""
    from modeling_roformer.training.pretraining import pretrain as module

    usual, found = module.StageTrainer, []

    def make_trainer(*arguments, **options):
        trainer = usual(*arguments, **options)
        trainer.remove_callback(PrinterCallback)
        found.append(Turns(trainer, chosen, progress))
        trainer.add_callback(found[0])
        return trainer

    module.StageTrainer = make_trainer
    try:
        yield found
    finally:
        module.StageTrainer = usual


def measure_one(size: str, dropout: float, corpus, chosen: argparse.Namespace, progress: Callable) -> Turns:
    """Return the turns of a size of `pretrain_mlm.py --config`, with a share of attention dropout."""
    from modeling_roformer.training import Stage, fresh_model, load_tokenizer, pretrain

    tokenizer = load_tokenizer(VOCAB)
    model = fresh_model(tokenizer, size)
    model.config.attention_probs_dropout_prob = dropout
    model = type(model)(model.config)
    steps = chosen.warm_up + chosen.runs * (chosen.settle + chosen.steps)
    stage = Stage(LENGTH, chosen.batch, steps + 1, 1e-4)
    with tempfile.TemporaryDirectory() as folder, in_turns(chosen, progress) as found:
        try:
            pretrain(model, tokenizer, [stage], corpus, Path(folder) / "run", disable_tqdm=True, save_steps=10**9)
        except Measured:
            return found[0]
    raise AssertionError("the run ended before its last turn")


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU, if there is one")
    parser.add_argument("--quick", action="store_true", help="one small size and few steps, to see that it works")
    parser.add_argument("--sizes", nargs="+", help="as of `pretrain_mlm.py --config`; default: mini base")
    parser.add_argument("--dropout", type=float, nargs="+", help="of attention; default: 0 0.1")
    parser.add_argument("--batch", type=int, help="pieces a step; default: 16 on a CPU, 128 on a GPU")
    parser.add_argument("--steps", type=int, help="steps of a turn; default: 2 on a CPU, 20 on a GPU")
    parser.add_argument("--warm-up", type=int, help="steps before the first turn; default: 1 on a CPU, 50 on a GPU")
    parser.add_argument("--runs", type=int, help="turns; default: 3")
    chosen = parser.parse_args()
    # `pretrain` takes the GPU that torch finds when it is imported, which is why the functions import it.
    if chosen.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    has_gpu = torch.cuda.is_available()
    if chosen.device == "cuda" and not has_gpu:
        parser.error("torch finds no GPU: leave out --device cuda")
    chosen.device = "cuda" if has_gpu else "cpu"
    batch, warm_up, settle, steps, runs = AMOUNTS["quick" if chosen.quick else chosen.device]
    sizes, dropout = (["tiny"], [0.1]) if chosen.quick else (["mini", "base"], [0.0, 0.1])
    usual = dict(batch=batch, warm_up=warm_up, settle=settle, steps=steps, runs=runs, sizes=sizes, dropout=dropout)
    for name, value in usual.items():
        setattr(chosen, name, getattr(chosen, name, None) or value)

    logging.getLogger("transformers").setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    from modeling_roformer.training import Corpus

    columns = ("size", "attention dropout", "pieces a step", "", "steps/s", "tokens/s", "share")
    table = Table(*columns, title=f"Pre-training, {chosen.device}")
    with (
        reporting.Figures(chosen.output, "accelerate") as figures,
        figures.console.status("texts are made") as status,
        tempfile.TemporaryDirectory() as folder,
    ):
        write_corpus(Path(folder) / "corpus.txt")
        corpus = Corpus([Path(folder) / "corpus.txt"], cache=folder)
        for size, dropout in product(chosen.sizes, chosen.dropout):
            turns = measure_one(size, dropout, corpus, chosen, status.update)
            measured = {name: timing.Measurement(times) for name, times in turns.times.items()}
            for name, m in measured.items():
                speed = reporting.rate(chosen.steps, m, "{:.3g}")
                tokens = reporting.Cell(
                    "{:,.0f}", [n / seconds for n, seconds in zip(turns.tokens, m.times, strict=True)]
                )
                share = reporting.ratio(measured[BARE], m, "{:.2f}")
                table.add_row(size, f"{dropout:g}", f"{chosen.batch:,}", name, speed, tokens, share)
            table.add_section()
        figures.add("pretraining", table)


if __name__ == "__main__":
    sys.exit(main())
