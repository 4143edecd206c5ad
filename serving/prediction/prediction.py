"""`roformer predict`: predict rows part by part, so that a stopped command resumes, and write them into one file."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress, TaskID
from rich.table import Table

from modeling_roformer.data.code_digest import code_digest
from modeling_roformer.data.records import Records
from modeling_roformer.data.sources import source_names
from modeling_roformer.files.lock import only_writer
from modeling_roformer.files.new_file import require_writable
from modeling_roformer.model_cards.facts import vocabulary_of
from modeling_roformer.model_cards.usage import makes_sentences, task_of
from modeling_roformer.output.console import summary_table
from modeling_roformer.output.progress import byte_progress
from modeling_roformer.tokenization.vocabulary import has_words

from ..errors import ServingError
from ..model_folder import read_model_folder
from ..model_identity import digest_of_files, model_files
from .output import check_suffix, write_output
from .parts import PartsFolder
from .predictor import HEADS, Predictor
from .rows import ERROR, read_parts
from .thresholds import read_threshold, tuned, write_threshold

if TYPE_CHECKING:
    from .evaluation import Evaluation

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class PredictReport:
    """Result of `predict`. `errors` counts the rows with an error, and `truncated` those that were truncated.

    `f1` is that of a threshold that was chosen."""

    model: Path
    output: Path
    rows: int
    errors: int
    truncated: int
    kept: int
    seconds: float
    evaluation: "Evaluation | None" = None
    threshold: float | None = None
    f1: float | None = None

    def table(self) -> Table:
        """Return the summary as a rich table."""
        rows = {
            "model": str(self.model),
            "output": str(self.output),
            "rows": f"{self.rows:,}" + (f", {self.kept:,} of them kept" if self.kept else ""),
            "errors": f"{self.errors:,} rows; the column {ERROR} says why" if self.errors else None,
            "truncated": f"{self.truncated:,} rows reach the limit (--max-length)" if self.truncated else None,
            "threshold": self._threshold(),
            "labels": self._labels(),
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)

    def _threshold(self) -> str | None:
        chosen = "" if self.f1 is None else f", chosen by an F1 of {self.f1:.3f}"
        return None if self.threshold is None else f"{self.threshold:g}{chosen}"

    def _labels(self) -> str | None:
        if self.evaluation is None:
            return None
        left_out = f", {self.evaluation.left_out:,} left out" if self.evaluation.left_out else ""
        without = f", {self.evaluation.without:,} without a class" if self.evaluation.without else ""
        return f"{self.evaluation.rows:,} rows{without}{left_out}"


def predict(
    directory: str | Path,
    files: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    columns: dict[str, str] | None = None,
    id_field: str | None = None,
    sample_by: str = "line",
    all_scores: bool = False,
    top_k: int | None = None,
    threshold: str | float | None = None,
    tune: str | Path | None = None,
    label: str | None = None,
    label_separator: str | None = None,
    confusion: str | Path | None = None,
    max_length: int | None = None,
    chunk: int | None = None,
    overlap: int | None = None,
    strict: bool = False,
    dtype: str = "float32",
    batch_tokens: int | None = None,
    device: str | None = None,
    force: bool = False,
    progress: bool = False,
) -> PredictReport:
    """Write the predictions of a model for each row of files. Called again with the same arguments, it resumes.

    Args:
        directory: a saved model with a head: for classes, entities, answers, triplets or masks.
        files: files, folders and names of data sets; see `Records`.
        output: file to write, .jsonl, .csv or .parquet; it appears when it is complete.
        columns: name of a text that the head reads -> its column: `field`, `text_pair`, `question`, `context`, or A, B
            and C.
        id_field, sample_by: see `Records`.
        all_scores: add the scores of all classes.
        top_k: add this number of words for each mask.
        threshold: minimum score of a class, or the file of one that `tune` wrote; by default 0.5 for several classes,
            and none for one.
        tune: a file of labelled rows, by which the threshold with the largest F1 is chosen; `threshold` is the file
            to write it to.
        label: column with the labels, with which the predictions are compared. With `tune`, these rows may lack it.
        label_separator: what separates several labels in a text, if they are no lists.
        confusion: PNG file for the confusion matrix.
        max_length: truncate texts to this number of tokens; by default to what the tokenizer and the model read, at
            most 8,192.
        chunk, overlap: do not truncate texts, but split them into chunks of `chunk` tokens, which share `overlap`
            tokens with the one before, and join the results.
        strict: raise an error for a row without a text, or one that the head refuses, in place of writing it in the
            column `error`.
        dtype, device: see `TaskModel`.
        batch_tokens: maximum tokens of a batch, padding included; by default 4,096 on a CPU, and 16,384 elsewhere.
        force: replace an existing file, and remove the parts of a stopped command with other settings.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: the model has no such head, an option has no meaning for it, or a row is refused.
        DataError: a file cannot be read.
        FileExistsError: `output` exists.

    >>> predict("reviews/model", "new.csv", "predictions.csv", columns={"field": "review"}).rows
    1234
    """
    started = time.perf_counter()
    sources = tuple(map(str, [files] if isinstance(files, (str, Path)) else files))
    directory, output = Path(directory), Path(output)
    check_suffix(output)
    if dtype not in DTYPES:
        raise ServingError(f"dtype is {dtype!r}; expected one of {', '.join(DTYPES)}")
    written = [Path(path) for path in (output, confusion, threshold if tune else None) if path]
    for number, path in enumerate(written):
        require_writable(path, force, [*sources, *filter(None, [tune])])
        if path.absolute() in [other.absolute() for other in written[:number]]:
            raise ServingError(f"{path} would be written twice: name files of their own")
    if label is None and (tune or confusion or label_separator):
        raise ServingError("--tune, --confusion and --label-separator need labels: name their column with --label")
    if tune and (threshold is None or _is_number(threshold)):
        raise ServingError("--tune needs --threshold FILE, the file to write the threshold to")
    if tune and any(os.path.exists(source) and os.path.samefile(source, tune) for source in sources):
        raise ServingError(f"{tune} is also predicted: a threshold that is chosen on it says nothing about it")
    task = _task(directory)
    records = Records(sources, id_field, sample_by)
    size = records.size()
    identity = digest_of_files(directory, model_files(directory))
    options = {
        "max_length": max_length,
        "chunk": chunk,
        "overlap": overlap,
        "all_scores": all_scores,
        "top_k": top_k,
        "threshold": None,
        "texts": columns or {},
    }
    how = {"dtype": dtype, "device": device, "batch_tokens": batch_tokens}
    if tune:
        predictor = Predictor(directory, task, options | {"all_scores": True}, **how)
        chosen = tuned(predictor, Records([str(tune)], None, sample_by), label, label_separator, progress)
        options["threshold"] = chosen[0]
    elif threshold is not None:
        options["threshold"] = read_threshold(str(threshold), identity)
    predictor = Predictor(directory, task, options, **how)
    parts = PartsFolder(output)
    settings = {
        "model": identity,
        "files": source_names(sources),
        "id_field": id_field,
        "sample_by": sample_by,
        "strict": strict,
        **options,
        "dtype": dtype,
        "code": code_digest(),
    }
    with only_writer(parts.path, ServingError), byte_progress(progress) as bar:
        require_writable(output, force)  # another process may just have written it
        parts.begin(settings, force)
        bar_task = bar.add_task("predicting", total=size)
        kept, names, done = 0, set(), 0
        head = predictor.head
        if label is not None:
            from .evaluation import check_labels, evaluate

            check_labels(head, label_separator)
        for part in read_parts(records, head.texts, head.columns, None if tune else label):
            if parts.has(part):
                kept += len(part.rows)
                bar.advance(bar_task, part.read)
            else:
                advance = partial(_advance, bar, bar_task, part.read)
                parts.write(part, *predictor.predict(part, strict, advance))
            names.add(part.name)
            done += len(part.rows)
            speed = (done - kept) / (time.perf_counter() - started)
            bar.update(bar_task, description=f"{done:,} rows, {speed:,.0f} rows/s")
        if not names:
            raise ServingError(f"there is no row in {', '.join(sources)}")
        parts.keep_only(names)
        evaluation = None
        if label is not None:
            evaluation = evaluate(head, parts.all_rows(), label, label_separator)
        finished = write_output(parts, output, head.columns)
        # Files appear last, so that the same command resumes: it would be refused if one existed.
        if confusion is not None and evaluation is not None:
            evaluation.draw_confusion(Path(confusion))
        if tune:
            write_threshold(Path(threshold), *chosen, identity)
        os.replace(finished, output)
        totals = {name: sum(record[name] for record in parts.records.values()) for name in ("errors", "truncated")}
        parts.remove()
    seconds = time.perf_counter() - started
    return PredictReport(
        directory,
        output,
        done,
        **totals,
        kept=kept,
        seconds=seconds,
        evaluation=evaluation,
        threshold=options["threshold"],
        f1=chosen[1] if tune else None,
    )


def _task(folder: Path) -> str:
    """Return the task of a model's head; raise ServingError if it has none that is predicted."""
    config = read_model_folder(folder)
    word_level = has_words(vocabulary_of(folder))
    task = task_of(config, word_level)
    if task not in HEADS or makes_sentences(config, word_level):
        raise ServingError(
            f"{folder} has no head with predictions for rows of a file, but one for {task}: name a model for classes, "
            "entities, answers, triplets or masks"
        )
    return task


def _advance(bar: Progress, task: TaskID, read: float, share: float) -> None:
    bar.advance(task, read * share)


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True
