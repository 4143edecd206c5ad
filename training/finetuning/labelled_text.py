"""Labelled texts for classification, from files and data sets."""

from collections.abc import Collection, Iterator
from pathlib import Path

import datasets

from ...tokenization.vocabulary_maker.corpus import is_json_lines, read_chunks
from ..errors import TrainingError
from ..runs.data_sets import load_data_set

Row = tuple[str, str, str]  # text, label, file and line


def read_labelled(
    source: str | Path, split: str = "train", text: str = "text", label: str = "label", names: list[str] | None = None
) -> datasets.Dataset:
    """Read labelled texts into the columns `text` and `label`, a `ClassLabel` with the names of the classes.

    Args:
        source: a file with a text, a TAB and a label in each line, in either order; a JSON Lines file; either as .gz; or a data
            set, by its name (`NAME` or `NAME:CONFIG`) or folder.
        split: split of a data set.
        text, label: fields of JSON Lines, columns of a data set, or column names in the first line of a TAB file.
        names: names of the classes; if None, all labels in the source, sorted.

    Raises a TrainingError or a CorpusError that names file and line: no labelled text, only one label, a label that is not in
    `names`, or a file that is not UTF-8 or not JSON Lines.
    """
    path = Path(source)
    if path.is_file():
        rows = list(_json_rows(path, text, label) if is_json_lines(path) else _tab_rows(path, text, label, names))
    elif not path.is_dir() and (path.suffix or path.is_absolute()):
        raise TrainingError(f"{path} does not exist")
    else:
        rows = list(_data_set_rows(str(source), split, text, label))
    if not rows:
        raise TrainingError(f"{source} has no labelled text")
    for content, name, place in rows:
        if not content.strip() or not name:
            raise TrainingError(f"{place}: the {'label' if content.strip() else 'text'} is empty")
    if names is None:
        names = sorted({name for _, name, _ in rows}, key=_by_number)
        if len(names) == 1:
            raise TrainingError(f"{source}: every label is {names[0]!r}; expected at least two classes")
    for _, name, place in rows:
        if name not in names:
            raise TrainingError(
                f"{place}: the label is {name!r}; expected a label of the training texts: {_listed(names)}"
            )
    contents, labels, _ = zip(*rows, strict=True)
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=names))
    return datasets.Dataset.from_dict({"text": contents, "label": labels}, features=features)


def _tab_rows(path: Path, text: str, label: str, names: Collection[str] | None) -> Iterator[Row]:
    rows = []
    for chunk in read_chunks(path):
        for number, line in chunk.lines():
            if line.strip():
                fields = [field.strip() for field in line.split("\t")]
                place = f"{path}, line {number}"
                if len(fields) != 2:
                    raise TrainingError(f"{place}: {len(fields) - 1} TAB; expected a text, one TAB and a label")
                rows.append((*fields, place))
    if rows and {*rows[0][:2]} == {text, label}:
        text_at = rows.pop(0).index(text)
    elif names is not None:
        known = [sum(row[column] in names for row in rows) for column in (0, 1)]
        text_at = int(known[0] > known[1])
    else:  # the column with fewer and shorter values is the label
        size = [(len({row[column] for row in rows}), sum(len(row[column]) for row in rows)) for column in (0, 1)]
        text_at = int(size[0] < size[1])
    for row in rows:
        yield row[text_at], row[1 - text_at], row[2]


def _json_rows(path: Path, text: str, label: str) -> Iterator[Row]:
    for chunk in read_chunks(path):
        for number, record in chunk.records():
            place = f"{path}, line {number}"
            yield *_values(record, text, label, place), place


def _data_set_rows(name: str, split: str, text: str, label: str) -> Iterator[Row]:
    found = load_data_set(name, split)
    classes = getattr(found.features.get(label), "names", None)
    for number, record in enumerate(found, 1):
        place = f"{name}, row {number} of {split}"
        content, known = _values(record, text, label, place)
        yield content, classes[int(known)] if classes and known.isdecimal() else known, place


def _values(record: dict, text: str, label: str, place: str) -> tuple[str, str]:
    for field, option in (text, "--text"), (label, "--label"):
        if field not in record:
            raise TrainingError(f"{place}: no field {field!r}, only {_listed(record)}: name it with {option}")
    if not isinstance(record[text], str):
        raise TrainingError(f"{place}: the field {text!r} is {type(record[text]).__name__}; expected a string")
    if not isinstance(record[label], (str, int)):
        raise TrainingError(
            f"{place}: the field {label!r} is {type(record[label]).__name__}; expected a string or an integer"
        )
    return record[text], str(record[label])


def _by_number(name: str) -> tuple:
    """Return a sort key: numbers by value, then names."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def _listed(names: Collection[str]) -> str:
    some = list(names)
    return ", ".join(some[:9]) + ("" if len(some) < 10 else ", …")
