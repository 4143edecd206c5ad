"""Ids that stand more than once, in bounded memory: 64-bit hashes of them all, a part of them at a time."""

from collections import Counter

import numpy as np

from .vector_folder import VectorFolder, open_shard

_AT_ONCE = 1 << 22  # hashes in memory


def repeated_ids(folder: VectorFolder, at_once: int = _AT_ONCE) -> tuple[int, str | None]:
    """How many different ids stand more than once, and one of them.

    What has the hash of another id may be another id; so ids of such hashes are looked at themselves.
    """
    total = sum(map(len, _hashes(folder)))
    parts = -(-total // at_once)
    count, example = 0, None
    for part in range(parts):
        hashes = np.sort(np.concatenate([some[some % parts == part] for some in _hashes(folder)]))
        suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        if len(suspects):
            seen = Counter()
            for ids in _ids(folder):
                seen.update(ids[np.isin(_hash(ids), suspects)])
            repeated = [id_ for id_, times in seen.items() if times > 1]
            count += len(repeated)
            example = example or next(iter(repeated), None)
    return count, example


def _hashes(folder: VectorFolder):
    return (_hash(ids) for ids in _ids(folder))


def _hash(ids: np.ndarray) -> np.ndarray:
    from pandas.util import hash_array

    return hash_array(ids, categorize=False)


def _ids(folder: VectorFolder):
    for path in folder.files():
        with open_shard(path) as file:
            yield file.read(["id"])["id"].to_numpy()
