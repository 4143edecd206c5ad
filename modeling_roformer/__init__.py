"""RoFormer, the transformer with rotary position embedding, for the Hugging Face Hub.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel…`, `AutoTokenizer` and `pipeline` use it
for every RoFormer checkpoint. It reads no dictionary: the tokenizer does, when it first segments a text.
"""

from transformers.utils import is_torch_available

from .configuration import RoFormerConfig
from .registration import register

__version__ = "0.1.0"

__all__ = ["RoFormerConfig"]

if is_torch_available():
    from .heads import (
        RoFormerForMaskedLM,
        RoFormerForQuestionAnswering,
        RoFormerForSequenceClassification,
        RoFormerForTokenClassification,
    )
    from .model import RoFormerModel, RoFormerPreTrainedModel

    __all__ += [
        "RoFormerForMaskedLM",
        "RoFormerForQuestionAnswering",
        "RoFormerForSequenceClassification",
        "RoFormerForTokenClassification",
        "RoFormerModel",
        "RoFormerPreTrainedModel",
    ]

register()
