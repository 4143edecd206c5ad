"""Public names of a package, imported on first use: torch and transformers take seconds to import."""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Its public names are those that it imports from its own modules for type checkers and editors, and not at run time:

    >>> if TYPE_CHECKING:
    ...     from .converter import convert
    >>> __getattr__, __dir__ = lazy_names(__name__)
    """
    tree = ast.parse(inspect.getsource(sys.modules[package]))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    modules = {name.name: node.module for node in imports for name in node.names}

    def get(name: str) -> object:
        if name in modules:
            return getattr(import_module(f".{modules[name]}", package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(sys.modules[package]), *modules})
