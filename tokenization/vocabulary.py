"""The vocabulary: vocab.txt, one entry a line, its number the id.

Lines end at "\\n" and nowhere else: Chinese BERT's file holds an entry U+2028, and WoBERT's an empty line where that
character was stripped, so `str.splitlines` and universal newlines would shift every id behind them.
"""

from .characters import is_cjk
from .whole_file import LARGE, read_bytes, write_whole

MOST_ENTRIES = 1 << 21  # twice as many as the largest have


class VocabularyError(ValueError):
    """The vocabulary cannot be used; the message says which entry or file is wrong."""


def read_vocabulary(path):
    """Read vocab.txt.

    Args:
        path: file in UTF-8; an empty line is an entry, one final "\\n" ends the last line, and a byte order mark before
            the first entry is no part of it.

    Returns:
        dict of entry -> id.

    Raises:
        VocabularyError: not UTF-8, an entry occurs twice, or it is larger than any vocabulary.
    """
    try:
        data = read_bytes(path, LARGE)
    except ValueError as error:
        raise VocabularyError(f"{path} is no vocabulary: {error}.") from None
    if data.count(b"\n") > MOST_ENTRIES:
        raise VocabularyError(f"{path} has more than {MOST_ENTRIES:,} entries, which no vocabulary has.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise VocabularyError(f"{path} is not UTF-8: see line {line}.") from None
    entries = text.removesuffix("\n").split("\n") if text else []
    if entries and all(entry.endswith("\r") for entry in entries):  # written by a Windows editor
        entries = [entry[:-1] for entry in entries]
    vocabulary = {}
    for number, entry in enumerate(entries, 1):
        first = vocabulary.setdefault(entry, number - 1)
        if first != number - 1:
            raise VocabularyError(f"{path} has the entry {entry[:50]!r} twice, in lines {first + 1} and {number}.")
    return vocabulary


def check_vocabulary(vocabulary, unk_token, source="the vocabulary"):
    """Refuse what no tokenizer can be built on: no entries, a missing unknown token, ids with gaps."""
    if not vocabulary:
        raise VocabularyError(f"{source} is empty.")
    if unk_token not in vocabulary:
        raise VocabularyError(f"{source} has no {unk_token}, which stands for everything that it does not have.")
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise VocabularyError(f"{source} does not number its {len(vocabulary)} entries from 0 without gaps.")


def write_vocabulary(vocabulary, path):
    """Write vocab.txt, whole or not at all."""
    entries = sorted(vocabulary, key=vocabulary.get)
    broken = next((entry for entry in entries if "\n" in entry), None)
    if broken is not None:
        raise VocabularyError(f"The entry {broken!r} holds a line break and cannot be written to {path}.")
    write_whole(path, "".join(f"{entry}\n" for entry in entries))


def has_words(vocabulary):
    """Whether the vocabulary is word-level: some entry has two or more Han characters."""
    return any(sum(map(is_cjk, entry)) > 1 for entry in vocabulary if len(entry) > 1)
