"""Speed of tokenization: this package, BertTokenizerFast, transformers' RoFormerTokenizer, jieba and rjieba.

usage: python benchmarks/tokenization.py [CORPUS] --vocabulary FILE [--cores]

CORPUS is a text file, JSON Lines with fields "text", or a folder of these, also as .gz. The default is
../shared/data/zh_corpus if it exists, otherwise examples/long_document.txt. All tokenizers process the same texts in
alternating rounds; the table has medians. --cores measures with one core per tokenizer, and with all: BertTokenizerFast
uses all of them in one call, ours in several processes.
"""

import argparse
import importlib.util
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from itertools import islice
from pathlib import Path

import measure
import rjieba
from rich.table import Table
from transformers import BertTokenizerFast
from transformers.models.roformer.tokenization_roformer import RoFormerTokenizer as TheirTokenizer
from transformers.utils import logging

from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary_maker.corpus import corpus_files, read_chunks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def read_texts(corpus):
    """Return texts of a file or folder, a few thousand per file."""
    texts = []
    for path in corpus_files([corpus]):
        documents = (text.strip() for chunk in read_chunks(path) for text in chunk.documents("text"))
        texts += islice(documents, 4000)
    return texts


def cut_to(texts, length, total):
    """Return texts of `length` characters each, `total` characters in all."""
    joined = "".join(texts)
    joined *= -(-total // max(len(joined), 1))
    return [joined[start : start + length] for start in range(0, total, length)]


def timed(runs, rounds):
    """Measure each function in `rounds` alternating calls, after one warm-up call."""

    def timed_call(run):
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return measure.in_turn({name: partial(timed_call, run) for name, run in runs.items()}, rounds)


def load(folder):
    """Load the two tokenizers of a folder, by name."""
    return {"ours": RoFormerTokenizer.from_pretrained(folder), "bert": BertTokenizerFast.from_pretrained(folder)}


def mapped(data, tokenizer, processes=None):
    """Tokenize the texts of a `datasets.Dataset` with `map`, in batches of 1,000."""
    data.map(lambda batch: tokenizer(batch["text"]), batched=True, remove_columns="text", num_proc=processes)


def on_one_core(connection, folder, texts, data_folder):
    """Run in a process bound to one core: run each function that is named, and report when it is done."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tokenizers = load(folder)
    data = open_data(data_folder)
    while (request := connection.recv()) is not None:
        how, name = request
        if how == "call":
            tokenizers[name](texts)
        else:
            mapped(data, tokenizers[name])
        connection.send(None)


def open_data(folder):
    import datasets

    datasets.disable_caching()
    datasets.disable_progress_bars()
    return datasets.load_from_disk(folder)


def start_pool_process(folder):
    global pool_tokenizer
    pool_tokenizer = RoFormerTokenizer.from_pretrained(folder)
    pool_tokenizer("今天天气")  # reads the dictionary


def encode_in_pool(texts):
    return pool_tokenizer(texts).data


def compare_cores(figures, folder, texts, rounds):
    """Add the table for one core and for all."""
    import datasets

    cores = len(os.sched_getaffinity(0))
    size = sum(map(len, texts))
    data_folder = os.path.join(folder, "data")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(data_folder)
    data = open_data(data_folder)
    tokenizers = load(folder)
    spawn = multiprocessing.get_context("spawn")
    connection, other_end = spawn.Pipe()
    os.environ["RAYON_NUM_THREADS"] = "1"
    alone = spawn.Process(target=on_one_core, args=(other_end, folder, texts, data_folder), daemon=True)
    alone.start()
    other_end.close()
    del os.environ["RAYON_NUM_THREADS"]

    def ask(*request):
        def run():
            connection.send(request)
            connection.recv()

        return run

    def in_processes(name):
        def run():
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
            mapped(data, tokenizers[name], cores)
            del os.environ["TOKENIZERS_PARALLELISM"]

        return run

    chunks = [texts[start : start + 100] for start in range(0, len(texts), 100)]
    with spawn.Pool(cores, start_pool_process, (folder,)) as pool:
        runs = {
            ("call", "ours", 1): ask("call", "ours"),
            ("call", "bert", 1): ask("call", "bert"),
            ("map", "ours", 1): ask("map", "ours"),
            ("map", "bert", 1): ask("map", "bert"),
            ("pool", "ours", cores): lambda: pool.map(encode_in_pool, chunks),
            ("call", "bert", cores): lambda: tokenizers["bert"](texts),
            ("map in processes", "ours", cores): in_processes("ours"),
            ("map in processes", "bert", cores): in_processes("bert"),
            ("map", "bert", cores): lambda: mapped(data, tokenizers["bert"]),
        }
        seconds = timed(runs, rounds)
    connection.send(None)
    alone.join()

    title = f"million characters/s, {len(texts):,} texts of 700 characters, median of {rounds} alternating runs"
    speed = "million characters/s"
    table = Table("ours in", speed, "BertTokenizerFast in", speed, "speed-up", title=title)
    one_call, one_map = ("one call, 1 core", "call", 1), ("datasets.map, 1 core", "map", 1)
    all_cores, all_map = (f"one call, {cores} cores", "call", cores), (f"datasets.map, {cores} cores", "map", cores)
    in_map = (f"datasets.map(num_proc={cores})", "map in processes", cores)
    in_pool = (f"a pool of {cores} processes", "pool", cores)
    pairs = (one_call, one_call), (one_map, one_map), (in_pool, all_cores), (in_map, in_map), (in_map, all_map)
    for ours, bert in pairs:
        mine, theirs = seconds[ours[1], "ours", ours[2]], seconds[bert[1], "bert", bert[2]]
        speeds = [measure.rate(size / 1e6, found, "{:.2f}") for found in (mine, theirs)]
        table.add_row(ours[0], speeds[0], bert[0], speeds[1], measure.ratio(theirs, mine))
    figures.add("cores", table)


def first_call(folder):
    """Measure in fresh processes: seconds of from_pretrained, and of the first call after it."""
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
    return measure.Measurement(loads), measure.Measurement(calls)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", help="texts to tokenize")
    parser.add_argument("--vocabulary", required=True, help="vocab.txt with words")
    parser.add_argument("--cores", action="store_true", help="measure only with one core and with all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--characters", type=int, default=3_500_000, help="of all texts together, with --cores")
    parser.add_argument("--longest", type=int, default=256_000, help="characters of the longest text")
    measure.add_output(parser)
    options = parser.parse_args()
    if options.cores and not (hasattr(os, "sched_setaffinity") and importlib.util.find_spec("datasets")):
        parser.error(
            "--cores needs Linux, where a process can be bound to a core, and datasets: pip install '.[train]'"
        )
    logging.set_verbosity_error()
    jieba.setLogLevel(60)

    with tempfile.TemporaryDirectory() as folder, measure.Figures(options.output, "rjieba", "jieba") as figures:
        shutil.copy(options.vocabulary, Path(folder) / "vocab.txt")
        texts = texts_to_measure(options.corpus)
        if options.cores:
            compare_cores(figures, folder, cut_to(texts, 700, options.characters), options.rounds)
        else:
            compare_tools(figures, folder, texts, options)


def texts_to_measure(corpus):
    ours = measure.ROOT / "examples" / "long_document.txt"
    texts = read_texts(corpus or (SHARED / "zh_corpus" if (SHARED / "zh_corpus").is_dir() else ours))
    random.Random(0).shuffle(texts)
    return texts


def compare_tools(figures, folder, texts, options):
    """Add the tables of all tokenizers and of all lengths."""
    loading, first = first_call(folder)
    ours, bert = load(folder).values()
    theirs = TheirTokenizer(ours.get_vocab())
    cutter = rjieba.Jieba()
    jieba.initialize()

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
    seconds = timed(runs, options.rounds)
    title = f"300 texts of 700 characters, {os.cpu_count()} cores, median of {options.rounds} runs"
    table = Table("", "million characters/s", "relative to BertTokenizerFast", title=title)
    for name, found in seconds.items():
        peer = seconds["offsets, BertTokenizerFast" if "offsets" in name else "ids, BertTokenizerFast"]
        table.add_row(name, measure.rate(size / 1e6, found, "{:.2f}"), measure.ratio(peer, found))
    figures.add("tools", table)
    table = Table("in a fresh process", "seconds")
    table.add_row("`from_pretrained`", measure.duration(loading, "{:.2f}"))
    table.add_row("the first call, which reads the dictionary", measure.duration(first, "{:.2f}"))
    figures.add("start", table)

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
        if length <= 4_000:  # its time grows with the square of the length
            tools["transformers' RoFormer"] = (theirs, few)
        for name, (tool, batch) in tools.items():
            runs[name, length] = lambda tool=tool, batch=batch: tool(batch)
            sizes[name, length] = sum(map(len, batch))
    seconds = timed(runs, options.rounds)
    speeds = {key: measure.rate(sizes[key] / 1e6, found, "{:.2f}") for key, found in seconds.items()}
    names = list(dict.fromkeys(name for name, _ in runs))
    table = Table("characters per text", *names, title="million characters/s by length of the texts")
    for length in lengths:
        table.add_row(f"{length:,}", *(speeds.get((name, length), "") for name in names))
    figures.add("lengths", table)


if __name__ == "__main__":
    main()
