"""Classes that transformers' Auto classes return for RoFormer, RoFormer for sequence to sequence, and NEZHA."""

from .configuration import RoFormerConfig
from .nezha_configuration import NezhaConfig
from .saved_fields import MODEL_TYPES
from .seq2seq_configuration import RoFormerSeq2SeqConfig

CONFIG_CLASSES = dict.fromkeys(MODEL_TYPES, RoFormerConfig) | {
    config_class.model_type: config_class for config_class in (NezhaConfig, RoFormerSeq2SeqConfig)
}
# Names of saved tokenizers. Plain transformers lacks the last, and so refuses tokenizers that it would misread.
TOKENIZER_NAMES = ("RoFormerTokenizer", "RoFormerTokenizerFast", "RoFormerWordTokenizer")
_HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")


def auto_model_classes(config_class: type = RoFormerConfig) -> dict[str, type]:
    """Return the class of ours for the name of each Auto class that serves models with such a config."""
    from . import heads, model, nezha, seq2seq, triplet_matching

    if config_class is RoFormerSeq2SeqConfig:
        return {
            "AutoModel": seq2seq.RoFormerSeq2SeqModel,
            "AutoModelForSeq2SeqLM": seq2seq.RoFormerForConditionalGeneration,
        }
    if config_class is NezhaConfig:
        heads_of_nezha = (*_HEADS, "PreTraining", "NextSentencePrediction")
        bare = dict.fromkeys(("AutoModel", "AutoModelForTextEncoding"), nezha.NezhaModel)
        return bare | {f"AutoModelFor{head}": getattr(nezha, f"NezhaFor{head}") for head in heads_of_nezha}
    return {
        "AutoModel": model.RoFormerModel,
        "AutoModelForTextEncoding": model.RoFormerModel,
        "AutoModelForPreTraining": heads.RoFormerForMaskedLM,
        **{f"AutoModelFor{head}": getattr(heads, f"RoFormerFor{head}") for head in (*_HEADS, "CausalLM")},
        "AutoModelForTripletMatching": triplet_matching.RoFormerForTripletMatching,
    }
