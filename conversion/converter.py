"""Turn a checkpoint of the original framework, or an old PyTorch one, into a folder that `from_pretrained` reads."""

import json
import shutil
import time
from dataclasses import replace
from itertools import chain
from math import prod
from pathlib import Path

import numpy as np

from modeling_roformer.files.atomic_folder import output_folder, require_nothing_lost, require_replaceable
from modeling_roformer.model_cards import card_for, conversion_facts, data_files, measure
from modeling_roformer.output.progress import byte_progress
from modeling_roformer.tokenization.wordpiece import is_cjk

from .checkpoints.checkpoint import Checkpoint
from .checkpoints.heads import HEADS
from .checkpoints.plan import Plan
from .checkpoints.reading import read_checkpoint
from .errors import CheckpointError
from .families.registry import AUTO, FAMILIES
from .families.roformer_start import TARGETS
from .families.weights import Weight
from .folder.legacy_folder import GENERATION_CONFIG, LegacyFiles, checked_output, legacy_files, name_of
from .formats.dtypes import DTYPES, FLOATS, cast
from .formats.safetensors_file import INDEX, MAX_SHARD_SIZE, split_into_shards, write_safetensors, write_shard_index
from .formats.source import Source
from .report import ConversionReport


def convert(
    legacy_dir: str | Path,
    output_dir: str | Path,
    *,
    family: str = AUTO,
    as_family: str | None = None,
    checkpoint: str | None = None,
    head: str = AUTO,
    padded_vocabulary: bool = False,
    dtype: str = "float32",
    max_shard_size: int | str = MAX_SHARD_SIZE,
    force: bool = False,
    verify: bool = False,
    dry_run: bool = False,
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
        head: the input of a Keras model's task layer, if it is not in the file ("classification", "pooler",
            "linear-pooler", "triplet", "tokens"), or "none" to leave the layer out.
        padded_vocabulary: accept embeddings with more rows than the vocabulary has entries, with a warning. Else they
            are refused, since a vocabulary that lost a line looks the same, and its ids are wrong.
        dtype: dtype of the written weights: float32, float16, bfloat16 or float64.
        max_shard_size: maximum bytes of tensors per file ("5GB", "500MB", or a number); larger models get several files
            and an index.
        force: replace the saved model at `output_dir`, in one step.
        verify: load the result with transformers and compare every tensor with the source.
        dry_run: write nothing; return the report of what would be made. The values of the tensors are not read.
        progress: show a progress bar on stderr.

    Returns:
        A report of the checkpoint, the model and the written files.

    Raises:
        CheckpointError: the checkpoint is damaged, incomplete, or of an unsupported kind.
        OSError: a file cannot be read or written; FileExistsError if `output_dir` is not empty and may not be
            replaced.

    Example:
        >>> report = convert("chinese_roformer_L-12_H-768_A-12.zip", "roformer-base-zh", verify=True)
        >>> AutoModelForMaskedLM.from_pretrained("roformer-base-zh")
    """
    started = time.perf_counter()
    _check_options(family=family, as_family=as_family, head=head, dtype=dtype)
    origin = Path(legacy_dir)
    output = checked_output(origin, output_dir)
    if require_replaceable(output, force):
        require_nothing_lost(output)
    with legacy_files(origin, checkpoint, unpack_beside=None if dry_run else output) as files:
        match = read_checkpoint(
            files,
            name_of(origin),
            family=family,
            target=as_family,
            head=head,
            padded_vocabulary=padded_vocabulary,
        )
        config, tokenizer = match.config, match.tokenizer  # made here, so that errors come before anything is written
        config.dtype = dtype
        report = ConversionReport(
            source=origin,
            output=Path(output_dir),  # as the caller gave it
            family=match.title,
            sign=match.sign,
            written_as=match.note,
            architecture=match.architecture,
            word_level=match.vocabulary.word_level,
            vocab_size=len(match.vocabulary.ids),
            words=match.vocabulary.words,
            layers=config.num_hidden_layers,
            parameters=sum(match.parameters.values()),
            dtype=dtype,
            variables=len(match.plan.weights),
            extras=match.plan.extras,
            ignored_settings=match.ignored_settings,
            rows=match.rows | _padding_row(config.vocab_size, len(match.vocabulary.ids)),
            warnings=match.warnings,
            dry_run=dry_run,
        )
        if not dry_run:
            with output_folder(output, force) as folder:
                match.check_values()
                _write_weights(folder, match.source, match.plan, dtype, max_shard_size, progress)
                config.save_pretrained(folder)
                _write_sentence_transformers_files(folder, match, files)
                tokenizer.save_pretrained(folder)
                generation_config = files.config.with_name(GENERATION_CONFIG)
                if match.note is None and generation_config.is_file():  # a model of another kind does not get it
                    shutil.copyfile(generation_config, folder / GENERATION_CONFIG)
                _write_card(folder, origin.resolve().name, match, files)
                if verify:
                    from .verify import verify_weights

                    verify_weights(folder, match.source, match.plan, dtype, progress)
                names = sorted(file.name for file in folder.iterdir())
                report = replace(report, files=names, verified=verify)
    return replace(report, seconds=time.perf_counter() - started)


def _check_options(**options: str | None) -> None:
    """Raise CheckpointError if an option is not one of its choices."""
    choices = {"family": (AUTO, *FAMILIES), "as_family": (None, *TARGETS), "head": HEADS, "dtype": FLOATS}
    for name, value in options.items():
        if value not in choices[name]:
            known = ", ".join(choice for choice in choices[name] if choice)
            raise CheckpointError(f"there is no {name} {value!r}: choose one of {known}")


def _padding_row(rows: int, entries: int) -> dict[str, str]:
    """Return the summary's line on embeddings that have no entry in the vocabulary, if there are any."""
    if rows <= entries:
        return {}
    unused = f"{rows - entries:,} rows without a token are kept, with their logits"
    return {"padded embeddings": f"{rows:,} rows for {entries:,} entries: {unused}"}


