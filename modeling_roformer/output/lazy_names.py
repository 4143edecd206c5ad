"""Public names of a package, imported on first use: torch and transformers take seconds to import."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; `modules` maps each public name to its module in the package.

    >>> __getattr__, __dir__ = lazy_names(__name__, {"convert": "converter"})
    """

    def get(name: str) -> object:
        if name in modules:
            return getattr(import_module(f".{modules[name]}", package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(sys.modules[package]), *modules})
