"""Speed of forward passes and training steps of four encoders of equal size, in one table.

    python benchmarks/encoders.py --device cuda [--quick] [--output FOLDER/NAME]

The encoders are ours, transformers' RoFormer, BERT and ModernBERT, with 12 layers of 768, 50,000 words and random
weights. All run in turns in one process. Forward passes compute in bfloat16, with no option of this package set. A step
is forward, backward and AdamW of a masked language model in float32, under autocast to bfloat16, with 15 % of the
tokens masked. Ours and ModernBERT compute logits only at labels (`sparse_prediction`), which the others cannot. Dropout
other than attention's is 0.1 in all of them. Peak memory of a GPU is each model's own, with its optimizer.
"""

import logging
from collections.abc import Callable
from functools import partial

import measure
import peers
import torch
from peers import BERT, MODERN, OURS, THEIRS
from rich.table import Table

NAMES = (BERT, THEIRS, MODERN, OURS)
HIDDEN_DROPOUT = 0.1
FORWARD = ((32, 512), (8, 2048), (2, 8192))
ALONE = 128  # tokens of one text
# 23 % of this batch is text: one long text beside short questions.
MIXED = (512, 144, 88, 56, 48, 40, 32, 24)
STEPS = ((32, 512), (8, 2048))
PEERS = (BERT, THEIRS, MODERN)
COLUMNS = ("", "texts", "attention dropout", "unit", *NAMES, *(f"/ {name}" for name in PEERS))


def make_forward(name: str, device: str, size: peers.Size) -> Callable:
    """Return a subject: a forward pass of texts with these lengths, padded to the longest."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with torch.device(device):  # which draws weights faster
        model = peers.make_encoder(name, size).to(torch.bfloat16)
    some = torch.Generator().manual_seed(0)

    @torch.no_grad()
    def run(lengths: tuple[int, ...]) -> None:
        ids = torch.randint(5, size.words, (len(lengths), max(lengths)), generator=some)
        mask = (torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]).long()
        model(ids.to(device), attention_mask=None if mask.all() else mask.to(device))

    return run


def make_step(name: str, device: str, size: peers.Size, dropout: float) -> Callable:
    """Return a subject: one training step on b texts of s tokens, which returns the loss."""
    with torch.device(device):
        model = peers.make_masked(name, size, dropout, HIDDEN_DROPOUT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    some = torch.Generator().manual_seed(0)

    def run(b: int, s: int) -> float:
        ids = torch.randint(5, size.words, (b, s), generator=some)
        masked = torch.rand(b, s, generator=some) < 0.15
        with torch.autocast(device, torch.bfloat16):
            loss = model(
                input_ids=ids.masked_fill(masked, 4).to(device),
                attention_mask=torch.ones(b, s, dtype=torch.long, device=device),
                labels=ids.masked_fill(~masked, -100).to(device),
            ).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return run


def in_turn(subjects: dict, arguments: tuple, runs: int) -> dict[str, measure.Measurement]:
    """Measure all models with the same arguments, by name."""
    return measure.alternate({name: (subject, *arguments) for name, subject in subjects.items()}, runs)


def row(cell: Callable[[measure.Measurement], str], measured: dict[str, measure.Measurement]) -> tuple[str, ...]:
    """Return the cells of a row: of each model, and how many times as fast ours is as the others."""
    return *(cell(measured[name]) for name in NAMES), *(measure.ratio(measured[name], measured[OURS]) for name in PEERS)


def add_forward(table: Table, chosen, size: peers.Size, progress: Callable[[str], None]) -> None:
    progress("forward passes")
    made = {name: measure.Resident(make_forward, name, chosen.device, size) for name in NAMES}
    for b, s in FORWARD:
        s = min(s, size.longest)
        measured = in_turn(made, ((s,) * b,), chosen.runs)
        table.add_row("forward pass", f"{b} × {s:,}", "", "tokens/s", *row(partial(measure.rate, b * s), measured))
    s = min(ALONE, size.longest)
    measured = in_turn(made, ((s,),), 3 * chosen.runs)
    table.add_row("forward pass", f"1 × {s}", "", "ms", *row(partial(measure.duration, unit=1e-3), measured))
    longest = min(MIXED[0], size.longest)
    lengths = tuple(length * longest // MIXED[0] for length in MIXED * 8)
    texts = f"{len(lengths)} × {min(lengths)} to {longest}, {sum(lengths) / len(lengths) / longest:.0%} text"
    measured = in_turn(made, (lengths,), chosen.runs)
    table.add_row("forward pass", texts, "", "texts/s", *row(partial(measure.rate, len(lengths)), measured))
    table.add_section()


def add_steps(table: Table, chosen, size: peers.Size, dropout: float, progress: Callable[[str], None]) -> None:
    progress(f"training steps, attention dropout {dropout:g}")
    made = {name: measure.Resident(make_step, name, chosen.device, size, dropout) for name in NAMES}
    for b, s in STEPS:
        s = min(s, size.longest)
        measured = in_turn(made, (b, s), chosen.runs)
        words = "training step", f"{b} × {s:,}", f"{dropout:g}"
        table.add_row(*words, "tokens/s", *row(partial(measure.rate, b * s), measured))
        if chosen.device == "cuda":
            peaks = (f"{measured[name].peak / 1e9:.1f}" for name in NAMES)
            table.add_row(*words, "peak, GB", *peaks, *("" for _ in PEERS))
    table.add_section()


def main() -> None:
    parser = measure.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0, 0.1], help="of attention")
    parser.add_argument("--runs", type=int, default=7, help="runs of a median, after one warm-up")
    parser.add_argument("--quick", action="store_true", help="small models, short texts, one run")
    chosen = parser.parse_args()
    size = peers.Size(longest=max(s for _, s in FORWARD))
    if chosen.quick:
        size, chosen.runs = peers.Size(layers=2, width=192, words=1000, longest=32), 1
    table = Table(*COLUMNS, title=f"Encoders of {size.layers} layers of {size.width} on {chosen.device}")
    with measure.Figures(chosen.output) as figures:
        with figures.console.status("") as status:
            add_forward(table, chosen, size, status.update)
            for dropout in chosen.dropout:
                add_steps(table, chosen, size, dropout, status.update)
        figures.add("encoders", table)


if __name__ == "__main__":
    main()
