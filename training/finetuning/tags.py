"""Labelled texts for named entities: a tag per token, or the places of entities, read as texts with spans."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import index
from pathlib import Path

import datasets

from modeling_roformer.data import Batch, has_text, text_of
from modeling_roformer.data.batches import JsonBatch, TableBatch, TextBatch
from modeling_roformer.data.formats import CSV, SUFFIXES, TSV, suffix_of
from modeling_roformer.data.values import texts_of

from ..errors import TrainingError, raises_training_error
from ..runs.data import batches_of
from .spans import Span, tag_spans

_ENTITY = {"start": datasets.Value("int64"), "end": datasets.Value("int64"), "label": datasets.Value("string")}
_TEXT = datasets.Value("string")
_FEATURES = datasets.Features({"text": _TEXT, "entities": datasets.List(_ENTITY), "place": _TEXT})
_TAGS = ("ner_tags", "tags")  # fields with a tag per token
_ENTITIES = ("entities", "label")  # fields with the places of entities
_FIELDS = ("tokens", *_TAGS, "text", *_ENTITIES)
_NAMES = ("name", "text", "entity", "word")  # fields of an entity that repeat its characters
# The tags of BIO, BIOES (also called BILOU or BMEWO) and BMES, as those that seqeval reads.
_PREFIXES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "W": "S", "U": "S"}
_COLUMNS = re.compile(r"(.\S*)[ \t](?:.*[ \t])?(\S+)")  # the first column may be a space
_DOCUMENT = "-DOCSTART-"


@raises_training_error()
def load_entities(source: str | Path, split: str = "train") -> datasets.Dataset:
    """Load labelled texts as `text`, `entities` (start, end (exclusive) and label) and `place`, where they are.

    A tag is O, or a label after B-, I-, M-, E-, L-, S-, W- or U-; `tag_spans` says where entities begin. Tokens are
    joined without a space, except where both neighbours are words of a script that writes spaces.

    Args:
        source: a text file (.txt, .conll or any other suffix, also with .gz) with a token in the first column, its tag
            in the last one, and a blank line after each sentence. Or JSON Lines, a JSON list, Parquet, or a data set on
            the Hub, with one of:
            - `tokens` and `tags` (or `ner_tags`)
            - `text` and `entities`: objects with start, end (exclusive) and label (or type), or lists of the three
            - `text` and `label` as in CLUENER: {label: {name: [[start, end (inclusive)]]}}
        split: split of a folder or a data set; a file has none.

    Raises a TrainingError that names the file and the line or row.

    >>> load_entities("examples/names.jsonl")[0]["entities"][0]
    {'start': 0, 'end': 4, 'label': 'ORG'}
    """
    if SUFFIXES.get(suffix_of(Path(source))) in (CSV, TSV):
        raise TrainingError(
            f"{source} is a table by its name: if it has a token and its tag per line, let it end in .conll"
        )
    rows, sentences = [], _Sentences()
    for batch in batches_of(source, _FIELDS, split, {}):
        rows += sentences.read(batch) if isinstance(batch, TextBatch) else _rows_of_objects(batch)
    rows += sentences.end()
    if not rows:
        raise TrainingError(f"{source} has no texts")
    return datasets.Dataset.from_list(rows, _FEATURES)


class _Sentences:
    """Sentences of CoNLL columns. One may begin in a batch of lines and end in the next."""

    def __init__(self):
        self.source = self.place = ""
        self.tokens: list[str] = []
        self.tags: list[str] = []

    def read(self, batch: TextBatch) -> Iterator[dict]:
        """Yield the sentences that end in a batch, and that of an earlier file."""
        if batch.source != self.source:
            yield from self.end()
            self.source = batch.source
        for number, line in batch.lines():
            if not has_text(line):
                yield from self.end()
                continue
            place = batch.place(number)
            if not (columns := _COLUMNS.fullmatch(line.rstrip())):
                raise TrainingError(f"{place}: {line[:40]!r}; expected a token, a space or a tab, and its tag")
            if columns[1] != _DOCUMENT:
                self.place = self.place or place
                self.tokens.append(columns[1])
                self.tags.append(_tag(columns[2], place))

    def end(self) -> Iterator[dict]:
        """Yield the sentence that was read, if any, and begin another."""
        if self.tokens:
            yield _row_of_tags(self.tokens, self.tags, self.place)
        self.place, self.tokens, self.tags = "", [], []


def _rows_of_objects(batch: Batch) -> Iterator[dict]:
    """Yield a row for each object or row of a table."""
    for number, record in _records(batch):
        place = batch.place(number)
        tags = next((name for name in _TAGS if record.get(name) is not None), "")
        entities = next((name for name in _ENTITIES if name in record), "")
        if tags and "tokens" in record:
            tokens = texts_of(record["tokens"], batch, number, "tokens")
            names = [_tag(tag, place) for tag in texts_of(record[tags], batch, number, tags)]
            if not all(tokens) or len(tokens) != len(names):
                raise TrainingError(
                    f"{place}: {len(tokens)} tokens and {len(names)} tags; expected a tag for each token"
                )
            yield _row_of_tags([token or "" for token in tokens], names, place)
        elif entities and "text" in record:
            text = text_of(record["text"], batch, number, "text")
            try:
                spans = {*_spans(record[entities])}
            except (TypeError, ValueError, LookupError, AttributeError):
                raise TrainingError(f"{place}: {entities} {str(record[entities])[:60]} is of another form") from None
            kinds = [text_of(kind, batch, number, entities) or "" for _, _, kind, _ in spans]
            named = [(start, end, kind, name) for (start, end, _, name), kind in zip(spans, kinds, strict=True)]
            yield _row(text or "", named, place)
        else:
            raise TrainingError(
                f"{place} has the fields {', '.join(record)}; expected tokens and tags, or text and entities"
            )


def _records(batch: Batch) -> Iterator[tuple[int, Mapping]]:
    """Yield the number and the fields of each row."""
    if isinstance(batch, JsonBatch):
        yield from batch.records()
    elif isinstance(batch, TableBatch):
        names = [name for name in batch.names if name in _FIELDS]
        yield from ((number, dict(zip(names, values, strict=True))) for number, values in batch.rows(names))


def _spans(entities: object) -> Iterator[tuple[int, int, object, str | None]]:
    """Yield start, end, type as it is stored and, where it is there, the name of each entity of a field."""
    if isinstance(entities, dict):  # as in CLUENER
        for kind, places in entities.items():
            for name, ranges in (places or {}).items():
                for start, last in ranges or ():
                    yield index(start), index(last) + 1, kind, name
        return
    for entity in entities or ():
        if isinstance(entity, dict):
            name = next((entity[field] for field in _NAMES if entity.get(field)), None)
            kind = entity["type"] if entity.get("label") in (None, "") else entity["label"]
            entity = entity["start"], entity["end"], kind
        else:
            name = None
        start, end, kind = entity
        yield index(start), index(end), kind, name


def _row_of_tags(tokens: Sequence[str], tags: Sequence[str], place: str) -> dict:
    """Return the row of a sentence of tokens."""
    text, starts = "", []
    for before, token in zip(["", *tokens], tokens, strict=False):
        text += " " * _are_words(before, token)
        starts.append(len(text))
        text += token
    ends = [start + len(token) for start, token in zip(starts, tokens, strict=True)]
    return _row(text, [(starts[first], ends[end - 1], kind, None) for first, end, kind in tag_spans(tags)], place)


def _row(text: str, spans: Collection[tuple[int, int, str, str | None]], place: str) -> dict:
    """Return a row; raise a TrainingError if an entity is wrong."""
    if not has_text(text):
        raise TrainingError(f"{place} has no text: remove it")
    entities: list[Span] = []
    for start, end, kind, name in sorted(spans, key=lambda span: span[:2]):
        if not 0 <= start < end <= len(text):
            raise TrainingError(f"{place}: an entity from {start} to {end} in a text of {len(text)} characters")
        if name is not None and name != text[start:end]:
            raise TrainingError(
                f"{place}: {name!r} is not what the text has from {start} to {end}: {text[start:end]!r}"
            )
        if entities and start < entities[-1][1]:
            raise TrainingError(
                f"{place}: {text[start:end]!r} overlaps {text[slice(*entities[-1][:2])]!r}: keep one of the two"
            )
        if kind in ("", "O"):
            raise TrainingError(f"{place}: {text[start:end]!r} has the label {kind!r}: give it one that is not O")
        entities.append((start, end, kind))
    return {"text": text, "entities": [dict(zip(_ENTITY, span, strict=True)) for span in entities], "place": place}


def _tag(tag: str | None, place: str) -> str:
    """Return a tag with the prefix that seqeval reads."""
    prefix, _, kind = (tag or "").partition("-")
    if tag == "O":
        return tag
    if prefix not in _PREFIXES or not kind:
        raise TrainingError(f"{place}: the tag {tag!r}; expected O, or a type after {'-, '.join(_PREFIXES)}-")
    return f"{_PREFIXES[prefix]}-{kind}"


def _are_words(before: str, token: str) -> bool:
    """Return whether a space is between two tokens: both ends there are of scripts that write spaces, and one of the
    two is longer than a character. Chinese files have a token for each letter and digit."""
    sides = before[-1:] + token[:1]
    is_spaced = (side.isalnum() and unicodedata.east_asian_width(side) not in ("W", "F") for side in sides)
    return bool(before) and len(before) + len(token) > 2 and all(is_spaced)
