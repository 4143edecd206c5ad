"""Shards of a corpus: consecutive texts, whose vectors share a file."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ...data import Texts

PARQUET = ".parquet"
PIECE = 1 << 18  # bytes of a file of lines in memory at once
_CHARACTERS = 1 << 24  # most characters of a shard


@dataclass(frozen=True)
class Shard:
    """Consecutive texts of the input, whose vectors share a file."""

    number: int  # from 0
    ids: list[str]
    texts: list[str]
    read: float = field(default=0, compare=False)  # bytes of the input
    left_out: int = field(default=0, compare=False)  # rows without a text; the last shard counts those after it too

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def name(self) -> str:
        """Name of the file; names sort in the order of the input."""
        return f"{self.number:06d}{PARQUET}"

    @cached_property
    def digest(self) -> str:
        """Hash of the ids and texts."""
        found = hashlib.blake2b(digest_size=16)
        for row in zip(self.ids, self.texts, strict=True):
            for part in row:
                data = part.encode()
                found.update(len(data).to_bytes(8, "little") + data)
        return found.hexdigest()


def read_shards(corpus: Texts, most: int) -> Iterator[Shard]:
    """Yield all non-blank texts of a corpus in order, at most `most` per shard; fewer if they are very long."""
    number, ids, texts, characters, before, left_out = 0, [], [], 0, 0.0, 0
    corpus.consumed = 0.0
    for id_, text in corpus:
        if text is None:
            left_out += 1
            continue
        if len(ids) == most or characters >= _CHARACTERS:
            yield Shard(number, ids, texts, corpus.consumed - before, left_out)
            number, ids, texts, characters, before, left_out = number + 1, [], [], 0, corpus.consumed, 0
        ids.append(id_)
        texts.append(text)
        characters += len(text)
    if ids:
        yield Shard(number, ids, texts, corpus.consumed - before, left_out)
