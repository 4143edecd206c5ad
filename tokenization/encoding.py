"""Model inputs: added tokens in a text, truncation, special tokens, padding, `tokenizers.Encoding`."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from tokenizers import AddedToken, Encoding, Tokenizer, models, normalizers

from .wordpiece import Normalizer

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT = "\0"  # stands for the text between added tokens


class AddedTokenSplitter:
    """Splitter of a text at its added tokens, before it is normalized and split into words, by the rules of
    `tokenizers`: longest first, with `lstrip`, `rstrip` and `single_word`; tokens marked `normalized` are searched in
    the normalized text.

    Args:
        tokens: id -> added token.
        normalizer: that of the tokenizer.

    A call with a text returns None if the text has no token, else a list of (id, start, end), with id None for the text
    between tokens.
    """

    def __init__(self, tokens: dict[int, AddedToken], normalizer: Normalizer):
        self.normalizer = normalizer
        self.literal = [token.content for token in tokens.values() if not token.normalized]
        self.normalized = [normalizer(token.content) for token in tokens.values() if token.normalized]
        # The search is that of `tokenizers`: with a model of one word, each stretch of other text becomes one token.
        self.finder = Tokenizer(models.WordLevel({_TEXT: 0}, unk_token=_TEXT))
        steps = [normalizers.Lowercase()] * normalizer.lowercase
        steps += [normalizers.NFD(), normalizers.StripAccents()] * normalizer.strip_accents
        self.finder.normalizer = normalizers.Sequence(steps)
        self.finder.add_tokens(list(tokens.values()))
        self.ids = {self.finder.token_to_id(token.content): number for number, token in tokens.items()}

    def __call__(self, text: str) -> list[tuple[int | None, int, int]] | None:
        if not any(content in text for content in self.literal):
            normalized = self.normalizer(text) if self.normalized else ""
            if not any(content in normalized for content in self.normalized):
                return None
        encoding = self.finder.encode(_SURROGATE.sub("\ufffd", text), add_special_tokens=False)
        parts = zip(encoding.ids, encoding.offsets, strict=True)
        return [(self.ids.get(found), start, end) for found, (start, end) in parts]


class Tokens(NamedTuple):
    """Tokens of one text, without special tokens.

    ids: one per token; offsets: (start, end) in the text, per token; words: number of the word, per token. offsets and
    words are empty if they are not needed.
    """

    ids: list[int]
    offsets: Sequence[tuple[int, int]] = ()
    words: Sequence[int] = ()


def join_parts(parts: Iterable[tuple[Tokens, int]]) -> Tokens:
    """Return the tokens of a text from those of its parts, each with its start in the text."""
    ids, offsets, words = [], [], []
    for part, start in parts:
        number = words[-1] + 1 if words else 0
        ids += part.ids
        offsets += [(start + first, start + last) for first, last in part.offsets]
        words += [number + word for word in part.words]
    return Tokens(ids, offsets, words)


def truncated_lengths(lengths: list[int], room: int, strategy: str) -> list[int]:
    """Return the lengths of one or two sequences after truncation, as `tokenizers` computes them.

    Args:
        lengths: those of the sequences.
        room: maximum number of tokens of all together.
        strategy: "longest_first", "only_first" or "only_second".

    Raises:
        ValueError: the sequence to truncate is missing, or too short.
    """
    excess = sum(lengths) - room
    if excess <= 0:
        return lengths
    is_pair = len(lengths) == 2
    shares_room = is_pair and strategy == "longest_first"
    target = int(strategy == "only_second")
    is_too_short = target == len(lengths) or (is_pair and not shares_room and lengths[target] <= excess)
    if room < 0 or is_too_short:
        raise ValueError(
            f"truncation={strategy!r} cannot fit sequences of {lengths} tokens into max_length, which leaves {room} "
            "beside special tokens: use a greater max_length, or truncation='longest_first'"
        )
    if shares_room:
        # The shorter one stays whole if the longer one can lose the excess. Else they share the room, and the longer
        # one gets the odd token.
        short = min(*lengths, room // 2)
        return [room - short, short] if lengths[0] > lengths[1] else [short, room - short]
    kept = list(lengths)
    kept[target] -= excess
    return kept


@dataclass
class Assembler:
    """Assembler of model inputs: truncates token sequences and adds special tokens.

    Args:
        post_processor: the `tokenizers` post-processor that adds the special tokens.
        add_special_tokens: whether to add them.
        strategy: "longest_first", "only_first" or "only_second".
        max_length: maximum number of tokens of an input, special tokens included; None for no limit.
        stride: tokens that neighbouring overflowing parts of a sequence share.
        side: "right" or "left", the end to truncate.

    Attributes:
        truncated: whether `assemble` has truncated an input.
    """

    post_processor: Any
    add_special_tokens: bool
    strategy: str
    max_length: int | None
    stride: int
    side: str
    truncated: bool = False
    _layouts: dict[int, list[tuple[int | None, int, int]]] = field(default_factory=dict)

    def _layout(self, n_sequences: int) -> list[tuple[int | None, int, int]]:
        """Return the post-processor's template as [(source, id, type_id), ...]; source is the number of a sequence,
        None for a special token."""
        if n_sequences not in self._layouts:
            dummies = [build_encoding([0], ["x"], [0], [(0, 1)])] * n_sequences
            shape = self.post_processor.process(*dummies, add_special_tokens=self.add_special_tokens)
            self._layouts[n_sequences] = list(zip(shape.sequence_ids, shape.ids, shape.type_ids, strict=True))
        return self._layouts[n_sequences]

    def lengths(self, sequences: Sequence[Tokens]) -> list[int]:
        """Return the number of tokens of each sequence that fit into `max_length`."""
        lengths = [len(sequence.ids) for sequence in sequences]
        if self.max_length is None:
            return lengths
        special_tokens = len(self._layout(len(lengths))) - len(lengths)
        return truncated_lengths(lengths, self.max_length - special_tokens, self.strategy)

    def assemble(self, sequences: Sequence[Tokens]) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
        """Return one input as (input_ids, type_ids, special_tokens_mask, offsets), with one item per token.

        The offset of a special token is (0, 0); if the sequences, one or two, have no offsets, only these are
        in the list.
        """
        lengths = self.lengths(sequences)
        kept = []
        for (tokens, offsets, _), length in zip(sequences, lengths, strict=True):
            if length < len(tokens):
                self.truncated = True
                part = slice(length) if self.side == "right" else slice(len(tokens) - length, None)
                tokens, offsets = tokens[part], offsets[part]
            kept.append((tokens, offsets))
        ids, types, mask, offsets = [], [], [], []
        for source, token, type_id in self._layout(len(sequences)):
            new_ids, new_offsets = ([token], [(0, 0)]) if source is None else kept[source]
            ids += new_ids
            types += [type_id] * len(new_ids)
            mask += [int(source is None)] * len(new_ids)
            offsets += new_offsets
        return ids, types, mask, offsets

    def encoding(self, sequences: Sequence[Tokens], ids_to_tokens: Callable[[list[int]], Any]) -> Encoding:
        """Return one input as a `tokenizers.Encoding`, with the truncated parts in its `overflowing`.

        Args:
            sequences: one or two, with offsets and words.
            ids_to_tokens: function from ids to tokens.
        """
        encodings = []
        for number, (sequence, length) in enumerate(zip(sequences, self.lengths(sequences), strict=True)):
            ids, offsets, words = sequence
            encoding = build_encoding(ids, ids_to_tokens(ids), words, offsets, type_id=number)
            if length < len(ids):
                if 0 < length <= self.stride:  # tokenizers would panic: `except Exception` does not catch that
                    raise ValueError(
                        f"stride={self.stride} must be smaller than the {length} tokens that max_length leaves for "
                        "each part of the sequence"
                    )
                encoding.truncate(length, stride=self.stride, direction=self.side)
            encodings.append(encoding)
        return self.post_processor.process(*encodings, add_special_tokens=self.add_special_tokens)


class Padding(NamedTuple):
    """Padding of a batch.

    length: length of the padded rows, 0 for no padding; side: "right" or "left"; token_id, type_id, token: the padding
        token of encodings, with its segment.
    """

    length: int
    side: str
    token_id: int | None
    type_id: int
    token: str | None

    def pad_rows(self, rows: list[list], value: Any) -> list[list]:
        """Pad each row with `value`, in place, and return the rows."""
        for row in rows:
            at = len(row) if self.side == "right" else 0
            row[at:at] = [value] * (self.length - len(row))
        return rows

    def pad_encoding(self, encoding: Encoding) -> Encoding:
        """Pad a `tokenizers.Encoding`, in place, and return it."""
        if self.length:
            encoding.pad(
                self.length, direction=self.side, pad_id=self.token_id, pad_type_id=self.type_id, pad_token=self.token
            )
        return encoding


def build_encoding(
    ids: list[int],
    tokens: list[str],
    words: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    type_id: int = 0,
) -> Encoding:
    """Return an `Encoding` with these fields. Its pickled state is JSON, and no constructor of `tokenizers` takes
    them."""
    n = len(ids)
    state = {"ids": ids, "type_ids": [type_id] * n, "tokens": tokens, "words": words, "offsets": offsets}
    state |= {"special_tokens_mask": [0] * n, "attention_mask": [1] * n, "overflowing": [], "sequence_ranges": {}}
    encoding = Encoding()
    encoding.__setstate__(json.dumps(state).encode())
    return encoding


class LazyEncodings(Sequence):
    """Encodings of a batch, each made on first access, since most are never used.

    Args:
        make: function from an index to the `tokenizers.Encoding`.
        length: number of encodings.
    """

    def __init__(self, make: Callable[[int], Encoding], length: int):
        self._made = cache(make)
        self._indices = range(length)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: Any) -> Any:  # an encoding, or the list of those of a slice
        found = self._indices[index]
        return [self._made(i) for i in found] if isinstance(found, range) else self._made(found)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
