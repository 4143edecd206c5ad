"""Read checkpoints of the original framework, variable by variable."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from modeling_roformer.model_cards.kinds import KINDS, kind_of

from ..errors import CheckpointError
from ..families import simbert, wobert
from ..families.family import BIDIRECTIONAL, CAUSAL, MASKS, UNILM, Family, extra
from ..families.registry import AUTO, EXPORTED_AS, WORDS, Choice, choose
from ..families.roformer_start import start_from
from ..families.signs import SIGNS
from ..folder.legacy_folder import INDEX, LegacyFiles, is_hdf5
from ..folder.settings import Settings, read_settings
from ..folder.vocabulary import Vocabulary, read_vocabulary
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.source import Source, WithZeros
from ..formats.tensor_bundle import TensorBundle
from .checkpoint import Checkpoint, make_config, make_plan
from .exported import OWN, as_exported, is_exported, own_config, tokenizer_arguments
from .task_layers import Task, find_task

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

SEGMENTS = "bert/embeddings/token_type_embeddings"
ENDS = {"bos_token_id": "[CLS]", "eos_token_id": "[SEP]"}


def read_legacy(
    files: LegacyFiles,
    name: str,
    requested: str = AUTO,
    target: str | None = None,
    head: str = AUTO,
    has_data: bool = True,
    padded_vocabulary: bool = False,
) -> Checkpoint:
    """Match the variables of a checkpoint of the original framework to the weights of a model, without their values.

    `name` is that of its folder or archive. With `has_data=False` only the index of a TensorFlow checkpoint is read.
    transformers is imported only for checkpoints that this package exported. `padded_vocabulary` accepts embeddings
    with more rows than the vocabulary has entries; `roformer export-tf` writes an entry for each row.

    Raises CheckpointError, one sentence, if the checkpoint cannot be converted.
    """
    source = open_source(files.weights, has_data)
    where = str(source.path)
    if lacks_names(source):
        raise CheckpointError(
            f"{where} does not name its layers: its data file does, which is not read in a .zip or on the Hub"
        )
    settings, vocabulary = read_settings(files.config), read_vocabulary(files.vocab)
    task = find_task(source, head)
    choice = recognise(source, task, settings, name, requested)
    family, sign = choice.family, choice.sign
    if requested == AUTO and family is wobert.FAMILY and task.pooler_activation == "linear":
        family, sign = simbert.FAMILY, "it has a table of positions and a linear pooler"
    _check_mask_layer(task, family.mask if choice.mask is None else choice.mask, where, settings.path.name)
    exported = is_exported(settings) and target is None and not _is_another_model(task, settings, requested)
    written = _written_as(family, settings, target, exported, where)
    mask = choice.mask
    if target is not None and task.mask is None and mask == family.mask and "application" not in settings.ignored:
        mask = None  # SimBERT's, which is a part of the family
    if target is None and not exported:
        choice.check_mask(written, where)
    configured_size = settings.values["vocab_size"]
    settings = _with_rows(source, settings, vocabulary)
    fields = written.fields(settings, vocabulary)
    task_head = None if exported else task.head(written, mask, settings, vocabulary, where)
    if task_head is not None:
        fields = task_head.configured(fields)
    vocabulary.check_special(fields["architectures"][0])
    rows = task.rows(task_head)
    if settings.values["vocab_size"] != configured_size:  # keep_tokens also changes ids, which an exported model has
        fields |= {name: vocabulary.id_of(entry) for name, entry in ENDS.items() if fields.get(name) is not None}
        rows["embeddings"] = f"{len(vocabulary.ids):,} rows; {settings.path.name} says {configured_size:,}"
    if SEGMENTS not in source.entries and not exported:
        source, fields["type_vocab_size"] = _with_segments(source, settings)
        rows["segments"] = f"none, as with segment_vocab_size=0; the rows of {SEGMENTS} are zeros"
    left_out = {**task.left_out, **family.computed(source, settings)}
    plan = make_plan(source, written, SimpleNamespace(**fields), settings, task_head, left_out)
    warnings = vocabulary.check_padding(fields["vocab_size"], settings.path, source.path, padded_vocabulary)
    if family is wobert.FAMILY and "pooler" in plan.extras and target is None:
        rows["pooler"] = simbert.POOLER_ROW
    if vocabulary.is_cased and not is_exported(settings):  # an exported tokenizer says itself what it does
        rows["capital letters"] = "kept, since the vocabulary has them"
    title = family.title_of(vocabulary)
    if target is None and kind_of(fields, vocabulary.word_level) == "unilm":  # a mask that is not the family's
        title = KINDS["unilm"].title
    used = {*SIGNS, *(OWN if is_exported(settings) else ())}
    return Checkpoint(
        family=family.name,
        title=title,
        sign=sign,
        source=source,
        vocabulary=vocabulary,
        fields={"model_type": written.base, **fields},
        plan=plan,
        make_config=partial(make_config, settings.path, written.base, fields),
        make_tokenizer=partial(_tokenizer, settings, vocabulary, written, target is not None),
        check_values=partial(family.check_values, source, settings),
        note=written.note and written.note.format(title=title),
        ignored_settings=sorted(settings.ignored.keys() - used),
        rows=rows,
        warnings=warnings,
    )


def _written_as(family: Family, settings: Settings, target: str | None, exported: bool, where: str) -> Family:
    """Return the family of the new model: another for a `target`, or if transformers' BERT cannot compute it."""
    if target is not None:
        return start_from(family, target, where)
    if exported:
        return as_exported(family, settings)
    if family is wobert.FAMILY and settings.values["embedding_size"] not in (None, settings.values["hidden_size"]):
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


