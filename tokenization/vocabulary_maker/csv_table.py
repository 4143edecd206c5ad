"""CSV and TSV files with a header. Quoted fields of CSV may have line ends; quotes in TSV have no meaning."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...output.console import sentence_of
from .corpus import CorpusError, kind_of

CSV, TSV = ".csv", ".tsv"
_LONGEST = 16 << 20  # most characters of a field


def is_csv(path: Path) -> bool:
    """Return whether a file is CSV or TSV, by its name."""
    return kind_of(path) in (CSV, TSV)


def csv_columns(path: Path) -> list[str]:
    """Return the column names of a CSV or TSV file, which may be compressed (.gz)."""
    with _reading(path) as (rows, _):
        return next(rows, [])


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[list[str], int]]:
    """Yield the fields of some columns of each row, and the number of bytes read so far. Empty lines are skipped.

    Raises:
        CorpusError: a row has another number of fields than the header, or the file is not CSV, or not UTF-8.
    """
    with _reading(path) as (rows, stored):
        header = next(rows)
        places = [header.index(column) for column in columns]
        line = rows.line_num + 1
        for fields in rows:
            if fields and len(fields) != len(header):
                quoting = "Put a text with a comma, a quote or a line end in quotes"
                advice = "A text must have no TAB" if kind_of(path) == TSV else quoting
                raise CorpusError(
                    f"{path}, line {line}: the row has {len(fields)} fields, but the header {len(header)}. {advice}"
                )
            if fields:
                yield [fields[place] for place in places], stored.tell() if stored.seekable() else 0
            line = rows.line_num + 1


@contextmanager
def _reading(path: Path) -> Iterator[tuple]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    with open(path, "rb") as stored:
        data = gzip.GzipFile(fileobj=stored) if path.suffix == ".gz" else stored
        options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if kind_of(path) == TSV else {}
        rows = csv.reader(io.TextIOWrapper(data, encoding="utf-8-sig", newline=""), strict=True, **options)
        try:
            yield rows, stored
        except UnicodeDecodeError:
            raise CorpusError(
                f"{path}, after line {rows.line_num}: not UTF-8 (`iconv -f GB18030 -t UTF-8` converts GBK)"
            ) from None
        except csv.Error as error:
            reason = sentence_of(error).replace("unexpected end of data", "a quote before it is never closed")
            raise CorpusError(f"{path}, line {rows.line_num}: not CSV, {reason}") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise CorpusError(f"{path} is not a complete gzip file: {sentence_of(error).rstrip('.')}") from None
