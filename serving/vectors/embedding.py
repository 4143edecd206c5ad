"""`roformer embed`: compute the vectors of a corpus shard by shard, while the next shard is read and tokenized."""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from rich.table import Table

from modeling_roformer.data.code_digest import code_digest
from modeling_roformer.data.sources import source_names
from modeling_roformer.data.texts import Texts
from modeling_roformer.files import write_whole
from modeling_roformer.files.lock import only_writer
from modeling_roformer.output.console import summary_table
from modeling_roformer.output.device import device_of
from modeling_roformer.output.progress import byte_progress

from ..errors import ServingError
from ..pooling import check_model
from .encoder import BATCH_TOKENS, MAX_LENGTH, Rows, TextEncoder, model_identity
from .on_ray import compute_on_ray
from .options import check_options, check_output, hash_of_paths
from .terms import check_unit, splitter_of
from .texts import READ_BYTES, Shard, read_shards
from .vector_folder import ComputedShard, VectorFolder, shard_file

logger = logging.getLogger(__name__)

SHARD_SIZE = 4096
_SECONDS_BETWEEN_WRITES = 1.0  # seconds between two writes of the settings, which grow with the number of shards


@dataclass(frozen=True)
class EmbedReport:
    """Result of `embed`.

    `shards` counts all shards, and `kept` those that were on disk before. `left_out` counts rows without a text, and
    `truncated` the texts that reach the maximum length. `chunks` is the number of all chunks, if texts were split, and
    `words` that of different words, or bigrams, if they were indexed.
    """

    model: Path
    output: Path
    texts: int
    shards: int
    kept: int
    width: int
    dtype: str
    left_out: int
    truncated: int
    seconds: float
    chunks: int | None = None
    words: int | None = None

    def table(self) -> Table:
        """Return the summary as a rich table."""
        rows = {
            "model": str(self.model),
            "output": str(self.output),
            "texts": f"{self.texts:,}",
            "chunks": f"{self.chunks:,}" if self.chunks else None,
            "vectors": f"{self.width:,} × {self.dtype}",
            "words": f"{self.words:,} different ones, indexed" if self.words else None,
            "shards": f"{self.shards:,}" + (f", {self.kept:,} of them kept" if self.kept else ""),
            "left out": f"{self.left_out:,} rows without a text" if self.left_out else None,
            "truncated": f"{self.truncated:,} texts reach the limit (--max-length)" if self.truncated else None,
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)


class ShardEncoder:
    """Encoder of shards, in this process or in a worker of Ray.

    Args:
        model: folder of the model.
        identity: `model_identity` of that folder when the command began.
        encoder_arguments: arguments of `TextEncoder`.
        shard_file_arguments: arguments of `shard_file` that are the same for each shard.
    """

    def __init__(self, model: Path, identity: str, encoder_arguments: dict, shard_file_arguments: dict):
        self.encoder = TextEncoder(model, **encoder_arguments)
        self.shard_file_arguments = shard_file_arguments
        if model_identity(model) != identity:
            raise ServingError(
                f"{model} has changed since this command began, or is another model on this machine of the cluster: "
                "run the command again once the model is complete everywhere"
            )

    def __call__(self, shard: Shard, rows: Rows | None = None) -> ComputedShard:
        """Compute a shard."""
        rows = rows or self.encoder.rows(shard.ids, shard.texts)
        vectors = self.encoder.vectors(rows)
        data = shard_file(shard, rows, vectors, **self.shard_file_arguments)
        record = {"texts": len(shard), "cut": rows.truncated, "sha256": hashlib.sha256(data).hexdigest()}
        return ComputedShard(shard.name, record, shard.read, shard.left_out, data, self.encoder.batch_tokens)


