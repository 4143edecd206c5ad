"""Formats of files with data: what a file is by its name and by its first bytes."""

import re
from pathlib import Path

from .errors import DataError

TEXT, JSON, CSV, TSV, PARQUET = "text", "JSON", "CSV", "TSV", "Parquet"
# A file of another suffix, or of none, is JSON if its first line looks like JSON, and text otherwise.
SUFFIXES = {
    ".txt": TEXT,
    ".text": TEXT,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".json": JSON,
    ".csv": CSV,
    ".tsv": TSV,
    ".parquet": PARQUET,
}
GZIP = ".gz"
READABLE = f"expected {', '.join(SUFFIXES)}, each also with {GZIP} except .parquet"

_SHEET = "save each sheet as CSV in UTF-8"
_DOCUMENT = "save it as text in UTF-8"
_ARCHIVE = "unpack it, and name the files in it"
_COMPRESSED = "decompress it, or compress it with gzip"
_ARROW = "write it as Parquet, by `Dataset.to_parquet` or `pyarrow.parquet.write_table`"
# Suffix -> what to do with a file that is not data.
_ADVICE = {
    ".xlsx": _SHEET,
    ".xls": _SHEET,
    ".ods": _SHEET,
    ".docx": _DOCUMENT,
    ".doc": _DOCUMENT,
    ".pdf": _DOCUMENT,
    ".zip": _ARCHIVE,
    ".tar": _ARCHIVE,
    ".tgz": _ARCHIVE,
    ".7z": _ARCHIVE,
    ".rar": _ARCHIVE,
    ".xz": _COMPRESSED,
    ".bz2": _COMPRESSED,
    ".zst": _COMPRESSED,
    ".arrow": _ARROW,
    ".feather": _ARROW,
}
# First bytes -> what such a file is, and what to do with it.
_SIGNATURES = {
    b"PK\x03\x04": ("a zip archive or an Office document", f"{_SHEET}, or {_ARCHIVE}"),
    b"PK\x05\x06": ("a zip archive", _ARCHIVE),
    b"\xd0\xcf\x11\xe0": ("an Office document", f"{_SHEET}, or save it as text"),
    b"%PDF": ("a PDF", _DOCUMENT),
    b"\x1f\x8b": ("compressed with gzip", f"let its name end in {GZIP}"),
    b"\xfd7zXZ": ("compressed with xz", _COMPRESSED),
    b"BZh": ("compressed with bzip2", _COMPRESSED),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", _COMPRESSED),
    b"7z\xbc\xaf": ("a 7z archive", _ARCHIVE),
    b"Rar!": ("a rar archive", _ARCHIVE),
    b"PAR1": ("Parquet", "let its name end in .parquet"),
    b"ARROW1": ("an Arrow file", _ARROW),
    b"\xff\xfe": ("UTF-16", "`iconv -f UTF-16 -t UTF-8` converts it"),
    b"\xfe\xff": ("UTF-16", "`iconv -f UTF-16 -t UTF-8` converts it"),
}
_HEAD = 1024  # bytes at the start of a text; they have no NUL
_OBJECT = re.compile(rb'\{\s*("[^"]{1,200}"\s*:|\}?$)')  # the first line of JSON Lines, with or without its first key
_LIST = re.compile(rb'\[\s*(\{\s*("[^"]{1,200}"\s*:|\}?$)|$)')  # the first line of a list of objects


def is_gzip(path: Path) -> bool:
    """Return whether a file is compressed, by its name."""
    return path.suffix.lower() == GZIP


def suffix_of(path: Path) -> str:
    """Return the suffix of a file, before .gz, in small letters.

    >>> suffix_of(Path("laws.CSV.GZ"))
    '.csv'
    """
    return (path.with_suffix("") if is_gzip(path) else path).suffix.lower()


def check_name(path: Path) -> None:
    """Raise a DataError if the name of a file says that it is not data."""
    if advice := _ADVICE.get(suffix_of(path)):
        raise DataError(f"{path} is of a format that is not read ({suffix_of(path)}): {advice}; {READABLE}")


def check_head(path: Path, head: bytes) -> None:
    """Raise a DataError if the first bytes of a file, after decompression, are of a format that is not read."""
    for signature, (description, advice) in _SIGNATURES.items():
        if head.startswith(signature):
            raise DataError(f"{path} is {description}, by its first bytes: {advice}")
    if b"\0" in head[:_HEAD]:
        raise DataError(f"{path} is not text: it has a NUL in its first {_HEAD:,} bytes; {READABLE}")


def check_line_ends(path: Path, start: bytes) -> None:
    """Raise a DataError if the start of a file, with its first line, has line ends of "\\r" alone."""
    if b"\n" not in start and b"\r" in start.rstrip(b"\r"):
        raise DataError(f'{path}: its lines end with "\\r" alone: convert it, for example with `mac2unix`')


def looks_like_json(first_line: bytes) -> bool:
    """Return whether the first line that is not blank begins an object or a list of objects, as in `wiki_00`."""
    return bool(_OBJECT.match(first_line) or _LIST.match(first_line))


def is_file_name(name: str) -> bool:
    """Return whether a name has the suffix of a file, so that it is never sought on the Hub."""
    path = Path(name)
    return is_gzip(path) or suffix_of(path) in SUFFIXES or suffix_of(path) in _ADVICE
