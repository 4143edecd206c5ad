"""How a text is segmented."""

from dataclasses import dataclass

from .reading import Reading
from .served_model import ServedModel


@dataclass(frozen=True)
class Segment:
    """A token: its `offsets` are characters of the text, None for a special token that the tokenizer adds."""

    token: str
    id: int
    offsets: tuple[int, int] | None
    is_unknown: bool


def segments(served: ServedModel, text: str) -> tuple[list[Segment], Reading]:
    """The tokens of a text, in order."""
    reading, tokenizer = served.read(text), served.tokenizer
    tokens = tokenizer.convert_ids_to_tokens(reading.ids)
    return [
        Segment(token, id, offsets, id == tokenizer.unk_token_id)
        for token, id, offsets in zip(tokens, reading.ids, reading.offsets, strict=True)
    ], reading
