"""The equivalent of a saved model in bert4keras, and checks that bert4keras supports it."""

import shutil
from pathlib import Path

from transformers import PreTrainedConfig

from modeling_roformer.configuration import RoFormerConfig
from modeling_roformer.nezha_configuration import NezhaConfig
from modeling_roformer.saved_fields import PAPER_ROPE, is_paper_rope
from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary import has_words
from modeling_roformer.tokenization.vocabulary import write_vocabulary as save_vocabulary

from .checkpoints.checkpoint import Checkpoint
from .checkpoints.exported import SPECIAL_TOKENS, added_tokens, own_fields
from .errors import CheckpointError
from .families.weights import Weight
from .families.wonezha import MAX_RELATIVE_POSITION
from .folder.legacy_folder import CONFIGS, VOCABULARY
from .folder.settings import ACTIVATIONS, OPTIONAL_SIZES, RATES, REQUIRED_SIZES
from .folder.vocabulary import read_vocabulary

LANGUAGE_MODELS = ("ForMaskedLM", "ForCausalLM", "ForPreTraining", "LMHeadModel")  # suffixes of class names
# The only values of these fields in bert4keras, for all models and for a RoFormer.
FIXED = {
    "layer_norm_eps": 1e-12,
    "tie_word_embeddings": True,
    "add_cross_attention": False,
    "max_relative_position": MAX_RELATIVE_POSITION,
    "position_embedding_type": "absolute",
}
ROFORMER_FIXED = {
    "attention_type": "softmax",
    "position_encoding": "rotary",
    "rotary_value": False,
    "trainable_rope": False,
}
# Families, and transformers' names of activations -> bert4keras' names.
MODELS = {
    "roformer": "roformer",
    "gpt": "roformer",
    "sim": "roformer",
    "v2": "roformer_v2",
    "wobert": "bert",
    "simbert": "bert",
    "wonezha": "nezha",
}
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())} | {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "swish": "swish",
}


def check_config(path: Path, config: PreTrainedConfig) -> None:
    """Raise CheckpointError, one sentence, if bert4keras would compute other outputs."""
    fixed = FIXED | (ROFORMER_FIXED if isinstance(config, RoFormerConfig) else {})
    wrong = next((name for name, value in fixed.items() if getattr(config, name, value) != value), None)
    activations = ["hidden_act"] + ["pooler_activation"] * getattr(config, "add_pooling_layer", False)
    unknown = next((name for name in activations if getattr(config, name, "tanh") not in NAMES), None)
    trouble = None
    if unknown:
        trouble = f"{unknown} is {getattr(config, unknown)!r}, but bert4keras has {', '.join(ACTIVATIONS)}"
    elif wrong == "position_encoding":
        trouble = f"position_encoding is {config.position_encoding!r}, and only RoFormers with 'rotary' are exported"
    elif wrong:
        trouble = f"{wrong} is {getattr(config, wrong)!r}, but bert4keras has {fixed[wrong]!r}"
    elif isinstance(config, RoFormerConfig):
        if (config.norm_type == "rms_norm") == config.use_bias:
            trouble = f"norm_type {config.norm_type!r} with use_bias={config.use_bias} does not exist in bert4keras"
        elif config.norm_type == "rms_norm" and config.embedding_size != config.hidden_size:
            trouble = "embedding_size is not hidden_size, which RoFormer-V2 checkpoints have no names for"
        elif not is_paper_rope(config.rope_parameters or PAPER_ROPE):
            trouble = f"rope_parameters are {config.rope_parameters}, but bert4keras has only the paper's"
    if trouble:
        raise CheckpointError(f"{path} cannot be exported: {trouble}")


