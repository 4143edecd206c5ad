"""Describe a checkpoint of the original framework, by what `roformer convert` makes of it."""

from collections import Counter
from contextlib import suppress
from math import prod

from ..checkpoints.legacy_checkpoint import lacks_names, open_source, recognise
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.task_layers import NONE, find_task
from ..errors import CheckpointError
from ..families.family import TABLE, extra
from ..families.registry import check_supported
from ..folder.legacy_folder import LegacyFiles
from ..folder.settings import read_settings
from ..folder.vocabulary import read_vocabulary
from ..formats.dtypes import FLOATS
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.source import Source, WithZeros
from .checkpoint_info import CheckpointInfo
from .config_info import config_info, vocabulary_info


def legacy_info(files: LegacyFiles, shown: str, name: str, has_data: bool, notes: list[str]) -> CheckpointInfo:
    """Describe the checkpoint that the user calls `shown`; `notes` say why the folder cannot be converted as it is."""
    checkpoint, notes = None, list(notes)
    if files.vocab.is_file():
        try:
            checkpoint = read_checkpoint(files, name, has_data=has_data)
        except CheckpointError as error:
            notes.append(str(error))
            with suppress(CheckpointError):  # perhaps only the data files are missing
                checkpoint = read_checkpoint(files, name, has_data=False)
    if checkpoint is None:
        return _refused_info(files, shown, name, notes)
    return CheckpointInfo(
        path=shown,
        kind=_file_format(checkpoint.source),
        family=checkpoint.title,
        sign=checkpoint.sign,
        task=checkpoint.rows.get("task layer"),
        converts_to=None if notes else checkpoint.architecture,
        parameters=sum(checkpoint.parameters.values()),
        dtypes=checkpoint.parameters,
        vocabulary=vocabulary_info(checkpoint.vocabulary.ids),
        loads_with=None if notes else "bert4keras",
        left_out={kind: len(names) for kind, names in checkpoint.plan.extras.items()},
        notes=notes,
        **config_info(checkpoint.fields, checkpoint.vocabulary.word_level, name),
    )


def _refused_info(files: LegacyFiles, shown: str, name: str, notes: list[str]) -> CheckpointInfo:
    """Describe a checkpoint that cannot be converted, by those of its parts that can be read."""
    try:
        source = open_source(files.weights)
    except CheckpointError:
        source = open_source(files.weights, has_data=False)
    check_supported(source.entries, shown)
    settings, vocabulary, choice = read_settings(files.config), None, None
    if files.vocab.is_file():
        with suppress(CheckpointError):
            vocabulary = read_vocabulary(files.vocab)
    if not lacks_names(source):
        with suppress(CheckpointError):
            choice = recognise(source, find_task(source, NONE), settings, name)
    family = choice and choice.family
    extras = {variable: extra(variable, source.entries) for variable in source.entries}
    dtypes: dict[str, int] = {}
    for entry in source.entries.values():
        if extras[entry.name] is None and entry.dtype in FLOATS:
            dtypes[entry.dtype] = dtypes.get(entry.dtype, 0) + prod(entry.shape)
    fields, word_level = dict(settings.values), vocabulary is not None and vocabulary.word_level
    if family is not None:
        fields |= {"model_type": family.base, "position_encoding": "learned" if family.positions == TABLE else "rotary"}
    return CheckpointInfo(
        path=shown,
        kind=_file_format(source),
        family=family and (family.title_of(vocabulary) if vocabulary else family.title),
        sign=choice and choice.sign,
        parameters=sum(dtypes.values()) or None,
        dtypes=dtypes,
        vocabulary=vocabulary_info(vocabulary.ids) if vocabulary else {"entries": settings.values["vocab_size"]},
        loads_with="bert4keras" if family and vocabulary else None,
        left_out=dict(Counter(kind for kind in extras.values() if kind is not None)),
        notes=notes,
        **config_info(fields, word_level, name) | ({"positions": {}, "trained_length": None} if family is None else {}),
    )


def _file_format(source: Source) -> str:
    if isinstance(source, WithZeros):
        source = source.source
    if isinstance(source, KerasHDF5):
        return "Keras weights, HDF5"
    return "tf.keras weights" if isinstance(source, KerasBundle) else "TensorFlow checkpoint"
