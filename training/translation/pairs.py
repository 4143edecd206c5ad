"""Pairs of sentences from two files of as many lines."""

import gzip
from pathlib import Path

import datasets

from ..errors import TrainingError


def read_pairs(source: str | Path, target: str | Path) -> datasets.Dataset:
    """Sentences in the columns `source` and `target`, a line of each file.

    Args:
        source, target: UTF-8 text files, or such as .gz; line i of one is the translation of line i of the other.

    Raises:
        TrainingError: they have not as many lines, one is empty, or they are the same; it names file and line.
    """
    texts = _read(source), _read(target)
    if texts[0] == texts[1]:
        raise TrainingError(f"{source} and {target} hold the same text: give the sentences and their translations")
    lines = [text.split("\n") for text in texts]
    if len(lines[0]) != len(lines[1]):
        counts = [f"{path} has {len(some):,} lines" for path, some in zip((source, target), lines, strict=True)]
        raise TrainingError(
            f"{counts[0]} and {counts[1]}: line i of one must be the translation of line i of the other"
        )
    for path, some in zip((source, target), lines, strict=True):
        for number, line in enumerate(some, 1):
            if not line.strip():
                raise TrainingError(f"{path}, line {number}: the sentence is empty; leave that line out of both files")
    return datasets.Dataset.from_dict({"source": lines[0], "target": lines[1]})


def _read(path: str | Path) -> str:
    path = Path(path)
    if not path.is_file():
        raise TrainingError(f"{path} is not a file")
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path} cannot be read as {'gzip of ' * (path.suffix == '.gz')}UTF-8: {error}") from None
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if not text.strip():
        raise TrainingError(f"{path} is empty")
    return text
