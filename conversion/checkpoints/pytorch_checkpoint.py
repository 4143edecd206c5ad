"""Read PyTorch checkpoints of transformers, of the `roformer` package 0.4.3 and of WoBERT, weight by weight.

Classes and keys stay the same. The class that the configuration names is created on the meta device and determines the
expected weights, so any RoFormer, BERT or NEZHA head is converted without a list of heads.
"""

import json
import re
from functools import partial
from pathlib import Path

import torch
from transformers import BertConfig, PreTrainedConfig
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from modeling_roformer.configuration import RoFormerConfig
from modeling_roformer.model_cards.kinds import KINDS, kind_of
from modeling_roformer.saved_fields import MODEL_TYPES
from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

from ..errors import CheckpointError
from ..families import roformer_gpt, roformer_sim, simbert, wobert
from ..families.family import Weight
from ..families.registry import AUTO, FAMILIES
from ..families.roformer_start import NOTE
from ..families.roformer_v1 import PLAIN_TRANSFORMERS_POSITIONS
from ..families.signs import check_application
from ..folder.legacy_folder import TOKENIZER, LegacyFiles
from ..folder.saved_tokenizer import CONFIG as TOKENIZER_CONFIG
from ..folder.saved_tokenizer import read_tokenizer, written_anew
from ..folder.settings import class_of, read_fields
from ..folder.vocabulary import Vocabulary
from ..formats.pytorch_source import PyTorchSource
from .checkpoint import Checkpoint, Plan, check_tensor, make_config
from .exported import model_on_meta

# The key prefixes and model_types of the supported configurations, and the prefixes of their class names.
MODELS = {"roformer": "RoFormer", "bert": "Bert", "nezha": "Nezha"}
CONFIGS = (*MODELS, *MODEL_TYPES[1:])
# Fields on code, paths and tokenizers, which are not copied.
NOT_KEPT = ("auto_map", "custom_pipelines", "_name_or_path", "tokenizer_class")

_POOLER = re.compile(r"(\w+\.)?pooler\.")
_BERT_POOLER = {"pooler.dense.weight", "pooler.dense.bias"}
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# One parameter in memory, which versions of transformers save under one of these names or under both.
_TWINS = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
_TWINS |= {bias: other for other, bias in _TWINS.items()}
_POSITIONS = "embeddings.position_embeddings.weight"
# Tensors that a file may have besides the weights of the class, and their kind in the summary.
_LEFT_OUT = {
    r"(\w+\.)?encoder\.embed_positions\.weight": "table of sinusoids",
    r"(\w+\.)?embeddings\.(position_ids|token_type_ids)": "buffer",
    r"(\w+\.)?encoder\..*relative_positions_encoding\.positions_encoding": "table of sinusoids",
    r"cls\.seq_relationship\.(weight|bias)": "next-sentence head",
    _POOLER.pattern + r"dense\.(weight|bias)": "pooler",
}
_ANOTHER_CLASS = "correct architectures or num_hidden_layers in {} if another model was saved"
_DUPLICATE = "second copy of a tied weight"


