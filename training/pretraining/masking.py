"""Order of the pieces in a stage, and whole-word masking: functions of (seed, stage, epoch) and of the piece.

The numbers come from a counter-based generator (Philox, of Random123), which has no state to save: a resumed run, or
one with another number of processes or workers, reads the same pieces with the same masks. Each epoch has other masks.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import datasets
import numpy as np
import pyarrow as pa
import torch
from pyarrow.compute import list_value_length
from transformers import PreTrainedTokenizerBase

from .documents import SPECIAL_TOKENS
from .stages import Stage

IGNORED = -100  # label of a token that is not predicted
_REPLACED, _RANDOM = 0.8, 0.1  # shares of masked tokens that become [MASK] or a random token; the rest stays
_ORDERS = 2**63  # counter of the orders, which no mask has


def uniform(key: tuple[int, int], counter: tuple[int, int, int], count: int) -> np.ndarray:
    """Return `count` numbers in [0, 1), float64. They depend on key and counter alone, on every machine."""
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=np.array([0, *counter], dtype=np.uint64))
    return (generator.random_raw(count) >> np.uint64(11)) * 2.0**-53


class MaskingCollator:
    """Collator that masks words, adds [CLS] and [SEP], and pads to the longest piece of the batch.

    As in BERT, each word is masked with probability `share`. Of its tokens 80 % become [MASK], 10 % a random token that
    is not special, and 10 % stay; all are predicted. At least one word of a piece is masked.

    Args:
        tokenizer: has [MASK], [CLS] and [SEP].
        seed, stage: determine the masks, together with the piece.
        share: share of masked words, for pieces without their own `share`.
        replaced, random: shares of the masked tokens; (1, 0) for evaluation.

    Call it with pieces: mappings with `epoch`, `document` and `piece` (numbers), `input_ids` and `word_starts` (arrays
    of n). It returns `input_ids`, `attention_mask` and `labels`, tensors of shape (b, s); labels are -100 where nothing
    is predicted.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        seed: int = 0,
        stage: int = 0,
        share: float = 0.15,
        replaced: float = _REPLACED,
        random: float = _RANDOM,
    ):
        self.cls_id, self.sep_id = tokenizer.cls_token_id, tokenizer.sep_token_id
        self.mask_id, self.pad_id = tokenizer.mask_token_id, tokenizer.pad_token_id
        self.ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
        self.key, self.share, self.replaced, self.random = (seed, stage), share, replaced, random

    def __call__(self, pieces: Sequence[Mapping]) -> dict[str, torch.Tensor]:
        lengths = np.array([len(piece["input_ids"]) for piece in pieces])
        rows, places = np.arange(len(pieces)).repeat(lengths), np.arange(lengths.sum())
        places += 1 - (lengths.cumsum() - lengths).repeat(lengths)  # after [CLS]
        shape = len(pieces), lengths.max() + SPECIAL_TOKENS
        input_ids, labels = np.full(shape, self.pad_id), np.full(shape, IGNORED)
        input_ids[rows, places], labels[rows, places] = self.mask(pieces, lengths, rows)
        input_ids[:, 0], input_ids[np.arange(len(pieces)), lengths + 1] = self.cls_id, self.sep_id
        mask = np.arange(shape[1]) < (lengths + SPECIAL_TOKENS)[:, None]
        batch = {"input_ids": input_ids, "attention_mask": mask.astype(np.int64), "labels": labels}
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    def mask(self, pieces: Sequence[Mapping], lengths: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the masked ids of all pieces and their labels, int64 of shape (n,) each.

        `lengths` are the numbers of tokens of the pieces, and `rows` the piece of each of the n tokens.
        """
        ids = np.concatenate([piece["input_ids"] for piece in pieces]).astype(np.int64)
        starts = np.concatenate([piece["word_starts"] for piece in pieces]).astype(bool)
        starts[lengths.cumsum() - lengths] = True  # a piece may begin inside a word, if that is longer than a piece
        counters = ([int(piece[name]) for name in ("epoch", "document", "piece")] for piece in pieces)
        draws = [uniform(self.key, counter, 3 * n).reshape(3, n) for counter, n in zip(counters, lengths, strict=True)]
        of_words, what, other = np.concatenate(draws, axis=1)
        of_words, rows = of_words[starts], rows[starts]
        shares = np.array([piece.get("share", self.share) for piece in pieces])
        least = np.minimum.reduceat(of_words, np.searchsorted(rows, np.arange(len(pieces))))
        chosen = ((of_words < shares[rows]) | (of_words == least[rows]))[starts.cumsum() - 1]
        labels = np.where(chosen, ids, IGNORED)
        ids[chosen & (what < self.replaced)] = self.mask_id
        swapped = chosen & (what >= self.replaced) & (what < self.replaced + self.random)
        ids[swapped] = self.ordinary[(other[swapped] * len(self.ordinary)).astype(np.int64)]
        return ids, labels


class StageExamples(torch.utils.data.Dataset):
    """All examples of a stage in training order, over as many epochs as its steps take.

    Each epoch has all pieces in a new order. Example i depends on i and the seed alone: a run resumes from i, and
    several processes read the same batches as one.

    Args:
        pieces: rows of `split_documents`.
        stage: determines the number of examples and the share of masked words.
        seed, number: determine the order. `number` is that of the stage.
        by_length: sort the pieces of each step by length. The parts of a large batch then have less padding.
    """

    def __init__(self, pieces: datasets.Dataset, stage: Stage, seed: int = 0, number: int = 0, by_length: bool = False):
        self.pieces, self.stage, self.key = pieces.with_format("arrow"), stage, (seed, number)
        self._order = self._sorted = -1, np.arange(0)  # of the last epoch, and of the last step
        self._lengths = list_value_length(self.pieces["input_ids"][:]).to_numpy() if by_length else None

    def __len__(self) -> int:
        return self.stage.batch_size * self.stage.steps

    def __getitem__(self, index: int) -> dict:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict]:
        """Return rows of `pieces` with their `epoch` and the `share` of words to mask."""
        if self._lengths is None:
            epochs, rows = self._place(np.array(indices, dtype=np.int64))
        else:
            places = (divmod(index, self.stage.batch_size) for index in indices)
            epochs, rows = np.stack([self._by_length(step)[:, place] for step, place in places], axis=1)
        first, last = self.stage.masked
        steps = max(1, self.stage.steps - 1)
        return [
            {
                "epoch": int(epoch),
                "share": first + (last - first) * (index // self.stage.batch_size) / steps,
                **piece,
            }
            for index, epoch, piece in zip(indices, epochs, _read(self.pieces, rows.tolist()), strict=True)
        ]

    def _place(self, examples: np.ndarray) -> np.ndarray:
        """Return the epoch of each example and its row of `pieces`, shape (2, n)."""
        epochs, places = np.divmod(examples, len(self.pieces))
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):  # and not one by one: an order is a sort of all pieces
            rows[epochs == epoch] = self.order(epoch)[places[epochs == epoch]]
        return np.stack([epochs, rows])

    def _by_length(self, step: int) -> np.ndarray:
        """Return `_place` of the examples of a step, sorted by length."""
        if self._sorted[0] != step:
            placed = self._place(np.arange(step * self.stage.batch_size, (step + 1) * self.stage.batch_size))
            self._sorted = step, placed[:, np.argsort(self._lengths[placed[1]], kind="stable")]
        return self._sorted[1]

    def order(self, epoch: int) -> np.ndarray:
        """Return the numbers of all pieces in the order of an epoch."""
        if self._order[0] != epoch:
            draws = uniform(self.key, (int(epoch), _ORDERS, 0), len(self.pieces))
            self._order = epoch, np.argsort(draws, kind="stable")
        return self._order[1]


def _read(pieces: datasets.Dataset, rows: Sequence[int]) -> list[dict]:
    """Return rows of `pieces`, which has the format "arrow": that of numpy takes several times as long."""
    table = pieces[rows]
    columns = [_in_numpy(column.combine_chunks()) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _in_numpy(column: pa.Array) -> Sequence:
    """Return the values of a column; lists are views of one array."""
    if not isinstance(column, (pa.ListArray, pa.LargeListArray)):
        return column.to_numpy(zero_copy_only=False)
    values, ends = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
    return [values[first:last] for first, last in pairwise(ends)]


class HeldOutBatches(Sequence):
    """Batches of held-out pieces (rows of `split_documents`), with the same masks each time."""

    def __init__(self, pieces: datasets.Dataset, collator: MaskingCollator, batch_size: int):
        self.pieces, self.collator, self.batch_size = pieces.with_format("arrow"), collator, batch_size

    def __len__(self) -> int:
        return -(-len(self.pieces) // self.batch_size)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        rows = range(number * self.batch_size, min((number + 1) * self.batch_size, len(self.pieces)))
        return self.collator([{"epoch": 0, **piece} for piece in _read(self.pieces, rows)])
