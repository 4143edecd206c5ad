"""CSV files with a header. Quoted fields may have line ends."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...output.console import sentence_of
from ..errors import ServingError

CSV = ".csv"
_LONGEST = 16 << 20  # most characters of a field


def csv_columns(path: Path) -> list[str]:
    """Return the column names of a CSV file, which may be compressed (.gz)."""
    with _reading(path) as (rows, _):
        return next(rows, [])


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[list[str], int]]:
    """Yield the fields of some columns of each row, and the number of bytes read so far. Empty lines are skipped.

    Raises:
        ServingError: a row has another number of fields than the header, or the file is not CSV, or not UTF-8.
    """
    with _reading(path) as (rows, stored):
        header = next(rows)
        places = [header.index(column) for column in columns]
        line = rows.line_num + 1
        for fields in rows:
            if fields and len(fields) != len(header):
                raise ServingError(
                    f"{path}, line {line}: the row has {len(fields)} fields, but the header {len(header)}. Put a text with a "
                    "comma, a quote or a line end in quotes"
                )
            if fields:
                yield [fields[place] for place in places], stored.tell() if stored.seekable() else 0
            line = rows.line_num + 1


@contextmanager
def _reading(path: Path) -> Iterator[tuple]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    with open(path, "rb") as stored:
        data = gzip.GzipFile(fileobj=stored) if path.suffix == ".gz" else stored
        rows = csv.reader(io.TextIOWrapper(data, encoding="utf-8-sig", newline=""), strict=True)
        try:
            yield rows, stored
        except UnicodeDecodeError:
            raise ServingError(
                f"{path}, after line {rows.line_num}: not UTF-8 (`iconv -f GB18030 -t UTF-8` converts GBK)"
            ) from None
        except csv.Error as error:
            reason = sentence_of(error).replace("unexpected end of data", "a quote before it is never closed")
            raise ServingError(f"{path}, line {rows.line_num}: not CSV, {reason}") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ServingError(f"{path} is not a complete gzip file: {sentence_of(error).rstrip('.')}") from None
