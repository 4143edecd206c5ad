"""`roformer embed`: compute the vectors of a corpus shard by shard, while the next shard is read and tokenized."""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from itertools import takewhile
from pathlib import Path

from rich.table import Table

from ...data.reader import SAMPLE_BY
from ...data.texts import Texts, source_names
from ...files import write_whole
from ...files.lock import only_writer
from ...output.console import byte_progress, summary_table
from ...output.device import device_of
from ..errors import ServingError
from ..pooling import check_model, stated_length
from .encoder import BATCH_TOKENS, LONGEST, Rows, TextEncoder, model_identity
from .on_ray import compute_on_ray
from .texts import PIECE, Shard, read_shards
from .vector_folder import UNFINISHED, VECTOR_DTYPES, Made, VectorFolder, shard_file

SHARD_SIZE = 4096
_PAUSE = 1.0  # seconds between two writes of the settings, which grow with the number of shards


@dataclass(frozen=True)
class EmbedReport:
    """Result of `embed`.

    `kept` shards were there already. `left_out` rows have no text. `cut` texts have as many tokens as the model reads,
    or more, and are truncated there. `chunks` is the number of all chunks, if texts were split.
    """

    model: Path
    output: Path
    texts: int
    shards: int
    kept: int
    width: int
    dtype: str
    left_out: int
    cut: int
    seconds: float
    chunks: int | None = None

    def table(self) -> Table:
        """Return the summary as a rich table."""
        rows = {
            "model": str(self.model),
            "output": str(self.output),
            "texts": f"{self.texts:,}",
            "chunks": f"{self.chunks:,}" if self.chunks else None,
            "vectors": f"{self.width:,} × {self.dtype}",
            "shards": f"{self.shards:,}" + (f", {self.kept:,} of them kept" if self.kept else ""),
            "left out": f"{self.left_out:,} rows without a text" if self.left_out else None,
            "truncated": f"{self.cut:,} texts reach the limit (--max-length)" if self.cut else None,
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)


