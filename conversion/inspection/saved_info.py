"""Describe a saved model: config.json, tokenizer, and the headers of safetensors or PyTorch files."""

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path

from modeling_roformer.files.reading import read_json, read_whole
from modeling_roformer.model_cards.facts import DTYPES, loads_with, read_facts, vocabulary_of
from modeling_roformer.model_cards.kinds import KINDS, architecture_of, kind_of, why_package_is_needed
from modeling_roformer.model_cards.usage import task_of
from modeling_roformer.tokenization.vocabulary import has_words

from ..checkpoints.reading import read_checkpoint
from ..errors import CheckpointError
from ..folder.legacy_folder import find_files
from ..folder.settings import OPTIONAL_SIZES, REQUIRED_SIZES, check_types
from ..formats.pytorch_source import PyTorchSource
from .checkpoint_info import CheckpointInfo
from .config_info import config_info, vocabulary_info

# Tensors in a file that are not parameters: computed tables and position ids.
COMPUTED = ("embed_positions.weight", "position_ids", "token_type_ids", "positions_encoding")
TIED = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
# Fields of config.json by their type, whose values are formatted or looked up here.
TYPES = {
    int: (
        *REQUIRED_SIZES,
        *OPTIONAL_SIZES,
        "max_relative_position",
        "d_model",
        "encoder_layers",
        "encoder_attention_heads",
        "encoder_ffn_dim",
        "decoder_layers",
    ),
    str: ("model_type", "hidden_act", "activation_function", "position_encoding"),
    dict: ("rope_parameters", "rope_scaling"),
}
PROVENANCE = ("source", "converted", "note")


def saved_info(
    folder: Path,
    config_file: Path,
    weights: str | None,
    shown: str,
    name: str,
    has_data: bool = True,
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
) -> CheckpointInfo:
    """Describe the saved model in `folder`; `weights` is its file, or the index of its shards.

    `tensors`, name -> dtype and shape, are given if the files are elsewhere.
    """
    config = read_json(config_file, default={})
    check_types(config_file, config, TYPES)
    notes: list[str] = []
    checkpoint, refusal = None, None
    if weights is not None and has_data and _is_to_be_converted(config, weights):
        try:
            checkpoint = read_checkpoint(find_files(folder), name)
        except CheckpointError as error:
            refusal = str(error)
    if tensors is None:
        tensors, trouble = _tensors(folder, weights, has_data)
        notes += [trouble] if trouble else []
    tokenizer = read_json(folder / "tokenizer_config.json", default={})
    check_types(folder / "tokenizer_config.json", tokenizer, {str: ("tokenizer_class", "word_segmentation")})
    entries = vocabulary_of(folder)
    word_level = has_words(entries)
    card = folder / "README.md"
    facts = read_facts(read_whole(card, errors="replace") if card.is_file() else "")
    kind = kind_of(config, word_level)
    family, sign = KINDS[kind].title if kind else None, None
    if kind is None:
        sign = f"model_type {config.get('model_type')} is not one of this package's"
    dtypes = _parameters(config, tensors)
    if checkpoint is not None:
        family, sign, dtypes = checkpoint.title, checkpoint.sign, checkpoint.parameters
    elif refusal is not None:
        notes = [refusal, *(note for note in notes if note != refusal)]
    reason = why_package_is_needed(config, tokenizer)
    vocabulary = vocabulary_info(entries) if entries else {"entries": n} if (n := config.get("vocab_size")) else {}
    if config.get("attention_type") == "linear":
        notes.append(f"linear attention, with the feature map {config.get('linear_feature_map', 'elu')}")
    if kind == "seq2seq":
        notes.append(f"the sizes are its encoder's; the decoder has {config.get('decoder_layers')} layers")
        vocabulary = {"entries": config.get("vocab_size")}  # of any tokenizer
    return CheckpointInfo(
        path=shown,
        kind="saved model",
        family=family,
        sign=sign,
        model_type=config.get("model_type"),
        architecture=architecture_of(config),
        task=task_of(config, word_level) if family else None,
        converts_to=checkpoint and checkpoint.architecture,
        parameters=sum(dtypes.values()) or None,
        dtypes=dtypes,
        vocabulary=vocabulary,
        tokenizer=_tokenizer(tokenizer, word_level),
        needs_package=reason is not None,
        loads_with=loads_with(config, reason),
        left_out={kind: len(names) for kind, names in checkpoint.plan.extras.items()} if checkpoint else {},
        source={row: value for row, value in facts.items() if row.startswith(PROVENANCE)},
        notes=notes,
        **config_info(config, word_level, facts.get("source", name), facts.get("trained at", "")),
    )


def _is_to_be_converted(config: Mapping, weights: str) -> bool:
    """Return whether `roformer convert` is meant for a saved model: transformers 5 did not write it.

    What transformers 5 wrote loads as it is, so the import of torch, which takes seconds, is saved.
    """
    version = re.match(r"\d+", str(config.get("transformers_version", "")))
    is_current = version is not None and int(version[0]) >= 5 and ".safetensors" in weights
    return not is_current and kind_of(config, word_level=False) not in (None, "seq2seq")


def _tensors(folder: Path, weights: str | None, has_data: bool) -> tuple[dict, str | None]:
    """Return name -> dtype and shape by the headers, and the reason if they could not be read."""
    if weights is None:
        return {}, "it has no weights"
    if not has_data:
        return {}, f"{weights} is not read from inside the .zip, so its parameters are not counted"
    try:
        source = PyTorchSource(folder / weights)
        source.unwrap()
    except (CheckpointError, OSError) as error:
        return {}, str(error)
    return {entry.name: (entry.dtype, entry.shape) for entry in source.entries.values()}, None


def _parameters(config: Mapping, tensors: Mapping) -> dict[str, int]:
    """Return the number of the model's parameters by dtype."""
    tied = TIED if config.get("tie_word_embeddings", True) and "cls.predictions.bias" in tensors else set()
    counts: dict[str, int] = {}
    for name, (dtype, shape) in tensors.items():
        if name not in tied and not name.endswith(COMPUTED):
            dtype = DTYPES.get(dtype, dtype)
            counts[dtype] = counts.get(dtype, 0) + prod(shape)
    return counts


def _tokenizer(fields: dict, word_level: bool) -> str | None:
    name = fields.get("tokenizer_class")
    if name is None:
        return None
    words = fields.get("word_segmentation", "jieba" if word_level and "RoFormer" in name else None)
    told = [f"words by {words}"] if words and word_level else []
    told += ["lower-cased"] if fields.get("do_lower_case") else []
    return ", ".join([name, *told])
