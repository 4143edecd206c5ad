"""Which texts of a corpus are closest to one: exact, with one file of vectors in memory at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Column, Table
from rich.text import Text

from ...output.progress_bar import byte_progress
from ..errors import ServingError
from .encoder import TextEncoder, check_model, model_identity
from .texts import Texts
from .vector_folder import VectorFolder, open_shard

_QUERIES = 256  # that are compared with a file at once


@dataclass(frozen=True)
class Match:
    """A text of a corpus, and the cosine of its vector with the query's; `text` is None where texts were not kept."""

    cosine: float
    id: str
    text: str | None = None


@dataclass(frozen=True)
class Ranking:
    """The closest texts of each query, best first; `finished` says whether the corpus had been embedded to its end."""

    queries: list[str]
    matches: list[list[Match]]
    finished: bool

    def table(self) -> Table:
        """The matches as a rich table."""
        has_text = any(match.text is not None for matches in self.matches for match in matches)
        whole = Column("id", overflow="fold")  # by which a text is found
        table = Table(*["query"] * (len(self.queries) > 1), "cosine", whole, *["text"] * has_text)
        for query, matches in zip(self.queries, self.matches, strict=True):
            for place, match in enumerate(matches):
                row = [f"{match.cosine:.3f}", match.id, *([_short(match.text)] if has_text else [])]
                if len(self.queries) > 1:
                    row.insert(0, _short(query) if place == 0 else "")
                table.add_row(*map(Text, row), end_section=place == len(matches) - 1)
        return table


def rank(
    query: str | Path | Sequence[str],
    vectors: str | Path,
    *,
    top_k: int = 10,
    field: str = "text",
    model: str | Path | None = None,
    device: str | None = None,
    progress: bool = False,
) -> Ranking:
    """The texts whose vectors have the largest cosines with that of each query; of equal ones, the first in the input.

    Args:
        query: a text, or a file of texts (see `Texts`; `field` is where JSON Lines and Parquet keep them), or a list.
        vectors: a folder that `embed` wrote.
        top_k: how many texts for each query; all where there are fewer.
        model: folder of the model that made the vectors, where it is no longer where it was.
        device: what the queries' vectors are computed on.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: there are no vectors, a file of them is damaged, or the model is another.

    >>> rank("租客要求退还押金", "vectors", top_k=1).matches[0][0].id
    'cases.txt:3'
    """
    if top_k < 1:
        raise ServingError(f"top_k is {top_k}, but must be at least 1")
    folder = VectorFolder(vectors)
    if not folder.path.exists():
        raise ServingError(f"{folder.path} does not exist: `roformer embed` makes a folder of vectors")
    run = folder.run()
    if not run or not (files := folder.files()):
        raise ServingError(f"{folder.path} holds no vectors: `roformer embed` makes a folder of them")
    queries = _queries(query, field)
    place = check_model(_model_of(run, folder) if model is None else model)
    if model_identity(place) != run["model"]:
        raise ServingError(
            f"{place} is not the model that made the vectors in {folder.path} (--model names its folder)"
        )
    encoder = TextEncoder(place, max_length=run["max_length"], dtype=run["dtype"], device=device)
    asked = _of_length_one(encoder(queries))
    best = [_Best(top_k) for _ in queries]
    with byte_progress(progress) as bar:
        task = bar.add_task("ranking", total=sum(path.stat().st_size for path in files))
        for number, path in enumerate(files):
            some = _of_length_one(_vectors(path, encoder.width))
            for start in range(0, len(asked), _QUERIES):
                cosines = asked[start : start + _QUERIES] @ some.T
                for found, row in zip(best[start : start + _QUERIES], cosines, strict=True):
                    found.add(number, row)
            bar.advance(task, path.stat().st_size)
    return Ranking(queries, _matches(best, files), "done" in run)


class _Best:
    """The largest of the cosines so far, in order: `cosines`, and `places`, number of the file and row in it."""

    def __init__(self, top_k: int):
        self.top_k = top_k
        self.cosines = np.empty(0, dtype=np.float32)
        self.places = np.empty((0, 2), dtype=np.int64)

    def add(self, file: int, cosines: np.ndarray) -> None:
        rows = np.arange(len(cosines))
        if len(cosines) > self.top_k:  # all that may be among the best, with those that are equal to the last of them
            rows = np.flatnonzero(cosines >= np.partition(cosines, -self.top_k)[-self.top_k])
        cosines = np.concatenate([self.cosines, cosines[rows]])
        places = np.concatenate([self.places, np.stack([np.full_like(rows, file), rows], axis=1)])
        order = np.argsort(-cosines, kind="stable")[: self.top_k]
        self.cosines, self.places = cosines[order], places[order]


def _matches(best: Sequence[_Best], files: Sequence[Path]) -> list[list[Match]]:
    """Ids and texts, which are read where there is a match and nowhere else."""
    found: dict[tuple[int, int], tuple[str, str | None]] = {}
    for file in sorted({int(file) for some in best for file, _ in some.places}):
        rows = sorted({int(row) for some in best for number, row in some.places if number == file})
        with open_shard(files[file]) as shard:
            columns = [name for name in ("id", "text") if name in shard.schema_arrow.names]
            table = shard.read(columns).take(rows)
        texts = table["text"].to_pylist() if "text" in columns else [None] * len(rows)
        for row, id_, text in zip(rows, table["id"].to_pylist(), texts, strict=True):
            found[file, row] = id_, text
    return [
        [
            Match(float(cosine), *found[int(file), int(row)])
            for cosine, (file, row) in zip(some.cosines, some.places, strict=True)
        ]
        for some in best
    ]


def _queries(query: str | Path | Sequence[str], field: str) -> list[str]:
    if isinstance(query, (str, Path)):
        if _is_file(query):
            texts = Texts((str(query),), field)
            query = [text for shard in texts.shards(1024) for text in shard.texts]
            if not query:
                raise ServingError(f"there is no text in {texts.sources[0]}")
        else:
            query = [str(query)]
    query = list(query)
    if not query or not all(text.strip() for text in query):
        raise ServingError("the query is empty")
    return query


def _is_file(query: str | Path) -> bool:
    try:
        return Path(query).is_file()
    except (OSError, ValueError):  # no name that a file could have
        return False


def _model_of(run: dict, folder: VectorFolder) -> Path:
    place = Path(run["model_path"])
    if not place.is_dir():
        raise ServingError(f"the model of {folder.path} is no longer at {place}: --model names its folder")
    return place


def _vectors(path: Path, width: int) -> np.ndarray:
    """Float32 of shape (n, width)."""
    with open_shard(path) as file:
        try:
            column = file.read(["vector"])["vector"].combine_chunks()
        except KeyError:
            raise ServingError(f"{path} has no column 'vector', so `roformer embed` did not make it") from None
        if getattr(column.type, "list_size", None) != width:
            raise ServingError(f"{path} has vectors of {column.type}, and not of {width} numbers")
        return column.flatten().to_numpy().reshape(-1, width).astype(np.float32, copy=False)


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _short(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
