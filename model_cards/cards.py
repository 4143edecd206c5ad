"""Choose and fill in the model card of a checkpoint.

A published card is kept as it stands on the Hub, in `<name of the released archive>/README.md`; `template.md` serves all
others. Both hold the line `<!-- facts -->`, which gives way to a table of what is known about the copy at hand.
"""

import json
import re
from pathlib import Path, PureWindowsPath
from string import Template

from huggingface_hub import ModelCardData

CARDS = Path(__file__).parent
FACTS = "<!-- facts -->"
MASKED_LM = "RoFormerForMaskedLM"

# The head in a class's name -> the Hub's pipeline tag.
TASKS = {
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "ForCausalLM": "text-generation",
}
EXAMPLE = '"今天天气很好，我想去公园玩。"'
EXAMPLES = {
    "fill-mask": '"今天[MASK]很好，我想去公园玩。"',
    "question-answering": 'question="他想去哪里？", context="今天天气很好，他想去公园玩。"',
}


def published_checkpoints() -> dict[str, Path]:
    """Name of each released archive (without .zip) -> its card."""
    return {card.parent.name: card for card in sorted(CARDS.glob("*/README.md"))}


def card_for(source_name: str, config: dict, word_level: bool, **facts: object) -> str:
    """The text of the README.md that fits a checkpoint.

    Args:
        source_name: name (or path) of the folder or .zip that the checkpoint came from. A released archive's name picks
            the published card, if sizes, vocabulary and head are that checkpoint's too; any other gets the generic card.
        config: the content of the new config.json (or of bert_config.json).
        word_level: whether the vocabulary holds words (entries of two or more Han characters).
        **facts: what else is known about this copy, shown in its table of facts: `parameters` (a number), `dtype`,
            or anything, under its own name with underscores as spaces. None leaves a fact out. Three are used elsewhere
            too: `license` and `language` go into the generic card's metadata (left out where not given, but for the
            language of a word-level vocabulary, which is Chinese), and `title` is its heading.

    Returns:
        Markdown with the Hub's metadata as YAML in front, ending with a newline.

    Example:
        >>> card = card_for("chinese_roformer_L-6_H-384_A-6.zip", config, word_level=True, dtype="float32")
        >>> (output / "README.md").write_text(card, encoding="utf-8")
    """
    name = checkpoint_name(source_name)
    card = published_checkpoints().get(name)
    metadata = {key: facts.pop(key, None) for key in ("license", "language", "title")}
    table = facts_table(name, config, word_level, facts)
    if card is not None and is_published(name, config, word_level):
        return card.read_text(encoding="utf-8").replace(FACTS, f"## This copy\n\n{table}")
    return generic_card(name, config, word_level, table, **metadata)


def checkpoint_name(source_name: str) -> str:
    """The last part of a path of any system, on one line, without .zip."""
    name = PureWindowsPath(str(source_name)).name.encode("utf-8", "replace").decode("utf-8")
    name = " ".join(name.split())
    return (name[: -len(".zip")] if name.lower().endswith(".zip") else name) or "checkpoint"


def is_published(name: str, config: dict, word_level: bool) -> bool:
    """Whether layers, width, heads, vocabulary and head are those of the released checkpoint of this name.

    A stranger's model in a folder of that name must not be given the results of another.
    """
    sizes = re.fullmatch(r".*_L-(\d+)_H-(\d+)_A-(\d+)", name)
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    vocab_size = 50000 if word_level else 12000  # of the four releases, as their configurations say
    return (
        sizes is not None
        and [config.get(field) for field in fields] == [int(size) for size in sizes.groups()]
        and word_level == ("-char" not in name)
        and config.get("vocab_size") == vocab_size
        and config.get("model_type", "roformer") == "roformer"
        and (architecture_of(config) or MASKED_LM) == MASKED_LM
    )


def architecture_of(config: dict) -> str | None:
    """The class that the checkpoint was saved from, where the config names one."""
    named = config.get("architectures")
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None


def facts_table(name: str, config: dict, word_level: bool, facts: dict) -> str:
    """A Markdown table of what is known about this copy."""
    rows: dict[str, object] = {
        "source": name,
        "architecture": architecture_of(config),
        "layers": config.get("num_hidden_layers"),
        "hidden size": config.get("hidden_size"),
        "attention heads": config.get("num_attention_heads"),
        "feed-forward size": config.get("intermediate_size"),
        "vocabulary": f"{config['vocab_size']:,} entries" if isinstance(config.get("vocab_size"), int) else None,
        "vocabulary's unit": "word" if word_level else "character",
    } | {key.replace("_", " "): value for key, value in facts.items()}
    lines = [f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items() if value is not None]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def generic_card(
    name: str,
    config: dict,
    word_level: bool,
    table: str,
    license: str | None = None,
    language: str | None = None,
    title: str | None = None,
) -> str:
    """The card of a checkpoint about which nothing was published."""
    architecture = architecture_of(config) or MASKED_LM
    task = next((tag for head, tag in TASKS.items() if architecture.endswith(head)), "feature-extraction")
    metadata = ModelCardData(
        language=language or ("zh" if word_level else None),
        license=license,
        library_name="transformers",
        pipeline_tag=task,
        tags=["roformer", "rope", "rotary-position-embedding", f"{'word' if word_level else 'character'}-level"],
    )
    if task == "fill-mask":
        metadata.mask_token = "[MASK]"
    if task == "multiple-choice":  # the Hub has a page for it, transformers no pipeline
        usage = "from transformers import AutoModelForMultipleChoice\n\n"
        usage += f"model = AutoModelForMultipleChoice.from_pretrained({_literal(name)})"
    else:
        usage = "from transformers import pipeline\n\n# The folder, or its name on the Hub.\n"
        usage += f'run = pipeline("{task}", model={_literal(name)})\nprint(run({EXAMPLES.get(task, EXAMPLE)}))'
    unit_limitation = (
        "Words are those that jieba finds with its own dictionary: another segmenter gives other ids, and worse answers"
        " without\n  any error."
        if word_level
        else "Every Chinese character is a token; no word segmentation is done."
    )
    body = Template((CARDS / "template.md").read_text(encoding="utf-8")).substitute(
        title=_cell(title or name), usage=usage, unit_limitation=unit_limitation
    )
    return f"---\n{metadata}\n---\n\n{body.replace(FACTS, table)}"


def _cell(value: object) -> str:
    """One line of text that cannot break out of a table's cell or a heading."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return " ".join(text.split()).replace("|", r"\|").replace("`", "'").replace("<", "&lt;")


def _literal(name: str) -> str:
    """A name as a Python string that cannot end a block of code either."""
    return json.dumps(name.replace("`", "'"), ensure_ascii=False)
