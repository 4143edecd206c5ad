"""Search by words, by vectors and by both: what is found, and the time and memory of a query.

    python benchmarks/search.py search --model roformer-mini-zh --trained retriever/model --split split \
        --questions questions/*.jsonl.gz --texts zh_corpus/*.jsonl.gz
    python benchmarks/search.py search [--sizes 200000 1000000]

The first command makes the folder `search`: 10,000 passages, all paragraphs of the questions and other texts of 100 to
800 characters; their vectors before and after training; and the questions. It resumes. The second command searches it.
The weight of `both` is chosen on the questions of the split's validation. The questions of its test, and those of the
last file of --questions, which is not in the split, are the two sets of the table. The intervals draw articles.

--sizes makes vectors of random numbers for that many passages, whose words are drawn from the passages, and measures a
query: the time and the memory do not depend on the numbers.
"""

import argparse
import json
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import reporting

from modeling_roformer.data import read_batches, read_texts
from modeling_roformer.serving.vectors import embed

PASSAGES, HEAD, LENGTHS = 10_000, 30, range(100, 801)
SETS = {"cmrc2018": "CMRC2018", "drcd": "DRCD"}
TUNING = "validation.jsonl"
SHOWN = ("mrr@10", "ndcg@10", "recall@10", "recall@100")


def rows_of(file: str | Path, *columns: str) -> Iterator[list[str]]:
    for batch in read_batches(file, columns):
        for _, values in batch.rows(columns):
            yield [value.strip() for value in values]


def write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def make(chosen: argparse.Namespace) -> None:
    """Write passages, questions and vectors."""
    chosen.folder.mkdir(parents=True, exist_ok=True)
    files = [list(rows_of(file, "question", "paragraph", "article")) for file in chosen.questions]
    passages = dict.fromkeys(paragraph for rows in files for _, paragraph, _ in rows)
    heads = {passage[:HEAD] for passage in passages}
    texts = (line.strip() for file in chosen.texts for _, text in read_texts([file]) for line in text.split("\n"))
    others = dict.fromkeys(text for text in texts if len(text) in LENGTHS and text[:HEAD] not in heads)
    passages |= dict.fromkeys(random.Random(0).sample([*others], PASSAGES - len(passages)))
    ids = {passage: f"p{number}" for number, passage in enumerate(passages)}
    write_lines(chosen.folder / "passages.jsonl", [{"id": id_, "text": passage} for passage, id_ in ids.items()])
    columns = "question", "passage", "group"
    parts = {
        TUNING: rows_of(chosen.split / TUNING, *columns),
        "cmrc2018.jsonl": rows_of(chosen.split / "test.jsonl", *columns),
        "drcd.jsonl": files[-1],
    }
    for name, rows in parts.items():
        numbered = zip(count(), rows, strict=False)
        questions = [
            {"id": f"q{n}", "text": question, "relevant": ids[passage], "group": group}
            for n, (question, passage, group) in numbered
        ]
        write_lines(chosen.folder / name, questions)
    for name, model in {"before": chosen.model, "after": chosen.trained}.items():
        options = {"id_field": "id", "keep_text": True, "max_length": 256, "dtype": "bfloat16", "progress": True}
        embed(model, chosen.folder / "passages.jsonl", chosen.folder / name, **options)


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder to make, or to search")
    parser.add_argument("--model", help="the encoder before training, to make the folder")
    parser.add_argument("--trained", help="the encoder after training")
    parser.add_argument("--split", type=Path, metavar="DIR", help="folder of split_questions.py")
    parser.add_argument("--questions", nargs="+", metavar="FILE", help="questions with `paragraph` and `article`")
    parser.add_argument("--texts", nargs="+", metavar="FILE", help="texts for other passages")
    chosen = parser.parse_args()
    if chosen.model:
        make(chosen)


if __name__ == "__main__":
    main()
