"""Labels of tokens for the entities of a text, and the entities of labels that a model predicts."""

from collections.abc import Mapping, Sequence

import datasets
from transformers import PreTrainedTokenizerBase

from ..errors import TrainingError
from .spans import Span, SpanPredictions, tag_spans

_IGNORED = -100  # by the loss


def bio_tags(parts: Mapping[str, datasets.Dataset], order: Sequence[str] = ()) -> list[str]:
    """Return O, and B- and I- of each type of "train": in `order` if that has the same tags, or sorted.

    Raises a TrainingError if "train" has no entity, and one that names the place where another part has a type that
    "train" lacks.
    """
    types = {entity["label"] for entities in parts["train"]["entities"] for entity in entities}
    if not types:
        raise TrainingError(f"the training texts, from {parts['train'][0]['place']} on, have no entities")
    for row in (row for rows in parts.values() for row in rows):
        if unknown := {entity["label"] for entity in row["entities"]} - types:
            raise TrainingError(f"{row['place']}: no training text has an entity of the type {min(unknown)!r}")
    tags = ["O", *(f"{prefix}-{name}" for name in sorted(types) for prefix in "BI")]
    return [*order] if sorted(order) == sorted(tags) else tags


def label_tokens(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, tags: Sequence[str], length: int
) -> datasets.Dataset:
    """Return rows of `load_entities` with the inputs of a model, the `labels` of their tokens, and `offset_mapping`.

    No label can say that an entity begins or ends inside a token, or beyond the last of `length` tokens, where the text
    is truncated. The loss ignores the tokens of such an entity, and `find_spans` counts it as not found. `inside` and
    `beyond` have their numbers.
    """
    ids = {tag: number for number, tag in enumerate(tags)}

    def labelled(row: Mapping) -> dict:
        encoding = tokenizer(row["text"], truncation=True, max_length=length, return_offsets_mapping=True)
        tokens = _text_tokens(encoding["offset_mapping"])
        firsts = {start: number for number, start, _ in reversed(tokens)}
        lasts = {end: number for number, _, end in tokens}
        labels = [_IGNORED] * len(encoding["input_ids"])
        for number, _, _ in tokens:
            labels[number] = ids["O"]
        lost = {"inside": 0, "beyond": 0}
        for start, end, name in map(_span, row["entities"]):
            first, last = firsts.get(start), lasts.get(end)
            if first is not None and last is not None:
                labels[first : last + 1] = [ids[f"B-{name}"], *[ids[f"I-{name}"]] * (last - first)]
                continue
            lost["beyond" if len(labels) == length and end > tokens[-1][2] else "inside"] += 1
            for number, token_start, token_end in tokens:
                if token_start < end and start < token_end:
                    labels[number] = _IGNORED
        if {*labels} == {_IGNORED}:
            labels[0] = ids["O"]  # [CLS], which is in no entity: the mean loss of a batch without a label is NaN
        return {**row, **encoding, "labels": labels, **lost}

    return datasets.Dataset.from_list([labelled(row) for row in rows])


def print_lost(part: str, rows: datasets.Dataset, length: int) -> None:
    """Print how many entities `label_tokens` could not label, if any."""
    total = sum(map(len, rows["entities"]))
    for column, where in (
        ("inside", "inside a token"),
        ("beyond", f"after {length:,} tokens, where texts are truncated"),
    ):
        if lost := sum(rows[column]):
            result = "not learned" if part == "train" else "counted as not found"
            print(f"{part}: {lost:,} of {total:,} entities begin or end {where}; they are {result}")


def find_spans(rows: datasets.Dataset, tag_ids: Sequence[Sequence[int]], tags: Sequence[str]) -> SpanPredictions:
    """Return the entities of rows of `label_tokens`, and those of the predicted tag of each of their tokens."""
    predicted = []
    for offsets, numbers in zip(rows["offset_mapping"], tag_ids, strict=True):
        tokens = _text_tokens(offsets)
        spans = tag_spans([tags[numbers[number]] for number, _, _ in tokens])
        predicted.append([(tokens[first][1], tokens[end - 1][2], name) for first, end, name in spans])
    return SpanPredictions(spans_of(rows), predicted)


def spans_of(rows: datasets.Dataset) -> list[list[Span]]:
    """Return the entities of rows of `load_entities`."""
    return [[*map(_span, entities)] for entities in rows["entities"]]


def _text_tokens(offsets: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Return number, start and end of each token but special ones, which have no characters."""
    return [(number, start, end) for number, (start, end) in enumerate(offsets) if start < end]


def _span(entity: Mapping) -> Span:
    return entity["start"], entity["end"], entity["label"]
