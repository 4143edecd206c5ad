"""Training: what a script needs beside transformers, accelerate and datasets. Needs the extra `train`.

```python
from modeling_roformer.training import FiniteCallback, start_run
```

The scripts of `examples/` show how the parts fit together, and are there to be copied.
"""

from typing import TYPE_CHECKING

from ..output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .errors import TrainingError, exit_on_error
    from .runs.data import load_data, load_texts
    from .runs.finite_callback import FiniteCallback, NotFinite
    from .runs.learning_rate import fine_tuning_rate
    from .runs.run_folder import Run, last_checkpoint, start_run
    from .runs.spread import spread
    from .runs.starting_models import fresh_model, load_tokenizer, trained_model

__all__ = [
    "FiniteCallback", "NotFinite", "Run", "TrainingError", "exit_on_error", "fine_tuning_rate", "fresh_model",
    "last_checkpoint", "load_data", "load_texts", "load_tokenizer", "spread", "start_run", "trained_model",
]  # fmt: skip

_MODULES = {
    "errors": ("TrainingError", "exit_on_error"),
    "runs.data": ("load_data", "load_texts"),
    "runs.finite_callback": ("FiniteCallback", "NotFinite"),
    "runs.learning_rate": ("fine_tuning_rate",),
    "runs.starting_models": ("fresh_model", "load_tokenizer", "trained_model"),
    "runs.run_folder": ("Run", "last_checkpoint", "start_run"),
    "runs.spread": ("spread",),
}
__getattr__, __dir__ = lazy_names(__name__, {name: module for module, names in _MODULES.items() for name in names})
