"""The names under which checkpoints are saved, so that no other program computes one wrongly in silence.

Nothing here needs transformers: what a folder is can be said without it.
"""

from collections.abc import Mapping

from .rope_parameters import is_paper_rope, rope_of

# What a checkpoint is called on disk when plain transformers would load it without complaint and compute something
# else: names that it does not know, so that it refuses. One class reads them all.
MODEL_TYPE = "roformer"
MODEL_TYPE_V2 = "roformer_v2"
MODEL_TYPE_EXTENDED = "roformer_x"
MODEL_TYPE_SEQ2SEQ = "roformer_seq2seq"  # of a class of its own
MODEL_TYPES = (MODEL_TYPE, MODEL_TYPE_V2, MODEL_TYPE_EXTENDED)


def saved_model_type(fields: Mapping[str, object]) -> str:
    """The model_type that a configuration of these fields is written under, by what plain transformers would make of it.

    >>> saved_model_type({"norm_type": "rms_norm", "use_bias": False})
    'roformer_v2'
    """
    if fields.get("position_encoding", "rotary") != "rotary" or fields.get("attention_type", "softmax") != "softmax":
        return MODEL_TYPE_EXTENDED
    if fields.get("norm_type", "layer_norm") != "layer_norm" or not fields.get("use_bias", True):
        return MODEL_TYPE_V2
    if fields.get("prefix_lm") or fields.get("trainable_rope") or not is_paper_rope(rope_of(fields)):
        return MODEL_TYPE_EXTENDED
    activation = fields.get("classifier_activation")
    if fields.get("classifier_layers", 2) != 2 or activation not in (None, fields.get("hidden_act", "gelu")):
        return MODEL_TYPE_EXTENDED
    return MODEL_TYPE
