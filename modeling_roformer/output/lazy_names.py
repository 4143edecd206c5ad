"""Public names of a package, imported on first use: torch and transformers take seconds to import."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, names_of_modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package with public names from its modules.

    Type checkers and editors do not read the table. Import the same names for them under `TYPE_CHECKING`.

    >>> __getattr__, __dir__ = lazy_names(__name__, {"converter": ("convert",), "errors": ("CheckpointError",)})
    """
    module_of = {name: module for module, names in names_of_modules.items() for name in names}

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *module_of})
