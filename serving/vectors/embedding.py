"""`roformer embed`: compute the vectors of a corpus shard by shard; reading, computing and writing overlap."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table

from ...cluster.address import host_and_port
from ...files.lock import only_writer
from ...output.console import byte_progress, summary_table
from ..errors import ServingError
from ..pooling import check_model
from .encoder import BATCH_TOKENS, DTYPES, LONGEST, TextEncoder, model_identity
from .source_names import source_names
from .texts import SAMPLE_BY, Shard, Texts
from .vector_folder import VECTOR_DTYPES, Made, VectorFolder, make_shard, repeated_ids

SHARD_SIZE = 4096
_PAUSE = 1.0  # seconds between two writes of the settings, which grow with the number of shards


@dataclass(frozen=True)
class EmbedReport:
    """Result of `embed`.

    `kept` shards were there already; `again` shards were computed again, because their files were damaged or of other
    texts. `repeated` ids appear more than once, such as `example`. `left_out` rows have no text. `cut` texts were
    truncated to `longest` tokens. `chunks` is the number of all chunks, if texts were split.
    """

    model: Path
    output: Path
    texts: int
    shards: int
    kept: int
    again: int
    width: int
    dtype: str
    repeated: int
    example: str | None
    left_out: int
    cut: int
    longest: int | None
    computed: int
    seconds: float
    chunks: int | None = None

    def table(self) -> Table:
        """Return the summary as a rich table."""
        shards = f"{self.shards:,}"
        if self.kept:
            shards += f", {self.kept:,} of them kept"
        if self.again:
            shards += f"; {self.again:,} computed again, since damaged or of other texts"
        repeated = f"{self.repeated:,} ids appear more than once, such as {self.example}; all are kept"
        speed = self.computed / self.seconds
        rows = {
            "model": str(self.model),
            "output": str(self.output),
            "texts": f"{self.texts:,}",
            "chunks": f"{self.chunks:,}" if self.chunks else None,
            "vectors": f"{self.width:,} × {self.dtype}",
            "shards": shards,
            "left out": f"{self.left_out:,} rows without a text" if self.left_out else None,
            "truncated": f"{self.cut:,} texts, at {self.longest:,} tokens (--max-length)" if self.cut else None,
            "note": repeated if self.repeated else None,
            "texts/s": (f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}") if self.computed else None,
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)


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
        chunk: do not truncate texts, but split them into chunks of this number of tokens, each with a vector and an id:
            the text's, then `#1`, `#2` and so on.
        overlap: tokens that a chunk shares with the one before; none by default.
        dtype, batch_tokens, device: see `TextEncoder`.
        vector_dtype: of the stored vectors, float32 or float16.
        keep_text: also store the texts.
        shard_size: texts per file, and in memory.
        ray: compute on Ray: the address of a cluster, "auto", or "local" for one on this machine.
        workers: number of Ray processes; by default one per GPU, or one per machine without GPUs.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: the model has no vectors of texts, the folder holds other vectors, or a text cannot be computed.
        CorpusError, TrainingError: a text cannot be read.
        ClusterError: Ray cannot be reached, or a text killed its worker three times.

    >>> embed("roformer-mini-zh", "laws.jsonl.gz", "vectors").texts
    1234
    """
    started = time.perf_counter()
    sources = tuple(map(str, [texts] if isinstance(texts, (str, Path)) else texts))
    if shard_size < 1:
        raise ServingError(f"shard_size is {shard_size}; expected at least 1")
    for name, value, choices in [
        ("dtype", dtype, DTYPES), ("vector_dtype", vector_dtype, VECTOR_DTYPES), ("sample_by", sample_by, SAMPLE_BY),
    ]:  # fmt: skip
        if value not in choices:
            raise ServingError(f"{name} is {value!r}; expected one of {', '.join(choices)}")
    if chunk is None and overlap is not None:
        raise ServingError(f"overlap is {overlap}, but only chunks overlap: give their length (--chunk) as well")
    if chunk is not None and max_length is not None:
        raise ServingError(f"chunk is {chunk} and max_length {max_length}: give one, since chunks hold the whole text")
    if workers is not None and ray is None:
        raise ServingError(f"workers is {workers}, but only Ray has workers: give its address (--ray) as well")
    if ray is not None:
        host_and_port(ray)
    model, folder = check_model(directory), VectorFolder(output)
    if not all(sources):
        raise ServingError("the name of the texts is empty: give files, folders or names of data sets")
    _check_apart(folder.path, sources)
    with only_writer(folder.path, ServingError), byte_progress(progress) as bar:
        begun = folder.run() or {}
        settings = {
            "model": model_identity(model), "field": field, "id_field": id_field, "max_length": max_length,
            "dtype": dtype, "vector_dtype": vector_dtype, "keep_text": keep_text, "shard_size": shard_size,
            "chunk": chunk,
            # None in folders of older versions.
            "sample_by": None if sample_by == "line" else sample_by, "overlap": overlap or None,
        }  # fmt: skip
        is_there = bool(folder.files())
        is_old = is_there and "paths" not in begun  # an older version: whole paths in ids, no limit of the length
        longest = begun.get("longest") if is_there else LONGEST
        run = settings | {"texts": list(sources) if is_old else source_names(sources)}
        folder.check(run)
        paths = None if is_old else _digest_of_paths(sources)
        corpus = Texts(sources, field, id_field, sample_by, whole_paths=is_old)
        task = bar.add_task("reading", total=corpus.check())
        if next(corpus.shards(shard_size), None) is None:
            raise ServingError(f"there is no text in {', '.join(sources)}")
        make_encoder = partial(
            TextEncoder, model.resolve(), max_length=max_length if chunk is None else chunk, longest=longest,
            overlap=None if chunk is None else overlap or 0, dtype=dtype, device=device, batch_tokens=batch_tokens,
        )  # fmt: skip
        make_file = partial(make_shard, dtype=vector_dtype, keep_text=keep_text)
        before = {path.name for path in folder.files()}
        records = begun.get("shards") or {}
        kept, left_out = {}, 0
        for shard in _complete(corpus.shards(shard_size), folder, before, records):
            kept[shard.name] = len(shard)
            left_out += shard.left_out
            bar.advance(task, shard.read)
        if is_there and begun.get("paths") != paths and before != kept.keys():
            other = folder.path / min(before - kept.keys())
            raise ServingError(
                f"{folder.path} holds vectors of other texts, from another place: {other} does not fit these. Name "
                "another folder, or remove that file if the texts have moved and changed"
            )
        run |= {"longest": longest, "model_name": source_names([str(directory)])[0] or model.resolve().name}
        if not is_old:
            run["paths"] = paths
        run |= {"cut_at": begun.get("cut_at"), "shards": {name: records[name] for name in kept if name in records}}
        for name in kept.keys() - records.keys():
            _note(run, folder.made(name, kept[name]))
        todo = partial(shards_to_do, corpus, shard_size, frozenset(kept))
        if ray is None:
            results = compute_here(todo(), partial(_unchanged, make_encoder, model, run["model"]), make_file)
        else:
            from ...cluster.stream import map_on_ray
            from .on_ray import ShardWork, name_texts

            # Only this machine reads texts and writes files.
            work = partial(ShardWork, make_encoder, make_file, str(model.resolve()), run["model"])
            on_gpus = device is None or not device.startswith("cpu")
            results = map_on_ray(todo, work, name_texts, address=ray, workers=workers, on_gpus=on_gpus)
        made: dict[str, int] = {}
        bar.update(task, description="embedding")
        for result in _written(results, folder, run):
            made[result.name] = result.texts
            left_out += result.left_out
            bar.update(task, advance=result.read, description=f"{sum(made.values()):,} texts embedded")
        if more := before - kept.keys() - made.keys():
            raise ServingError(
                f"{folder.path} holds {len(more):,} shards beyond the end of the texts, from {min(more)} on: the input "
                "was longer before. Remove them, or name a new folder"
            )
        repeated, example = repeated_ids(folder, chunked=chunk is not None) if id_field is not None else (0, None)
        found = kept | made
        done = {"texts": sum(found.values()), "shards": len(found), "width": folder.width()}
        if chunk is not None:
            done["chunks"] = folder.rows()
        folder.write_run(run | {"done": done})
    return EmbedReport(
        model=Path(directory),
        output=Path(output),
        kept=len(kept),
        again=len(before & made.keys()),
        dtype=vector_dtype,
        repeated=repeated,
        example=example,
        left_out=left_out,
        cut=sum(record["cut"] for record in run["shards"].values()),
        longest=run["cut_at"],
        computed=sum(made.values()),
        seconds=time.perf_counter() - started,
        **done,
    )


