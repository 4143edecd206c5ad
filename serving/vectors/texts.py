"""Shards of a corpus: consecutive texts, whose vectors share a file."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from modeling_roformer.data import Texts

PARQUET = ".parquet"
READ_BYTES = 1 << 18  # bytes of a file of lines in memory at once
_MAX_CHARACTERS = 1 << 24  # of a shard


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
        digest = hashlib.blake2b(digest_size=16)
        for row in zip(self.ids, self.texts, strict=True):
            for part in row:
                data = part.encode()
                digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()


def read_shards(corpus: Texts, max_texts: int) -> Iterator[Shard]:
    """Yield all non-blank texts of a corpus in order, at most `max_texts` per shard; fewer if they are very long."""
    number = characters = left_out = 0
    ids, texts = [], []
    corpus.consumed = consumed_before = 0.0
    for id_, text in corpus:
        if text is None:
            left_out += 1
            continue
        if len(ids) == max_texts or characters >= _MAX_CHARACTERS:
            yield Shard(number, ids, texts, corpus.consumed - consumed_before, left_out)
            number += 1
            ids, texts = [], []
            characters = left_out = 0
            consumed_before = corpus.consumed
        ids.append(id_)
        texts.append(text)
        characters += len(text)
    if ids:
        yield Shard(number, ids, texts, corpus.consumed - consumed_before, left_out)
