"""Training: what a script needs beside transformers, accelerate and datasets. Needs the extra `train`.

```python
from modeling_roformer.training import FiniteCallback, start_run
```

The scripts of `examples/` show how the parts fit together, and are there to be copied.
"""

from typing import TYPE_CHECKING

from ..output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .comparing.curves import draw_learning_curves
    from .errors import TrainingError, exit_on_error
    from .finetuning.glue import GLUE_TASKS, read_glue
    from .metrics import metric
    from .pretraining.documents import Corpus, DocumentTokenizer
    from .pretraining.masking import MaskingCollator
    from .pretraining.muon import MuonAndAdamW
    from .pretraining.near_duplicates import near_duplicates
    from .pretraining.pretrain import held_out_scores, pretrain
    from .pretraining.stages import Stage, read_stages, usual_stage
    from .runs.data import load_data, load_texts
    from .runs.finite_callback import FiniteCallback, NotFinite
    from .runs.learning_rate import fine_tuning_rate
    from .runs.run_folder import Run, last_checkpoint, start_run
    from .runs.spread import print_scores, spread
    from .runs.starting_models import fresh_model, load_tokenizer, trained_model

__all__ = [
    "GLUE_TASKS", "Corpus", "DocumentTokenizer", "FiniteCallback", "MaskingCollator", "MuonAndAdamW", "NotFinite",
    "Run", "Stage", "TrainingError", "draw_learning_curves", "exit_on_error", "fine_tuning_rate", "fresh_model",
    "held_out_scores", "last_checkpoint", "load_data", "load_texts", "load_tokenizer", "metric", "near_duplicates",
    "pretrain", "print_scores", "read_glue", "read_stages", "spread", "start_run", "trained_model", "usual_stage",
]  # fmt: skip

_MODULES = {
    "comparing.curves": ("draw_learning_curves",),
    "errors": ("TrainingError", "exit_on_error"),
    "finetuning.glue": ("GLUE_TASKS", "read_glue"),
    "metrics": ("metric",),
    "pretraining.documents": ("Corpus", "DocumentTokenizer"),
    "pretraining.masking": ("MaskingCollator",),
    "pretraining.muon": ("MuonAndAdamW",),
    "pretraining.near_duplicates": ("near_duplicates",),
    "pretraining.pretrain": ("held_out_scores", "pretrain"),
    "pretraining.stages": ("Stage", "read_stages", "usual_stage"),
    "runs.data": ("load_data", "load_texts"),
    "runs.finite_callback": ("FiniteCallback", "NotFinite"),
    "runs.learning_rate": ("fine_tuning_rate",),
    "runs.starting_models": ("fresh_model", "load_tokenizer", "trained_model"),
    "runs.run_folder": ("Run", "last_checkpoint", "start_run"),
    "runs.spread": ("print_scores", "spread"),
}
__getattr__, __dir__ = lazy_names(__name__, {name: module for module, names in _MODULES.items() for name in names})
