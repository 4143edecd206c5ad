"""Turn a checkpoint of the original framework, or an old PyTorch one, into a folder that `from_pretrained` reads."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..model_cards import card_for, conversion_facts, data_files, file_facts, measure
from ..output.atomic_folder import output_folder
from ..output.console import byte_progress, sentence_of
from ..tokenization.characters import is_cjk
from ..tokenization.whole_file import read_whole
from .checkpoints.legacy_checkpoint import read_legacy
from .checkpoints.plan import Plan
from .checkpoints.task_layers import check_head, check_no_choice
from .errors import CheckpointError
from .families.family import Weight
from .families.registry import AUTO, check_family
from .families.roformer_start import check_target
from .folder.legacy_folder import VOCABULARY, legacy_files, name_of
from .folder.vocabulary import read_vocabulary
from .formats.dtypes import FLOATS, STORAGE, cast
from .formats.pytorch_files import is_pytorch
from .formats.safetensors_file import (
    INDEX,
    MAX_SHARD_SIZE,
    TensorSpec,
    parse_size,
    split_into_shards,
    write_safetensors,
    write_shard_index,
)
from .formats.source import Source
from .report import ConversionReport

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

GENERATION_CONFIG = "generation_config.json"
SLAB = 64  # rows of a transposed matrix made at a time


def convert(
    legacy_dir: str | Path,
    output_dir: str | Path,
    *,
    family: str = AUTO,
    as_family: str | None = None,
    checkpoint: str | None = None,
    head: str = AUTO,
    dtype: str = "float32",
    max_shard_size: int | str = MAX_SHARD_SIZE,
    force: bool = False,
    verify: bool = False,
    progress: bool = False,
) -> ConversionReport:
    """Convert a legacy checkpoint.

    Args:
        legacy_dir: folder or .zip with bert_config.json (or config.json), vocab.txt, and weights: a TensorFlow
            checkpoint, those of a bert4keras model, pytorch_model.bin or model.safetensors (sharded or not).
        output_dir: folder to create; it appears only if everything succeeds.
        family: "auto", or the checkpoint's family (`registry.FAMILIES`).
        as_family: "roformer" turns a BERT (WoBERT, WoNEZHA) into a RoFormer to train further, without its positions.
        checkpoint: name of the weights, if the folder has several.
        head: what a Keras model's task layer is applied to, if its file does not say ("classification", "pooler",
            "linear-pooler", "triplet", "tokens"), or "none" to leave it out.
        dtype: dtype of the written weights: float32, float16, bfloat16 or float64.
        max_shard_size: maximum bytes of tensors per file ("5GB", "500MB" or a number); larger models get several files
            and an index.
        force: replace the saved model at `output_dir`, in one step.
        verify: load the result with transformers and compare every tensor with the source.
        progress: show a progress bar on stderr.

    Returns:
        What was found and done.

    Raises:
        CheckpointError: the checkpoint is damaged, incomplete, or of an unsupported kind.
        OSError: a file cannot be read or written; FileExistsError if `output_dir` is not empty and may not be
            replaced.

    Example:
        >>> report = convert("chinese_roformer_L-12_H-768_A-12.zip", "roformer-base-zh", verify=True)
        >>> AutoModelForMaskedLM.from_pretrained("roformer-base-zh")
    """
    started = time.perf_counter()
    if dtype not in FLOATS:
        raise ValueError(f"weights cannot be written as {dtype!r}: choose one of {', '.join(FLOATS)}")
    shard_size = parse_size(max_shard_size)
    check_family(family)
    check_head(head)
    check_target(as_family)
    origin, output = Path(legacy_dir), Path(output_dir).resolve()
    if output in (origin.resolve(), *origin.resolve().parents):
        raise FileExistsError(f"{output} is or contains the checkpoint to convert: name a folder next to it")
    with (
        output_folder(output, force) as folder,
        legacy_files(origin, checkpoint, unpack_beside=output) as files,
        file_facts() as fact,
    ):
        if is_pytorch(files.weights):
            check_no_choice(head, files.weights)
            from .checkpoints.pytorch_checkpoint import read_pytorch  # torch and transformers, which take seconds

            checkpoint = read_pytorch(files, family, as_family)
            fact.start(*data_files(files.weights))
        else:
            fact.start(*data_files(files.weights))
            checkpoint = read_legacy(files, family, as_family, head, name_of(origin))
        source, vocabulary, config, plan = (
            checkpoint.source, checkpoint.vocabulary, checkpoint.config, checkpoint.plan
        )  # fmt: skip
        config.dtype = dtype
        parameters = sum(prod(weight.shape) for weight in plan.weights)

        _write_weights(folder, source, plan, dtype, shard_size, progress)
        fact.start(*folder.glob("*.safetensors"))
        config.save_pretrained(folder)
        if checkpoint.family == "sim" and _has_linear_pooler(config):
            from .sentence_transformers_files import write_sentence_transformers_files

            write_sentence_transformers_files(folder)
        checkpoint.tokenizer.save_pretrained(folder)
        if files.vocab.name == VOCABULARY and _says_the_same(files.vocab, folder / VOCABULARY):
            shutil.copyfile(files.vocab, folder / VOCABULARY)  # byte for byte as it was
        if checkpoint.note is None:
            _copy_generation_config(files.config.with_name(GENERATION_CONFIG), folder / GENERATION_CONFIG)
        described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        card = card_for(
            origin.resolve().name,
            described,
            vocabulary.word_level,
            **measure(folder, vocabulary.word_level, fact),
            **conversion_facts(data_files(files.weights), fact),
            note=checkpoint.note,
            language="zh" if any(is_cjk(entry) for entry in vocabulary.ids if len(entry) == 1) else None,
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
        if verify:
            from .verify import verify_weights

            verify_weights(folder, source, plan, dtype, progress)
        return ConversionReport(
            source=origin,
            output=Path(output_dir),  # as the caller gave it
            family=checkpoint.title,
            sign=checkpoint.sign,
            written_as=checkpoint.note,
            word_level=vocabulary.word_level,
            vocab_size=len(vocabulary.ids),
            words=vocabulary.words,
            layers=config.num_hidden_layers,
            parameters=parameters,
            dtype=dtype,
            variables=len(plan.weights),
            extras=plan.extras,
            ignored_settings=checkpoint.ignored_settings,
            files=sorted(file.name for file in folder.iterdir()),
            verified=verify,
            seconds=time.perf_counter() - started,
            rows=checkpoint.rows,
        )


def _says_the_same(old: Path, new: Path) -> bool:
    return read_vocabulary(old).ids == read_vocabulary(new).ids


def _copy_generation_config(old: Path, new: Path) -> None:
    """Copy the file if there is one; raises CheckpointError if it is invalid."""
    if not old.is_file():
        return
    from transformers import GenerationConfig

    try:
        GenerationConfig(**json.loads(read_whole(old)))
    except Exception as error:  # invalid JSON, and whatever a field of the wrong type causes
        raise CheckpointError(f"{old} cannot be read: {sentence_of(error)}") from None
    shutil.copyfile(old, new)


def _has_linear_pooler(config: PreTrainedConfig) -> bool:
    """Whether the model makes RoFormer-Sim's sentence vectors; one fine-tuned from it may have another pooler, or none."""
    return getattr(config, "add_pooling_layer", False) and getattr(config, "pooler_activation", None) == "linear"


