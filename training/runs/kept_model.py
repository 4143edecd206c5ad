"""The model of a run, or of its best seed, in a folder. results.json records the digest of its weights with the scores
of a seed.

A process that is killed after it has saved a model, and before it has recorded the scores, leaves the model of a seed
that results.json does not know.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ...files.atomic_folder import require_replaceable
from ..errors import TrainingError
from .digests import digests_of_weights
from .models import unreadable_weights

Key = TypeVar("Key", bound=Hashable)


def digest_of_kept(folder: Path) -> str:
    """Return the digest of the weights in the folder of a saved model."""
    return " ".join(digests_of_weights(folder))


def is_kept(folder: Path, digest: str | None, others: Iterable[str | None] = ()) -> bool:
    """Return whether a folder has the model of a run, with undamaged weights.

    Args:
        digest: the recorded digest of the run's weights, empty or None if none was recorded.
        others: the digests of other runs whose models would be in the same folder. If no run has a digest, an earlier
            version wrote the results. Then any weights count.
    """
    recorded = {other for other in (digest, *others) if other}
    return _has_weights(folder) and (not recorded or digest_of_kept(folder) == digest)


def keeps_one_of(folder: Path, digests: Iterable[str | None]) -> bool:
    """Return whether a folder has the model of one of the runs with these digests."""
    recorded = {digest for digest in digests if digest}
    return bool(recorded) and _has_weights(folder) and digest_of_kept(folder) in recorded


def _has_weights(folder: Path) -> bool:
    has_weights = any((folder / name).is_file() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))
    return (folder / "config.json").is_file() and has_weights and not unreadable_weights(folder)


def to_train(
    keys: Iterable[Key], is_done: Callable[[Key], object], lost: Callable[[], Iterable[Key]]
) -> Iterator[tuple[Key, bool]]:
    """Yield each run that is to be trained, and whether it is trained again because its model is lost.

    Args:
        keys: the runs that are asked for, such as seeds.
        is_done: returns whether a run has a result.
        lost: returns the runs that are the best so far and whose models are not kept. One that is trained again may
            score lower, on other hardware, so another one may be the best then. Each run is repeated at most once.
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
