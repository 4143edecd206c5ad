"""Describe a saved model: config.json, tokenizer, and the headers of safetensors or PyTorch files."""

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path

from ...files.reading import read_json, read_whole
from ...model_cards.cards import is_published
from ...model_cards.facts import DTYPES, loads_with, read_facts, vocabulary_of
from ...model_cards.kinds import KINDS, architecture_of, kind_of, size_of, why_package_is_needed
from ...model_cards.releases import RELEASES
from ...model_cards.usage import task_of
from ...tokenization.vocabulary import has_words
from ..errors import CheckpointError
from ..families.signs import check_application
from ..folder.legacy_folder import GENERATION_CONFIG
from ..formats.pytorch_source import PyTorchSource
from .checkpoint_info import CheckpointInfo

# Tensors in a file that are not parameters: computed tables and position ids.
COMPUTED = ("embed_positions.weight", "position_ids", "token_type_ids", "positions_encoding")
TIED = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
PROVENANCE = ("source", "converted", "note")
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "embedding_size")
SIZES += ("max_position_embeddings", "max_relative_position")
NAMES = ("model_type", "position_encoding", "hidden_act")
EXPECTED = (
    dict.fromkeys(SIZES, int) | dict.fromkeys(NAMES, str) | dict.fromkeys(("rope_parameters", "rope_scaling"), dict)
)


def saved_info(
    folder: Path,
    config_file: Path,
    weights: str | None,
    shown: str,
    name: str,
    unpacked: bool = True,
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
) -> CheckpointInfo:
    """Describe the saved model in `folder`; `weights` is its file, or the index of its shards.

    `tensors`, name -> dtype and shape, are given if the files are elsewhere.
    """
    config = read_json(config_file, default={})
    if "model_type" not in config and "hidden_size" not in config:
        raise ValueError(f"{shown} has no recognisable checkpoint: {config_file.name} has no model_type and no sizes")
    notes: list[str] = []
    for field, expected in EXPECTED.items():
        if not isinstance(config.get(field), (expected, type(None))):
            notes.append(f"{config_file.name}: {field} is {config.pop(field)!r}; expected {expected.__name__}")
    if tensors is None:
        tensors, trouble = _tensors(folder, weights, unpacked)
        notes += [trouble] if trouble else []
    notes += generation_notes(folder)
    tokenizer = read_json(folder / "tokenizer_config.json", default={})
    try:
        entries = vocabulary_of(folder)
    except ValueError as error:
        entries = {}
        notes.append(str(error))
    word_level = has_words(entries)
    card = folder / "README.md"
    facts = read_facts(read_whole(card, errors="replace") if card.is_file() else "")
    family, sign = _family(config, word_level, tensors)
    try:  # a RoFormer-Sim of the package roformer 0.4.3 has no field for its mask
        is_sim = family == KINDS["sim"].title
        check_application(config_file, config | ({"is_decoder": True, "prefix_lm": True} if is_sim else {}))
    except CheckpointError as error:
        notes.append(str(error))
    reason = why_package_is_needed(config, tokenizer)
    counted = _counted(config, tensors)
    vocabulary = vocabulary_info(entries) if entries else {"entries": n} if (n := config.get("vocab_size")) else {}
    dtypes: dict[str, int] = {}
    for dtype, shape in counted.values():
        dtypes[dtype] = dtypes.get(dtype, 0) + prod(shape)
    if config.get("attention_type") == "linear":
        notes.append(f"linear attention, with the feature map {config.get('linear_feature_map', 'elu')}")
    if family == KINDS["seq2seq"].title:
        notes.append(f"the sizes are its encoder's; the decoder has {config.get('decoder_layers')} layers")
        vocabulary = {"entries": config.get("vocab_size")}  # of any tokenizer
    width, embedding = size_of(config, "hidden_size"), config.get("embedding_size")
    return CheckpointInfo(
        path=shown,
        kind="saved model",
        family=family,
        sign=sign,
        model_type=config.get("model_type"),
        architecture=architecture_of(config),
        task=task_of(config, word_level) if family else None,
        layers=size_of(config, "num_hidden_layers"),
        hidden_size=width,
        attention_heads=size_of(config, "num_attention_heads"),
        feed_forward_size=size_of(config, "intermediate_size"),
        embedding_size=None if embedding == width else embedding,
        activation=size_of(config, "hidden_act"),
        parameters=sum(dtypes.values()) or None,
        dtypes=dtypes,
        vocabulary=vocabulary,
        tokenizer=_tokenizer(tokenizer, word_level),
        positions=_positions(config, word_level),
        trained_length=_trained_length(config, word_level, facts.get("source", name), facts.get("trained at", "")),
        needs_package=reason is not None,
        loads_with=loads_with(config, reason),
        source={row: value for row, value in facts.items() if row.startswith(PROVENANCE)},
        notes=notes,
    )


