"""Match a checkpoint of any format with the model that it is converted to.

The tensors of TensorFlow and Keras have the names of the released checkpoints' variables, those of PyTorch the keys of
their class. Behind that difference there is one way: detect the family, fill in what the files leave open, choose the
class, and give each weight its tensor.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from modeling_roformer.model_cards.kinds import KINDS, kind_of

from ..errors import CheckpointError
from ..families import roformer_gpt, roformer_v1, roformer_v2, simbert, wobert, wonezha
from ..families.detection import Detection, Sign, detect
from ..families.family import BIDIRECTIONAL, CAUSAL, MASKS, RELATIVE, ROTARY, UNILM, Family
from ..families.registry import AUTO
from ..families.roformer_start import start_from
from ..families.training_state import extra
from ..families.weights import Weight, is_of_encoder, variable_of, without_prefix
from ..folder.legacy_folder import INDEX, TOKENIZER, LegacyFiles, is_hdf5
from ..formats.pytorch_files import is_pytorch
from ..formats.source import Source, WithZeros
from ..formats.tensor_bundle import TensorBundle
from .checkpoint import Checkpoint, make_config
from .heads import CLASSES, Task, check_no_choice, class_weights, find_task, language_model, model_on_meta
from .parts import Parts, original_parts, pytorch_parts
from .plan import Plan, make_plan, tensor_left_out, variable_left_out

WORDS = "bert/embeddings/word_embeddings"
SEGMENTS = "bert/embeddings/token_type_embeddings"
# Plain transformers has a table of positions and fails beyond its end; computed positions have no limit.
PLAIN_TRANSFORMERS_POSITIONS = 1536
# Fields of a BERT that a RoFormer with its weights has too.
SHARED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "tie_word_embeddings",
)
_BERT_POOLER = ("pooler.dense.weight", "pooler.dense.bias")
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_checkpoint(
    files: LegacyFiles,
    name: str,
    *,
    family: str = AUTO,
    target: str | None = None,
    head: str = AUTO,
    has_data: bool = True,
    padded_vocabulary: bool = False,
) -> Checkpoint:
    """Match every tensor of a checkpoint to a weight of the new model, without their values.

    `roformer convert` carries out what this returns, and `roformer info` prints it. transformers is imported only for
    weights of PyTorch, and for checkpoints that this package exported.

    Args:
        files: its configuration, vocabulary and weights.
        name: the name of its folder or archive, which may name the family.
        family: AUTO, or the family that the user requests.
        target: "roformer" turns a BERT into a RoFormer to train further.
        head: AUTO, or the input of a Keras model's task layer.
        has_data: False if the data files of a TensorFlow checkpoint are elsewhere; then only its index is read.
        padded_vocabulary: accept embeddings with more rows than the vocabulary has entries.

    Raises:
        CheckpointError: the checkpoint cannot be converted; the message is one sentence.
    """
    source = open_source(files.weights, has_data)
    where = str(source.path)
    is_keys = source.has_keys
    if is_keys:
        check_no_choice(head, source.path)
    task = Task() if is_keys else find_task(source, head)
    parts = pytorch_parts(files) if is_keys else original_parts(files)
    detection = _detect(source, task, parts, name, family)
    found, starts_anew = detection.family, target is not None
    is_saved_class = is_keys or (parts.exported_as is not None and not _is_another_model(task, parts, family))
    is_saved_class &= not starts_anew
    named = parts.architecture if is_saved_class else None
    if found is roformer_gpt.FAMILY and named is not None and not named.endswith("ForCausalLM"):
        found = roformer_v1.FAMILY  # a decoder with another head has no prompts
    written = _written_as(found, parts, target, is_saved_class, where)
    mask = detection.mask
    if starts_anew and task.mask is None and mask == found.mask and "application" not in parts.all_fields:
        mask = None  # SimBERT's, which is a part of the family
    mask = written.mask if mask is None else mask
    _check_mask_layer(task, mask, where, files.config.name)
    # transformers computes a BERT or NEZHA that is a decoder, and an exported class says itself what it is.
    if not (starts_anew or (is_saved_class and (not is_keys or parts.all_fields.get("is_decoder")))):
        detection.check_mask(written, where)
    rows: dict[str, str] = {}
    if is_keys:
        fields, plan = _match_keys(source, parts, found, written, mask, family)
        rows |= {"left out: training": ", ".join(source.beside)} if source.beside else {}
    else:
        source, fields, plan = _match_variables(source, parts, found, written, mask, task, is_saved_class, rows)
    vocabulary = parts.vocabulary
    if found is wobert.FAMILY and "pooler" in plan.extras and not starts_anew:
        rows["pooler"] = simbert.POOLER_ROW
    warnings = []
    if not (is_keys and files.vocab.with_name(TOKENIZER).is_file()):  # which has the id of every entry
        warnings = vocabulary.check_padding(fields["vocab_size"], files.config, source.path, padded_vocabulary)
    title = found.title_of(vocabulary)
    if written.note is None and written.base == "roformer":
        title = KINDS[kind_of({"model_type": "roformer", **fields}, vocabulary.word_level)].title
    left_open = {} if parts.exported_as and is_saved_class else written.tokenizer(SimpleNamespace(**fields))
    return Checkpoint(
        family=found.name,
        title=title,
        sign=detection.sign,
        source=source,
        vocabulary=vocabulary,
        fields={"model_type": written.base, **fields},
        plan=plan,
        make_config=partial(make_config, files.config, written.base, fields),
        make_tokenizer=lambda config: parts.make_tokenizer(config, left_open, starts_anew),
        check_values=partial(
            _check_values, source, plan, found, {**found.fields, **parts.fields, **fields}, files.config
        ),
        note=written.note and written.note.format(title=title),
        ignored_settings=parts.ignored,
        rows=rows,
        warnings=warnings,
    )


def open_source(weights: Path, has_data: bool = True) -> Source:
    """Open weights; raise CheckpointError if their format is not supported, or a data file is missing or truncated.

    With `has_data=False` only the index of a TensorFlow checkpoint is read. Each format is imported when it is needed.
    """
    if is_pytorch(weights):
        from ..formats.pytorch_source import PyTorchSource

        source = PyTorchSource(weights)
        source.unwrap()
        return source
    if weights.name.endswith(INDEX):
        weights = weights.with_name(weights.name.removesuffix(INDEX))
    elif weights.is_file():
        if is_hdf5(weights):
            from ..formats.keras_hdf5 import KerasHDF5

            return KerasHDF5(weights)
        raise CheckpointError(f"{weights} is not in a supported format: it does not start like Keras' HDF5")
    bundle = TensorBundle(weights, data=has_data)
    if bundle.object_graph is None:
        return bundle
    if not has_data:
        raise CheckpointError(
            f"{bundle.path} does not name its layers: its data file does, which is not read in a .zip or on the Hub"
        )
    from ..formats.keras_bundle import KerasBundle

    return KerasBundle(weights)


def _detect(source: Source, task: Task, parts: Parts, name: str, family: str) -> Detection:
    """Return the family of a source whose task layer is known."""
    key_signs = []
    if source.has_keys:
        variables = _variables(source)
        prefixes = {key.split(".")[0] for key in source.entries}
        if "nezha" in prefixes:
            key_signs.append(Sign("its keys begin with nezha", positions=(RELATIVE,)))
        if "roformer" in prefixes or any("encoder.embed_positions." in key for key in source.entries):
            key_signs.append(Sign("its keys are a RoFormer's", positions=(ROTARY,)))
    else:
        variables = task.family_variables([each for each in source.entries if extra(each, source.entries) is None])
    fields = parts.all_fields
    if parts.exported_as is not None and _is_another_model(task, parts, family):
        fields = {name: value for name, value in fields.items() if name not in (*parts.own, "architectures")}
    detection = detect(
        variables,
        fields,
        family,
        name,
        source.path,
        parts.config,
        key_signs=key_signs,
        is_keras=getattr(source, "model", None) is not None,
        is_pytorch=source.has_keys,
        mask=task.mask,
        exported=parts.exported_as,
    )
    if family == AUTO and detection.family is wobert.FAMILY and task.pooler_activation == "linear":
        return replace(detection, family=simbert.FAMILY, sign="it has a table of positions and a linear pooler")
    return detection


def _variables(source: Source) -> set[str]:
    """Return the names that the encoder's tensors have in the released checkpoints."""
    keys = {key for key in source.entries if is_of_encoder(key)}
    tables = {key for key in keys if key.endswith(".relative_positions_encoding.positions_encoding")}
    found = {variable_of(key) for key in keys - tables}
    return found | {wonezha.RELATIVE_POSITIONS} if tables else found


