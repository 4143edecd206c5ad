"""Speed of `roformer embed` relative to the model alone, and beside sentence-transformers.

    python benchmarks/embedding.py --model roformer-mini-zh --texts reviews.jsonl.gz --speed 2000
    python benchmarks/embedding.py --peers --device cuda --dtype bfloat16

Speed is measured from the file of texts to the files of vectors, without loading the model, and compared with the model
alone on the ids of the same texts, sorted by length.

With --peers, `SentenceTransformer.encode` computes the vectors of the same texts with a BERT, transformers' RoFormer
and a ModernBERT. All models have 12 layers of 768, random weights and one tokenizer. Without --texts, these are pieces
of 20 to 500 characters of examples/long_document.txt. A batch of the peers has as many tokens on average as --batch-tokens.
"""

import functools
import json
import logging
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import measure
import torch
from rich.table import Table

FORWARD, EMBED = "the model alone", "roformer embed"


def write(path: Path, source: str, count: int) -> None:
    """Write a number of texts of a file into another, repeating them as needed."""
    from modeling_roformer.serving.vectors.texts import Texts

    texts = cycle(text for shard in Texts((source,)).shards(1024) for text in shard.texts)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in islice(texts, count)), encoding="utf-8")


def write_pieces(path: Path) -> None:
    """Write pieces of a document, one a line."""
    document = " ".join((measure.ROOT / "examples" / "long_document.txt").read_text(encoding="utf-8").split())
    draw = random.Random(0)
    starts = [draw.randrange(len(document) - 500) for _ in range(1000)]
    pieces = [document[start : start + draw.randrange(20, 501)] for start in starts]
    path.write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces), encoding="utf-8")


def write_models(folder: Path, layers: int, width: int) -> dict[str, str]:
    """Save the peers' encoders and ours, with random weights and the vocabulary of roformer-mini-zh; return their
    folders."""
    import peers

    from modeling_roformer import RoFormerTokenizer

    tokenizer = RoFormerTokenizer(str(measure.ROOT / "examples" / "roformer-mini-zh" / "vocab.txt"))
    size = peers.Size(layers, width, len(tokenizer))
    places = {}
    for name in (peers.OURS, peers.BERT, peers.THEIRS, peers.MODERN):
        places[name] = str(folder / name.replace(" ", "_"))
        peers.make_encoder(name, size).save_pretrained(places[name])
        tokenizer.save_pretrained(places[name])
    return places


def make_peer(name: str, model: str, texts: str, options: dict) -> Callable:
    """Return a function that embeds all texts with sentence-transformers."""
    from sentence_transformers import SentenceTransformer


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