def embed(
    directory: str | Path,
    texts: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    field: str = "text",
    id_field: str | None = None,
    sample_by: str = "line",
    max_length: int | None = None,
    chunk: int | None = None,
    overlap: int | None = None,
    dtype: str = "float32",
    vector_dtype: str = "float32",
    keep_text: bool = False,
    words: bool = False,
    word_unit: str = "word",
    shard_size: int = SHARD_SIZE,
    batch_tokens: int = BATCH_TOKENS,
    device: str | None = None,
    ray: str | None = None,
    workers: int | None = None,
    progress: bool = False,
    tell: Callable[[str], object] = logger.warning,
) -> EmbedReport:
    """Write the vectors of texts to Parquet files. Called again with the same arguments, it resumes.

    Args:
        directory: a saved encoder with its tokenizer; see `TextEncoder`.
        texts: files, folders and names of data sets; see `Texts`.
        output: folder of vectors; see `VectorFolder`. Each file appears only when it is complete.
        field, id_field: names of the text and of its id in JSON Lines, CSV, TSV, Parquet and data sets.
        sample_by: what is a text in a text file: "line", or "document" for the whole file.
        max_length: truncate texts to this number of tokens; by default to what the model reads, at most 8,192.
        chunk: do not truncate texts, but split them into chunks of this number of tokens, each with a vector, the id
            of the text, and its number in it, from 1.
        overlap: tokens that a chunk shares with the one before; none by default.
        dtype, batch_tokens, device: see `TextEncoder`.
        vector_dtype: of the stored vectors, float32 or float16.
        keep_text: also store the texts.
        words: also make an index of the words, for `rank` by words; see `word_index.py`.
        word_unit: "word" or "bigram"; see `TermSplitter`.
        shard_size: texts per file, and in memory.
        ray: compute on Ray: the address of a cluster, "auto", or "local" for one on this machine.
        workers: number of Ray processes; by default one per GPU, or one per machine without GPUs.
        progress: show a progress bar on stderr.
        tell: called with a sentence when memory has run out and batches have become smaller, and when shards on disk
            were made by other code.

    Raises:
        ServingError: the model has no vectors of texts, the folder holds other vectors, a text cannot be computed, or
            Ray cannot be reached.
        DataError: a text cannot be read.

    >>> embed("roformer-mini-zh", "laws.jsonl.gz", "vectors").texts
    1234
    """
    started = time.perf_counter()
    sources = tuple(map(str, [texts] if isinstance(texts, (str, Path)) else texts))
    check_options(vector_dtype, chunk, overlap, max_length)
    check_unit(word_unit)
    check_output(output, sources)
    corpus = Texts(sources, field, id_field, sample_by, READ_BYTES)
    model, folder = check_model(directory).resolve(), VectorFolder(output)
    if device is not None and ray is None:  # last, since it imports torch; a worker of Ray may have other devices
        device_of(device, ServingError)

    with only_writer(folder.path, ServingError), byte_progress(progress) as bar:
        stored = folder.settings() or {}
        settings = {
            "model": model_identity(model),
            "texts": source_names(sources),
            "field": field,
            "id_field": id_field,
            "max_length": max_length,
            "longest": MAX_LENGTH,
            "dtype": dtype,
            "vector_dtype": vector_dtype,
            "keep_text": keep_text,
            "shard_size": shard_size,
            "chunk": chunk,
            "sample_by": None if sample_by == "line" else sample_by,  # None in folders of older versions
            "overlap": overlap or None,
        }
        folder.check(stored, settings)
        folder.remove_unfinished()
        _check_readable_again(corpus, folder)

        task = bar.add_task("reading", total=corpus.checked_size())
        # The corpus is read twice: first up to the last shard on disk, to compare texts, then for the missing shards.
        on_disk = {path.name for path in folder.files()}
        kept = _kept_shards(read_shards(corpus, shard_size), folder, stored, partial(bar.advance, task))
        if kept and stored.get("code") not in (None, code_digest()):
            tell(
                f"{folder.path}: the {len(kept):,} files of vectors there were made by another version of this package "
                "or of its tokenizer's libraries, and are kept; name a new folder to compute all vectors with this one"
            )
        paths = hash_of_paths(sources)
        if stored.get("paths") != paths:
            _check_all_kept(on_disk - kept.keys(), folder)
        settings |= {
            "model_name": source_names([str(directory)])[0] or model.name,
            "paths": paths,
            "code": code_digest(),
            "shards": {name: stored["shards"][name] for name in kept},
        }

        bar.update(task, description="embedding")
        encoder_arguments = {
            "max_length": max_length if chunk is None else chunk,
            "overlap": None if chunk is None else overlap or 0,
            "dtype": dtype,
            "device": device,
            "batch_tokens": batch_tokens,
        }
        shard_file_arguments = {"dtype": vector_dtype, "keep_text": keep_text}
        make_encoder = partial(ShardEncoder, model, settings["model"], encoder_arguments, shard_file_arguments)
        shards = read_shards(corpus, shard_size)
        if words:
            from .word_index import CountedTexts, has_index, write_index

            counted = CountedTexts(splitter_of(model, word_unit))
            shards = counted.counting(shards)
        missing = (_with_unique_ids(shard) for shard in shards if shard.name not in kept)
        if ray is None:
            computed = _compute_here(missing, make_encoder)
        else:
            on_gpus = device is None or not device.startswith("cpu")
            computed = compute_on_ray(missing, make_encoder, ray, workers, on_gpus)
        written = _write_shards(_with_note(computed, batch_tokens, tell), folder, settings)
        left_out = sum(kept.values()) + _show_progress(written, partial(bar.update, task), started)

        _check_end(sources, on_disk, folder, settings)
        totals = _totals(folder, settings)
        folder.write_settings(settings | {"done": totals})
        if words and not has_index(folder, settings, word_unit):
            bar.update(task, description="indexing words")
            write_index(folder, settings, counted)
    return EmbedReport(
        model=Path(directory),
        output=Path(output),
        kept=len(kept),
        dtype=vector_dtype,
        left_out=left_out,
        truncated=sum(record["cut"] for record in settings["shards"].values()),
        seconds=time.perf_counter() - started,
        words=len(counted.vocabulary) if words else None,
        **totals,
    )


def _check_readable_again(corpus: Texts, folder: VectorFolder) -> None:
    """Raise ServingError if the folder has vectors, and a source is a pipe: its texts cannot be compared with them."""
    if folder.files() and corpus.pipes:
        raise ServingError(
            f"{corpus.pipes[0]} is a pipe, which is read once, so {folder.path} cannot be resumed: save the texts "
            "in a file, or name a new folder"
        )


