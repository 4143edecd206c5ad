"""`roformer export-onnx`: a saved model as a folder for ONNX Runtime and transformers.js. It needs the extra `export`.

```python
from modeling_roformer.serving.onnx_export import export_onnx
```

`export.py` is the command. `saved_model.py` checks and loads the model, `graph.py` exports it, `quantization.py` makes
smaller graphs, `agreement.py` compares their outputs with PyTorch's, and `report.py` has the summary and the model
card.
"""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .export import export_onnx
    from .report import OnnxReport

__all__ = ["OnnxReport", "export_onnx"]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "export": ("export_onnx",),
        "report": ("OnnxReport",),
    },
)
