"""Speed of tokenization: this package, BertTokenizerFast, transformers' RoFormerTokenizer, jieba and rjieba.

usage: python benchmarks/tokenization.py [CORPUS] [--vocabulary FILE] [--plot lengths.png]
       python benchmarks/tokenization.py [CORPUS] [--vocabulary FILE] --cores
       python benchmarks/tokenization.py [--vocabulary FILE] --round-trip CORPUS...

CORPUS is a text file, JSON Lines with fields "text", or a folder of these, also as .gz. The default is
../shared/data/zh_corpus if it exists, otherwise random texts with the word frequencies of jieba's dictionary. All
tokenizers process the same texts in alternating rounds; the table has medians.

--cores measures with one core per tokenizer, and with all: BertTokenizerFast uses all of them in one call, ours in
several processes. --round-trip counts the texts that decode to themselves, except for upper case.
"""

import argparse
import importlib.util
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import islice
from pathlib import Path

import measure
import rjieba
from rich.console import Console
from rich.progress import track
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
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def dictionary():
    """Return jieba's words with their frequencies, most frequent first."""
    with open(Path(jieba.__file__).parent / "dict.txt", encoding="utf-8") as file:
        rows = [line.split(" ")[:2] for line in file]
    return sorted(((word, int(freq)) for word, freq in rows), key=lambda row: -row[1])


def read_texts(corpus):
    """Return texts of a file or folder, a few thousand per file."""
    texts = []
    for path in corpus_files([corpus]):
        documents = (text.strip() for chunk in read_chunks(path) for text in chunk.documents("text"))
        texts += islice(documents, 4000)
    return texts


def make_texts(characters):
    """Return sentences of words sampled by frequency, for machines without a corpus."""
    rng = random.Random(0)
    words, weights = zip(*dictionary(), strict=True)
    drawn = rng.choices(words, weights, k=characters)
    return ["".join(drawn[start : start + 12]) + "，。"[start % 2] for start in range(0, characters, 12)]