def _is_another_model(task: Task, parts: Parts, family: str) -> bool:
    """Return whether a checkpoint is no longer of the class that this package exported.

    After further training, the layers in Keras' files, the configuration's `application` or the requested family tell
    the class instead.
    """
    is_known = task.kind or task.mask is not None or task.mask_layer or "application" in parts.all_fields
    return bool(is_known) or family not in (AUTO, parts.exported_as)


def _written_as(family: Family, parts: Parts, target: str | None, is_saved_class: bool, where: str) -> Family:
    """Return the family of the new model: another for a `target`, or if transformers' BERT cannot compute it."""
    if target is not None:
        return start_from(family, target, where)
    width = parts.fields.get("embedding_size")
    if family is wobert.FAMILY and not is_saved_class and width not in (None, parts.fields["hidden_size"]):
        return simbert.FACTORISED
    return family


def _check_mask_layer(task: Task, mask: str, where: str, config_name: str) -> None:
    """Raise CheckpointError if the model has a layer of a mask, but nothing says which mask."""
    if task.mask_layer and mask == BIDIRECTIONAL:
        causal, unilm = (f'"application": "{mask}" ({MASKS[mask]})' for mask in (CAUSAL, UNILM))
        raise CheckpointError(
            f"{where} has the layer {task.mask_layer}, which masks attention in a way that the file does not tell: "
            f"write {causal} or {unilm} into {config_name}"
        )


