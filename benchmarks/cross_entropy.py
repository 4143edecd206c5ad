"""Time of cross-entropy over a vocabulary on a CPU, forward and backward: torch's and ours.

    python benchmarks/cross_entropy.py [--labels 2048] [--vocabularies 10000 50000] [--runs 9]

Logits are in float32 and, as under autocast, in bfloat16. The two run in turns in one process.
"""

import argparse
import time
from functools import partial

import measure
import torch
from rich.progress import track
from rich.table import Table

from modeling_roformer.fast_cross_entropy import cross_entropy

FUNCTIONS = {"torch": torch.nn.functional.cross_entropy, "ours": cross_entropy}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def seconds(function, labels: int, vocab_size: int, dtype: torch.dtype) -> float:
    """Measure one forward and backward pass."""
    some = torch.Generator().manual_seed(0)
    logits = torch.randn(labels, vocab_size, generator=some, dtype=dtype).requires_grad_()
    classes = torch.randint(vocab_size, (labels,), generator=some)
    begun = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = function(logits, classes)
    loss.backward()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=2048)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[1_000, 10_000, 37_000, 50_000])
    parser.add_argument("--runs", type=int, default=9, help="runs per median, after one warm-up")
    parser.add_argument("--threads", type=int, default=2)
    measure.add_output(parser)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    table = Table(title=f"Cross-entropy of {chosen.labels:,} labels, milliseconds")
    for column in ("words", *(f"{dtype}: {name}" for dtype in DTYPES for name in (*FUNCTIONS, "speed-up"))):
        table.add_column(column, justify="right")
    with measure.Figures(chosen.output) as figures:
        for vocab_size in track(chosen.vocabularies, "measuring"):
            row = []
            for dtype in DTYPES.values():
                calls = {n: partial(seconds, f, chosen.labels, vocab_size, dtype) for n, f in FUNCTIONS.items()}
                theirs, our = measure.in_turn(calls, chosen.runs).values()
                row += [*(measure.duration(m, "{:.1f}", 1e-3) for m in (theirs, our)), measure.ratio(theirs, our)]
            table.add_row(f"{vocab_size:,}", *row)
        figures.add("cross-entropy", table)


if __name__ == "__main__":
    main()
