"""GLUE tasks of Table 2 of the RoFormer paper (arXiv:2104.09864), read from files or data sets."""

from dataclasses import dataclass
from pathlib import Path

import datasets

from modeling_roformer.data import first_row
from modeling_roformer.output.console import sentence_of

from ..errors import TrainingError, raises_training_error
from ..runs.data import load_data, load_texts, place_of


@dataclass(frozen=True)
class GlueTask:
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
_NLI = ("entailment", "neutral", "contradiction")
_NLI_COLUMNS, _NLI_VALIDATION = ("premise", "hypothesis"), ("_matched", "_mismatched")
GLUE_TASKS = {
    "mrpc": GlueTask("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), "f1", _PAIR),
    "sst2": GlueTask("SST-2", ("sentence",), "label", ("0", "1"), "accuracy"),
    "qnli": GlueTask("QNLI", ("question", "sentence"), "label", ("entailment", "not_entailment"), "accuracy"),
    "stsb": GlueTask("STS-B", _PAIR, "score", (), "spearman"),
    "qqp": GlueTask("QQP", ("question1", "question2"), "is_duplicate", ("0", "1"), "f1"),
    "mnli": GlueTask("MNLI", _PAIR, "gold_label", _NLI, "accuracy", _NLI_COLUMNS, _NLI_VALIDATION),
}


@raises_training_error()
def read_glue(name: str, source: str | Path) -> datasets.DatasetDict:
    """Read the splits `train` and `validation` of a task (of MNLI `validation_matched` and `validation_mismatched`).

    Their columns are `text`, `pair` for the second of two texts, and `label`: a class id, or a number from 0 to 5.

    Args:
        name: one of `GLUE_TASKS`.
        source: GLUE's own files: a folder with a subfolder per task, named as in `GLUE_TASKS` or as in GLUE, that has
            train.tsv and dev.tsv (or .csv), perhaps without the names of the columns, texts first. A labelled test.tsv
            replaces a missing dev.tsv. Or a data set with the tasks as
            configurations, such as `nyu-mll/glue`.

    Raises a TrainingError that names the source: a file, a column or a text is missing, or a label is wrong, which
    names the row of a file.
    """
    task, folder = GLUE_TASKS[name], Path(source)
    parts = {}
    for part in ("train", *(f"validation{suffix}" for suffix in task.validation)):
        if folder.exists():
            place = _file(task, name, folder, part)
            columns = dict(zip(("text", "pair"), task.texts, strict=False)) | {"label": task.label}
            options = {} if task.label in first_row(place) else {"column_names": list(columns.values())}
            rows = load_texts(place, columns, **options)
        else:
            place = f"{source}:{name}"
            columns = dict(zip(task.columns or task.texts, ("text", "pair"), strict=False)) | {"label": "label"}
            # In memory: `map` would keep tokens beside the files, and find them after a change of the tokenizer's code.
            rows = load_data(place, part, keep_in_memory=True).select_columns(list(columns)).rename_columns(columns)
            if sorted(getattr(rows.features["label"], "names", ())) == sorted(task.classes):  # perhaps in another order
                ids = {class_name: number for number, class_name in enumerate(task.classes)}
                rows = rows.align_labels_with_mapping(ids, "label")
        kind = datasets.ClassLabel(names=list(task.classes)) if task.classes else datasets.Value("float32")
        try:
            parts[part] = rows.cast_column("label", kind)
        except (ValueError, TypeError) as error:
            if folder.exists():
                place = place_of(place, task.label, lambda text: _is_wrong(text, task), **options)
            raise TrainingError(f"{place}: the label is wrong: {sentence_of(error)}") from None
    return datasets.DatasetDict(parts)


def _is_wrong(label: str | None, task: GlueTask) -> bool:
    """Return whether a label of a file is neither a class of the task nor, if it has none, a number."""
    if task.classes:
        return label not in task.classes
    try:
        float(label or "")
    except ValueError:
        return True
    return False


def _file(task: GlueTask, name: str, folder: Path, part: str) -> Path:
    """Return the file of a split."""
    stems = ["train"] if part == "train" else [part.replace("validation", "dev"), "test"]
    names = [f"{stem}.{suffix}" for stem in stems for suffix in ("tsv", "csv")]
    places = [folder / subfolder / file for subfolder in (name, task.title) for file in names]
    if found := next(filter(Path.is_file, places), None):
        return found
    raise TrainingError(f"{folder} has no file {name}/{stems[0]}.tsv or {task.title}/{stems[0]}.tsv")
