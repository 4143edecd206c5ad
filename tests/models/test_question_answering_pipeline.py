"""pipeline("extractive-question-answering") against a search over all spans written out in Python."""

import itertools
import math

import pytest
import torch
from helpers.messages import refused
from helpers.paths import REPOSITORY
from transformers import AutoModelForQuestionAnswering, pipeline

from modeling_roformer import RoFormerConfig, RoFormerForQuestionAnswering, RoFormerTokenizer

VOCABULARY = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"
QUESTION = "谁提出了 RoFormer？"
CONTEXT = (
    "2021年，苏剑林等人提出了 RoFormer🙂，用旋转矩阵表示位置。Ｒ代表旋转，é 带重音，"
    "其注意力只取决于相对位置。\n北京是中国的首都，天气很好！"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("qa")
    tokenizer = RoFormerTokenizer(str(VOCABULARY))
    torch.manual_seed(3)
    config = RoFormerConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.5,
    )
    RoFormerForQuestionAnswering(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def answer(folder):
    return pipeline("extractive-question-answering", model=folder)


def by_hand(answer, question, context, max_answer_len, empty=False, **windows):
    """Probability of each answer: softmax over the tokens of all windows, the best span of each (start, end)."""
    encoded = answer.tokenizer(
        question,
        context,
        truncation="only_second",
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        **windows,
    )
    tokens = []  # (window, place, start logit, end logit, offsets)
    for i in range(len(encoded["input_ids"])):
        inputs = {name: torch.tensor([encoded[name][i]]) for name in ("input_ids", "token_type_ids", "attention_mask")}
        with torch.no_grad():
            outputs = answer.model(**inputs)
        for place, part in enumerate(encoded.sequence_ids(i)):
            if part == 1 or (empty and place == 0):
                offsets = encoded["offset_mapping"][i][place]
                tokens.append(
                    (i, place, outputs.start_logits[0, place].item(), outputs.end_logits[0, place].item(), offsets)
                )
    totals = [sum(math.exp(token[column]) for token in tokens) for column in (2, 3)]
    best = {}
    for first, last in itertools.product(tokens, tokens):
        same_window, length = first[0] == last[0], last[1] - first[1]
        if not same_window or not 0 <= length < max_answer_len or (first[1] == 0) != (last[1] == 0):
            continue
        score = math.exp(first[2]) / totals[0] * math.exp(last[3]) / totals[1]
        span = (0, 0) if first[1] == 0 else (first[4][0], last[4][1])
        best[span] = max(best.get(span, 0.0), score)
    return sorted(best.items(), key=lambda item: -item[1])


def assert_answers(found, expected, context):
    assert len(found) == len(expected)
    for one, ((start, end), score) in zip(found, expected, strict=True):
        assert (one["start"], one["end"]) == (start, end)
        assert one["score"] == pytest.approx(score, rel=1e-4)
        assert one["answer"] == context[start:end]


@pytest.mark.parametrize("empty", [False, True])
def test_the_best_spans_are_found(answer, empty):
    found = answer(question=QUESTION, context=CONTEXT, top_k=5, max_answer_len=6, handle_impossible_answer=empty)
    assert_answers(found, by_hand(answer, QUESTION, CONTEXT, 6, empty)[:5], CONTEXT)


@pytest.mark.parametrize("empty", [False, True])
def test_long_contexts_are_read_in_windows(answer, empty):
    context = CONTEXT * 8
    windows = dict(max_seq_len=48, doc_stride=16)
    found = answer(
        question=QUESTION, context=context, top_k=3, max_answer_len=6, handle_impossible_answer=empty, **windows
    )
    expected = by_hand(answer, QUESTION, context, 6, empty, max_length=48, stride=16)
    assert_answers(found, expected[:3], context)
    assert (
        answer(question=QUESTION, context=context, max_answer_len=6, **windows)["start"]
        == (by_hand(answer, QUESTION, context, 6, max_length=48, stride=16)[0][0][0])
    )


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_batches_change_nothing(answer, padding_side):
    examples = [{"question": QUESTION, "context": CONTEXT * n} for n in (3, 1, 2)]
    windows = dict(max_seq_len=48, doc_stride=16)
    alone = [answer(example, **windows) for example in examples]
    answer.tokenizer.padding_side = padding_side
    try:
        together = answer(examples, batch_size=4, **windows)
    finally:
        answer.tokenizer.padding_side = "right"
    for one, other in zip(alone, together, strict=True):
        assert (one["start"], one["end"]) == (other["start"], other["end"])
        assert one["score"] == pytest.approx(other["score"], rel=1e-3)


def test_a_learnt_answer_comes_out(folder):
    """Trained on one example, it gives that answer, with offsets into the original text."""
    tokenizer = RoFormerTokenizer.from_pretrained(folder)
    model = AutoModelForQuestionAnswering.from_pretrained(folder).train()
    encoded = tokenizer(QUESTION, CONTEXT, return_tensors="pt")
    start = CONTEXT.index("苏剑林")
    place = {
        "start_positions": torch.tensor([encoded.char_to_token(0, start, 1)]),
        "end_positions": torch.tensor([encoded.char_to_token(0, start + 2, 1)]),
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = model(**encoded, **place).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = pipeline("extractive-question-answering", model=model.eval(), tokenizer=tokenizer)(
        {"question": QUESTION, "context": CONTEXT}
    )
    assert found["answer"] == "苏剑林"
    assert (found["start"], found["end"]) == (start, start + 3)


@pytest.mark.parametrize(
    ("inputs", "kwargs", "facts"),
    [
        ({"question": "", "context": "好"}, {}, ["question", "empty"]),
        ({"question": "好", "context": "  "}, {}, ["context", "empty"]),
        ({"question": "好", "context": None}, {}, ["context", "empty"]),
        ({"question": "好"}, {}, ["dict", '"question"', '"context"']),
        ({"question": "谁？" * 60, "context": "好"}, {"max_seq_len": 40}, [120, "max_seq_len", 40]),
        ({"question": "好", "context": "好"}, {"max_seq_len": 20, "doc_stride": 99}, ["doc_stride", 99, "max_seq_len"]),
        ({"question": "好", "context": "好"}, {"top_k": 0}, ["top_k", 0, 1]),
        ({"question": "好", "context": "好"}, {"max_answer_len": 0}, ["max_answer_len", 0, 1]),
    ],
)
def test_bad_input_gets_a_sentence(answer, inputs, kwargs, facts):
    with refused(ValueError, *facts):
        answer(inputs, **kwargs)


def test_arguments_or_a_dict(answer):
    with refused(ValueError, "dict", "question=", "context="):
        answer({"question": "好", "context": "好"}, question="好")
    assert answer(question=QUESTION, context=CONTEXT) == answer({"question": QUESTION, "context": CONTEXT})
    assert answer([{"question": QUESTION, "context": CONTEXT}])[0] == answer(question=QUESTION, context=CONTEXT)
