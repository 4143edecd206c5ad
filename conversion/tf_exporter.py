"""Export a model trained here as a checkpoint that bert4keras and TensorFlow read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.output.console import summary_table
from modeling_roformer.output.progress import byte_progress

from .errors import CheckpointError
from .folder.legacy_folder import CONFIGS, VOCABULARY, checked_output, legacy_files, name_of
from .formats.pytorch_files import is_pytorch
from .formats.tensor_bundle_writer import write_bundle

if TYPE_CHECKING:
    from .checkpoints.checkpoint import Checkpoint
    from .families.weights import Weight

PREFIX = "bert_model.ckpt"


@dataclass(frozen=True)
class ExportReport:
    """The result of one export.

    `call` and `tokenizer` load it in bert4keras, which ignores the variables of a task head, `task`.
    """

    source: Path
    output: Path
    title: str
    architecture: str
    call: str
    tokenizer: str
    variables: int
    parameters: int
    dtypes: list[str]
    task: list[str]
    notes: list[str]
    files: list[str]
    seconds: float
    warnings: list[str] = field(default_factory=list)

    def table(self) -> Table:
        """Return the summary as a rich table."""
        rows = {
            "source": str(self.source),
            "output": str(self.output),
            "model": f"{self.title}, {self.architecture}",
            "in bert4keras": self.call,
            "its tokenizer": self.tokenizer,
            "variables": str(self.variables),
            "parameters": f"{self.parameters:,}",
            "dtype": ", ".join(self.dtypes),
            "task head": ", ".join(self.task) + " (bert4keras ignores them)" if self.task else None,
            "note": "; ".join(self.notes) or None,
            "files": ", ".join(self.files),
            "seconds": f"{self.seconds:.1f}",
            "WARNING": "\n".join(self.warnings) or None,
        }
        return summary_table(rows)


def export_tf(
    directory: str | Path,
    legacy_dir: str | Path,
    *,
    prefix: str = PREFIX,
    padded_vocabulary: bool = False,
    force: bool = False,
    progress: bool = False,
) -> ExportReport:
    """Write a saved model in the original format: bert_config.json, vocab.txt and a TensorFlow checkpoint.

    Values and dtypes stay the same: `roformer convert` turns the result back into the same tensors.

    Args:
        directory: a RoFormer, NEZHA or BERT with its tokenizer, as save_pretrained writes it.
        legacy_dir: folder to create; it appears only if everything succeeds.
        prefix: prefix of the checkpoint's file names.
        padded_vocabulary: as for `convert`.
        force: replace the saved model or the export at `legacy_dir`, in one step.
        progress: show a progress bar on stderr.

    Raises:
        CheckpointError: the model is damaged or incomplete, or bert4keras cannot compute the same.
        ValueError: `prefix` is empty or a path.
        OSError: a file cannot be read or written; FileExistsError if `legacy_dir` is not empty and may not be replaced.

    >>> export_tf("roformer-mini-zh", "roformer-mini-tf").call
    "build_transformer_model('bert_config.json', 'bert_model.ckpt', model='roformer', with_mlm='linear')"
    """
    started = time.perf_counter()
    if not prefix or Path(prefix).name != prefix:  # the files would be written outside the folder
        raise ValueError(f"the prefix {prefix!r} is not the start of a file name: choose one such as {PREFIX}")
    origin = Path(directory)
    output = checked_output(origin, legacy_dir)
    with output_folder(output, force) as folder, legacy_files(origin, None, unpack_beside=output) as files:
        if not is_pytorch(files.weights):
            raise CheckpointError(f"{files.weights} is already a checkpoint of the original framework")
        from . import bert4keras_support
        from .checkpoints.heads import class_weights, model_on_meta
        from .checkpoints.reading import read_checkpoint
        from .families.weights import TASK

        checkpoint = read_checkpoint(files, name_of(origin), padded_vocabulary=padded_vocabulary)
        config, tokenizer = checkpoint.config, checkpoint.tokenizer
        bert4keras_support.check_config(files.config, config)
        bert4keras_support.check_tokenizer(origin, tokenizer)
        model = model_on_meta(config, config.architectures[0], files.config)
        weights = class_weights(model)
        has_language_model = config.architectures[0].endswith(bert4keras_support.LANGUAGE_MODELS)
        if getattr(config, "is_decoder", False) and not has_language_model:
            raise CheckpointError(
                f"{files.config} cannot be exported: is_decoder is true, but {config.architectures[0]} lacks the "
                "language-model head of bert4keras' decoders"
            )

        checkpoint.check_values()
        _write_checkpoint(folder / prefix, checkpoint, weights, progress)
        fields = bert4keras_support.configuration(checkpoint)
        (folder / CONFIGS[0]).write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        unused = bert4keras_support.write_vocabulary(folder / VOCABULARY, files.vocab, tokenizer, config.vocab_size)
        return ExportReport(
            source=origin,
            output=Path(legacy_dir),  # as the caller gave it
            title=checkpoint.title,
            architecture=config.architectures[0],
            call=bert4keras_support.call(checkpoint.family, config, prefix, weights, has_language_model),
            tokenizer=bert4keras_support.tokenizer_call(tokenizer),
            variables=len(weights),
            parameters=sum(prod(weight.shape) for weight in weights),
            dtypes=sorted({checkpoint.source.entries[name].dtype for _, name in _tensors(checkpoint, weights)}),
            task=[weight.variable for weight in weights if weight.variable.startswith(TASK)],
            notes=bert4keras_support.notes(tokenizer, has_language_model, unused),
            files=sorted(file.name for file in folder.iterdir()),
            seconds=time.perf_counter() - started,
            warnings=checkpoint.warnings,
        )


def _tensors(checkpoint: Checkpoint, weights: list[Weight]) -> list[tuple[Weight, str]]:
    """Return each weight with the name of its tensor in the source."""
    names = {weight.key: weight.variable for weight in checkpoint.plan.weights}
    return [(weight, names[weight.key]) for weight in weights]


def _write_checkpoint(prefix: Path, checkpoint: Checkpoint, weights: list[Weight], progress: bool) -> None:
    """Stream every tensor into the checkpoint, in the order of names, as TensorFlow's own writer does."""
    source = checkpoint.source
    tensors = sorted(_tensors(checkpoint, weights), key=lambda pair: pair[0].variable.encode())
    with byte_progress(progress) as bar:
        task = bar.add_task("exporting", total=sum(source.entries[name].size for _, name in tensors))

        def arrays() -> Iterator[tuple[str, np.ndarray]]:
            for weight, name in tensors:
                array = source.read(name)
                yield weight.variable, array.T if weight.transpose else array
                bar.advance(task, source.entries[name].size)

        write_bundle(prefix, arrays(), dtype={weight.variable: source.entries[name].dtype for weight, name in tensors})
        for names in checkpoint.plan.extras.values():
            for name in names:
                source.check(name)
