"""`roformer rank`: exact search for the closest texts, with one file of vectors in memory at a time."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Column, Table
from rich.text import Text

from modeling_roformer.data import read_texts
from modeling_roformer.data.formats import is_file_name
from modeling_roformer.output.progress import byte_progress

from ..errors import ServingError
from .encoder import TextEncoder, check_finite, model_identity
from .vector_folder import VectorFolder, first_chunks

if TYPE_CHECKING:
    import pyarrow

_QUERIES_PER_PRODUCT = 256  # queries compared with a file in one product


@dataclass(frozen=True)
class Match:
    """A text of the corpus, and the cosine of its vector with the query's. `text` is None if texts were not kept.

    `chunk` is the number of the text's best chunk, from 1, and None if texts were not split.
    """

    cosine: float
    id: str
    text: str | None = None
    chunk: int | None = None


@dataclass(frozen=True)
class Ranking:
    """Closest texts for each query, best first. `finished` is False if only a part of the corpus was embedded."""

    queries: list[str]
    matches: list[list[Match]]
    finished: bool

    def table(self) -> Table:
        """Return the matches as a rich table."""
        has_text = any(match.text is not None for matches in self.matches for match in matches)
        has_chunk = any(match.chunk is not None for matches in self.matches for match in matches)
        whole = Column("id", overflow="fold")  # ids are shown in full
        more = ["chunk"] * has_chunk + ["text"] * has_text
        table = Table(*["query"] * (len(self.queries) > 1), "cosine", whole, *more)
        for query, matches in zip(self.queries, self.matches, strict=True):
            for place, match in enumerate(matches):
                row = [f"{match.cosine:.3f}", match.id]
                row += [str(match.chunk)] * has_chunk + [_short(match.text or "")] * has_text
                if len(self.queries) > 1:
                    row.insert(0, _short(query) if place == 0 else "")
                table.add_row(*map(Text, row), end_section=place == len(matches) - 1)
        return table

    def json_lines(self) -> str:
        """Return a line of JSON for each query: the query, and its results with ids, scores and texts in full."""
        lines = []
        for query, matches in zip(self.queries, self.matches, strict=True):
            results = []
            for match in matches:
                fields = {"id": match.id, "score": match.cosine, "chunk": match.chunk, "text": match.text}
                results.append({name: value for name, value in fields.items() if value is not None})
            lines.append(json.dumps({"query": query, "results": results}, ensure_ascii=False) + "\n")
        return "".join(lines)


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

    A text that was split into chunks is ranked by its best chunk, which is returned.

    Args:
        query: a text, a list of texts, or a file of texts (see `Texts`; `field` names the text in JSON Lines and
            Parquet).
        vectors: a folder written by `embed`.
        top_k: maximum number of texts per query, at least 1.
        model: folder of the model that made the vectors. By default it is found by its name in the current folder or
            beside the vectors.
        device: device that encodes the queries; see `TextEncoder`.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: `top_k` is less than 1, there are no vectors, a file of them is missing or damaged, the model
            differs, or a query has no vector.

    >>> rank("租客要求退还押金", "vectors", top_k=1).matches[0][0].id
    'cases.txt:3'
    """
    if top_k < 1:
        raise ServingError(f"top_k is {top_k}; expected at least 1")
    folder = VectorFolder(vectors)
    if folder.path.exists() and not folder.path.is_dir():
        raise ServingError(f"{folder.path} is not a folder: name a folder that `roformer embed` wrote")
    settings = folder.settings() or {}
    if not (shards := settings.get("shards")):
        raise ServingError(f"{folder.path} holds no vectors: make them with `roformer embed`")
    queries = _queries(query, field)
    place = _find_model(settings, folder, model)
    encoder = TextEncoder(
        place,
        max_length=settings["max_length"],
        longest=settings.get("longest"),
        dtype=settings["dtype"],
        device=device,
    )
    query_vectors = encoder(queries, "query")
    remedy = f"embed the corpus with --dtype float32 instead of {settings['dtype']}, or check the model's weights"
    check_finite(query_vectors, [f"the query {_short(text)!r}" for text in queries], remedy)
    query_vectors = _normalised(query_vectors)
    best = [_BestMatches(top_k) for _ in queries]
    with byte_progress(progress) as bar:
        task = bar.add_task("ranking", total=sum(path.stat().st_size for path in folder.files()))
        for name, record in shards.items():
            table = folder.read(name, record)
            column = table["vector"].combine_chunks()
            text_vectors = _normalised(column.flatten().to_numpy().reshape(-1, encoder.width))
            starts = first_chunks(table)
            table = table.drop_columns("vector")
            for start in range(0, len(queries), _QUERIES_PER_PRODUCT):
                end = start + _QUERIES_PER_PRODUCT
                cosines = (query_vectors[start:end] @ text_vectors.T).astype(np.float32)
                for matches, row in zip(best[start:end], cosines, strict=True):
                    matches.add(row, table, starts)
            bar.advance(task, (folder.path / name).stat().st_size)
    return Ranking(queries, [matches.matches for matches in best], "done" in settings)


