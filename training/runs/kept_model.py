"""The model of a run, or of its best seed, in a folder. results.json records the digest of its weights with the scores of a seed.

A process that is killed after it has saved a model, and before it has recorded the scores, leaves the model of a seed that
results.json does not know.
"""

from pathlib import Path

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ...output.atomic_folder import require_replaceable
from ..errors import TrainingError
from .digests import digests_of_weights
from .models import unreadable_weights


def digest_of_kept(folder: Path) -> str:
    """Return the digest of the weights in the folder of a saved model."""
    return " ".join(digests_of_weights(folder))


def is_kept(folder: Path, digest: str | None = None) -> bool:
    """Return whether a folder has a saved model, and its weights have the recorded digest.

    Earlier versions recorded none. Then any weights count that are not damaged.
    """
    has_weights = any((folder / name).is_file() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))
    if not (folder / "config.json").is_file() or not has_weights or unreadable_weights(folder):
        return False
    return not digest or digest_of_kept(folder) == digest


def require_room(folder: Path) -> None:
    """Raise a TrainingError if a model cannot be put at the place of a folder after training."""
    try:
        require_replaceable(folder, force=True)
    except FileExistsError as error:
        reason = str(error).rpartition(": ")[0]
        raise TrainingError(f"{reason}: the model goes there, so name another --output") from None
