"""The model of a run, or of its best seed, in a folder. results.json records the digest of its weights with the scores of a seed.

A process that is killed after it has saved a model, and before it has recorded the scores, leaves the model of a seed that
results.json does not know.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ...output.atomic_folder import require_replaceable
from ..errors import TrainingError
from .digests import digests_of_weights
from .models import unreadable_weights

Key = TypeVar("Key", bound=Hashable)


def digest_of_kept(folder: Path) -> str:
    """Return the digest of the weights in the folder of a saved model."""
    return " ".join(digests_of_weights(folder))


def is_kept(folder: Path, digest: str | None = None) -> bool:
    """Return whether a folder has a saved model, and its weights have the recorded digest.

    The digest is empty if the model of that run was not kept, and None if an earlier version recorded none. Then any weights count
    that are not damaged.
    """
    has_weights = any((folder / name).is_file() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))
    if not (folder / "config.json").is_file() or not has_weights or unreadable_weights(folder):
        return False
    return digest is None or digest_of_kept(folder) == digest


def to_train(
    keys: Iterable[Key], is_done: Callable[[Key], object], lost: Callable[[], Iterable[Key]]
) -> Iterator[tuple[Key, bool]]:
    """Yield each run that is to be trained, and whether it is trained again because its model is lost.

    Args:
        keys: the runs that are asked for, such as seeds.
        is_done: returns whether a run has a result.
        lost: returns the runs that are the best so far and whose models are not kept. One that is trained again may score lower, on
            other hardware, so another one may be the best then. Each run is repeated at most once.
    """
    repeated = set()

    def repeat() -> Iterator[tuple[Key, bool]]:
        while missing := [key for key in lost() if key not in repeated]:
            repeated.add(missing[0])
            yield missing[0], True

    yield from repeat()
    for key in keys:
        if not is_done(key):
            yield key, False
    yield from repeat()


def require_room(folder: Path) -> None:
    """Raise a TrainingError if a model cannot be put at the place of a folder after training."""
    try:
        require_replaceable(folder, force=True)
    except FileExistsError as error:
        reason = str(error).rpartition(": ")[0]
        raise TrainingError(
            f"{reason}: the model goes there, so remove that folder, or name another --output"
        ) from None
