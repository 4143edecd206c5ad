"""Search by words, by vectors and by both: what is found, and the time and memory of a query.

    python benchmarks/search.py search --model roformer-mini-zh --trained retriever/model --split split \
        --questions questions/*.jsonl.gz --texts zh_corpus/*.jsonl.gz
    python benchmarks/search.py search --model roformer-mini-zh --trained retriever/model [--sizes 200000 1000000]

The first command makes the folder `search`: 10,000 passages, all paragraphs of the questions and other texts of 100 to
800 characters; their vectors before and after training; and the questions. It resumes. The second command searches it.
The weight of `both` is chosen on the questions of the split's validation. The questions of its test, and 600 of
the last file of --questions, which is not in the split, are the two sets of the table. The intervals draw articles.

--sizes writes vectors of random numbers for that many passages, which are those of the folder again and again, and
measures a query: its time and memory do not depend on the numbers.
"""

import argparse
import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import reporting
import timing
from rich.table import Table

from modeling_roformer.data import read_batches, read_texts
from modeling_roformer.serving.vectors import Ranking, embed, evaluate, rank, read_relevant
from modeling_roformer.serving.vectors.encoder import Rows, model_identity
from modeling_roformer.serving.vectors.fusion import DEPTH, fuse, tune_weight
from modeling_roformer.serving.vectors.terms import splitter_of
from modeling_roformer.serving.vectors.texts import Shard
from modeling_roformer.serving.vectors.vector_folder import VectorFolder, shard_file
from modeling_roformer.serving.vectors.word_index import CountedTexts, write_index
from modeling_roformer.training import paired_bootstrap

PASSAGES, HEAD, LENGTHS = 10_000, 30, range(100, 801)
OTHER_QUESTIONS = 600
SETS = {"cmrc2018": "CMRC2018", "drcd": "DRCD"}
TUNING = "validation"
SHOWN = ("mrr@10", "ndcg@10", "recall@10", "recall@100")
KINDS = {
    "index": "write vectors, index words",
    "words": "a query, by words",
    "vectors": "a query, by vectors",
    "both": "a query, by both",
}
SHARD_SIZE, WIDTH = 4096, 256


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
        TUNING: rows_of(chosen.split / "validation.jsonl", *columns),
        "cmrc2018": rows_of(chosen.split / "test.jsonl", *columns),
        "drcd": random.Random(0).sample(files[-1], OTHER_QUESTIONS),
    }
    for name, rows in parts.items():
        numbered = zip(count(), rows, strict=False)
        questions = [
            {"id": f"q{n}", "text": question, "relevant": ids[passage], "group": group}
            for n, (question, passage, group) in numbered
        ]
        write_lines(chosen.folder / f"{name}.jsonl", questions)
    for name, model in chosen.models.items():
        options = {"id_field": "id", "keep_text": True, "max_length": 256, "dtype": "bfloat16", "progress": True}
        embed(model, chosen.folder / "passages.jsonl", chosen.folder / name, **options)


def measure(chosen: argparse.Namespace, figures: reporting.Figures) -> None:
    """Add the tables of what is found."""
    scores = Table("questions", "search", "training", "weight", f"{SHOWN[0]} (95 % interval)", *SHOWN[1:])
    better = Table("questions", "training", "both and words", "both and vectors")
    files = {file: chosen.folder / f"{file}.jsonl" for file in (*SETS, TUNING)}
    relevant = {file: read_relevant(path, "relevant", "id") for file, path in files.items()}

    def found_by(name: str, **options) -> dict[str, Ranking]:
        options |= {"id_field": "id", "top_k": DEPTH, "model": chosen.models[name]}
        return {file: rank(path, chosen.folder / name, **options) for file, path in files.items()}

    bigrams = found_by("before", by="words", word_unit="bigram")
    words = found_by("before", by="words", word_unit="word")
    searches = {("bigrams", "", ""): bigrams, ("words", "", ""): words}
    for name in chosen.models:
        vectors = found_by(name)
        lists = vectors[TUNING].matches, words[TUNING].matches
        weight = tune_weight(*lists, words[TUNING].ids, relevant[TUNING], "word").weight
        both = {}
        for file, ranking in words.items():
            pairs = zip(vectors[file].matches, ranking.matches, strict=True)
            both[file] = replace(ranking, matches=[fuse(*pair, weight) for pair in pairs])
        searches |= {("vectors", name, ""): vectors, ("both", name, f"{weight:g}"): both}
        for file, title in SETS.items():
            groups = [group for (group,) in rows_of(files[file], "group")]
            results = (evaluate(found[file], relevant[file]).scores[SHOWN[0]] for found in (both, words, vectors))
            first, *alone = results
            better.add_row(title, name, *(str(paired_bootstrap(first, other, groups)) for other in alone))
    for file, title in SETS.items():
        groups = [group for (group,) in rows_of(files[file], "group")]
        for names, found in searches.items():
            means = evaluate(found[file], relevant[file]).intervals(groups)
            mean, low, high = means[SHOWN[0]]
            others = (f"{means[metric][0]:.3f}" for metric in SHOWN[1:])
            scores.add_row(title, *names, f"{mean:.3f} ({low:.3f} to {high:.3f})", *others)
    figures.add("scores", scores)
    figures.add("differences", better)


