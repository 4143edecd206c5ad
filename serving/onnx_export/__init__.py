"""`roformer export-onnx`: a saved model as a folder for ONNX Runtime and transformers.js. It needs the extra `export`.

```python
from modeling_roformer.serving.onnx_export import export_onnx
```

`saved_model.py` says what can be exported, `graph.py` makes a graph of it, `quantization.py` and `half_precision.py` make
smaller ones, `agreement.py` compares their answers with PyTorch's on the texts of `texts.py`; `card.py` writes down what
came of it, and `export.py` is the command.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .export import export_onnx
    from .report import OnnxReport

__all__ = ["OnnxReport", "export_onnx"]

# The module of each name, imported when the name is first used: torch and transformers take seconds.
_MODULES = {
    "OnnxReport": "report",
    "export_onnx": "export",
}


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