def _kept_shards(
    shards: Iterator[Shard], folder: VectorFolder, stored: dict, advance: Callable[[float], None]
) -> dict[str, int]:
    """Return the shards whose vectors are on disk, undamaged and of the same texts: name -> rows without a text.

    Args:
        shards: all shards of the input, which are read up to the last one on disk.
        stored: the settings in the folder.
        advance: called with the bytes of the input that each kept shard has.
    """
    kept: dict[str, int] = {}
    if not (on_disk := folder.files()):
        return kept
    records = stored.get("shards") or {}
    for shard in shards:
        if shard.name > on_disk[-1].name:
            break
        if folder.has(shard, records.get(shard.name)):
            kept[shard.name] = shard.left_out
            advance(shard.read)
    return kept


def _check_all_kept(others: set[str], folder: VectorFolder) -> None:
    """Raise ServingError if there are shards of other texts."""
    if others:
        raise ServingError(
            f"{folder.path} holds vectors of other texts, from another place: {folder.path / min(others)} does not "
            "fit these. Name another folder, or remove that file if the texts have moved and changed"
        )


def _show_progress(computed: Iterator[ComputedShard], update: Callable[..., None], started: float) -> int:
    """Show the number of texts and their speed while shards are computed. Return the number of rows without a text."""
    texts = left_out = 0
    for shard in computed:
        texts += shard.record["texts"]
        left_out += shard.left_out
        speed = texts / (time.perf_counter() - started)
        update(advance=shard.read, description=f"{texts:,} texts, {speed:,.0f} texts/s")
    return left_out


def _check_end(sources: Sequence[str], on_disk: set[str], folder: VectorFolder, settings: dict) -> None:
    """Raise ServingError if no text was read, or if shards on disk lie beyond the last text."""
    if not settings["shards"]:
        raise ServingError(f"there is no text in {', '.join(sources)}")
    if more := on_disk - settings["shards"].keys():
        raise ServingError(
            f"{folder.path} holds {len(more):,} shards beyond the end of the texts, from {min(more)} on: the input "
            "was longer before. Remove them, or name a new folder"
        )


def _totals(folder: VectorFolder, settings: dict) -> dict[str, int]:
    """Return the numbers of texts and shards, the width of the vectors and, if texts were split, the chunks."""
    records = settings["shards"].values()
    totals = {"texts": sum(record["texts"] for record in records), "shards": len(records), "width": folder.width()}
    if settings["chunk"] is not None:
        totals["chunks"] = folder.rows()
    return totals


def _with_unique_ids(shard: Shard) -> Shard:
    """Return a shard; raise ServingError if two of its texts have one id."""
    seen = set()
    for id_ in shard.ids:
        if id_ in seen:
            raise ServingError(
                f"two texts have the id {id_!r}, which must tell them apart: name a field with different "
                "ids (--id-field), or leave --id-field out for ids of file and line"
            )
        seen.add(id_)
    return shard


def _with_note(
    computed: Iterator[ComputedShard], batch_tokens: int, tell: Callable[[str], object]
) -> Iterator[ComputedShard]:
    """Yield the computed shards; call `tell` once if batches became smaller than `batch_tokens`, in any worker."""
    with closing(computed):
        for shard in computed:
            if shard.batch_tokens < batch_tokens:
                tell(
                    f"memory ran out with --batch-tokens {batch_tokens}, so batches were halved, to "
                    f"{shard.batch_tokens} tokens; the vectors are the same"
                )
                batch_tokens = 0
            yield shard


def _write_shards(computed: Iterator[ComputedShard], folder: VectorFolder, settings: dict) -> Iterator[ComputedShard]:
    """Write each computed shard, add it to the settings, and yield it. The settings are written before any shard."""
    last_write = -math.inf
    with closing(computed):
        try:
            for shard in computed:
                if last_write == -math.inf:
                    folder.write_settings(settings, shard.data)
                write_whole(folder.path / shard.name, shard.data)
                settings["shards"][shard.name] = shard.record
                if time.monotonic() - last_write >= _SECONDS_BETWEEN_WRITES:
                    folder.write_settings(settings)
                    last_write = time.monotonic()
                yield shard
        finally:
            if last_write > -math.inf:
                folder.write_settings(settings)


def _compute_here(shards: Iterator[Shard], make_encoder: Callable[[], ShardEncoder]) -> Iterator[ComputedShard]:
    """Compute shards in this process. A thread reads and tokenizes the next shard meanwhile."""
    encoder = cache(make_encoder)  # the model is loaded only if a shard is missing

    def tokenize_next() -> tuple[Shard, Rows] | None:
        shard = next(shards, None)
        return None if shard is None else (shard, encoder().encoder.rows(shard.ids, shard.texts))

    with ThreadPoolExecutor(1) as thread:
        tokenized = thread.submit(tokenize_next)
        while (shard_and_rows := tokenized.result()) is not None:
            tokenized = thread.submit(tokenize_next)
            yield encoder()(*shard_and_rows)