def read_pytorch(
    files: LegacyFiles, requested: str = AUTO, target: str | None = None, padded_vocabulary: bool = False
) -> Checkpoint:
    """Open a checkpoint and match all its tensors to the weights of its class.

    `requested` is AUTO or the checkpoint's family; `target` "roformer" turns a BERT into a RoFormer, and the family
    "simbert" a BERT with a pooler into a RoFormer with a table of positions. The folder's name is not used.
    `padded_vocabulary` accepts embeddings with more rows than vocab.txt has entries. A tokenizer.json, as this package
    saves it, has the id of every entry: its vocabulary cannot have been shifted.

    Raises CheckpointError, one sentence, if configuration, vocabulary and tensors do not belong to one model.
    """
    source = PyTorchSource(files.weights)
    source.unwrap()
    fields = read_fields(files.config)
    base = _base(files.config, fields, source)
    architecture = _architecture(files.config, fields, base, source, requested)
    name = _checked_family(requested, _recognise(base, fields, architecture, source), base, source)
    if base == "roformer":
        architecture = _set_pooler_fields(fields, name, requested, architecture, files, source)
    if name == requested == roformer_gpt.FAMILY.name:
        _set_causal_mask(files.config, fields)
    config = _config(files.config, base, {**fields, "architectures": [architecture]})
    check_application(files.config, fields)
    changes: dict[str, object] = {}
    # A class of decoders may also have another mask, whose prompts end with [SEP].
    has_ends = name != roformer_gpt.FAMILY.name or (config.is_decoder and not config.prefix_lm)
    if has_ends and base == "roformer":
        stated = read_fields(files.vocab.with_name(TOKENIZER_CONFIG), default={})
        changes |= {key: value for key, value in FAMILIES[name].tokenizer(config).items() if key not in stated}
    if target is not None:  # a RoFormer has no length limit
        changes["model_max_length"] = VERY_LARGE_INTEGER
    tokenizer = _tokenizer(files, config, changes)
    if has_ends:
        ids = {"[CLS]": tokenizer.cls_token_id, "[SEP]": tokenizer.sep_token_id}
        for field, value in FAMILIES[name].end_ids(ids.get).items():
            if field not in fields:
                setattr(config, field, value)
    vocabulary = Vocabulary(files.vocab, tokenizer.get_vocab())
    title, note, written = FAMILIES[name].title_of(vocabulary), None, architecture
    if isinstance(config, RoFormerConfig):
        title = KINDS[kind_of(config.to_dict(), vocabulary.word_level)].title
        if target is not None:
            raise CheckpointError(f"--as {target} needs a BERT (WoBERT, WoNEZHA), but {source.path} is a {title}")
    elif target is not None:
        note = NOTE.format(title=title)
        config, written = _as_roformer(config, source, tokenizer, {"is_decoder": getattr(config, "is_decoder", False)})
    elif name == simbert.FAMILY.name:
        note, length = simbert.FAMILY.note, config.max_position_embeddings
        table = {"position_encoding": "learned", "max_position_embeddings": length}
        config, written = _as_roformer(config, source, tokenizer, roformer_sim.OWN_FIELDS | table)
    plan, copies = _plan(source, config, written, files.config, renamed=None if note is None else base)
    rows = {"left out: training": ", ".join(source.beside)} if source.beside else {}
    has_lost_pooler = name == wobert.FAMILY.name and target is None and "pooler" in plan.extras
    warnings = []
    if not files.vocab.with_name(TOKENIZER).is_file():
        warnings = vocabulary.check_padding(config.vocab_size, files.config, source.path, padded_vocabulary)
    return Checkpoint(
        family=name,
        title=title,
        sign=f"{files.config.name} says {base}" + (f", {architecture}" if target is None else ""),
        note=note,
        source=source,
        vocabulary=vocabulary,
        fields=config.to_dict(),
        plan=plan,
        make_config=lambda: config,
        make_tokenizer=lambda _: tokenizer,
        check_values=partial(_check_copies, source, copies, files.config),
        ignored_settings=[name for name in NOT_KEPT if name in fields],
        rows=rows | ({"pooler": simbert.POOLER_ROW} if has_lost_pooler else {}),
        warnings=warnings,
    )


def _base(path: Path, fields: dict, source: PyTorchSource) -> str:
    """Return one of `MODELS`, by model_type or, without it, by the prefix of the keys."""
    model_type = fields.get("model_type")
    if model_type is None:
        prefixes = {name.split(".")[0] for name in source.entries} & MODELS.keys()
        model_type = next(iter(prefixes), None)
    if model_type not in CONFIGS:
        raise CheckpointError(f"{path}: model_type is {model_type!r}, but only {', '.join(CONFIGS)} can be converted")
    return "roformer" if model_type in MODEL_TYPES else model_type


def _architecture(path: Path, fields: dict, base: str, source: PyTorchSource, requested: str) -> str:
    """Return the class that was saved or, if the configuration names none, the class that the tensors belong to."""
    if named := class_of(path, fields):
        return named
    family = MODELS[base]
    if any(name.startswith("cls.predictions.") for name in source.entries):
        causal = base == "roformer" and (fields.get("is_decoder") or requested == roformer_gpt.FAMILY.name)
        return f"{family}ForCausalLM" if causal else f"{family}ForMaskedLM"
    parts = ("embeddings", "encoder", "pooler")
    if all(name.removeprefix(f"{base}.").startswith(parts) for name in source.entries):
        return f"{family}Model"
    raise CheckpointError(f"{path} does not say which class was saved: add its name there, in architectures")


