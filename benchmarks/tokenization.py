"""How fast texts become ids: this package's tokenizer, BertTokenizerFast, transformers' RoFormerTokenizer, jieba, rjieba.

usage: python benchmarks/tokenization.py [CORPUS] [--vocabulary FILE] [--plot lengths.png]

CORPUS is a text file, a .jsonl(.gz) with "text" fields, or a folder of such; without one, ../shared/data/zh_corpus where
it is, else texts put together from jieba's dictionary by the frequency of its words. All tokenizers see the same
texts in the same run, one after the other, round after round; the table gives medians.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import rjieba
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import BertTokenizerFast
from transformers.models.roformer.tokenization_roformer import RoFormerTokenizer as TheirTokenizer
from transformers.utils import logging

from modeling_roformer.tokenization import RoFormerTokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def dictionary():
    """jieba's words with their frequencies, the most frequent first."""
    with open(Path(jieba.__file__).parent / "dict.txt", encoding="utf-8") as file:
        rows = [line.split(" ")[:2] for line in file]
    return sorted(((word, int(freq)) for word, freq in rows), key=lambda row: -row[1])


def read_texts(corpus):
    """Texts of a file or folder, a few thousand of each file."""
    corpus = Path(corpus)
    files = sorted(path for path in corpus.iterdir() if path.is_file()) if corpus.is_dir() else [corpus]
    texts = []
    for path in files:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            for _, line in zip(range(4000), file, strict=False):
                texts.append(json.loads(line).get("text", "") if ".jsonl" in path.name else line.strip())
    return texts


def make_texts(characters):
    """Sentences of words drawn by their frequency: for machines without a corpus."""
    rng = random.Random(0)
    words, weights = zip(*dictionary(), strict=True)
    drawn = rng.choices(words, weights, k=characters)
    return ["".join(drawn[start : start + 12]) + "，。"[start % 2] for start in range(0, characters, 12)]


