"""Word-level and character-level tokenization of RoFormer checkpoints.

The tokenizer is imported on first use: modules that only read vocabularies start without transformers, which takes
seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tokenizer import RoFormerTokenizer, RoFormerTokenizerFast

__all__ = ["RoFormerTokenizer", "RoFormerTokenizerFast"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(".tokenizer", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