def _recognise(base: str, fields: dict, architecture: str, source: PyTorchSource) -> str:
    if base != "roformer":
        return {"bert": "wobert", "nezha": "wonezha"}[base]
    if fields.get("norm_type") == "rms_norm":
        return "v2"
    if _has_pooler(source) and (fields.get("pooler_activation") == "linear" or fields.get("prefix_lm")):
        return "simbert" if fields.get("position_encoding") == "learned" else "sim"
    return "gpt" if architecture == "RoFormerForCausalLM" else "roformer"


def _checked_family(requested: str, detected: str, base: str, source: PyTorchSource) -> str:
    """Return the requested family, if the checkpoint can be of it: the use of a pooler is not in the files."""
    others = ("sim", "roformer") if base == "roformer" and detected != "v2" else ("simbert",) if base == "bert" else ()
    if requested in (AUTO, detected):
        return detected
    if requested in others and _has_pooler(source):
        return requested
    raise CheckpointError(
        f"{source.path} is a {FAMILIES[detected].title}, not a {FAMILIES[requested].title} (--family {requested}): "
        f"leave --family out, or use --family {detected}"
    )


def _has_pooler(source: PyTorchSource) -> bool:
    return any(_POOLER.match(name) for name in source.entries)


def _set_pooler_fields(
    fields: dict, name: str, requested: str, architecture: str, files: LegacyFiles, source: PyTorchSource
) -> str:
    """Set a RoFormer's fields that describe its pooler; return the name of its class.

    The roformer package 0.4.3 has no fields for the existence of a pooler and for UniLM's mask. Only a request leaves
    out a pooler whose activation is not stated: it may be RoFormer-Sim's, with UniLM's mask.
    """
    if not _has_pooler(source):
        return architecture
    is_sim = fields.get("pooler_activation") in (None, "linear") or fields.get("prefix_lm")
    if requested == "roformer" and is_sim:
        fields |= {"add_pooling_layer": False, "is_decoder": False, "prefix_lm": False}
        return architecture.replace("ForCausalLM", "ForMaskedLM")
    if name == "sim" and "prefix_lm" not in fields:
        fields |= {"is_decoder": True, "prefix_lm": True, "pooler_activation": "linear"}
        architecture = architecture.replace("ForMaskedLM", "ForCausalLM")
    if fields.get("pooler_activation") is None:
        raise CheckpointError(
            f"{source.path} has a pooler, but {files.config.name} lacks its activation: use --family sim for "
            'RoFormer-Sim\'s pooler, --family roformer to leave it out, or add "pooler_activation": "tanh" for BERT\'s'
        )
    fields["add_pooling_layer"] = True
    return architecture


def _set_causal_mask(path: Path, fields: dict) -> None:
    """Set the field of the mask of a RoFormer-GPT that was requested, if the configuration (`path`) leaves it open."""
    for name, value in (("is_decoder", True), ("prefix_lm", False)):
        if fields.get(name) not in (None, value):
            raise CheckpointError(
                f'--family gpt says that the mask is causal, but {path} says "{name}": {json.dumps(fields[name])}: '
                f'leave --family out, or write "{name}": {json.dumps(value)} there'
            )
    fields["is_decoder"] = True


def _config(path: Path, base: str, fields: dict) -> PreTrainedConfig:
    config = make_config(path, base, {name: value for name, value in fields.items() if name not in NOT_KEPT})
    if base == "roformer" and config.position_encoding != "learned":  # whose table has that length
        config.max_position_embeddings = max(config.max_position_embeddings, PLAIN_TRANSFORMERS_POSITIONS)
    return config


def _as_roformer(
    bert: PreTrainedConfig, source: PyTorchSource, tokenizer: RoFormerTokenizer, fields: dict[str, object]
) -> tuple[RoFormerConfig, str]:
    """Return configuration and class of the RoFormer with a BERT's weights, given the fields that differ."""
    same = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "type_vocab_size",
        "initializer_range",
        "layer_norm_eps",
        "pad_token_id",
        "tie_word_embeddings",
    )
    values = {name: getattr(bert, name) for name in same} | fields
    architecture = "RoFormerForCausalLM" if values["is_decoder"] else "RoFormerForMaskedLM"
    if not any(name.startswith("cls.predictions.") for name in source.entries):
        architecture = "RoFormerModel"
    if values["is_decoder"]:
        values["eos_token_id"] = tokenizer.sep_token_id
    return RoFormerConfig(**values, architectures=[architecture]), architecture


