"""The servers that take a model without this package: `roformer info` and the card name the same ones."""

import pytest
from helpers.messages import assert_states
from helpers.small_texts import LEGACY

from modeling_roformer.conversion import convert
from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.model_cards import card_of_folder, write_card
from modeling_roformer.model_cards.facts import read_facts
from modeling_roformer.model_cards.servers import NOMIC_BERT, ONNX, TRANSFORMERS

# Family -> its servers; None if there is none.
SERVERS = {
    "character": [ONNX],  # its activation is ReLU
    "sim": [ONNX, NOMIC_BERT],
    "v2": None,
    "gpt": [TRANSFORMERS],
    "word": None,
    "wonezha": None,
}


@pytest.mark.parametrize("family", SERVERS)
def test_info_and_the_cards_name_the_servers(family, tmp_path):
    convert(LEGACY / family, tmp_path / "model")
    told = info(tmp_path / "model").servers
    if SERVERS[family] is None:
        assert_states(told, "none", "words")
    else:
        assert told == SERVERS[family]
    assert info(tmp_path / "model").rows()["servers"].splitlines() == told
    cards = [(tmp_path / "model" / "README.md").read_text(encoding="utf-8"), card_of_folder(tmp_path / "model")]
    assert [read_facts(card)["servers"] for card in cards] == ["; ".join(told)] * 2
    assert not write_card(tmp_path / "model").facts


def test_a_model_of_another_family_has_no_row(tmp_path):
    """This package does not load it, whatever its servers are."""
    (tmp_path / "config.json").write_text('{"model_type": "nomic_bert", "hidden_size": 8}')
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    found = info(tmp_path)
    assert found.servers == [] and not {"servers", "loads with"} & found.rows().keys()
