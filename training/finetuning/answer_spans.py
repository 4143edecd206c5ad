"""Questions whose answers are spans of a text, and the tokens of a span."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import datasets

from ..errors import TrainingError
from ..runs.data import load_texts, place_of


def load_answered_questions(
    source: str | Path, columns: Mapping[str, str], split: str = "train", named_by: Sequence[str] = ()
) -> datasets.Dataset:
    """Load questions with the columns `question`, `context`, `answer`, a list, and `start` and `end`, the characters of
    its first answer in the context.

    A start that the source has need not be exact: the occurrence nearest to it counts. Without, the first one counts.
    An answer that does not occur has -1 for both. Prints the number of answers that have several occurrences and no
    start, and of those that do not occur.

    Args:
        columns: new names of the columns -> their names in the source: `question`, `context`, `answer`, perhaps
            `answer_start`, and others. Answers and their starts may be lists.
        source, split, named_by: see `load_texts`.

    Raises a TrainingError as `load_texts` does, if a start is not a number, and if no answer occurs.
    """
    has_starts = "answer_start" in columns
    lists = ["answer", "answer_start"] if has_starts else ["answer"]
    rows = load_texts(source, columns, split, lists=lists, named_by=named_by)
    spans, several, missing = [], 0, 0
    for row in rows:
        answer, context = row["answer"][0].strip(), row["context"]
        places = occurrences(answer, context)
        near = row["answer_start"][0] if has_starts else "0"
        if not near.isdecimal():
            place = place_of(source, columns["answer_start"], lambda text, wrong=near: text == wrong, split)
            raise TrainingError(f"{place} is {near!r}; expected the number of the answer's first character, from 0 on")
        start = min(places, key=lambda place, near=int(near): abs(place - near), default=-1)
        spans.append((start, start + len(answer) if places else -1))
        several += not has_starts and len(places) > 1
        missing += not places
    if missing == len(rows):
        raise TrainingError(f"{source}: no answer occurs in its context; expected answers that are spans of it")
    if several:
        print(f"{source}: {several:,} answers occur more than once; the first occurrence counts")
    if missing:
        print(f"{source}: {missing:,} answers do not occur in their contexts, and are not trained on")
    starts, ends = map(list, zip(*spans, strict=True))
    return rows.add_column("start", starts).add_column("end", ends)


def occurrences(answer: str, context: str) -> list[int]:
    """Return the place of each occurrence of an answer, also of those that overlap."""
    places, place = [], context.find(answer)
    while place >= 0:
        places.append(place)
        place = context.find(answer, place + 1)
    return places


def token_span(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last token of a span of characters, or None if the tokens do not cover it.

    Args:
        offsets: the characters of each token: the first, and the one after the last.

    >>> token_span([(0, 2), (2, 3), (3, 5)], 2, 4)
    (1, 2)
    """
    if not offsets or start < offsets[0][0] or end > offsets[-1][1]:
        return None
    first = next(number for number, (_, stop) in enumerate(offsets) if stop > start)
    last = next(number for number in reversed(range(len(offsets))) if offsets[number][0] < end)
    return (first, last) if first <= last else None


def label_windows(rows: datasets.Dataset, windows_of: Callable[..., Sequence], *options) -> datasets.Dataset:
    """Return the windows of all questions with their labels: the first and the last token of the answer, or [CLS] in
    windows without it. The column `row` has the number of the question, and `places` and `offsets` are the window's.

    Args:
        rows: questions, as `load_answered_questions` returns them.
        windows_of: `modeling_roformer.serving.windows_of`.
        options: its tokenizer, its maximum length and perhaps its overlap.

    Raises a TrainingError that has the question if it leaves no room for its context.
    """
    work = {"windows_of": windows_of, "options": options}
    return rows.map(
        _label_batch,
        batched=True,
        with_indices=True,
        fn_kwargs=work,
        remove_columns=rows.column_names,
        desc="tokenizing",
    )


def _label_batch(
    batch: Mapping[str, list], numbers: Sequence[int], windows_of: Callable[..., Sequence], options: Sequence
) -> dict[str, list]:
    found: dict[str, list] = defaultdict(list)
    tokenizer, *limits = options
    columns = (batch[name] for name in ("question", "context", "start", "end"))
    for number, question, context, start, end in zip(numbers, *columns, strict=True):
        try:
            windows = windows_of(tokenizer, question, context, *limits)
        except ValueError as error:
            raise TrainingError(f"{error} (question {question[:40]!r})") from None
        for window in windows:
            span = token_span(window.offsets, start, end)
            first, last = (window.places[token] for token in span) if span else (0, 0)
            labels = {"start_positions": first, "end_positions": last}
            facts = {"row": number, "places": window.places, "offsets": window.offsets}
            for name, value in {**window.inputs, **labels, **facts}.items():
                found[name].append(value)
    return found
