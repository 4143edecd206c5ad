"""A saved model with its tokenizer, loaded for its task, and the lengths that the page allows."""

from functools import cached_property
from pathlib import Path

import torch
import transformers
from transformers import AutoTokenizer

from ...triplet_matching import AutoModelForTripletMatching
from ..errors import ServingError
from .abilities import TRIPLET, WRITE, Abilities, abilities_of
from .reading import Reading, read

LONGEST = 4096
# Characters that a text may have for each token that is read: words of English and the spaces between them have about 5,
# Chinese ones 2. What is longer is refused before anything is computed on it.
CHARACTERS = 8
LINES = 64

_AUTO_CLASSES = {
    "fill-mask": "AutoModelForMaskedLM",
    "feature-extraction": "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "text-generation": "AutoModelForCausalLM",
    "translation": "AutoModelForSeq2SeqLM",
}


class ServedModel:
    """The model of a folder, its tokenizer, and what may be asked.

    Args:
        folder: a saved model.
        max_length: longest input in tokens, special ones included; a table of positions, or the tokenizer's
            `model_max_length`, may say less.

    Raises:
        ServingError: one sentence, before anything is loaded, if there is no page for such a folder.
    """

    def __init__(self, folder: str | Path, max_length: int = LONGEST):
        folder = Path(folder)
        self.abilities: Abilities = abilities_of(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = self._auto_class().from_pretrained(folder).eval()
        if torch.accelerator.is_available():
            self.model.to(torch.accelerator.current_accelerator())
        limits = (max_length, self.abilities.positions, self.tokenizer.model_max_length)
        self.longest: int = min(limit for limit in limits if limit is not None)
        self.longest_text: int = CHARACTERS * max_length
        self.is_matcher: bool = hasattr(self.model, "triplet_loss")

    def _auto_class(self):
        tabs, task = self.abilities.tabs, self.abilities.task
        if task != "sentence-similarity":
            return getattr(transformers, _AUTO_CLASSES[task])
        return transformers.AutoModelForCausalLM if WRITE in tabs else AutoModelForTripletMatching

    @cached_property
    def is_chinese(self) -> bool:
        """Whether examples are to be Chinese."""
        return "的" in self.tokenizer.get_vocab()

    @cached_property
    def pipeline(self) -> transformers.Pipeline:
        """transformers' pipeline of the model's task."""
        task = {"question-answering": "extractive-question-answering"}.get(self.abilities.task, self.abilities.task)
        task = "triplet-matching" if self.is_matcher and TRIPLET in self.abilities.tabs else task
        return transformers.pipeline(task, model=self.model, tokenizer=self.tokenizer, device=self.model.device)

    def checked(self, text: object, name: str = "the text") -> str:
        """The text, if the page takes it; a ServingError says why not."""
        if not isinstance(text, str) or not text.strip():
            raise ServingError(f"{name} is empty: write something, or click an example")
        if _length(text) > self.longest_text:
            raise ServingError(too_long(name, self.longest_text))
        return text

    def checked_lines(self, text: object, name: str) -> list[str]:
        """The lines of a text that are not empty, if they are not too many."""
        lines = [line.strip() for line in self.checked(text, name).splitlines() if line.strip()]
        if len(lines) > LINES:
            raise ServingError(f"{name} are {len(lines)} lines, more than the {LINES} that this page compares")
        return lines

    def read(self, text: object, *, around: int | None = None, name: str = "the text") -> Reading:
        """What the model reads of a text that the page takes."""
        return read(self.checked(text, name), self.tokenizer, self.longest, around=around, name=name)

    def ids(self, reading: Reading) -> torch.Tensor:
        """Shape (1, s), on the model's device."""
        return torch.tensor([reading.ids], device=self.model.device)


def _length(text: str) -> int:
    """In UTF-16, as browsers count, which let in one character more than the page takes."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def too_long(name: str, longest: int) -> str:
    """The sentence for a text of too many characters."""
    return f"{name} is longer than the {longest:,} characters that this page takes: shorten it"
