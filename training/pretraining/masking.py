"""Whole-word masking. A mask is a function of (seed, stage, epoch, document, piece).

It comes from a counter-based generator (Philox, of Random123), which has no state to save: a resumed run, or one with another
number of processes or workers, masks the same tokens. Each epoch has other masks.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

IGNORED = -100  # label of a token that is not predicted
_REPLACED, _RANDOM = 0.8, 0.1  # shares of masked tokens that become [MASK] or a random token; the rest stays


def uniform(key: tuple[int, int], counter: tuple[int, int, int], count: int) -> np.ndarray:
    """Return `count` numbers in [0, 1), float64. They depend on key and counter alone, on every machine."""
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=np.array([0, *counter], dtype=np.uint64))
    return (generator.random_raw(count) >> np.uint64(11)) * 2.0**-53


class MaskingCollator:
    """Collator that masks words, adds [CLS] and [SEP], and pads to the longest piece of the batch.

    As in BERT, each word is masked with probability `share`. Of its tokens 80 % become [MASK], 10 % a random token that is not
    special, and 10 % stay; all are predicted. At least one word of a piece is masked.

    Args:
        tokenizer: has [MASK], [CLS] and [SEP].
        seed, stage: determine the masks, together with the piece.
        share: share of masked words, for pieces without their own `share`.
        replaced, random: shares of the masked tokens; (1, 0) for evaluation.

    Call it with pieces: mappings with `epoch`, `document` and `piece` (numbers), `input_ids` and `word_starts` (arrays of n).
    It returns `input_ids`, `attention_mask` and `labels`, tensors of shape (b, s); labels are -100 where nothing is predicted.
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
        words = np.cumsum(starts) - 1
        chosen = (of_words < piece.get("share", self.share)) | (of_words == of_words.min())
        chosen = chosen[words]
        labels = np.where(chosen, ids, IGNORED)
        ids[chosen & (what < self.replaced)] = self.mask_id
        swapped = chosen & (what >= self.replaced) & (what < self.replaced + self.random)
        ids[swapped] = self.ordinary[(other[swapped] * len(self.ordinary)).astype(np.int64)]
        return ids, labels
