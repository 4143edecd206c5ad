"""Vocabularies, and how files are read up to a maximum size and written atomically.

vocab.txt has one entry per line, and the line's number, from 0, is the id. Only "\\n" ends a line: Chinese BERT's file
has an entry U+2028, and WoBERT's an empty line where that character was stripped, so `str.splitlines` and universal
newlines would shift every later id.
"""

import json
import os
import secrets
import shutil

from .wordpiece import PREFIX, is_cjk

LARGE = 64 << 20  # maximum bytes of a file; the largest vocabularies have a million entries and 30 MB
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
                f"{path} has {line[:50]!r} in line {number}, whose id is {number - 1}: sort the lines by id, from 0, "
                "or remove the second column"
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


def check_same_entries(vocabulary, source, entries, vocab_file):
    """Raise VocabularyError if vocab.txt differs from the vocabulary in the tokenizer.json of the same folder.

    Args:
        vocabulary: entry -> id in tokenizer.json, the file `source`.
        entries: those of `vocabulary`, and added tokens, which vocab.txt may have too.
        vocab_file: the path of vocab.txt.
    """
    other = read_vocabulary(vocab_file)
    differing = [entry for entry in vocabulary if other.get(entry) != vocabulary[entry]]
    differing += [entry for entry, number in other.items() if entries.get(entry) != number]
    if differing:
        entry = differing[0]
        here, there = (known.get(entry, "missing") for known in (entries, other))
        raise VocabularyError(
            f"{source} and {vocab_file} have different vocabularies: the id of {entry[:50]!r} is {here} in the first, "
            f"{there} in the second; delete the one that is not the model's, or save the tokenizer there again"
        )


def check_same_files(vocab_file, tokenizer_file):
    """Raise VocabularyError if a vocab.txt and a tokenizer.json with a WordPiece model differ, as loading does."""
    vocabulary, _, _ = read_tokenizer_json(tokenizer_file)
    tokens = json_object(tokenizer_file, LARGE).get("added_tokens") or ()
    added = {token["content"]: token["id"] for token in tokens}
    check_same_entries(vocabulary, tokenizer_file, vocabulary | added, vocab_file)


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


def read_tokenizer_json(path):
    """Return (vocabulary, lowercase, strip_accents) of a tokenizer.json; the last two are None if it does not have
    them.

    Raises:
        VocabularyError: the file is not one of tokenizers, or its model is not WordPiece.
    """
    try:
        saved = json_object(path, LARGE)
    except ValueError as error:
        raise VocabularyError(str(error)) from None
    try:
        model = saved["model"]
        vocabulary = model["vocab"]
        kind = model.get("type", "WordPiece")
    except (KeyError, TypeError, AttributeError):
        raise VocabularyError(f"{path} has no model.vocab: it is not a file of tokenizers") from None
    if kind != "WordPiece" or not isinstance(vocabulary, dict):
        found = f"a {kind} model with a vocabulary of type {type(vocabulary).__name__}"
        raise VocabularyError(f"{path} has {found}; expected a WordPiece model with a dict")
    for entry, number in vocabulary.items():
        if type(number) is not int:
            raise VocabularyError(f"{path} gives the entry {entry[:50]!r} the id {number!r}; expected an integer")
    normalizer = saved.get("normalizer") or {}
    try:
        parts = normalizer.get("normalizers", [normalizer])
        bert = next((part for part in parts if part.get("type") == "BertNormalizer"), {})
        lowercase = bert.get("lowercase", True if any(part.get("type") == "Lowercase" for part in parts) else None)
    except (TypeError, AttributeError):
        raise VocabularyError(f"{path} has a normalizer that is not one of tokenizers") from None
    # Earlier versions saved entries with the white space of their lines, which no text matches.
    return {first_field(entry): number for entry, number in vocabulary.items()}, lowercase, bert.get("strip_accents")


def json_object(path, most, encoding="utf-8", errors="strict"):
    """Return the JSON object in a file of at most `most` bytes.

    Raises:
        ValueError: names the file, which is too large, in another encoding, not JSON or not an object; or has an
            object, at any depth, with a field twice.
    """
    try:
        content = json.loads(read_bytes(path, most).decode(encoding, errors), object_pairs_hook=unique_fields)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content


def unique_fields(pairs):
    """Return the fields of a JSON object; raise ValueError if one appears twice, of which `json` keeps the last."""
    fields = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the field {name[:50]!r} appears twice")
        fields[name] = value
    return fields


def read_bytes(path, most):
    """Return the content of a file; raise ValueError if it has more than `most` bytes, without reading the rest."""
    pieces, left = [], most + 1
    with open(path, "rb") as file:
        # In pieces: read(most) would allocate a buffer of `most` bytes for any file.
        while piece := file.read(min(left, 1 << 20)):
            pieces.append(piece)
            left -= len(piece)
    if left == 0:
        raise ValueError(f"it has more than {most:,} bytes, the maximum")
    return b"".join(pieces)


def write_whole(path, content):
    """Write bytes, or a text in UTF-8, atomically: into a temporary file, which is synced and renamed to `path`.

    The mode of an existing file is kept, a link is replaced by the file, and line breaks are written as they are.
    """
    folder, name = os.path.split(os.path.abspath(path))
    beside = os.path.join(folder, f".{name[:50]}.{secrets.token_hex(4)}.unfinished")
    try:
        with open(beside, "xb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            shutil.copymode(path, beside)
        os.replace(beside, path)
    except BaseException as error:
        if os.path.exists(beside):
            os.unlink(beside)
        if isinstance(error, OSError):  # of a full disk, the system names no file
            error.filename, error.filename2 = os.fspath(path), None
        raise
