"""Speed of `roformer embed` relative to the model alone, and beside sentence-transformers.

    python benchmarks/embedding.py --model roformer-mini-zh --texts reviews.jsonl.gz --speed 2000
    python benchmarks/embedding.py --peers [--device cuda] [--dtype bfloat16]

Speed is measured from the file of texts to the files of vectors, without loading the model and hashing its files, and
compared with the model alone on the ids of the same texts, sorted by length.

With --peers, `SentenceTransformer.encode` computes the vectors of the same texts with a BERT, transformers' RoFormer
and a ModernBERT, in batches with as many tokens on average. All models, ours too, have 12 layers of 768, random weights
and the tokenizer of roformer-mini-zh. The texts are pieces of 20 to 500 characters of examples/long_document.txt. All
run in one process.
"""

import json
import random
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import peers
import reporting
import timing
import transformers
from rich.table import Table

from modeling_roformer import RoFormerTokenizer
from modeling_roformer.data import read_texts

FORWARD, EMBED = "the model alone", "roformer embed"
PEERS = {f"sentence-transformers, {name}": name for name in (peers.BERT, peers.THEIRS, peers.MODERN)}
EXAMPLES = reporting.ROOT / "examples"
LONGEST = 512  # tokens and characters of a text, with --peers


def texts_of(source: str) -> list[str]:
    return [text for _, text in read_texts([source])]


def write(path: Path, source: str, count: int) -> None:
    """Write a number of texts of a file into another, repeating them as needed."""
    texts = cycle(texts_of(source))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in islice(texts, count)), encoding="utf-8")


def write_pieces(path: Path) -> None:
    """Write pieces of a document."""
    document = (EXAMPLES / "long_document.txt").read_text(encoding="utf-8").replace("\n", "")
    draw, pieces = random.Random(0), []
    for _ in range(1000):
        start = draw.randrange(len(document) - 500)
        pieces.append(document[start : start + draw.randrange(20, 501)])
    path.write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces), encoding="utf-8")


def write_models(folder: Path, layers: int, width: int) -> dict[str, str]:
    """Save encoders of all kinds with one tokenizer, and return their folders."""
    peers.quiet()
    tokenizer = RoFormerTokenizer(str(EXAMPLES / "roformer-mini-zh" / "vocab.txt"), model_max_length=LONGEST)
    size = peers.Size(layers, width, len(tokenizer), LONGEST)
    places = {}
    for number, name in enumerate((peers.OURS, *PEERS.values())):
        places[name] = str(folder / str(number))
        peers.make_encoder(name, size).save_pretrained(places[name])
        tokenizer.save_pretrained(places[name])
    return places


def make_peer(name: str, folder: str, texts: str, device: str, dtype: str, batch: int) -> Callable:
    """Return a function that embeds all texts with sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    peers.quiet()
    encoder = SentenceTransformer(folder, device=device, model_kwargs={"dtype": dtype})
    if name == peers.THEIRS:  # the folder was loaded with our class, since its import registers it
        encoder[0].model = transformers.RoFormerModel.from_pretrained(folder, dtype=dtype).to(device).eval()
    corpus = texts_of(texts)
    return lambda: encoder.encode(corpus, batch_size=batch) is None


def make_subject(name: str, model: str, texts: str, options: dict) -> Callable:
    """Return a function that embeds all texts with a loaded model and returns their number of tokens."""
    from modeling_roformer.serving.vectors import TextEncoder, embed

    encoder = TextEncoder(model, **options)
    corpus = texts_of(texts)
    rows = encoder.rows(corpus, corpus)
    tokens = sum(map(len, rows.tokens))
    if name == FORWARD:
        return lambda: (encoder.vectors(rows), tokens)[1]
    source = sys.modules[embed.__module__]
    source.TextEncoder, source.model_identity = lambda *_, **__: encoder, cache(source.model_identity)

    def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            embed(model, texts, Path(folder) / "vectors")
        return tokens

    return run


def show_speed(figures: reporting.Figures, chosen, folder: Path) -> None:
    texts, places = folder / "speed.jsonl", {peers.OURS: chosen.model}
    if chosen.peers:
        chosen.texts = str(folder / "pieces.jsonl")
        write_pieces(Path(chosen.texts))
        places = write_models(folder, *(2, 64) if chosen.quick else (12, 768))
    write(texts, chosen.texts, chosen.speed)
    make, model = timing.Resident if chosen.peers else timing.Worker, places[peers.OURS]
    options = {"device": chosen.device, "dtype": chosen.dtype, "batch_tokens": chosen.batch_tokens}
    with figures.console.status("") as status:
        subjects = {name: make(make_subject, name, model, str(texts), options) for name in (FORWARD, EMBED)}
        tokens = subjects[FORWARD].run()[2]
        batch = max(1, chosen.batch_tokens * chosen.speed // tokens)
        for title, name in PEERS.items() if chosen.peers else ():
            subjects[title] = make(make_peer, name, places[name], str(texts), chosen.device, chosen.dtype, batch)
        calls = {name: (subject,) for name, subject in subjects.items()}
        measured = timing.alternate(calls, chosen.runs, status.update)
        timing.close(subjects.values())
    columns = ["", "texts/s", "tokens/s", f"/ {FORWARD}", *([f"/ {next(iter(PEERS))}"] if chosen.peers else [])]
    table = Table(*columns, title=f"{chosen.speed:,} texts, {tokens:,} tokens")
    for name, found in measured.items():
        cells = [reporting.rate(chosen.speed, found), reporting.rate(tokens, found)]
        cells.append(reporting.ratio(measured[FORWARD], found, "{:.3f}"))
        if chosen.peers:
            cells.append(reporting.ratio(measured[next(iter(PEERS))], found))
        table.add_row(name, *cells)
    figures.add("speed", table)


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--model", metavar="DIR", help="needed without --peers")
    parser.add_argument("--texts", metavar="FILE", help="in any format of `roformer embed`; needed without --peers")
    parser.add_argument("--peers", action="store_true", help="compare with sentence-transformers")
    parser.add_argument("--speed", type=int, default=20_000, metavar="TEXTS", help="number of texts")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--quick", action="store_true", help="few texts, one run; with --peers, small models")
    chosen = parser.parse_args()
    if chosen.peers != (chosen.model is None) or chosen.peers != (chosen.texts is None):
        parser.error("give --model and --texts, or --peers, which makes models and texts")
    if chosen.quick:
        chosen.speed, chosen.runs = 64, 1
    with (
        tempfile.TemporaryDirectory() as folder,
        reporting.Figures(chosen.output, "pyarrow", "sentence-transformers") as figures,
    ):
        show_speed(figures, chosen, Path(folder))


if __name__ == "__main__":
    main()
