"""Groups of documents that are nearly the same, by MinHash (Broder 1997) and banding.

A split of a corpus that keeps each group together has no near-duplicate in both halves.
"""

from collections.abc import Iterable

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

SHINGLE = 5  # characters
PERMUTATIONS = 128
_BAND = (
    4  # of a signature's entries: two documents of Jaccard similarity 0.5 share one of 32 bands with probability 0.87
)
_MOST = 1 << 16  # shingles that are permuted at once


class MinHash:
    """Signatures of documents: the share of equal entries estimates the Jaccard similarity of their sets of shingles.

    Args:
        seed: of the permutations.

    ```python
    >>> a, b = MinHash()("人民法院认为合同有效"), MinHash()("人民法院认为合同无效")
    ```
    """

    def __init__(self, seed: int = 0):
        draws = np.random.default_rng(seed).integers(1 << 63, size=(3, PERMUTATIONS), dtype=np.uint64)
        self.multipliers, self.offsets = draws[0, :, None] | np.uint64(1), draws[1, :, None]
        self.powers = draws[2, :SHINGLE] | np.uint64(1)

    def __call__(self, text: str) -> np.ndarray:
        """uint32 of shape (PERMUTATIONS,)."""
        characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
        characters = np.pad(characters, (0, max(0, SHINGLE - len(characters))))
        shingles = np.lib.stride_tricks.sliding_window_view(characters, SHINGLE) @ self.powers
        shingles = np.unique(shingles ^ (shingles >> np.uint64(29)))
        least = [
            ((self.multipliers * part + self.offsets) >> np.uint64(32)).min(axis=1)
            for part in np.array_split(shingles, -(-len(shingles) // _MOST))
        ]
        return np.min(least, axis=0).astype(np.uint32)


def near_duplicates(texts: Iterable[str], similarity: float = 0.5, seed: int = 0) -> np.ndarray:
    """The number of each text's group: those of two texts that are similar, directly or through others, are equal.

    Args:
        texts: documents, read once.
        similarity: least estimated Jaccard similarity of two documents' sets of shingles of `SHINGLE` characters.
        seed: of the permutations.

    Returns:
        int32 of shape (texts,), numbers from 0.
    """
    signature = MinHash(seed)
    signatures = [signature(text) for text in texts]
    if not signatures:
        return np.zeros(0, dtype=np.int32)
    signatures = np.stack(signatures)
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for start in range(0, PERMUTATIONS, _BAND):
        band = np.ascontiguousarray(signatures[:, start : start + _BAND]).view(f"V{4 * _BAND}")[:, 0]
        _, bucket = np.unique(band, return_inverse=True)
        order = np.argsort(bucket, kind="stable")
        # Each text of a bucket beside the one before it and beside the first.
        begins = np.diff(bucket[order], prepend=-1) != 0
        first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        pairs += [np.stack([order[1:], order[:-1]], axis=1)[~begins[1:]], np.stack([order, first], axis=1)[~begins]]
    found = np.unique(np.concatenate(pairs), axis=0)
    alike = np.concatenate(
        [
            (signatures[part[:, 0]] == signatures[part[:, 1]]).mean(axis=1) >= similarity
            for part in np.array_split(found, -(-len(found) // _MOST) or 1)
        ]
    )
    found = found[alike]
    graph = coo_matrix((np.ones(len(found)), (found[:, 0], found[:, 1])), shape=[len(signatures)] * 2)
    return connected_components(graph, directed=False)[1]
