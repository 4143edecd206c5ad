"""The file of predictions, made of the finished parts: JSON Lines, CSV or Parquet."""

import csv
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from modeling_roformer.output.extras import needs_extra

from ..errors import ServingError
from .parts import PartsFolder
from .rows import ERROR, ID

SUFFIXES = (".jsonl", ".csv", ".parquet")


def check_suffix(output: Path) -> None:
    """Raise ServingError if the name of a file has none of the suffixes that are written."""
    if output.suffix.lower() not in SUFFIXES:
        raise ServingError(f"{output}: its format is unknown; let its name end in {', '.join(SUFFIXES)}")


def write_output(parts: PartsFolder, output: Path, columns: Sequence[str]) -> Path:
    """Write the rows of all parts into one file in the folder of the parts, and return it.

    Args:
        output: the file to replace with it, whose suffix is the format.
        columns: names of the columns of results, in their order.
    """
    unfinished = parts.path / "output"
    suffix = output.suffix.lower()
    if suffix == ".jsonl":
        with open(unfinished, "wb") as file:
            for path in parts.files():
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, file)
    elif suffix == ".csv":
        _write_csv(parts, unfinished, columns)
    else:
        _write_parquet(parts, unfinished, columns)
    with open(unfinished, "rb") as file:
        os.fsync(file.fileno())
    return unfinished


def _names(parts: PartsFolder, columns: Sequence[str], flat: bool) -> list[str]:
    """Return the names of all columns: the id, those of the input, those of the results and, if there are any, errors.

    With `flat`, scores of classes have a column for each class.
    """
    found: dict[str, None] = {}
    for row in parts.all_rows():
        found |= dict.fromkeys(_flat(row) if flat else row)
    results = [name for name in found if name in columns or name.partition(".")[0] in columns]
    kept = [name for name in found if name not in (ID, ERROR, *results)]
    return [ID, *kept, *results, *[ERROR] * (ERROR in found)]


def _flat(row: dict) -> dict:
    """Return a row with a column for each class's score."""
    scores = row.get("scores")
    if not isinstance(scores, dict):
        return row
    others = {name: value for name, value in row.items() if name != "scores"}
    return others | {f"scores.{name}": score for name, score in scores.items()}


def _text(value: object) -> str:
    """Return a value as a cell of CSV."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_csv(parts: PartsFolder, path: Path, columns: Sequence[str]) -> None:
    names = _names(parts, columns, flat=True)
    # Excel needs the byte order mark. A lone surrogate, which UTF-8 cannot store, becomes a question mark.
    with open(path, "w", encoding="utf-8-sig", errors="replace", newline="") as file:
        # A value with one of the characters of the line end is quoted: "\r" too, although lines end with "\n".
        lines = SimpleNamespace(write=lambda line: file.write(line.removesuffix("\r\n") + "\n"))
        writer = csv.writer(lines, lineterminator="\r\n")
        writer.writerow(names)
        for row in parts.all_rows():
            flat = _flat(row)
            writer.writerow([_text(flat.get(name)) for name in names])


def _write_parquet(parts: PartsFolder, path: Path, columns: Sequence[str]) -> None:
    with needs_extra("predict", ServingError):
        import pyarrow
        import pyarrow.parquet

    names = _names(parts, columns, flat=False)
    types = dict.fromkeys(names, pyarrow.null())
    for file in parts.files():
        rows = parts.rows(file)
        for name in names:
            types[name] = _common(types[name], _type_of([row.get(name) for row in rows]))
    types = {name: pyarrow.string() if type_ == pyarrow.null() else type_ for name, type_ in types.items()}
    while (misfit := _write_tables(parts, path, types)) is not None:
        types[misfit] = pyarrow.string()


def _write_tables(parts: PartsFolder, path: Path, types: dict) -> str | None:
    """Write columns of these types. Return the name of one whose type does not hold a value, such as an integer beyond
    2**53 among floats; None if the file is complete."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(list(types.items()))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for file in parts.files():
            rows, arrays = parts.rows(file), []
            for name, type_ in types.items():
                try:
                    arrays.append(_array([row.get(name) for row in rows], type_))
                except pyarrow.ArrowInvalid:
                    return name
            writer.write_table(pyarrow.table(arrays, schema=schema))
    return None


def _type_of(values: list):
    """Return the Arrow type of values of JSON, a string if they have several."""
    import pyarrow

    try:
        type_ = pyarrow.array(values).type
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return pyarrow.string()
    return pyarrow.string() if "struct<>" in str(type_) else type_  # Parquet has no empty objects


def _common(first, second):
    """Return a type that holds the values of both types, a string if there is no other."""
    import pyarrow

    try:
        schemas = [pyarrow.schema([("value", type_)]) for type_ in (first, second)]
        return pyarrow.unify_schemas(schemas, promote_options="permissive").field("value").type
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        return pyarrow.string()


def _array(values: list, type_):
    import pyarrow

    if type_ == pyarrow.string():
        values = [None if value is None else _text(value).encode("utf-8", "replace").decode() for value in values]
    return pyarrow.array(values, type_)
