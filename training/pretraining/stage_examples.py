"""The order of the pieces in a stage: a function of the seed."""

from collections.abc import Sequence

import datasets
import numpy as np
import torch

from .masking import MaskingCollator, uniform
from .stages import Stage

_ORDERS = 2**63  # counter of the orders, which no mask has


class StageExamples(torch.utils.data.Dataset):
    """All examples of a stage in training order, over as many epochs as its steps take.

    Each epoch has all pieces in a new order. Example i depends on i and the seed alone: a run resumes from i, and several
    processes read the same batches as one.

    Args:
        pieces: rows of `cut_documents`.
        stage: determines the number of examples and the share of masked words.
        seed, number: determine the order; `number` is the stage's.
    """

    def __init__(self, pieces: datasets.Dataset, stage: Stage, seed: int = 0, number: int = 0):
        self.pieces, self.stage, self.key = pieces, stage, (seed, number)
        self._order = -1, np.arange(0)

    def __len__(self) -> int:
        return self.stage.batch_size * self.stage.steps

    def __getitem__(self, index: int) -> dict:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict]:
        """Return rows of `pieces` with their `epoch` and the `share` of words to mask."""
        epochs, places = np.divmod(np.array(indices, dtype=np.int64), len(self.pieces))
        rows = [int(self.order(epoch)[place]) for epoch, place in zip(epochs, places, strict=True)]
        first, last = self.stage.masked
        steps = max(1, self.stage.steps - 1)
        columns = self.pieces[rows]
        return [
            {
                "epoch": int(epoch),
                "share": first + (last - first) * (index // self.stage.batch_size) / steps,
                **{name: column[i] for name, column in columns.items()},
            }
            for i, (index, epoch) in enumerate(zip(indices, epochs, strict=True))
        ]

    def order(self, epoch: int) -> np.ndarray:
        """Return the numbers of all pieces in the order of an epoch."""
        if self._order[0] != epoch:
            draws = uniform(self.key, (int(epoch), _ORDERS, 0), len(self.pieces))
            self._order = epoch, np.argsort(draws, kind="stable")
        return self._order[1]


class HeldOutBatches(Sequence):
    """Batches of held-out pieces, with the same masks each time.

    Args:
        pieces: rows of `cut_documents`.
        collator: makes a batch of pieces.
        batch_size: pieces in a batch.
    """

    def __init__(self, pieces: datasets.Dataset, collator: MaskingCollator, batch_size: int):
        self.pieces, self.collator, self.batch_size = pieces, collator, batch_size

    def __len__(self) -> int:
        return -(-len(self.pieces) // self.batch_size)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        rows = range(number * self.batch_size, min((number + 1) * self.batch_size, len(self.pieces)))
        return self.collator([{"epoch": 0, **self.pieces[row]} for row in rows])
