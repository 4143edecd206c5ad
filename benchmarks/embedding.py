"""Speed of `roformer embed` relative to the model alone, and its memory.

    python benchmarks/embedding.py --model roformer-mini-zh --texts reviews.jsonl.gz --plot embedding.png

Speed is measured from the file of texts to the files of vectors, without loading the model, and compared with the model
alone on the ids of the same texts, sorted by length. Memory is that of whole processes, for growing numbers of texts.
"""

import argparse
import json
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import measure
from rich.table import Table

FORWARD, EMBED = "the model alone", "roformer embed"


def read(path: str, count: int) -> list[str]:
    """Write a number of texts from a file, repeating them as needed."""
    from modeling_roformer.serving.vectors.texts import Texts

    texts: list[str] = []
    for shard in Texts((path,)).shards(1024):
        texts += shard.texts
        if len(texts) >= count:
            break
    return list(islice(cycle(texts), count))


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def make_subject(name: str, model: str, texts: str, options: dict) -> Callable:
    """Return a function that embeds all texts with a loaded model and returns their number of tokens."""
    from modeling_roformer.serving.vectors import TextEncoder, embed
    from modeling_roformer.serving.vectors.texts import Texts

    encoder = TextEncoder(model, **options)
    corpus = [text for shard in Texts((texts,)).shards(8192) for text in shard.texts]
    ids = sorted(encoder.tokenize(corpus), key=len)
    tokens = sum(map(len, ids))
    if name == FORWARD:
        return lambda: (encoder.vectors(ids), tokens)[1]
    sys.modules[embed.__module__].TextEncoder = lambda *_, **__: encoder

    def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            embed(model, texts, Path(folder) / "vectors")
        return tokens

    return run


def show_speed(figures: measure.Figures, chosen, folder: Path) -> None:
    path = write(folder / "speed.jsonl", read(chosen.texts, chosen.speed))
    options = {"device": chosen.device, "dtype": chosen.dtype, "batch_tokens": chosen.batch_tokens}
    with figures.console.status("") as status:
        workers = {
            name: measure.Worker(make_subject, name, chosen.model, str(path), options) for name in (FORWARD, EMBED)
        }
        tokens = workers[FORWARD].run()[2]
        calls = {name: (worker,) for name, worker in workers.items()}
        measured = measure.alternate(calls, chosen.runs, status.update)
        measure.close(workers.values())
    table = Table("", "texts/s", "tokens/s", "/ the model alone", title=f"{chosen.speed:,} texts, {tokens:,} tokens")
    for name, found in measured.items():
        share = measure.ratio(measured[FORWARD], found, "{:.3f}")
        table.add_row(name, measure.rate(chosen.speed, found), measure.rate(tokens, found), share)
    figures.add("speed", table)


def resident() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


def embed_and_watch(connection, model: str, texts: str, output: str, options: dict) -> None:
    """Run in a process: sample its memory and the number of finished shards."""
    from modeling_roformer.serving.vectors import embed

    curve, ended = [], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            done = sum(not path.name.startswith(".") for path in Path(output).glob("*.parquet"))
            curve.append((done, resident()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        embed(model, texts, output, **options)
    finally:
        ended.set()
        watcher.join()
    connection.send((curve, resident(), measure.peak_memory()))


def show_memory(figures: measure.Figures, chosen, folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    table = Table("texts", "memory at the end, MB", "at most, MB", "seconds", title="Memory of the whole process")
    curves = {}
    texts = read(chosen.texts, max(chosen.memory))
    for count in chosen.memory:
        path = write(folder / "memory.jsonl", texts[:count])
        ours, theirs = context.Pipe()
        output = folder / "vectors"
        options = {"device": chosen.device, "dtype": chosen.dtype, "batch_tokens": chosen.batch_tokens}
        started = time.perf_counter()
        process = context.Process(target=embed_and_watch, args=(theirs, chosen.model, str(path), str(output), options))
        process.start()
        theirs.close()
        with figures.console.status(f"{count:,} texts"):
            try:
                curves[count], end, peak = ours.recv()
            except EOFError:
                raise SystemExit("a measured process failed") from None
        process.join()
        seconds = time.perf_counter() - started
        shutil.rmtree(output)
        table.add_row(f"{count:,}", f"{end / measure.MB:,.0f}", f"{peak / measure.MB:,.0f}", f"{seconds:,.1f}")
    figures.add("memory", table)
    if chosen.plot:
        plot(curves, chosen.plot)
        figures.console.print(f"{chosen.plot}: memory while texts are embedded")


def plot(curves: dict[int, list[tuple[int, float]]], path: str) -> None:
    """Plot the peak memory of each shard against the number of finished texts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from modeling_roformer.serving.vectors.embedding import SHARD_SIZE

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for count, curve in sorted(curves.items(), reverse=True):
        most: dict[int, float] = {}
        for done, memory in curve:
            most[done] = max(memory / measure.MB, most.get(done, 0))
        axes.plot([min(count, done * SHARD_SIZE) for done in most], most.values(), marker=".", label=f"{count:,} texts")
    axes.set(xlabel="texts embedded", ylabel="memory of the process, MB", ylim=(0, None))
    axes.legend(loc="lower right")
    FigureCanvasAgg(figure).print_png(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--texts", required=True, metavar="FILE", help="in any format of `roformer embed`")
    parser.add_argument(
        "--speed", type=int, default=20_000, metavar="TEXTS", help="number of texts to time; 0 skips this"
    )
    parser.add_argument(
        "--memory", type=int, nargs="*", default=[10_000, 100_000], metavar="TEXTS", help="numbers of texts"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--plot", metavar="PNG", help="plot memory against the number of finished texts to this file")
    measure.add_output(parser)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, measure.Figures(chosen.output, "pyarrow") as figures:
        if chosen.speed:
            show_speed(figures, chosen, Path(folder))
        if chosen.memory:
            show_memory(figures, chosen, Path(folder))


if __name__ == "__main__":
    main()