class _BestMatches:
    """Matches with the largest cosines so far, in order."""

    def __init__(self, top_k: int):
        self.top_k, self.matches = top_k, []

    def add(self, cosines: np.ndarray, table: "pyarrow.Table", starts: np.ndarray | None = None) -> None:
        """Add the cosines of the rows of a file.

        The rows from one of `starts` to the next are chunks of one text. The best of them counts.
        """
        rows = np.arange(len(cosines))
        if starts is not None:
            best = np.repeat(np.maximum.reduceat(cosines, starts), np.diff([*starts, len(cosines)]))
            rows = np.minimum.reduceat(np.where(cosines == best, rows, len(cosines)), starts)
        rows = rows[np.argsort(-cosines[rows], kind="stable")[: self.top_k]]
        if len(self.matches) == self.top_k:
            rows = rows[cosines[rows] > self.matches[-1].cosine]
        for cosine, row in zip(cosines[rows], table.take(rows).to_pylist(), strict=True):
            self.matches.append(Match(float(cosine), row["id"], row.get("text"), row.get("chunk")))
        self.matches = sorted(self.matches, key=lambda match: -match.cosine)[: self.top_k]  # stable


def _queries(query: str | Path | Sequence[str], field: str) -> list[str]:
    if isinstance(query, (str, Path)):
        if os.path.exists(query) and not os.path.isdir(query):  # a pipe too
            query = [text for _, text in read_texts([query], field)]
        elif is_file_name(str(query)):
            raise ServingError(f"{query} does not exist: name a file of queries, or end the query otherwise")
        else:
            query = [str(query)]
    if not query or not all(text.strip() for text in query):
        raise ServingError("the query is empty")
    for text in query:
        if any("\udc80" <= character <= "\udcff" for character in text):  # bytes that Python could not decode
            raise ServingError(f"the query {text!r} is not text in the encoding of the terminal: set LANG=C.UTF-8")
    return list(query)


def _find_model(settings: dict, folder: VectorFolder, model: str | Path | None) -> Path:
    """Return the folder of the model that made the vectors; find it by its name if `model` is None."""
    name = Path(settings.get("model_name") or "")
    if model is not None:
        candidates = [Path(model)]
    else:
        parents = (Path(), folder.path.resolve().parent)
        candidates = [parent / end for parent in parents for end in (name, name.name)]
        candidates = [candidate for candidate in candidates if (candidate / "config.json").is_file()]
    for candidate in candidates:
        if model_identity(candidate) == settings["model"]:
            return candidate
    if candidates:
        raise ServingError(
            f"{candidates[0]} is not the model that made the vectors in {folder.path}, or has changed since: give the "
            "folder of that model with --model"
        )
    raise ServingError(
        f"the model of {folder.path}, {str(name)!r}, is neither in the current folder nor beside the vectors: give its "
        "folder with --model"
    )


def _normalised(vectors: np.ndarray) -> np.ndarray:
    """Normalise in float64. In float32 the cosines of equal vectors depend on their row, in the last bit."""
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _short(text: str, max_characters: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"