def _note(run: dict, made: Made) -> None:
    """Add a finished shard to the settings."""
    run["shards"][made.name] = made.record()
    run["cut_at"] = made.longest or run["cut_at"]


def _unchanged(make_encoder: Callable[[], TextEncoder], model: Path, identity: str) -> TextEncoder:
    """Make the encoder; raise ServingError if the model on disk is no longer that of the settings."""
    encoder = make_encoder()
    if model_identity(model) != identity:
        raise ServingError(f"{model} has changed since this command began: run it again once the model is complete")
    return encoder


def _digest_of_paths(sources: Sequence[str]) -> str:
    """Return a hash of where the texts are, so that the settings do not have the caller's paths."""
    places = [os.path.abspath(source) if os.path.exists(source) else source for source in sources]
    return hashlib.sha256(json.dumps(places).encode()).hexdigest()


def _check_apart(output: Path, sources: Iterable[str | Path]) -> None:
    for source in map(Path, sources):
        if source.is_dir() and source.resolve() in (output.resolve(), *output.resolve().parents):
            raise ServingError(f"{output} is in the folder of the texts, {source}: name a folder next to it")


def _complete(
    shards: Iterator[Shard], folder: VectorFolder, names: set[str], records: dict[str, dict]
) -> Iterator[Shard]:
    """Yield the shards already written; stop reading the input after the last one on disk."""
    if names:
        last = max(names)
        for shard in shards:
            if shard.name in names and folder.has(shard, records.get(shard.name)):
                yield shard
            if shard.name >= last:
                return


