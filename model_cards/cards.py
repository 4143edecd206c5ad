"""Model card of a checkpoint: the card of a released checkpoint, or one made from a template.

The card of a release is `<name of its archive>/README.md`; all others are made from `template.md`. Both have the line
`<!-- facts -->`, which is replaced by a table of facts about this copy.
"""

import re
from pathlib import Path, PureWindowsPath
from string import Template

import yaml

from .facts import START, cell, facts_table, loads_with
from .kinds import (
    KINDS,
    architecture_of,
    described_kind,
    kind_of,
    segmentation_of,
    size_of,
    why_package_is_needed,
)
from .releases import RELEASES
from .usage import example, task_of

CARDS = Path(__file__).parent
WORDS = (
    "Words are segmented by jieba with its own dictionary{more}. Another segmenter gives other ids, and worse results"
    " without\n  any error."
)
OTHER_WORDS = (
    "Words are segmented by a function that is not saved: pass it as `word_segmentation` when loading the tokenizer."
)
CHARACTERS = "Every Chinese character is a token; there is no word segmentation."
PARTS = ("license", "language", "title", "training", "results", "place", "pairs", "tokenizer")
NOT_PUBLISHED = "Not published."
OWNER = '\nThe owner of the checkpoint can replace "not published" by what is missing there.'
LOAD_REPORT = (
    " The load report of plain\ntransformers lists `roformer.encoder.embed_positions.weight` as missing. This is"
    " expected, and the numbers are right:\ntransformers computes this table itself."
)
NO_KIND = "A checkpoint of a kind that modeling-roformer does not support."


def published_checkpoints() -> dict[str, Path]:
    """Return the path of each released checkpoint's card, by the name of its archive without .zip."""
    return {card.parent.name: card for card in sorted(CARDS.glob("*/README.md"))}


def card_for(source_name: str, config: dict, word_level: bool, **facts: object) -> str:
    """Return the README.md of a checkpoint: Markdown after the Hub's metadata in YAML, ending with a newline.

    Args:
        source_name: name or path of the folder or .zip that the checkpoint was converted from. The name of a released
            archive selects its card, if sizes, vocabulary and head match too; all others get the generic card.
        config: content of the new config.json (or of bert_config.json).
        word_level: whether the vocabulary has words (entries of two or more Han characters).
        **facts: further rows of the table of facts by name, with underscores for spaces; None leaves a row out. Of a
            generic card, `license` and `language` are metadata, `title` is the heading, `training` and `results` are
            the Markdown of sections. `place` is the folder in the example, by default the name of the source, which
            classifies two texts if `pairs` is true. `tokenizer` is the content of tokenizer_config.json.

    Example:
        >>> card = card_for("chinese_roformer_L-6_H-384_A-6.zip", config, word_level=True, dtype="float32")
        >>> (output / "README.md").write_text(card, encoding="utf-8")
    """
    name = checkpoint_name(source_name)
    card = published_checkpoints().get(name)
    metadata = {key: facts.pop(key, None) for key in PARTS}
    tokenizer = metadata["tokenizer"] = metadata["tokenizer"] or {}
    rows = facts_of(name, config, word_level, facts, tokenizer)
    is_trained = metadata["training"] is not None  # since then; it may have the name of its base model
    is_same = is_published(name, config, word_level) and segmentation_of(tokenizer, word_level) == "jieba" * word_level
    if card is not None and not is_trained and is_same:
        return card.read_text(encoding="utf-8").replace(START, f"## This copy\n\n{facts_table(rows)}")
    return generic_card(name, config, word_level, rows, metadata)


def checkpoint_name(source_name: str) -> str:
    """Return the last part of a path of any operating system, on one line, without .zip."""
    name = PureWindowsPath(str(source_name)).name.encode("utf-8", "replace").decode("utf-8")
    name = " ".join(name.split())
    return (name[: -len(".zip")] if name.lower().endswith(".zip") else name) or "checkpoint"


