"""Vocabularies: vocab.txt has one entry per line, and the line's number, from 0, is the id.

Only "\\n" ends a line: Chinese BERT's file has an entry U+2028, and WoBERT's an empty line where that character was
stripped, so `str.splitlines` and universal newlines would shift every later id.
"""

from .characters import is_cjk
from .whole_file import LARGE, read_bytes, write_whole
from .wordpiece import PREFIX

MOST_ENTRIES = 1 << 21  # twice the largest known vocabulary


class VocabularyError(ValueError):
    """A vocabulary that cannot be used; the message names the entry or file."""


def read_vocabulary(path):
    """Read vocab.txt.

    Args:
        path: file in UTF-8. The entry is the first field of its line, as in bert4keras; an empty line, or one of white
            space, is an entry. A final "\\n" ends the last line, and a byte order mark is skipped.

    Returns:
        dict of entry -> id.

    Raises:
        VocabularyError: the file is not UTF-8 or too large, has an entry twice, or gives an entry another id than its
            line's.
    """
    try:
        data = read_bytes(path, LARGE)
    except ValueError as error:
        raise VocabularyError(f"{path} cannot be read as a vocabulary: {error}") from None
    if data.count(b"\n") > MOST_ENTRIES:
        raise VocabularyError(f"{path} has more than {MOST_ENTRIES:,} entries, the maximum of a vocabulary")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise VocabularyError(f"{path} is not UTF-8: see line {line}") from None
    entries = text.removesuffix("\n").split("\n") if text else []
    if entries and all(entry.endswith("\r") for entry in entries):  # written by a Windows editor
        entries = [entry[:-1] for entry in entries]
    vocabulary = {}
    for number, line in enumerate(entries, 1):
        entry, column = first_field(line), line.split()[1:]
        if column and column[0].isdecimal() and column[0] != str(number - 1):
            raise VocabularyError(
                f"{path} has {line[:50]!r} in line {number}, whose id is {number - 1}: sort the lines by id, from 0, or "
                "remove the second column"
            )
        first = vocabulary.setdefault(entry, number - 1)
        if first != number - 1:
            raise VocabularyError(f"{path} has the entry {entry[:50]!r} twice, in lines {first + 1} and {number}")
    return vocabulary


def first_field(line):
    """Return the entry of a line; a ## before white space is kept with it, since Chinese BERT has ## before U+2028."""
    fields = line.split()
    return fields[0] if fields and fields[0] != PREFIX else line


def check_vocabulary(vocabulary, unk_token, source="the vocabulary"):
    """Raise VocabularyError if a vocabulary is empty, lacks the unknown token, or has gaps in its ids."""
    if not vocabulary:
        raise VocabularyError(f"{source} is empty")
    if unk_token not in vocabulary:
        raise VocabularyError(f"{source} has no {unk_token}, the token for text without an entry")
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise VocabularyError(f"{source} must number its entries from 0 to {len(vocabulary) - 1} without gaps")


def write_vocabulary(vocabulary, path):
    """Write vocab.txt, atomically."""
    entries = sorted(vocabulary, key=vocabulary.get)
    broken = next((entry for entry in entries if "\n" in entry or first_field(entry) != entry), None)
    if broken is not None:
        raise VocabularyError(f"the entry {broken!r} contains white space and cannot be written to {path}")
    write_whole(path, "".join(f"{entry}\n" for entry in entries))


def has_words(vocabulary):
    """Return whether a vocabulary is word-level: it has an entry of two or more Han characters."""
    return any(sum(map(is_cjk, entry)) > 1 for entry in vocabulary if len(entry) > 1)
