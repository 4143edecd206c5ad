"""Vocabulary files, vocab.txt and tokenizer.json, and files written atomically.

vocab.txt has one entry per line, and the line's number, from 0, is the id. Only "\\n" ends a line: Chinese BERT's file
has an entry U+2028, and WoBERT's an empty line where that character was stripped, so `str.splitlines` and universal
newlines would shift every later id.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from .wordpiece import PREFIX, is_cjk


class VocabularyError(ValueError):
    """A vocabulary that cannot be used; the message names the entry or file."""


def read_vocab_txt(path: str | os.PathLike) -> dict[str, int]:
    """Read vocab.txt.

    Args:
        path: file in UTF-8. The entry is the first field of its line, as in bert4keras; an empty line, or one of white
            space, is an entry. A final "\\n" ends the last line, and a byte order mark is skipped.

    Returns:
        entry -> id.

    Raises:
        VocabularyError: the file is not UTF-8, or has an entry twice.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise VocabularyError(f"{path} is not UTF-8: see line {line}") from None
    lines = text.removesuffix("\n").split("\n") if text else []
    if all(line.endswith("\r") for line in lines):  # written by a Windows editor
        lines = [line[:-1] for line in lines]
    vocabulary = {}
    for number, line in enumerate(lines):
        entry = first_field(line)
        if entry in vocabulary:
            first = vocabulary[entry] + 1
            raise VocabularyError(f"{path} has the entry {entry[:50]!r} twice, in lines {first} and {number + 1}")
        vocabulary[entry] = number
    return vocabulary


def first_field(line: str) -> str:
    """Return the entry of a line. White space after ## is part of the entry: Chinese BERT has ## before U+2028."""
    fields = line.split()
    return fields[0] if fields and fields[0] != PREFIX else line


def check_vocabulary(
    vocabulary: Mapping[str, int], unk_token: str, source: str | os.PathLike = "the vocabulary"
) -> None:
    """Raise VocabularyError if a vocabulary lacks the unknown token, or has gaps in its ids."""
    if unk_token not in vocabulary:
        raise VocabularyError(f"{source} has no {unk_token}, the token for text without an entry")
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise VocabularyError(f"{source} must number its entries from 0 to {len(vocabulary) - 1} without gaps")


def check_same_entries(
    vocabulary: Mapping[str, int],
    source: str | os.PathLike,
    entries: Mapping[str, int],
    vocab_file: str | os.PathLike,
) -> None:
    """Raise VocabularyError if vocab.txt differs from the vocabulary in the tokenizer.json of the same folder.

    Args:
        vocabulary: entry -> id in tokenizer.json, the file `source`.
        entries: those of `vocabulary`, and added tokens, which vocab.txt may have too.
        vocab_file: the path of vocab.txt.
    """
    other = read_vocab_txt(vocab_file)
    differing = [entry for entry in vocabulary if other.get(entry) != vocabulary[entry]]
    differing += [entry for entry, number in other.items() if entries.get(entry) != number]
    if differing:
        entry = differing[0]
        here, there = (known.get(entry, "missing") for known in (entries, other))
        raise VocabularyError(
            f"{source} and {vocab_file} have different vocabularies: the id of {entry[:50]!r} is {here} in the first, "
            f"{there} in the second; delete the one that is not the model's, or save the tokenizer there again"
        )


def check_same_files(vocab_file: str | os.PathLike, tokenizer_file: str | os.PathLike) -> None:
    """Raise VocabularyError if a vocab.txt and a tokenizer.json with a WordPiece model differ, as loading does."""
    vocabulary, _, _ = read_tokenizer_json(tokenizer_file)
    tokens = json.loads(Path(tokenizer_file).read_bytes()).get("added_tokens") or ()
    added = {token["content"]: token["id"] for token in tokens}
    check_same_entries(vocabulary, tokenizer_file, vocabulary | added, vocab_file)


def write_vocabulary(vocabulary: Mapping[str, int], path: str | os.PathLike) -> None:
    """Write vocab.txt, atomically."""
    entries = sorted(vocabulary, key=vocabulary.__getitem__)
    broken = next((entry for entry in entries if "\n" in entry or first_field(entry) != entry), None)
    if broken is not None:
        raise VocabularyError(f"the entry {broken!r} contains white space and cannot be written to {path}")
    write_whole(path, "".join(f"{entry}\n" for entry in entries))


def has_words(vocabulary: Iterable[str]) -> bool:
    """Return whether a vocabulary is word-level: it has an entry of two or more Han characters."""
    return any(sum(map(is_cjk, entry)) > 1 for entry in vocabulary if len(entry) > 1)


def read_tokenizer_json(path: str | os.PathLike) -> tuple[dict[str, int], bool | None, bool | None]:
    """Return (vocabulary, lowercase, strip_accents) of a tokenizer.json; the last two are None if it does not have
    them.

    Raises:
        VocabularyError: the file is not JSON, or its model is not WordPiece.
    """
    try:
        saved = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise VocabularyError(f"{path} cannot be read as JSON: {error}") from None
    model = saved.get("model") or {}
    if "vocab" not in model or model.get("type", "WordPiece") != "WordPiece":
        raise VocabularyError(f"{path} has a model of type {model.get('type')}; expected WordPiece, with a vocabulary")
    normalizer = saved.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    bert = next((step for step in steps if step.get("type") == "BertNormalizer"), {})
    lowercase = bert.get("lowercase", True if any(step.get("type") == "Lowercase" for step in steps) else None)
    # Earlier versions saved entries with the white space of their lines. Texts never match these.
    vocabulary = {first_field(entry): number for entry, number in model["vocab"].items()}
    return vocabulary, lowercase, bert.get("strip_accents")


def write_whole(path: str | os.PathLike, content: str | bytes) -> None:
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
        if isinstance(error, OSError):  # the system does not name the file if the disk is full
            error.filename, error.filename2 = os.fspath(path), None
        raise
