"""`roformer export-onnx`: a saved model as a folder for ONNX Runtime and transformers.js. It needs the extra `export`.

```python
from modeling_roformer.serving.onnx_export import export_onnx
```

`saved_model.py` says what can be exported, `graph.py` makes a graph of it, `quantization.py` and `half_precision.py` make
smaller ones, `agreement.py` compares their answers with PyTorch's on the texts of `texts.py`; `card.py` writes down what
came of it, and `export.py` is the command.
"""

from typing import TYPE_CHECKING

from ...lazy_package import import_lazily

if TYPE_CHECKING:
    from .export import export_onnx
    from .report import OnnxReport

__all__ = ["OnnxReport", "export_onnx"]

import_lazily(__name__, {"OnnxReport": "report", "export_onnx": "export"})