def generation_notes(folder: Path) -> list[str]:
    """Return why a folder's generation_config.json cannot be read, as `roformer convert` says it; empty if it can."""
    try:
        read_json(folder / GENERATION_CONFIG, default={})
    except ValueError as error:
        return [str(error)]
    return []


def vocabulary_info(entries: Mapping[str, int]) -> dict[str, object]:
    """Return the numbers of entries and of words in a vocabulary, and the unit into which it splits Chinese."""
    words = sum(has_words([entry]) for entry in entries)
    return {"entries": len(entries), "words": words, "unit": "word" if words else "character"}


def _tensors(folder: Path, weights: str | None, unpacked: bool) -> tuple[dict, str | None]:
    """Return name -> dtype and shape by the headers, and the reason if they could not be read."""
    if weights is None:
        return {}, "it has no weights"
    if not unpacked:
        return {}, f"{weights} is not read from inside the .zip, so its parameters are not counted"
    try:
        source = PyTorchSource(folder / weights)
        source.unwrap()
    except (CheckpointError, OSError) as error:
        return {}, str(error)
    return {entry.name: (entry.dtype, entry.shape) for entry in source.entries.values()}, None


def _counted(config: dict, tensors: Mapping) -> dict:
    """Return the tensors that count as the model's parameters."""
    tied = TIED if config.get("tie_word_embeddings", True) and "cls.predictions.bias" in tensors else set()
    return {
        name: (DTYPES.get(dtype, dtype), shape)
        for name, (dtype, shape) in tensors.items()
        if name not in tied and not name.endswith(COMPUTED)
    }


def _family(config: dict, word_level: bool, tensors: Mapping) -> tuple[str | None, str | None]:
    kind = kind_of(config, word_level)
    if kind is None:
        return None, f"model_type {config.get('model_type')} is not one of this package's"
    # The package roformer 0.4.3 has no field for UniLM's mask, and not always one for the pooler's activation.
    if kind in ("roformer", "gpt") and "prefix_lm" not in config and _has_linear_pooler(config, tensors):
        return KINDS["sim"].title, "its weights have a pooler and an MLM head"
    return KINDS[kind].title, None


def _has_linear_pooler(config: dict, tensors: Mapping) -> bool:
    """Return whether a RoFormer has a pooler that the configuration calls linear, or gives no activation."""
    has_pooler = "roformer.pooler.dense.weight" in tensors and "cls.predictions.bias" in tensors
    return has_pooler and config.get("pooler_activation") in (None, "linear")


def _tokenizer(fields: dict, word_level: bool) -> str | None:
    name = fields.get("tokenizer_class")
    if not isinstance(name, str):
        return None
    words = fields.get("word_segmentation", "jieba" if word_level and "RoFormer" in name else None)
    told = [f"words by {words}"] if words and word_level else []
    told += ["lower-cased"] if fields.get("do_lower_case") else []
    return ", ".join([name, *told])


def _positions(config: dict, word_level: bool) -> dict[str, object]:
    kind = kind_of(config, word_level)
    if kind in ("bert", "wobert"):
        return {"type": "a table", "length": config.get("max_position_embeddings")}
    if kind in ("nezha", "wonezha"):
        return {"type": "relative", "up_to_distance": config.get("max_relative_position", 64)}
    if kind is None:
        return {}
    if (encoding := config.get("position_encoding", "rotary")) != "rotary":
        return {"type": encoding} | ({"length": _table_length(config)} if encoding == "learned" else {})
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    scaling = rope.get("rope_type", rope.get("type", "default"))
    known = {"type": "rotary", "theta": theta, "scaling": None if scaling == "default" else scaling}
    known["factor"] = rope.get("factor")
    known["values_too"] = "yes" if config.get("rotary_value") else None
    known["frequencies"] = "trained" if config.get("trainable_rope") else None
    return {name: value for name, value in known.items() if value is not None}


def _trained_length(config: dict, word_level: bool, name: str, in_card: str) -> int | None:
    rope = config.get("rope_parameters") or {}
    if isinstance(length := rope.get("original_max_position_embeddings"), int):
        return length
    if kind_of(config, word_level) in ("bert", "wobert"):
        return config.get("max_position_embeddings")
    if config.get("position_encoding") == "learned":
        return _table_length(config)
    if stated := re.fullmatch(r"up to ([\d,]+) tokens", in_card):  # by the script that trained it
        return int(stated[1].replace(",", ""))
    return RELEASES[name].trained_length if is_published(name, config, word_level) else None


def _table_length(config: dict) -> int:
    """Return the number of learned positions of a RoFormer; the default is that of `RoFormerConfig`."""
    return config.get("max_position_embeddings", 1536)
