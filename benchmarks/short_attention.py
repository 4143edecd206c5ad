"""Time of softmax attention in bfloat16 on a CPU, forward and backward: torch's fused kernel and ours for training.

    python benchmarks/short_attention.py [--lengths 16 128 1024] [--tokens 8192] [--runs 9]

12 heads of 64 dimensions; texts of one length with --tokens together, with and without a key padding mask. The two run in
turns in one process.
"""

import argparse
import time
from functools import partial

import measure
import torch
from rich.progress import track
from rich.table import Table
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from modeling_roformer.fast_short_attention import short_attention_forward

HEADS, HEAD_DIM = 12, 64
FUNCTIONS = {"torch's kernel": sdpa_attention_forward, "ours": short_attention_forward}


def seconds(function, texts: int, length: int, is_masked: bool) -> float:
    """Measure one forward and backward pass."""
    module = torch.nn.Module()
    module.is_causal = False
    some = torch.Generator().manual_seed(0)
    query, key, value, gradient = torch.randn(
        4, texts, length, HEADS, HEAD_DIM, generator=some, dtype=torch.bfloat16
    ).unbind()
    parts = [x.transpose(1, 2).requires_grad_() for x in (query, key, value)]
    mask = None
    if is_masked:
        mask = torch.ones(texts, 1, length, length, dtype=torch.bool)
        mask[..., length * 3 // 4 :] = False
    begun = time.perf_counter()
    output = function(module, *parts, mask, scaling=HEAD_DIM**-0.5)[0]
    output.backward(gradient)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--tokens", type=int, default=8192, help="total of all texts")
    parser.add_argument("--runs", type=int, default=9, help="runs per median, after one warm-up")
    parser.add_argument("--threads", type=int, default=2)
    measure.add_output(parser)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    table = Table(title=f"Softmax attention in bfloat16, {chosen.tokens:,} tokens, milliseconds")
    for column in (
        "tokens per text",
        *(f"{name}{mask}" for mask in ("", ", masked") for name in (*FUNCTIONS, "speed-up")),
    ):
        table.add_column(column, justify="right")
    with measure.Figures(chosen.output) as figures:
        for length in track(chosen.lengths, "measuring"):
            row, texts = [], max(1, chosen.tokens // length)
            for is_masked in (False, True):
                calls = {n: partial(seconds, f, texts, length, is_masked) for n, f in FUNCTIONS.items()}
                theirs, our = measure.in_turn(calls, chosen.runs).values()
                row += [*(measure.duration(m, "{:.1f}", 1e-3) for m in (theirs, our)), measure.ratio(theirs, our)]
            table.add_row(f"{length:,}", *row)
        figures.add("attention", table)


if __name__ == "__main__":
    main()
