"""Speed and peak memory of the forward pass, compared with transformers' models of equal size.

    python benchmarks/inference.py [--device cpu|cuda]

Models with random weights (12 layers of 768; ModernBERT's gated feed-forward layers have as many parameters as the
others') run in turns at each length, each in its own process. So does the ceiling: only the matrix products and scaled
dot product attention of the same shapes, a bound for every implementation. A CPU runs one text in float32, a GPU 16,384
tokens in bfloat16. The compiled model's memory includes the compiler's.

Then follow the rotation's share of one layer's time, and a batch of mixed lengths with and without padding.
"""

import logging
from collections.abc import Callable

import measure
import peers
import torch
from peers import BERT, MODERN, OURS, THEIRS
from rich.table import Table
from torch.nn import functional as F

import modeling_roformer as ours
from modeling_roformer.rotary import rotary_position_embeddings, rotate, scaled_inverse_frequencies

COMPILED, CEILING = "RoFormer, compiled", "ceiling"
NAMES = (THEIRS, BERT, MODERN, OURS, COMPILED, CEILING)
LENGTHS = {"cpu": (512, 1536, 4096), "cuda": (512, 2048, 8192)}
# A quarter of this batch is text: one long text beside short questions.
MIXED_LENGTHS = (512, 160, 96, 64, 64, 48, 48, 32)


def make_model(name: str, device: str, layers: int, longest: int) -> torch.nn.Module:
    """Make a model with random weights; all have the same size."""
    model = peers.make_encoder(name if name in (THEIRS, BERT, MODERN) else OURS, peers.Size(layers, longest=longest))
    return model.to(device, torch.bfloat16 if device == "cuda" else torch.float32)


def ceiling(model: ours.RoFormerModel, hidden_states: torch.Tensor) -> None:
    """Only the matrix products and the attention of all layers."""
    heads = hidden_states.unflatten(-1, (-1, model.config.head_dim)).transpose(1, 2)
    for layer in model.encoder.layer:
        attention = layer.attention.self
        for linear in (attention.query, attention.key, attention.value, layer.attention.output.dense):
            F.linear(hidden_states, linear.weight)
        F.scaled_dot_product_attention(heads, heads, heads)
        F.linear(F.linear(hidden_states, layer.intermediate.dense.weight), layer.output.dense.weight)


def make_subject(name: str, device: str, layers: int, longest: int) -> Callable:
    """Return the subject of a worker: a function of a job's name and its sizes."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = make_model(name, device, layers, longest)
    forward = torch.compile(model, dynamic=False) if name == COMPILED else model
    some = torch.Generator().manual_seed(0)

    def run(job: str, b: int, s: int) -> None:
        ids = torch.randint(5, 50000, (b, s), generator=some).to(device)
        if job == "forward":
            forward(ids)
        elif job == "ceiling":
            ceiling(model, model.embeddings.word_embeddings(ids))
        elif job in ("padded", "unpadded"):
            lengths = torch.tensor(MIXED_LENGTHS, device=device)
            mask = (torch.arange(s, device=device) < lengths[:, None] * s // MIXED_LENGTHS[0]).long()
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


def measure_forward(workers: dict, s: int, longest: int, tokens: int, runs: int, progress) -> dict:
    """Measure all models, by name. Short texts run more often, since they vary more; long ones need no warm-up."""
    b = max(1, tokens // s)
    calls = {name: (worker, "ceiling" if name == CEILING else "forward", b, s) for name, worker in workers.items()}
    progress(f"{s:,} tokens: compiling")
    workers[COMPILED].run("forward", b, s)
    runs *= min(5, max(1, longest // s))
    return measure.alternate(calls, runs, lambda name: progress(f"{s:,} tokens: {name}"), warm_up=s < 2048)


def add_length(table: Table, s: int, measured: dict, tokens: int) -> None:
    """Add the rows of a length: speed and peak memory of each model."""
    for name, m in measured.items():
        ratios = [measure.ratio(measured[other], m) for other in (THEIRS, BERT, CEILING)]
        memory = f"{m.peak / measure.MB:,.0f}", f"{m.peak / measured[THEIRS].peak:.2f}"
        rate = measure.rate(max(1, tokens // s) * s, m)
        table.add_row(f"{s:,}", name, rate, *ratios, *(memory if name != CEILING else ("", "")))
    table.add_section()


def main() -> None:
    parser = measure.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: both, if there is a GPU")
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens per text, ascending")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--runs", type=int, default=2, help="at the longest length; up to five times as many at others")
    chosen = parser.parse_args()
    with measure.Figures(chosen.output) as figures:
        for device in [chosen.device] if chosen.device else ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
            show_forward(figures, chosen, device)


def show_forward(figures: measure.Figures, chosen, device: str) -> None:
    lengths = sorted(chosen.lengths or LENGTHS[device])
    tokens = 16384 if device == "cuda" else 1
    columns = ("tokens", "", "tokens/s", f"/ {THEIRS}", f"/ {BERT}", "/ ceiling", "peak, MB", f"/ {THEIRS}'s")
    forward = Table(*columns, title=f"Forward pass, {device}")
    parts = Table("", "tokens", "", title=f"Parts of the forward pass, {device}")
    workers = {
        name: measure.Worker(make_subject, name, device, chosen.layers, max(lengths[-1], MIXED_LENGTHS[0]))
        for name in NAMES
    }
    with figures.console.status("models are made") as status:
        worker = workers[OURS]
        for s in lengths:
            measured = measure_forward(workers, s, lengths[-1], tokens, chosen.runs, status.update)
            add_length(forward, s, measured, tokens)
            status.update(f"{s:,} tokens: rotation")
            b = max(1, tokens // s)
            times = measure.alternate({job: (worker, job, b, s) for job in ("layer", "rotation")}, runs=3)
            share = measure.ratio(times["rotation"], times["layer"], "{:.3f}")
            parts.add_row("rotation of query and key, share of a layer's time", f"{s:,}", share)
        status.update("a batch of mixed length")
        mixed = measure.alternate(
            {job: (worker, job, len(MIXED_LENGTHS), MIXED_LENGTHS[0]) for job in ("padded", "unpadded")}, runs=3
        )
    measure.close(workers.values())
    speed_up = measure.ratio(mixed["padded"], mixed["unpadded"])
    name = "a batch that is three quarters padding, speed-up without padding"
    parts.add_row(name, f"8 × {MIXED_LENGTHS[0]}", speed_up)
    figures.add(f"forward, {device}", forward)
    figures.add(f"parts, {device}", parts)


if __name__ == "__main__":
    main()
