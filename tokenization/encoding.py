"""Putting token sequences together: truncation, the template around them, padding, `tokenizers.Encoding`."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Encoding


class Tokens(NamedTuple):
    """One text, without special tokens.

    ids: its tokens; offsets: (start, end) of each in the text; words: number of the word that each belongs to.
    offsets and words are None where they were not asked for.
    """

    ids: list
    offsets: list | None = None
    words: list | None = None


def truncated_lengths(first, second, room, strategy):
    """Lengths that `tokenizers` cuts two sequences to.

    Args:
        first, second: lengths of the sequences; None for no second one.
        room: tokens that there is room for.
        strategy: "longest_first", "only_first" or "only_second".

    Raises:
        ValueError: the sequence to cut would have nothing left, or there is none.
    """
    excess = first + (second or 0) - room
    if excess <= 0:
        return first, second
    if second is None or strategy != "longest_first":
        if strategy == "only_second" and second is None:
            raise ValueError("truncation='only_second' needs a second sequence, and there is none.")
        cut = second if strategy == "only_second" else first
        if cut <= excess and second is not None:
            raise ValueError(
                f"truncation={strategy!r} cannot shorten a sequence of {cut} tokens by {excess} to fit max_length: "
                "truncate both (longest_first) or give a greater max_length."
            )
        return (first, second - excess) if strategy == "only_second" else (first - excess, second)
    short, long = sorted((first, second))
    # The shorter one stays whole where the longer one can give all; else they share the room, the odd token going
    # to the longer one.
    kept_long = long if short > room else max(short, room - short)
    if short + kept_long > room:
        short, kept_long = room // 2, room - room // 2
    return (kept_long, short) if first > second else (short, kept_long)


class Assembler:
    """Makes model inputs of token sequences: cuts them to their room and puts the special tokens around them.

    Args:
        post_processor: the `tokenizers` post-processor that knows the special tokens.
        add_special_tokens: whether to put them.
        strategy: "longest_first", "only_first", "only_second"; None cuts nothing.
        max_length: tokens of a whole input; None for no limit.
        stride: tokens that neighbouring parts of a sequence share, where overflowing parts are asked for.
        side: "right" or "left", the end to cut at.
    """

    def __init__(self, post_processor, add_special_tokens, strategy, max_length, stride, side):
        self.post_processor = post_processor
        self.add_special_tokens = add_special_tokens
        self.strategy = strategy
        self.max_length = None if strategy is None else max_length
        self.stride = stride
        self.side = side
        self._layouts = {}

    def _layout(self, n_sequences):
        """What stands where, read off the post-processor: [(source, id, type_id), ...]; source is the number of a
        sequence, None for a special token."""
        if n_sequences not in self._layouts:
            dummy = build_encoding([0], ["x"], [0], [(0, 1)])
            pair = dummy if n_sequences > 1 else None
            shape = self.post_processor.process(dummy, pair, self.add_special_tokens)
            self._layouts[n_sequences] = list(zip(shape.sequence_ids, shape.ids, shape.type_ids, strict=True))
        return self._layouts[n_sequences]

    def lengths(self, sequences):
        """How many tokens of each sequence (a list of `Tokens`) are kept."""
        full = [len(sequence.ids) for sequence in sequences]
        if self.max_length is None:
            return full
        specials = sum(source is None for source, _, _ in self._layout(len(full)))
        if self.max_length < specials:
            raise ValueError(f"max_length={self.max_length} leaves no room for the {specials} special tokens.")
        second = full[1] if len(full) > 1 else None
        return truncated_lengths(full[0], second, self.max_length - specials, self.strategy)[: len(full)]

    def _frame(self, rows, special):
        """Join the rows of an input's sequences, `special(id)` around them. The rows are used up: most of the time
        goes into reading the tokens from memory, so they are not copied."""
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
        """One input.

        Args:
            sequences: list of one or two `Tokens`, which are used up.
            with_special_tokens_mask: whether the mask is wanted.

        Returns:
            (input_ids, type_ids, special_tokens_mask, offsets): the mask is None where it is not wanted, the offsets
            where the sequences have none. A special token has the offset (0, 0).
        """
        lengths = self.lengths(sequences)
        for sequence, length in zip(sequences, lengths, strict=True):
            excess = len(sequence.ids) - length
            if excess:
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
        """One input as a `tokenizers.Encoding`, what was cut off in its `overflowing`.

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
                        f"stride={self.stride} must be smaller than the {length} tokens that max_length leaves for a "
                        "part of the sequence."
                    )
                encoding.truncate(length, stride=self.stride, direction=self.side)
            encodings.append(encoding)
        return self.post_processor.process(encodings[0], *encodings[1:], add_special_tokens=self.add_special_tokens)


def pad_rows(rows, length, side, value):
    """Lengthen each of the rows to `length` with `value`, in place."""
    for row in rows:
        padding = [value] * (length - len(row))
        if side == "right":
            row += padding
        else:
            row[:0] = padding


def build_encoding(ids, tokens, words, offsets, type_id=0):
    """A `tokenizers.Encoding` of what is given; there is no constructor, but the form that it is pickled in is JSON."""
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
    """The encodings behind a batch, each made when it is first asked for: most batches are never asked.

    Args:
        make: function of an index that gives the `tokenizers.Encoding`.
        length: how many there are.
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
