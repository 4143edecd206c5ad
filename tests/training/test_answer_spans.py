"""Questions whose answers are spans: their places in the context, in windows, and against a naive search."""

import json

import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer import RoFormerTokenizer
from modeling_roformer.serving.answers import windows_of
from modeling_roformer.training import TrainingError, load_answered_questions
from modeling_roformer.training.finetuning.answer_spans import token_span

COLUMNS = {"question": "question", "context": "context", "answer": "answer"}
WITH_STARTS = {**COLUMNS, "answer": "answers.text", "answer_start": "answers.answer_start"}
CONTEXT = "明月几时有，把酒问青天。不知天上宫阙，今夕是何年，几时归去。"


@pytest.fixture
def load(tmp_path, capsys):
    """Return a function that writes answers with the context, loads them, and returns the spans and what is printed."""

    def load(*answers, columns=COLUMNS, context=CONTEXT):
        file = tmp_path / "questions.jsonl"
        rows = [{"question": "何时？", "context": context, **answer} for answer in answers]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        rows = load_answered_questions(file, columns)
        return [*zip(rows["answer"], rows["start"], rows["end"], strict=True)], capsys.readouterr().out

    return load


def test_the_first_occurrence_counts_without_a_start(load):
    found, printed = load({"answer": "几时"}, {"answer": ["青天", "青天。"]}, {"answer": "归来"}, {"answer": " 今夕 "})
    assert found == [(["几时"], 2, 4), (["青天", "青天。"], 9, 11), (["归来"], -1, -1), ([" 今夕 "], 19, 21)]
    assert_states(printed, "questions.jsonl", "1 answers occur more than once", "1 answers do not occur")


def test_the_occurrence_nearest_to_a_start_counts(load):
    answers = [{"answers": {"text": ["几时"], "answer_start": [start]}} for start in (2, 13, 14, 25, 99)]
    answers += [{"answers": {"text": ["今夕", "今夕是"], "answer_start": [19, 19]}}]
    found, printed = load(*answers, columns=WITH_STARTS)
    assert [start for _, start, _ in found] == [2, 2, 25, 25, 25, 19] and not printed
    assert all(CONTEXT[start:end] == answer[0] for answer, start, end in found)
    # The last occurrence that overlaps with another is one too.
    assert load({"answers": {"text": "月月", "answer_start": 1}}, columns=WITH_STARTS, context="月月月")[0][0][1] == 1


def test_what_cannot_be_learned_is_refused(load):
    with refused(TrainingError, "questions.jsonl", "no answer occurs"):
        load({"answer": "归来"})
    with refused(TrainingError, "questions.jsonl", "line 1", "answers.answer_start", "-1"):
        load({"answers": {"text": "几时", "answer_start": -1}}, columns=WITH_STARTS)
    with refused(TrainingError, "questions.jsonl", "line 2", "answers.text", "empty"):
        found = {"text": ["几时"], "answer_start": [2]}
        load({"answers": found}, {"answers": {"text": [], "answer_start": []}}, columns=WITH_STARTS)


@pytest.fixture(scope="module")
def tokenizer():
    return RoFormerTokenizer(str(REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"))


pieces = st.sampled_from(["明月", "几时有", "天上", "把", " ", "，", "ABC", "１２", "é", "🙂", "不知今夕"])


@pytest.mark.hypothesis
@max_examples(60)
@given(st.lists(pieces, min_size=3, max_size=60).map("".join), st.integers(12, 40), st.data())
def test_windows_cover_the_context_and_place_every_answer(tokenizer, context, longest, data):
    if not context.strip():
        return
    windows = windows_of(tokenizer, "何时？", context, longest)
    whole = tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = whole["input_ids"], [*map(tuple, whole["offset_mapping"])]
    covered = set()
    for window in windows:
        assert len(window.inputs["input_ids"]) <= longest
        at = offsets.index(window.offsets[0])
        assert window.offsets == offsets[at : at + len(window.offsets)]
        assert [window.inputs["input_ids"][place] for place in window.places] == ids[at : at + len(window.places)]
        covered |= {*range(at, at + len(window.offsets))}
    assert covered == {*range(len(offsets))}

    first = data.draw(st.integers(0, len(offsets) - 1))
    last = data.draw(st.integers(first, min(len(offsets) - 1, first + 2)))
    start, end = offsets[first][0], offsets[last][1]
    spans = [token_span(window.offsets, start, end) for window in windows]
    for window, span in zip(windows, spans, strict=True):
        inside = [number for number, (a, b) in enumerate(window.offsets) if a < end and b > start]
        whole = window.offsets[0][0] <= start and end <= window.offsets[-1][1]
        assert span == ((inside[0], inside[-1]) if whole else None)
    assert any(spans)  # an answer of three tokens is within the overlap of two windows


@pytest.mark.parametrize(
    ("start", "end", "span"),
    [(0, 2, (0, 0)), (1, 3, (0, 1)), (4, 6, (2, 2)), (0, 8, (0, 3)), (2, 9, None), (3, 4, None)],
)
def test_a_part_of_a_token_takes_the_whole_token(start, end, span):
    offsets = [(0, 2), (2, 3), (4, 6), (6, 8)]
    assert token_span(offsets, start, end) == span
    shifted = [(a + 5, b + 5) for a, b in offsets]
    assert token_span(shifted, start + 5, end + 5) == span and token_span(shifted, 4, 6) is None
    assert token_span([], start, end) is None