def is_published(name: str, config: dict, word_level: bool) -> bool:
    """Return whether a config matches the release of this name; another model must not get the release's results."""
    release, sizes = RELEASES.get(name), re.fullmatch(r".*_L-(\d+)_H-(\d+)_A-(\d+)", name)
    if release is None or sizes is None:
        return False
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    head = f"For{release.architecture.partition('For')[2]}"
    return (
        [config.get(field) for field in fields] == [int(size) for size in sizes.groups()]
        and word_level == ("-char" not in name)
        and release.vocab_size in (None, config.get("vocab_size"))
        # A legacy configuration has neither kind nor head.
        and ("model_type" not in config or kind_of(config, word_level) == release.kind)
        and config.get("position_encoding", "rotary") == "rotary"
        and (architecture_of(config) or head).endswith(head)
    )


def facts_of(name: str, config: dict, word_level: bool, facts: dict, tokenizer: dict) -> dict[str, object]:
    """Return the rows of the table of facts: those of the configuration, then `facts`."""
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
        "vocabulary's unit": unit_of(config, word_level, tokenizer),
    }
    # File names stay as they are.
    return rows | {key.replace("_", " ") if key.isidentifier() else key: value for key, value in facts.items()}


def unit_of(config: dict, word_level: bool, tokenizer: dict) -> str | None:
    """Return the unit of Chinese tokens, "word" or "character"; None for a model with tokenizers of any kind."""
    if kind_of(config, word_level) == "seq2seq":
        return None
    return "word" if segmentation_of(tokenizer, word_level) else "character"


def note_on_words(tokenizer: dict, word_level: bool) -> str:
    """Return the sentence on the segmentation of words, for the section on limitations."""
    known = segmentation_of(tokenizer, word_level)
    if known in ("", "custom"):
        return OTHER_WORDS if known else CHARACTERS
    more = " and the words of `user_dict`, which are saved\n  with the tokenizer" if known != "jieba" else ""
    return WORDS.format(more=more)


def generic_card(name: str, config: dict, word_level: bool, rows: dict[str, object], metadata: dict) -> str:
    """Return the card of a checkpoint that is not a release; `metadata` are the facts for its other parts."""
    kind = described_kind(config, word_level)
    task, tokenizer = task_of(config, word_level), metadata["tokenizer"]
    unit = unit_of(config, word_level, tokenizer)
    fields = {
        "language": metadata["language"] or ("zh" if word_level else None),
        "library_name": "transformers",
        "license": metadata["license"],
        "pipeline_tag": task,
        "tags": [*(kind.tags if kind else ()), *([f"{unit}-level"] if unit else [])],
        "mask_token": "[MASK]" if task == "fill-mask" else None,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    block = yaml.safe_dump(known, sort_keys=False, allow_unicode=True).rstrip()
    reason = why_package_is_needed(config, tokenizer)
    loads = rows.get("loads with") or loads_with(config, reason)
    body = Template((CARDS / "template.md").read_text(encoding="utf-8")).substitute(
        title=cell(metadata["title"] or name),
        summary=kind.summary if kind else NO_KIND,
        owner="" if metadata["training"] and metadata["results"] else OWNER,
        training=metadata["training"] or NOT_PUBLISHED,
        results=metadata["results"] or NOT_PUBLISHED,
        usage=example(metadata["place"] or name, config, word_level, bool(metadata["pairs"])),
        loads_with=loads,
        report=LOAD_REPORT if config.get("model_type") == "roformer" and reason is None else "",
        length=kind.positions.value if kind else "The maximum length of its inputs is not published.",
        unit=f"\n- {note_on_words(tokenizer, word_level)}" if unit else "",
        citation=(kind or KINDS["roformer"]).citation,
    )
    return f"---\n{block}\n---\n\n{body.replace(START, facts_table(rows))}"
