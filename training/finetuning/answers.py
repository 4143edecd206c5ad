"""Exact match and F1 of answers, as the official evaluation of CMRC2018 counts them."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from statistics import fmean

# The official list. Other marks, such as % and …, are not removed; they are units.
_PUNCTUATION = re.compile(r"[-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』]")
_HAN = "\u4e00-\u9fa5"  # the official range
_UNIT = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+(?:[.,'][^\W{_HAN}]+)*|[^\w\s]")


def answer_scores(predicted: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return `exact_match` and `f1`, the means over all questions, from 0 to 1.

    Both ignore case and punctuation. F1 is that of the longest common substring, in units: Chinese characters, and
    words and numbers in other scripts. A question with several answers has the score of the best one.

    Args:
        predicted: the predicted answer to each question.
        answers: the right answers to each question.

    >>> answer_scores(["1990年的北京"], [["北京", "北京市"]])
    {'exact_match': 0.0, 'f1': 0.5714285714285714}
    """
    pairs = [*zip(predicted, answers, strict=True)]
    return {
        "exact_match": fmean(any(_plain(found) == _plain(answer) for answer in right) for found, right in pairs),
        "f1": fmean(max(_f1(found, answer) for answer in right) for found, right in pairs),
    }


def _plain(text: str) -> str:
    return _PUNCTUATION.sub("", text.lower().strip())


def _f1(predicted: str, answer: str) -> float:
    found, right = _UNIT.findall(_plain(predicted)), _UNIT.findall(_plain(answer))
    common = SequenceMatcher(None, found, right, autojunk=False).find_longest_match().size
    return 2 * common / (len(found) + len(right)) if common else 0.0
