"""`roformer rank`: exact search for the closest texts, with one file of vectors in memory at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
from rich.table import Column, Table
from rich.text import Text

from ...output.console import byte_progress
from ..errors import ServingError
from ..pooling import check_model
from .encoder import FIRST_CHUNK, TextEncoder, check_finite, model_identity
from .texts import Texts
from .vector_folder import VectorFolder, damaged, open_shard, read_shard

_QUERIES = 256  # compared with a file at once


@dataclass(frozen=True)
class Match:
    """A text of the corpus, and the cosine of its vector with the query's. `text` is None if texts were not kept."""

    cosine: float
    id: str
    text: str | None = None


@dataclass(frozen=True)
class Ranking:
    """Closest texts for each query, best first. `finished` is False if only a part of the corpus was embedded."""

    queries: list[str]
    matches: list[list[Match]]
    finished: bool

    def table(self) -> Table:
        """Return the matches as a rich table."""
        has_text = any(match.text is not None for matches in self.matches for match in matches)
        whole = Column("id", overflow="fold")  # ids are shown in full
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
    """Return the texts with the largest cosines for each query, equal ones in the order of the input.

    Of a text that was split into chunks, the best chunk counts, and is returned.

    Args:
        query: a text, a list of texts, or a file of texts (see `Texts`; `field` names the text in JSON Lines and
            Parquet).
        vectors: a folder written by `embed`.
        top_k: most texts per query.
        model: folder of the model that made the vectors. By default it is found by its name in the current folder or
            beside the vectors.
        device: on which the queries are encoded.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: there are no vectors, a file of them is missing, damaged or foreign, the model differs, or a query
            has no vector.

    >>> rank("租客要求退还押金", "vectors", top_k=1).matches[0][0].id
    'cases.txt:3'
    """
    if not isinstance(top_k, Integral) or top_k < 1:
        raise ServingError(f"top_k is {top_k}; expected an integer of at least 1")
    folder = VectorFolder(vectors)
    if not folder.path.exists():
        raise ServingError(f"{folder.path} does not exist: make a folder of vectors with `roformer embed`")
    run = folder.run()
    if not run or not (files := folder.check_files(run)):
        raise ServingError(f"{folder.path} holds no vectors: make them with `roformer embed`")
    queries = _queries(query, field)
    place = _model_of(run, folder) if model is None else check_model(model)
    if model is not None and model_identity(place) != run["model"]:
        raise ServingError(
            f"{place} is not the model that made the vectors in {folder.path}: give its folder with --model"
        )
    encoder = TextEncoder(
        place, max_length=run["max_length"], longest=run.get("longest"), dtype=run["dtype"], device=device
    )
    found = encoder(queries)
    check_finite(
        found,
        [f"the query {_short(text)!r}" for text in queries],
        f"embed the corpus with --dtype float32 instead of {run['dtype']}, or check the model's weights",
    )
    found = _normalised(found)
    records, order = run.get("shards") or {}, _Order()
    # Chunks and whole files are later than the versions that only their order protects.
    are_numbered = all(run.get(name) is None for name in ("id_field", "chunk", "sample_by"))
    best = [_Best(top_k) for _ in queries]
    rows = 0
    with byte_progress(progress) as bar:
        task = bar.add_task("ranking", total=sum(path.stat().st_size for path in files))
        for number, path in enumerate(files):
            with read_shard(path, records.get(path.name)) as file:
                some = _normalised(_vectors(path, file, encoder.width))
                if path.name not in records and are_numbered:
                    order.check(path, file)
                starts = _first_chunks(file) if run.get("chunk") else None
            rows += len(some)
            for start in range(0, len(found), _QUERIES):
                cosines = (found[start : start + _QUERIES] @ some.T).astype(np.float32)
                for one, row in zip(best[start : start + _QUERIES], cosines, strict=True):
                    one.add(number, row, starts)
            bar.advance(task, path.stat().st_size)
    done = run.get("done")
    if done and rows != (made := done.get("chunks", done["texts"])):
        raise ServingError(
            f"{folder.path} holds {rows:,} vectors, but {made:,} were made: run the same `roformer embed` again, which "
            "computes the missing ones"
        )
    return Ranking(queries, _matches(best, files), bool(done))


