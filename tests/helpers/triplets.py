"""Small models for triplets, their tokenizer, and the answers that their pipeline should give."""

import numpy as np
import pytest
import torch
from helpers.small_models import small_model
from torch.nn import functional as F

from modeling_roformer import RoFormerForTripletMatching, RoFormerTokenizer

CHARACTERS = "原告与被于年月日登记结婚借款合同纠纷民间贷离本院认为应予支持偿还利息元万。，"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS]
LOSSES = [("cross", "binary_cross_entropy"), ("cross", "softmax"), ("bi", "softmax"), ("bi", "margin")]
TRIPLET = {"A": "借款合同纠纷，应予偿还。", "B": "民间借贷纠纷", "C": "原告与被告于年月日登记结婚。"}
TRIPLETS = [
    TRIPLET,
    {"A": "离婚", "B": "本院认为应予支持", "C": "原告与被告登记结婚，离婚。" * 5},
    {"A": "利息" * 30, "B": "元", "C": "万元"},
]


def make_model(scorer="cross", **fields):
    fields = {"vocab_size": len(VOCABULARY), "triplet_scorer": scorer, "num_attention_heads": 4, **fields}
    model = small_model(RoFormerForTripletMatching, **fields)
    with torch.no_grad():  # weights of the size that training leaves, so that differences show
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        if scorer == "cross":
            model.scorer.weight.mul_(10)
    return model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return RoFormerTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module", params=["cross", "bi"])
def folder(request, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    make_model(request.param).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def expected_answers(folder, tokenizer, triplets, max_length=1024):
    """Compute the pipeline's expected output with the model and the tokenizer alone."""
    model = RoFormerForTripletMatching.from_pretrained(folder).double()
    answers = []
    for triplet in triplets:
        a, b, c = (triplet[name] for name in "ABC")
        texts = [(a, b), (a, c)] if model.config.triplet_scorer == "cross" else [(a,), (b,), (c,)]
        encoded = [tokenizer(*text, truncation=True, max_length=max_length, return_tensors="pt") for text in texts]
        with torch.no_grad():
            vectors = [model.roformer(**one).last_hidden_state[0].mean(dim=0) for one in encoded]
            if len(vectors) == 2:
                for_b, for_c = (model.scorer(vector).item() for vector in vectors)
            else:
                for_b, for_c = (F.cosine_similarity(vectors[0], other, dim=0).item() / 0.05 for other in vectors[1:])
        score_of_b = 1 / (1 + np.exp(for_c - for_b))
        answers.append(("B", score_of_b) if score_of_b > 0.5 else ("C", 1 - score_of_b))
    return answers


def assert_answers(answers, expected, atol=2e-5):
    assert [answer["label"] for answer in answers] == [label for label, _ in expected]
    np.testing.assert_allclose([answer["score"] for answer in answers], [score for _, score in expected], atol=atol)
    assert all(set(answer) == {"label", "score"} and type(answer["score"]) is float for answer in answers)


# The model
