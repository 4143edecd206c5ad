"""What each step of training reads: as many pairs of sentences as have about so many tokens."""

from collections.abc import Sequence
from itertools import chain

import datasets
import numpy as np
import torch


class TokenBatches(torch.utils.data.Dataset):
    """All batches of a run, in the order in which they are read: item i is what step i learns from.

    Each epoch shuffles all pairs, sorts them by length within pools of a hundred batches, cuts batches, and shuffles those. A
    batch has at most so many source tokens, and so many target tokens, padding among them. Item i is the same whoever asks
    for it and whenever, so that a run that goes on needs to know nothing but i.

    Args:
        pairs: rows with `input_ids` and `labels`.
        tokens: most of a batch.
        batches: how many there are.
        seed: of the order.
    """

    POOL = 100  # batches

    def __init__(self, pairs: datasets.Dataset, tokens: int, batches: int, seed: int = 0):
        self.pairs, self.tokens, self.seed, self.count = pairs, tokens, seed, batches
        lengths = [[len(ids) for ids in pairs[name]] for name in ("input_ids", "labels")]
        self.longest = np.asarray(lengths).max(0)  # of the two sides, shape (n,)
        self.sizes: list[int] = []  # how many batches each epoch has, as far as they were cut
        # The last epoch that was asked for: its number, the numbers of its pairs, and where each batch ends among them.
        self.epoch: tuple[int, np.ndarray, np.ndarray] | None = None

    @classmethod
    def once(cls, pairs: datasets.Dataset, tokens: int) -> "TokenBatches":
        """All pairs once, to measure with."""
        batches = cls(pairs, tokens, 1)
        batches.numbers(0)
        batches.count = batches.sizes[0]
        return batches

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> list[dict]:
        """The pairs of a batch."""
        rows = self.pairs[self.numbers(index)]
        return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]

    def numbers(self, index: int) -> Sequence[int]:
        """The numbers of the pairs of a batch."""
        for epoch in range(index + 1):  # each has a batch at least
            if epoch == len(self.sizes):
                self._load(epoch)
                self.sizes.append(len(self.epoch[2]) - 1)
            if index < self.sizes[epoch]:
                if self.epoch is None or self.epoch[0] != epoch:
                    self._load(epoch)
                _, numbers, ends = self.epoch
                return numbers[ends[index] : ends[index + 1]].tolist()
            index -= self.sizes[epoch]
        raise IndexError(index)

    def _load(self, epoch: int) -> None:
        """Keep the batches of this epoch, and no others: those of a long run would fill the memory."""
        self.epoch = None
        batches = self._cut(epoch)
        ends = np.cumsum([0, *map(len, batches)])
        self.epoch = epoch, np.fromiter(chain.from_iterable(batches), dtype=np.int64, count=ends[-1]), ends

    def _cut(self, epoch: int) -> list[list[int]]:
        """The numbers of the pairs of each batch, in the order in which they are read."""
        some = np.random.default_rng((self.seed, epoch))
        order = some.permutation(len(self.longest))
        pool = max(1, int(self.POOL * self.tokens / self.longest.mean()))
        batches: list[list[int]] = []
        for start in range(0, len(order), pool):
            numbers = order[start : start + pool]
            batch: list[int] = []
            for number in numbers[np.argsort(self.longest[numbers], kind="stable")].tolist():
                if batch and self.longest[number] * (len(batch) + 1) > self.tokens:
                    batches.append(batch)
                    batch = []
                batch.append(number)
            batches.append(batch)
        return [batches[number] for number in some.permutation(len(batches))]
