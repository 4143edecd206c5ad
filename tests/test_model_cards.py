"""The cards are what the Hub and its client accept, and no checkpoint gets the results of another."""

import ast
import re

import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_roformer.model_cards import card_for, published_checkpoints

RELEASED = {
    "chinese_roformer_L-12_H-768_A-12": (12, 768, 12, 50000, True),
    "chinese_roformer_L-6_H-384_A-6": (6, 384, 6, 50000, True),
    "chinese_roformer-char_L-12_H-768_A-12": (12, 768, 12, 12000, False),
    "chinese_roformer-char_L-6_H-384_A-6": (6, 384, 6, 12000, False),
}
TABLE_4 = [(512, 256, "200k"), (1536, 256, "12.5k"), (256, 256, "120k"), (128, 512, "80k"), (1536, 256, "10k")]


def released_config(name, **changes):
    layers, hidden, heads, vocab, _ = RELEASED[name]
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "vocab_size": vocab}
    return sizes | {"intermediate_size": 4 * hidden, "architectures": ["RoFormerForMaskedLM"]} | changes


def python_blocks(card):
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


def test_every_released_checkpoint_has_a_card():
    assert set(published_checkpoints()) == set(RELEASED)


@pytest.mark.parametrize("name", RELEASED)
def test_published_card_has_the_metadata_of_the_hub(name):
    text = published_checkpoints()[name].read_text(encoding="utf-8")
    card = ModelCard(text)
    assert card.data.language in ("zh", ["zh"])
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "fill-mask"
    assert {"roformer", "rope", "arxiv:2104.09864"} <= set(card.data.tags)
    assert yaml.safe_load(text.split("---")[1])["mask_token"] == "[MASK]"
    for section in ("How it was trained", "Results", "How to convert it", "How to use it", "Limitations", "Citation"):
        assert text.count(f"\n## {section}\n") == 1
    assert f"{name}.zip" in text
    for block in python_blocks(text):
        ast.parse(block)


def test_training_and_results_stand_only_where_they_were_published():
    cards = {name: path.read_text(encoding="utf-8") for name, path in published_checkpoints().items()}
    word_base = cards.pop("chinese_roformer_L-12_H-768_A-12")
    for length, batch_size, steps in TABLE_4:
        assert f"| {length} | {batch_size} | {steps} |" in word_base
    assert "| RoFormer-1024 | 66.07 % | 69.79 % |" in word_base
    for card in cards.values():
        assert "not published" in card and "200k" not in card and "69.79" not in card


@pytest.mark.parametrize("name", RELEASED)
@pytest.mark.parametrize("form", ["{}", "{}.zip", "/data/{}.zip", "data\\{}", "{}/"])
def test_the_name_of_the_archive_picks_its_card(name, form):
    facts = {"parameters": 124_096_080, "dtype": "float32", "family": None}
    card = card_for(form.format(name), released_config(name), RELEASED[name][-1], **facts)
    published = published_checkpoints()[name].read_text(encoding="utf-8")
    before, after = published.split("<!-- facts -->")
    assert card.startswith(before) and card.endswith(after)
    assert "| parameters | 124,096,080 |" in card and "| dtype | float32 |" in card
    assert "family" not in card.removeprefix(before).removesuffix(after)
    ModelCard(card)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 3},
        {"hidden_size": 48},
        {"num_attention_heads": 4},
        {"vocab_size": 401},
        {"architectures": ["RoFormerForSequenceClassification"]},
        {"model_type": "roformer_v2"},
    ],
)
@pytest.mark.parametrize("name", RELEASED)
def test_another_model_under_a_released_name_gets_the_generic_card(name, changes):
    card = card_for(name, released_config(name, **changes), RELEASED[name][-1])
    assert "## How it was trained\n\nNot published." in card
    assert "apache-2.0" not in card and "69.79" not in card


@pytest.mark.parametrize("name", RELEASED)
def test_the_unit_of_the_vocabulary_counts(name):
    assert "Not published." in card_for(name, released_config(name), not RELEASED[name][-1])


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("RoFormerForMaskedLM", "fill-mask"),
        ("RoFormerForSequenceClassification", "text-classification"),
        ("RoFormerForTokenClassification", "token-classification"),
        ("RoFormerForQuestionAnswering", "question-answering"),
        ("RoFormerForMultipleChoice", "multiple-choice"),
        ("RoFormerModel", "feature-extraction"),
    ],
)
def test_generic_card_names_the_task_of_the_head(architecture, task):
    card = card_for(
        "mine", {"architectures": [architecture], "vocab_size": 12000}, True, license="mit", title="My model"
    )
    data = ModelCard(card).data
    assert (data.pipeline_tag, data.license, data.language) == (task, "mit", "zh")
    assert "\n# My model\n" in card and "| vocabulary | 12,000 entries |" in card
    (block,) = python_blocks(card)
    ast.parse(block)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40), st.booleans(), st.text(max_size=20))
def test_any_name_gives_a_card_that_parses(name, word_level, note):
    card = card_for(name, {"num_hidden_layers": 2, "hidden_size": 8}, word_level, note=note)
    data = ModelCard(card).data
    assert data.library_name == "transformers" and data.license is None
    assert data.pipeline_tag == "fill-mask"
    (block,) = python_blocks(card)
    ast.parse(block)
    (row,) = [line for line in card.split("\n") if line.startswith("| note |")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
