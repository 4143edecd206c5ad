"""Read checkpoints of the original framework, variable by variable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...model_cards.kinds import KINDS, kind_of
from ...output.console import sentence_of
from ..errors import CheckpointError
from ..families import simbert, wobert
from ..families.family import BIDIRECTIONAL, CAUSAL, MASKS, UNILM, Family, extra
from ..families.registry import AUTO, EXPORTED_AS, WORDS, Choice, check_supported, choose
from ..families.roformer_start import start_from
from ..families.signs import SIGNS
from ..families.wonezha import check_computed_positions, computed_positions
from ..folder.legacy_folder import INDEX, LegacyFiles, is_hdf5
from ..folder.settings import Settings, read_settings
from ..folder.vocabulary import Vocabulary, read_vocabulary
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.source import Source, WithZeros
from ..formats.tensor_bundle import TensorBundle
from .checkpoint import Checkpoint, Plan, make_config, make_plan
from .exported import OWN, as_exported, is_exported, own_config, tokenizer_arguments
from .task_layers import Task, find_task

if TYPE_CHECKING:
    from ...tokenization.tokenizer import RoFormerTokenizer


SEGMENTS = "bert/embeddings/token_type_embeddings"
ENDS = {"bos_token_id": "[CLS]", "eos_token_id": "[SEP]"}


@dataclass(frozen=True)
class Match:
    """The family `found`, with the model's `title` and `sign`; `kind`, as which it is written, with a config's
    `fields`. The weights of `plan` are read from `source`."""

    source: Source
    found: Family
    title: str
    sign: str | None
    kind: Family
    fields: dict[str, Any]
    plan: Plan
    rows: dict[str, str]


def read_legacy(files: LegacyFiles, family: str, target: str | None, head: str, name: str) -> Checkpoint:
    """Read a checkpoint of the original framework; `name` is that of its folder or archive."""
    source = _open(files)
    check_supported(source.entries, str(source.path))
    settings = read_settings(files.config)
    vocabulary = read_vocabulary(files.vocab)
    match = match_legacy(source, settings, vocabulary, name, family, target, head)
    source = match.source
    check_computed_positions(source, settings)
    config = make_config(settings.path, match.kind.base, match.fields)
    known = {*SIGNS, *(OWN if is_exported(settings) else ())}
    return Checkpoint(
        family=match.found.name,
        title=match.title,
        sign=match.sign,
        source=source,
        vocabulary=vocabulary,
        tokenizer=_tokenizer(settings, vocabulary, match.kind.tokenizer(config), starts_anew=target is not None),
        config=config,
        plan=match.plan,
        note=match.kind.note and match.kind.note.format(title=match.title),
        ignored_settings=sorted(settings.ignored.keys() - known),
        rows=match.rows,
    )


def match_legacy(
    source: Source,
    settings: Settings,
    vocabulary: Vocabulary,
    name: str,
    family: str = AUTO,
    target: str | None = None,
    head: str = AUTO,
) -> Match:
    """Match the variables of a source to the weights of a model, without a look at their values.

    `roformer info` calls this too, so transformers, which takes seconds to import, is only imported for checkpoints
    that this package exported. Raises CheckpointError, one sentence, if the checkpoint cannot be converted.
    """
    where = str(source.path)
    task = find_task(source, head)
    choice = recognise(source, task, settings, name, family)
    found, sign = choice.family, choice.sign
    if family == AUTO and found is wobert.FAMILY and task.pooler_activation == "linear":
        found, sign = simbert.FAMILY, "it has a table of positions and a linear pooler"
    kind, mask = found, choice.mask
    exported = is_exported(settings) and target is None and not _is_another_model(task, settings, family)
    if target is not None:
        kind = start_from(found, target, where)
        if task.mask is None and mask == found.mask and "application" not in settings.ignored:
            mask = None  # SimBERT's, which is a part of the family
    elif exported:
        kind = as_exported(found, settings)
    elif found is wobert.FAMILY and settings.values["embedding_size"] not in (None, settings.values["hidden_size"]):
        kind = simbert.FACTORISED
    if target is None and not exported:
        choice.check_mask(kind, where)
    if task.mask_layer and (found.mask if choice.mask is None else choice.mask) == BIDIRECTIONAL:
        causal, unilm = (f'"application": "{mask}" ({MASKS[mask]})' for mask in (CAUSAL, UNILM))
        raise CheckpointError(
            f"{where} has the layer {task.mask_layer}, which masks attention in a way that the file does not tell: "
            f"write {causal} or {unilm} into {settings.path.name}"
        )
    stated, settings = settings, _with_rows(source, settings, vocabulary)
    fields = kind.fields(settings, vocabulary)
    task_head = None if exported else task.head(kind, mask, settings, vocabulary, where)
    if task_head is not None:
        fields = task_head.configured(fields)
    vocabulary.check_special(fields["architectures"][0])
    rows = task.rows(task_head)
    if settings != stated:  # keep_tokens also changes the ids, which an exported model's configuration has
        fields |= {name: vocabulary.id_of(entry) for name, entry in ENDS.items() if fields.get(name) is not None}
        rows["embeddings"] = f"{len(vocabulary.ids):,} rows; {settings.path.name} says {stated.values['vocab_size']:,}"
    if SEGMENTS not in source.entries and not exported:
        source, fields["type_vocab_size"] = _with_segments(source, settings)
        rows["segments"] = f"none, as with segment_vocab_size=0; the rows of {SEGMENTS} are zeros"
    left_out = {**task.left_out, **computed_positions(source, settings)}
    plan = make_plan(source, kind, SimpleNamespace(**fields), settings, task_head, left_out)
    if found is wobert.FAMILY and "pooler" in plan.extras and target is None:
        rows["pooler"] = simbert.POOLER_ROW
    if vocabulary.is_cased and not is_exported(settings):  # an exported tokenizer says itself what it does
        rows["capital letters"] = "kept, since the vocabulary has them"
    title = found.title_of(vocabulary)
    if target is None and kind_of(fields, vocabulary.word_level) == "unilm":  # a mask that is not the family's
        title = KINDS["unilm"].title
    return Match(source, found, title, sign, kind, fields, plan, rows)


def recognise(source: Source, task: Task, settings: Settings, name: str, family: str = AUTO) -> Choice:
    """Return the family of a source whose task layer is known, as `registry.choose` does."""
    variables = [variable for variable in source.entries if extra(variable, source.entries) is None]
    return choose(
        family,
        task.of_the_family(variables),
        settings,
        own_config(settings),
        name,
        str(source.path),
        is_keras=getattr(source, "model", None) is not None,
        mask=task.mask,
    )


def _is_another_model(task: Task, settings: Settings, family: str) -> bool:
    """Return whether the weights are not those of the class that the package exported: after further training, the
    layers in Keras' files, the configuration's `application` or the requested family say what the model computes."""
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


def _open(files: LegacyFiles) -> Source:
    """Open the weights; raise CheckpointError if their format is not supported."""
    path = files.weights
    if path.name.endswith(INDEX):
        path = path.with_name(path.name.removesuffix(INDEX))
    elif path.is_file():
        if is_hdf5(path):
            return KerasHDF5(path)
        raise CheckpointError(f"{path} is not in a supported format: it does not start like Keras' HDF5")
    bundle = TensorBundle(path)
    return bundle if bundle.object_graph is None else KerasBundle(path)


def _tokenizer(
    settings: Settings, vocabulary: Vocabulary, of_the_family: dict[str, object], starts_anew: bool
) -> RoFormerTokenizer:
    from ...tokenization.tokenizer import RoFormerTokenizer

    arguments = tokenizer_arguments(vocabulary, settings)
    if starts_anew:  # a RoFormer has no length limit
        arguments.pop("model_max_length", None)
    try:
        tokenizer = RoFormerTokenizer(vocabulary.ids, **{**of_the_family, **arguments})
    except Exception as error:  # any error that an invalid field value causes
        if not is_exported(settings):
            raise
        raise CheckpointError(f"{settings.path} does not describe a valid tokenizer: {sentence_of(error)}") from None
    if lost := tokenizer.get_vocab().keys() - vocabulary.ids.keys():
        raise CheckpointError(
            f"{vocabulary.path} lacks {', '.join(sorted(lost))}, which {settings.path.name} lists in added_tokens: "
            "keep them in both, or in neither"
        )
    return tokenizer
