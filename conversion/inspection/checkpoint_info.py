"""The facts about a checkpoint, for programs as JSON and for people as a table.

What `roformer convert` reads is described by what it finds (checkpoints/reading.py). What transformers 5 saved needs no
conversion: its configuration, the headers of its weights and its card describe it.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from rich.filesize import decimal
from rich.table import Table

from modeling_roformer.files.reading import read_json, read_whole
from modeling_roformer.model_cards.cards import is_published
from modeling_roformer.model_cards.facts import (
    DTYPES,
    loads_with,
    read_facts,
    trained_at,
    trained_length,
    vocabulary_of,
)
from modeling_roformer.model_cards.kinds import KINDS, architecture_of, kind_of, size_of, why_package_is_needed
from modeling_roformer.model_cards.releases import RELEASES
from modeling_roformer.model_cards.servers import servers_of
from modeling_roformer.model_cards.usage import task_of
from modeling_roformer.output.console import summary_table

from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.heads import NONE
from ..checkpoints.reading import open_source, read_checkpoint
from ..errors import CheckpointError
from ..folder.legacy_folder import CONFIGS, TOKENIZER_CONFIG, find_files, find_weights, several_weights
from ..folder.settings import OPTIONAL_SIZES, REQUIRED_SIZES, check_types
from ..folder.vocabulary import Vocabulary
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.pytorch_files import PYTORCH
from ..formats.source import WithZeros
from ..formats.tensor_bundle import TensorBundle

CARD = "README.md"
FORMATS = {
    TensorBundle: "TensorFlow checkpoint",
    KerasBundle: "tf.keras weights",
    KerasHDF5: "Keras weights, HDF5",
}
PROVENANCE = ("source", "converted", "note")  # beginnings of rows of a card
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
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # name -> dtype and shape


@dataclass
class CheckpointInfo:
    """The facts about a checkpoint; None, or empty, where unknown.

    `kind` is the kind of its files; `family` is its name, and `sign` the evidence for it. `converts_to` is the class of
    the model that `roformer convert` makes of it; None if it makes none, or need not. `parameters` counts those of the
    model, without computed tables and second copies of tied weights; `dtypes` counts them by dtype. `vocabulary`
    has `entries`, `words` and `unit`; `positions` has `type` and its properties. `trained_length`, in tokens, is that
    of the released checkpoint, of the table of positions, or of rope_parameters. `source` is the origin by the model
    card. `servers` are those that need no code of this package, with their commands. `files` are pairs of name and
    bytes, and `notes` are sentences on parts that could not be read.
    """

    path: str
    kind: str
    family: str | None = None
    sign: str | None = None
    model_type: str | None = None
    architecture: str | None = None
    task: str | None = None
    converts_to: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    attention_heads: int | None = None
    feed_forward_size: int | None = None
    embedding_size: int | None = None
    activation: str | None = None
    parameters: int | None = None
    dtypes: dict[str, int] = field(default_factory=dict)
    vocabulary: dict[str, object] = field(default_factory=dict)
    tokenizer: str | None = None
    positions: dict[str, object] = field(default_factory=dict)
    trained_length: int | None = None
    needs_package: bool | None = None
    loads_with: str | None = None
    servers: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    files: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def json(self) -> str:
        """Return all facts for programs: an object with the fields' names as keys, and files as {name, size}."""
        files = [{"name": name, "size": size} for name, size in self.files]
        return json.dumps(dataclasses.asdict(self) | {"files": files}, ensure_ascii=False, indent=2)

    def rows(self) -> dict[str, str]:
        """Return all facts for people: the label and the text of each line of the table."""
        sizes = [
            self.layers and self.hidden_size and f"{self.layers} layers x {self.hidden_size:,}",
            self.attention_heads and f"{self.attention_heads} heads",
            self.feed_forward_size and f"feed-forward {self.feed_forward_size:,}",
            self.embedding_size and f"embeddings {self.embedding_size:,}",
        ]
        rows = {
            "checkpoint": f"{self.path} ({self.kind})",
            "family": _because(self.family, self.sign),
            "class": _because(self.architecture, self.model_type and f"model_type {self.model_type}"),
            "task": self.task,
            "converts to": self.converts_to,
            "size": ", ".join(filter(None, sizes)),
            "parameters": self.parameters and f"{self.parameters:,}",
            "dtype": _dtypes(self.dtypes),
            "vocabulary": _vocabulary(self.vocabulary),
            "tokenizer": self.tokenizer,
            "positions": _positions(self.positions),
            "activation": self.activation,
            "trained at": self.trained_length and trained_at(self.trained_length),
            "loads with": self.loads_with,
            "servers": "\n".join(self.servers),
            "besides the model": ", ".join(f"{name} ({count:,})" for name, count in self.left_out.items()),
            "source": "\n".join(
                value if name == "source" else f"{name.removeprefix('source file ')}  {value}"
                for name, value in self.source.items()
            ),
            "files": "\n".join(f"{name}  {decimal(size)}" for name, size in self.files),
            "note": "\n".join(self.notes),
        }
        return {name: value for name, value in rows.items() if value}

    def table(self) -> Table:
        """Return the rows as a rich table."""
        return summary_table(self.rows())


