"""GLUE's tasks of Table 2 of the RoFormer paper (arXiv:2104.09864), read from files or data sets."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import datasets

from ..errors import TrainingError
from ..pretraining.documents import load_data_set


@dataclass(frozen=True)
class Task:
    """What a task's files hold, and how its answers are scored.

    title: as GLUE calls it, and its folder.
    texts: columns of the one text or the two, in GLUE's files; `columns` in data sets.
    label: column of the label in the files.
    classes: in the order of their numbers; empty where the label is a number from 0 to 5.
    score: what Table 2 has of it: "f1", "accuracy" or "spearman".
    validation: parts to be scored, by the ends of their files' names; where there are none, there is the one file "dev".
    """

    title: str
    texts: tuple[str, ...]
    columns: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    score: str
    validation: tuple[str, ...] = ("",)


TASKS = {
    "mrpc": Task("MRPC", ("#1 String", "#2 String"), ("sentence1", "sentence2"), "Quality", ("0", "1"), "f1"),
    "sst2": Task("SST-2", ("sentence",), ("sentence",), "label", ("0", "1"), "accuracy"),
    "qnli": Task(
        "QNLI",
        ("question", "sentence"),
        ("question", "sentence"),
        "label",
        ("entailment", "not_entailment"),
        "accuracy",
    ),
    "stsb": Task("STS-B", ("sentence1", "sentence2"), ("sentence1", "sentence2"), "score", (), "spearman"),
    "qqp": Task("QQP", ("question1", "question2"), ("question1", "question2"), "is_duplicate", ("0", "1"), "f1"),
    "mnli": Task(
        "MNLI",
        ("sentence1", "sentence2"),
        ("premise", "hypothesis"),
        "gold_label",
        ("entailment", "neutral", "contradiction"),
        "accuracy",
        ("_matched", "_mismatched"),
    ),
}
HIGHEST = 5.0  # similarity in STS-B
Row = tuple[tuple[str, ...], str, str]  # texts, label, and where they stand


def read_task(name: str, source: str | Path) -> datasets.DatasetDict:
    """The parts `train` and `validation` (of MNLI `validation_matched` and `validation_mismatched`).

    Their columns are `text`, where texts come in pairs `pair`, and `label`: a class's number, or a number from 0 to 5.

    Args:
        name: one of `TASKS`.
        source: a folder that holds one for each task, called as here or as GLUE does, with train.tsv and dev.tsv (or
            .csv); where there is no dev file, a test file with labels takes its place. Or a data set whose
            configurations are the tasks, as `nyu-mll/glue`.

    Raises:
        TrainingError: a file is missing, or lacks columns, or has a label outside their range; it names file and line.
    """
    task, folder = TASKS[name], Path(source)
    if not folder.exists() and (folder.is_absolute() or str(source).count("/") != 1):
        raise TrainingError(f"{source} does not exist")
    parts = {}
    if folder.exists():
        of_task = next((folder / called for called in (name, task.title) if (folder / called).is_dir()), None)
        if of_task is None:
            raise TrainingError(f"{folder} has no folder {name} or {task.title} for that task")
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
    for path in candidates:
        if path.is_file():
            return path
    raise TrainingError(f"{folder} has no file {' or '.join(path.name for path in candidates)}")


def _file_rows(task: Task, path: Path) -> Iterator[Row]:
    """Rows of a file with a line of headings, or with the texts and then the label in each line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise TrainingError(f"{path} is not UTF-8") from None
    wanted, places = (*task.texts, task.label), None
    # Quotes are part of the text in GLUE's TAB files.
    reader = csv.reader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
    if path.suffix == ".csv":
        reader = csv.reader(text.splitlines(keepends=True), strict=True)
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
                    raise TrainingError(f"{place}: no columns {missing}, but {', '.join(fields)[:200]}")
                places = list(range(len(wanted)))
            if len(fields) <= max(places):
                raise TrainingError(f"{place}: {len(fields)} columns, where {max(places) + 1} are needed")
            *texts, label = (fields[column] for column in places)
            yield tuple(texts), label, place
    except csv.Error as error:
        raise TrainingError(f"{path}, line {reader.line_num}: {error}") from None


def _data_set_rows(task: Task, name: str, part: str) -> Iterator[Row]:
    found = load_data_set(name, part)
    if missing := {*task.columns, "label"} - set(found.column_names):
        raise TrainingError(f"the data set {name} has no column {', '.join(sorted(missing))}")
    for number, record in enumerate(found, 1):
        label = record["label"]
        if task.classes and label in range(len(task.classes)):
            label = task.classes[label]
        yield tuple(record[column] for column in task.columns), str(label), f"{name}, row {number} of {part}"


def _dataset(task: Task, rows: list[Row], source: str | Path) -> datasets.Dataset:
    if not rows:
        raise TrainingError(f"{source} holds no text")
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
            raise TrainingError(f"{place}: the label {label!r} is none of {', '.join(task.classes)}")
        return task.classes.index(label)
    try:
        number = float(label)
    except ValueError:
        number = -1.0
    if not 0 <= number <= HIGHEST:
        raise TrainingError(f"{place}: the label {label!r} is no number from 0 to {HIGHEST:g}")
    return number