def _written(results: Iterator[Made], folder: VectorFolder, run: dict) -> Iterator[Made]:
    """Yield the results. A thread writes each to disk while the next is computed; the settings are written first."""
    last = time.monotonic()

    def write(made: Made) -> None:
        nonlocal last
        folder.write(made.name, made.data)
        _note(run, made)
        if time.monotonic() - last >= _PAUSE:
            folder.write_run(run, made)
            last = time.monotonic()

    with closing(results), ThreadPoolExecutor(1) as writer:
        writing: Future | None = None
        try:
            for result in results:
                if writing is None:
                    folder.write_run(run, result)
                    last = time.monotonic()
                else:
                    writing.result()
                writing = writer.submit(write, result)
                yield result
        finally:
            if writing is not None:
                writing.result()
                folder.write_run(run, result)


def shards_to_do(corpus: Texts, shard_size: int, kept: frozenset[str]) -> Iterator[Shard]:
    """Return the shards of a corpus except those named."""
    return (shard for shard in corpus.shards(shard_size) if shard.name not in kept)


def compute_here(
    shards: Iterator[Shard], make_encoder: Callable[[], TextEncoder], make_file: Callable[..., Made]
) -> Iterator[Made]:
    """Compute shards in this process. A thread reads and tokenizes the next shard meanwhile."""
    shard = next(shards, None)
    if shard is None:
        return
    encoder = make_encoder()

    def tokenized(shard: Shard | None) -> tuple | None:
        return shard and (shard, encoder.rows(shard.ids, shard.texts))

    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(tokenized, shard)
        while (found := coming.result()) is not None:
            coming = ahead.submit(lambda: tokenized(next(shards, None)))
            shard, rows = found
            yield make_file(shard, rows, encoder.vectors(rows.tokens, rows.ids), encoder.max_length)
