"""Model inputs of token sequences: truncation, special tokens, padding, `tokenizers.Encoding`."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenizers import Encoding


class Tokens(NamedTuple):
    """Tokens of one text, without special tokens.

    ids: one per token; offsets: (start, end) in the text, per token; words: number of the word, per token. offsets and
    words are None if they are not needed.
    """

    ids: list
    offsets: Any = None
    words: Any = None


def truncated_lengths(first, second, room, strategy) -> tuple[int, int | None]:
    """Return the lengths to which `tokenizers` truncates two sequences.

    Args:
        first, second: lengths of the sequences; None for no second one.
        room: maximum number of tokens of both together.
        strategy: "longest_first", "only_first" or "only_second".

    Raises:
        ValueError: the sequence to truncate is missing, or too short.
    """
    excess = first + (second or 0) - room
    if excess <= 0:
        return first, second
    if second is None or strategy != "longest_first":
        if strategy == "only_second" and second is None:
            raise ValueError("truncation='only_second' needs a text_pair, but there is none")
        cut = second if strategy == "only_second" else first
        if cut <= excess and second is not None:
            raise ValueError(
                f"truncation={strategy!r} cannot shorten a sequence of {cut} tokens by {excess} to fit max_length: use "
                "truncation='longest_first' or a greater max_length"
            )
        return (first, second - excess) if strategy == "only_second" else (first - excess, second)
    short, long = sorted((first, second))
    # The shorter one stays whole if the longer one can lose the excess. Else they share the room, and the longer one
    # gets the odd token.
    kept_long = long if short > room else max(short, room - short)
    if short + kept_long > room:
        short, kept_long = room // 2, room - room // 2
    return (kept_long, short) if first > second else (short, kept_long)


class Assembler:
    """Assembler of model inputs: truncates token sequences and adds special tokens.

    Args:
        post_processor: the `tokenizers` post-processor that adds the special tokens.
        add_special_tokens: whether to add them.
        strategy: "longest_first", "only_first", "only_second"; None truncates nothing.
        max_length: maximum number of tokens of an input, special tokens included; None for no limit.
        stride: tokens that neighbouring overflowing parts of a sequence share.
        side: "right" or "left", the end to truncate.
    """

    def __init__(self, post_processor, add_special_tokens, strategy, max_length, stride, side):
        self.post_processor = post_processor
        self.add_special_tokens = add_special_tokens
        self.strategy = strategy
        self.max_length = None if strategy is None else max_length
        self.stride = stride
        self.side = side
        self.truncated = False
        self._layouts = {}

    def _layout(self, n_sequences):
        """Return the post-processor's template as [(source, id, type_id), ...]; source is the number of a sequence,
        None for a special token."""
        if n_sequences not in self._layouts:
            dummy = build_encoding([0], ["x"], [0], [(0, 1)])
            pair = dummy if n_sequences > 1 else None
            shape = self.post_processor.process(dummy, pair, self.add_special_tokens)
            self._layouts[n_sequences] = list(zip(shape.sequence_ids, shape.ids, shape.type_ids, strict=True))
        return self._layouts[n_sequences]

    def lengths(self, sequences):
        """Return how many tokens of each sequence are kept."""
        full = [len(sequence.ids) for sequence in sequences]
        if self.max_length is None:
            return full
        specials = sum(source is None for source, _, _ in self._layout(len(full)))
        if self.max_length < specials:
            raise ValueError(f"max_length={self.max_length} leaves no room for the {specials} special tokens")
        second = full[1] if len(full) > 1 else None
        lengths = truncated_lengths(full[0], second, self.max_length - specials, self.strategy)
        return [length for length in lengths if length is not None]

    def _frame(self, rows, special):
        """Join the rows of an input's sequences with `special(id)` for each special token. The first row is extended in
        place: most of the time goes into memory reads, so rows are not copied."""
        row, before = None, []
        for source, token, _ in self._layout(len(rows)):
            if source is None:
                (before if row is None else row).append(special(token))
            elif row is None:
                row = rows[source]
                row[:0] = before
            else:
                row += rows[source]
        return row

    def assemble(self, sequences, with_special_tokens_mask):
        """Return one input as (input_ids, type_ids, special_tokens_mask, offsets).

        The mask is None without `with_special_tokens_mask`, the offsets are None if the sequences have none. The offset
        of a special token is (0, 0).

        Args:
            sequences: list of one or two `Tokens`, whose lists are changed in place.
        """
        lengths = self.lengths(sequences)
        for sequence, length in zip(sequences, lengths, strict=True):
            excess = len(sequence.ids) - length
            if excess:
                self.truncated = True
                dropped = slice(length, None) if self.side == "right" else slice(excess)
                del sequence.ids[dropped]
                if sequence.offsets is not None:
                    del sequence.offsets[dropped]
        ids = self._frame([sequence.ids for sequence in sequences], lambda token: token)
        types = []
        for source, _, type_id in self._layout(len(sequences)):
            types += [type_id] * (1 if source is None else lengths[source])
        mask = offsets = None
        if with_special_tokens_mask:
            mask = self._frame([[0] * length for length in lengths], lambda token: 1)
        if sequences[0].offsets is not None:
            offsets = self._frame([sequence.offsets for sequence in sequences], lambda token: (0, 0))
        return ids, types, mask, offsets

    def encoding(self, sequences, tokens_of):
        """Return one input as a `tokenizers.Encoding`, with the truncated parts in its `overflowing`.

        Args:
            sequences: list of `Tokens` with offsets and words.
            tokens_of: function from ids to tokens.
        """
        encodings = []
        for number, (sequence, length) in enumerate(zip(sequences, self.lengths(sequences), strict=True)):
            encoding = build_encoding(
                sequence.ids, tokens_of(sequence.ids), sequence.words, sequence.offsets, type_id=number
            )
            if length < len(sequence.ids):
                if 0 < length <= self.stride:
                    raise ValueError(
                        f"stride={self.stride} must be smaller than the {length} tokens that max_length leaves for "
                        "each part of the sequence"
                    )
                encoding.truncate(length, stride=self.stride, direction=self.side)
            encodings.append(encoding)
        return self.post_processor.process(encodings[0], *encodings[1:], add_special_tokens=self.add_special_tokens)


class Padding(NamedTuple):
    """Padding of a batch.

    length: that of the padded rows, None for no padding; side: "right" or "left"; token_id, type_id, token: what pads
        encodings.
    """

    length: int | None = None
    side: str = "right"
    token_id: int | None = None
    type_id: int = 0
    token: str | None = None

    def rows(self, rows, value):
        """Pad each row with `value`, in place, and return the rows."""
        if self.length is not None:
            for row in rows:
                padding = [value] * (self.length - len(row))
                if self.side == "right":
                    row += padding
                else:
                    row[:0] = padding
        return rows

    def encoding(self, encoding):
        """Pad a `tokenizers.Encoding`, in place, and return it."""
        if self.length is not None:
            encoding.pad(
                self.length, direction=self.side, pad_id=self.token_id, pad_type_id=self.type_id, pad_token=self.token
            )
        return encoding


def build_encoding(ids, tokens, words, offsets, type_id=0):
    """Return a `tokenizers.Encoding` with these fields. It has no constructor for them, but its pickled state is
    JSON."""
    n = len(ids)
    state = {
        "ids": ids,
        "type_ids": [type_id] * n,
        "tokens": tokens,
        "words": words,
        "offsets": offsets,
        "special_tokens_mask": [0] * n,
        "attention_mask": [1] * n,
        "overflowing": [],
        "sequence_ranges": {},
    }
    encoding = Encoding()
    encoding.__setstate__(json.dumps(state).encode())
    return encoding


class LazyEncodings(Sequence):
    """Encodings of a batch, each made on first access, since most are never used.

    Args:
        make: function from an index to the `tokenizers.Encoding`.
        length: number of encodings.
    """

    def __init__(self, make, length):
        self._make = make
        self._made = [None] * length

    def __len__(self):
        return len(self._made)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self._made[index] is None:
            self._made[index] = self._make(index % len(self))
        return self._made[index]

    def __reduce__(self):
        return list, (list(self),)
