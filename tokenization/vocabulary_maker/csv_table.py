"""CSV and TSV files with a header. Quoted fields of CSV may have line ends; quotes in TSV have no meaning."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from .corpus import CorpusError, kind_of

CSV, TSV = ".csv", ".tsv"
_LONGEST = 16 << 20  # most characters of a field


def is_csv(path: Path) -> bool:
    """Return whether a file is CSV or TSV, by its name."""
    return kind_of(path) in (CSV, TSV)


def csv_rows(path: Path) -> Iterator[tuple[list[str], int]]:
    """Yield the fields of the header and of each row that is not empty, and the number of bytes read so far.

    Raises:
        CorpusError: a row has another number of fields than the header, or the file is not CSV, or not UTF-8.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if kind_of(path) == TSV else {}
    with open(path, "rb") as stored:
        data = gzip.GzipFile(fileobj=stored) if path.suffix == ".gz" else stored
        rows = csv.reader(io.TextIOWrapper(data, encoding="utf-8-sig", newline=""), strict=True, **options)
        expected, line = None, 1
        try:
            for fields in rows:
                if expected is not None and fields and len(fields) != expected:
                    advice = "a text with a comma, a quote or a line end must be in quotes"
                    raise CorpusError(
                        f"{path}, line {line}: the row has {len(fields)} fields, but the header {expected}: "
                        f"{'a text must have no TAB' if kind_of(path) == TSV else advice}"
                    )
                if fields or expected is None:
                    yield fields, stored.tell() if stored.seekable() else 0
                expected, line = len(fields) if expected is None else expected, rows.line_num + 1
        except UnicodeDecodeError:
            raise CorpusError(
                f"{path} is not UTF-8 after line {line}; `iconv -f GB18030 -t UTF-8` converts GBK"
            ) from None
        except (csv.Error, gzip.BadGzipFile, EOFError, zlib.error) as error:
            reason = str(error).replace("unexpected end of data", "a quote before it is never closed").rstrip(".")
            raise CorpusError(f"{path} is damaged after line {line - 1}: {reason}") from None
