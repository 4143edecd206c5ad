"""Truncation of a text to the tokens that a model reads."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from ..errors import ServingError


@dataclass(frozen=True)
class Reading:
    """Part of a text that a model reads.

    Args:
        name: of the text in messages.
        ids: with special tokens.
        offsets: characters of each token in the text; None for special tokens.
        tokens: number of tokens of the whole text, without special tokens.
        before, after: number of tokens that are cut off there.
        part: the text that is read.
    """

    name: str
    ids: list[int]
    offsets: list[tuple[int, int] | None]
    tokens: int
    before: int
    after: int
    part: str


def read(
    text: str, tokenizer: PreTrainedTokenizerBase, longest: int, *, around: int | None = None, name: str = "the text"
) -> Reading:
    """Read at most `longest` tokens of a text, special tokens included.

    They are the first tokens or, given `around`, a window that holds every token with that id.

    Raises:
        ServingError: the text has no token, or the tokens `around` are too far apart.
    """
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    inside = [i for i, sequence in enumerate(encoded.sequence_ids(0)) if sequence is not None]
    if not inside:
        raise ServingError(f"{name} has no token")
    first, last = inside[0], inside[-1] + 1  # special tokens are at the ends
    tokens = last - first
    room = longest - (len(ids) - tokens)
    start = _start([i - first for i in inside if ids[i] == around], tokens, room)
    stop = min(start + room, tokens)
    chosen = range(first + start, first + stop)
    return Reading(
        name=name,
        ids=[*ids[:first], *(ids[i] for i in chosen), *ids[last:]],
        offsets=[*[None] * first, *(tuple(offsets[i]) for i in chosen), *[None] * (len(ids) - last)],
        tokens=tokens,
        before=start,
        after=tokens - stop,
        part=text[offsets[chosen[0]][0] if start else 0 : offsets[chosen[-1]][1] if stop < tokens else len(text)],
    )


def _start(wanted: list[int], tokens: int, room: int) -> int:
    """Return the first token of a window centred on the wanted tokens."""
    if not wanted or wanted[-1] < room:
        return 0
    if wanted[-1] - wanted[0] >= room:
        raise ServingError(
            f"the first and the last mask are {wanted[-1] - wanted[0]:,} tokens apart, but the model reads {room:,} at once: "
            "fill one at a time"
        )
    return min(max((wanted[0] + wanted[-1] + 1 - room) // 2, 0), tokens - room)
