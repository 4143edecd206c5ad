"""Questions with lists of passages and of hard negatives, as FlagEmbedding publishes them."""

import json

import datasets
import pytest
from helpers.messages import refused

from modeling_roformer.training import TrainingError, load_questions, split_questions, with_negatives

COLUMNS = {"question": "query", "passage": "pos", "negatives": "neg"}


@pytest.fixture
def write(tmp_path):
    def write(*rows):
        path = tmp_path / "questions.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_a_question_has_a_row_for_each_passage(write):
    path = write({"query": "一", "pos": ["甲", "乙"], "neg": ["丙"]}, {"query": "二", "pos": "丁", "neg": ["甲", "丙"]})
    found = load_questions(path, COLUMNS)
    assert found.to_list() == [
        {"question": "一", "passage": "甲", "negatives": ["丙"]},
        {"question": "一", "passage": "乙", "negatives": ["丙"]},
        {"question": "二", "passage": "丁", "negatives": ["甲", "丙"]},
    ]
    assert with_negatives(found)["negative_1"][:] == ["丙", "丙", "甲"]
    two = with_negatives(found, 2)
    assert two.column_names == ["question", "passage", "negative_1", "negative_2"]
    assert two["negative_2"][:] == ["丙", "丙", "丙"]
    with refused(TrainingError, path, "line 1", "neg", "empty"):
        load_questions(write({"query": "一", "pos": ["甲"], "neg": []}), COLUMNS)
    with refused(TrainingError, path, "line 1", "query", "list"):
        load_questions(write({"query": ["一"], "pos": ["甲"], "neg": ["乙"]}), COLUMNS)


def test_neither_a_question_nor_a_passage_is_in_both_parts():
    pairs = [(f"q{n}", f"p{n // 2}") for n in range(60)] + [("q3", "p20"), ("q50", "p2"), ("q7", "p9")]
    rows = datasets.Dataset.from_list([{"question": question, "passage": passage} for question, passage in pairs])
    parts = split_questions(rows, 0.3)
    assert sum(map(len, parts)) == len(pairs) and all(map(len, parts))
    for column in ("question", "passage"):
        first, second = ({*part[column]} for part in parts)
        assert not first & second
