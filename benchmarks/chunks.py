"""Long documents read whole, or in windows: what is answered.

    python benchmarks/chunks.py READER QUESTIONS [--count 200] [--characters 3000]

READER is a trained model for question answering, and QUESTIONS a file of questions on articles that it has not seen,
with the columns question, paragraph, article and answer. Each document is about as long as a court judgment: the
paragraph with the answer, at a random place among paragraphs of other articles. `roformer predict` answers, and the
scores are those of CMRC2018. The intervals of the differences to the first row are 95 % of a bootstrap over the
questions.
"""

import json
import random
import tempfile
from pathlib import Path

import peers
import reporting
import torch
from rich.table import Table

from modeling_roformer.data import read_batches
from modeling_roformer.serving.prediction import predict
from modeling_roformer.training import paired_bootstrap
from modeling_roformer.training.finetuning.answers import answer_scores

COLUMNS = ("question", "paragraph", "article", "answer")
# Tokens of a window, with the question, and tokens that neighbours share.
WINDOWS = ((512, 128), (1024, 256), (8192, 0))


def documents(file: str, count: int, characters: int) -> list[dict]:
    """Return questions with long documents."""
    rows = [
        dict(zip(COLUMNS, row, strict=True)) for batch in read_batches(file, COLUMNS) for _, row in batch.rows(COLUMNS)
    ]
    paragraphs = [*{row["paragraph"]: row["article"] for row in rows}.items()]
    draw, found = random.Random(0), []
    for row in draw.sample(rows, min(count, len(rows))):
        others = draw.sample([text for text, article in paragraphs if article != row["article"]], len(paragraphs) // 2)
        chosen, length = [], len(row["paragraph"])
        while length < characters and others:
            chosen.append(others.pop())
            length += len(chosen[-1])
        chosen.insert(draw.randint(0, len(chosen)), row["paragraph"])
        found.append({"question": row["question"], "context": "\n".join(chosen), "answer": row["answer"]})
    return found


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("reader")
    parser.add_argument("questions")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--characters", type=int, default=3000)
    chosen = parser.parse_args()
    peers.quiet()
    torch.set_num_threads(2)
    asked = documents(chosen.questions, chosen.count, chosen.characters)
    table = Table("tokens of a window", "shared", "exact match", "F1", "F1, difference × 100")
    first: list[float] = []
    with tempfile.TemporaryDirectory() as folder, reporting.Figures(chosen.output) as figures:
        file, output = Path(folder, "asked.jsonl"), Path(folder, "found.jsonl")
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in asked), encoding="utf-8")
        for window, shared in WINDOWS:
            predict(chosen.reader, file, output, chunk=window, overlap=shared, device="cpu", force=True, progress=True)
            predicted = [json.loads(line)["predicted"] for line in output.read_bytes().splitlines()]
            scores = [answer_scores([found], [[row["answer"]]]) for found, row in zip(predicted, asked, strict=True)]
            exact, f1 = ([score[name] for score in scores] for name in ("exact_match", "f1"))
            first = first or f1
            table.add_row(
                "whole document" if window == WINDOWS[-1][0] else f"{window:,}",
                f"{shared}",
                f"{sum(exact) / len(exact):.3f}",
                f"{sum(f1) / len(f1):.3f}",
                "" if first is f1 else str(paired_bootstrap(f1, first)),
            )
        figures.add("answers", table)


if __name__ == "__main__":
    main()
