"""Speed of `roformer predict`, compared with transformers' pipeline, for Chinese texts of mixed length.

    python benchmarks/prediction.py TEXTS CLASSIFIER [--count 1000]

TEXTS is text with one document per line, or JSON Lines, also as .gz. CLASSIFIER is a trained classifier. Each way has
its own process, and they run in turns. Texts are truncated at 512 tokens. Times of the pipeline are from texts to
classes. Those of `predict` are from a file of texts to a file of classes, with the loading of the model. Agreement is
the share of texts with the same class as the pipeline's with batch size 1.
"""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import peers
import reporting
import timing
import torch
from rich.table import Table

from modeling_roformer.data import read_texts

LONGEST, THREADS, RUNS = 512, 2, 5
BATCHES = (1, 8, 32)


def make_classifier(batch: int | None, folder: str, threads: int) -> Callable[[str], list[str]]:
    """Return the subject of a worker: a file of texts to their classes, by the pipeline or, without a batch size, by
    `predict`."""
    peers.quiet()
    torch.set_num_threads(threads)
    if batch is None:
        return predicted_with(folder)
    from transformers import pipeline

    classify = pipeline("text-classification", model=folder, device="cpu")

    def answers(file: str) -> list[str]:
        texts = [text for _, text in read_texts([file])]
        found = classify(texts, batch_size=batch, truncation=True, max_length=LONGEST)
        return [answer["label"] for answer in found]

    return answers


def predicted_with(folder: str) -> Callable[[str], list[str]]:
    from modeling_roformer.serving.prediction import predict

    def answers(file: str) -> list[str]:
        with tempfile.TemporaryDirectory() as place:
            output = Path(place, "out.jsonl")
            predict(folder, file, output, max_length=LONGEST, device="cpu")
            return [text for _, text in read_texts([output], "predicted")]

    return answers


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("texts")
    parser.add_argument("classifier")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=RUNS)
    chosen = parser.parse_args()
    texts = [text for _, text in read_texts([chosen.texts])]
    texts = random.Random(0).sample([" ".join(text.split()) for text in texts], chosen.count)
    names = {batch: f"pipeline, batch size {batch}" for batch in BATCHES} | {None: "roformer predict"}
    table = Table("", "texts/s", "roformer predict, times as fast", "peak, MB", "same class")
    with tempfile.TemporaryDirectory() as folder, reporting.Figures(chosen.output) as figures:
        file = Path(folder, "texts.txt")
        file.write_text("\n".join(texts), encoding="utf-8")
        with timing.subjects("cpu", make_classifier, names, chosen.classifier, THREADS) as subjects:
            calls = {batch: (subject, str(file)) for batch, subject in subjects.items()}
            measured = timing.alternate(calls, chosen.runs, title="classes")
        expected = measured[1].results[-1]
        for batch, found in measured.items():
            same = sum(a == b for a, b in zip(found.results[-1], expected, strict=True)) / len(expected)
            speed_up = reporting.ratio(found, measured[None])
            peak = f"{found.peak / reporting.MB:,.0f}"
            table.add_row(names[batch], reporting.rate(len(texts), found), speed_up, peak, f"{same:.1%}")
        figures.add("classes", table)


if __name__ == "__main__":
    main()