def _write_sentence_transformers_files(folder: Path, checkpoint: Checkpoint, files: LegacyFiles) -> None:
    """Copy the modules of a folder of sentence-transformers, or write those of a RoFormer-Sim."""
    is_kept = checkpoint.note is None and "pooler" not in checkpoint.plan.extras
    if is_kept and files.config.with_name("modules.json").is_file():
        from .sentence_transformers_files import copy_sentence_transformers_files

        copy_sentence_transformers_files(files.config.parent, folder)
    # A model fine-tuned from RoFormer-Sim may have another pooler, or none.
    elif (
        checkpoint.family in ("sim", "simbert")
        and checkpoint.config.add_pooling_layer
        and checkpoint.config.pooler_activation == "linear"
    ):
        from .sentence_transformers_files import write_sentence_transformers_files

        write_sentence_transformers_files(folder)


def _write_card(folder: Path, name: str, checkpoint: Checkpoint, files: LegacyFiles) -> None:
    word_level = checkpoint.vocabulary.word_level
    card = card_for(
        name,
        json.loads((folder / "config.json").read_text(encoding="utf-8")),
        word_level,
        **measure(folder, word_level),
        **conversion_facts(data_files(files.weights)),
        note=checkpoint.note,
        language="zh" if any(is_cjk(entry) for entry in checkpoint.vocabulary.ids if len(entry) == 1) else None,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _write_weights(
    folder: Path, source: Source, plan: Plan, dtype: str, max_shard_size: int | str, progress: bool
) -> None:
    """Write every weight, shard by shard, and check the checksums of the variables that are left out."""
    weights = {weight.key: weight for weight in plan.weights}
    itemsize = DTYPES[dtype].numpy.itemsize
    split = split_into_shards({key: prod(weight.shape) * itemsize for key, weight in weights.items()}, max_shard_size)
    with byte_progress(progress) as bar:
        task = bar.add_task("converting", total=sum(entry.size for entry in source.entries.values()))
        for name in chain.from_iterable(plan.extras.values()):
            source.check(name)
            bar.advance(task, source.entries[name].size)
        for file, keys in split.filename_to_tensors.items():
            tensors = {}
            for key in keys:
                tensors[key] = _converted(source, weights[key], dtype)
                bar.advance(task, source.entries[weights[key].variable].size)
            write_safetensors(folder / file, tensors, dict.fromkeys(keys, dtype))
    if split.is_sharded:
        write_shard_index(folder / INDEX, split, sum(prod(weight.shape) for weight in plan.weights))


def _converted(source: Source, weight: Weight, dtype: str) -> np.ndarray:
    """Return the values of one weight as the model stores them, contiguous."""
    original = source.read(weight.variable)
    try:
        rounded = cast(original, source.entries[weight.variable].dtype, dtype)
    except OverflowError as error:
        raise CheckpointError(f"{source.path}: {weight.variable} cannot be written: {error}") from None
    return np.asarray(rounded.T if weight.transpose else rounded, order="C")
