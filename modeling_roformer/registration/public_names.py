"""Public names of `modeling_roformer`; importing this module registers them with transformers."""

from transformers.utils import DummyObject, is_torch_available, requires_backends

from modeling_roformer.configuration import RoFormerConfig
from modeling_roformer.nezha_configuration import NezhaConfig
from modeling_roformer.seq2seq_configuration import RoFormerSeq2SeqConfig
from modeling_roformer.tokenization import RoFormerTokenizer, RoFormerTokenizerFast

from .registry import register

__all__ = [
    "AutoModelForTripletMatching",
    "NezhaConfig",
    "NezhaForMaskedLM",
    "NezhaForMultipleChoice",
    "NezhaForNextSentencePrediction",
    "NezhaForPreTraining",
    "NezhaForQuestionAnswering",
    "NezhaForSequenceClassification",
    "NezhaForTokenClassification",
    "NezhaModel",
    "NezhaPreTrainedModel",
    "RoFormerConfig",
    "RoFormerForCausalLM",
    "RoFormerForConditionalGeneration",
    "RoFormerForMaskedLM",
    "RoFormerForMultipleChoice",
    "RoFormerForQuestionAnswering",
    "RoFormerForSequenceClassification",
    "RoFormerForTokenClassification",
    "RoFormerForTripletMatching",
    "RoFormerModel",
    "RoFormerPreTrainedModel",
    "RoFormerSeq2SeqConfig",
    "RoFormerSeq2SeqModel",
    "RoFormerSeq2SeqPreTrainedModel",
    "RoFormerTokenizer",
    "RoFormerTokenizerFast",
]

if is_torch_available():
    from modeling_roformer import linear_attention  # noqa: F401, it adds itself to `attention_classes`
    from modeling_roformer.heads import (
        RoFormerForCausalLM,
        RoFormerForMaskedLM,
        RoFormerForMultipleChoice,
        RoFormerForQuestionAnswering,
        RoFormerForSequenceClassification,
        RoFormerForTokenClassification,
    )
    from modeling_roformer.model import RoFormerModel, RoFormerPreTrainedModel
    from modeling_roformer.nezha import (
        NezhaForMaskedLM,
        NezhaForMultipleChoice,
        NezhaForNextSentencePrediction,
        NezhaForPreTraining,
        NezhaForQuestionAnswering,
        NezhaForSequenceClassification,
        NezhaForTokenClassification,
        NezhaModel,
        NezhaPreTrainedModel,
    )
    from modeling_roformer.seq2seq import (
        RoFormerForConditionalGeneration,
        RoFormerSeq2SeqModel,
        RoFormerSeq2SeqPreTrainedModel,
    )
    from modeling_roformer.triplet_matching import AutoModelForTripletMatching, RoFormerForTripletMatching
else:

    class _Model(metaclass=DummyObject):
        """Stand-in for a model where torch is not installed; any use raises ImportError, as in transformers."""

        _backends = ["torch"]

        def __init__(self, *args, **kwargs):
            requires_backends(self, self._backends)

    globals().update({name: DummyObject(name, (_Model,), {}) for name in __all__ if name not in globals()})

register()