def recognise(source: Source, task: Task, settings: Settings, name: str, family: str = AUTO) -> Choice:
    """Return the family of a source whose task layer is known, as `registry.choose` does."""
    variables = [variable for variable in source.entries if extra(variable, source.entries) is None]
    return choose(
        family,
        task.family_variables(variables),
        settings,
        own_config(settings),
        name,
        str(source.path),
        is_keras=getattr(source, "model", None) is not None,
        mask=task.mask,
    )


def _is_another_model(task: Task, settings: Settings, family: str) -> bool:
    """Return whether a checkpoint is no longer of the class that this package exported.

    After further training, the layers in Keras' files, the configuration's `application` or the requested family tell
    the class instead.
    """
    is_known = task.kind or task.mask is not None or task.mask_layer or "application" in settings.ignored
    return bool(is_known) or family not in (AUTO, settings.ignored[EXPORTED_AS])


def _with_segments(source: Source, settings: Settings) -> tuple[Source, int]:
    """Return a source with embeddings of segments that are zeros, and their number: at least the tokenizer's two."""
    number, words = max(settings.values["type_vocab_size"], 2), source.entries[WORDS]
    return WithZeros(source, SEGMENTS, words.dtype, (number, *words.shape[1:])), number


def _with_rows(source: Source, settings: Settings, vocabulary: Vocabulary) -> Settings:
    """Return the settings with the number of rows of the embeddings, if the vocabulary has as many entries.

    bert4keras' keep_tokens leaves rows out, and vocab_size as it was.
    """
    rows, entries = (*source.entries[WORDS].shape, 0)[0], len(vocabulary.ids)
    if rows == entries:
        return replace(settings, values={**settings.values, "vocab_size": rows})
    if rows < max(entries, settings.values["vocab_size"]):
        raise CheckpointError(
            f"{vocabulary.path} has {entries:,} entries, but the embedding matrix in {source.path.name} has {rows:,} "
            "rows: after keep_tokens of bert4keras, leave only the entries that were kept, in their order"
        )
    return settings


def open_source(weights: Path, has_data: bool = True) -> Source:
    """Open weights; raise CheckpointError if their format is not supported, or a data file is missing or truncated.

    With `has_data=False` only the index of a TensorFlow checkpoint is read.
    """
    if weights.name.endswith(INDEX):
        weights = weights.with_name(weights.name.removesuffix(INDEX))
    elif weights.is_file():
        if is_hdf5(weights):
            return KerasHDF5(weights)
        raise CheckpointError(f"{weights} is not in a supported format: it does not start like Keras' HDF5")
    bundle = TensorBundle(weights, data=has_data)
    return KerasBundle(weights) if has_data and bundle.object_graph is not None else bundle


def lacks_names(source: Source) -> bool:
    """Return whether the names of a tf.keras model's layers are in a data file that was not read."""
    return type(source) is TensorBundle and source.object_graph is not None


def _tokenizer(
    settings: Settings, vocabulary: Vocabulary, family: Family, starts_anew: bool, config: PreTrainedConfig
) -> RoFormerTokenizer:
    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

    arguments = tokenizer_arguments(vocabulary, settings)
    if starts_anew:  # a RoFormer has no length limit
        arguments.pop("model_max_length", None)
    return RoFormerTokenizer(vocabulary.ids, **{**family.tokenizer(config), **arguments})