class ShardEncoder:
    """Encoder of shards, in this process or in a worker of Ray.

    `identity` is that of the model, `options` are arguments of `TextEncoder`, and `stored` those of `shard_file`.
    """

    def __init__(self, model: Path, identity: str, options: dict, stored: dict):
        self.encoder = TextEncoder(model, **options)
        self.stored = stored
        if model_identity(model) != identity:
            raise ServingError(
                f"{model} has changed since this command began, or is another model on this machine of the cluster: "
                "run the command again once the model is complete everywhere"
            )

    def __call__(self, shard: Shard, rows: Rows | None = None) -> Made:
        """Compute a shard."""
        rows = rows or self.encoder.rows(shard.ids, shard.texts)
        data = shard_file(shard, rows, self.encoder.vectors(rows.tokens, rows.left_out), **self.stored)
        record = {"texts": len(shard), "cut": rows.cut, "sha256": hashlib.sha256(data).hexdigest()}
        return Made(shard.name, record, shard.read, shard.left_out, data)


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
    shard_size: int = SHARD_SIZE,
    batch_tokens: int = BATCH_TOKENS,
    device: str | None = None,
    ray: str | None = None,
    workers: int | None = None,
    progress: bool = False,
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
        shard_size: texts per file, and in memory.
        ray: compute on Ray: the address of a cluster, "auto", or "local" for one on this machine.
        workers: number of Ray processes; by default one per GPU, or one per machine without GPUs.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: the model has no vectors of texts, the folder holds other vectors, a text cannot be computed, or
            Ray cannot be reached.
        DataError: a text cannot be read.

    >>> embed("roformer-mini-zh", "laws.jsonl.gz", "vectors").texts
    1234
    """
    started = time.perf_counter()
    sources = tuple(map(str, [texts] if isinstance(texts, (str, Path)) else texts))
    if shard_size < 1:
        raise ServingError(f"shard_size is {shard_size}; expected at least 1")
    for name, value, choices in ("vector_dtype", vector_dtype, VECTOR_DTYPES), ("sample_by", sample_by, SAMPLE_BY):
        if value not in choices:
            raise ServingError(f"{name} is {value!r}; expected one of {', '.join(choices)}")
    if chunk is None and overlap is not None:
        raise ServingError(f"overlap is {overlap}, but only chunks overlap: give their length (--chunk) as well")
    if chunk is not None and max_length is not None:
        raise ServingError(f"chunk is {chunk} and max_length {max_length}: give one, since chunks hold the whole text")
    if workers is not None and ray is None:
        raise ServingError(f"workers is {workers}, but only Ray has workers: give its address (--ray) as well")
    model, folder = check_model(directory).resolve(), VectorFolder(output)
    if not all(sources):
        raise ServingError("the name of the texts is empty: give files, folders or names of data sets")
    for source in map(Path, sources):
        if source.is_dir() and source.resolve() in (folder.path.resolve(), *folder.path.resolve().parents):
            raise ServingError(f"{output} is in the folder of the texts, {source}: name a folder next to it")
    if device is not None and ray is None:  # last, since it imports torch; a worker of Ray may have other devices
        device_of(device, ServingError)

    with only_writer(folder.path, ServingError), byte_progress(progress) as bar:
        begun = folder.run() or {}
        run = {
            "model": model_identity(model), "texts": source_names(sources), "field": field, "id_field": id_field,
            "max_length": max_length, "longest": LONGEST, "dtype": dtype, "vector_dtype": vector_dtype,
            "keep_text": keep_text, "shard_size": shard_size, "chunk": chunk,
            # None in folders of older versions.
            "sample_by": None if sample_by == "line" else sample_by, "overlap": overlap or None,
        }  # fmt: skip
        if not begun or "stated_length" in begun:  # earlier versions did not compare it
            run["stated_length"] = stated_length(model) if max_length is None and chunk is None else None
        folder.check(begun, run)
        for leftover in folder.path.glob(f".*{UNFINISHED}"):  # of a killed process
            leftover.unlink()
        corpus = Texts(sources, field, id_field, sample_by, PIECE)
        if folder.files() and corpus.pipes:
            raise ServingError(
                f"{corpus.pipes[0]} is a pipe, which is read once, so {folder.path} cannot be resumed: save the texts "
                "in a file, or name a new folder"
            )
        task = bar.add_task("reading", total=corpus.size)
        before, records, kept, left_out = {path.name for path in folder.files()}, begun.get("shards") or {}, set(), 0
        for shard in takewhile(
            lambda shard: shard.name <= max(before), read_shards(corpus, shard_size) if before else ()
        ):
            if folder.has(shard, records.get(shard.name)):
                kept.add(shard.name)
                left_out += shard.left_out
                bar.advance(task, shard.read)
        # A hash of where the texts are, so that the settings do not have the caller's paths.
        places = [os.path.abspath(source) if os.path.exists(source) else source for source in sources]
        paths = hashlib.sha256(json.dumps(places).encode()).hexdigest()
        if (others := before - kept) and begun.get("paths") != paths:
            raise ServingError(
                f"{folder.path} holds vectors of other texts, from another place: {folder.path / min(others)} does not "
                "fit these. Name another folder, or remove that file if the texts have moved and changed"
            )
        run |= {
            "model_name": source_names([str(directory)])[0] or model.name, "paths": paths,
            "shards": {name: records[name] for name in kept},
        }  # fmt: skip
        options = {
            "max_length": max_length if chunk is None else chunk, "overlap": None if chunk is None else overlap or 0,
            "dtype": dtype, "device": device, "batch_tokens": batch_tokens,
        }  # fmt: skip
        stored = {
            "dtype": vector_dtype, "keep_text": keep_text, "chunks_in_ids": folder.has_chunks_in_ids(begun)
        }  # fmt: skip
        make_encoder = partial(ShardEncoder, model, run["model"], options, stored)
        todo = (_with_own_ids(shard) for shard in read_shards(corpus, shard_size) if shard.name not in kept)
        if ray is None:
            results = _compute_here(todo, make_encoder)
        else:
            on_gpus = device is None or not device.startswith("cpu")
            results = compute_on_ray(todo, make_encoder, ray, workers, on_gpus)
        texts_done = 0
        bar.update(task, description="embedding")
        for result in _written(results, folder, run):
            left_out += result.left_out
            texts_done += result.record["texts"]
            speed = texts_done / (time.perf_counter() - started)
            bar.update(task, advance=result.read, description=f"{texts_done:,} texts, {speed:,.0f} texts/s")
        if not run["shards"]:
            raise ServingError(f"there is no text in {', '.join(sources)}")
        if more := before - run["shards"].keys():
            raise ServingError(
                f"{folder.path} holds {len(more):,} shards beyond the end of the texts, from {min(more)} on: the input "
                "was longer before. Remove them, or name a new folder"
            )
        records = run["shards"].values()
        done = {"texts": sum(record["texts"] for record in records), "shards": len(records), "width": folder.width()}
        if chunk is not None:
            done["chunks"] = folder.rows()
        folder.write_run(run | {"done": done})
    return EmbedReport(
        model=Path(directory),
        output=Path(output),
        kept=len(kept),
        dtype=vector_dtype,
        left_out=left_out,
        cut=sum(record["cut"] for record in records),
        seconds=time.perf_counter() - started,
        **done,
    )


def _with_own_ids(shard: Shard) -> Shard:
    """Return a shard; raise ServingError if two of its texts have one id."""
    seen = set()
    for id_ in shard.ids:
        if id_ in seen:
            raise ServingError(
                f"two texts have the id {id_!r}, which must tell them apart: name a field in which ids differ "
                "(--id-field), or none, for ids of file and line"
            )
        seen.add(id_)
    return shard


def _written(results: Iterator[Made], folder: VectorFolder, run: dict) -> Iterator[Made]:
    """Yield the results, once they are on disk and in the settings, which are written first."""
    last = -math.inf
    with closing(results):
        try:
            for result in results:
                if last == -math.inf:
                    folder.write_run(run, result.data)
                write_whole(folder.path / result.name, result.data)
                run["shards"][result.name] = result.record
                if time.monotonic() - last >= _PAUSE:
                    folder.write_run(run)
                    last = time.monotonic()
                yield result
        finally:
            if last > -math.inf:
                folder.write_run(run)


def _compute_here(shards: Iterator[Shard], make_encoder: Callable[[], ShardEncoder]) -> Iterator[Made]:
    """Compute shards in this process. A thread reads and tokenizes the next shard meanwhile."""
    encoder = cache(make_encoder)  # no model is loaded for no shard

    def tokenized() -> tuple[Shard, Rows] | None:
        shard = next(shards, None)
        return shard and (shard, encoder().encoder.rows(shard.ids, shard.texts))

    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(tokenized)
        while (found := coming.result()) is not None:
            coming = ahead.submit(tokenized)
            yield encoder()(*found)
