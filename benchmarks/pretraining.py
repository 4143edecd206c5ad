"""Speed of `pretrain` at its steady state, compared with the bare training step on the same batches.

    python benchmarks/pretraining.py [--device cpu|cuda]

The bare step is that of benchmarks/training.py: forward, backward and AdamW, on batches that lie on the device, and the
loss is read. `pretrain` also makes the batches, masks words, clips gradients, checks that they are finite, counts right
predictions, and has a schedule and callbacks. Both start from the same weights, and compute in bfloat16 on a GPU that
has it. They take turns in one process: some steps of one, then the bare step on the very batches of these steps. The
first steps of `pretrain`, and of each turn, are not timed. Attention dropout is 0.

The corpus is random words of a vocabulary, in documents of 145 tokens on average and of at most 512, as in Chinese
corpora. Padding does not count as tokens. "share" is that of the bare step's speed.
"""

import copy
import os
import tempfile
from pathlib import Path

import datasets
import numpy as np
import peers
import reporting
import timing
import torch
from rich.table import Table

PRETRAIN, BARE = "pretrain", "the bare step"
LENGTH, MEAN = 512, 145  # tokens of a piece: at most, and on average
DOCUMENTS = 2_000
TURNS, DROPOUT = 3, 0.0
VOCAB = reporting.ROOT / "examples" / "roformer-mini-zh" / "vocab.txt"
# Pieces a step, steps before the first turn, those before the clock starts in a turn, and those of a turn.
AMOUNTS = {"cpu": (16, 1, 1, 2), "cuda": (128, 50, 10, 10), "quick": (4, 1, 1, 2)}


def write_corpus(path: Path) -> None:
    """Write a document a line, of random words."""
    words = [word for word in VOCAB.read_text(encoding="utf-8").split("\n") if "\u4e00" <= word[:1] <= "\u9fff"]
    some = np.random.default_rng(0)
    lengths = np.minimum(some.exponential(MEAN, DOCUMENTS) + 1, LENGTH - 2).astype(int)
    path.write_text("\n".join("".join(some.choice(words, length)) for length in lengths), encoding="utf-8")


class Turns:
    """Hook of a model in training that times its steps, in turns with the bare step on the same batches.

    Each call of the model is a step: `pretrain` is told to compute a step's pieces at once.

    times: seconds of each turn, by what was timed. tokens: those of each turn.
    """

    def __init__(self, model, bf16: bool, warm_up: int, settle: int, steps: int):
        self.bare, self.bf16 = copy.deepcopy(model), bf16
        self.bare.config.update({"unpad_inputs": True, "sparse_prediction": True})  # as in `pretrain`
        self.settle, self.steps, self.calls, self.begin = settle, steps, 0, warm_up + settle
        self.times: dict[str, list[float]] = {PRETRAIN: [], BARE: []}
        self.tokens: list[int] = []
        self.batches: list[dict] = []

    def __call__(self, model, arguments: tuple, batch: dict) -> None:
        """Note the time before the first step of a turn; after the last one, run the bare steps."""
        if self.calls == self.begin + self.steps:
            self.times[PRETRAIN].append(timing.timer() - self.start)
            self.tokens.append(sum(int(batch["attention_mask"].sum()) for batch in self.batches))
            self.times[BARE].append(self.time_bare_steps(model.device))
            self.begin, self.batches = self.calls + self.settle, []
        if self.calls == self.begin:
            self.start = timing.timer()
        if self.calls >= self.begin:
            self.batches.append(batch)
        self.calls += 1

    def time_bare_steps(self, device: torch.device) -> float:
        model = self.bare.to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        for step, batch in enumerate([*self.batches[: self.settle], *self.batches]):
            if step == self.settle:
                start = timing.timer()
            with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
                loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
        return timing.timer() - start


def measure_one(size: str, corpus, batch: int, warm_up: int, settle: int, steps: int) -> Turns:
    """Return the turns of a size of `pretrain_mlm.py --config`, without attention dropout."""
    from modeling_roformer.training import Stage, fresh_model, load_tokenizer, pretrain
    from modeling_roformer.training.runs.device import has_bfloat16

    tokenizer = load_tokenizer(VOCAB)
    model = fresh_model(tokenizer, size)
    model.config.attention_probs_dropout_prob = DROPOUT
    model = type(model)(model.config)
    turns = Turns(model, has_bfloat16(), warm_up, settle, steps)
    model.register_forward_pre_hook(turns, with_kwargs=True)
    stage = Stage(LENGTH, batch, warm_up + TURNS * (settle + steps) + 1, 1e-4)
    with tempfile.TemporaryDirectory() as folder:
        run, options = Path(folder) / "run", {"disable_tqdm": True, "save_steps": 10**9}
        pretrain(model, tokenizer, [stage], corpus, run, device_tokens=batch * LENGTH, **options)
    return turns


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="one small size and few steps, to see that it works")
    chosen = parser.parse_args()
    # `pretrain` takes the GPU that torch finds when it is imported, which is why functions import it.
    if chosen.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    batch, warm_up, settle, steps = AMOUNTS["quick" if chosen.quick else chosen.device]
    peers.quiet()
    datasets.disable_progress_bars()
    from modeling_roformer.training import Corpus

    columns = ("size", "attention dropout", "pieces a step", "", "steps/s", "tokens/s", "share")
    table = Table(*columns, title=f"Pre-training, {chosen.device}")
    with reporting.Figures(chosen.output, "accelerate") as figures, tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder) / "corpus.txt")
        corpus = Corpus([Path(folder) / "corpus.txt"], cache=folder)
        for size in ("tiny",) if chosen.quick else ("mini", "base"):
            turns = measure_one(size, corpus, batch, warm_up, settle, steps)
            measured = {name: timing.Measurement(times) for name, times in turns.times.items()}
            for name, m in measured.items():
                speed = reporting.rate(steps, m, "{:.3g}")
                tokens = [number / seconds for number, seconds in zip(turns.tokens, m.times, strict=True)]
                share = reporting.ratio(measured[BARE], m, "{:.2f}")
                row = f"{batch:,}", name, speed, reporting.Cell("{:,.0f}", tokens), share
                table.add_row(size, f"{DROPOUT:g}", *row)
            table.add_section()
        figures.add("pretraining", table)


if __name__ == "__main__":
    main()
