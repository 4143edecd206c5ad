"""Results of a search: matches, as a table, as JSON, and as a run in TREC's form."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Column, Table
from rich.text import Text

from ..errors import ServingError

_RUN_NAME = "roformer"


@dataclass(frozen=True)
class Match:
    """A text of the corpus, and its score: the cosine of its vector with the query's, its BM25, or a sum of reciprocal
    ranks. `text` is None if texts were not kept.

    `chunk` is the number of the text's best chunk, from 1, and None if texts were not split.
    """

    score: float
    id: str
    text: str | None = None
    chunk: int | None = None

    @property
    def cosine(self) -> float:
        """Return the score of a search by vectors."""
        return self.score


@dataclass(frozen=True)
class Ranking:
    """Best texts for each query, best first. `finished` is False if only a part of the corpus was embedded.

    `scored_by` is the name of the scores. `ids` are those of the queries.
    """

    queries: list[str]
    matches: list[list[Match]]
    finished: bool
    scored_by: str
    ids: list[str]
    shows_ids: bool = False

    def table(self) -> Table:
        """Return the matches as a rich table."""
        has_text = any(match.text is not None for matches in self.matches for match in matches)
        has_chunk = any(match.chunk is not None for matches in self.matches for match in matches)
        whole = Column("id", overflow="fold")  # ids are shown in full
        more = ["chunk"] * has_chunk + ["text"] * has_text
        table = Table(*["query"] * (len(self.queries) > 1), self.scored_by, whole, *more)
        for query, matches in zip(self.queries, self.matches, strict=True):
            for place, match in enumerate(matches):
                row = [f"{match.score:.3f}", match.id]
                row += [str(match.chunk or "")] * has_chunk + [short(match.text or "")] * has_text
                if len(self.queries) > 1:
                    row.insert(0, short(query) if place == 0 else "")
                table.add_row(*map(Text, row), end_section=place == len(matches) - 1)
        return table

    def json_lines(self) -> str:
        """Return a line of JSON for each query: its id, if there is a field of it, the query, and its results with ids,
        scores and texts in full."""
        lines = []
        for id_, query, matches in zip(self.ids, self.queries, self.matches, strict=True):
            results = []
            for match in matches:
                fields = {"id": match.id, "score": match.score, "chunk": match.chunk, "text": match.text}
                results.append({name: value for name, value in fields.items() if value is not None})
            fields = ({"id": id_} if self.shows_ids else {}) | {"query": query, "results": results}
            lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
        return "".join(lines)

    def trec_run(self) -> str:
        """Return a line for each match: the query's id, Q0, the text's id, the rank, the score and the run's name.

        Raises ServingError for an id with white space, which separates the columns, and for two queries, or two texts
        of a query, with one id.
        """
        if len(set(self.ids)) < len(self.ids):
            raise ServingError("two queries have one id, so a run cannot tell them apart: name another --id-field")
        for matches in self.matches:
            check_ids(matches)
        for id_ in (*self.ids, *(match.id for matches in self.matches for match in matches)):
            if id_.split() != [id_]:
                raise ServingError(
                    f"the id {id_!r} has white space, which separates the columns of a run: name another --id-field, "
                    "or write JSON (--output results.jsonl)"
                )
        return "".join(
            f"{id_} Q0 {match.id} {place} {match.score:.9g} {_RUN_NAME}\n"
            for id_, matches in zip(self.ids, self.matches, strict=True)
            for place, match in enumerate(matches, 1)
        )


def check_ids(matches: Iterable[Match]) -> None:
    """Raise ServingError if two texts have one id, which `embed` cannot see if they are in two shards."""
    seen: set[str] = set()
    for match in matches:
        if match.id in seen:
            raise ServingError(
                f"two texts have the id {match.id!r}, which must tell them apart here: embed the texts into a new "
                "folder with another --id-field, or without it"
            )
        seen.add(match.id)


def short(text: str, max_characters: int = 60) -> str:
    """Return a text on one line, truncated at a number of characters."""
    line = " ".join(text.split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"