def _tokenizer(files: LegacyFiles, config: PreTrainedConfig, changes: dict[str, object]) -> RoFormerTokenizer:
    """Return the folder's tokenizer as a RoFormerTokenizer; BERT's table of positions limits its maximum length."""
    old = read_tokenizer(files.vocab.parent)
    if isinstance(config, BertConfig):
        changes = {"model_max_length": min(old.model_max_length, config.max_position_embeddings)} | changes
    tokenizer = written_anew(old, **changes)
    if max(tokenizer.get_vocab().values()) >= config.vocab_size:
        raise CheckpointError(
            f"{files.vocab} has {len(tokenizer):,} entries; vocab_size in {files.config.name} is {config.vocab_size:,}"
        )
    return tokenizer


def _plan(
    source: PyTorchSource, config: PreTrainedConfig, architecture: str, path: Path, renamed: str | None = None
) -> tuple[Plan, dict[str, str]]:
    """Use every tensor once, or leave it out by name; give every weight of the class its tensor.

    The second result maps a second copy of a tied weight to the tensor that is used. `renamed` is a key prefix to
    replace by the class's own, for a BERT that becomes a RoFormer.
    """
    model = model_on_meta(config, architecture, path)
    wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    tied = model.all_tied_weights_keys
    tensors: dict[str, str] = {}
    extras: dict[str, list[str]] = {}
    copies: dict[str, str] = {}
    for name, entry in source.entries.items():
        key = _key(name, wanted, model.base_model_prefix, renamed)
        if key not in wanted:
            extras.setdefault(_left_out(name, architecture, source, renamed, path), []).append(name)
            continue
        if key in tensors:
            raise CheckpointError(f"{source.path} has two tensors for the weight {key}: {tensors[key]} and {name}")
        check_tensor(source, entry, wanted[key], path)
        tensors[key] = name
    for key, original in tied.items():
        if key in tensors:
            copy = tensors.pop(key)
            if tensors.setdefault(original, copy) != copy:
                copies[copy] = tensors[original]
                extras.setdefault(_DUPLICATE, []).append(copy)
    for key in wanted.keys() & _TWINS.keys() - tied.keys() - tensors.keys():
        if _TWINS[key] in tensors:
            tensors[key] = tensors[_TWINS[key]]
    missing = [key for key in wanted if key not in tensors and key not in tied]
    if architecture == "BertModel" and set(missing) == _BERT_POOLER:  # saved with add_pooling_layer=False
        missing = []
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(
            f"{source.path} has no tensor for the weight {missing[0]}{more} of {architecture}; "
            + _ANOTHER_CLASS.format(path.name)
        )
    order = {entry.name: number for number, entry in enumerate(source.in_file_order())}
    weights = [Weight(key, name, wanted[key]) for key, name in tensors.items()]
    return Plan(sorted(weights, key=lambda weight: order[weight.variable]), extras), copies


def _key(name: str, wanted: dict, base: str, renamed: str | None) -> str:
    """Return a tensor's key in its class: its current name, with or without the base model's prefix."""
    if renamed is not None and name.startswith(f"{renamed}."):
        name = base + name[len(renamed) :]
    for old, new in _OLD_NAMES.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    forms = (name, f"{base}.{name}", name.removeprefix(f"{base}."))
    return next((form for form in forms if form in wanted), name)


def _left_out(name: str, architecture: str, source: PyTorchSource, renamed: str | None, path: Path) -> str:
    if renamed is not None and name.endswith(_POSITIONS):
        return "table of positions"
    for pattern, kind in _LEFT_OUT.items():
        if re.fullmatch(pattern, name):
            return kind
    advice = _ANOTHER_CLASS if renamed is None else "to convert the encoder alone, save it by AutoModel first"
    raise CheckpointError(
        f"{source.path} has a tensor that is not part of {architecture}: {name}; {advice.format(path.name)}"
    )


def _check_copies(source: PyTorchSource, copies: dict[str, str], path: Path) -> None:
    """Raise CheckpointError if two tensors that the configuration (the file `path`) ties have different values."""
    for copy, name in copies.items():
        if not torch.equal(source.tensor(name), source.tensor(copy)):
            raise CheckpointError(
                f"{source.path} has different values in {copy} and {name}, but {path.name} ties them: to keep both, "
                'set "tie_word_embeddings": false there'
            )
