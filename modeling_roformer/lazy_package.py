"""Packages whose names are imported when they are first asked for."""

import sys
from importlib import import_module
from types import ModuleType


def import_lazily(package: str, places: dict[str, str]) -> None:
    """Let a package give each name from the module in it that `places` says, once somebody asks.

    Where a module is called as a function in it, the package gives the function, whichever of the two was imported first;
    the function then has itself as an attribute, so that `package.convert.convert` is what it looks like.

    >>> import_lazily(__name__, {"convert": "convert", "info": "inspection.info"})
    """
    module = sys.modules[package]
    module.__dict__["_places"] = places
    module.__class__ = _LazyPackage


class _LazyPackage(ModuleType):
    def __getattr__(self, name: str):
        place = self.__dict__["_places"].get(name)
        if place is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{place}", self.__name__), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a module sets it as an attribute of its package.
        if isinstance(value, ModuleType) and self.__dict__["_places"].get(name) == name:
            value = getattr(value, name)
            setattr(value, name, value)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__["_places"]})
