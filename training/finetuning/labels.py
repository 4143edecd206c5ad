"""Labels of texts, as they are read: classes, several labels per text, or numbers."""

import math
from collections.abc import Mapping, Sequence

import datasets

from ..errors import TrainingError, raises_training_error
from ..runs.data import batches_of, load_texts, place_of
from .folders import load_folders


@raises_training_error()
def load_labelled(
    sources: Mapping[str, str],
    texts: Sequence[str] = ("text",),
    label: str = "label",
    *,
    numbers: bool = False,
    separator: str | None = None,
    from_folders: bool = False,
    ignored: Sequence[str] = (),
    order: Sequence[str] = (),
) -> tuple[datasets.DatasetDict, int]:
    """Load splits of labelled texts for a script with the options --text and --label.

    Their columns are `text`, with two names `text_pair` too, and `label`: a class id; a list of class ids, if the first
    label of "train" is a list or there is a `separator`; or a number.

    Args:
        sources: name of each split -> a file, a folder or a data set, as `load_data` reads it. One of them is "train".
        texts: names of one or two columns with the texts.
        label: name of the column with the labels.
        numbers: whether the labels are numbers.
        separator: text between the labels of a text.
        from_folders: whether the sources are read by `load_folders`.
        ignored: labels whose rows are left out. If a text has several labels, one of them is enough.
        order: names of classes; if the data have the same, class ids follow this order.

    Returns the splits, and the number of rows that were left out.

    Raises a TrainingError that names the source, and the row where there is one: see `load_texts`, `load_folders` and
    `encode_labels`; or no row has an ignored label, or all have.
    """
    if from_folders:
        parts = {part: load_folders(source) for part, source in sources.items()}
    else:
        columns = dict(zip(("text", "text_pair"), texts, strict=False)) | {"label": label}
        has_lists = not numbers and separator is None and _begins_with_list(sources["train"], label)
        options = {
            "lists": ["label"] * has_lists,
            "may_be_empty": True,
            "named_by": [*["--text"] * len(texts), "--label"],
        }
        parts = {part: load_texts(source, columns, part, **options) for part, source in sources.items()}
    if separator is not None:
        parts = {part: _separated(rows, sources[part], label, separator, part) for part, rows in parts.items()}
    kept = _without(parts, ignored, sources)
    left_out = sum(len(parts[part]) - len(rows) for part, rows in kept.items())
    if numbers:
        return encode_numbers(kept, sources, label), left_out
    return encode_labels(kept, sources, order, label, separator), left_out


def labels_in(text: str | None, separator: str | None = None) -> list[str]:
    """Return the labels in a text, without spaces around them and without empty ones; without a separator, the text.

    >>> labels_in("体育, 财经,", ",")
    ['体育', '财经']
    """
    if separator is None:
        return [text or ""]
    return [*filter(None, map(str.strip, (text or "").split(separator)))]


def encode_labels(
    parts: Mapping[str, datasets.Dataset],
    sources: Mapping[str, str],
    order: Sequence[str] = (),
    column: str = "label",
    separator: str | None = None,
) -> datasets.DatasetDict:
    """Return the parts with `label` as class ids: the classes of "train", in `order` if it has the same, or sorted.

    A `label` that is a list of strings, which may be empty, becomes a list of ids, each once, in the order of the ids.

    Args:
        column: name of the labels in the sources, for errors.
        separator: what separates several labels in a text of the sources, for errors.

    Raises a TrainingError that names the source if "train" has one class, and the file and the row if another part has
    a class that "train" lacks.
    """
    several = isinstance(parts["train"].features["label"], datasets.List)
    found = {part: [labels if several else [labels] for labels in rows["label"]] for part, rows in parts.items()}
    names = sorted({name for labels in found["train"] for name in labels})
    names = [*order] if sorted(order) == names else names
    if len(names) < 2:
        only = f"every label is {names[0]!r}" if names else "no text has a label"
        raise TrainingError(f"{sources['train']}: {only}; expected at least two classes")
    for part, rows in found.items():
        if unknown := sorted({name for labels in rows for name in labels} - {*names}):
            place = place_of(sources[part], column, lambda text: unknown[0] in labels_in(text, separator), part)
            raise TrainingError(f"{place}: no training text has the label {unknown[0]!r}")
    ids = {name: number for number, name in enumerate(names)}
    feature = datasets.ClassLabel(names=names)
    encoded = datasets.DatasetDict()
    for part, rows in parts.items():
        labels = [sorted({ids[name] for name in row}) for row in found[part]]
        if several:
            encoded[part] = _with_labels(rows, labels, datasets.List(feature))
        else:
            encoded[part] = _with_labels(rows, [row[0] for row in labels], feature)
    return encoded


def encode_numbers(
    parts: Mapping[str, datasets.Dataset], sources: Mapping[str, str], column: str = "label"
) -> datasets.DatasetDict:
    """Return the parts with `label`, a text, as a number in float64. `column` is its name in the sources, for errors.

    Raises a TrainingError that names the source if all numbers of "train" are equal, and the file and the row of a
    label that is not a finite number.
    """
    encoded = datasets.DatasetDict()
    for part, rows in parts.items():
        labels = rows["label"][:]
        if wrong := next((text for text in labels if not _is_number(text)), None):
            place = place_of(sources[part], column, lambda text: text == wrong, part)
            raise TrainingError(f"{place} is {wrong!r}; expected a finite number")
        encoded[part] = _with_labels(rows, [*map(float, labels)], datasets.Value("float64"))
    if len({*encoded["train"]["label"]}) < 2:
        raise TrainingError(f"{sources['train']}: every number is the same; expected different ones")
    return encoded


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _begins_with_list(source: str, column: str) -> bool:
    """Return whether the first value of a column is a list."""
    for batch in batches_of(source, [column], "train", {}):
        for _, [value] in batch.rows([column], ["--label"]):
            return isinstance(value, (list, tuple))
    return False


def _separated(rows: datasets.Dataset, source: str, column: str, separator: str, split: str) -> datasets.Dataset:
    """Return rows whose label is a list, of the labels in the text that it was."""
    labels = [labels_in(text, separator) for text in rows["label"]]
    if not all(labels):
        place = place_of(source, column, lambda text: not labels_in(text, separator), split)
        raise TrainingError(f"{place} has no label, only {separator!r}: write one, or remove the row")
    return _with_labels(rows, labels, datasets.List(datasets.Value("string")))


def _without(
    parts: Mapping[str, datasets.Dataset], ignored: Sequence[str], sources: Mapping[str, str]
) -> dict[str, datasets.Dataset]:
    """Return the parts without the rows that have an ignored label."""
    unseen, kept = {*ignored}, {}
    for part, rows in parts.items():
        labels = [{*label} if isinstance(label, list) else {label} for label in rows["label"]]
        places = [place for place, row in enumerate(labels) if not row & {*ignored}]
        if not places:
            raise TrainingError(f"{sources[part]}: every row has a label of --ignore-label")
        unseen.difference_update(*labels)
        kept[part] = rows if len(places) == len(rows) else rows.select(places)
    if unseen:
        raise TrainingError(f"no row of {', '.join(sources.values())} has the label {min(unseen)!r} of --ignore-label")
    return kept


def _with_labels(rows: datasets.Dataset, labels: list, feature) -> datasets.Dataset:
    """Return rows with other labels."""
    features = datasets.Features({**rows.features, "label": feature})
    return datasets.Dataset.from_dict(
        {**{name: rows[name][:] for name in rows.column_names}, "label": labels}, features
    )
