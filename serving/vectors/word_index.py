"""The index of words beside the vectors: BM25 of whole texts, by the library bm25s.

It is in the folder `.words` of the folder of vectors, which readers of Parquet and of data sets pass over. `index.json`
has what it was made of, and the SHA-256 of each other file; these are bm25s's. The texts are numbered in the order of
the input, so their ids are those of the shards. A new index replaces the old one in one step.
"""

import hashlib
import json
import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from modeling_roformer.files.atomic_folder import complete, exchange, sync, temporary_sibling
from modeling_roformer.files.lock import only_writer
from modeling_roformer.output.extras import needs_extra

from ..errors import ServingError
from .matches import Match
from .terms import TermSplitter, segmenter_digest
from .texts import Shard
from .vector_folder import VectorFolder, texts_of

with needs_extra("embed", ServingError):
    import bm25s

FOLDER = ".words"
_SETTINGS = "index.json"


class CountedTexts:
    """Texts of a corpus as the numbers of their terms, in the order of the input: 4 bytes for each term."""

    def __init__(self, splitter: TermSplitter):
        self.splitter = splitter
        self.vocabulary: dict[str, int] = {}
        self.texts: list[array] = []

    def add(self, texts: Iterable[str]) -> None:
        """Count the terms of texts."""
        numbers = self.vocabulary
        for text in texts:
            self.texts.append(array("i", [numbers.setdefault(term, len(numbers)) for term in self.splitter(text)]))

    def counting(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Yield shards, and count the terms of their texts on the way."""
        for shard in shards:
            self.add(shard.texts)
            yield shard


class WordIndex:
    """An index that was read.

    Args:
        folder: the folder of vectors.
        settings: its settings.
        unit: the unit that the index must have, or None.

    Raises:
        ServingError: there is no index, it is damaged, or it was made of other texts, of another unit or by other code.
    """

    def __init__(self, folder: VectorFolder, settings: dict, unit: str | None = None):
        place = folder.path / FOLDER
        try:
            stored = json.loads((place / _SETTINGS).read_bytes())
            sums = {name: _sha256(place / name) for name in stored["files"]}
            splitter = TermSplitter(**stored["terms"] | {"user_words": tuple(stored["terms"]["user_words"])})
        except FileNotFoundError as error:
            reason = f"{error.filename} is missing" if place.exists() else f"{folder.path} has no index of words"
            raise ServingError(reason) from None
        except (ValueError, LookupError, TypeError):
            raise ServingError(f"{place} is damaged") from None
        if sums != stored["files"]:
            raise ServingError(f"{place} is damaged")
        if stored["texts"] != _identity_of_texts(settings):
            raise ServingError(f"{place} is an index of other texts than the vectors")
        if stored["code"] != segmenter_digest():
            raise ServingError(f"{place} was made by another version of the segmenter")
        if unit not in (None, splitter.unit):
            raise ServingError(f"{place} is an index of {splitter.unit}s, not of {unit}s")
        self.folder, self.shards, self.splitter = folder, settings["shards"], splitter
        self.index = bm25s.BM25.load(place, mmap=True)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Match]]:
        """Return the texts with the highest scores for each query, equal ones in the order of the input.

        A text without any term of the query is not found. Of a text that was split into chunks, the chunk with most
        terms of the query is returned.
        """
        terms = [[*self.splitter(query)] for query in queries]
        found = [self._best(of_query, top_k) for of_query in terms]
        matches: list[dict[int, Match]] = [{} for _ in queries]
        ends = np.cumsum([record["texts"] for record in self.shards.values()])
        wanted: dict[int, list[tuple[int, int]]] = defaultdict(list)  # shard -> queries, and numbers of texts there
        for query, of_query in enumerate(found):
            for number in of_query:
                wanted[int(np.searchsorted(ends, number, "right"))].append((query, number))
        shards = [*self.shards.items()]
        for place, here in sorted(wanted.items()):
            texts = texts_of(self.folder.read(*shards[place]))
            for query, number in here:
                chunks = texts[number - ends[place]]  # from the end
                best = self._best_chunk(chunks, terms[query])
                matches[query][number] = Match(found[query][number], best["id"], best.get("text"), best.get("chunk"))
        return [[of_query[number] for number in numbers] for of_query, numbers in zip(matches, found, strict=True)]

    def _best_chunk(self, chunks: list[dict], terms: list[str]) -> dict:
        """Return the chunk with most of the terms; the first if texts were not stored."""

        def found_in(chunk: dict) -> int:
            of_chunk = {*self.splitter(chunk.get("text") or "")}
            return sum(term in of_chunk for term in terms)

        return max(chunks, key=found_in) if len(chunks) > 1 else chunks[0]

    def _best(self, terms: list[str], top_k: int) -> dict[int, float]:
        """Return the numbers of the best texts with their scores, best first."""
        if not (ids := self.index.get_tokens_ids(terms)):
            return {}
        scores = self.index.get_scores_from_ids(ids)
        top_k = min(top_k, len(scores))
        found = np.flatnonzero((scores >= np.partition(scores, -top_k)[-top_k]) & (scores > 0))
        found = found[np.argsort(-scores[found], kind="stable")][:top_k]
        return dict(zip(found.tolist(), scores[found].tolist(), strict=True))


def write_index(folder: VectorFolder, settings: dict, counted: CountedTexts) -> None:
    """Write the index of texts, or replace it in one step.

    Raises ServingError if no text has a term.
    """
    if not counted.vocabulary:
        raise ServingError(f"no text of {folder.path} has a word, only punctuation: there is nothing to index")
    index = bm25s.BM25()
    index.index((counted.texts, counted.vocabulary), create_empty_token=False, show_progress=False)
    place = folder.path / FOLDER
    with temporary_sibling(place) as new:
        index.save(new)
        stored = {
            "texts": _identity_of_texts(settings),
            "terms": asdict(counted.splitter),
            "code": segmenter_digest(),
            "files": {path.name: _sha256(path) for path in sorted(new.iterdir())},
        }
        (new / _SETTINGS).write_text(json.dumps(stored, indent=2, ensure_ascii=False), encoding="utf-8")
        complete(new)
        exchange(new, place) if place.exists() else os.replace(new, place)
        sync(folder.path)


def has_index(folder: VectorFolder, settings: dict, unit: str) -> bool:
    """Return whether a folder has an index of its texts that can be used."""
    try:
        WordIndex(folder, settings, unit)
    except ServingError:
        return False
    return True


def open_index(
    folder: VectorFolder,
    settings: dict,
    unit: str | None,
    make_splitter: Callable[[str], TermSplitter],
    tell: Callable[[str], object],
) -> WordIndex:
    """Return the index of a folder of vectors; make it of the stored texts if it is missing or cannot be used.

    Args:
        unit: of the index; None for that of the index there, or "word".
        make_splitter: function that returns the splitter of a unit; it may load the tokenizer.
        tell: called with a sentence if an index that is there cannot be used.

    Raises:
        ServingError: there is no index, and the folder has no whole texts.
    """
    try:
        return WordIndex(folder, settings, unit)
    except ServingError as error:
        # Chunks leave out the white space between them, so the words at their ends are not those of the text.
        if not settings["keep_text"] or settings.get("chunk"):
            raise ServingError(
                f"{error}: run the same `roformer embed` again with --words, which keeps the vectors"
            ) from None
        if (folder.path / FOLDER).exists():
            tell(f"{error}: it is made again, of the stored texts")
    with only_writer(folder.path, ServingError):
        counted = CountedTexts(make_splitter(unit or "word"))
        for name, record in settings["shards"].items():
            texts = texts_of(folder.read(name, record))
            counted.add(chunks[0]["text"] for chunks in texts)
        write_index(folder, settings, counted)
    return WordIndex(folder, settings, unit)


def _identity_of_texts(settings: dict) -> str:
    return hashlib.sha256(json.dumps(settings["shards"], sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
