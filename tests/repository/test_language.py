"""Docstrings follow the rules of CONTRIBUTING.md; ruff's D401 checks that a function's begins with a verb."""

import ast
import re

import pytest
from helpers.paths import REPOSITORY

OPENINGS = re.compile(r"(What|Which|Whether|Of|Where|Those|That|How|When|If|As)\b")
FOLDERS = sorted(
    path.name for path in REPOSITORY.iterdir() if path.is_dir() and not path.name.startswith((".", "build", "work"))
)


def docstrings(folder: str) -> list[tuple[str, str]]:
    """Return file and line, and text, of each docstring in the folder's Python files."""
    found = []
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            has_docstring = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            if has_docstring and (text := ast.get_docstring(node)):
                found.append((f"{path.relative_to(REPOSITORY)}:{node.body[0].lineno}", text))
    return found


@pytest.mark.parametrize("folder", [name for name in FOLDERS if any((REPOSITORY / name).rglob("*.py"))])
def test_no_docstring_opens_with_a_question_word(folder):
    assert docstrings(folder)
    assert [place for place, text in docstrings(folder) if OPENINGS.match(text)] == []


def test_the_openings_are_recognised():
    assert OPENINGS.match("What positions are") and OPENINGS.match("As in transformers.")
    assert not OPENINGS.match("Offsets of words.") and not OPENINGS.match("Whatever")
