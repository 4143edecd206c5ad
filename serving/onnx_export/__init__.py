"""`roformer export-onnx`: a saved model as a folder for ONNX Runtime and transformers.js. It needs the extra `export`.

```python
from modeling_roformer.serving.onnx_export import export_onnx
```

`export.py` is the command. `saved_model.py` checks and loads the model, `graph.py` exports it, `quantization.py` makes smaller
graphs, `agreement.py` compares their outputs with PyTorch's, and `report.py` has the summary and the model card.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .export import export_onnx
    from .report import OnnxReport

__all__ = ["OnnxReport", "export_onnx"]

# The module of each name, imported on first use: torch and transformers take seconds.
_MODULES = {"OnnxReport": "report", "export_onnx": "export"}


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
