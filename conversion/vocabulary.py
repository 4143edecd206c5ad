"""The vocabulary of a legacy checkpoint: its entries, and whether they are words or characters."""

import re
from dataclasses import dataclass
from pathlib import Path

from .errors import CheckpointError

# The blocks that BERT's tokenizer treats as Chinese characters.
_HAN = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
_WORD = re.compile(f"{_HAN}.*{_HAN}", re.DOTALL)


@dataclass(frozen=True)
class Vocabulary:
    """The entries of a vocab.txt in order; an entry's line number, from 0, is its id."""

    path: Path
    entries: list[str]

    @property
    def words(self) -> int:
        """The number of entries of two or more Han characters."""
        return sum(_WORD.search(entry) is not None for entry in self.entries)

    @property
    def word_level(self) -> bool:
        """Whether there is such an entry: then the text was segmented into words before the model saw it."""
        return any(map(_WORD.search, self.entries))

    def id_of(self, entry: str) -> int:
        """The id of an entry that the vocabulary must have."""
        try:
            return self.entries.index(entry)
        except ValueError:
            raise CheckpointError(f"{self.path} has no entry {entry}") from None


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocab.txt: one entry a line, lines end at \\n and nowhere else, and an empty line is an entry too."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text: byte {error.start} is wrong") from None
    if not text:
        raise CheckpointError(f"{path} is empty")
    return Vocabulary(path, text.removesuffix("\n").split("\n"))