class _Order:
    """Check of shards that the settings do not list: their ids must be lines or rows of the sources, in order."""

    def __init__(self):
        self.source, self.row, self.seen = "", 0, set()

    def check(self, path: Path, file) -> None:
        """Raise ServingError if a file has texts from before the end of the previous file."""
        ids = file.read(["id"])["id"]
        for id_ in dict.fromkeys((ids[0].as_py(), ids[-1].as_py())) if len(ids) else ():
            source, _, row = id_.rpartition(":")
            if not row.isdecimal():
                raise damaged(path, f"the id {id_!r} is not that of a line or row")
            if source in self.seen or (source == self.source and int(row) <= self.row):
                raise damaged(path, f"{id_} comes after later texts")
            if source != self.source:
                self.seen.add(self.source)
            self.source, self.row = source, int(row)


class _Best:
    """Largest cosines so far, in order: `cosines`, and `places`, each a file's number and a row."""

    def __init__(self, top_k: int):
        self.top_k = top_k
        self.cosines = np.empty(0, dtype=np.float32)
        self.places = np.empty((0, 2), dtype=np.int64)

    def add(self, file: int, cosines: np.ndarray, starts: np.ndarray | None = None) -> None:
        """Add a file. From one of `starts` to the next, the rows are chunks of one text, of which the best counts."""
        rows = np.arange(len(cosines))
        if starts is not None:
            best = np.repeat(np.maximum.reduceat(cosines, starts), np.diff([*starts, len(cosines)]))
            rows = np.minimum.reduceat(np.where(cosines == best, rows, len(cosines)), starts)
            cosines = cosines[rows]
        if len(cosines) > self.top_k:  # candidates, with all that equal the last of them
            among = cosines >= np.partition(cosines, -self.top_k)[-self.top_k]
            rows, cosines = rows[among], cosines[among]
        cosines = np.concatenate([self.cosines, cosines])
        places = np.concatenate([self.places, np.stack([np.full_like(rows, file), rows], axis=1)])
        order = np.argsort(-cosines, kind="stable")[: self.top_k]
        self.cosines, self.places = cosines[order], places[order]


def _first_chunks(file) -> np.ndarray:
    """Return the rows with the first chunk of a text."""
    return np.flatnonzero([id_.endswith(FIRST_CHUNK) for id_ in file.read(["id"])["id"].to_pylist()])


def _matches(best: Sequence[_Best], files: Sequence[Path]) -> list[list[Match]]:
    """Read the ids and texts of the matches."""
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
    except (OSError, ValueError):  # the text is no valid file name
        return False


def _model_of(run: dict, folder: VectorFolder) -> Path:
    """Find the folder of the model that made the vectors."""
    if "model_path" in run:  # written by an older version
        names = [Path(run["model_path"])]
    else:
        name = Path(run.get("model_name") or "")
        names = [place / end for place in (Path(), folder.path.resolve().parent) for end in (name, name.name)]
    models = [place for place in names if (place / "config.json").is_file()]
    for place in models:
        if model_identity(place) == run["model"]:
            return check_model(place)
    if models:
        raise ServingError(
            f"{models[0]} is not the model that made the vectors in {folder.path}, or has changed since: give the "
            "folder of that model with --model"
        )
    if "model_path" in run:
        raise ServingError(f"the model of {folder.path} is no longer at {names[0]}: give its folder with --model")
    raise ServingError(
        f"the model of {folder.path}, {str(name)!r}, is neither in the current folder nor beside the vectors: give its "
        "folder with --model"
    )


def _vectors(path: Path, file, width: int) -> np.ndarray:
    """Read the vectors of a file, of shape (n, width)."""
    columns = {field.name: field.type for field in file.schema_arrow}
    if "vector" not in columns or str(columns.get("id")) != "string":
        name = "id" if "vector" in columns else "vector"
        raise ServingError(f"{path} has no column {name!r} of `roformer embed`: take the file out of the folder")
    table = file.read(["vector", "id"])
    column = table["vector"].combine_chunks()
    if getattr(column.type, "list_size", None) != width:
        raise ServingError(f"{path} has vectors of {column.type}; expected {width} numbers")
    found = column.flatten().to_numpy().reshape(-1, width)
    if not np.isfinite(found).all():
        check_finite(
            found, table["id"].to_pylist(), f"{path} is damaged, or of an older version: embed the texts again"
        )
    return found


def _normalised(vectors: np.ndarray) -> np.ndarray:
    """Normalise in float64. In float32 the cosines of equal vectors depend on their row, in the last bit."""
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _short(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
