"""Convert checkpoints of the original RoFormer family without the framework that wrote them.

```python
from modeling_roformer.conversion import convert, export_tf, info
```

The subpackages, from the bottom up: `formats` reads and writes files, `folder` finds the parts of a checkpoint,
`families` knows the kinds of checkpoint, `checkpoints` matches a checkpoint to a model, and `inspection` describes one;
the commands are next to this file.
"""

from typing import TYPE_CHECKING

from ..lazy_package import import_lazily

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

import_lazily(
    __name__,
    {
        "CheckpointError": "errors",
        "CheckpointInfo": "inspection.checkpoint_info",
        "ConversionReport": "report",
        "convert": "convert",
        "convert_all": "convert_all",
        "export_tf": "export_tf",
        "info": "inspection.info",
        "initialise_words": "word_embeddings",
    },
)