def _because(what: str | None, why: str | None) -> str | None:
    return f"{what} ({why})" if what and why else what or why


def _dtypes(counts: dict[str, int]) -> str:
    by_count = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} ({count:,})" if len(counts) > 1 else name for name, count in by_count)


def _vocabulary(known: dict[str, object]) -> str | None:
    if known.get("unit") is None:
        return known.get("entries") and f"{known['entries']:,} entries"
    words = f"{known['words']:,} words among " if known["words"] else "no words among "
    return f"{known['unit']}-level: {words}{known['entries']:,} entries"


def _positions(known: dict[str, object]) -> str:
    return ", ".join(
        str(value) if name == "type" else f"{name.replace('_', ' ')} {value}"
        for name, value in known.items()
        if value is not None
    )


def describe(
    folder: Path, sizes: dict[str, int], shown: str, name: str, has_data: bool = True, tensors: Tensors | None = None
) -> CheckpointInfo:
    """Describe the checkpoint in a folder. `sizes` lists the files that belong to it; some may be elsewhere.

    `shown` is the user's name for it, `name` the published one (legacy_folder.name_of). With `has_data=False` the
    weights are elsewhere; `tensors` are then those of a saved model, if their headers could be read.

    Raises ValueError if there is no checkpoint, CheckpointError if it cannot be read.
    """
    weights = next((file for file in PYTORCH if file in sizes), None)
    others = [] if weights else find_weights(folder)
    names = CONFIGS if others else CONFIGS[::-1]  # that of a saved model is config.json
    config = next((folder / file for file in names if file in sizes), None)
    if config is None or not (weights or others or config.name == "config.json"):
        raise ValueError(
            f"{shown} contains no recognisable checkpoint: it has {config.name if config else 'no config.json'} and "
            f"{'weights' if weights or others else 'no weights'}"
        )
    if others:
        facts = _legacy_facts(folder, others, name, has_data)
    else:
        facts = _saved_facts(folder, config, weights, name, has_data, tensors)
    dtypes: dict[str, int] = facts["dtypes"]
    return CheckpointInfo(path=shown, parameters=sum(dtypes.values()) or None, files=sorted(sizes.items()), **facts)


def _legacy_facts(folder: Path, weights: list[str], name: str, has_data: bool) -> dict:
    """Return the facts of a checkpoint of the original framework, the first of several in the folder."""
    checkpoint, refusals = _read(folder, weights[0], name, has_data)
    if checkpoint is None:
        raise CheckpointError(refusals[0])
    if len(weights) > 1:
        refusals = [several_weights(folder, weights), *refusals]
    source = checkpoint.source.source if isinstance(checkpoint.source, WithZeros) else checkpoint.source
    return {
        "kind": FORMATS[type(source)],
        "task": None if refusals else checkpoint.rows.get("task layer"),
        "loads_with": "bert4keras",
        "notes": refusals,
        **_converted_facts(checkpoint, name, refusals),
    }


