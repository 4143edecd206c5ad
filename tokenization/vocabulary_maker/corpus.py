"""Corpora larger than memory: their files, and the documents of a file in chunks that can be spread over processes.

A document is a line of a text file, or a field of a line of JSON Lines, compressed (.gz) or not. Only "\\n" ends a
line. Files are JSON Lines by their names (.jsonl, .ndjson or .json), or if their first line is an object, as in
`wiki_00`.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

CHUNK = 4 << 20  # bytes per chunk, after decompression
LONGEST_LINE = 16 << 20  # bytes; limits the memory of a line
JSON_LINES = (".jsonl", ".ndjson", ".json")
TEXT = (".txt", ".text")
TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".xlsx", ".xls")
_JSON = re.compile(rb'\[?\s*\{\s*("[^"]{1,200}"\s*:|\}?$)|\[$')  # an object, with or without its first key, or a list


class CorpusError(ValueError):
    """A corpus that cannot be read; the message names the file, the line and the problem."""


@dataclass(frozen=True)
class Chunk:
    """Whole lines of one file."""

    path: Path
    first_line: int  # its number, from 1
    data: bytes
    consumed: int  # bytes read from the stored, perhaps compressed file
    is_json: bool  # JSON Lines

    def text(self) -> str:
        """Return all lines in one text, with the last line end."""
        try:
            return self.data.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            number = self.first_line + self.data.count(b"\n", 0, error.start)
            raise CorpusError(
                f"{self.path}, line {number}: not UTF-8; `iconv -f GB18030 -t UTF-8` converts GBK"
            ) from None

    def documents(self, field: str) -> Iterator[str]:
        """Yield the texts that are not blank; `field` is the field of JSON Lines with the text."""
        return (text for _, text, _ in self.rows(field) if has_text(text))

    def rows(self, field: str) -> Iterator[tuple[int, str | None, dict]]:
        """Yield the number, the text (None for null) and the other fields of each line of JSON Lines, or line of text,
        that is not blank."""
        if not self.is_json:
            yield from ((number, line, {}) for number, line in self._lines())
            return
        for number, record in self.records():
            where = f"{self.path}, line {number}"
            if field not in record:
                raise CorpusError(f"{where}: no field {field!r}: name the field of the text with --field")
            if not isinstance(record[field], str | None):
                raise CorpusError(f"{where}: the field {field!r} is not a string")
            yield number, record[field], record

    def records(self) -> Iterator[tuple[int, dict]]:
        """Yield the number and the object of each line of JSON Lines that is not blank."""
        for number, line in self._lines():
            where = f"{self.path}, line {number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise CorpusError(f"{where}: not JSON; JSON Lines have one object per line") from None
            if not isinstance(record, dict):
                raise CorpusError(f"{where}: not an object with fields")
            yield number, record

    def _lines(self) -> Iterator[tuple[int, str]]:
        lines = enumerate(self.text().split("\n"), self.first_line)
        return ((number, line) for number, line in lines if has_text(line))


def has_text(text: str | None) -> TypeGuard[str]:
    """Return whether a text is neither None nor blank."""
    return bool(text) and not text.isspace()


def writable(text: str) -> str:
    """Replace lone surrogates, which JSON may have and Arrow may not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def corpus_files(paths: Iterable[str | Path], also: tuple[str, ...] = ()) -> list[Path]:
    """Return the files of a corpus, each once.

    Args:
        paths: files and folders. Of a folder, all text and JSON Lines files are read, in the order of their names;
            hidden files and those of other kinds are skipped. Tables are refused, as named ones are.
        also: further suffixes to read, such as ".parquet".

    Raises:
        CorpusError: a path does not exist, a folder has no such file, or a file is a table not in `also`.
    """
    files = {}
    for path in map(Path, paths):
        if path.is_dir():
            kinds = TEXT + JSON_LINES + also
            found = [file for file in sorted(path.rglob("*")) if kind_of(file) in kinds + TABLES and file.is_file()]
            found = [file for file in found if not any(part[0] == "." for part in file.relative_to(path).parts)]
            if not found:
                raise CorpusError(
                    f"{path} has no text: expected files that end in {', '.join(kinds)}, or these with .gz"
                )
        elif path.exists():
            found = [path]
        else:
            raise CorpusError(f"{path} does not exist")
        if table := next((file for file in found if kind_of(file) in {*TABLES} - {*also}), None):
            kinds = "".join(f" or {kind}" for kind in also)
            raise CorpusError(f"{table} is a table; expected text (.txt), JSON Lines (.jsonl){kinds}")
        files |= {file.resolve(): file for file in found if file.resolve() not in files}
    return list(files.values())


def read_chunks(path: Path, size: int | None = None) -> Iterator[Chunk]:
    """Yield a file in chunks of about `size` bytes (default: CHUNK), with about one chunk in memory.

    >>> [text for chunk in read_chunks(Path("laws.jsonl.gz")) for text in chunk.documents("text")]
    """
    line, consumed = 1, 0
    is_json = kind_of(path) in JSON_LINES or None  # None: the first line decides
    with open(path, "rb") as stored:
        lines = gzip.GzipFile(fileobj=stored) if path.suffix == ".gz" else stored
        while data := _whole_lines(lines, path, line, size or CHUNK):
            position = stored.tell() if stored.seekable() else 0  # a pipe has no known length
            data = data.removeprefix(b"\xef\xbb\xbf") if line == 1 else data
            if is_json is None and not data.isspace():
                # A damaged object, and a list, which is not JSON Lines, are refused by `Chunk.rows`.
                is_json = _JSON.match(data.lstrip().partition(b"\n")[0].rstrip()) is not None
            yield Chunk(path, line, data, position - consumed, bool(is_json))
            line, consumed = line + data.count(b"\n"), position


def _whole_lines(lines, path: Path, first_line: int, size: int) -> bytes:
    try:
        data = lines.read(size)
        if data and not data.endswith(b"\n"):
            rest = lines.readline(LONGEST_LINE)
            if len(rest) == LONGEST_LINE:
                number = first_line + data.count(b"\n")
                limit = f"{LONGEST_LINE >> 20} MiB"
                raise CorpusError(f"{path}, line {number}: longer than {limit}; write one document per line")
            data += rest
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} is not a complete gzip file: {str(error).rstrip('.')}") from None
    return data


def is_json_lines(path: Path) -> bool:
    """Return whether a file is JSON Lines: by its name, or because its first line that is not blank is an object."""
    if kind_of(path) in JSON_LINES:
        return True
    try:
        return next((chunk.is_json for chunk in read_chunks(path, 1) if not chunk.data.isspace()), False)
    except CorpusError:  # no line, or not gzip: who reads all of it says so
        return False


def kind_of(path: Path) -> str:
    """Return the suffix of a file, before .gz, in small letters."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
