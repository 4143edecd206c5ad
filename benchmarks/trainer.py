"""Speed of masked language modelling under transformers' Trainer, compared with transformers' RoFormer.

    python benchmarks/trainer.py [--sizes mini base] [--runs 3]

Both models start from the same weights and train with AdamW on the CPU, on the same batches of texts of mixed length,
padded to the longest. Padding does not count as tokens. Ours trains as `pretrain` does, without padding and with logits
only at labels (`unpad_inputs`, `sparse_prediction`), and once without these two. Each runs in its own process, in
turns. Attention dropout is 0, then 0.1; the dtype is float32, then bfloat16 by autocast.
"""

import argparse
import logging
import tempfile
from collections.abc import Callable
from itertools import product

import reporting
import timing
import torch
import transformers
from rich.table import Table

import modeling_roformer as ours

THEIRS, PLAIN, OURS = "transformers' RoFormer", "ours, padded, all logits", "ours"
SIZES = {
    "mini": dict(
        vocab_size=12_000, hidden_size=256, num_hidden_layers=6, num_attention_heads=4, intermediate_size=1024
    ),
    "base": dict(vocab_size=50_000),
}
PAD, MASK, ORDINARY = 0, 4, 5  # the last is the first id that is not special


def make_texts(count: int, longest: int, vocabulary: int) -> list[dict]:
    """Return texts between an eighth of the longest length and that length, with 15 % of the tokens masked."""
    some, texts = torch.Generator().manual_seed(0), []
    for length in torch.randint(longest // 8, longest + 1, (count,), generator=some).tolist():
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


def make_run(name: str, size: str, dropout: float, bf16: bool, chosen: argparse.Namespace) -> Callable[[], float]:
    """Return the subject of a worker: some steps of a Trainer, which returns the mean loss."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    fields = dict(SIZES[size], attention_probs_dropout_prob=dropout, max_position_embeddings=1536, pad_token_id=PAD)
    model = transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**fields))
    if name != THEIRS:
        weights, fast = model.state_dict(), name == OURS
        model = ours.RoFormerForMaskedLM(ours.RoFormerConfig(**fields, unpad_inputs=fast, sparse_prediction=fast))
        model.load_state_dict(weights)
    texts = make_texts(chosen.batch * chosen.steps, chosen.length, model.config.vocab_size)

    arguments = transformers.TrainingArguments(
        tempfile.gettempdir(),
        max_steps=chosen.steps,
        per_device_train_batch_size=chosen.batch,
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
    trainer = transformers.Trainer(model, arguments, train_dataset=texts, data_collator=collate)
    trainer.remove_callback(transformers.PrinterCallback)

    def run() -> float:
        return trainer.train().training_loss

    return run


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0, 0.1], help="of attention")
    parser.add_argument("--precisions", nargs="+", choices=("float32", "bfloat16"), default=("float32", "bfloat16"))
    parser.add_argument("--batch", type=int, default=16, help="texts")
    parser.add_argument("--length", type=int, default=512, help="tokens of the longest text")
    parser.add_argument("--steps", type=int, default=4, help="of a run")
    parser.add_argument("--runs", type=int, default=3, help="runs, after one warm-up")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    texts = make_texts(chosen.batch * chosen.steps, chosen.length, SIZES["mini"]["vocab_size"])
    tokens = sum(len(text["input_ids"]) for text in texts)  # the same number for every vocabulary

    columns = ("model", "attention dropout", "precision", "", "seconds", "tokens/s", "speed-up")
    table = Table(*columns, title=f"{chosen.steps} × {chosen.batch} texts, {tokens:,} tokens a run")
    with reporting.Figures(chosen.output, "accelerate") as figures, figures.console.status("models are made") as status:
        for size, dropout, precision in product(chosen.sizes, chosen.dropout, chosen.precisions):
            arguments = (size, dropout, precision == "bfloat16", chosen)
            measured = timing.compare(make_run, (THEIRS, PLAIN, OURS), arguments, chosen.runs, status.update)
            for name, m in measured.items():
                row = reporting.duration(m), reporting.rate(tokens, m), reporting.ratio(measured[THEIRS], m)
                table.add_row(size, f"{dropout:g}", precision, name, *row)
            table.add_section()
        figures.add("trainer", table)


if __name__ == "__main__":
    main()