def _saved_facts(
    folder: Path, config_file: Path, weights: str | None, name: str, has_data: bool, tensors: Tensors | None
) -> dict:
    """Return the facts of a saved model; `weights` is its file, or the index of its shards."""
    config, tokenizer = read_json(config_file), read_json(folder / TOKENIZER_CONFIG, default={})
    check_types(config_file, config, TYPES)
    checkpoint, refusals = None, []
    if weights is not None and has_data and _is_to_be_converted(config, weights):
        checkpoint, refusals = _read(folder, None, name, has_data)
    notes = list(refusals)
    if checkpoint is None and tensors is None:
        tensors, trouble = _tensors(folder, weights, has_data)
        notes += [note for note in trouble if note not in refusals]
    check_types(folder / TOKENIZER_CONFIG, tokenizer, {str: ("tokenizer_class", "word_segmentation")})
    vocabulary = Vocabulary(folder, vocabulary_of(folder))
    card = folder / CARD
    origin = read_facts(read_whole(card, errors="replace") if card.is_file() else "")
    name, length = origin.get("source", name), trained_length(origin)
    kind, reason = kind_of(config, vocabulary.word_level), why_package_is_needed(config, tokenizer)
    if config.get("attention_type") == "linear":
        notes.append(f"linear attention, with the feature map {config.get('linear_feature_map', 'elu')}")
    if kind == "seq2seq":
        notes.append(f"the sizes are its encoder's; the decoder has {config.get('decoder_layers')} layers")
    facts = {
        "kind": "saved model",
        "family": KINDS[kind].title if kind else None,
        "sign": None if kind else f"model_type {config.get('model_type')} is not one of this package's",
        "model_type": config.get("model_type"),
        "architecture": architecture_of(config),
        "task": task_of(config, vocabulary.word_level) if kind else None,
        "dtypes": _dtype_counts(config, tensors or {}),
        "tokenizer": _tokenizer(tokenizer, vocabulary.word_level),
        "needs_package": reason is not None,
        "loads_with": loads_with(config, reason) if kind else None,
        "servers": servers_of(config, tokenizer, vocabulary.word_level),
        "source": {row: value for row, value in origin.items() if row.startswith(PROVENANCE)},
        "notes": notes,
        **_model_facts(config, vocabulary, name, length),
    }
    return facts if checkpoint is None else facts | _converted_facts(checkpoint, name, refusals, length)


def _read(folder: Path, weights: str | None, name: str, has_data: bool) -> tuple[Checkpoint | None, list[str]]:
    """Return what `roformer convert` makes of a checkpoint, and why it refuses.

    Of a checkpoint that it refuses, the part is read that can be: with a padded vocabulary, without its task layer, and
    without its data files.
    """
    refusals: list[str] = []
    options: dict = {"has_data": has_data}
    for change in ({}, {"padded_vocabulary": True}, {"head": NONE}, {"has_data": False}):
        options |= change
        try:
            return read_checkpoint(find_files(folder, weights), name, **options), refusals[:1]
        except CheckpointError as error:
            refusals.append(str(error))
    return None, refusals[:1]


def _converted_facts(checkpoint: Checkpoint, name: str, refusals: list[str], length: int | None = None) -> dict:
    """Return the facts that the conversion states, whatever the files are."""
    return {
        "family": checkpoint.title,
        "sign": checkpoint.sign,
        "converts_to": None if refusals else checkpoint.architecture,
        "dtypes": checkpoint.parameters,
        "left_out": {kind: len(names) for kind, names in checkpoint.plan.extras.items()},
        **_model_facts(checkpoint.fields, checkpoint.vocabulary, name, length),
    }


