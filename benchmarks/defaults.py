"""Speed with no option set: pipelines, SentenceTransformer and Trainer, compared with transformers' models of equal
size.

    python benchmarks/defaults.py --texts FILE … [--count 512] [--runs 3]

Each FILE is text with one document per line, or JSON Lines, also as .gz; as many texts are drawn from each. Our
RoFormer, transformers' RoFormer and a BERT with scaled dot product attention have 6 layers of width 256, random weights
and the same tokens, one per character. Each has its own process, and they run in turns. Pipelines read batches of 32 in
the order of the texts; SentenceTransformer sorts them by length; Trainer takes its default, random batches of 8. No
model is told to leave out padding.
"""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import peers
import reporting
import timing
import torch
import transformers
from peers import BERT, OURS, THEIRS
from rich.table import Table

from modeling_roformer.data import read_texts

NAMES = {THEIRS: THEIRS, BERT: BERT, OURS: "ours"}  # with their titles
LONGEST = 500  # characters, so that texts have at most 512 tokens
SIZE = peers.Size(layers=6, width=256, words=12_000)
PIPELINES = {
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "fill-mask": "ForMaskedLM",
    "feature-extraction": "Model",
}
SENTENCES, TRAINER = "SentenceTransformer.encode", "Trainer, one epoch"


def draw_texts(files: list[Path], count: int) -> list[str]:
    """Return as many texts from each file, in random order."""
    some, texts = random.Random(0), []
    for number, path in enumerate(files):
        found = [text for _, text in read_texts([path]) if len(text) >= 8]
        texts += some.sample(found, min(len(found), count * (number + 1) // len(files) - count * number // len(files)))
    some.shuffle(texts)
    return [text[:LONGEST] for text in texts]


def make_tokenizer() -> transformers.BertTokenizerFast:
    vocabulary = reporting.ROOT / "examples" / "roformer-mini-zh" / "vocab.txt"
    entries = vocabulary.read_text(encoding="utf-8").split("\n")
    vocab = {entry: i for i, entry in enumerate(entries) if entry}
    return transformers.BertTokenizerFast(vocab=vocab, model_max_length=512)


def make_sentence_encoder(name: str, tokenizer):
    from sentence_transformers import SentenceTransformer

    with tempfile.TemporaryDirectory() as folder:
        model = peers.make_model(name, "Model", SIZE)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        encoder = SentenceTransformer(folder, device="cpu")
    encoder[0].model = model  # our registered class has loaded transformers' RoFormer too
    return encoder


def make_work(name: str, task: str, texts: list[str]) -> Callable:
    """Return the subject of a worker: all texts through a pipeline, SentenceTransformer, or an epoch of Trainer."""
    torch.set_num_threads(2)
    tokenizer = make_tokenizer()
    if task in PIPELINES:
        model = peers.make_model(name, PIPELINES[task], SIZE)
        work = transformers.pipeline(task, model=model, tokenizer=tokenizer, batch_size=32, device="cpu")
        if task == "fill-mask":
            texts = [text[: len(text) // 2] + tokenizer.mask_token + text[len(text) // 2 + 1 :] for text in texts]
        return lambda: work(texts) and None
    if task == SENTENCES:
        encoder = make_sentence_encoder(name, tokenizer)
        return lambda: encoder.encode(texts) is None
    arguments = transformers.TrainingArguments(
        tempfile.gettempdir(),
        num_train_epochs=1,
        use_cpu=True,
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    rows = [{**tokenizer(text), "labels": i % 2} for i, text in enumerate(texts)]
    model = peers.make_model(name, "ForSequenceClassification", SIZE)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.remove_callback(transformers.PrinterCallback)
    return lambda: trainer.train() and None


def padding(lengths: list[int], size: int) -> float:
    """Return the share of padding in batches of a size, in the given order."""
    batches = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    return 1 - sum(lengths) / sum(len(batch) * max(batch) for batch in batches)


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--texts", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--count", type=int, default=512, help="texts from all files together")
    parser.add_argument("--tasks", nargs="+", choices=(*PIPELINES, SENTENCES, TRAINER), metavar="TASK")
    parser.add_argument("--runs", type=int, default=3, help="runs, after one warm-up")
    chosen = parser.parse_args()
    texts = draw_texts(chosen.texts, chosen.count)
    lengths = [len(ids) for ids in make_tokenizer()(texts)["input_ids"]]
    by_length, by_chance = sorted(lengths, reverse=True), random.Random(0).sample(lengths, len(lengths))
    shares = {task: padding(lengths, 32) for task in PIPELINES}
    shares |= {SENTENCES: padding(by_length, 32), TRAINER: padding(by_chance, 8)}
    about = Table("texts", "tokens: mean", "longest", "shortest")
    about.add_row(f"{len(lengths)}", f"{sum(lengths) / len(lengths):.0f}", f"{by_length[0]}", f"{by_length[-1]}")
    columns = [f"{title}, texts/s" for title in NAMES.values()] + [f"ours / {THEIRS}", "ours / BERT"]
    table = Table("", "padding", *columns, title="No option set, 2 threads")
    with reporting.Figures(chosen.output, "sentence-transformers", "accelerate") as figures:
        figures.add("texts", about)
        for task in chosen.tasks or shares:
            with timing.subjects("cpu", make_work, NAMES, task, texts) as models:
                found = timing.alternate({name: (model,) for name, model in models.items()}, chosen.runs, title=task)
            rates = [reporting.rate(len(texts), found[name], "{:,.1f}") for name in NAMES]
            ratios = [reporting.ratio(found[name], found[OURS]) for name in (THEIRS, BERT)]
            table.add_row(task, f"{shares[task]:.0%}", *rates, *ratios)
        figures.add("defaults", table)


if __name__ == "__main__":
    main()
