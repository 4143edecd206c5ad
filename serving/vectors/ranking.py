"""`roformer rank`: search by vectors, exact, with one file of them in memory at a time; by words; and by both."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from modeling_roformer.output.progress import byte_progress

from ..errors import ServingError
from .encoder import TextEncoder, check_finite, model_identity
from .fusion import DEPTH, TunedWeight, fuse, store_weight, stored_weight, tune_weight
from .matches import Match, Ranking, short
from .queries import Relevant, read_queries
from .terms import TermSplitter, check_unit, splitter_of
from .vector_folder import VectorFolder, first_chunks

if TYPE_CHECKING:
    import pyarrow

    from .word_index import WordIndex

logger = logging.getLogger(__name__)

_QUERIES_PER_PRODUCT = 256  # queries compared with a file in one product
BY = ("vectors", "words", "both")


def rank(
    query: str | Path | Sequence[str],
    vectors: str | Path,
    *,
    top_k: int = 10,
    field: str = "text",
    id_field: str | None = None,
    by: str = "vectors",
    word_unit: str | None = None,
    weight: float | None = None,
    min_score: float | None = None,
    model: str | Path | None = None,
    device: str | None = None,
    progress: bool = False,
    tell: Callable[[str], object] = logger.warning,
) -> Ranking:
    """Return the best texts for each query, equal ones in the order of the input.

    A text that was split into chunks is ranked by its best chunk, which is returned; by words, as a whole.

    Args:
        query: a text, a list of texts, or a file of texts (see `Texts`; `field` and `id_field` name the text and its id
            in JSON Lines, CSV, TSV and Parquet).
        vectors: a folder written by `embed`.
        top_k: maximum number of texts per query, at least 1.
        by: "vectors" for the largest cosines, "words" for the largest BM25, "both" for the two lists, joined by their
            reciprocal ranks.
        word_unit: "word" or "bigram", if the index of words is made now; see `TermSplitter`.
        weight: weight of the vectors with "both", from 0 to 1; by default the one that `tune` stored, or 0.5.
        min_score: leave out texts with a lower score.
        model: folder of the model that made the vectors. By default it is found by its name in the current folder or
            beside the vectors.
        device: device that encodes the queries; see `TextEncoder`.
        progress: show a progress bar on stderr.
        tell: called with a sentence if an index of words cannot be used and is made again.

    Raises:
        ServingError: `top_k` is less than 1, there are no vectors, a file of them is missing or damaged, the model
            differs, a query has no vector, or there is no index of words and no text to make it of.

    >>> rank("租客要求退还押金", "vectors", top_k=1).matches[0][0].id
    'cases.txt:3'
    """
    if top_k < 1:
        raise ServingError(f"top_k is {top_k}; expected at least 1")
    if by not in BY:
        raise ServingError(f"by is {by!r}; expected one of {', '.join(BY)}")
    if weight is not None and not (by == "both" and 0 <= weight <= 1):
        raise ServingError(f"weight is {weight:g}; expected 0 (words alone) to 1 (vectors alone), with --both")
    search = _Search(VectorFolder(vectors), word_unit, model, device, progress, tell)
    queries = read_queries(query, field, id_field)
    if by == "both":
        lists = search.by_both(queries.texts, max(top_k, DEPTH))
        weight = stored_weight(search.folder.path, search.index.splitter.unit) if weight is None else weight
        matches = [fuse(*of_query, weight)[:top_k] for of_query in zip(*lists, strict=True)]
    else:
        matches = (search.by_words if by == "words" else search.by_vectors)(queries.texts, top_k)
    if min_score is not None:
        matches = [[match for match in of_query if match.score >= min_score] for of_query in matches]
    scored_by = {"vectors": "cosine", "words": "BM25", "both": "score"}[by]
    finished = "done" in search.settings
    return Ranking(queries.texts, matches, finished, scored_by, queries.ids, shows_ids=id_field is not None)


def tune(
    queries: str | Path,
    vectors: str | Path,
    relevant: Relevant,
    *,
    field: str = "text",
    id_field: str | None = None,
    word_unit: str | None = None,
    model: str | Path | None = None,
    device: str | None = None,
    progress: bool = False,
    tell: Callable[[str], object] = logger.warning,
) -> TunedWeight:
    """Choose the weight of the vectors with `by="both"` on queries, and store it beside the vectors.

    Args:
        queries: a file of queries. Never evaluate with these.
        relevant: ids of the relevant texts of each query; see `read_relevant` and `read_qrels`.
        vectors, field, id_field, word_unit, model, device, progress, tell: see `rank`.

    Raises ServingError as `rank` does, and if no relevant text is found.
    """
    search = _Search(VectorFolder(vectors), word_unit, model, device, progress, tell)
    read = read_queries(queries, field, id_field)
    lists = search.by_both(read.texts, DEPTH)
    tuned = tune_weight(*lists, read.ids, relevant, search.index.splitter.unit)
    store_weight(search.folder.path, tuned)
    return tuned


@dataclass
class _Search:
    """Search in a folder of vectors; see `rank` for the arguments."""

    folder: VectorFolder
    word_unit: str | None
    model: str | Path | None
    device: str | None
    progress: bool
    tell: Callable[[str], object]

    def __post_init__(self):
        check_unit(self.word_unit)
        if self.folder.path.exists() and not self.folder.path.is_dir():
            raise ServingError(f"{self.folder.path} is not a folder: name a folder that `roformer embed` wrote")
        self.settings = self.folder.settings() or {}
        if not self.settings.get("shards"):
            raise ServingError(f"{self.folder.path} holds no vectors: make them with `roformer embed`")

    @cached_property
    def place(self) -> Path:
        """Folder of the model that made the vectors."""
        return _find_model(self.settings, self.folder, self.model)

    @cached_property
    def index(self) -> "WordIndex":
        """Index of words, which is made if it is missing and texts are stored."""
        from .word_index import open_index

        def make_splitter(unit: str) -> TermSplitter:
            return splitter_of(self.place, unit)

        return open_index(self.folder, self.settings, self.word_unit, make_splitter, self.tell)

    def by_words(self, queries: Sequence[str], top_k: int) -> list[list[Match]]:
        """Return the texts with the largest BM25 for each query."""
        return self.index.search(queries, top_k)

    def by_both(self, queries: Sequence[str], top_k: int) -> tuple[list[list[Match]], list[list[Match]]]:
        """Return the texts by vectors, and those by words."""
        found = self.by_words(queries, top_k)  # first, since an index may be missing
        return self.by_vectors(queries, top_k), found

    def by_vectors(self, queries: Sequence[str], top_k: int) -> list[list[Match]]:
        """Return the texts with the largest cosines for each query."""
        settings, folder = self.settings, self.folder
        encoder = TextEncoder(
            self.place,
            max_length=settings["max_length"],
            longest=settings.get("longest"),
            dtype=settings["dtype"],
            device=self.device,
        )
        query_vectors = encoder(queries, "query")
        remedy = f"embed the corpus with --dtype float32 instead of {settings['dtype']}, or check the model's weights"
        check_finite(query_vectors, [f"the query {short(text)!r}" for text in queries], remedy)
        query_vectors = _normalised(query_vectors)
        best = [_BestMatches(top_k) for _ in queries]
        with byte_progress(self.progress) as bar:
            task = bar.add_task("ranking", total=sum(path.stat().st_size for path in folder.files()))
            for name, record in settings["shards"].items():
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
        return [matches.matches for matches in best]


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
            rows = rows[cosines[rows] > self.matches[-1].score]
        for cosine, row in zip(cosines[rows], table.take(rows).to_pylist(), strict=True):
            self.matches.append(Match(float(cosine), row["id"], row.get("text"), row.get("chunk")))
        self.matches = sorted(self.matches, key=lambda match: -match.score)[: self.top_k]  # stable


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
