"""Convert checkpoints of the original RoFormer family without the framework that wrote them.

```python
from modeling_roformer.conversion import convert, export_tf, info
```

The subpackages, from the bottom up: `formats` reads and writes files, `folder` finds the parts of a checkpoint,
`families` has the kinds of checkpoint, `checkpoints` matches a checkpoint to a model, `inspection` describes one. The
commands are next to this file.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .converter import convert
    from .errors import CheckpointError
    from .folder_converter import convert_all
    from .inspection.checkpoint_info import CheckpointInfo
    from .inspection.info import info
    from .report import ConversionReport
    from .tf_exporter import export_tf
    from .word_embeddings import initialise_words

__all__ = [
    "CheckpointError",
    "CheckpointInfo",
    "ConversionReport",
    "convert",
    "convert_all",
    "export_tf",
    "info",
    "initialise_words",
]

# The module of each name, imported when the name is first used: torch and transformers take seconds.
_MODULES = {
    "CheckpointError": "errors",
    "CheckpointInfo": "inspection.checkpoint_info",
    "ConversionReport": "report",
    "convert": "converter",
    "convert_all": "folder_converter",
    "export_tf": "tf_exporter",
    "info": "inspection.info",
    "initialise_words": "word_embeddings",
}


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
