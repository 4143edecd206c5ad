"""Chunks of long texts: consecutive tokens, of which neighbours share some."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ServingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Chunk:
    """Tokens of a text with special tokens around them.

    `offsets` are the characters of each token in the text, and empty ones, such as (0, 0), for special tokens.
    """

    ids: list[int]
    offsets: Sequence[tuple[int, int]]

    @property
    def places(self) -> list[int]:
        """Places of the tokens that are not special tokens."""
        return [place for place, (start, end) in enumerate(self.offsets) if start < end]


def check_chunk_options(chunk: int | None, overlap: int | None, max_length: int | None) -> None:
    """Raise ServingError if one of these options would have no effect beside another."""
    if chunk is None and overlap is not None:
        raise ServingError(f"overlap is {overlap}, but only chunks overlap: give their length (--chunk) as well")
    if chunk is not None and max_length is not None:
        raise ServingError(f"chunk is {chunk} and max_length {max_length}: give one, since chunks hold the whole text")


def chunks_of(tokenizer: "PreTrainedTokenizerBase", text: str, length: int, overlap: int) -> list[Chunk]:
    """Split a text into chunks of at most `length` tokens, special tokens included.

    Each chunk but the first begins with the last `overlap` tokens of the one before. The tokenizer must truncate on the
    right.
    """
    # One text at a time: the offsets of its tokens are Python objects.
    encoding = tokenizer(
        [text],
        truncation=True,
        max_length=length,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    return [Chunk(ids, offsets) for ids, offsets in zip(encoding["input_ids"], encoding["offset_mapping"], strict=True)]
