"""Open the weights of a checkpoint, whatever the format of their file."""

from .legacy_folder import LegacyFiles
from .source import Source
from .tensor_bundle import TensorBundle


def open_source(files: LegacyFiles) -> Source:
    """The weights that `legacy_files` found; raises CheckpointError where they are of no format that is read."""
    return TensorBundle(files.weights)
