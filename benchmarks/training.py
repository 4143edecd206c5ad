"""Time and peak memory of a masked language model's training step, compared with transformers' RoFormer.

    python benchmarks/training.py [--device cpu|cuda]

A step is forward, backward and AdamW on 8 texts of 512 tokens from 50,000 words, 15 % of them masked. The models have
random weights and 12 layers of 768; each runs in its own process, in turns. Ours computes logits only at labels
(`sparse_prediction`); transformers' has no such option. Attention dropout is 0 on both sides, then 0.1; the CPU has
no fused kernel for it. On a GPU, autocast computes in bfloat16, and ModernBERT is measured as well.
"""

import logging
from collections.abc import Callable

import measure
import torch
import transformers
from rich.table import Table

import modeling_roformer as ours

THEIRS, MODERN, OURS = "transformers' RoFormer", "ModernBERT, SDPA", "RoFormer"
LENGTHS = {"cpu": (512,), "cuda": (512, 2048, 8192)}


def make_step(name: str, device: str, layers: int, dropout: float) -> Callable:
    """Return the subject of a worker: one training step on b texts of s tokens, which returns the loss."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(0)
    sizes = dict(vocab_size=50000, num_hidden_layers=layers, max_position_embeddings=8192, pad_token_id=0)
    if name == MODERN:
        # A gated feed-forward layer has 3 × 768 × 2,048 parameters, as many as the others' 2 × 768 × 3,072.
        config = transformers.ModernBertConfig(
            **sizes, intermediate_size=2048, attention_dropout=dropout, sparse_prediction=True
        )
        model = transformers.ModernBertForMaskedLM(config)
    elif name == THEIRS:
        config = transformers.RoFormerConfig(**sizes, attention_probs_dropout_prob=dropout)
        model = transformers.RoFormerForMaskedLM(config)
    else:
        config = ours.RoFormerConfig(**sizes, attention_probs_dropout_prob=dropout, sparse_prediction=True)
        model = ours.RoFormerForMaskedLM(config)
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    some = torch.Generator().manual_seed(0)

    def step(b: int, s: int) -> float:
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        ids = torch.randint(5, 50000, (b, s), generator=some)
        masked = torch.rand(b, s, generator=some) < 0.15
        batch = {
            "input_ids": ids.masked_fill(masked, 4).to(device),
            "attention_mask": torch.ones(b, s, dtype=torch.long, device=device),
            "labels": ids.masked_fill(~masked, -100).to(device),
        }
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def show(figures: measure.Figures, chosen, device: str) -> None:
    names = (THEIRS, MODERN, OURS) if device == "cuda" else (THEIRS, OURS)
    columns = ("texts", "attention dropout", "", "seconds", "speed-up", "peak, MB", "share")
    table = Table(*columns, title=f"A training step, {device}; speed-up and share are relative to {THEIRS}")
    with figures.console.status("models are made") as status:
        for dropout in chosen.dropout:
            workers = {name: measure.Worker(make_step, name, device, chosen.layers, dropout) for name in names}
            for s in [chosen.length] if chosen.length else LENGTHS[device]:
                b = chosen.batch if device == "cpu" else max(1, 4096 * chosen.batch // 8 // s)
                measured = measure.alternate(
                    {name: (worker, b, s) for name, worker in workers.items()}, chosen.runs, status.update
                )
                for name, m in measured.items():
                    row = measure.duration(m), measure.ratio(measured[THEIRS], m)
                    memory = f"{m.peak / measure.MB:,.0f}", f"{m.peak / measured[THEIRS].peak:.2f}"
                    table.add_row(f"{b} × {s:,}", f"{dropout:g}", name, *row, *memory)
                table.add_section()
            measure.close(workers.values())
    figures.add(device, table)


def main() -> None:
    parser = measure.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: both, if there is a GPU")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8, help="texts of 512 tokens, or as many tokens on a GPU")
    parser.add_argument("--length", type=int, help="tokens per text; default 512, on a GPU also 2,048 and 8,192")
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0, 0.1], help="of attention")
    parser.add_argument("--runs", type=int, default=2, help="runs, after one warm-up")
    chosen = parser.parse_args()
    with measure.Figures(chosen.output) as figures:
        for device in [chosen.device] if chosen.device else ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
            show(figures, chosen, device)


if __name__ == "__main__":
    main()
