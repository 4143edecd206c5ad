"""Training and beam search of the translation model, compared with transformers' Marian of equal size.

    python benchmarks/translation.py [--quick] [--sizes small base] [--processes 3] [--runs 3]

small is the model of examples/translation/multi30k.yaml, base that of the paper's Table 1, both with random weights. A
step is forward, backward and AdamW on 64 pairs: of one length, and of mixed lengths, padded to the longest. Ours skips
padding (`unpad_inputs`, `sparse_prediction`). Beam search translates 100 sentences into 32 tokens each, with 4 beams.
Each model has its own process, and they run in turns. Times differ more between two processes of a model than between
two runs in one, so each is started several times, and the figure is the median of their medians.
"""

import argparse
import logging
from collections.abc import Callable

import measure
import torch
import transformers
from rich.table import Table

import modeling_roformer as ours

THEIRS, OURS = "transformers' Marian", "RoFormer"
SIZES = {
    "small": dict(d_model=256, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4, decoder_attention_heads=4)
    | dict(encoder_ffn_dim=1024, decoder_ffn_dim=1024, vocab_size=10_000),
    "base": dict(d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8)
    | dict(encoder_ffn_dim=2048, decoder_ffn_dim=2048, vocab_size=37_000),
}
SPECIAL = dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=None)


def lengths_of(pairs: int, longest: int, mixed: bool) -> torch.Tensor:
    """Return the length of each sentence: all the longest, or evenly from an eighth of it to it."""
    if not mixed:
        return torch.full((pairs,), longest)
    lengths = torch.linspace(longest / 8, longest, pairs).round().long()
    return lengths[torch.randperm(pairs, generator=torch.Generator().manual_seed(0))]


def make_work(name: str, size: str, threads: int) -> Callable:
    """Return the subject of a worker: a training step or a beam search."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    fields = dict(SIZES[size], **SPECIAL, dropout=0.1, max_position_embeddings=512, scale_embedding=True)
    if name == THEIRS:
        fields |= dict(activation_function="relu", decoder_vocab_size=fields["vocab_size"])
        model = transformers.MarianMTModel(transformers.MarianConfig(**fields))
    else:
        fields.pop("forced_eos_token_id")
        config = ours.RoFormerSeq2SeqConfig(
            **fields, activation_function="relu", unpad_inputs=True, sparse_prediction=True
        )
        model = ours.RoFormerForConditionalGeneration(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def batch(pairs: int, longest: int, mixed: bool) -> dict[str, torch.Tensor]:
        lengths = lengths_of(pairs, longest, mixed)
        ids = torch.randint(5, fields["vocab_size"], (2, pairs, longest), generator=torch.Generator().manual_seed(0))
        mask = torch.arange(longest) < lengths[:, None]
        return {
            "input_ids": ids[0].masked_fill(~mask, SPECIAL["pad_token_id"]),
            "attention_mask": mask.long(),
            "labels": ids[1].masked_fill(~mask, -100),
        }

    def work(kind: str, pairs: int, longest: int, mixed: bool, bf16: bool) -> None:
        inputs = batch(pairs, longest, mixed)
        if kind == "search":
            model.eval()
            del inputs["labels"]
            model.generate(**inputs, num_beams=4, min_new_tokens=longest, max_new_tokens=longest)
            return
        model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return work


def one_process_each(
    size: str, works: dict[str, tuple], runs: int, threads: int, progress: Callable[[str], None]
) -> dict[tuple[str, str], measure.Measurement]:
    """Measure each task by title and model, with one process per model."""
    workers = {name: measure.Worker(make_work, name, size, threads) for name in (THEIRS, OURS)}
    seconds = {}
    for title, arguments in works.items():
        calls = {name: (worker, *arguments) for name, worker in workers.items()}
        measured = measure.alternate(calls, runs, lambda name, title=title: progress(f"{title}: {name}"))
        seconds |= {(title, name): measurement for name, measurement in measured.items()}
    measure.close(workers.values())
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--processes", type=int, default=3, help="processes per model, one after the other")
    parser.add_argument("--runs", type=int, default=3, help="runs per process, after one warm-up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="the small model, some short sentences, one run")
    measure.add_output(parser)
    chosen = parser.parse_args()
    pairs, sentences, longest = 64, 100, 32
    if chosen.quick:
        chosen.sizes, chosen.processes, chosen.runs, pairs, sentences, longest = ["small"], 1, 1, 4, 2, 8
    works = {
        "step, one length": ("step", pairs, longest, False, False),
        "step, mixed lengths": ("step", pairs, longest, True, False),
        "step, one length, bfloat16": ("step", pairs, longest, False, True),
        "step, mixed lengths, bfloat16": ("step", pairs, longest, True, True),
        f"beam search, {sentences} sentences": ("search", sentences, longest, True, False),
    }
    table = Table(title=f"Translation on {chosen.threads} threads, sentences of up to {longest} tokens")
    for column in ("model", "work"):
        table.add_column(column)
    for column in (f"{THEIRS}, s", f"{OURS}, s", "speed-up"):
        table.add_column(column, justify="right")
    with measure.Figures(chosen.output) as figures, figures.console.status("models are made") as status:
        for size in chosen.sizes:
            rounds = []
            for number in range(1, chosen.processes + 1):
                place = f"{size}, {number} of {chosen.processes}"
                rounds.append(
                    one_process_each(
                        size,
                        works,
                        chosen.runs,
                        chosen.threads,
                        lambda done, place=place: status.update(f"{place}, {done}"),
                    )
                )
            for title in works:
                theirs, our = (
                    measure.Measurement([found[title, name].seconds for found in rounds]) for name in (THEIRS, OURS)
                )
                table.add_row(size, title, *map(measure.duration, (theirs, our)), measure.ratio(theirs, our))
            table.add_section()
        figures.add("translation", table)


if __name__ == "__main__":
    main()
