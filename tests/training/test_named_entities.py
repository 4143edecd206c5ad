"""The recipe for named entities in docs/fine-tuning.md: the pipeline finds what was learned."""

import re

import pytest
from helpers.pages import PAGES
from helpers.paths import REPOSITORY
from transformers import AutoTokenizer

from modeling_roformer.conversion import convert

# 朝阳区 is a place, or the beginning of a court's name; 中国 is a part of the word 中国队.
SENTENCES = {
    "朝阳区人民法院审理。": {"ORG": ["朝阳区人民法院"]},
    "王明住在朝阳区。": {"PER": ["王明"], "LOC": ["朝阳区"]},
    "海淀区人民法院审理。": {"ORG": ["海淀区人民法院"]},
    "李华住在海淀区。": {"PER": ["李华"], "LOC": ["海淀区"]},
    "中国队赢了。": {"LOC": ["中国"]},
    "2023年，张三去了ABC公司。": {"PER": ["张三"], "ORG": ["ABC公司"]},
}


def tagged(text, entities):
    labels = ["O"] * len(text)
    for kind, names in entities.items():
        for name in names:
            start = text.index(name)
            labels[start : start + len(name)] = [f"B-{kind}", *[f"I-{kind}"] * (len(name) - 1)]
    return text, labels


@pytest.fixture
def recipe():
    """Return the code of the page, with other sentences, and without the lines that try the tagger."""
    section = PAGES["docs/fine-tuning.md"].partition("## Named entities")[2]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    sentences = [tagged(*sentence) for sentence in SENTENCES.items()]
    code, changes = re.subn(r"^sentences = \[.*?^\]", lambda _: f"sentences = {sentences}", code, flags=re.M | re.S)
    assert changes == 1
    code, changes = re.subn(r'"I-LOC"\]$', '"I-LOC", "B-ORG", "I-ORG"]', code, flags=re.M)
    assert changes == 1
    return code[: code.index("text = ")].replace("max_steps=30", "max_steps=60")


@pytest.mark.slow
def test_the_pipeline_finds_the_entities_of_the_training(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    convert(REPOSITORY / "examples" / "roformer-mini-zh", "roformer-mini-zh")
    names: dict = {}
    exec(recipe, names)
    for text, entities in SENTENCES.items():
        found: dict[str, list[str]] = {}
        for entity in names["find"](text):
            found.setdefault(entity["entity_group"], []).append(text[entity["start"] : entity["end"]])
        assert found == entities, text
    saved = AutoTokenizer.from_pretrained("tagger")
    for text in [*SENTENCES, "今天 2023年，朝阳区人民法院cafe\u0301"]:
        assert saved(text)["input_ids"] == names["tokenizer"](text)["input_ids"]
