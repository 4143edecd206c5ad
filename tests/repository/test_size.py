"""The package stays small: more lines than today are a decision, which raises these bounds."""

import pytest
from helpers.paths import REPOSITORY

ROOMS = ("modeling_roformer", "conversion", "training", "serving", "tokenization", "model_cards")
PAPER = "examples/paper"


def lines(*folders: str) -> int:
    files = {file for folder in folders for file in (REPOSITORY / folder).rglob("*.py")}
    if PAPER not in folders:
        files -= {*(REPOSITORY / PAPER).rglob("*.py")}
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize(
    ("folders", "most"),
    [(ROOMS, 21_500), (["tests"], 32_455), (["examples"], 1_200), ([PAPER], 2_070), (["benchmarks"], 3_605)],
)
def test_lines_are_at_most_those_of_today(folders, most):
    assert 0 < lines(*folders) <= most