def check_tokenizer(directory: Path, tokenizer: RoFormerTokenizer) -> None:
    """Raise CheckpointError, one sentence, if bert4keras would compute other token ids."""
    trouble = None
    if tokenizer.user_dict:
        trouble = "bert4keras has no user_dict: save the tokenizer with user_dict=[], and load its words into jieba"
    elif tokenizer.word_segmentation is None and has_words(tokenizer.get_vocab()):
        trouble = "it ignores the words of its vocabulary (word_segmentation=None), which vocab.txt cannot express"
    elif tokenizer.init_kwargs["strip_accents"] not in (None, tokenizer.do_lower_case):
        trouble = f"strip_accents must equal do_lower_case, {tokenizer.do_lower_case}, as in bert4keras"
    elif tokenizer.pad_token_id:
        trouble = f"bert4keras masks id 0, so move {tokenizer.pad_token} there, with its row of the embeddings"
    else:
        for name, token in SPECIAL_TOKENS.items():
            if getattr(tokenizer, name) != token and (token != "[MASK]" or tokenizer.mask_token is not None):
                trouble = f"its {name} is {getattr(tokenizer, name)}, but bert4keras has {token}"
    if trouble:
        raise CheckpointError(f"the tokenizer of {directory} cannot be exported: {trouble}")


def configuration(checkpoint: Checkpoint) -> dict[str, object]:
    """Return bert_config.json: the original's fields, then those that only `roformer convert` reads."""
    config = checkpoint.config
    values = config.to_dict()
    names = (*REQUIRED_SIZES, *OPTIONAL_SIZES, *RATES, *["max_relative_position"] * isinstance(config, NezhaConfig))
    return {name: values[name] for name in names if name in values} | {
        "hidden_act": NAMES[config.hidden_act],
        "model_type": "roformer" if isinstance(config, RoFormerConfig) else config.model_type,
        "architectures": config.architectures[:1],
        **own_fields(checkpoint.family, config, checkpoint.tokenizer),
    }


def write_vocabulary(path: Path, old: Path, tokenizer: RoFormerTokenizer, size: int) -> int:
    """Write vocab.txt with an entry for each row of the embeddings; return the number of unused entries."""
    entries = tokenizer.get_vocab()
    unused = size - len(entries)
    if not unused and old.name == VOCABULARY and read_vocabulary(old).ids == entries:
        shutil.copyfile(old, path)
        return 0
    taken = sum(entry.startswith("[unused") for entry in entries)
    names = (f"[unused{number}]" for number in range(taken, taken + len(entries) + size))
    free = (name for name in names if name not in entries)
    save_vocabulary(entries | {next(free): number for number in range(size) if number not in entries.values()}, path)
    return unused


def call(family: str, config: PreTrainedConfig, prefix: str, weights: list[Weight], has_language_model: bool) -> str:
    """Return the Python call that loads the model in bert4keras."""
    arguments = [f"'{CONFIGS[0]}'", f"'{prefix}'", f"model='{MODELS[family]}'"]
    if getattr(config, "prefix_lm", False):
        arguments.append("application='unilm'")
    elif getattr(config, "is_decoder", False):
        arguments.append("application='lm'")
    if any(weight.variable == "bert/pooler/dense/kernel" for weight in weights):
        activation = config.pooler_activation if isinstance(config, RoFormerConfig) else "tanh"
        arguments.append(f"with_pool='{NAMES[activation]}'")
    if has_language_model and "application='lm'" not in arguments:
        arguments.append("with_mlm='linear'")
    return f"build_transformer_model({', '.join(arguments)})"


def tokenizer_call(tokenizer: RoFormerTokenizer) -> str:
    """Return the Python call that makes the tokenizer in bert4keras."""
    arguments = [f"'{VOCABULARY}'", f"do_lower_case={tokenizer.do_lower_case}"]
    if tokenizer.word_segmentation == "jieba":
        arguments.append("pre_tokenize=lambda text: jieba.cut(text, HMM=False)")
    return f"Tokenizer({', '.join(arguments)})"


def notes(tokenizer: RoFormerTokenizer, has_language_model: bool, unused: int) -> list[str]:
    """Return remarks for the summary."""
    notes = []
    if added := [token.content for token in added_tokens(tokenizer).values()]:
        notes.append(f"bert4keras does not find added tokens in text: {', '.join(added)}")
    if not has_language_model:
        notes.append("the model has no language-model head, which with_mlm and application need")
    if unused:
        notes.append(f"{unused} rows of the embeddings without an entry are called [unused…] in {VOCABULARY}")
    return notes