def _write_weights(folder: Path, source: Source, plan: Plan, dtype: str, max_shard_size: int, progress: bool) -> None:
    """Stream every weight into its file, and check the checksums of what is left out."""
    weights = {weight.key: weight for weight in plan.weights}
    specs = [
        TensorSpec(weight.key, dtype, weight.shape[::-1] if weight.transpose else weight.shape)
        for weight in plan.weights
    ]
    shards = split_into_shards(specs, max_shard_size)
    with byte_progress(progress) as bar:
        task = bar.add_task("converting", total=sum(entry.size for entry in source.entries.values()))
        for names in plan.extras.values():
            for name in names:
                source.check(name)
                bar.advance(task, source.entries[name].size)

        def chunks(shard: list[TensorSpec]) -> Iterator[np.ndarray]:
            for spec in shard:
                weight = weights[spec.key]
                yield from _weight_chunks(source, weight, dtype)
                bar.advance(task, source.entries[weight.variable].size)

        for name, shard in shards.items():
            write_safetensors(folder / name, shard, chunks(shard))
        if len(shards) > 1:
            write_shard_index(folder / INDEX, shards)


def _weight_chunks(source: Source, weight: Weight, dtype: str) -> Iterator[np.ndarray]:
    """The values of one weight, as the model stores them, in pieces."""
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
