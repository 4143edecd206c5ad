"""Speed of `roformer embed` relative to the model alone.

    python benchmarks/embedding.py --model roformer-mini-zh --texts reviews.jsonl.gz --speed 2000

Speed is measured from the file of texts to the files of vectors, without loading the model, and compared with the model
alone on the ids of the same texts, sorted by length.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import measure
from rich.table import Table

FORWARD, EMBED = "the model alone", "roformer embed"


def write(path: Path, source: str, count: int) -> None:
    """Write a number of texts of a file into another, repeating them as needed."""
    from modeling_roformer.serving.vectors.texts import Texts

    texts = cycle(text for shard in Texts((source,)).shards(1024) for text in shard.texts)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in islice(texts, count)), encoding="utf-8")


def make_subject(name: str, model: str, texts: str, options: dict) -> Callable:
    """Return a function that embeds all texts with a loaded model and returns their number of tokens."""
    from modeling_roformer.serving.vectors import TextEncoder, embed
    from modeling_roformer.serving.vectors.texts import Texts

    encoder = TextEncoder(model, **options)
    corpus = [text for shard in Texts((texts,)).shards(8192) for text in shard.texts]
    ids = sorted(encoder.rows(corpus, corpus).tokens, key=len)
    tokens = sum(map(len, ids))
    if name == FORWARD:
        return lambda: (encoder.vectors(ids), tokens)[1]
    sys.modules[embed.__module__].TextEncoder = lambda *_, **__: encoder

    def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            embed(model, texts, Path(folder) / "vectors")
        return tokens

    return run


def show_speed(figures: measure.Figures, chosen, folder: str) -> None:
    path = Path(folder) / "speed.jsonl"
    write(path, chosen.texts, chosen.speed)
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


def main() -> None:
    parser = measure.make_parser(__doc__)
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--texts", required=True, metavar="FILE", help="in any format of `roformer embed`")
    parser.add_argument("--speed", type=int, default=20_000, metavar="TEXTS", help="number of texts")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, measure.Figures(chosen.output, "pyarrow") as figures:
        show_speed(figures, chosen, folder)


if __name__ == "__main__":
    main()
