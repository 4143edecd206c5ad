"""GLUE tasks of Table 2 of the RoFormer paper (arXiv:2104.09864), read from files or data sets."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import datasets

from ..errors import TrainingError
from ..runs.data_sets import load_data_set


@dataclass(frozen=True)
class Task:
    """GLUE task: the columns of its files, its classes and its score.

    title: GLUE's name of the task and of its folder.
    texts: columns of the text or of the two texts in GLUE's files.
    label: column of the label in the files.
    classes: names of the classes in the order of their ids; empty if the label is a number from 0 to 5.
    score: the score in Table 2: "f1", "accuracy" or "spearman".
    columns: columns of the texts in data sets; None if as in the files.
    validation: suffixes of the validation splits in the names of files; "" for a single one.
    """

    title: str
    texts: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    score: str
    columns: tuple[str, ...] | None = None
    validation: tuple[str, ...] = ("",)


_PAIR = ("sentence1", "sentence2")
_MNLI = ("entailment", "neutral", "contradiction")
TASKS = {
    "mrpc": Task("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), "f1", columns=_PAIR),
    "sst2": Task("SST-2", ("sentence",), "label", ("0", "1"), "accuracy"),
    "qnli": Task("QNLI", ("question", "sentence"), "label", ("entailment", "not_entailment"), "accuracy"),
    "stsb": Task("STS-B", _PAIR, "score", (), "spearman"),
    "qqp": Task("QQP", ("question1", "question2"), "is_duplicate", ("0", "1"), "f1"),
    "mnli": Task(
        "MNLI", _PAIR, "gold_label", _MNLI, "accuracy", ("premise", "hypothesis"), ("_matched", "_mismatched")
    ),
}
HIGHEST = 5.0  # similarity in STS-B
Row = tuple[tuple[str, ...], str, str]  # texts, label, file and line


def read_task(name: str, source: str | Path) -> datasets.DatasetDict:
    """Read the splits `train` and `validation` of a task (of MNLI `validation_matched` and `validation_mismatched`).

    Their columns are `text`, `pair` for the second of two texts, and `label`: a class id, or a number from 0 to 5.

    Args:
        name: one of `TASKS`.
        source: a folder with a subfolder per task, named as in `TASKS` or as in GLUE, that has train.tsv and dev.tsv
            (or .csv). A labelled test file replaces a missing dev file. Or a data set with the tasks as configurations,
            such as `nyu-mll/glue`.

    Raises a TrainingError that names file and line: a file or columns are missing, or a label is invalid.
    """
    task, folder = TASKS[name], Path(source)
    if not folder.exists() and (folder.is_absolute() or str(source).count("/") != 1):
        raise TrainingError(f"{source} does not exist")
    parts = {}
    if folder.exists():
        of_task = next((folder / called for called in (name, task.title) if (folder / called).is_dir()), None)
        if of_task is None:
            raise TrainingError(f"{folder} has no folder {name} or {task.title}")
        files = {"train": _file(of_task, "train")}
        files |= {f"validation{part}": _file(of_task, f"dev{part}", "test") for part in task.validation}
        parts = {part: _dataset(task, list(_file_rows(task, path)), path) for part, path in files.items()}
    else:
        for part in ("train", *(f"validation{part}" for part in task.validation)):
            place = f"{source}:{name}"
            parts[part] = _dataset(task, list(_data_set_rows(task, place, part)), place)
    return datasets.DatasetDict(parts)


def _file(folder: Path, *names: str) -> Path:
    candidates = [folder / f"{name}.{suffix}" for name in names for suffix in ("tsv", "csv")]
    if found := next(filter(Path.is_file, candidates), None):
        return found
    raise TrainingError(f"{folder} has no file {' or '.join(path.name for path in candidates)}")


def _file_rows(task: Task, path: Path) -> Iterator[Row]:
    """Yield the rows of a file with a header line, or with the texts and then the label in each line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise TrainingError(f"{path} is not UTF-8") from None
    wanted, places = (*task.texts, task.label), None
    # Quotes are part of the text in GLUE's .tsv files.
    reader = csv.reader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
    if path.suffix == ".csv":
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            place = f"{path}, line {reader.line_num}"
            if not any(field.strip() for field in fields):
                continue
            fields = [field.strip("\r") for field in fields]
            if places is None:
                if set(wanted) <= set(fields):
                    places = [fields.index(column) for column in wanted]
                    continue
                if set(wanted) & set(fields) or len(fields) != len(wanted):
                    missing = ", ".join(column for column in wanted if column not in fields)
                    raise TrainingError(f"{place}: column {missing} is missing, found {', '.join(fields)[:200]}")
                places = list(range(len(wanted)))
            if len(fields) <= max(places):
                raise TrainingError(f"{place}: {len(fields)} columns; expected {max(places) + 1}")
            *texts, label = (fields[column] for column in places)
            yield tuple(texts), label, place
    except csv.Error as error:
        raise TrainingError(f"{path}, line {reader.line_num}: {error}") from None


def _data_set_rows(task: Task, name: str, part: str) -> Iterator[Row]:
    found, columns = load_data_set(name, part), task.columns or task.texts
    if missing := {*columns, "label"} - set(found.column_names):
        raise TrainingError(f"the data set {name} has no column {', '.join(sorted(missing))}")
    for number, record in enumerate(found, 1):
        label = record["label"]
        if task.classes and label in range(len(task.classes)):
            label = task.classes[label]
        yield tuple(record[column] for column in columns), str(label), f"{name}, row {number} of {part}"


def _dataset(task: Task, rows: list[Row], source: str | Path) -> datasets.Dataset:
    if not rows:
        raise TrainingError(f"{source} has no text")
    labels = [_label(task, label, place) for _, label, place in rows]
    for texts, _, place in rows:
        if not all(text.strip() for text in texts):
            raise TrainingError(f"{place}: a text is empty")
    columns = dict(zip(("text", "pair"), zip(*(texts for texts, *_ in rows), strict=True), strict=False))
    features = {name: datasets.Value("string") for name in columns}
    features["label"] = datasets.ClassLabel(names=list(task.classes)) if task.classes else datasets.Value("float32")
    return datasets.Dataset.from_dict(columns | {"label": labels}, features=datasets.Features(features))


def _label(task: Task, label: str, place: str) -> int | float:
    if task.classes:
        if label not in task.classes:
            raise TrainingError(f"{place}: the label is {label!r}; expected one of {', '.join(task.classes)}")
        return task.classes.index(label)
    try:
        number = float(label)
    except ValueError:
        number = -1.0
    if not 0 <= number <= HIGHEST:
        raise TrainingError(f"{place}: the label is {label!r}; expected a number from 0 to {HIGHEST:g}")
    return number
