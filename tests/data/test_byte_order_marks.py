"""A byte order mark, which Windows' editors put before the first character, is no part of any file that is read."""

import json

import pytest
from transformers import AutoTokenizer

from modeling_roformer import data
from modeling_roformer.conversion.folder.settings import read_fields
from modeling_roformer.serving.onnx_export.agreement import read_texts
from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.segmentation import read_user_dict
from modeling_roformer.tokenization.vocabulary import read_vocab_txt
from modeling_roformer.training.pretraining.stages import read_stages
from modeling_roformer.training.triplets.data import load_triplets

VOCABULARY = "".join(f"{entry}\n" for entry in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今", "天"])
TRIPLET = {"A": "借", "B": "贷", "C": "婚", "label": "B"}
TRIPLETS = "".join(f"{json.dumps(TRIPLET | {'label': 'BC'[i % 2]}, ensure_ascii=False)}\n" for i in range(10))


def documents(path):
    return [text for _, text in data.read_texts([path])]


def triplets(path):
    return load_triplets(path).to_list()


@pytest.mark.parametrize(
    ("read", "name", "text"),
    [
        (read_vocab_txt, "vocab.txt", VOCABULARY),
        (read_user_dict, "user.txt", "今天 3\n天气\n"),
        (documents, "corpus.txt", "今天\n天气\n"),
        (documents, "corpus.jsonl", '{"text": "今天"}\n'),
        (triplets, "triplets.jsonl", TRIPLETS),
        (read_texts, "texts.txt", "今天\n天气\n"),
        (read_stages, "stages.yaml", "stages: [{length: 8, batch_size: 4, steps: 4, learning_rate: 1e-3}]"),
        (read_fields, "bert_config.json", '{"hidden_size": 16}'),
    ],
)
def test_it_is_not_read(tmp_path, read, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    plain = read(tmp_path / name)
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read(tmp_path / name) == plain


def test_a_tokenizer_finds_the_first_entry(tmp_path):
    (tmp_path / "vocab.txt").write_text(VOCABULARY, encoding="utf-8-sig")
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    for tokenizer in (RoFormerTokenizer(str(tmp_path / "vocab.txt")), AutoTokenizer.from_pretrained(tmp_path)):
        assert tokenizer.pad_token_id == 0 and tokenizer("今天").input_ids == [2, 5, 6, 3]
    tokenizer.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "vocab.txt").read_text(encoding="utf-8") == VOCABULARY
