"""Scripts of `examples/` that users copy: one file each, on public names alone."""

import ast
from importlib import import_module

import pytest
from helpers.paths import REPOSITORY

SCRIPTS = sorted(file.stem for file in (REPOSITORY / "examples").glob("*.py"))


def names_used(tree: ast.Module) -> set[tuple[str, str]]:
    """Return the modules of this package that a script imports from, with the names that it uses of them."""
    found, rooms = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("modeling_roformer"):
            for alias in node.names:
                if node.module == "modeling_roformer" and alias.name.islower():  # a room
                    rooms[alias.asname or alias.name] = f"modeling_roformer.{alias.name}"
                else:
                    found.add((node.module, alias.name))
        if isinstance(node, ast.Import):
            found |= {
                (alias.name, "") for alias in node.names if alias.name.startswith(("modeling_roformer", "roformer"))
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
            found.add((rooms[node.value.id], node.attr))
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_uses_public_names(script):
    text = (REPOSITORY / "examples" / f"{script}.py").read_text(encoding="utf-8")
    used = names_used(ast.parse(text))
    assert used
    for module, name in used:
        assert module.count(".") <= 1 and module.partition(".")[0] == "modeling_roformer", module
        assert not name or name in import_module(module).__all__, f"{module}.{name} is not public"


def test_names_below_a_room_are_found():
    tree = ast.parse("from modeling_roformer import hub, RoFormerModel\nimport modeling_roformer.files.x\nhub.push(1)")
    assert names_used(tree) == {
        ("modeling_roformer", "RoFormerModel"),
        ("modeling_roformer.files.x", ""),
        ("modeling_roformer.hub", "push"),
    }
