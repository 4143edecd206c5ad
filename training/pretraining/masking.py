"""Order of the pieces in a stage, and whole-word masking: functions of (seed, stage, epoch) and of the piece.

The numbers come from a counter-based generator (Philox, of Random123), which has no state to save: a resumed run, or
one with another number of processes or workers, reads the same pieces with the same masks. Each epoch has other masks.
"""

from collections.abc import Mapping, Sequence

import datasets
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

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
        masked = [self.mask(piece) for piece in pieces]
        shape = len(masked), max(len(ids) for ids, _ in masked) + 2
        batch = {
            "input_ids": torch.full(shape, self.pad_id),
            "attention_mask": torch.zeros(shape, dtype=torch.long),
            "labels": torch.full(shape, IGNORED),
        }
        for row, (ids, labels) in enumerate(masked):
            end = len(ids) + 1
            batch["input_ids"][row, 0], batch["input_ids"][row, end] = self.cls_id, self.sep_id
            batch["input_ids"][row, 1:end] = torch.from_numpy(ids)
            batch["labels"][row, 1:end] = torch.from_numpy(labels)
            batch["attention_mask"][row, : end + 1] = 1
        return batch

    def mask(self, piece: Mapping) -> tuple[np.ndarray, np.ndarray]:
        """Return the masked ids of a piece and its labels, int64 of shape (n,) each."""
        ids = np.asarray(piece["input_ids"]).astype(np.int64)
        counter = tuple(int(piece[name]) for name in ("epoch", "document", "piece"))
        of_words, what, other = uniform(self.key, counter, 3 * len(ids)).reshape(3, -1)
        starts = np.asarray(piece["word_starts"], dtype=bool).copy()
        starts[:1] = True  # a piece may begin inside a word, if that is longer than a piece
        of_words = of_words[starts]
        chosen_words = (of_words < piece.get("share", self.share)) | (of_words == of_words.min())
        chosen = chosen_words[np.cumsum(starts) - 1]
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
        pieces: rows of `cut_documents`.
        stage: determines the number of examples and the share of masked words.
        seed, number: determine the order. `number` is that of the stage.
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
    """Batches of held-out pieces (rows of `cut_documents`), with the same masks each time."""

    def __init__(self, pieces: datasets.Dataset, collator: MaskingCollator, batch_size: int):
        self.pieces, self.collator, self.batch_size = pieces, collator, batch_size

    def __len__(self) -> int:
        return -(-len(self.pieces) // self.batch_size)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        rows = range(number * self.batch_size, min((number + 1) * self.batch_size, len(self.pieces)))
        return self.collator([{"epoch": 0, **self.pieces[row]} for row in rows])
