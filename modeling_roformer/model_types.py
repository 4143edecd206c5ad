"""Model types of saved checkpoints, chosen so that plain transformers refuses those it would compute wrongly.

Nothing here imports transformers, so that commands can inspect a folder quickly.
"""

from collections.abc import Mapping

from .rope_parameters import is_paper_rope, rope_of

# Plain transformers knows the first one only. `RoFormerConfig` reads the first three.
MODEL_TYPE = "roformer"
MODEL_TYPE_V2 = "roformer_v2"
MODEL_TYPE_EXTENDED = "roformer_x"
MODEL_TYPE_SEQ2SEQ = "roformer_seq2seq"
MODEL_TYPES = (MODEL_TYPE, MODEL_TYPE_V2, MODEL_TYPE_EXTENDED)


def saved_model_type(fields: Mapping[str, object]) -> str:
    """Return the model_type to save a configuration under: "roformer" only if plain transformers computes it correctly.

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
