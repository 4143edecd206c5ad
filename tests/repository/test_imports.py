"""Between rooms, imports are absolute, so that a reader and an editor see where a name comes from."""

import ast
import re

import pytest
from helpers.paths import REPOSITORY

INSIDE = ("cli", "data", "files", "hub", "output", "registration", "vocabulary_maker")
ROOMS = {f"modeling_roformer.{name}": REPOSITORY / "modeling_roformer" / name for name in INSIDE} | {
    f"modeling_roformer.{name}": REPOSITORY / name
    for name in ("conversion", "model_cards", "serving", "tokenization", "training")
}


def relative_imports(room: str, folder):
    """Yield the file, the line and the module of each relative import of a room."""
    for path in sorted(folder.rglob("*.py")):
        package = [*room.split("."), *path.relative_to(folder).parent.parts]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - node.level + 1]
                yield path, node.lineno, ".".join([*base, *([node.module] if node.module else [])])


@pytest.mark.parametrize("room", ROOMS)
def test_a_relative_import_stays_in_its_room(room):
    outside = [
        f"{path.relative_to(REPOSITORY)}:{line}: {module}"
        for path, line, module in relative_imports(room, ROOMS[room])
        if module != room and not module.startswith(f"{room}.")
    ]
    assert not outside


def test_all_rooms_are_listed():
    folders = {path.parent for path in (REPOSITORY / "modeling_roformer").glob("*/__init__.py")}
    assert folders <= {*ROOMS.values()}
    assert len(list(relative_imports("modeling_roformer.training", ROOMS["modeling_roformer.training"]))) > 20


def test_no_model_of_transformers_is_imported():
    """Each import takes time, and fails under `python -OO`, where models have no docstrings."""
    for path in (REPOSITORY / "modeling_roformer").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*from transformers\.models\.(?!auto\b)", text, re.MULTILINE), path
