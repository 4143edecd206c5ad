"""Kinds of models that configurations describe, and whether transformers alone computes them correctly."""

import functools
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from modeling_roformer.saved_fields import MODEL_TYPE, MODEL_TYPE_SEQ2SEQ, MODEL_TYPES, saved_model_type

ROPE = ("roformer", "rope", "rotary-position-embedding")
# Key of each entry of citations.bib -> the entry.
_ENTRIES = (Path(__file__).parent / "citations.bib").read_text(encoding="utf-8").strip().split("\n\n")
CITATIONS = {entry.partition("{")[2].partition(",")[0]: entry for entry in _ENTRIES}

_ANY_LENGTH = "{}, so inputs can have any length; results on inputs longer than those in training\n  are not published."


class Positions(Enum):
    """Positions of a model; the value is the sentence of a card on how long inputs may be."""

    ROTARY = _ANY_LENGTH.format("RoPE has no table of positions")
    RELATIVE = _ANY_LENGTH.format("Positions are relative and clipped at a distance")
    SINUSOIDAL = _ANY_LENGTH.format("Positions are computed, without a table")
    NONE = _ANY_LENGTH.format("The model has no positions")
    TABLE = "It has a table of positions, and inputs cannot be longer than that (`max_position_embeddings`)."


@dataclass(frozen=True)
class Kind:
    """A kind of model: its name, a summary, tags of the Hub, its positions, and the work to cite.

    In the summary of a kind with rotary positions, `{positions}` stands for the name of its position encoding.
    """

    title: str
    summary: str
    tags: tuple[str, ...] = ROPE
    positions: Positions = Positions.ROTARY
    citation: str = CITATIONS["su2021roformer"]


_NEZHA = "A [NEZHA](https://arxiv.org/abs/1909.00204), a BERT with relative positions"
_SIMBERT = "https://github.com/ZhuiyiTechnology/simbert"
_WOBERT = "https://github.com/ZhuiyiTechnology/WoBERT"
KINDS = {
    "roformer": Kind(
        "RoFormer",
        "A Transformer encoder with {positions} of the [RoFormer](https://arxiv.org/abs/2104.09864) family.",
    ),
    "v2": Kind(
        "RoFormer-V2",
        "A Transformer encoder with {positions}, without biases and with norms without"
        " parameters, like [RoFormer-V2](https://github.com/ZhuiyiTechnology/roformer-v2).",
        (*ROPE, "roformer-v2"),
    ),
    "gpt": Kind(
        "RoFormer-GPT",
        "A causal language model: a Transformer decoder with {positions} of"
        " the [RoFormer](https://arxiv.org/abs/2104.09864) family.",
        (*ROPE, "roformer-gpt"),
    ),
    "sim": Kind(
        "RoFormer-Sim",
        "A sentence model with {positions}, built like"
        " [RoFormer-Sim](https://github.com/ZhuiyiTechnology/roformer-sim): its pooled first token is the vector of a"
        " sentence, and its prefix language model generates a similar sentence.",
        (*ROPE, "roformer-sim"),
    ),
    "unilm": Kind(
        "RoFormer as a prefix language model",
        "A prefix language model, as in [UniLM](https://arxiv.org/abs/1905.03197): a Transformer with {positions}"
        " of the [RoFormer](https://arxiv.org/abs/2104.09864) family, which reads a text in both"
        " directions and then generates another.",
        (*ROPE, "unilm"),
    ),
    "simbert": Kind(
        "SimBERT",
        f"A sentence model: a [BERT](https://arxiv.org/abs/1810.04805), built like [SimBERT]({_SIMBERT}). Its pooled "
        "first token is the vector of a sentence, and its prefix language model generates a similar sentence.",
        ("bert", "simbert"),
        Positions.TABLE,
        CITATIONS["devlin2019bert"],
    ),
    "seq2seq": Kind(
        "RoFormer for sequence to sequence",
        "A Transformer that generates one text from another, such as a translation: an encoder and a decoder with "
        "{positions}, as in section 4.1 of the [RoFormer "
        "paper](https://arxiv.org/abs/2104.09864).",
    ),
    "wobert": Kind(
        "WoBERT",
        f"A BERT with a vocabulary of words, like [WoBERT]({_WOBERT}).",
        ("wobert",),
        Positions.TABLE,
        CITATIONS["zhuiyiwobert"],
    ),
    "bert": Kind(
        "BERT", "A [BERT](https://arxiv.org/abs/1810.04805).", ("bert",), Positions.TABLE, CITATIONS["devlin2019bert"]
    ),
    "wonezha": Kind(
        "WoNEZHA",
        f"{_NEZHA}, and with a vocabulary of words, like [WoNEZHA]({_WOBERT}).",
        ("nezha", "wonezha"),
        Positions.RELATIVE,
        CITATIONS["wei2019nezha"],
    ),
    "nezha": Kind("NEZHA", f"{_NEZHA}.", ("nezha",), Positions.RELATIVE, CITATIONS["wei2019nezha"]),
}

# Other position encodings of a RoFormer, and their names in a card.
ROTARY = "rotary position embedding (RoPE)"
OTHER_POSITIONS = {
    "learned": ("learned position embeddings", Positions.TABLE),
    "sinusoidal": ("sinusoidal position embeddings", Positions.SINUSOIDAL),
    "none": ("no position encoding", Positions.NONE),
}


