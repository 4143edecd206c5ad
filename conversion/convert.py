"""Turn a legacy TensorFlow checkpoint into a folder that `from_pretrained` reads."""

import json
import shutil
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from ..model_cards import card_for
from ..tokenization.characters import is_cjk
from ..tokenization.tokenizer import RoFormerTokenizer
from .dtypes import FLOATS, STORAGE, cast
from .errors import CheckpointError
from .family import Weight
from .legacy_folder import VOCABULARY, legacy_files
from .output_folder import output_folder
from .plan import Plan, make_plan
from .progress_bar import byte_progress
from .registry import AUTO, choose
from .report import ConversionReport
from .safetensors_file import TensorSpec, write_safetensors
from .settings import read_settings
from .source import Source
from .sources import open_source
from .verify import verify_weights
from .vocabulary import read_vocabulary

SLAB = 64  # rows of a transposed matrix made at a time


def convert(
    legacy_dir: str | Path,
    output_dir: str | Path,
    *,
    family: str = AUTO,
    checkpoint: str | None = None,
    dtype: str = "float32",
    verify: bool = False,
    progress: bool = False,
) -> ConversionReport:
    """Convert a legacy checkpoint.

    Args:
        legacy_dir: folder or .zip with bert_config.json (or config.json), vocab.txt and a TensorFlow checkpoint.
        output_dir: folder to make; nothing is there afterwards unless all went well.
        family: "auto", or the family that the checkpoint is of (`registry.TITLES`).
        checkpoint: prefix of the TensorFlow checkpoint, where the folder has several.
        dtype: number format of the weights that are written: float32, float16, bfloat16 or float64.
        verify: load the result with transformers and compare every tensor with the source.
        progress: show a progress bar on stderr.

    Returns:
        What was found and done.

    Raises:
        CheckpointError: the checkpoint is damaged, incomplete, or of a kind that is not converted.
        OSError: a file cannot be read or written; FileExistsError where `output_dir` is not empty.

    Example:
        >>> report = convert("chinese_roformer_L-12_H-768_A-12.zip", "roformer-base-zh", verify=True)
        >>> AutoModelForMaskedLM.from_pretrained("roformer-base-zh")
    """
    started = time.perf_counter()
    if dtype not in FLOATS:
        raise ValueError(f"weights cannot be written as {dtype!r}: choose one of {', '.join(FLOATS)}")
    origin, output = Path(legacy_dir), Path(output_dir).resolve()
    with output_folder(output) as folder, legacy_files(origin, checkpoint, unpack_beside=output) as files:
        settings = read_settings(files.config)
        vocabulary = read_vocabulary(files.vocab)
        source = open_source(files)
        kind = choose(family, source.entries, settings, origin.resolve().name, str(source.path))
        config = kind.config(settings, vocabulary)
        config.dtype = dtype
        plan = make_plan(source, kind, config, settings, vocabulary)
        parameters = sum(prod(weight.shape) for weight in plan.weights)

        _write_weights(folder / "model.safetensors", source, plan, dtype, progress)
        config.save_pretrained(folder)
        RoFormerTokenizer(vocabulary.ids, **kind.tokenizer).save_pretrained(folder)
        shutil.copyfile(files.vocab, folder / VOCABULARY)
        described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        card = card_for(
            origin.resolve().name,
            described,
            vocabulary.word_level,
            parameters=f"{parameters:,}",
            dtype=dtype,
            language="zh" if any(is_cjk(entry) for entry in vocabulary.ids if len(entry) == 1) else None,
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
        if verify:
            verify_weights(folder, source, plan, dtype)
        return ConversionReport(
            source=origin,
            output=output,
            family=kind.title,
            word_level=vocabulary.word_level,
            vocab_size=len(vocabulary.ids),
            words=vocabulary.words,
            layers=config.num_hidden_layers,
            parameters=parameters,
            dtype=dtype,
            variables=len(plan.weights),
            extras=plan.extras,
            ignored_settings=sorted(settings.ignored.keys() - {"model_type"}),  # which the family is recognised by
            files=sorted(file.name for file in folder.iterdir()),
            verified=verify,
            seconds=time.perf_counter() - started,
        )


def _write_weights(path: Path, source: Source, plan: Plan, dtype: str, progress: bool) -> None:
    """Stream every weight into the file, and read what is left out for its checksum."""
    specs = [
        TensorSpec(weight.key, dtype, weight.shape[::-1] if weight.transpose else weight.shape)
        for weight in plan.weights
    ]
    with byte_progress(progress) as bar:
        task = bar.add_task("converting", total=sum(entry.size for entry in source.entries.values()))
        for names in plan.extras.values():
            for name in names:
                source.check(name)
                bar.advance(task, source.entries[name].size)

        def chunks() -> Iterator[np.ndarray]:
            for weight in plan.weights:
                yield from _weight_chunks(source, weight, dtype)
                bar.advance(task, source.entries[weight.variable].size)

        write_safetensors(path, specs, chunks())


def _weight_chunks(source: Source, weight: Weight, dtype: str) -> Iterator[np.ndarray]:
    """The numbers of one weight, as its model wants them, in pieces."""
    stored = source.entries[weight.variable].dtype
    try:
        if weight.transpose:
            matrix = source.read(weight.variable)
            for row in range(0, matrix.shape[1], SLAB):
                yield cast(np.ascontiguousarray(matrix[:, row : row + SLAB].T), stored, dtype)
        else:
            for chunk in source.chunks(weight.variable):
                yield cast(chunk.view(STORAGE[stored]), stored, dtype)
    except OverflowError as error:
        raise CheckpointError(f"{source.path}: {weight.variable} cannot be written: {error}") from None
