"""Queries with their ids, and the ids of the texts that are relevant to them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from modeling_roformer.data import DataError, read_batches, read_texts
from modeling_roformer.data.formats import is_file_name
from modeling_roformer.data.sources import source_names
from modeling_roformer.data.values import texts_of

from ..errors import ServingError

# Id of a query -> id of a text -> its grade, at least 1.
Relevant = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Queries:
    """Texts to search for, and their ids. Those of a file are the file and the line or row, if no field has them."""

    texts: list[str]
    ids: list[str]


def read_queries(query: str | Path | Sequence[str], field: str, id_field: str | None = None) -> Queries:
    """Return the queries of a file, of a list, or one that is given as it is.

    Raises:
        ServingError: there is no such file, a query is empty, or it is not text.
        DataError: the file cannot be read.
    """
    if isinstance(query, (str, Path)) and os.path.exists(query) and not os.path.isdir(query):  # a pipe too
        rows = list(read_texts([query], field, id_field))
        queries = Queries([text for _, text in rows], [id_ for id_, _ in rows])
    else:
        if isinstance(query, (str, Path)) and is_file_name(str(query)):
            raise ServingError(f"{query} does not exist: name a file of queries, or end the query otherwise")
        texts = [str(query)] if isinstance(query, (str, Path)) else list(query)
        queries = Queries(texts, [str(number) for number in range(1, len(texts) + 1)])
    if not queries.texts or not all(text.strip() for text in queries.texts):
        raise ServingError("the query is empty")
    for text in queries.texts:
        if any("\udc80" <= character <= "\udcff" for character in text):  # bytes that Python could not decode
            raise ServingError(f"the query {text!r} is not text in the encoding of the terminal: set LANG=C.UTF-8")
    return queries


def read_relevant(file: str | Path, column: str, id_field: str | None = None) -> Relevant:
    """Return the ids in a column of a file of queries, whose values may be lists. Rows of one query are joined."""
    relevant: Relevant = {}
    (name,) = source_names([str(file)])
    columns = [column, id_field or column]
    for batch in read_batches(file, columns):
        for number, [value, id_] in batch.rows(columns, ("--relevant", "--id-field")):
            ids = [text for text in texts_of(value, batch, number, column) if text]
            query = f"{name}:{number}" if id_field is None else str(id_)
            relevant.setdefault(query, {}).update(dict.fromkeys(ids, 1))
    return relevant


def read_qrels(file: str | Path) -> Relevant:
    """Return the judgements of a file in TREC's form: lines of a query's id, an unused word, a text's id and a grade.

    Texts of grade 0 or less are not relevant. Raises DataError for a line of another form.
    """
    relevant: Relevant = {}
    for place, line in read_texts([file]):
        words = line.split()
        if len(words) != 4 or not words[3].removeprefix("-").isdecimal():
            raise DataError(
                f"{place}: {line!r}; expected a line of qrels: the query's id, 0, the text's id and a whole number"
            )
        if int(words[3]) > 0:
            relevant.setdefault(words[0], {})[words[2]] = int(words[3])
    return relevant
