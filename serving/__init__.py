"""Serving saved models with libraries made for it.

`onnx_export/` exports a model to ONNX Runtime and transformers.js, `nomic_export/` to servers of vectors, `vectors/`
embeds a corpus and searches it, `prediction/` predicts the rows of files, `page/` shows a model in a browser. Each
needs its own extra, and none uses another. `answers.py` answers questions for all of them.
"""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .answers import WINDOW, best_answers, windows_of

__all__ = ["WINDOW", "best_answers", "windows_of"]
__getattr__, __dir__ = lazy_names(__name__, {"answers": ("WINDOW", "best_answers", "windows_of")})
