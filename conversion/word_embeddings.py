"""Turn a character-level checkpoint into the start of a word-level one: the same model with a vocabulary of words.

WoBERT began like this (https://github.com/ZhuiyiTechnology/WoBERT), as did bert4keras' `keep_tokens` and
`compound_tokens`: an entry in both vocabularies keeps its embedding, and a new word gets the mean of the embeddings of
its tokens, the characters, in the old tokenizer. The output bias of the masked language model is treated likewise, and
all other weights stay unchanged.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.files.model_folder import special_file
from modeling_roformer.output.console import summary_table
from modeling_roformer.output.progress import byte_progress
from modeling_roformer.saved_fields import MODEL_TYPES as ROFORMER_TYPES
from modeling_roformer.tokenization.vocabulary import VocabularyError, check_vocabulary, read_vocab_txt
from modeling_roformer.tokenization.wordpiece import PREFIX

from .checkpoints.checkpoint import make_config
from .errors import CheckpointError
from .folder.legacy_folder import GENERATION_CONFIG, TOKENIZER, VOCABULARY, checked_output
from .folder.settings import read_fields
from .folder.vocabulary import Vocabulary
from .formats.pytorch_files import PYTORCH
from .formats.safetensors_file import write_safetensors

if TYPE_CHECKING:
    import torch

    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

    from .formats.pytorch_source import PyTorchSource
    from .formats.source import Tensor

MODEL_TYPES = ("bert", "nezha", *ROFORMER_TYPES)
NAMED_ENTRIES = 5  # in the report

_EMBEDDING = re.compile(r"(.*\.)?embeddings\.word_embeddings\.weight")
_ONE_ROW_AN_ENTRY = re.compile(_EMBEDDING.pattern + r"|(.*\.)?predictions\.(bias|decoder\.(weight|bias))")
_NO_WEIGHT = re.compile(r"(.*\.)?embeddings\.position_ids")  # 0, 1, 2, ... which old versions of transformers saved


@dataclass(frozen=True)
class Composition:
    """The ids of the old embeddings that are averaged for each new entry (`rows`), and numbers of entries.

    `copied` are in both vocabularies, `averaged` have known tokens, `incomplete` ones of these also have unknown
    tokens, which are left out, and `unknown` have none that is known, and start as [UNK].
    """

    rows: list[list[int]]
    copied: int
    averaged: int
    incomplete: int
    unknown: int


def compose(entries: list[str], tokenizer) -> Composition:
    """Compose each entry from the old tokenizer's tokens."""
    old, unknown_id = tokenizer.get_vocab(), tokenizer.unk_token_id
    new = [entry for entry in entries if entry not in old]
    texts = [entry.removeprefix("##") or entry for entry in new]
    tokens = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    known = [[token for token in ids if token != unknown_id] for ids in tokens]
    made = dict(zip(new, known, strict=True))
    return Composition(
        rows=[[old[entry]] if entry in old else made[entry] or [unknown_id] for entry in entries],
        copied=len(entries) - len(new),
        averaged=sum(map(bool, known)),
        incomplete=sum(0 < len(some) < len(ids) for some, ids in zip(known, tokens, strict=True)),
        unknown=sum(not some for some in known),
    )


def mean_rows(old: torch.Tensor, rows: list[list[int]]) -> torch.Tensor:
    """Return the means of rows of `old` (vocabulary, ...), summed in float64 and rounded to the dtype of `old`."""
    import torch
    from torch.nn.functional import embedding_bag

    ids = torch.tensor([row for row_ids in rows for row in row_ids])
    starts = torch.tensor([0, *accumulate(map(len, rows[:-1]))])
    means = embedding_bag(ids, old.reshape(len(old), -1).double(), starts, mode="mean")
    return means.to(old.dtype).reshape(len(rows), *old.shape[1:])


