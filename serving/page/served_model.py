"""A saved model, loaded for the page with its tokenizer and limits."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from modeling_roformer.output.device import device_of
from modeling_roformer.registration import registered_transformers

from ..errors import ServingError
from ..model_folder import load_whole, named_when_unreadable
from ..prompts import prompts_of
from ..sentence_vectors import SentenceVectors
from ..task_model import auto_class
from .model_info import MAX_LENGTH, ModelInfo, model_info_of

# Maximum characters of a text per token that is read: English has about 5, Chinese 2. Longer texts are refused
# untokenized.
CHARACTERS_PER_TOKEN = 8
MAX_LINES = 64


@dataclass(frozen=True)
class EncodedText:
    """Part of a text that a model reads."""

    name: str  # of the text in messages
    ids: list[int]  # with special tokens
    offsets: list[tuple[int, int] | None]  # characters of each token in the text; None for special tokens
    tokens: int  # of the whole text, without special tokens
    before: int  # tokens left out at the beginning
    after: int  # tokens left out at the end
    part: str  # the text that is read


class ServedModel:
    """Model and tokenizer of a folder, with the page's limits.

    Args:
        folder: a saved model.
        max_length: longest input in tokens, special tokens included; the model's table of positions and the tokenizer's
            `model_max_length` may be shorter.

    Raises:
        ServingError: the page cannot show the folder's model, or it cannot be loaded.
    """

    def __init__(self, folder: str | Path, max_length: int = MAX_LENGTH):
        folder = Path(folder)
        self.info: ModelInfo = model_info_of(folder)
        with named_when_unreadable(folder):
            self.tokenizer = registered_transformers.AutoTokenizer.from_pretrained(folder)
        # Vectors of a BERT do not need its pooler.
        unused = ("pooler.",) if self.info.task == "feature-extraction" else ()
        self.model = load_whole(auto_class(self.info.task, "write" in self.info.tabs), folder, unused).eval()
        self.model.to(device_of())
        limits = max_length, self.info.positions or max_length, self.tokenizer.model_max_length
        self.longest: int = min(limits)
        self.longest_text: int = CHARACTERS_PER_TOKEN * max_length
        self.is_matcher: bool = hasattr(self.model, "triplet_loss")
        self._folder = folder

    @cached_property
    def sentence_vectors(self) -> SentenceVectors:
        """Vectors of texts, from the outputs of the bare model."""
        return SentenceVectors(self._folder, self.model.config).to(self.model.device)

    @cached_property
    def prompts(self) -> dict[str, str]:
        """Prompts of the model, as `prompts_of` returns them."""
        return prompts_of(self._folder)

    @cached_property
    def is_chinese(self) -> bool:
        """True if the examples should be in Chinese."""
        return "的" in self.tokenizer.get_vocab()

    @cached_property
    def pipeline(self) -> registered_transformers.Pipeline:
        """Pipeline of transformers for the model's task."""
        task = "triplet-matching" if self.is_matcher and "triplet" in self.info.tabs else self.info.task
        return registered_transformers.pipeline(
            task, model=self.model, tokenizer=self.tokenizer, device=self.model.device
        )

    def checked(self, text: object, name: str = "the text") -> str:
        """Return the text; raise ServingError if it is empty or too long."""
        if not isinstance(text, str) or not text.strip():
            raise ServingError(f"{name} is empty: write something, or click an example")
        if len(text) > self.longest_text:
            raise ServingError(
                f"{name} has more than {self.longest_text:,} characters, the most that this page accepts: shorten it"
            )
        return text

    def checked_lines(self, text: object, name: str) -> list[str]:
        """Return the non-empty lines of a text; raise ServingError if there are too many."""
        lines = [line.strip() for line in self.checked(text, name).splitlines() if line.strip()]
        if len(lines) > MAX_LINES:
            raise ServingError(f"{name} are {len(lines)} lines; this page compares at most {MAX_LINES}")
        return lines

    def encode(self, text: object, *, around: int | None = None, name: str = "the text") -> EncodedText:
        """Check a text and read at most `longest` tokens, special tokens included.

        They are the first tokens or, given `around`, a window that holds every token with that id.

        Raises:
            ServingError: the text is refused, or the tokens `around` are too far apart.
        """
        text = self.checked(text, name)
        encoded = self.tokenizer(text, return_offsets_mapping=True, verbose=False)
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        inside = [i for i, sequence in enumerate(encoded.sequence_ids(0)) if sequence is not None]
        first, last = inside[0], inside[-1] + 1  # special tokens are at the ends
        tokens = last - first
        room = self.longest - (len(ids) - tokens)
        start = _start([i - first for i in inside if ids[i] == around], tokens, room)
        stop = min(start + room, tokens)
        chosen = range(first + start, first + stop)
        return EncodedText(
            name=name,
            ids=[*ids[:first], *(ids[i] for i in chosen), *ids[last:]],
            offsets=[*[None] * first, *(tuple(offsets[i]) for i in chosen), *[None] * (len(ids) - last)],
            tokens=tokens,
            before=start,
            after=tokens - stop,
            part=text[offsets[chosen[0]][0] if start else 0 : offsets[chosen[-1]][1] if stop < tokens else len(text)],
        )

    def ids(self, encoded: EncodedText) -> torch.Tensor:
        """Return the ids on the model's device, of shape (1, length)."""
        return torch.tensor([encoded.ids], device=self.model.device)


def _start(wanted: list[int], tokens: int, room: int) -> int:
    """Return the first token of a window centred on the wanted tokens."""
    if not wanted or wanted[-1] < room:
        return 0
    if wanted[-1] - wanted[0] >= room:
        raise ServingError(
            f"the first and the last mask are {wanted[-1] - wanted[0]:,} tokens apart, but the model reads {room:,} at "
            "once: fill one at a time"
        )
    return min(max((wanted[0] + wanted[-1] + 1 - room) // 2, 0), tokens - room)
