"""Questions with the passages that answer them, and with hard negatives."""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path

import datasets

from ..runs.data import load_texts, split_by

PASSAGE, NEGATIVES = "passage", "negatives"


def load_questions(source: str | Path, columns: Mapping[str, str], split: str = "train", **options) -> datasets.Dataset:
    """Load questions into a row for each passage. Values of the columns `passage` and `negatives` may be lists, as
    FlagEmbedding publishes them.

    Args:
        columns: new names of the columns -> their names in the source: `passage`, perhaps `negatives`, and others.
        source, split, options: see `load_texts`.

    Raises a TrainingError as `load_texts` does; an empty list is an empty value.
    """
    rows = load_texts(
        source, columns, split, lists=[name for name in (PASSAGE, NEGATIVES) if name in columns], **options
    )
    found = [{**row, PASSAGE: passage} for row in rows for passage in row[PASSAGE]]
    features = datasets.Features(rows.features | {PASSAGE: datasets.Value("string")})
    return datasets.Dataset.from_list(found, features)


def with_negatives(questions: datasets.Dataset, number: int | None = None) -> datasets.Dataset:
    """Return the questions with the columns `negative_1`, `negative_2` and so on, in place of `negatives`, as losses of
    sentence-transformers take them.

    Args:
        number: negatives per question; by default as many as the question with the fewest has. A question with fewer
            has some of its own twice.
    """
    negatives: Sequence[list[str]] = questions[NEGATIVES][:]
    number = number or min(map(len, negatives))
    rows = [list(islice(cycle(of_question), number)) for of_question in negatives]
    questions = questions.remove_columns(NEGATIVES)
    for place in range(number):
        questions = questions.add_column(f"negative_{place + 1}", [row[place] for row in rows])
    return questions


def split_questions(questions: datasets.Dataset, share: float) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split questions at random into the larger part, and a part with a `share` of the passages.

    All passages of a question, and all questions of a passage, are in one part.
    """
    first: dict[str, str] = {}  # text -> a smaller passage of its group, or itself

    def group_of(text: str) -> str:
        while first.setdefault(text, text) != text:
            text = first[text]
        return text

    smallest_of_question: dict[str, str] = {}
    for question, passage in zip(questions["question"], questions[PASSAGE], strict=True):
        groups = sorted({group_of(passage), group_of(smallest_of_question.setdefault(question, passage))})
        first.update(dict.fromkeys(groups, groups[0]))
    groups = [group_of(passage) for passage in questions[PASSAGE]]
    parts = split_by(questions.add_column("group", groups), "group", share)
    return tuple(part.remove_columns("group") for part in parts)
