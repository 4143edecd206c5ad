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
from modeling_roformer.serving.vectors import TextEncoder, embed

FORWARD, EMBED = "the model alone", "roformer embed"
PEERS = {f"sentence-transformers, {name}": name for name in (peers.BERT, peers.THEIRS, peers.MODERN)}
EXAMPLES = reporting.ROOT / "examples"
LONGEST = 512  # tokens and characters of a text, with --peers
BATCH_TOKENS = 16_384


def texts_of(source: str) -> list[str]:
    return [text for _, text in read_texts([source])]


def pieces() -> list[str]:
    """Return pieces of a document."""
    document = (EXAMPLES / "long_document.txt").read_text(encoding="utf-8").replace("\n", "")
    draw, found = random.Random(0), []
    for _ in range(1000):
        start = draw.randrange(len(document) - 500)
        found.append(document[start : start + draw.randrange(20, 501)])
    return found


def write_models(folder: Path, layers: int, width: int) -> dict[str, str]:
    """Save encoders of all kinds with one tokenizer, and return their folders."""
    tokenizer = RoFormerTokenizer(str(EXAMPLES / "roformer-mini-zh" / "vocab.txt"), model_max_length=LONGEST)
    size = peers.Size(layers, width, len(tokenizer), LONGEST)
    places = {}
    for name in (peers.OURS, *PEERS.values()):
        places[name] = str(folder / name)
        peers.make_model(name, "Model", size).save_pretrained(places[name])
        tokenizer.save_pretrained(places[name])
    return places


def make_peer(name: str, folder: str, texts: str, device: str, dtype: str, batch: int) -> Callable:
    """Return a function that embeds all texts with sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(folder, device=device, model_kwargs={"dtype": dtype})
    if name == peers.THEIRS:  # the folder was loaded with our class, since its import registers it
        encoder[0].model = transformers.RoFormerModel.from_pretrained(folder, dtype=dtype).to(device).eval()
    corpus = texts_of(texts)
    return lambda: encoder.encode(corpus, batch_size=batch) is None


def make_subject(name: str, model: str, texts: str, device: str, dtype: str) -> Callable:
    """Return a function that embeds all texts with a loaded model and returns their number of tokens."""
    encoder = TextEncoder(model, device=device, dtype=dtype, batch_tokens=BATCH_TOKENS)
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


def measure(chosen, folder: Path) -> Table:
    """Return the table of speeds."""
    corpus, places = pieces() if chosen.peers else texts_of(chosen.texts), {peers.OURS: chosen.model}
    if chosen.peers:
        places = write_models(folder, *(2, 64) if chosen.quick else (12, 768))
    texts = str(folder / "speed.jsonl")
    lines = (json.dumps({"text": text}) + "\n" for text in islice(cycle(corpus), chosen.speed))
    Path(texts).write_text("".join(lines), encoding="utf-8")
    kind = timing.Resident if chosen.peers else timing.Worker
    where = chosen.device, chosen.dtype
    subjects = {name: kind(make_subject, name, places[peers.OURS], texts, *where) for name in (FORWARD, EMBED)}
    tokens = subjects[FORWARD].run()[2]
    batch = max(1, BATCH_TOKENS * chosen.speed // tokens)
    if chosen.peers:
        subjects |= {title: kind(make_peer, of, places[of], texts, *where, batch) for title, of in PEERS.items()}
    measured = timing.alternate({name: (subject,) for name, subject in subjects.items()}, chosen.runs)
    relative = {f"/ {FORWARD}": (FORWARD, "{:.3f}")}
    if chosen.peers:
        first = next(iter(PEERS))
        relative[f"/ {first}"] = first, "{:.2f} ×"
    table = Table("", "texts/s", "tokens/s", *relative, title=f"{chosen.speed:,} texts, {tokens:,} tokens")
    for name, found in measured.items():
        speeds = reporting.rate(chosen.speed, found), reporting.rate(tokens, found)
        table.add_row(name, *speeds, *(reporting.ratio(measured[of], found, form) for of, form in relative.values()))
    return table


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--model", metavar="DIR", help="needed without --peers")
    parser.add_argument("--texts", metavar="FILE", help="in any format of `roformer embed`; needed without --peers")
    parser.add_argument("--peers", action="store_true", help="compare with sentence-transformers")
    parser.add_argument("--speed", type=int, default=20_000, metavar="TEXTS", help="number of texts")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--quick", action="store_true", help="few texts, one run; with --peers, small models")
    chosen = parser.parse_args()
    if chosen.peers != (chosen.model is None) or chosen.peers != (chosen.texts is None):
        parser.error("give --model and --texts, or --peers, which makes models and texts")
    if chosen.quick:
        chosen.speed, chosen.runs = 64, 1
    peers.quiet()
    with (
        tempfile.TemporaryDirectory() as folder,
        reporting.Figures(chosen.output, "pyarrow", "sentence-transformers") as figures,
    ):
        figures.add("speed", measure(chosen, Path(folder)))


if __name__ == "__main__":
    main()