def _open_weights(folder: Path) -> tuple[PyTorchSource, dict[str, Tensor]]:
    """Open the tensors of a folder that `save_pretrained` made; return also those that are weights, by key."""
    name = next((name for name in PYTORCH if (folder / name).is_file()), None)
    if name is None:
        raise CheckpointError(f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin")
    from .formats.pytorch_source import PyTorchSource

    source = PyTorchSource(folder / name)
    source.unwrap()  # else the new model would have no weight under its own name
    weights = {key: entry for key, entry in source.entries.items() if not _NO_WEIGHT.fullmatch(key)}
    return source, weights


@dataclass(frozen=True)
class WordEmbeddingsReport:
    """The result of `initialise_words`; see `Composition`.

    `dropped`: number of old entries without a new one; `never_found`: new entries that the new tokenizer never gives.
    """

    source: Path
    output: Path
    model: str
    entries_before: int
    entries: int
    dropped: int
    never_found: list[str]
    composition: Composition
    resized: list[str]
    unchanged: int
    seconds: float
    warnings: list[str] = field(default_factory=list)

    def table(self) -> Table:
        """Return the summary as a rich table."""
        made, never = self.composition, self.never_found
        more = ", …" if len(never) > NAMED_ENTRIES else ""
        rows = {
            "source": str(self.source),
            "output": str(self.output),
            "model": self.model,
            "entries": f"{self.entries:,} (before: {self.entries_before:,})",
            "copied by name": f"{made.copied:,}",
            "mean of their tokens": f"{made.averaged:,} ({made.incomplete:,} of them with an unknown part)",
            "start as [UNK]": f"{made.unknown:,}",
            "dropped": f"{self.dropped:,}",
            "never found by jieba": f"{len(never):,}: {', '.join(never[:NAMED_ENTRIES])}{more}" if never else None,
            "tensors with new rows": ", ".join(self.resized),
            "unchanged tensors": f"{self.unchanged:,}",
            "seconds": f"{self.seconds:.1f}",
            "WARNING": "\n".join(self.warnings) or None,
        }
        return summary_table(rows)


def initialise_words(
    checkpoint_dir: str | Path,
    new_vocab: str | Path,
    output_dir: str | Path,
    *,
    padded_vocabulary: bool = False,
    force: bool = False,
    progress: bool = False,
) -> WordEmbeddingsReport:
    """Write a checkpoint of the same class with a new vocabulary and a RoFormerTokenizer.

    Args:
        checkpoint_dir: a saved BERT, NEZHA or RoFormer with its tokenizer.
        new_vocab: vocab.txt with words.
        output_dir: folder to create; it appears only if everything succeeds.
        padded_vocabulary: as for `convert`.
        force: replace the saved model at `output_dir`, in one step.
        progress: show a progress bar on stderr.

    Raises:
        CheckpointError: the checkpoint is incomplete, damaged or of an unsupported kind.
        VocabularyError: the new vocabulary cannot be used.
        OSError: a file cannot be read or written; FileExistsError if `output_dir` is not empty and may not be
            replaced.

    >>> initialise_words("bert-base-chinese", "words.txt", "bert-words").composition.averaged
    36315
    """
    started = time.perf_counter()
    source = Path(checkpoint_dir)
    if not source.is_dir():
        raise CheckpointError(f"{source} is not a folder (roformer pull fetches one from the Hub)")
    if reason := special_file(source):
        raise CheckpointError(reason)
    with output_folder(checked_output(source, output_dir), force) as folder:
        entries = read_vocab_txt(new_vocab)
        from . import sentence_transformers_files
        from .folder.saved_tokenizer import read_tokenizer

        old = read_tokenizer(source)
        before = old.get_vocab()  # a copy, which takes milliseconds
        tokenizer = _with_vocabulary(old, entries, new_vocab)
        names = ["config.json", *[GENERATION_CONFIG] * (source / GENERATION_CONFIG).exists()]
        configs = {name: read_fields(source / name, encoding="utf-8") for name in names}
        config = configs["config.json"]
        if (kind := config.get("model_type")) not in MODEL_TYPES:
            raise CheckpointError(
                f"{source / 'config.json'}: model_type is {kind!r}; expected one of {', '.join(MODEL_TYPES)}"
            )
        make_config(source / "config.json", "roformer" if kind in ROFORMER_TYPES else kind, config)  # which checks it
        tensors, weights = _open_weights(source)
        resized = _rows_to_make(source, weights, old)
        rows, warnings = weights[resized[0]].shape[0], []
        if rows == config.get("vocab_size") and not (source / TOKENIZER).is_file():  # which has the id of every entry
            vocabulary = Vocabulary(source / VOCABULARY, before)
            warnings = vocabulary.check_padding(rows, source / "config.json", tensors.path, padded_vocabulary)
        composition = compose(list(entries), old)

        _write_weights(folder / "model.safetensors", tensors, weights, resized, composition.rows, progress)
        for name, values in configs.items():
            values = _translated(source / name, values, before, entries)
            values.pop("_name_or_path", None)  # a path on another machine
            if name == "config.json":
                values |= {"vocab_size": len(entries), "pad_token_id": tokenizer.pad_token_id}
                if "tokenizer_class" in values:
                    values["tokenizer_class"] = type(tokenizer).__name__
            (folder / name).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        tokenizer.save_pretrained(folder)
        if (source / sentence_transformers_files.MODULES).is_file():
            sentence_transformers_files.copy_sentence_transformers_files(source, folder)
        if "auto_map" in config:
            for file in source.glob("*.py"):
                shutil.copyfile(file, folder / file.name)
        return WordEmbeddingsReport(
            source=source,
            output=Path(output_dir),
            model=", ".join(config.get("architectures") or [config["model_type"]]),
            entries_before=len(old),
            entries=len(entries),
            dropped=len(before.keys() - entries.keys()),
            never_found=never_found((entry for entry in entries if entry not in before), tokenizer),
            composition=composition,
            resized=resized,
            unchanged=len(weights) - len(resized),
            seconds=time.perf_counter() - started,
            warnings=warnings,
        )


def never_found(entries: Iterable[str], tokenizer: RoFormerTokenizer) -> list[str]:
    """Return the entries that the tokenizer splits even if the text is the entry alone.

    Pieces (##) and entries such as [unused1] are left out: a text cannot consist of them.
    """
    words = (entry for entry in entries if entry.strip() and not entry.startswith((PREFIX, "[")))
    return [word for word in words if tokenizer.tokenize(word) != [word]]


def _with_vocabulary(old: RoFormerTokenizer, entries: dict[str, int], path: str | Path) -> RoFormerTokenizer:
    """Return the same tokenizer with the new vocabulary, segmenting words."""
    check_vocabulary(entries, old.unk_token, str(path))
    needed = dict.fromkeys([*old.all_special_tokens, *old.get_added_vocab()])
    if missing := [token for token in needed if token not in entries]:
        raise VocabularyError(f"{path} lacks {', '.join(missing)}, which the checkpoint's tokenizer uses: add lines")
    from .folder.saved_tokenizer import written_anew

    return written_anew(old, entries, word_segmentation="jieba")


def _rows_to_make(source: Path, weights: dict[str, Tensor], tokenizer: RoFormerTokenizer) -> list[str]:
    """Return the keys of the tensors with one row per entry.

    Raises CheckpointError if the tokenizer has more entries.
    """
    keys = [key for key in weights if _ONE_ROW_AN_ENTRY.fullmatch(key)]
    rows = weights[keys[0]].shape[0]
    if max(tokenizer.get_vocab().values()) >= rows:
        raise CheckpointError(f"{source}: the tokenizer has {len(tokenizer):,} entries, {keys[0]} {rows:,} rows")
    return keys


def _write_weights(
    path: Path,
    source: PyTorchSource,
    weights: dict[str, Tensor],
    resized: list[str],
    rows: list[list[int]],
    progress: bool,
) -> None:
    """Write every weight into one file, those in `resized` with new rows."""
    from .formats.pytorch_source import as_array

    arrays = {}
    with byte_progress(progress) as bar:
        task = bar.add_task("writing", total=sum(entry.size for entry in weights.values()))
        for key, entry in weights.items():
            arrays[key] = source.read(key)  # which checks that the values are finite, and so their means
            if key in resized:
                arrays[key] = as_array(mean_rows(source.tensor(key), rows))
            bar.advance(task, entry.size)
        write_safetensors(path, arrays, {key: entry.dtype for key, entry in weights.items()})


def _translated(path: Path, values: dict, old: dict[str, int], new: dict[str, int]) -> dict:
    """Return a configuration with the new vocabulary's token ids (pad_token_id, eos_token_id ...)."""
    entry_of = {number: entry for entry, number in old.items()}

    def translate(key, value):
        if isinstance(value, list):
            return [translate(key, item) for item in value]
        if value is None:
            return None
        if entry_of.get(value) not in new:
            raise VocabularyError(f"{path}: {key} is {value}, but the new vocabulary has no entry for it")
        return new[entry_of[value]]

    return {key: translate(key, value) if key.endswith("_token_id") else value for key, value in values.items()}
