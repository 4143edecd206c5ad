"""Servers that need no code of this package, and the commands that write their folders, by a model's configuration."""

from modeling_roformer.saved_fields import MODEL_TYPE, read_rope, saved_model_type

from .kinds import architecture_of, kind_of, segmentation_of

ONNX = "text-embeddings-inference on a CPU, after roformer export-onnx DIR OUT --vectors"
NOMIC_BERT = "vLLM, and text-embeddings-inference on a GPU, after roformer export-nomic-bert DIR OUT"
TRANSFORMERS = "transformers serve, after roformer bundle DIR OUT"


def servers_of(config: dict, tokenizer: dict, word_level: bool) -> list[str]:
    """Return a sentence for each kind of server that serves a saved model; the reason if there is none.

    It is empty for a model of another family.

    Args:
        config, tokenizer: content of config.json and of tokenizer_config.json.
        word_level: whether the vocabulary has words (entries of two or more Han characters).

    >>> servers_of({"architectures": ["RoFormerForCausalLM"], "is_decoder": True}, {}, word_level=False)
    ['transformers serve, after roformer bundle DIR OUT']
    """
    kind = kind_of(config, word_level)
    if kind is None:
        return []
    if kind == "gpt" and saved_model_type(config) == MODEL_TYPE:
        return [TRANSFORMERS]
    if reason := why_no_vectors_elsewhere(config, tokenizer, word_level):
        return [f"none without this package: {reason}"]
    return [ONNX] if why_not_nomic_bert(config, tokenizer, word_level) else [ONNX, NOMIC_BERT]


def why_no_vectors_elsewhere(config: dict, tokenizer: dict, word_level: bool) -> str | None:
    """Return why no program computes a model's vectors of texts without this package; None if some do."""
    kind = kind_of(config, word_level)
    if kind is None:
        return f"model_type is {config.get('model_type')!r}, which is none of this package's"
    if kind == "seq2seq" or _is_decoder(config, kind):
        return "it generates text"
    is_matcher = architecture_of(config) == "RoFormerForTripletMatching"
    if is_matcher and config.get("triplet_scorer", "cross") == "cross":
        return "it reads texts in pairs"
    if segmentation_of(tokenizer, word_level):
        return "its vocabulary has words, and other tokenizers do not segment them"
    return None


def why_not_nomic_bert(config: dict, tokenizer: dict, word_level: bool) -> str | None:
    """Return why a model is not a `nomic_bert` of the same numbers; None if it is one."""
    if reason := why_no_vectors_elsewhere(config, tokenizer, word_level):
        return reason
    kind, rope = kind_of(config, word_level), read_rope(config)
    width, embedding = config.get("hidden_size"), config.get("embedding_size")
    reasons = {
        "it is a NEZHA, with relative positions": kind in ("nezha", "wonezha"),
        "it is a BERT, with a table of positions": kind in ("bert", "wobert"),
        'it is a RoFormer-V2 (norm_type="rms_norm" or use_bias=False)': kind == "v2",
        f"position_encoding is {config.get('position_encoding')!r}": config.get("position_encoding", "rotary")
        != "rotary",
        "it has linear attention": config.get("attention_type", "softmax") != "softmax",
        "it rotates the values too (rotary_value)": config.get("rotary_value"),
        "its frequencies are trained (trainable_rope)": config.get("trainable_rope"),
        f"its positions are scaled (rope_type {rope['rope_type']!r})": rope["rope_type"] != "default",
        f"hidden_act is {config.get('hidden_act')!r}, not 'gelu'": config.get("hidden_act", "gelu") != "gelu",
        f"its embeddings have {embedding} dimensions, not {width}": embedding not in (None, width),
        "it has no segments (type_vocab_size)": config.get("type_vocab_size", 2) == 0,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _is_decoder(config: dict, kind: str) -> bool:
    """Return whether a model generates text; RoFormer-Sim and SimBERT are encoders too."""
    return bool(config.get("is_decoder") or config.get("prefix_lm")) and kind not in ("sim", "simbert")
