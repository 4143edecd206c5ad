"""AutoTokenizer gives our tokenizer for every folder that names RoFormer, with config.json and without."""

import json
import shutil

import pytest
from helpers.paths import REPOSITORY
from transformers import AutoTokenizer

import modeling_roformer  # noqa: F401
from modeling_roformer.tokenization import RoFormerTokenizer

FIXTURES = REPOSITORY / "tests" / "fixtures" / "tokenization"
ROWS = [json.loads(line) for line in (FIXTURES / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
TEXTS = [row["text"] for row in ROWS]
IDS = [row["word_ids"] for row in ROWS]


@pytest.mark.parametrize("name", ["RoFormerTokenizer", "RoFormerTokenizerFast", "RoFormerWordTokenizer"])
@pytest.mark.parametrize("with_config", [True, False])
def test_auto_tokenizer_finds_ours(tmp_path, name, with_config):
    shutil.copy(FIXTURES / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "do_lower_case": True}))
    if with_config:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer) is RoFormerTokenizer
    assert tokenizer(TEXTS).input_ids == IDS


def test_auto_tokenizer_reads_a_bare_vocabulary(tmp_path):
    shutil.copy(FIXTURES / "vocab.txt", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    assert AutoTokenizer.from_pretrained(tmp_path)(TEXTS).input_ids == IDS


def test_what_plain_transformers_refuses_is_found(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=str(FIXTURES / "user_dict.txt")).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer) is RoFormerTokenizer
    assert tokenizer(TEXTS).input_ids == [row["user_dict_ids"] for row in ROWS]
