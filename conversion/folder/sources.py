"""Open the weights of a checkpoint, whatever the format of their file."""

from ..errors import CheckpointError
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.source import Source
from ..formats.tensor_bundle import TensorBundle
from .legacy_folder import INDEX, LegacyFiles, is_hdf5


def open_source(files: LegacyFiles) -> Source:
    """The weights that `legacy_files` found; raises CheckpointError if their format is not supported."""
    path = files.weights
    if path.name.endswith(INDEX):
        path = path.with_name(path.name.removesuffix(INDEX))
    elif path.is_file():
        if is_hdf5(path):
            return KerasHDF5(path)
        raise CheckpointError(f"{path} is not in a supported format: it does not start like Keras' HDF5")
    bundle = TensorBundle(path)
    return bundle if bundle.object_graph is None else KerasBundle(path)
