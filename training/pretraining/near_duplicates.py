"""Groups of near-duplicate documents: an exact join of their sets of shingles by Jaccard similarity.

Order the shingles of all documents from the rarest to the most frequent. Two sets with a similarity of at least `t`
share a shingle among the first `n - ceil(t * n) + 1` of the `n` shingles of each (prefix filtering: Chaudhuri et al.
2006, Bayardo et al. 2007). These shingles are rare, so few dissimilar pairs are compared, and no similar pair is
missed. MinHash misses some, but held-out documents must have no near-duplicate among the training documents.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from modeling_roformer.output.progress import tracked

from ..errors import TrainingError

SHINGLE = 5  # characters
MAX_COMPARISONS = 2_000_000_000  # of pairs of documents that share a shingle; they take some minutes
_COST_PER_STEP = 1 << 24  # comparisons, or shingles, in one step: a bound of the memory
_EXTRA_COMPARISONS = 100_000_000  # upper limit of those that longer prefixes add
_LARGE_GROUP = 100  # least number of sets in a large group, and of sets that share a common shingle
_SAMPLING_ROUNDS = 3  # in each, all sets of a common shingle are compared with a random one of them
_NO_CHARACTER = 0x110000
# A shingle's number is a random linear form of its characters in 64 bits: among 10**8 shingles, two collide with
# probability 0.0003.
_WEIGHTS = np.random.default_rng(0).integers(1 << 63, size=SHINGLE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def near_duplicates(texts: Iterable[str], similarity: float = 0.5, progress: bool = False) -> np.ndarray:
    """Return the group of each text. Texts that are similar, directly or through others, have the same group.

    Two texts are similar if the Jaccard similarity of their sets of shingles is at least `similarity`. A shingle is
    `SHINGLE` consecutive characters, or the whole of a shorter text.

    Args:
        texts: documents, read once. They take about 70 bytes of memory per character.
        similarity: above 0, at most 1.
        progress: whether to show progress on stderr.

    Returns:
        Numbers of the groups, from 0: int32 of shape (texts,).

    Raises a TrainingError if `similarity` is out of range, or so low that it needs more than `MAX_COMPARISONS`.
    """
    if not 0 < similarity <= 1:
        raise TrainingError(f"similarity is {similarity}; expected a number above 0 and at most 1")
    numbers: dict[bytes, int] = {}  # texts with equal shingles share a set
    shingles = map(_shingles, tracked(texts, "shingles", progress))
    set_of_text = [numbers.setdefault(found.tobytes(), len(numbers)) for found in shingles]
    if not numbers:
        return np.zeros(0, dtype=np.int32)
    sets = [np.frombuffer(shingles, dtype=np.uint64) for shingles in numbers]
    del numbers
    join = _Join(sets, similarity)
    if join.comparisons.sum() > MAX_COMPARISONS:
        raise TrainingError(
            f"a similarity of {similarity:g} needs {join.comparisons.sum():,} comparisons of these documents; the "
            f"limit is {MAX_COMPARISONS:,}: use a higher similarity"
        )
    for rows in tracked(join.parts(), "comparisons", progress):
        join.compare_with_all(rows)
    return _numbered(join.groups[np.argsort(join.order)][set_of_text])


def _shingles(text: str) -> np.ndarray:
    """Return the numbers of the distinct shingles of a text, sorted: uint64 of shape (shingles,)."""
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    characters = np.pad(characters, (0, max(0, SHINGLE - len(characters))), constant_values=_NO_CHARACTER)
    return np.unique(np.lib.stride_tricks.sliding_window_view(characters, SHINGLE) @ _WEIGHTS)


class _Join:
    """Sets of shingles, and the groups of similar ones found so far. All arrays have the shape (sets,).

    order: int64, the order of the sets here: group by group, first the groups that are already large.
    groups: int32, the group of each set.
    comparisons: int64, the number of comparisons of each set: shingles that prefixes of it and of sets of earlier
        groups share.
    """

    def __init__(self, sets: list[np.ndarray], similarity: float):
        self.similarity, self.sizes = similarity, np.array([len(shingles) for shingles in sets])
        self.groups = np.arange(len(sets), dtype=np.int32)
        self.shared = _shared_shingles(sets, self.sizes)
        # The factor keeps rounding from making a prefix shorter. Shingles that no other set has come first and are left
        # out.
        unique = self.sizes - np.diff(self.shared.indptr)
        prefixes = self.sizes - np.ceil(similarity * self.sizes * (1 - 1e-9)).astype(np.int64) + 1 - unique
        self._join_large_groups(prefixes)
        members = np.bincount(self.groups)[self.groups]
        self.order = np.lexsort((self.groups, -members))
        self.shared, self.sizes, prefixes = self.shared[self.order], self.sizes[self.order], prefixes[self.order]
        self.groups, members = self.groups[self.order], members[self.order]
        self.is_large = members >= _LARGE_GROUP
        self.start = np.flatnonzero(np.diff(self.groups, prepend=-1))  # the first set of each group
        self.start = np.repeat(self.start, members[self.start])  # the first set of the group of each set
        # Keep only shingles that several groups have. Where it costs little, make prefixes longer: pairs that share few
        # of these shingles need not be compared.
        row, place = _rows_and_places(self.shared)
        columns, is_in_prefix = self.shared.indices, place < prefixes[row]
        one = np.zeros(self.shared.shape[1], dtype=np.int32)
        one[columns] = self.groups[row]
        is_mixed = np.zeros(len(one), dtype=bool)
        is_mixed[columns[self.groups[row] != one[columns]]] = True
        number = np.cumsum(is_mixed, dtype=np.int32) - 1
        kept = is_mixed[columns]
        self.shared = _matrix(number[columns[kept]], np.bincount(row[kept], minlength=len(sets)), int(is_mixed.sum()))
        counts = np.bincount(self.shared.indices, minlength=self.shared.shape[1])
        rare = np.searchsorted(np.cumsum(counts**2), _EXTRA_COMPARISONS)
        is_in_prefix = is_in_prefix[kept] | (self.shared.indices < rare)
        lengths = np.bincount(row[kept][is_in_prefix], minlength=len(sets))
        self.prefixes = _matrix(self.shared.indices[is_in_prefix], lengths, self.shared.shape[1])
        self.sets_of_shingle = self.prefixes.T.tocsr()
        self.rest = np.diff(self.shared.indptr) - lengths
        self.last = np.full(len(sets), -1)
        self.last[lengths > 0] = self.prefixes.indices[self.prefixes.indptr[1:][lengths > 0] - 1]
        self.comparisons = self._count_comparisons()

    def _join_large_groups(self, prefixes: np.ndarray) -> None:
        """Join large groups in few comparisons: compare all sets that share a common shingle with a random one of them.

        Each round draws another one, since the first may be similar to no other set.
        """
        row, place = _rows_and_places(self.shared)
        is_in_prefix = place < prefixes[row]
        is_common = np.bincount(self.shared.indices[is_in_prefix], minlength=self.shared.shape[1]) >= _LARGE_GROUP
        chosen = is_in_prefix & is_common[self.shared.indices]
        a, columns = row[chosen].astype(np.int64), self.shared.indices[chosen]
        draw = np.random.default_rng(0)
        for _ in range(_SAMPLING_ROUNDS):
            order = draw.permutation(len(self.sizes))
            lowest = np.full(self.shared.shape[1], len(order))
            np.minimum.at(lowest, columns, order[a])
            b = np.argsort(order)[lowest[columns]]
            is_apart = self.groups[a] != self.groups[b]
            self._join(*np.divmod(np.unique(a[is_apart] * len(order) + b[is_apart]), len(order)))

    def _count_comparisons(self) -> np.ndarray:
        """Return `comparisons`: at each shingle, count the sets before the first one of the same group."""
        sets, ends = self.sets_of_shingle.indices, self.sets_of_shingle.indptr
        is_first = np.diff(self.start[sets], prepend=-1) != 0
        is_first[ends[:-1][np.diff(ends) > 0]] = True
        first = np.maximum.accumulate(np.where(is_first, np.arange(len(sets)), 0))
        before = first - np.repeat(ends[:-1], np.diff(ends))
        return np.bincount(sets, before, len(self.sizes)).astype(np.int64)

    def parts(self) -> list[slice]:
        """Return slices of the sets to compare at once. No slice mixes a large group with another group."""
        edges = [*np.unique(self.start[self.is_large]), int(self.is_large.sum()), len(self.sizes)]
        return [
            slice(start + part.start, start + part.stop)
            for start, end in pairwise(edges)
            for part in _parts(self.comparisons[start:end])
        ]

    def compare_with_all(self, rows: slice) -> None:
        """Join the sets of some rows with all similar sets of earlier groups."""
        prefixes = self.prefixes[rows]
        columns = np.unique(prefixes.indices)
        before = self.sets_of_shingle[columns][:, : self.start[rows.stop - 1]]
        found = (prefixes[:, columns] @ before).tocoo()
        a, b, common = found.row, found.col, found.data
        a = a + rows.start
        # All other common shingles come after the prefix that ends first.
        rest = np.where(self.last[a] <= self.last[b], self.rest[a], self.rest[b])
        most = common + rest
        is_possible = most >= self.similarity * (self.sizes[a] + self.sizes[b] - most) * (1 - 1e-9)
        is_apart = (b < a) & (self.groups[a] != self.groups[b]) & is_possible
        self._join(a[is_apart], b[is_apart])

    def _join(self, a: np.ndarray, b: np.ndarray) -> None:
        """Join the groups of the similar ones among pairs of sets. The sizes rule out most pairs."""
        small, large = np.minimum(self.sizes[a], self.sizes[b]), np.maximum(self.sizes[a], self.sizes[b])
        is_possible = small >= self.similarity * large * (1 - 1e-9)
        a, b = a[is_possible], b[is_possible]
        lengths = np.diff(self.shared.indptr)
        for part in _parts(lengths[a] + lengths[b]):
            i, j = a[part], b[part]
            common = self.shared[i].multiply(self.shared[j]).sum(axis=1)
            is_similar = common / (self.sizes[i] + self.sizes[j] - common) >= self.similarity
            edges = self.groups[i[is_similar]], self.groups[j[is_similar]]
            graph = coo_array((np.ones(len(edges[0])), edges), shape=[len(self.groups)] * 2)
            self.groups = connected_components(graph, directed=False)[1][self.groups]


def _shared_shingles(sets: list[np.ndarray], sizes: np.ndarray) -> csr_array:
    """Return the matrix of sets and shingles, from the rarest shingle to the most frequent, without unique shingles."""
    _, column, counts = np.unique(np.concatenate(sets), return_inverse=True, return_counts=True)
    unique = int((counts == 1).sum())
    rank = np.empty(len(counts), dtype=np.int32)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(counts), dtype=np.int32) - unique
    column = rank[column]
    row = np.repeat(np.arange(len(sets), dtype=np.int32), sizes)[column >= 0]
    matrix = _matrix(column[column >= 0], np.bincount(row, minlength=len(sets)), len(counts) - unique)
    matrix.sort_indices()
    return matrix


def _rows_and_places(matrix: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each entry of a matrix and its place in the row."""
    lengths = np.diff(matrix.indptr)
    row = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return row, np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], lengths)


def _numbered(groups: np.ndarray) -> np.ndarray:
    """Return the groups, numbered in the order of their first members."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int32)[inverse]


def _matrix(columns: np.ndarray, lengths: np.ndarray, width: int) -> csr_array:
    """Return a sparse matrix of ones from the columns of its rows, which have `lengths` entries."""
    ones, ends = np.ones(len(columns), dtype=np.int32), np.append(0, np.cumsum(lengths))
    return csr_array((ones, columns, ends), (len(lengths), width))


def _parts(costs: np.ndarray) -> Iterator[slice]:
    """Yield slices of neighbours with a total cost of about `_COST_PER_STEP`."""
    ends = [*np.flatnonzero(np.diff(np.cumsum(costs) // _COST_PER_STEP)) + 1, len(costs)]
    return (slice(start, end) for start, end in pairwise([0, *ends]) if end > start)
