"""Time and peak memory of a masked language model's training step, compared with models of equal size.

    python benchmarks/training.py [--device cpu|cuda]

A step is forward, backward and AdamW on 8 texts of 512 tokens from 50,000 words, 15 % of them masked. The models have
random weights and 12 layers of 768; they run in turns, on a CPU each in its own process. Ours and ModernBERT compute
logits only at labels (`sparse_prediction`); the others have no such option. Attention dropout is 0 on all sides, then
0.1; the CPU has no fused kernel for it. Other dropout is 0.1. On a GPU, steps have 16,384 tokens, autocast computes in
bfloat16, and BERT and ModernBERT are measured as well.
"""

from collections.abc import Callable

import peers
import reporting
import timing
import torch
from peers import BERT, MODERN, OURS, THEIRS
from rich.table import Table

NAMES = {"cpu": (THEIRS, OURS), "cuda": (THEIRS, BERT, MODERN, OURS)}
# Texts and tokens of a step.
BATCHES = {"cpu": ((8, 512),), "cuda": ((32, 512), (8, 2048)), "quick": ((2, 32),)}
HIDDEN_DROPOUT = 0.1


def make_step(name: str, device: str, size: peers.Size, dropout: float) -> Callable:
    """Return the subject of a worker: one training step on b texts of s tokens, which returns the loss."""
    with torch.device(device):  # which draws weights faster
        model = peers.make_masked(name, size, dropout, HIDDEN_DROPOUT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    some = torch.Generator().manual_seed(0)

    def step(b: int, s: int) -> float:
        ids = torch.randint(5, size.words, (b, s), generator=some)
        masked = torch.rand(b, s, generator=some) < 0.15
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(
                input_ids=ids.masked_fill(masked, 4).to(device),
                attention_mask=torch.ones(b, s, dtype=torch.long, device=device),
                labels=ids.masked_fill(~masked, -100).to(device),
            ).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="try what a GPU runs, with small models")
    chosen = parser.parse_args()
    tried, batches = "cuda" if chosen.quick else chosen.device, BATCHES["quick" if chosen.quick else chosen.device]
    longest = max(s for _, s in batches)
    size = peers.Size(2, 192, 1000, longest) if chosen.quick else peers.Size(longest=longest)
    columns = ("texts", "attention dropout", "", "seconds", "speed-up", "peak, MB", "share")
    table = Table(*columns, title=f"A training step, {chosen.device}; speed-up and share are relative to {THEIRS}")
    with reporting.Figures(chosen.output) as figures:
        for dropout in (0.0, 0.1):
            with timing.subjects(chosen.device, make_step, NAMES[tried], chosen.device, size, dropout) as models:
                for b, s in batches:
                    calls = {name: (model, b, s) for name, model in models.items()}
                    measured = timing.alternate(calls, runs=1 if chosen.quick else 2, title=f"{b} × {s}")
                    for name, m in measured.items():
                        row = reporting.duration(m), reporting.ratio(measured[THEIRS], m)
                        memory = f"{m.peak / reporting.MB:,.0f}", f"{m.peak / measured[THEIRS].peak:.2f}"
                        table.add_row(f"{b} × {s:,}", f"{dropout:g}", name, *row, *memory)
                    table.add_section()
        figures.add(tried, table)


if __name__ == "__main__":
    main()
