"""What a model reads of a text: all of it, or as many tokens as fit."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from ..errors import ServingError


@dataclass(frozen=True)
class Reading:
    """The tokens that are read.

    `ids` and `offsets` (characters of the text) include the special tokens, whose offsets are None. The whole text has
    `tokens`, without the special ones, of which `before` and `after` are left out; `part` is the text that is read.
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
    """At most `longest` tokens of a text, special ones included.

    They are the first ones; with `around`, the id of a token, they are the first that hold every such token.
    Raises ServingError where the text has no token, or those `around` which to read are too far apart.
    """
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    inside = [i for i, sequence in enumerate(encoded.sequence_ids(0)) if sequence is not None]
    if not inside:
        raise ServingError(f"{name} has no token")
    first, last = inside[0], inside[-1] + 1  # all others are special, at the ends
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
    """The first token to read, so that all the wanted ones are read, with as much before them as after."""
    if not wanted or wanted[-1] < room:
        return 0
    if wanted[-1] - wanted[0] >= room:
        raise ServingError(
            f"the first mask and the last are {wanted[-1] - wanted[0]:,} tokens apart, and {room:,} are read at once: "
            "ask for one after the other"
        )
    return min(max((wanted[0] + wanted[-1] + 1 - room) // 2, 0), tokens - room)
