"""Conversion of checkpoints of the original RoFormer family, without the framework that wrote them.

```python
from modeling_roformer.conversion import convert, export_tf, info
```

Each is imported when it is first asked for. The rooms, from the bottom up: `formats` reads and writes files, `folder` knows
what lies together, `families` which kinds of checkpoint there are, `checkpoints` matches one with a model, `inspection`
says what one is; the verbs lie beside this file.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .convert import convert
    from .convert_all import convert_all
    from .errors import CheckpointError
    from .export_tf import export_tf
    from .inspection.checkpoint_info import CheckpointInfo
    from .inspection.info import info
    from .report import ConversionReport
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

_PLACES = {
    "CheckpointError": "errors",
    "CheckpointInfo": "inspection.checkpoint_info",
    "ConversionReport": "report",
    "convert": "convert",
    "convert_all": "convert_all",
    "export_tf": "export_tf",
    "info": "inspection.info",
    "initialise_words": "word_embeddings",
}


def __getattr__(name: str):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_PLACES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Conversion(ModuleType):
    """A package whose `convert` is the function, although a module in it has that name as well.

    Importing a module sets it as an attribute of its package, so that without this the order of imports would decide.
    `modeling_roformer.conversion.convert.convert` is the function, too.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _PLACES.get(name) == name:
            value = getattr(value, name)
            setattr(value, name, value)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Conversion