def cut_to(texts, length, total):
    """Return texts of `length` characters each, `total` characters in all."""
    joined = "".join(texts)
    joined *= -(-total // max(len(joined), 1))
    return [joined[start : start + length] for start in range(0, total, length)]


def make_vocabulary(path):
    """Make a word vocabulary: special tokens, all characters of jieba's dictionary, and its most frequent words."""
    rows = dictionary()
    characters = sorted({character for word, _ in rows for character in word})
    signs = [*"，。、；：？！“”（）《》", *(chr(code) for code in range(33, 127))]
    entries = list(
        dict.fromkeys([*SPECIAL, *signs, *characters, *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")])
    )
    seen = set(entries)
    entries += [word for word, _ in rows if word not in seen][: 50_000 - len(entries)]
    path.write_text("\n".join(entries) + "\n", encoding="utf-8")


def timed(runs, rounds, label):
    """Measure each function in `rounds` alternating calls, after one warm-up call."""
    times = {name: [] for name in runs}
    for round_ in track(range(rounds + 1), description=label, console=Console(stderr=True)):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if round_:
                times[name].append(time.perf_counter() - start)
    return {name: measure.Measurement(values) for name, values in times.items()}


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
        seconds = timed(runs, rounds, f"one core and {cores}")
    connection.send(None)
    alone.join()

    title = f"million characters/s, {len(texts):,} texts of 700 characters, median of {rounds} alternating runs"
    table = Table(title=title)
    speed = "million characters/s"
    for heading in ("ours in", speed, "BertTokenizerFast in", speed, "speed-up"):
        table.add_column(heading, justify="left" if heading.endswith(" in") else "right")
    one_call, one_map = ("one call, 1 core", "call", 1), ("datasets.map, 1 core", "map", 1)
    all_cores, all_map = (f"one call, {cores} cores", "call", cores), (f"datasets.map, {cores} cores", "map", cores)
    in_map = (f"datasets.map(num_proc={cores})", "map in processes", cores)
    in_pool = (f"a pool of {cores} processes", "pool", cores)
    for ours, bert in (
        (one_call, one_call),
        (one_map, one_map),
        (in_pool, all_cores),
        (in_map, in_map),
        (in_map, all_map),
    ):
        mine, theirs = seconds[ours[1], "ours", ours[2]], seconds[bert[1], "bert", bert[2]]
        speeds = [measure.rate(size / 1e6, found, "{:.2f}") for found in (mine, theirs)]
        table.add_row(ours[0], speeds[0], bert[0], speeds[1], measure.ratio(theirs, mine))
    figures.add("cores", table)


def whole_texts_or_sentences(corpus):
    """Return the texts of a file, or a fixed sample of 1,000 sentences of a folder, evenly from its files."""
    corpus = Path(corpus)
    if not corpus.is_dir():
        return read_texts(corpus)
    files = corpus_files([corpus])
    sentences = []
    for number, path in enumerate(files):
        found = [match.strip() for text in read_texts(path) for match in re.findall(r"[^。！？\n]+[。！？]*", text)]
        share = 1000 * (number + 1) // len(files) - 1000 * number // len(files)
        sentences += random.Random(0).sample([sentence for sentence in found if sentence], share)
    return sentences


def round_trip(figures, folder, corpora):
    """Add a table of how many texts decode to themselves, with and without the rules for spaces."""
    tokenizers = load(folder)
    table = Table(title="texts that decode to themselves, except for upper case")
    for heading in ("corpus", "texts", "BertTokenizerFast", "ours, plain", "ours", "plain only"):
        table.add_column(heading, justify="left" if heading == "corpus" else "right")
    for corpus in corpora:
        texts = whole_texts_or_sentences(corpus)

        def back(name, texts=texts, **options):
            tokenizer = tokenizers[name]
            decoded = tokenizer.batch_decode(tokenizer(texts, add_special_tokens=False).input_ids, **options)
            pairs = enumerate(zip(decoded, texts, strict=True))
            return {number for number, (again, text) in pairs if again.lower() == text.lower()}

        plain, cleaned = back("ours", clean_up_tokenization_spaces=False), back("ours")
        shares = (f"{len(found) / len(texts):.1%}" for found in (back("bert"), plain, cleaned))
        table.add_row(Path(corpus).name, f"{len(texts):,}", *shares, str(len(plain - cleaned)))
    figures.add("round trip", table)


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
    parser.add_argument("--vocabulary", help="vocab.txt with words (default: made from jieba's dictionary)")
    parser.add_argument("--plot", help="plot characters per second by text length to this file")
    parser.add_argument("--cores", action="store_true", help="measure only with one core and with all")
    parser.add_argument("--round-trip", nargs="+", metavar="CORPUS", help="only count texts that decode to themselves")
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
        vocabulary = Path(folder) / "vocab.txt"
        if options.vocabulary:
            vocabulary.write_bytes(Path(options.vocabulary).read_bytes())
        else:
            make_vocabulary(vocabulary)
        if options.round_trip:
            round_trip(figures, folder, options.round_trip)
        else:
            texts = texts_to_measure(options.corpus)
            if options.cores:
                compare_cores(figures, folder, cut_to(texts, 700, options.characters), options.rounds)
            else:
                compare_tools(figures, folder, texts, options)


def texts_to_measure(corpus):
    if corpus:
        texts = read_texts(corpus)
    elif (SHARED / "zh_corpus").is_dir():
        texts = read_texts(SHARED / "zh_corpus")
    else:
        texts = make_texts(400_000)
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
    seconds = timed(runs, options.rounds, "300 texts of 700 characters")
    table = Table(title=f"300 texts of 700 characters, {os.cpu_count()} cores, median of {options.rounds} runs")
    for heading in ("", "million characters/s", "relative to BertTokenizerFast"):
        table.add_column(heading, justify="right" if heading else "left")
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
    seconds = timed(runs, options.rounds, "texts of all lengths")
    speeds = {key: measure.rate(sizes[key] / 1e6, found, "{:.2f}") for key, found in seconds.items()}
    names = list(dict.fromkeys(name for name, _ in runs))
    table = Table(title="million characters/s by length of the texts")
    table.add_column("characters per text")
    for name in names:
        table.add_column(name, justify="right")
    for length in lengths:
        table.add_row(f"{length:,}", *(speeds.get((name, length), "") for name in names))
    figures.add("lengths", table)
    if options.plot:
        draw(options.plot, names, speeds)


def draw(path, names, speeds):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name in names:
        points = [(length, 1e6 * float(speed)) for (of, length), speed in speeds.items() if of == name]
        axes.loglog(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xlabel("characters in a text")
    axes.set_ylabel("characters per second")
    axes.legend()
    axes.grid(which="both", alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
