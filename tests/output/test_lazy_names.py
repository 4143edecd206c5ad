"""Public names of packages that import their modules on first use."""

import ast
import inspect
from importlib import import_module

import pytest
from helpers.messages import refused

PACKAGES = ("conversion", "hub", "serving.onnx_export", "serving.vectors", "training")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_at_run_time_are_those_of_type_checkers(package):
    module = import_module(f"modeling_roformer.{package}")
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
    modules = {name.name: node.module for node in imports if node.level == 1 for name in node.names}
    assert sorted(modules) == sorted(module.__all__) and {*module.__all__} <= {*dir(module)}
    for name, place in modules.items():
        assert getattr(module, name) is getattr(import_module(f"{module.__name__}.{place}"), name)
    with refused(AttributeError, module.__name__, "'nothing'"):
        _ = module.nothing