def described_kind(config: dict, word_level: bool) -> Kind | None:
    """Return the kind of model that a config.json describes, with its position encoding; None for another family."""
    kind = KINDS.get(kind_of(config, word_level))
    if kind is None or kind.positions is not Positions.ROTARY:
        return kind
    other = OTHER_POSITIONS.get(str(config.get("position_encoding")))
    if other is None:
        return replace(kind, summary=kind.summary.format(positions=ROTARY))
    name, positions = other
    tags = tuple(tag for tag in kind.tags if tag not in ROPE[1:])
    return replace(kind, summary=kind.summary.format(positions=name), positions=positions, tags=tags)


def kind_of(config: dict, word_level: bool) -> str | None:
    """Return the name in KINDS of the model that a config.json describes; None for another family.

    A configuration without model_type, such as bert_config.json, is taken for a RoFormer's.
    """
    model_type = config.get("model_type", MODEL_TYPE)
    if model_type in ("bert", "nezha"):
        return f"wo{model_type}" if word_level else model_type
    if model_type == MODEL_TYPE_SEQ2SEQ:
        return "seq2seq"
    if model_type not in MODEL_TYPES:
        return None
    if config.get("norm_type", "layer_norm") != "layer_norm" or config.get("use_bias") is False:
        return "v2"
    if config.get("prefix_lm"):
        if not config.get("add_pooling_layer") or config.get("pooler_activation") != "linear":
            return "unilm"
        return "simbert" if config.get("position_encoding") == "learned" else "sim"
    if config.get("is_decoder") and (architecture_of(config) or "").endswith("ForCausalLM"):
        return "gpt"
    return "roformer"


# RoFormerConfig's name of a size -> RoFormerSeq2SeqConfig's, of the encoder.
_SEQ2SEQ_NAMES = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_dim",
    "hidden_act": "activation_function",
}


def size_of(config: dict, name: str) -> object:
    """Return a size of the model, or of its encoder, by RoFormerConfig's name; None if the config lacks it.

    >>> size_of({"model_type": "roformer_seq2seq", "d_model": 512}, "hidden_size")
    512
    """
    return config.get(_SEQ2SEQ_NAMES[name] if config.get("model_type") == MODEL_TYPE_SEQ2SEQ else name)


def architecture_of(config: dict) -> str | None:
    """Return the class that saved the checkpoint; None if the config names no class."""
    named = config.get("architectures")
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None


def segmentation_of(tokenizer: dict, word_level: bool) -> str:
    """Return what segments words: "jieba", "jieba and more" words, "custom" for a function, or "" for nothing.

    A tokenizer of a vocabulary with words may be saved without their segmentation.
    """
    if not word_level or tokenizer.get("word_segmentation", "auto") is None:
        return ""
    if tokenizer.get("word_segmentation") == "custom":
        return "custom"
    return "jieba and more" if tokenizer.get("user_dict") else "jieba"


def why_package_is_needed(config: dict, tokenizer_config: dict | None = None) -> str | None:
    """Return why transformers alone cannot load a folder, or would compute something else; None if it can.

    >>> why_package_is_needed({"model_type": "roformer_v2"})
    'transformers has no model_type roformer_v2'
    """
    model_type = config.get("model_type", MODEL_TYPE)
    if not _has_model_type(model_type):
        return f"transformers has no model_type {model_type}"
    if model_type == MODEL_TYPE:
        saved = MODEL_TYPE
        with suppress(Exception):  # loading it reports the error
            saved = saved_model_type(config)
        if saved != MODEL_TYPE:
            return f"transformers would not compute it as {saved}"
    for name in (architecture_of(config), (tokenizer_config or {}).get("tokenizer_class")):
        if isinstance(name, str) and not _has_class(name):
            return f"transformers has no {name}"
    return None


# True for names that transformers has: importing it takes seconds.
_MODEL_TYPES = {MODEL_TYPE: True, "bert": True, **dict.fromkeys((*MODEL_TYPES[1:], MODEL_TYPE_SEQ2SEQ, "nezha"), False)}
_HEADS = (
    "Model",
    "ForMaskedLM",
    "ForMultipleChoice",
    "ForQuestionAnswering",
    "ForSequenceClassification",
    "ForTokenClassification",
)
_CLASSES = {
    **{f"{family}{head}": True for family in ("RoFormer", "Bert") for head in (*_HEADS, "Tokenizer")},
    **{f"Bert{head}": True for head in ("ForNextSentencePrediction", "ForPreTraining", "LMHeadModel")},
    **{f"Nezha{head}": False for head in (*_HEADS, "ForNextSentencePrediction", "ForPreTraining")},
    **{f"RoFormer{name}": False for name in ("ForTripletMatching", "WordTokenizer")},
    "RoFormerForCausalLM": True,
    "RoFormerTokenizerFast": True,
}


def _has_model_type(name: str) -> bool:
    if name in _MODEL_TYPES:
        return _MODEL_TYPES[name]
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return name in CONFIG_MAPPING_NAMES


@functools.cache  # it takes transformers a tenth of a second
def _has_class(name: str) -> bool:
    if name in _CLASSES:
        return _CLASSES[name]
    import transformers

    return name in dir(transformers)
