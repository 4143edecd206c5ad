"""Match a checkpoint of any format to the model that it is converted to."""

from ..families.registry import AUTO
from ..folder.legacy_folder import LegacyFiles
from ..formats.pytorch_files import is_pytorch
from .checkpoint import Checkpoint
from .legacy_checkpoint import read_legacy
from .task_layers import check_no_choice


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

    `roformer convert` carries out what this returns, and `roformer info` prints it.

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
    if is_pytorch(files.weights):
        check_no_choice(head, files.weights)
        from .pytorch_checkpoint import read_pytorch  # torch and transformers, which take seconds

        return read_pytorch(files, family, target, padded_vocabulary)
    return read_legacy(files, name, family, target, head, has_data, padded_vocabulary)
