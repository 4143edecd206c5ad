"""Convert checkpoints of the original RoFormer family without the framework that wrote them.

```python
from modeling_roformer.conversion import convert, export_tf, info
```

The subpackages, from the bottom up: `formats` reads and writes files, `folder` finds the parts of a checkpoint,
`families` has the kinds of checkpoint, `checkpoints` matches a checkpoint to a model, `inspection` describes one. The
commands are next to this file.
"""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .converter import convert
    from .errors import CheckpointError
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
    "export_tf",
    "info",
    "initialise_words",
]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "converter": ("convert",),
        "errors": ("CheckpointError",),
        "inspection.checkpoint_info": ("CheckpointInfo",),
        "inspection.info": ("info",),
        "report": ("ConversionReport",),
        "tf_exporter": ("export_tf",),
        "word_embeddings": ("initialise_words",),
    },
)
