"""The card of a saved model's folder: a new one, or an old one with its facts measured again."""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from safetensors import SafetensorError

from ..tokenization.characters import is_cjk
from ..tokenization.vocabulary import has_words
from ..tokenization.whole_file import read_json, write_whole
from .cards import card_for
from .facts import END, FILE, START, facts_table, measure, read_facts, vocabulary_of
from .metadata import YAML_BLOCK, check_metadata, read_metadata

CARD = "README.md"
# Fields that may be added to a card; results, for example, are for its owner to claim.
FIELDS = ("language", "license", "library_name", "pipeline_tag", "mask_token", "tags")
PROVENANCE = ("source", "converted")  # prefixes of the rows that only the converter knew


@dataclass(frozen=True)
class CardReport:
    """What happened to a folder's card: whether it is `new`, and which facts and fields changed."""

    path: Path
    new: bool
    facts: list[str]
    fields: list[str]
    complaint: str | None

    def __str__(self) -> str:
        if self.new:
            said = [f"wrote {self.path}"]
        elif not self.facts and not self.fields:
            said = [f"{self.path} is up to date"]
        else:
            said = [f"refreshed {self.path}, leaving alone all that people wrote"]
            said += [f"  facts: {', '.join(self.facts)}"] * bool(self.facts)
            said += [f"  added to the metadata: {', '.join(self.fields)}"] * bool(self.fields)
        if self.complaint:
            said.append(f"  the Hub would refuse its metadata: {self.complaint}")
        return "\n".join(said)


def card_of_folder(directory: str | Path, source_name: str | None = None, **facts: object) -> str:
    """A card made from what a saved model says about itself, and from `facts` as card_for takes them.

    `source_name` is where the model came from; if None, the folder itself. Raises ValueError, one sentence, if the
    folder is not a saved model.

    >>> card_of_folder("my-model").startswith("---")
    True
    """
    directory = Path(directory)
    config = read_json(directory / "config.json", default={})
    if not config:
        missing = "has no config.json, so it is not a saved model" if directory.is_dir() else "is not a folder"
        raise ValueError(f"{directory} {missing}")
    vocabulary = vocabulary_of(directory)
    word_level = has_words(vocabulary)
    facts.setdefault("language", "zh" if any(is_cjk(entry) for entry in vocabulary if len(entry) == 1) else None)
    try:
        measured = measure(directory, word_level)
    except SafetensorError as error:
        raise ValueError(f"the weights in {directory} cannot be read: {error}") from None
    return card_for(source_name or directory.resolve().name, config, word_level, **measured, **facts)


def write_card(directory: str | Path) -> CardReport:
    """Write a folder's card if it has none, and refresh it if it has one.

    Refreshing replaces the table of facts between its two comments (it is added at the end if there is none), and adds
    missing metadata; whatever people wrote stays, including rows that they added to the table. Raises ValueError, one
    sentence, if a card cannot be refreshed; nothing is changed then.

    >>> print(write_card("my-model"))
    wrote my-model/README.md
    """
    path = Path(directory) / CARD
    if not path.exists():
        card = card_of_folder(directory)
        write_whole(path.resolve(), card)
        return CardReport(path, True, [], [], _complaint(card))
    try:
        old = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    _check_comments(path, old)
    known = read_facts(old)
    fresh = card_of_folder(directory, known.get("source"))
    rows = _merged(known, read_facts(fresh))
    card, fields = _with_metadata(path, _with_table(old, facts_table(rows)), fresh)
    if card != old:
        write_whole(path.resolve(), card)
    changed = [name for name in {**known, **rows} if known.get(name) != rows.get(name)]
    return CardReport(path, False, changed, fields, _complaint(card))


def _merged(known: dict[str, str], measured: dict[str, str]) -> dict[str, str]:
    """What was measured now, where it came from, and what people added; not the rows about weights that are gone."""
    kept = {name: value for name, value in known.items() if name not in measured and not name.startswith(FILE)}
    origin = {name: value for name, value in known.items() if name in measured and name.startswith(PROVENANCE)}
    return {**measured, **origin, **kept}


def _check_comments(path: Path, card: str) -> None:
    starts, ends = [at.start() for at in re.finditer(START, card)], [at.start() for at in re.finditer(END, card)]
    if len(starts) > 1 or len(ends) > len(starts) or (starts and ends and ends[0] < starts[0]):
        raise ValueError(f"{path} must have {START} once, followed by {END} once: put them around the table of facts")


def _with_table(card: str, table: str) -> str:
    """The card with this table in place of its old one or of the lone comment, or else at the end."""
    table = table.replace("\n", _line_break(card))
    before, start, rest = card.partition(START)
    if not start:
        return _appended(card, table)
    _, end, after = rest.partition(END)
    return before + table + (after if end else rest)


def _appended(card: str, table: str) -> str:
    line = _line_break(card)
    return f"{card}{line if card.endswith(line) else line * 2}## This copy{line * 2}{table}{line}"


def _with_metadata(path: Path, card: str, fresh: str) -> tuple[str, list[str]]:
    """The card with the fields that it lacks and a fresh one has, and their names; the others stay untouched."""
    wanted = read_metadata(YAML_BLOCK.search(fresh)[2])
    block, line = YAML_BLOCK.search(card), _line_break(card)
    try:
        there = read_metadata(block[2]) if block else {}
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
        whole = read_metadata(YAML_BLOCK.search(card)[2]) == {**there, **missing}
    except ValueError:
        whole = False
    if not whole:  # fields in braces, for example
        raise ValueError(
            f"{path}: {', '.join(missing)} cannot be added to the metadata: write each field on its own line"
        )
    return card, list(missing)


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _complaint(card: str) -> str | None:
    try:
        check_metadata(card)
    except ValueError as error:
        return str(error)
    return None
