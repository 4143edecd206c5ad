"""Answers of the page against a search over all spans written out in Python."""

import itertools
import math

import pytest
import torch
from helpers import page_models
from helpers.messages import refused
from torch.overrides import TorchFunctionMode

import modeling_roformer as package
from modeling_roformer.serving.answers import MAX_ANSWER_LENGTH
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.page.question_answering import answer_question
from modeling_roformer.serving.page.served_model import ServedModel

QUESTION = "谁提出了 RoFormer？"
CONTEXT = (
    "2021年，苏剑林等人提出了 RoFormer🙂，用旋转矩阵表示位置。Ｒ代表旋转，é 带重音，"
    "其注意力只取决于相对位置。\n北京是中国的首都，天气很好！"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "reader"
    return ServedModel(page_models.save(folder, package.RoFormerForQuestionAnswering, initializer_range=0.5))


def by_hand(served, context, **windows):
    """Return each answer with its probability: softmax over the tokens of all windows, the best span of each."""
    encoded = served.tokenizer(
        QUESTION, context, return_overflowing_tokens=True, return_offsets_mapping=True, **windows
    )
    tokens = []  # (window, place, start logit, end logit, offsets)
    for i, ids in enumerate(encoded["input_ids"]):
        with torch.no_grad():
            outputs = served.model(torch.tensor([ids]), token_type_ids=torch.tensor([encoded["token_type_ids"][i]]))
        for place, part in enumerate(encoded.sequence_ids(i)):
            if part == 1:
                logits = outputs.start_logits[0, place].item(), outputs.end_logits[0, place].item()
                tokens.append((i, place, *logits, encoded["offset_mapping"][i][place]))
    totals = [sum(math.exp(token[column]) for token in tokens) for column in (2, 3)]
    best = {}
    for first, last in itertools.product(tokens, tokens):
        if first[0] == last[0] and 0 <= last[1] - first[1] < MAX_ANSWER_LENGTH:
            score = math.exp(first[2]) / totals[0] * math.exp(last[3]) / totals[1]
            span = (first[4][0], last[4][1])
            best[span] = max(best.get(span, 0.0), score)
    return sorted(best.items(), key=lambda item: -item[1])[:3]


@pytest.mark.parametrize("longest", [None, 48, 64])
def test_the_best_spans_are_found(served, monkeypatch, longest):
    context, windows = CONTEXT, {}
    if longest is not None:
        monkeypatch.setattr(served, "longest", longest)
        context = CONTEXT * 8
        room = longest - len(served.tokenizer(QUESTION)["input_ids"]) - 1
        windows = {"truncation": "only_second", "max_length": longest, "stride": room // 2}
    found, document = answer_question(served, QUESTION, context)
    expected = by_hand(served, context, **windows)
    assert [(one["start"], one["end"]) for one in found] == [span for span, _ in expected]
    assert [one["score"] for one in found] == pytest.approx([score for _, score in expected], rel=1e-4)
    assert document == context and all(one["answer"] == context[one["start"] : one["end"]] for one in found)


@pytest.mark.parametrize(
    ("texts", "facts"),
    [
        (("", CONTEXT), ["the question", "empty"]),
        ((QUESTION, " "), ["the document", "empty"]),
        ((QUESTION, None), ["the document", "empty"]),
        (("押" * 600, CONTEXT), ["question", 600, "room", 512]),
        ((QUESTION, "押" * 40_000), ["the document", "32,768 characters"]),
    ],
)
def test_texts_without_an_answer_are_refused(served, texts, facts):
    with refused(ServingError, *facts):
        answer_question(served, *texts)


class FromCPU(TorchFunctionMode):
    """A block in which only copies on the CPU become float64, which not every GPU has."""

    def __init__(self):
        super().__init__()
        self.copies = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        assert name != "double" or any(args[0] is x for x in self.copies)
        result = func(*args, **(kwargs or {}))
        if name == "cpu":
            self.copies.append(result)
        return result


def test_logits_become_float64_on_the_cpu(served):
    with FromCPU() as mode:
        answer_question(served, QUESTION, CONTEXT)
    assert mode.copies
