"""The Hugging Face Hub: `push` publishes a model folder, `pull` fetches one and checks every byte."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .download import Pulled, pull
    from .errors import HubError
    from .upload import push

__all__ = ["HubError", "Pulled", "pull", "push"]

# The module of each name, imported when the name is first used: torch and transformers take seconds.
_MODULES = {
    "HubError": "errors",
    "Pulled": "download",
    "pull": "download",
    "push": "upload",
}


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
