"""Heads of models: the inputs of a row, the outputs of a batch, and the result of a row."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence

from ..chunks import check_chunk_options, chunks_of
from ..errors import ServingError

if TYPE_CHECKING:
    from ..task_model import TaskModel

Result = dict[str, object]  # the columns of a row that a head adds


@dataclass(frozen=True)
class Item:
    """An input of a model: a text, a pair of texts, a chunk of a text, or the two or three texts of a triplet.

    `inputs` are the names of the model's inputs with their values, a list for each text. `facts` is what the head needs
    besides the outputs to make a result.
    """

    inputs: dict[str, list[list[int]]]
    facts: Any = None
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of the item in a batch."""
        return len(self.inputs["input_ids"]) * max(map(len, self.inputs["input_ids"]))


@dataclass(frozen=True)
class Options:
    """Options of a head that change its results."""

    max_length: int | None = None
    chunk: int | None = None
    overlap: int | None = None
    all_scores: bool = False
    top_k: int | None = None
    threshold: float | None = None
    texts: dict[str, str] = field(default_factory=dict)  # name of a text -> its column


class Head(ABC):
    """A head of a saved model.

    `texts` has the names of the texts that it reads, and the columns that have them by default. `columns` has the names
    of the columns of its results. `labels` is the kind of the labels, by which `evaluation.py` compares them.
    """

    texts: dict[str, str]
    columns: tuple[str, ...] = ("predicted", "score")
    takes: frozenset[str] = frozenset()  # names of the `Options` that have a meaning besides `max_length` and `texts`
    labels = "classes"

    def __init__(self, loaded: "TaskModel", options: Options):
        self.tokenizer, self.model, self.options = loaded.tokenizer, loaded.model, options
        self.loaded = loaded
        for name in ("chunk", "overlap", "all_scores", "top_k", "threshold"):
            if getattr(options, name) not in (None, False) and name not in self.takes:
                raise ServingError(f"--{name.replace('_', '-')} has no meaning for {self.kind()}: leave it out")
        check_chunk_options(options.chunk, options.overlap, options.max_length)
        if unknown := [name.replace("_", "-") for name in options.texts if name not in self.texts]:
            raise ServingError(f"--{unknown[0]} has no meaning for {self.kind()}: leave it out")
        self.texts = {name: options.texts.get(name, column) for name, column in self.texts.items()}
        option = "max_length" if options.chunk is None else "chunk"
        self.longest = self.loaded.longest(options.chunk or options.max_length, option)
        self.tokenizer.truncation_side = "right"
        self._check_lengths(option)

    @abstractmethod
    def kind(self) -> str:
        """Return the name of the head in messages."""

    @abstractmethod
    def items(self, texts: Sequence[str]) -> list[Item]:
        """Return the inputs of a row, given its texts in the order of `texts`; raise ValueError if it is refused."""

    @abstractmethod
    def outputs(self, items: Sequence[Item]) -> list[Any]:
        """Run the model on a batch. Return what the results need of each item, on the CPU."""

    @abstractmethod
    def results(self, texts: Sequence[str], items: Sequence[Item], outputs: Sequence[Any]) -> list[Result]:
        """Return the results of a row, of which most heads make one."""

    def batch(self, items: Sequence[Item]) -> dict[str, torch.Tensor]:
        """Return the inputs of a batch, of shape (texts, longest text), padded on the right, on the model's device."""
        tensors = {}
        for name in items[0].inputs:
            rows = [torch.tensor(row) for item in items for row in item.inputs[name]]
            padding = self.tokenizer.pad_token_id or 0 if name == "input_ids" else 0
            tensors[name] = pad_sequence(rows, True, padding)
        tensors["attention_mask"] = pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], True)
        return {name: tensor.to(self.model.device) for name, tensor in tensors.items()}

    def encoded(self, *texts: str, offsets: bool = False) -> Item:
        """Return a text or a pair of texts, truncated. Its facts are the offsets of its tokens, if they are wanted."""
        encoding = self.tokenizer(
            *texts, truncation=True, max_length=self.longest, return_offsets_mapping=offsets, verbose=False
        )
        inputs = {name: [encoding[name]] for name in ("input_ids", "token_type_ids") if name in encoding}
        return Item(inputs, encoding.get("offset_mapping"), len(encoding["input_ids"]) >= self.longest)

    def chunks(self, text: str) -> list[Item]:
        """Return the chunks of a text. Their facts are the offsets of their tokens."""
        found = chunks_of(self.tokenizer, text, self.options.chunk, self.options.overlap or 0)
        return [Item({"input_ids": [chunk.ids]}, chunk.offsets) for chunk in found]

    def _check_lengths(self, option: str) -> None:
        is_pair = len(self.texts) == 2
        room = self.longest - self.tokenizer.num_special_tokens_to_add(pair=is_pair) - (2 if is_pair else 1)
        if room < 0:  # all texts would have the same result, that of no token
            raise ServingError(f"{option} is {self.longest}; expected at least {self.longest - room}")
        if not 0 <= (self.options.overlap or 0) <= room:
            raise ServingError(
                f"overlap is {self.options.overlap}; expected 0 to {room} for chunks of {self.longest} tokens"
            )


def finite(logits: torch.Tensor) -> torch.Tensor:
    """Return logits on the CPU in float64; raise ServingError if one is not finite."""
    logits = logits.cpu().double()
    if not logits.isfinite().all():
        raise ServingError(
            "an output of the model is not finite: compute with --dtype float32, or check the model's weights"
        )
    return logits


def rounded(score: float) -> float:
    """Return a score with six decimals."""
    return round(float(score), 6)