def _fill_in(parts: Parts, stated: dict[str, Any], written: Family, mask: str) -> dict[str, Any]:
    """Return the fields of the new configuration: what the family implies, where the files leave it open."""
    ends = dict(written.ends)
    if mask not in (BIDIRECTIONAL, written.mask):
        ends["eos_token_id"] = "[SEP]"
    implied = {"pad_token_id": parts.ids.get("[PAD]"), "layer_norm_eps": 1e-12, **written.fields}
    implied |= {name: None if token is None else parts.ids.get(token) for name, token in ends.items()}
    fields = {**implied, **stated}
    if written.base == "roformer":
        # A class that is named with prefix_lm has UniLM's mask with and without is_decoder.
        if not (mask == UNILM and stated.get("prefix_lm") and parts.architecture):
            fields |= {"is_decoder": mask != BIDIRECTIONAL, "prefix_lm": mask == UNILM}
        length, has_table = fields.get("max_position_embeddings"), fields.get("position_encoding") == "learned"
        if type(length) is int and not has_table:  # of another type, it is refused with the other fields
            fields["max_position_embeddings"] = max(length, PLAIN_TRANSFORMERS_POSITIONS)
    return fields


def _match_variables(
    source: Source,
    parts: Parts,
    found: Family,
    written: Family,
    mask: str,
    task: Task,
    is_saved_class: bool,
    rows: dict[str, str],
) -> tuple[Source, dict[str, Any], Plan]:
    """Return the source, the new configuration's fields and the plan of a checkpoint of TensorFlow or Keras."""
    where, vocabulary = str(source.path), parts.vocabulary
    stated = {name: value for name, value in parts.fields.items() if value is not None or not is_saved_class}
    rows_of_words = _rows_of_words(source, parts)
    resized, stated["vocab_size"] = rows_of_words != stated["vocab_size"], rows_of_words
    if is_saved_class:
        fields = {**stated, **parts.own, "architectures": [parts.architecture]}
        config = make_config(parts.config, written.base, fields)
        weights = class_weights(model_on_meta(config, parts.architecture, parts.config))
        head, left_out_family = None, replace(written, dropped={})
    else:
        if written.base != "roformer":  # embeddings are as wide as hidden states
            stated.pop("embedding_size")
        if written.base != "nezha":
            stated.pop("max_relative_position", None)
        fields = _fill_in(parts, stated, written, mask) | {"architectures": [language_model(written.base, mask)]}
        head = task.head(written, mask, fields["hidden_size"], where)
        if head is not None:
            fields |= {"architectures": [head.architecture], **head.fields}
        weights, left_out_family = None, written
    rows |= task.rows(head)
    vocabulary.check_special(fields["architectures"][0])
    if resized:  # keep_tokens also changes ids, which an exported model has
        ends = {"bos_token_id": "[CLS]", "eos_token_id": "[SEP]"}
        fields |= {name: vocabulary.id_of(entry) for name, entry in ends.items() if fields.get(name) is not None}
        rows["embeddings"] = f"{rows_of_words:,} rows; {parts.config.name} says {parts.fields['vocab_size']:,}"
    if SEGMENTS not in source.entries and not is_saved_class:
        # At least the tokenizer's two segments, whose embeddings are zeros.
        fields["type_vocab_size"], words = max(fields["type_vocab_size"], 2), source.entries[WORDS]
        source = WithZeros(source, SEGMENTS, words.dtype, (fields["type_vocab_size"], *words.shape[1:]))
        rows["segments"] = f"none, as with segment_vocab_size=0; the rows of {SEGMENTS} are zeros"
    if weights is None:
        weights = written.weights(SimpleNamespace(**{"embedding_size": None, **fields}))
        weights = weights if head is None else head.weights_on(weights)
    if vocabulary.is_cased and parts.exported_as is None:  # an exported tokenizer says itself what it does
        rows["capital letters"] = "kept, since the vocabulary has them"
    left_out = variable_left_out(source, left_out_family, {**task.left_out, **found.computed(source)})
    return source, fields, make_plan(source, weights, parts.config, fields["architectures"][0], left_out)


