"""Speed of masked language modelling under transformers' Trainer, compared with transformers' RoFormer.

    python benchmarks/trainer.py --sizes mini
    python benchmarks/trainer.py --sizes base --batch 8 --steps 1 --runs 2 --precisions float32

Both models start from the same weights and train with AdamW on the CPU, on the same batches of texts of mixed length,
up to 512 tokens, padded to the longest. Padding does not count as tokens. Ours trains as `pretrain` does, without
padding and with logits only at labels (`unpad_inputs`, `sparse_prediction`), and once without these two. Each runs in
its own process, in turns. Attention dropout is 0, then 0.1; the dtype is float32, then bfloat16 by autocast.
"""

import tempfile
from collections.abc import Callable
from itertools import product

import peers
import reporting
import timing
import torch
import transformers
from rich.table import Table

PLAIN = "ours, padded, all logits"
SIZES = {"mini": peers.Size(6, 256, 12_000, 1536), "base": peers.Size(longest=1536)}
LONGEST = 512
PAD, MASK, ORDINARY = 0, 4, 5  # the last is the first id that is not special


def make_texts(count: int, vocabulary: int) -> list[dict]:
    """Return texts between an eighth of the longest length and that length, with 15 % of the tokens masked."""
    some, texts = torch.Generator().manual_seed(0), []
    for length in torch.randint(LONGEST // 8, LONGEST + 1, (count,), generator=some).tolist():
        ids = torch.randint(ORDINARY, vocabulary, (length,), generator=some)
        masked = torch.rand(length, generator=some) < 0.15
        texts.append({"input_ids": ids.masked_fill(masked, MASK), "labels": ids.masked_fill(~masked, -100)})
    return texts


def collate(texts: list[dict]) -> dict[str, torch.Tensor]:
    """Return a batch of shape (b, s) with s the length of its longest text."""

    def pad(name: str, value: int) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence([text[name] for text in texts], batch_first=True, padding_value=value)

    ids = pad("input_ids", PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": pad("labels", -100)}


def make_run(name: str, size: peers.Size, dropout: float, bf16: bool, batch: int, steps: int) -> Callable[[], float]:
    """Return the subject of a worker: some steps of a Trainer, which returns the mean loss."""
    torch.set_num_threads(2)
    model = peers.make_model(peers.THEIRS, "ForMaskedLM", size, attention_probs_dropout_prob=dropout)
    if name != peers.THEIRS:
        weights, fast = model.state_dict(), name == peers.OURS
        fields = {"attention_probs_dropout_prob": dropout, "unpad_inputs": fast, "sparse_prediction": fast}
        model = peers.make_model(peers.OURS, "ForMaskedLM", size, **fields)
        model.load_state_dict(weights)
    arguments = transformers.TrainingArguments(
        tempfile.gettempdir(),
        max_steps=steps,
        per_device_train_batch_size=batch,
        train_sampling_strategy="sequential",
        learning_rate=1e-5,
        bf16=bf16,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    texts = make_texts(batch * steps, size.words)
    trainer = transformers.Trainer(model, arguments, train_dataset=texts, data_collator=collate)
    trainer.remove_callback(transformers.PrinterCallback)
    return lambda: trainer.train().training_loss


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--precisions", nargs="+", choices=("float32", "bfloat16"), default=("float32", "bfloat16"))
    parser.add_argument("--batch", type=int, default=16, help="texts")
    parser.add_argument("--steps", type=int, default=4, help="of a run")
    parser.add_argument("--runs", type=int, default=3, help="runs, after one warm-up")
    chosen = parser.parse_args()
    # Lengths are the same for every vocabulary.
    tokens = sum(len(text["input_ids"]) for text in make_texts(chosen.batch * chosen.steps, 12_000))
    columns = ("model", "attention dropout", "precision", "", "seconds", "tokens/s", "speed-up")
    table = Table(*columns, title=f"{chosen.steps} × {chosen.batch} texts, {tokens:,} tokens a run")
    with reporting.Figures(chosen.output, "accelerate") as figures:
        for size, dropout, precision in product(chosen.sizes, (0.0, 0.1), chosen.precisions):
            names, options = (peers.THEIRS, PLAIN, peers.OURS), (dropout, precision == "bfloat16")
            made = timing.subjects("cpu", make_run, names, SIZES[size], *options, chosen.batch, chosen.steps)
            with made as trainers:
                calls = {name: (trainer,) for name, trainer in trainers.items()}
                measured = timing.alternate(calls, chosen.runs, title=f"{size}, dropout {dropout:g}, {precision}")
            for name, m in measured.items():
                row = reporting.duration(m), reporting.rate(tokens, m), reporting.ratio(measured[peers.THEIRS], m)
                table.add_row(size, f"{dropout:g}", precision, "ours" if name == peers.OURS else name, *row)
            table.add_section()
        figures.add("trainer", table)


if __name__ == "__main__":
    main()
