"""A model that predicts parts of rows. It is loaded for the first one."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.output.device import device_of

from ..batches import run_in_batches, without_onednn
from ..errors import ServingError
from .rows import ERROR, ID, Part, json_line

if TYPE_CHECKING:
    from .heads import Head

# The Hub's pipeline tag -> module and class of the head.
HEADS = {
    "text-classification": ("classes", "ClassHead"),
    "token-classification": ("entities", "EntityHead"),
    "question-answering": ("answers", "AnswerHead"),
    "sentence-similarity": ("triplets", "TripletHead"),
    "fill-mask": ("masks", "MaskHead"),
}


def strict_message(sentence: str) -> str:
    """Return the message about a row that --strict refuses."""
    return f"{sentence}; without --strict, such a row has this in the column {ERROR}"


class Predictor:
    """A model that predicts parts. It is loaded for the first one."""

    def __init__(self, folder: Path, task: str, options: dict, dtype: str, device: str | None, batch_tokens: int):
        self.folder, self.task, self.options = folder, task, options
        self.dtype, self.device, self.batch_tokens = dtype, device, batch_tokens

    @cached_property
    def head(self) -> "Head":
        """The head of the model."""
        from importlib import import_module

        from ..task_model import TaskModel
        from .heads import Options

        module, name = HEADS[self.task]
        head_class = getattr(import_module(f".{module}", __package__), name)
        model = TaskModel(self.folder, self.task, self.dtype, device_of(self.device, ServingError))
        return head_class(model, Options(**self.options))

    def predict(self, part: Part, strict: bool) -> tuple[bytes, dict[str, int]]:
        """Return the lines of a part, and its numbers of rows with an error and of truncated ones."""
        head = self.head
        errors = {place: row.error for place, row in enumerate(part.rows) if row.error}
        items, owners, counts = [], [], {}
        for place, row in enumerate(part.rows):
            if place in errors:
                continue
            try:
                found = head.items(row.texts)
            except ValueError as error:  # a ServingError too
                errors[place] = f"{row.place}: {error}"
                if strict:
                    raise ServingError(strict_message(errors[place])) from None
                continue
            items += found
            owners += [place] * len(found)
            counts[place] = len(found)
        outputs: list = [None] * len(items)

        def compute(batch: list[int]) -> None:
            for place, output in zip(batch, head.outputs([items[place] for place in batch]), strict=True):
                outputs[place] = output

        lengths = [item.tokens for item in items]
        device = head.model.device
        with without_onednn(head.model.dtype):
            self.batch_tokens = run_in_batches(
                lengths, self.batch_tokens, compute, lambda place: f"of {part.rows[owners[place]].place}", device
            )
        lines, start = [], 0
        for place, row in enumerate(part.rows):
            shared = {ID: row.id, **row.kept}
            if place in errors:
                lines.append(json_line(shared | {"predicted": None, ERROR: errors[place]}))
                continue
            end = start + counts[place]
            for result in head.results(row.texts, items[start:end], outputs[start:end]):
                lines.append(json_line(shared | result))
            start = end
        truncated = len({owner for owner, item in zip(owners, items, strict=True) if item.truncated})
        return b"".join(lines), {"errors": len(errors), "truncated": truncated}