def _is_to_be_converted(config: Mapping, weights: str) -> bool:
    """Return whether `roformer convert` is meant for a saved model: transformers 5 did not write it.

    What transformers 5 wrote loads as it is, so the import of torch, which takes seconds, is saved.
    """
    version = re.match(r"\d+", str(config.get("transformers_version", "")))
    is_current = version is not None and int(version[0]) >= 5 and ".safetensors" in weights
    return not is_current and kind_of(config, word_level=False) not in (None, "seq2seq")


def _tensors(folder: Path, weights: str | None, has_data: bool) -> tuple[Tensors, list[str]]:
    """Return the tensors of a saved model by the headers, and why they cannot be read."""
    if weights is None:
        return {}, ["it has no weights"]
    if not has_data:
        return {}, [f"{weights} is not read in a .zip or on the Hub, so its parameters are not counted"]
    try:
        entries = open_source(folder / weights).entries
    except (CheckpointError, OSError) as error:
        return {}, [str(error)]
    return {name: (entry.dtype, entry.shape) for name, entry in entries.items()}, []


def _dtype_counts(config: Mapping, tensors: Tensors) -> dict[str, int]:
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


def _model_facts(config: Mapping, vocabulary: Vocabulary, name: str, length: int | None) -> dict:
    """Return the facts in the fields of a configuration, and those of the vocabulary.

    `name` is the published name, or several of them with "/" between them; `length` is the trained length by the card.
    """
    kind = kind_of(config, vocabulary.word_level)
    positions = _position_facts(config, kind)
    width, embedding = size_of(config, "hidden_size"), config.get("embedding_size")
    entries: dict[str, object] = {"entries": size} if (size := config.get("vocab_size")) else {}
    if vocabulary.ids and kind != "seq2seq":  # whose tokenizer may be of any kind
        unit = "word" if vocabulary.word_level else "character"
        entries = {"entries": len(vocabulary.ids), "words": vocabulary.words, "unit": unit}
    return {
        "layers": size_of(config, "num_hidden_layers"),
        "hidden_size": width,
        "attention_heads": size_of(config, "num_attention_heads"),
        "feed_forward_size": size_of(config, "intermediate_size"),
        "embedding_size": None if embedding == width else embedding,
        "activation": size_of(config, "hidden_act"),
        "vocabulary": entries,
        "positions": positions,
        "trained_length": _trained_length(config, vocabulary.word_level, positions, name, length),
    }


def _position_facts(config: Mapping, kind: str | None) -> dict[str, object]:
    """Return the type of the positions, and its properties; `length` is that of a table."""
    encoding = config.get("position_encoding", "rotary")
    if kind in ("bert", "wobert"):
        return {"type": "a table", "length": config.get("max_position_embeddings")}
    if kind in ("nezha", "wonezha"):
        return {"type": "relative", "up_to_distance": config.get("max_relative_position", 64)}
    if kind is None:
        return {}
    if encoding == "learned":
        return {
            "type": encoding,
            "length": config.get("max_position_embeddings", 1536),
        }  # the default of RoFormerConfig
    if encoding != "rotary":
        return {"type": encoding}
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = rope.get("rope_type", rope.get("type", "default"))
    known = {
        "type": "rotary",
        "theta": rope.get("rope_theta", config.get("rope_theta", 10000.0)),
        "scaling": None if scaling == "default" else scaling,
        "factor": rope.get("factor"),
        "values_too": "yes" if config.get("rotary_value") else None,
        "frequencies": "trained" if config.get("trainable_rope") else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _trained_length(config: dict, word_level: bool, positions: Mapping, name: str, in_card: int | None) -> int | None:
    """Return the longest input in training: of stretched positions, of a table, by the card, or of the release."""
    stretched = (config.get("rope_parameters") or {}).get("original_max_position_embeddings")
    names = [part.removesuffix(".zip") for part in name.split("/")]  # of an archive, and of the folder in it
    released = [RELEASES[part].trained_length for part in names if is_published(part, config, word_level)]
    lengths = [stretched if isinstance(stretched, int) else None, positions.get("length"), in_card, *released]
    return next(filter(None, lengths), None)