def make_search(kind: str, folder: Path, model: str, passages: list[str], size: int) -> Callable:
    """Return a function that writes the vectors and indexes the words, or that searches."""
    vectors = VectorFolder(folder / "vectors")
    if kind != "index":
        return lambda: len(rank(passages[0][:20], vectors.path, by=kind, model=model).matches)

    def index() -> int:
        counted, shards = CountedTexts(splitter_of(Path(model), "word")), {}
        for number, start in enumerate(range(0, size, SHARD_SIZE)):
            texts = [passages[i % len(passages)] for i in range(start, min(start + SHARD_SIZE, size))]
            shard = Shard(number, [f"p{start + i}" for i in range(len(texts))], texts)
            numbers = np.random.default_rng(number).normal(size=(len(texts), WIDTH)).astype(np.float32)
            data = shard_file(shard, Rows(shard.ids, texts, [], 0), numbers, "float32", False)
            vectors.path.mkdir(exist_ok=True)
            (vectors.path / shard.name).write_bytes(data)
            shards[shard.name] = {"texts": len(texts), "cut": 0, "sha256": hashlib.sha256(data).hexdigest()}
            counted.add(texts)
        settings = {"model": model_identity(model), "max_length": 256, "dtype": "float32", "keep_text": False}
        settings |= {"shards": shards, "done": {}}
        vectors.write_settings(settings)
        write_index(vectors, settings, counted)
        return sum(path.stat().st_size for path in vectors.path.glob(".words/*"))

    return index


def measure_size(chosen: argparse.Namespace, size: int, table: Table) -> None:
    """Add the rows of a number of passages."""
    passages = [text for _, text in read_texts([chosen.folder / "passages.jsonl"])]
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for kind, title in KINDS.items():
            worker = timing.Worker(make_search, kind, Path(folder), chosen.models["before"], passages, size)
            runs = 1 if kind == "index" else 3
            (found,) = timing.alternate({kind: (worker,)}, runs, warm_up=kind != "index").values()
            worker.close()
            on_disk = f"{found.results[0] / 1e9:.2f}" if kind == "index" else ""
            table.add_row(f"{size:,}", title, reporting.duration(found), f"{found.peak / 1e9:.2f}", on_disk)


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder to make, or to search")
    parser.add_argument("--model", required=True, help="the encoder before training")
    parser.add_argument("--trained", required=True, help="the encoder after training")
    parser.add_argument("--split", type=Path, metavar="DIR", help="folder of split_questions.py")
    parser.add_argument("--questions", nargs="+", metavar="FILE", help="questions with `paragraph` and `article`")
    parser.add_argument("--texts", nargs="+", metavar="FILE", help="texts for other passages")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help="measure a query over N passages")
    chosen = parser.parse_args()
    chosen.models = {"before": chosen.model, "after": chosen.trained}
    if chosen.questions:
        make(chosen)
        return
    with reporting.Figures(chosen.output, "bm25s") as figures:
        if not chosen.sizes:
            measure(chosen, figures)
            return
        table = Table("passages", "", "seconds", "peak memory, GB", "on disk, GB")
        for size in chosen.sizes:
            measure_size(chosen, size, table)
        figures.add("sizes", table)


if __name__ == "__main__":
    main()
