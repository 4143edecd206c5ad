"""Speed and peak memory of the forward pass, compared with transformers' models of equal size.

    python benchmarks/inference.py [--device cpu|cuda]

Models with random weights (12 layers of 768; ModernBERT's gated feed-forward layers have as many parameters as the
others') run in turns on each batch, on a CPU each in its own process. So does the ceiling: only the matrix products and
scaled dot product attention of the same shapes, a bound for every implementation. A CPU runs one text in float32; a GPU
16,384 tokens in bfloat16, one short text, and texts of mixed length. The compiled model's memory includes the
compiler's.

Then follow the rotation's share of one layer's time, and a batch of mixed lengths with and without padding.
"""

from collections.abc import Callable

import peers
import reporting
import timing
import torch
from peers import BERT, MODERN, OURS, THEIRS
from rich.table import Table
from torch.nn import functional as F

import modeling_roformer as ours
from modeling_roformer.rotary import rotary_position_embeddings, rotate, scaled_inverse_frequencies

COMPILED, CEILING = "RoFormer, compiled", "ceiling"
NAMES = (THEIRS, BERT, MODERN, OURS, COMPILED, CEILING)
# A quarter of this batch is text: one long text beside short questions.
MIXED = (512, 160, 96, 64, 64, 48, 48, 32)
# Batches, as the lengths of their texts.
BATCHES = {
    "cpu": ((512,), (1536,), (4096,)),
    "cuda": ((512,) * 32, (2048,) * 8, (8192,) * 2, (128,), MIXED * 8),
    "quick": ((32,) * 2, (16,), (32, 8)),
}


def ceiling(model: ours.RoFormerModel, hidden_states: torch.Tensor) -> None:
    """Only the matrix products and the attention of all layers."""
    heads = hidden_states.unflatten(-1, (-1, model.config.head_dim)).transpose(1, 2)
    for layer in model.encoder.layer:
        attention = layer.attention.self
        for linear in (attention.query, attention.key, attention.value, layer.attention.output.dense):
            F.linear(hidden_states, linear.weight)
        F.scaled_dot_product_attention(heads, heads, heads)
        F.linear(F.linear(hidden_states, layer.intermediate.dense.weight), layer.output.dense.weight)


def make_subject(name: str, device: str, size: peers.Size) -> Callable:
    """Return the subject of a worker: a function of a job's name and the lengths of the texts."""
    model = peers.make_model(name if name in (THEIRS, BERT, MODERN) else OURS, "Model", size)
    model = model.to(device, torch.bfloat16 if device == "cuda" else torch.float32)
    forward = torch.compile(model, dynamic=False) if name == COMPILED else model
    some = torch.Generator().manual_seed(0)

    def run(job: str, lengths: tuple[int, ...]) -> None:
        s = max(lengths)
        ids = torch.randint(5, size.words, (len(lengths), s), generator=some).to(device)
        mask = None
        if min(lengths) < s:
            mask = (torch.arange(s) < torch.tensor(lengths)[:, None]).long().to(device)
        if job == "forward":
            forward(ids, attention_mask=mask)
        elif job == "ceiling":
            ceiling(model, model.embeddings.word_embeddings(ids))
        elif job in ("padded", "unpadded"):
            forward(ids, attention_mask=mask, unpad_inputs=job == "unpadded")
        elif job in ("layer", "rotation"):
            x = model.embeddings.word_embeddings(ids)
            frequencies = scaled_inverse_frequencies(model.config, s, x.device)
            rotation = rotary_position_embeddings(torch.arange(s, device=device)[None], frequencies)
            heads = x.unflatten(-1, (-1, model.config.head_dim))
            layer = model.encoder.layer[0]
            for _ in range(4):  # so that the preparation above costs little
                if job == "layer":
                    layer(x, None, rotation)
                else:
                    rotate(heads, rotation), rotate(heads, rotation)

    return torch.no_grad()(run)


def name_of(lengths: tuple[int, ...]) -> str:
    """Return the name of a batch in the table."""
    least, most = (f"{of(lengths):,}" for of in (min, max))
    texts = most if least == most else f"{least} to {most}"
    return texts if len(lengths) == 1 else f"{len(lengths)} × {texts}"


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="try what a GPU runs, with small models")
    chosen = parser.parse_args()
    quick, device = chosen.quick, chosen.device
    batches = BATCHES["quick" if quick else device]
    longest, mixed = max(map(max, batches)), batches[-1] if quick else MIXED
    size = peers.Size(2, 192, 1000, longest) if quick else peers.Size(longest=longest)
    columns = ("tokens", "", "tokens/s", f"/ {THEIRS}", f"/ {BERT}", "/ ceiling", "peak, MB", f"/ {THEIRS}'s")
    forward = Table(*columns, title=f"Forward pass, {device}")
    parts = Table("", "tokens", "", title=f"Parts of the forward pass, {device}")
    names = [name for name in NAMES if name != COMPILED or not quick]
    with (
        reporting.Figures(chosen.output) as figures,
        timing.subjects(device, make_subject, names, device, size) as models,
    ):
        for lengths in batches:
            if COMPILED in models:
                models[COMPILED].run("forward", lengths)  # which compiles
            calls = {
                name: (model, "ceiling" if name == CEILING else "forward", lengths) for name, model in models.items()
            }
            if min(lengths) < max(lengths):
                del calls[CEILING]  # it has no padding
            # Short texts run more often, since they vary more; long ones need no warm-up.
            runs = 1 if quick else 2 * min(5, max(1, longest // max(lengths)))
            measured = timing.alternate(calls, runs, max(lengths) < 2048, name_of(lengths))
            for name, m in measured.items():
                ratios = [reporting.ratio(measured[of], m) if of in measured else "" for of in (THEIRS, BERT, CEILING)]
                memory = f"{m.peak / reporting.MB:,.0f}", f"{m.peak / measured[THEIRS].peak:.2f}"
                row = reporting.rate(sum(lengths), m), *ratios, *(memory if name != CEILING else ("", ""))
                forward.add_row(name_of(lengths), name, *row)
            forward.add_section()
        for lengths in (lengths for lengths in batches if min(lengths) == max(lengths)):
            times = timing.alternate({job: (models[OURS], job, lengths) for job in ("layer", "rotation")}, runs=3)
            share = reporting.ratio(times["rotation"], times["layer"], "{:.3f}")
            parts.add_row("rotation of query and key, share of a layer's time", name_of(lengths), share)
        times = timing.alternate({job: (models[OURS], job, mixed) for job in ("padded", "unpadded")}, runs=3)
        name = "a batch that is three quarters padding, speed-up without padding"
        parts.add_row(name, f"{len(mixed)} × {max(mixed)}", reporting.ratio(times["padded"], times["unpadded"]))
        figures.add(f"forward, {'cuda' if quick else device}", forward)
        figures.add(f"parts, {'cuda' if quick else device}", parts)


if __name__ == "__main__":
    main()