def _rows_of_words(source: Source, parts: Parts) -> int:
    """Return vocab_size: the rows of the embeddings, if the vocabulary has as many entries, else the configuration's.

    bert4keras' keep_tokens leaves rows out, and vocab_size as it was.
    """
    rows, entries = (*source.entries[WORDS].shape, 0)[0], len(parts.vocabulary.ids)
    size = parts.fields["vocab_size"]
    if rows != entries and rows < max(entries, size):
        raise CheckpointError(
            f"{parts.vocabulary.path} has {entries:,} entries, but the embedding matrix in {source.path.name} has "
            f"{rows:,} rows: after keep_tokens of bert4keras, leave only the entries that were kept, in their order"
        )
    return rows if rows == entries else size


def _match_keys(
    source: Source, parts: Parts, found: Family, written: Family, mask: str, requested: str
) -> tuple[dict[str, Any], Plan]:
    """Return the new configuration's fields and the plan of a checkpoint of PyTorch, whose class has any head."""
    stated, is_new_kind = dict(parts.fields), written.note is not None
    has_pooler = any(name.startswith("bert/pooler/") for name in _variables(source))
    if is_new_kind:  # a RoFormer with the weights of a BERT
        old = make_config(parts.config, "nezha" if found.base == "nezha" else "bert", stated)
        shared = {name: getattr(old, name) for name in SHARED}
        if found is simbert.FAMILY and stated.get("eos_token_id") is not None:
            shared["eos_token_id"] = stated["eos_token_id"]
        stated = shared
    fields = _fill_in(parts, stated, written, mask)
    architecture = None if is_new_kind else parts.architecture
    if architecture is None:
        architecture = _class_of_tensors(source, parts, found, written, mask)
    if written.base == "roformer" and has_pooler and not is_new_kind:
        if requested == "roformer" and stated.get("pooler_activation") in (None, "linear"):
            fields["add_pooling_layer"] = False
            architecture = architecture.replace("ForCausalLM", "ForMaskedLM")
        else:
            fields["add_pooling_layer"] = True
        if found.name == "sim" and mask == UNILM and "prefix_lm" not in stated:  # a field of this package
            architecture = architecture.replace("ForMaskedLM", "ForCausalLM")
    elif written.base == "nezha":
        keeps_pooler = has_pooler and not architecture.endswith("ForMaskedLM")
        fields["add_pooling_layer"] = stated.get("add_pooling_layer", keeps_pooler)
    fields["architectures"] = [architecture]
    config = make_config(parts.config, written.base, fields)
    if max(parts.vocabulary.ids.values()) >= config.vocab_size:
        raise CheckpointError(
            f"{parts.vocabulary.path} has {len(parts.vocabulary.ids):,} entries; vocab_size in {parts.config.name} is "
            f"{config.vocab_size:,}"
        )
    fields = config.to_dict() | {"architectures": [architecture]}
    model = model_on_meta(config, architecture, parts.config)
    wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    plan = make_plan(
        source,
        [Weight(key, key, shape) for key, shape in wanted.items()],
        parts.config,
        architecture,
        tensor_left_out(source, architecture, is_new_kind, parts.config),
        place=partial(_key, wanted=wanted, base=model.base_model_prefix),
        tied=model.all_tied_weights_keys,
        optional=_BERT_POOLER if architecture == "BertModel" else (),  # saved with add_pooling_layer=False
    )
    return fields, plan


def _class_of_tensors(source: Source, parts: Parts, found: Family, written: Family, mask: str) -> str:
    """Return the class that tensors of PyTorch belong to, if the configuration names none."""
    # The language model of RMS norms has no weights of its own, so the prefix of the keys shows it.
    has_bare_head = found is roformer_v2.FAMILY or parts.fields.get("norm_type") == "rms_norm"
    if (has_bare_head and any(name.startswith("roformer.") for name in source.entries)) or any(
        name.startswith("cls.predictions.") for name in source.entries
    ):
        return language_model(written.base, mask)
    if written.note is not None or all(map(is_of_encoder, source.entries)):
        return f"{CLASSES[written.base]}Model"
    raise CheckpointError(f"{parts.config} does not say which class was saved: add its name there, in architectures")


def _key(name: str, wanted: dict, base: str) -> str:
    """Return a tensor's key in its class: its current name, with or without the base model's prefix."""
    for old, new in _OLD_NAMES.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    bare = without_prefix(name)
    return next((form for form in (name, f"{base}.{bare}", bare) if form in wanted), name)


def _check_values(source: Source, plan: Plan, family: Family, fields: dict[str, Any], path: Path) -> None:
    """Raise CheckpointError if tensors that are left out have other values than those that replace them."""
    family.check_values(source, SimpleNamespace(**fields))
    for copy, name in plan.copies.items():
        if source.read(name).tobytes() != source.read(copy).tobytes():
            raise CheckpointError(
                f"{source.path} has different values in {copy} and {name}, but {path.name} ties them: to keep both, "
                'set "tie_word_embeddings": false there'
            )
