"""`roformer predict`: the predictions of a saved model for the rows of files. Needs the extra `predict`.

From the bottom up: `heads.py` has what all heads share, and `classes.py`, `entities.py`, `answers.py`, `triplets.py`
and `masks.py` a head each. `rows.py` reads the rows, `parts.py` stores those that are predicted, `output.py` makes one
file of them, `evaluation.py` compares it with labels, and `prediction.py` does the steps in order.
"""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .prediction import PredictReport, predict

__all__ = ["PredictReport", "predict"]
__getattr__, __dir__ = lazy_names(__name__, {"prediction": ("PredictReport", "predict")})
