"""Choose and fill in the model card of a checkpoint.

A published card is kept as it is on the Hub, in `<name of the released archive>/README.md`; `template.md` is for all
others. Both have the line `<!-- facts -->`, which is replaced by a table of what is known about the copy at hand.
"""

import re
from pathlib import Path, PureWindowsPath
from string import Template

import yaml

from .facts import START, cell, facts_table, loads_with
from .kinds import KINDS, architecture_of, described_kind, kind_of, size_of, why_package_is_needed
from .releases import RELEASES
from .usage import example, task_of

CARDS = Path(__file__).parent
UNITS = {
    "word": "Words are those that jieba finds with its own dictionary: another segmenter gives other ids, and worse answers"
    " without\n  any error.",
    "character": "Every Chinese character is a token; no word segmentation is done.",
}
NOT_PUBLISHED = "Not published."
NO_KIND = "A checkpoint of a kind that modeling-roformer does not know."


def published_checkpoints() -> dict[str, Path]:
    """Name of each released archive (without .zip) -> its card."""
    return {card.parent.name: card for card in sorted(CARDS.glob("*/README.md"))}


def card_for(source_name: str, config: dict, word_level: bool, **facts: object) -> str:
    """The text of the README.md that fits a checkpoint.

    Args:
        source_name: name (or path) of the folder or .zip that the checkpoint came from. A released archive's name picks
            the published card, if sizes, vocabulary and head match too; any other gets the generic card.
        config: the content of the new config.json (or of bert_config.json).
        word_level: whether the vocabulary holds words (entries of two or more Han characters).
        **facts: what else is known about this copy, shown in its table of facts: what `facts.measure` and
            `facts.conversion_facts` return, or anything else, under its own name with underscores as spaces. None
            leaves a fact out. Five go elsewhere: `license` and `language` into the generic card's metadata (left out
            if not given, except that a word-level vocabulary is Chinese), `title` into its heading, and `training` and
            `results`, Markdown, into its sections of these names.

    Returns:
        Markdown with the Hub's metadata as YAML in front, ending with a newline.

    Example:
        >>> card = card_for("chinese_roformer_L-6_H-384_A-6.zip", config, word_level=True, dtype="float32")
        >>> (output / "README.md").write_text(card, encoding="utf-8")
    """
    name = checkpoint_name(source_name)
    card = published_checkpoints().get(name)
    metadata = {key: facts.pop(key, None) for key in ("license", "language", "title", "training", "results")}
    rows = facts_of(name, config, word_level, facts)
    if card is not None and is_published(name, config, word_level):
        return card.read_text(encoding="utf-8").replace(START, f"## This copy\n\n{facts_table(rows)}")
    return generic_card(name, config, word_level, rows, **metadata)


def checkpoint_name(source_name: str) -> str:
    """The last part of a path of any operating system, on one line, without .zip."""
    name = PureWindowsPath(str(source_name)).name.encode("utf-8", "replace").decode("utf-8")
    name = " ".join(name.split())
    return (name[: -len(".zip")] if name.lower().endswith(".zip") else name) or "checkpoint"


def is_published(name: str, config: dict, word_level: bool) -> bool:
    """Whether layers, width, heads, vocabulary, kind, positions and head match the released checkpoint of this name.

    Another model in a folder of that name must not be given the released one's results.
    """
    release, sizes = RELEASES.get(name), re.fullmatch(r".*_L-(\d+)_H-(\d+)_A-(\d+)", name)
    if release is None or sizes is None:
        return False
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    head = f"For{release.architecture.partition('For')[2]}"
    return (
        [config.get(field) for field in fields] == [int(size) for size in sizes.groups()]
        and word_level == ("-char" not in name)
        and release.vocab_size in (None, config.get("vocab_size"))
        # A legacy configuration names neither kind nor head.
        and ("model_type" not in config or kind_of(config, word_level) == release.kind)
        and config.get("position_encoding", "rotary") == "rotary"
        and (architecture_of(config) or head).endswith(head)
    )


def facts_of(name: str, config: dict, word_level: bool, facts: dict) -> dict[str, object]:
    """The rows of the table: what the configuration says, and what else is known."""
    vocab_size = config.get("vocab_size")
    rows = {
        "source": name,
        "architecture": architecture_of(config),
        "layers": size_of(config, "num_hidden_layers"),
        "layers of the decoder": config.get("decoder_layers"),
        "hidden size": size_of(config, "hidden_size"),
        "attention heads": size_of(config, "num_attention_heads"),
        "feed-forward size": size_of(config, "intermediate_size"),
        "vocabulary": f"{vocab_size:,} entries" if isinstance(vocab_size, int) else None,
        "vocabulary's unit": unit_of(config, word_level),
    }
    # File names stay as they are.
    return rows | {key.replace("_", " ") if key.isidentifier() else key: value for key, value in facts.items()}


def unit_of(config: dict, word_level: bool) -> str | None:
    """What a token of Chinese is, "word" or "character"; None where that is up to any tokenizer."""
    if kind_of(config, word_level) == "seq2seq":
        return None
    return "word" if word_level else "character"


def generic_card(
    name: str,
    config: dict,
    word_level: bool,
    rows: dict[str, object],
    license: str | None = None,
    language: str | None = None,
    title: str | None = None,
    training: str | None = None,
    results: str | None = None,
) -> str:
    """The card of a checkpoint about which nothing was published."""
    kind = described_kind(config, word_level)
    task, unit = task_of(config, word_level), unit_of(config, word_level)
    fields = {
        "language": language or ("zh" if word_level else None),
        "library_name": "transformers",
        "license": license,
        "pipeline_tag": task,
        "tags": [*(kind.tags if kind else ()), *([f"{unit}-level"] if unit else [])],
        "mask_token": "[MASK]" if task == "fill-mask" else None,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    metadata = yaml.safe_dump(known, sort_keys=False, allow_unicode=True).rstrip()
    body = Template((CARDS / "template.md").read_text(encoding="utf-8")).substitute(
        title=cell(title or name),
        summary=kind.summary if kind else NO_KIND,
        training=training or NOT_PUBLISHED,
        results=results or NOT_PUBLISHED,
        usage=example(name, config, word_level),
        loads_with=rows.get("loads with") or loads_with(config, why_package_is_needed(config)),
        length=kind.length if kind else "How long its inputs may be is not published.",
        unit=f"\n- {UNITS[unit]}" if unit else "",
        citation=(kind or KINDS["roformer"]).citation,
    )
    return f"---\n{metadata}\n---\n\n{body.replace(START, facts_table(rows))}"
