"""A model that predicts parts of rows. It is loaded for the first one."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.output.device import device_of

from ..batches import BATCH_TOKENS, CPU_BATCH_TOKENS, run_in_batches, without_onednn
from ..errors import ServingError
from .rows import ERROR, ID, Part, json_line

if TYPE_CHECKING:
    from .heads import Head, Item, Result

# The Hub's pipeline tag -> module and class of the head.
HEADS = {
    "text-classification": ("classes", "ClassHead"),
    "token-classification": ("entities", "EntityHead"),
    "question-answering": ("answers", "AnswerHead"),
    "sentence-similarity": ("triplets", "TripletHead"),
    "fill-mask": ("masks", "MaskHead"),
}


class Predictor:
    """A model that predicts parts. It is loaded for the first one."""

    def __init__(
        self, folder: Path, task: str, options: dict, dtype: str, device: str | None, batch_tokens: int | None
    ):
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

    def predict(
        self, part: Part, strict: bool, advance: Callable[[float], None] = lambda share: None
    ) -> tuple[bytes, dict[str, int]]:
        """Return the lines of a part, and its numbers of rows with an error and of truncated ones.

        Args:
            strict: raise ServingError for a row with an error.
            advance: called with the share of the part that each batch is.
        """
        head = self.head
        items: list[list[Item]] = []  # of each row
        errors: dict[int, str] = {}
        for place, row in enumerate(part.rows):
            items.append([])
            try:
                if row.error:
                    raise ValueError(row.error)
                items[place] = head.items(row.texts)
            except ValueError as error:  # a ServingError too
                errors[place] = str(error) if row.error else f"{row.place}: {error}"
                if strict:
                    raise ServingError(
                        f"{errors[place]}; without --strict, such a row has this in the column {ERROR}"
                    ) from None
        outputs = iter(self._outputs(part, items, advance))
        lines = []
        for place, row in enumerate(part.rows):
            results: list[Result] = [{"predicted": None, ERROR: errors.get(place)}]
            if place not in errors:
                results = head.results(row.texts, items[place], [next(outputs) for _ in items[place]])
            lines += [json_line({ID: row.id, **row.kept, **result}) for result in results]
        truncated = sum(any(item.truncated for item in of_row) for of_row in items)
        return b"".join(lines), {"errors": len(errors), "truncated": truncated}

    def _outputs(self, part: Part, items: list[list["Item"]], advance: Callable[[float], None]) -> list:
        """Return the outputs of all items of a part, computed in batches of similar length."""
        flat = [(item, row) for of_row, row in zip(items, part.rows, strict=True) for item in of_row]
        outputs: list = [None] * len(flat)
        lengths = [item.tokens for item, _ in flat]

        def compute(batch: list[int]) -> None:
            for place, output in zip(batch, self.head.outputs([flat[place][0] for place in batch]), strict=True):
                outputs[place] = output
            advance(sum(lengths[place] for place in batch) / sum(lengths))

        with without_onednn(self.head.model.dtype):
            default = CPU_BATCH_TOKENS if self.head.model.device.type == "cpu" else BATCH_TOKENS
            self.batch_tokens = run_in_batches(
                lengths,
                self.batch_tokens or default,
                compute,
                lambda place: f"of {flat[place][1].place}",
                self.head.model.device,
            )
        return outputs
