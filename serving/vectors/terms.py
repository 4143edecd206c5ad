"""Terms of a text: what BM25 counts."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from modeling_roformer.tokenization.segmentation import JiebaSegmenter
from modeling_roformer.tokenization.wordpiece import Normalizer

from ..errors import ServingError

UNITS = ("word", "bigram")
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
# What a change of terms would change: the code of this file and of the segmenter, and the libraries with its words.
_CODE = {"tokenization": ("segmentation.py", "wordpiece.py"), "serving.vectors": ("terms.py",)}
_LIBRARIES = ("jieba", "rjieba")


@dataclass(frozen=True)
class TermSplitter:
    """Splitter of a text into terms, without punctuation and spaces.

    unit: "word" for the words of jieba without HMM, which are those of the tokenizer of a word-level model; or "bigram"
        for each two neighbouring Han characters, and for whole words of other letters and digits.
    lowercase, strip_accents: see `Normalizer`.
    user_words: the tokenizer's `user_dict`.
    """

    unit: str
    lowercase: bool = True
    strip_accents: bool = True
    user_words: tuple[str, ...] = ()

    def __call__(self, text: str) -> Iterator[str]:
        text = Normalizer(self.lowercase, self.strip_accents)(text)
        if self.unit == "word":
            return (word for word in self._segment(text) if any(map(str.isalnum, word)))
        return (term for run in _RUN.findall(text) for term in _bigrams(run))

    @cached_property
    def _segment(self) -> JiebaSegmenter:
        return JiebaSegmenter(self.user_words)


def _bigrams(run: str) -> list[str]:
    is_whole = len(run) == 1 or not re.match(f"[{_HAN}]", run)
    return [run] if is_whole else [run[i : i + 2] for i in range(len(run) - 1)]


def check_unit(unit: str | None) -> None:
    """Raise ServingError if there is no such unit."""
    if unit not in (None, *UNITS):
        raise ServingError(f"word_unit is {unit!r}; expected one of {', '.join(UNITS)}")


def splitter_of(model: Path, unit: str) -> TermSplitter:
    """Return the splitter that normalises a text, and segments it, as the tokenizer of a model does."""
    from modeling_roformer.registration import registered_transformers

    tokenizer = registered_transformers.AutoTokenizer.from_pretrained(model)
    lowercase = bool(getattr(tokenizer, "do_lower_case", True))
    strip_accents = tokenizer.init_kwargs.get("strip_accents")
    user_words = tuple(getattr(tokenizer, "user_dict", None) or ())
    return TermSplitter(unit, lowercase, lowercase if strip_accents is None else strip_accents, user_words)


@cache
def segmenter_digest() -> str:
    """Return the SHA-256 of the code and of the versions of the libraries that split texts into terms."""
    digest = hashlib.sha256()
    for package, names in _CODE.items():
        for name in names:
            digest.update(files(f"modeling_roformer.{package}").joinpath(name).read_bytes() + b"\0")
    for library in _LIBRARIES:
        try:
            digest.update(f"{library} {version(library)}\0".encode())
        except PackageNotFoundError:  # rjieba: jieba's search in Python finds the same words
            digest.update(f"{library}\0".encode())
    return digest.hexdigest()
