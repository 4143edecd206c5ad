"""Speed of tokenization: this package, BertTokenizerFast, transformers' RoFormerTokenizer, jieba and rjieba.

    python benchmarks/tokenization.py [CORPUS] --vocabulary FILE
    python benchmarks/tokenization.py --vocabulary FILE --reference FILE

CORPUS is a text file, JSON Lines with fields "text", or a folder of these, also as .gz. The default is
../shared/data/zh_corpus if it exists, otherwise examples/long_document.txt. All tokenizers process the same texts in
alternating rounds; the table has medians.

With --reference, a .jsonl.gz file of texts with bert4keras' `word_ids` and `char_ids`, the table counts texts that get
other ids here, and in a process without this package: from vocab.txt alone, and from the files that are saved here.
"""

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import islice
from pathlib import Path

import reporting
import rjieba
import timing
from rich.table import Table
from transformers import BertTokenizerFast
from transformers.models.roformer.tokenization_roformer import RoFormerTokenizer as TheirTokenizer
from transformers.utils import logging

from modeling_roformer.data import find_files
from modeling_roformer.data import read_texts as read
from modeling_roformer.tokenization import RoFormerTokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba

PLAIN = """
import json, sys
sys.modules["modeling_roformer"] = None  # as where it is not installed
import transformers
name, folder = sys.argv[1:]
try:
    found = getattr(transformers, name).from_pretrained(folder)(json.load(sys.stdin))["input_ids"]
except ValueError:
    found = None
print(json.dumps(found))
"""
SHARED = reporting.ROOT.parent / "shared" / "data" / "zh_corpus"


def read_texts(corpus):
    """Return texts of a file or folder, a few thousand per file."""
    texts = []
    for path in find_files([corpus]):
        texts += islice((text.strip() for _, text in read([path])), 4000)
    return texts


