"""Model, tokenizer and card go to a Hub by transformers' own methods and come back as they were."""

import pytest
import torch
from helpers.small_models import small_model
from huggingface_hub import HfApi, ModelCard
from transformers import pipeline

from modeling_roformer import RoFormerForMaskedLM
from modeling_roformer.model_cards import card_for
from modeling_roformer.tokenization import RoFormerTokenizer, RoFormerTokenizerFast

REPO = "somebody/round-trip"
WORDS = [
    "今天",
    "天气",
    "很",
    "好",
    "公园",
    "我",
    "想",
    "去",
    "玩",
    "，",
    "。",
    "今",
    "天",
    "气",
    "公",
    "园",
    "roformer",
    "##s",
]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["今天天气很好，我想去公园玩。", "RoFormers 很好", "天气[MASK]好", ""]


def model_of(seed):
    return small_model(RoFormerForMaskedLM, seed, vocab_size=len(VOCABULARY), initializer_range=0.02)


@pytest.fixture(params=["jieba", None], ids=["words", "characters"])
def tokenizer(request, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return RoFormerTokenizer.from_pretrained(tmp_path, word_segmentation=request.param)


def same_weights(one, other):
    one, other = one.state_dict(), other.state_dict()
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_model_tokenizer_and_card(hub, tokenizer):
    model = model_of(0)
    model.push_to_hub(REPO)
    tokenizer.push_to_hub(REPO)
    card = card_for("round-trip", model.config.to_dict(), word_level=True, license="apache-2.0")
    HfApi().upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=REPO)

    loaded, info = RoFormerForMaskedLM.from_pretrained(REPO, output_loading_info=True)
    assert not any(info.values()), info
    assert same_weights(loaded, model)
    assert loaded.config.to_dict() | {"_name_or_path": 0} == model.config.to_dict() | {"_name_or_path": 0}
    assert hub.repos[REPO].files()["README.md"].decode() == card
    assert ModelCard.load(REPO).data.license == "apache-2.0"
    for cls in (RoFormerTokenizer, RoFormerTokenizerFast):
        again = cls.from_pretrained(REPO)
        assert again(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
        assert again(TEXTS[0], TEXTS[1])["token_type_ids"] == tokenizer(TEXTS[0], TEXTS[1])["token_type_ids"]
        assert again.word_segmentation == tokenizer.word_segmentation


def test_a_pipeline_straight_from_the_hub(hub, tokenizer):
    model = model_of(0)
    model.push_to_hub(REPO)
    tokenizer.push_to_hub(REPO)
    fill_mask = pipeline("fill-mask", model=REPO)
    assert type(fill_mask.model) is RoFormerForMaskedLM and type(fill_mask.tokenizer) is RoFormerTokenizer
    encoded = tokenizer(TEXTS[2], return_tensors="pt")
    with torch.no_grad():
        logits = model(**encoded).logits[encoded["input_ids"] == tokenizer.mask_token_id]
    assert [guess["token"] for guess in fill_mask(TEXTS[2])] == logits[0].topk(5).indices.tolist()
