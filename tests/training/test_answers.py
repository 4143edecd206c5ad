"""Exact match and F1 of answers against cases worked out by hand, and against the official rule written out naively."""

import pytest
from helpers.properties import max_examples
from hypothesis import example, given
from hypothesis import strategies as st

from modeling_roformer.training import answer_scores

MARKS = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"  # the official list, but for …… which it never matches


@pytest.mark.parametrize(
    ("predicted", "answers", "exact_match", "f1"),
    [
        ("光荣和ω-force", ["光荣和ω-force"], 1, 1),
        ("《光荣》和Ω-Force。", ["光荣和ωforce"], 1, 1),  # case and marks do not count
        ("光荣", ["光荣和ω-force"], 0, 2 * 2 / (2 + 4)),  # a word is one unit
        ("ω", ["光荣和ω-force"], 0, 0),  # a part of a word is none
        ("1990年的北京", ["北京", "北京市"], 0, 2 * 2 / (5 + 2)),  # the best answer counts; a number is one unit
        ("北京市", ["上海", "北京市"], 1, 1),
        ("甲乙丙", ["甲丙"], 0, 2 * 1 / (3 + 2)),  # a substring, and no subsequence
        ("约3.5%", ["3.5%"], 0, 2 * 2 / (3 + 2)),  # % is not in the list
        ("New York City", ["new york"], 0, 2 * 2 / (3 + 2)),
        ("", ["北京"], 0, 0),
        ("。", ["，"], 1, 0),
    ],
)
def test_cases_worked_out_by_hand(predicted, answers, exact_match, f1):
    assert answer_scores([predicted], [answers]) == {"exact_match": exact_match, "f1": pytest.approx(f1)}


def test_scores_are_means_over_the_questions():
    assert answer_scores(["北京", "上海"], [["北京"], ["天津"]]) == {"exact_match": 0.5, "f1": 0.5}
    with pytest.raises(ValueError, match="longer"):
        answer_scores(["北京"], [["北京"], ["天津"]])


def naive_units(text):
    units, word = [], ""
    for character in text.lower().strip():
        if character in MARKS:
            continue
        if "\u4e00" <= character <= "\u9fa5":
            units += [*word.split(), character]
            word = ""
        else:
            word += character
    return units + word.split()


def naive_scores(predicted, answer):
    plain = ["".join(c for c in text.lower().strip() if c not in MARKS) for text in (predicted, answer)]
    found, right = naive_units(predicted), naive_units(answer)
    ends = range(len(found) + 1)
    parts = {tuple(found[i:j]) for i in ends for j in ends if i < j}
    common = max((j - i for j in range(len(right) + 1) for i in range(j) if tuple(right[i:j]) in parts), default=0)
    precision, recall = common / max(1, len(found)), common / max(1, len(right))
    return plain[0] == plain[1], 2 * precision * recall / (precision + recall) if common else 0


texts = st.text(st.sampled_from("北京上海aBω12 " + MARKS), max_size=12)


@pytest.mark.hypothesis
@example("a，b", "ab")  # a mark that is removed joins words
@max_examples(200)
@given(texts, texts)
def test_they_are_those_of_the_official_rule(predicted, answer):
    exact_match, f1 = naive_scores(predicted, answer)
    assert answer_scores([predicted], [[answer]]) == {"exact_match": exact_match, "f1": pytest.approx(f1)}