def truncated(texts, length, total):
    """Return texts of `length` characters each, `total` characters in all."""
    joined = "".join(texts)
    joined *= -(-total // max(len(joined), 1))
    return [joined[start : start + length] for start in range(0, total, length)]


def timed(runs, rounds):
    """Measure each function in `rounds` alternating calls, after one warm-up call."""
    calls = {name: (timing.Resident(lambda run=run: run),) for name, run in runs.items()}
    return timing.alternate(calls, rounds)


def make_start(folder):
    """Return the subject of a fresh process: seconds of from_pretrained, and of the first call after it."""

    def start():
        begun = time.perf_counter()
        tokenizer = RoFormerTokenizer.from_pretrained(folder)
        loaded = time.perf_counter()
        tokenizer("今天天气非常好")
        return loaded - begun, time.perf_counter() - loaded

    return start


def main():
    parser = reporting.make_parser(__doc__)
    parser.add_argument("corpus", nargs="?", help="texts to tokenize")
    parser.add_argument("--vocabulary", required=True, help="vocab.txt with words")
    parser.add_argument("--reference", help="texts with the ids of bert4keras, to compare ids in place of speed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--longest", type=int, default=256_000, help="characters of the longest text")
    options = parser.parse_args()
    logging.set_verbosity_error()
    jieba.setLogLevel(60)

    with tempfile.TemporaryDirectory() as folder, reporting.Figures(options.output, "rjieba", "jieba") as figures:
        shutil.copy(options.vocabulary, Path(folder) / "vocab.txt")
        if options.reference:
            compare_ids(figures, folder, options.reference)
            return
        default = SHARED if SHARED.is_dir() else reporting.ROOT / "examples" / "long_document.txt"
        texts = read_texts(options.corpus or default)
        random.Random(0).shuffle(texts)
        compare_tools(figures, folder, texts, options)


def compare_ids(figures, folder, reference):
    """Add the table of texts with other ids than in bert4keras."""
    with gzip.open(reference, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    texts = [row["text"] for row in rows]

    def plain(name, place):
        command = [sys.executable, "-c", PLAIN, name, place]
        done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    columns = []
    for unit, field, peer in (("jieba", "word_ids", "RoFormerTokenizer"), (None, "char_ids", "BertTokenizerFast")):
        ours = RoFormerTokenizer.from_pretrained(folder, word_segmentation=unit)
        ours.save_pretrained(f"{folder}/{field}")
        answers = ours(texts)["input_ids"], plain(peer, folder), plain("RoFormerTokenizer", f"{folder}/{field}")
        expected = [row[field] for row in rows]
        columns.append(
            [f"{sum(a != b for a, b in zip(of, expected, strict=True)):,}" if of else "refused" for of in answers]
        )
    names = "modeling_roformer", "transformers, `vocab.txt` alone", "transformers, the files that are saved here"
    table = Table(f"of {len(texts):,} texts, with other ids", "words", "characters")
    for row in zip(names, *columns, strict=True):
        table.add_row(*row)
    figures.add("ids", table)


def compare_tools(figures, folder, texts, options):
    """Add the tables of all tokenizers and of all lengths."""
    starts = [timing.Worker(make_start, folder).run()[2] for _ in range(3)]
    loading, first = (timing.Measurement([*seconds]) for seconds in zip(*starts, strict=True))
    ours, bert = (of.from_pretrained(folder) for of in (RoFormerTokenizer, BertTokenizerFast))
    theirs = TheirTokenizer(ours.get_vocab())
    cutter = rjieba.Jieba()
    jieba.initialize()

    batch = truncated(texts, 700, 700 * 300)
    size = sum(map(len, batch))
    runs = {
        "ids": lambda: ours(batch),
        "ids, BertTokenizerFast": lambda: bert(batch),
        "ids, transformers' RoFormerTokenizer": lambda: theirs(batch),
        "offsets": lambda: ours(batch, return_offsets_mapping=True),
        "offsets, BertTokenizerFast": lambda: bert(batch, return_offsets_mapping=True),
        "words only, jieba": lambda: [jieba.lcut(text, HMM=False) for text in batch],
        "words only, rjieba": lambda: [cutter.cut(text, False) for text in batch],
    }
    seconds = timed(runs, options.rounds)
    title = f"300 texts of 700 characters, {os.cpu_count()} cores, median of {options.rounds} runs"
    entries = f"vocabulary of {len(ours):,} entries"
    table = Table(entries, "million characters/s", "relative to BertTokenizerFast", title=title)
    for name, found in seconds.items():
        peer = seconds["offsets, BertTokenizerFast" if "offsets" in name else "ids, BertTokenizerFast"]
        table.add_row(name, reporting.rate(size / 1e6, found, "{:.2f}"), reporting.ratio(peer, found))
    figures.add("tools", table)
    table = Table("in a fresh process", "seconds")
    table.add_row("`from_pretrained`", reporting.duration(loading, "{:.2f}"))
    table.add_row("the first call, which reads the dictionary", reporting.duration(first, "{:.2f}"))
    figures.add("start", table)

    lengths = [length for length in (100, 300, 1_000, 4_000, 16_000, 64_000, 256_000) if length <= options.longest]
    runs, sizes = {}, {}
    for length in lengths:
        same = truncated(texts, length, max(length, 256_000))
        few = same[: max(1, 32_000 // length)]
        tools = {
            "modeling_roformer": (ours, same),
            "BertTokenizerFast": (bert, same),
            "rjieba.cut": (lambda batch: [cutter.cut(text, False) for text in batch], same),
        }
        if length <= 4_000:  # its time grows with the square of the length
            tools["transformers' RoFormer"] = (theirs, few)
        for name, (tool, batch) in tools.items():
            runs[name, length] = lambda tool=tool, batch=batch: tool(batch)
            sizes[name, length] = sum(map(len, batch))
    seconds = timed(runs, options.rounds)
    speeds = {key: reporting.rate(sizes[key] / 1e6, found, "{:.2f}") for key, found in seconds.items()}
    names = list(dict.fromkeys(name for name, _ in runs))
    table = Table("characters per text", *names, title="million characters/s by length of the texts")
    for length in lengths:
        table.add_row(f"{length:,}", *(speeds.get((name, length), "") for name in names))
    figures.add("lengths", table)


if __name__ == "__main__":
    main()
