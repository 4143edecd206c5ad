"""`roformer export-nomic-bert`: a saved model as a folder of `nomic_bert` for vLLM and text-embeddings-inference.

```python
from modeling_roformer.serving.nomic_export import export_nomic_bert
```

`export.py` is the command, `weights.py` renames the weights and changes the order of rows, and `pooling.py` writes the
files that state how a server makes the vector of a text.
"""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .export import export_nomic_bert

__all__ = ["export_nomic_bert"]
__getattr__, __dir__ = lazy_names(__name__, {"export": ("export_nomic_bert",)})
