"""Labelled texts for classification, from files and data sets."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import datasets
import pandas

from ..errors import TrainingError
from ..runs.tables import UNNAMED, has_csv, labels_in, listed, pair_in, read_table, require_columns, texts_in

# Names of columns that are used if none is given, in the order of preference.
TEXT = ("text", "sentence", "content", "review")
LABEL = ("label", "labels", "class", "category")


def read_labelled(
    source: str | Path,
    split: str = "train",
    text: str | None = None,
    label: str | None = None,
    names: Sequence[str] | None = None,
    text_pair: str | None = None,
) -> datasets.Dataset:
    """Read labelled texts into the columns `text`, `text_pair` if it is given, and `label`, a `ClassLabel`.

    Args:
        source, split: see `read_table`. A file with TABs needs no names of columns if a line is a text and a label, in
            either order.
        text, label: columns of the texts and of the labels; if None, columns with a usual name, or the two of a table
            of two.
        names: names of the classes; if None, all labels in the source, sorted.
        text_pair: column of the second text of pairs.

    Raises a TrainingError or a CorpusError that names the source: the columns are not found, no labelled text, a text
    or a label is missing, only one label, or a label that is not in `names`.
    """

    given = [name for name in (text, text_pair, label) if name]

    def is_header(fields: list[str]) -> bool:
        if given:
            return {*given} <= {*fields}
        has_texts = not {*TEXT}.isdisjoint(fields) or pair_in(fields)
        return bool(has_texts) and not {*LABEL}.isdisjoint(fields)

    table = read_table(source, split, is_header)
    if table.empty:
        raise TrainingError(f"{source} has no labelled text")
    is_named = bool(given) or not {*TEXT, *LABEL}.isdisjoint(table.columns)
    text, label = _columns(table, text, text_pair, label, names, source)
    texts, labels = {"text": texts_in(table, text, source)}, labels_in(table, label, source)
    if text_pair:
        texts["text_pair"] = texts_in(table, text_pair, source)
    count = Counter(labels)
    # Without a usual name, the first line of a CSV file is only known to be no text if its label is none of the others'
    # kind.
    is_label = label in names if names else _is_number(label) or not all(map(_is_number, count))
    if not is_named and is_label and has_csv(source):
        raise TrainingError(
            f"{source}: its first line may be a text; if it names the columns, add --text {text!r} --label {label!r}, "
            "or else put a line with the names of the columns above it"
        )
    if names is None:
        names = sorted(count, key=_by_number)
        if len(names) == 1:
            raise TrainingError(f"{source}: every label is {names[0]!r}; expected at least two classes")
        if not given and label.startswith(UNNAMED) and count[labels[0]] == 1 < max(count.values()):
            raise TrainingError(
                f"{source}: the label {labels[0]!r} is only in the first line; if that line names the columns, add "
                f"--text {texts['text'][0]!r} --label {labels[0]!r}, or else move it down"
            )
        if len(names) > max(10, len(labels) / 2):
            raise TrainingError(
                f"{source}: {label} has {len(names):,} different values in {len(labels):,} rows: name the column of "
                "the labels with --label"
            )
    for place, name in zip(table.index, labels, strict=True):
        if name not in names:
            raise TrainingError(
                f"{source}, {table.index.name} {place}: the label is {name!r}; expected a label of the training texts: "
                f"{listed(names)}"
            )
    features = {name: datasets.Value("string") for name in texts} | {"label": datasets.ClassLabel(names=list(names))}
    return datasets.Dataset.from_dict(texts | {"label": labels}, features=datasets.Features(features))


def _columns(
    table: pandas.DataFrame,
    text: str | None,
    text_pair: str | None,
    label: str | None,
    names: Sequence[str] | None,
    source: str | Path,
) -> tuple[str, str]:
    options = {"--text": text, "--text-pair": text_pair, "--label": label}
    require_columns(table, {option: name for option, name in options.items() if name}, source)
    text = text or next((name for name in TEXT if name in table and name != label), None)
    label = label or next((name for name in LABEL if name in table and name != text), None)
    if len(others := [name for name in table.columns if name != text_pair]) == 2:
        one, other = others
        if not text and not label:
            if names is None:  # the label has fewer and shorter values
                size = [(table[name].nunique(), table[name].astype(str).str.len().sum()) for name in (one, other)]
            else:
                size = [-table[name].astype(str).isin(names).sum() for name in (one, other)]
            text, label = (one, other) if size[0] >= size[1] else (other, one)
        text = text or (other if label == one else one)
        label = label or (other if text == one else one)
    if len(table.columns) == 1:
        raise TrainingError(
            f"{source} has one column, {table.columns[0]}; expected commas in .csv files, and TABs in others"
        )
    if not text or not label:
        pair = pair_in(table.columns) if not text else None
        pairs = f"; of sentence pairs with --text {pair[0]!r} --text-pair {pair[1]!r}" if pair else ""
        raise TrainingError(
            f"{source} has the columns {listed(table.columns)}: name those of the texts and of the labels with --text "
            f"and --label{pairs}"
        )
    return text, label


def _is_number(name: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", name) is not None


def _by_number(name: str) -> tuple:
    """Return a sort key: numbers by value, then names."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)