def cut_to(texts, length, total):
    """`total` characters as texts of `length` characters each."""
    joined = "".join(texts)
    joined *= -(-total // max(len(joined), 1))
    return [joined[start : start + length] for start in range(0, total, length)]


def make_vocabulary(path):
    """A word vocabulary: the special tokens, every character of jieba's dictionary, and its most frequent words."""
    rows = dictionary()
    characters = sorted({character for word, _ in rows for character in word})
    signs = [*"，。、；：？！“”（）《》", *(chr(code) for code in range(33, 127))]
    entries = list(
        dict.fromkeys([*SPECIAL, *signs, *characters, *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")])
    )
    seen = set(entries)
    entries += [word for word, _ in rows if word not in seen][: 50_000 - len(entries)]
    path.write_text("\n".join(entries) + "\n", encoding="utf-8")


def medians(runs, rounds, label):
    """Median seconds of each of the functions, called in turn `rounds` times, after one call that does not count."""
    times = {name: [] for name in runs}
    for round_ in track(range(rounds + 1), description=label, console=Console(stderr=True)):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if round_:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def first_call(folder):
    """Seconds from the end of from_pretrained to the first ids, in a fresh process; and those of from_pretrained."""
    code = (
        "import sys, time\n"
        "from modeling_roformer.tokenization import RoFormerTokenizer\n"
        "start = time.perf_counter()\n"
        "tokenizer = RoFormerTokenizer.from_pretrained(sys.argv[1])\n"
        "loaded = time.perf_counter()\n"
        "tokenizer('今天天气非常好')\n"
        "print(loaded - start, time.perf_counter() - loaded)\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    loads, calls = zip(*(map(float, run.stdout.split()[-2:]) for run in runs), strict=True)
    return statistics.median(loads), statistics.median(calls)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", help="texts to tokenize")
    parser.add_argument("--vocabulary", help="vocab.txt with words (default: made of jieba's dictionary)")
    parser.add_argument("--plot", help="draw characters a second against text length to this file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--longest", type=int, default=256_000, help="characters of the longest text")
    options = parser.parse_args()
    logging.set_verbosity_error()
    jieba.setLogLevel(60)

    if options.corpus:
        texts = read_texts(options.corpus)
    elif (SHARED / "zh_corpus").is_dir():
        texts = read_texts(SHARED / "zh_corpus")
    else:
        texts = make_texts(400_000)
    random.Random(0).shuffle(texts)

    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        if options.vocabulary:
            vocabulary.write_bytes(Path(options.vocabulary).read_bytes())
        else:
            make_vocabulary(vocabulary)
        load, call = first_call(folder)
        ours = RoFormerTokenizer.from_pretrained(folder)
        bert = BertTokenizerFast.from_pretrained(folder)
    theirs = TheirTokenizer(ours.get_vocab())
    cutter = rjieba.Jieba()
    jieba.initialize()

    console = Console()
    batch = cut_to(texts, 700, 700 * 300)
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
    seconds = medians(runs, options.rounds, "300 texts of 700 characters")
    table = Table(title=f"300 texts of 700 characters, {os.cpu_count()} cores, median of {options.rounds} runs")
    for heading in ("what", "million characters/s", "against BertTokenizerFast"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, value in seconds.items():
        peer = seconds["offsets, BertTokenizerFast" if "offsets" in name else "ids, BertTokenizerFast"]
        table.add_row(name, f"{size / value / 1e6:.2f}", f"{peer / value:.2f} x")
    console.print(table)
    console.print(f"ids reach {seconds['words only, rjieba'] / seconds['ids']:.0%} of rjieba.cut alone")
    console.print(f"from_pretrained: {load:.2f} s; first call after it: {call:.2f} s (both in a fresh process)")

    lengths = [length for length in (100, 300, 1_000, 4_000, 16_000, 64_000, 256_000) if length <= options.longest]
    runs, sizes = {}, {}
    for length in lengths:
        same = cut_to(texts, length, max(length, 256_000))
        few = same[: max(1, 32_000 // length)]
        tools = {
            "modeling_roformer": (ours, same),
            "BertTokenizerFast": (bert, same),
            "rjieba.cut": (lambda batch: [cutter.cut(text, False) for text in batch], same),
        }
        if length <= 4_000:  # its cost grows with the square of the length
            tools["transformers' RoFormer"] = (theirs, few)
        for name, (tool, batch) in tools.items():
            runs[name, length] = lambda tool=tool, batch=batch: tool(batch)
            sizes[name, length] = sum(map(len, batch))
    seconds = medians(runs, options.rounds, "texts of all lengths")
    cost = {key: value / sizes[key] for key, value in seconds.items()}
    names = list(dict.fromkeys(name for name, _ in runs))
    speeds = {name: [1 / cost[name, n] if (name, n) in cost else None for n in lengths] for name in names}
    table = Table(title="million characters/s by length of the texts")
    table.add_column("length")
    for name in speeds:
        table.add_column(name, justify="right")
    for row, length in enumerate(lengths):
        values = (speeds[name][row] for name in speeds)
        table.add_row(f"{length:,}", *("" if value is None else f"{value / 1e6:.2f}" for value in values))
    console.print(table)
    ours_at = {length: cost["modeling_roformer", length] for length in lengths}
    if 64_000 in ours_at:
        console.print(
            f"64,000 characters at once cost {ours_at[64_000] / ours_at[1_000]:.2f} times as much as in texts of 1,000"
        )
    if 256_000 in ours_at:
        console.print(f"256,000 characters cost {4 * ours_at[256_000] / ours_at[64_000]:.2f} times as much as 64,000")
    if options.plot:
        draw(options.plot, lengths, speeds)


def draw(path, lengths, speeds):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name, values in speeds.items():
        points = [(length, value) for length, value in zip(lengths, values, strict=True) if value is not None]
        axes.loglog(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xlabel("characters in a text")
    axes.set_ylabel("characters a second")
    axes.legend()
    axes.grid(which="both", alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
