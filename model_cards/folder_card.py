"""Card of a saved model's folder: a new one, or an existing one with updated facts."""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from safetensors import SafetensorError

from modeling_roformer.files import write_whole
from modeling_roformer.files.model_folder import why_no_model
from modeling_roformer.files.reading import read_json
from modeling_roformer.tokenization.vocabulary import has_words
from modeling_roformer.tokenization.wordpiece import is_cjk

from .cards import card_for
from .facts import END, FILE, START, facts_table, measure, read_facts, vocabulary_of
from .metadata import YAML_BLOCK, metadata_of

CARD = "README.md"
# Fields that may be added to a card; only its owner adds others, such as results.
FIELDS = ("language", "license", "library_name", "pipeline_tag", "mask_token", "tags")
PROVENANCE = ("source", "converted")  # prefixes of the rows that only the converter knew


@dataclass(frozen=True)
class CardReport:
    """Report on a folder's card: whether it is new, the facts that changed, and the fields that were added."""

    path: Path
    new: bool
    facts: list[str]
    fields: list[str]

    def __str__(self) -> str:
        if self.new:
            return f"wrote {self.path}"
        if not self.facts and not self.fields:
            return f"{self.path} is up to date"
        lines = [f"updated {self.path}; other text is unchanged"]
        lines += [f"  facts: {', '.join(self.facts)}"] * bool(self.facts)
        lines += [f"  added to the metadata: {', '.join(self.fields)}"] * bool(self.fields)
        return "\n".join(lines)


def card_of_folder(directory: str | Path, source_name: str | None = None, **facts: object) -> str:
    """Return a card made from the files of a saved model, and from `facts`, those of `card_for`.

    `source_name` is the source of the model; None for the folder itself. Raises ValueError if the folder is not a saved
    model.
    """
    directory = Path(directory)
    if reason := why_no_model(directory):
        raise ValueError(reason)
    config = read_json(directory / "config.json")
    vocabulary = vocabulary_of(directory)
    word_level = has_words(vocabulary)
    facts.setdefault("language", "zh" if any(is_cjk(entry) for entry in vocabulary if len(entry) == 1) else None)
    try:
        measured = measure(directory, word_level)
    except SafetensorError as error:
        raise ValueError(f"the weights in {directory} cannot be read: {error}") from None
    return card_for(source_name or directory.resolve().name, config, word_level, **measured, **facts)


def write_card(directory: str | Path) -> CardReport:
    """Write a folder's card, or update an existing one.

    An update replaces the table of facts, or appends one, and adds missing metadata. It keeps all other text, and rows
    that people added to the table. A link becomes a file. Raises ValueError if the card cannot be updated, and leaves
    it as it is.

    >>> print(write_card("my-model"))
    wrote my-model/README.md
    """
    directory = Path(directory)
    if reason := why_no_model(directory):  # before the card is read
        raise ValueError(reason)
    path = directory / CARD
    if not path.exists():
        card = card_of_folder(directory)
        write_whole(path, card)
        return CardReport(path, True, [], [])
    try:
        old = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    starts, ends = [at.start() for at in re.finditer(START, old)], [at.start() for at in re.finditer(END, old)]
    if len(starts) > 1 or len(ends) > len(starts) or (starts and ends and ends[0] < starts[0]):
        raise ValueError(f"{path} must have {START} once, followed by {END} once: put them around the table of facts")
    known = read_facts(old)
    fresh = card_of_folder(directory, known.get("source"))
    rows = _merged(known, read_facts(fresh))
    card, fields = _with_metadata(path, _with_table(old, facts_table(rows)), fresh)
    if card != old:
        write_whole(path, card)
    changed = [name for name in {**known, **rows} if known.get(name) != rows.get(name)]
    return CardReport(path, False, changed, fields)


def _merged(known: dict[str, str], measured: dict[str, str]) -> dict[str, str]:
    """Return the new facts with the old provenance and the rows that people added; rows of removed weights go."""
    kept = {name: value for name, value in known.items() if name not in measured and not name.startswith(FILE)}
    origin = {name: value for name, value in known.items() if name in measured and name.startswith(PROVENANCE)}
    return {**measured, **origin, **kept}


def _with_table(card: str, table: str) -> str:
    """Return the card with the table in place of the old one or of the single comment, or at the end."""
    table = table.replace("\n", _line_break(card))
    before, start, rest = card.partition(START)
    if not start:
        line = _line_break(card)
        return f"{card}{line if card.endswith(line) else line * 2}## This copy{line * 2}{table}{line}"
    _, end, after = rest.partition(END)
    return before + table + (after if end else rest)


def _with_metadata(path: Path, card: str, fresh: str) -> tuple[str, list[str]]:
    """Return the card with the fields of a fresh card that it lacks, and their names; other fields are unchanged."""
    wanted, block, line = metadata_of(fresh), YAML_BLOCK.search(card), _line_break(card)
    try:
        there = metadata_of(card)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    missing = {name: wanted[name] for name in FIELDS if name in wanted and name not in there}
    if not missing:
        return card, []
    added = yaml.safe_dump(missing, sort_keys=False, allow_unicode=True).rstrip("\n").replace("\n", line)
    if block is None:
        return f"---{line}{added}{line}---{line * 2}{card}", list(missing)
    card = card[: block.end(2)] + (line if block[2].strip() else "") + added + card[block.end(2) :]
    try:
        whole = metadata_of(card) == {**there, **missing}
    except ValueError:
        whole = False
    if not whole:  # fields in braces, for example
        raise ValueError(
            f"{path}: {', '.join(missing)} cannot be added to the metadata: write each field on its own line"
        )
    return card, list(missing)


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
