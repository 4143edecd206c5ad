"""Describe a checkpoint of the original framework, by what `roformer convert` makes of it."""

from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.heads import AUTO, NONE
from ..checkpoints.reading import read_checkpoint
from ..errors import CheckpointError
from ..folder.legacy_folder import LegacyFiles
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.source import Source, WithZeros
from .checkpoint_info import CheckpointInfo
from .config_info import config_info, vocabulary_info


def legacy_info(files: LegacyFiles, shown: str, name: str, has_data: bool, notes: list[str]) -> CheckpointInfo:
    """Describe the checkpoint that the user calls `shown`; `notes` say why the folder cannot be converted as it is.

    Raises CheckpointError if it cannot be converted even with a padded vocabulary, without its task layer and its data
    files.
    """
    checkpoint, refusal = _read(files, name, has_data)
    notes = notes + ([] if refusal is None else [str(refusal)])
    return CheckpointInfo(
        path=shown,
        kind=_file_format(checkpoint.source),
        family=checkpoint.title,
        sign=checkpoint.sign,
        task=None if notes else checkpoint.rows.get("task layer"),
        converts_to=None if notes else checkpoint.architecture,
        parameters=sum(checkpoint.parameters.values()),
        dtypes=checkpoint.parameters,
        vocabulary=vocabulary_info(checkpoint.vocabulary.ids),
        loads_with="bert4keras",
        left_out={kind: len(names) for kind, names in checkpoint.plan.extras.items()},
        notes=notes,
        **config_info(checkpoint.fields, checkpoint.vocabulary.word_level, name),
    )


def _read(files: LegacyFiles, name: str, has_data: bool) -> tuple[Checkpoint, CheckpointError | None]:
    """Return the checkpoint, and the error of its conversion if only a part of it can be read."""
    refusal = None
    options = {"head": AUTO, "has_data": has_data, "padded_vocabulary": False}
    for change in ({}, {"padded_vocabulary": True}, {"head": NONE}, {"has_data": False}):
        options |= change
        try:
            return read_checkpoint(files, name, **options), refusal
        except CheckpointError as error:
            refusal = refusal or error
    raise refusal


def _file_format(source: Source) -> str:
    if isinstance(source, WithZeros):
        source = source.source
    if isinstance(source, KerasHDF5):
        return "Keras weights, HDF5"
    return "tf.keras weights" if isinstance(source, KerasBundle) else "TensorFlow checkpoint"
