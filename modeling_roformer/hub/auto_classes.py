"""Classes that transformers' Auto classes return for RoFormer, RoFormer for sequence to sequence, and NEZHA."""

from ..configuration import RoFormerConfig
from ..nezha_configuration import NezhaConfig
from ..saved_fields import MODEL_TYPES
from ..seq2seq_configuration import RoFormerSeq2SeqConfig

CONFIG_CLASSES = dict.fromkeys(MODEL_TYPES, RoFormerConfig) | {
    config_class.model_type: config_class for config_class in (NezhaConfig, RoFormerSeq2SeqConfig)
}
# Names of saved tokenizers. Plain transformers does not have the last one, and so refuses tokenizers that it would
# misread.
TOKENIZER_NAMES = ("RoFormerTokenizer", "RoFormerTokenizerFast", "RoFormerWordTokenizer")


def auto_model_classes(config_class: type = RoFormerConfig) -> dict[str, type]:
    """Return the class of ours for the name of each Auto class that serves models with such a config."""
    from .. import heads, model, nezha, seq2seq, triplet_matching

    if config_class is RoFormerSeq2SeqConfig:
        return {
            "AutoModel": seq2seq.RoFormerSeq2SeqModel,
            "AutoModelForSeq2SeqLM": seq2seq.RoFormerForConditionalGeneration,
        }
    if config_class is NezhaConfig:
        return {
            "AutoModel": nezha.NezhaModel,
            "AutoModelForTextEncoding": nezha.NezhaModel,
            "AutoModelForPreTraining": nezha.NezhaForPreTraining,
            "AutoModelForMaskedLM": nezha.NezhaForMaskedLM,
            "AutoModelForNextSentencePrediction": nezha.NezhaForNextSentencePrediction,
            "AutoModelForSequenceClassification": nezha.NezhaForSequenceClassification,
            "AutoModelForTokenClassification": nezha.NezhaForTokenClassification,
            "AutoModelForQuestionAnswering": nezha.NezhaForQuestionAnswering,
            "AutoModelForMultipleChoice": nezha.NezhaForMultipleChoice,
        }
    return {
        "AutoModel": model.RoFormerModel,
        "AutoModelForTextEncoding": model.RoFormerModel,
        "AutoModelForPreTraining": heads.RoFormerForMaskedLM,
        "AutoModelForMaskedLM": heads.RoFormerForMaskedLM,
        "AutoModelForCausalLM": heads.RoFormerForCausalLM,
        "AutoModelForSequenceClassification": heads.RoFormerForSequenceClassification,
        "AutoModelForTokenClassification": heads.RoFormerForTokenClassification,
        "AutoModelForQuestionAnswering": heads.RoFormerForQuestionAnswering,
        "AutoModelForMultipleChoice": heads.RoFormerForMultipleChoice,
        "AutoModelForTripletMatching": triplet_matching.RoFormerForTripletMatching,
    }
