"""`roformer predict`: predict rows part by part, so that a stopped command resumes, and write them into one file."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from modeling_roformer.data.code_digest import code_digest
from modeling_roformer.data.records import Records
from modeling_roformer.data.sources import source_names
from modeling_roformer.files.lock import only_writer
from modeling_roformer.files.new_file import require_writable
from modeling_roformer.model_cards.facts import vocabulary_of
from modeling_roformer.model_cards.usage import makes_sentences, task_of
from modeling_roformer.output.console import summary_table
from modeling_roformer.output.device import device_of
from modeling_roformer.output.progress import byte_progress
from modeling_roformer.tokenization.vocabulary import has_words

from ..batches import BATCH_TOKENS
from ..errors import ServingError
from ..model_folder import read_model_folder
from ..model_identity import digest_of_files, model_files
from .output import check_suffix, write_output
from .parts import PartsFolder
from .rows import ERROR, ID, Part, json_line, read_parts

if TYPE_CHECKING:
    from .heads import Head

# The Hub's pipeline tag -> module and class of the head.
_HEADS = {
    "text-classification": ("classes", "ClassHead"),
    "token-classification": ("entities", "EntityHead"),
    "question-answering": ("answers", "AnswerHead"),
    "sentence-similarity": ("triplets", "TripletHead"),
    "fill-mask": ("masks", "MaskHead"),
}


DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class PredictReport:
    """Result of `predict`. `errors` counts the rows with an error, and `truncated` those that were truncated."""

    model: Path
    output: Path
    rows: int
    errors: int
    truncated: int
    kept: int
    seconds: float

    def table(self) -> Table:
        """Return the summary as a rich table."""
        rows = {
            "model": str(self.model),
            "output": str(self.output),
            "rows": f"{self.rows:,}" + (f", {self.kept:,} of them kept" if self.kept else ""),
            "errors": f"{self.errors:,} rows; the column {ERROR} says why" if self.errors else None,
            "truncated": f"{self.truncated:,} rows reach the limit (--max-length)" if self.truncated else None,
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)


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
    threshold: float | None = None,
    max_length: int | None = None,
    chunk: int | None = None,
    overlap: int | None = None,
    strict: bool = False,
    dtype: str = "float32",
    batch_tokens: int = BATCH_TOKENS,
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
        threshold: minimum score of a class; by default 0.5 for several classes, and none for one.
        max_length: truncate texts to this number of tokens; by default to what the tokenizer and the model read, at
            most 8,192.
        chunk, overlap: do not truncate texts, but split them into chunks of `chunk` tokens, which share `overlap`
            tokens with the one before, and join the results.
        strict: raise an error for a row without a text, or one that the head refuses, in place of writing it in the
            column `error`.
        dtype, device: see `TaskModel`.
        batch_tokens: maximum tokens of a batch, padding included.
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
    require_writable(output, force, sources)
    task = _task(directory)
    records = Records(sources, id_field, sample_by)
    size = records.size()
    options = {
        "max_length": max_length,
        "chunk": chunk,
        "overlap": overlap,
        "all_scores": all_scores,
        "top_k": top_k,
        "threshold": threshold,
        "texts": columns or {},
    }
    predictor = _Predictor(directory, task, options, dtype, device, batch_tokens)
    parts = PartsFolder(output)
    settings = {
        "model": digest_of_files(directory, model_files(directory)),
        "files": source_names(sources),
        "id_field": id_field,
        "sample_by": sample_by,
        **options,
        "dtype": dtype,
        "code": code_digest(),
    }
    with only_writer(parts.path, ServingError), byte_progress(progress) as bar:
        parts.begin(settings, force)
        bar_task = bar.add_task("predicting", total=size)
        kept, names, done = 0, set(), 0
        head = predictor.head
        for part in read_parts(records, head.texts, head.columns):
            if strict and (refused := next((row for row in part.rows if row.error), None)):
                raise ServingError(_strict(refused.error))
            if parts.has(part):
                kept += len(part.rows)
            else:
                parts.write(part, *predictor.predict(part, strict))
            names.add(part.name)
            done += len(part.rows)
            speed = (done - kept) / (time.perf_counter() - started)
            bar.update(bar_task, advance=part.read, description=f"{done:,} rows, {speed:,.0f} rows/s")
        if not names:
            raise ServingError(f"there is no row in {', '.join(sources)}")
        parts.keep_only(names)
        write_output(parts, output, head.columns)
        totals = {name: sum(record[name] for record in parts.records.values()) for name in ("errors", "truncated")}
        parts.remove()
    return PredictReport(directory, output, done, **totals, kept=kept, seconds=time.perf_counter() - started)


def _task(folder: Path) -> str:
    """Return the task of a model's head; raise ServingError if it has none that is predicted."""
    config = read_model_folder(folder)
    word_level = has_words(vocabulary_of(folder))
    task = task_of(config, word_level)
    if task not in _HEADS or makes_sentences(config, word_level):
        raise ServingError(
            f"{folder} has no head with predictions for rows of a file, but one for {task}: name a model for classes, "
            "entities, answers, triplets or masks"
        )
    return task


def _strict(sentence: str) -> str:
    return f"{sentence}; without --strict, such a row has this in the column {ERROR}"


class _Predictor:
    """A model that predicts parts. It is loaded for the first one."""

    def __init__(self, folder: Path, task: str, options: dict, dtype: str, device: str | None, batch_tokens: int):
        self.folder, self.task, self.options = folder, task, options
        self.dtype, self.device, self.batch_tokens = dtype, device, batch_tokens

    @cached_property
    def head(self) -> "Head":
        """The head of the model."""
        from importlib import import_module

        from ..task_model import TaskModel
        from .heads import Options

        module, name = _HEADS[self.task]
        head_class = getattr(import_module(f".{module}", __package__), name)
        model = TaskModel(self.folder, self.task, self.dtype, device_of(self.device, ServingError))
        return head_class(model, Options(**self.options))

    def predict(self, part: Part, strict: bool) -> tuple[bytes, dict[str, int]]:
        """Return the lines of a part, and its numbers of rows with an error and of truncated ones."""
        from ..batches import run_in_batches, without_onednn

        head = self.head
        errors = {place: row.error for place, row in enumerate(part.rows) if row.error}
        items, owners, counts = [], [], {}
        for place, row in enumerate(part.rows):
            if place in errors:
                continue
            try:
                found = head.items(row.texts)
            except ValueError as error:  # a ServingError too
                errors[place] = f"{row.place}: {error}"
                if strict:
                    raise ServingError(_strict(errors[place])) from None
                continue
            items += found
            owners += [place] * len(found)
            counts[place] = len(found)
        outputs: list = [None] * len(items)

        def compute(batch: list[int]) -> None:
            for place, output in zip(batch, head.outputs([items[place] for place in batch]), strict=True):
                outputs[place] = output

        lengths = [item.tokens for item in items]
        device = head.model.device
        with without_onednn(head.model.dtype):
            self.batch_tokens = run_in_batches(
                lengths, self.batch_tokens, compute, lambda place: f"of {part.rows[owners[place]].place}", device
            )
        lines, start = [], 0
        for place, row in enumerate(part.rows):
            shared = {ID: row.id, **row.kept}
            if place in errors:
                lines.append(json_line(shared | {"predicted": None, ERROR: errors[place]}))
                continue
            end = start + counts[place]
            for result in head.results(row.texts, items[start:end], outputs[start:end]):
                lines.append(json_line(shared | result))
            start = end
        truncated = len({owner for owner, item in zip(owners, items, strict=True) if item.truncated})
        return b"".join(lines), {"errors": len(errors), "truncated": truncated}
