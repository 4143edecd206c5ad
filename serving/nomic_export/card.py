"""The model card of an exported folder: how to serve it."""

import datetime
import json
import shlex
from importlib.metadata import version
from pathlib import Path
from string import Template

import yaml

from modeling_roformer.files.reading import read_json
from modeling_roformer.model_cards.cards import facts_of
from modeling_roformer.model_cards.facts import START, cell, facts_table, measure, vocabulary_of
from modeling_roformer.model_cards.kinds import described_kind
from modeling_roformer.model_cards.metadata import kept_metadata
from modeling_roformer.model_cards.trained_card import published_name

from ..prompts import TASKS, prompts_of

CARD = "README.md"


def card_of(source: Path, folder: Path, output: str, modules: list[str], max_length: int) -> str:
    """Return the text of README.md for the exported files in `folder`, whose name will be `output`."""
    config, vocabulary = read_json(source / "config.json"), vocabulary_of(folder)
    kind, name = described_kind(config, word_level=False), published_name(source.resolve())
    measured = measure(folder, word_level=False)
    exported, tokenizer = read_json(folder / "config.json"), measured.pop("tokenizer")
    rows = facts_of(name, exported, False, measured, tokenizer) | {
        "modules after the encoder": ", ".join(modules),
        "exported on": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "exported with": f"modeling-roformer {version('modeling-roformer')}",
    }
    prompts = {task: prompt for task in TASKS if (prompt := prompts_of(source)[task])}
    told = ", ".join(f"{json.dumps(prompt, ensure_ascii=False)} ({task})" for task, prompt in prompts.items())
    body = Template((Path(__file__).parent / "card.md").read_text(encoding="utf-8")).substitute(
        title=cell(f"{name} for vLLM and text-embeddings-inference"),
        summary=kind.summary,
        source=cell(name),
        name=shlex.quote(output.replace("`", "'")),
        prompts=f"\nPut a prompt before each text: {told}.\n" if told else "",
        length=f"{max_length:,}",
        citation=kind.citation,
    )
    metadata = kept_metadata(source / CARD, vocabulary) | {
        "library_name": "vllm",
        "pipeline_tag": "feature-extraction",
        "tags": ["text-embeddings-inference", *kind.tags],
    }
    block = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return f"---\n{block}---\n\n{body.replace(START, facts_table(rows))}"
