"""Facts measured from a checkpoint's files, and their table in a card.

The table is between two comments, so that it can be updated without a change to the text around it.
"""

import datetime
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from math import prod
from pathlib import Path

from safetensors import safe_open

from modeling_roformer.files.reading import read_json
from modeling_roformer.tokenization.vocabulary import read_vocab_txt

from .kinds import KINDS, kind_of, why_package_is_needed
from .servers import servers_of

START = "<!-- facts -->"
END = "<!-- /facts -->"
FILE = "file "  # prefix of the rows for weights

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def measure(directory: str | Path, word_level: bool) -> dict[str, object]:
    """Return the facts of a saved model: kind, parameters, dtype, how it loads, and size and SHA-256 of its weights.

    `tokenizer` is the content of tokenizer_config.json. `card_for` reads from it how texts are segmented.

    Raises SafetensorError or OSError if a file cannot be read, ValueError if a shard is missing.

    >>> measure("roformer-mini-zh", word_level=True)["parameters"]
    7889888
    """
    directory = Path(directory)
    config = read_json(directory / "config.json", default={})
    tokenizer_config = read_json(directory / "tokenizer_config.json", default={})
    kind, reason = kind_of(config, word_level), why_package_is_needed(config, tokenizer_config)
    files = sorted(directory.glob("*.safetensors"))
    index = directory / "model.safetensors.index.json"
    if index.is_file() and (absent := [path.name for path in data_files(index) if path not in files]):
        raise ValueError(f"{directory} lacks {absent[0]}, which {index.name} names: copy the whole model there")
    tensors = [tensor for path in files for tensor in safetensors_header(path).values()]
    return {
        "family": KINDS[kind].title if kind else None,
        "parameters": sum(prod(shape) for _, shape in tensors) or None,
        "dtype": ", ".join(sorted({DTYPES.get(dtype, dtype) for dtype, _ in tensors})) or None,
        "loads with": loads_with(config, reason) if kind else None,
        "servers": "; ".join(servers_of(config, tokenizer_config, word_level)) or None,
        "tokenizer": tokenizer_config,
    } | {f"{FILE}{path.name}": file_fact(path) for path in files}


def conversion_facts(source_files: Iterable[str | Path]) -> dict[str, str]:
    """Return the facts of a conversion: date (today), versions, and size and SHA-256 of each source file.

    >>> conversion_facts(["bert_model.ckpt.data-00000-of-00001"])["converted on"]
    '2026-11-21'
    """
    made_with = ", ".join(f"{name} {version(name)}" for name in ("modeling-roformer", "transformers", "torch"))
    sources = {f"source file {Path(path).name}": file_fact(path) for path in source_files}
    return sources | {"converted on": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "converted with": made_with}


def data_files(weights: str | Path) -> list[Path]:
    """Return the data files of a checkpoint, given its one file, the index of its shards, or a TensorFlow prefix."""
    weights = Path(weights)
    if weights.name.endswith(".index.json"):
        shards = read_json(weights).get("weight_map")
        if not isinstance(shards, dict):
            raise ValueError(f"{weights} has no weight_map, so it is not the index of a model's shards")
        return [weights.with_name(name) for name in sorted(set(map(str, shards.values())))]
    if weights.is_file():
        return [weights]
    shard = re.compile(re.escape(weights.name) + r"\.data-\d{5}-of-\d{5}")
    return sorted(path for path in weights.parent.iterdir() if shard.fullmatch(path.name))


def file_fact(path: str | Path) -> str:
    """Return the size and SHA-256 of a file as text."""
    return f"{Path(path).stat().st_size:,} bytes, SHA-256 {sha256_of(path)}"


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safetensors_header(path: str | Path) -> dict[str, tuple[str, list[int]]]:
    """Return the dtype, in safetensors' names, and shape of each tensor by name; the data is not read."""
    with safe_open(path, "np") as weights:
        slices = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118, it is not a dict
        return {name: (part.get_dtype(), part.get_shape()) for name, part in slices.items()}


def loads_with(config: dict, reason: str | None) -> str:
    """Return which packages load a checkpoint; `reason` is that of why_package_is_needed()."""
    if reason is not None:
        code = ", or with trust_remote_code=True," if config.get("auto_map") else ","
        return f"the modeling-roformer package{code} and not with transformers alone: {reason}"
    limit = config.get("max_position_embeddings")
    return "modeling-roformer, and plain transformers" + (f" up to {limit:,} tokens" if isinstance(limit, int) else "")


def facts_table(rows: dict[str, object]) -> str:
    """Return a Markdown table of two columns, between the two comments; None leaves a row out."""
    lines = [f"| {cell(key)} | {cell(value)} |" for key, value in rows.items() if value is not None]
    return "\n".join([START, "", "| | |", "| --- | --- |", *lines, "", END])


def read_facts(card: str) -> dict[str, str]:
    """Return the rows of a card's table of facts, as they were passed to `facts_table`; {} if it has no table.

    >>> read_facts(facts_table({"layers": 12}))
    {'layers': '12'}
    """
    table = card.partition(START)[2].partition(END)[0]
    rows = {}
    for line in table.splitlines():
        cells = [part.strip() for part in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if len(cells) == 2 and cells[0].strip("-"):
            rows[plain(cells[0])] = plain(cells[1])
    return rows


def trained_at(length: int) -> str:
    """Return the row "trained at" of a table of facts: the longest input in training, in tokens.

    >>> trained_at(1024)
    'up to 1,024 tokens'
    """
    return f"up to {length:,} tokens"


def trained_length(rows: Mapping[str, str]) -> int | None:
    """Return the number that `trained_at` wrote into the rows of `read_facts`; None if there is none.

    >>> trained_length({"trained at": trained_at(1024)})
    1024
    """
    stated = re.fullmatch(r"up to (\d[\d,]*) tokens", rows.get("trained at", ""))
    return int(stated[1].replace(",", "")) if stated else None


def cell(value: object) -> str:
    """Return a value as one line of text, escaped for a table's cell or a heading."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    text = " ".join(text.split()).replace("|", r"\|").replace("`", "'")
    return text.replace("&", "&amp;").replace("<", "&lt;")


def plain(text: str) -> str:
    """Return the text that `cell` escaped."""
    return text.replace(r"\|", "|").replace("&lt;", "<").replace("&amp;", "&")


def vocabulary_of(directory: str | Path) -> dict[str, int]:
    """Return entry -> id of a saved tokenizer, from vocab.txt or else tokenizer.json; {} if there is neither."""
    directory = Path(directory)
    if (directory / "vocab.txt").is_file():
        return read_vocab_txt(directory / "vocab.txt")
    model = read_json(directory / "tokenizer.json", default={}).get("model")
    return model["vocab"] if isinstance(model, dict) and isinstance(model.get("vocab"), dict) else {}
