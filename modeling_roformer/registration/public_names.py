"""Public names of `modeling_roformer`; importing this module registers them with transformers."""

from transformers.utils import is_torch_available

from ..configuration import RoFormerConfig
from ..nezha_configuration import NezhaConfig
from ..seq2seq_configuration import RoFormerSeq2SeqConfig
from ..tokenization import RoFormerTokenizer, RoFormerTokenizerFast
from .registry import register

__all__ = ["NezhaConfig", "RoFormerConfig", "RoFormerSeq2SeqConfig", "RoFormerTokenizer", "RoFormerTokenizerFast"]

if is_torch_available():
    from ..causal_lm import RoFormerForCausalLM
    from ..heads import (
        RoFormerForMaskedLM,
        RoFormerForMultipleChoice,
        RoFormerForQuestionAnswering,
        RoFormerForSequenceClassification,
        RoFormerForTokenClassification,
    )
    from ..model import RoFormerModel, RoFormerPreTrainedModel
    from ..nezha import (
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
    from ..seq2seq import RoFormerForConditionalGeneration, RoFormerSeq2SeqModel, RoFormerSeq2SeqPreTrainedModel
    from ..triplet_matching import AutoModelForTripletMatching, RoFormerForTripletMatching

    __all__ += [
        "AutoModelForTripletMatching",
        "NezhaForMaskedLM",
        "NezhaForMultipleChoice",
        "NezhaForNextSentencePrediction",
        "NezhaForPreTraining",
        "NezhaForQuestionAnswering",
        "NezhaForSequenceClassification",
        "NezhaForTokenClassification",
        "NezhaModel",
        "NezhaPreTrainedModel",
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
        "RoFormerSeq2SeqModel",
        "RoFormerSeq2SeqPreTrainedModel",
    ]

register()
