"""Vectors of a corpus: read, tokenized, computed and written shard by shard, each step beside the others."""

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
from ...output.console import byte_progress, summary_table
from ..errors import ServingError
from .encoder import BATCH_TOKENS, DTYPES, LONGEST, TextEncoder, check_model, model_identity
from .repeated_ids import repeated_ids
from .source_names import source_names
from .texts import Shard, Texts
from .vector_folder import VECTOR_DTYPES, Made, VectorFolder, shard_file

SHARD_SIZE = 4096
_PAUSE = 1.0  # seconds between two notes of what is done, which get long where there are many shards


@dataclass(frozen=True)
class EmbedReport:
    """What was made.

    texts, shards: in the folder; kept: shards of them that were there already; again: of which there were files that were
    damaged, or of other texts; width: of a vector; repeated, example: how many ids stand more than once, and one of them;
    left_out: rows of tables and JSON Lines without a text; cut, longest: how many texts were cut, and at how many tokens.
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

    def table(self) -> Table:
        """The summary as a rich table."""
        shards = f"{self.shards:,}"
        if self.kept:
            shards += f", {self.kept:,} of them kept"
        if self.again:
            shards += f"; {self.again:,} made again, since damaged or of other texts"
        repeated = f"{self.repeated:,} ids stand more than once, such as {self.example}; all are kept"
        rows = {
            "model": str(self.model),
            "output": str(self.output),
            "texts": f"{self.texts:,}",
            "vectors": f"{self.width:,} × {self.dtype}",
            "shards": shards,
            "left out": f"{self.left_out:,} rows without a text" if self.left_out else None,
            "cut": f"{self.cut:,} texts, at {self.longest:,} tokens (--max-length)" if self.cut else None,
            "note": repeated if self.repeated else None,
            "texts/s": f"{self.computed / self.seconds:,.0f}" if self.computed else None,
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
    max_length: int | None = None,
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
    """Write vectors of texts into Parquet files; called again with the same arguments, it resumes where it was stopped.

    Args:
        directory: a saved encoder with its tokenizer; see `TextEncoder`.
        texts: files, folders and names of data sets; see `Texts`.
        output: folder of vectors; see `VectorFolder`. Each file appears whole.
        field, id_field: where JSON Lines, CSV, Parquet and data sets keep the text and its id.
        max_length: texts are cut after so many tokens; where None, where the model ends and after 8,192 at most.
        dtype, batch_tokens, device: see `TextEncoder`.
        vector_dtype: what is stored, float32 or float16.
        keep_text: store the texts, too.
        shard_size: texts in a file, and in memory.
        ray: compute on Ray: the address of a cluster, "auto", or "local" for one on this machine.
        workers: processes of Ray; by default one for each GPU, or for each machine where there are none.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: the model has no vectors of texts, the folder holds other vectors, a text cannot be computed.
        CorpusError, TrainingError: a text cannot be read.
        ClusterError: Ray cannot be reached, or a text ended its worker three times.

    >>> embed("roformer-mini-zh", "laws.jsonl.gz", "vectors").texts
    1234
    """
    started = time.perf_counter()
    sources = [texts] if isinstance(texts, (str, Path)) else texts
    if shard_size < 1:
        raise ServingError(f"shard_size is {shard_size}, but must be at least 1")
    for name, value, choices in ("dtype", dtype, DTYPES), ("vector_dtype", vector_dtype, VECTOR_DTYPES):
        if value not in choices:
            raise ServingError(f"{name} is {value!r}, but must be one of {', '.join(choices)}")
    if workers is not None and ray is None:
        raise ServingError(
            f"workers is {workers}, but only Ray has workers: give its address (--ray), or leave workers out"
        )
    if ray is not None:
        host_and_port(ray)
    model, folder = check_model(directory), VectorFolder(output)
    sources = tuple(map(str, sources))
    if not all(sources):
        raise ServingError("the name of the texts is empty: give files, folders or names of data sets")
    _check_apart(folder.path, sources)
    with folder.writing(), byte_progress(progress) as bar:
        begun = folder.run() or {}
        settings = {
            "model": model_identity(model), "field": field, "id_field": id_field, "max_length": max_length, "dtype": dtype,
            "vector_dtype": vector_dtype, "keep_text": keep_text, "shard_size": shard_size,
        }  # fmt: skip
        is_there = bool(folder.files())
        is_old = is_there and "paths" not in begun  # of a version that had whole paths in ids, and no end of a text
        longest = begun.get("longest") if is_there else LONGEST
        run = settings | {"texts": list(sources) if is_old else source_names(sources)}
        folder.check(run)
        paths = None if is_old else _digest_of_paths(sources)
        corpus = Texts(sources, field, id_field, whole_paths=is_old)
        task = bar.add_task("looking", total=corpus.check())
        if next(corpus.shards(shard_size), None) is None:
            raise ServingError(f"there is no text in {', '.join(sources)}")
        make_encoder = partial(
            TextEncoder, model.resolve(), max_length=max_length, longest=longest, dtype=dtype, device=device,
            batch_tokens=batch_tokens,
        )  # fmt: skip
        make_file = partial(shard_file, dtype=vector_dtype, keep_text=keep_text)
        before = {path.name for path in folder.files()}
        records = begun.get("shards") or {}
        kept, left_out = {}, 0
        for shard in _whole(corpus.shards(shard_size), folder, before, records):
            kept[shard.name] = len(shard)
            left_out += shard.left_out
            bar.advance(task, shard.read)
        if is_there and begun.get("paths") != paths and before != kept.keys():
            other = folder.path / min(before - kept.keys())
            raise ServingError(
                f"{folder.path} holds vectors of other texts: {other} is not of these, which lie elsewhere; name another "
                "folder, or remove that file if the texts have moved and changed since"
            )
        run |= {"longest": longest, "model_name": source_names([str(directory)])[0] or model.resolve().name}
        if not is_old:
            run["paths"] = paths
        note = _Note(folder, run, {name: records[name] for name in kept if name in records}, begun.get("cut_at"))
        for name in kept.keys() - records.keys():
            note.keep(folder.made(name, kept[name]))
        todo = partial(shards_to_do, corpus, shard_size, frozenset(kept))
        if ray is None:
            results = compute_here(todo(), partial(_unchanged, make_encoder, model, run["model"]), make_file)
        else:
            from .on_ray import compute_on_ray

            on_gpus = device is None or not device.startswith("cpu")
            place = str(model.resolve())
            results = compute_on_ray(todo, make_encoder, make_file, place, run["model"], ray, workers, on_gpus)
        made: dict[str, int] = {}
        bar.update(task, description="embedding")
        for result in _written(results, folder, note):
            made[result.name] = result.texts
            left_out += result.left_out
            bar.update(task, advance=result.read, description=f"{sum(made.values()):,} texts embedded")
        if more := before - kept.keys() - made.keys():
            raise ServingError(
                f"{folder.path} holds {len(more):,} shards beyond the end of the texts, {min(more)} the first: the input was "
                "longer when they were made; remove them, or name a new folder"
            )
        repeated, example = repeated_ids(folder) if id_field is not None else (0, None)
        found = kept | made
        done = {"texts": sum(found.values()), "shards": len(found), "width": folder.width()}
        note.write(done)
    return EmbedReport(
        model=Path(directory),
        output=Path(output),
        kept=len(kept),
        again=len(before & made.keys()),
        dtype=vector_dtype,
        repeated=repeated,
        example=example,
        left_out=left_out,
        cut=sum(record["cut"] for record in note.records.values()),
        longest=note.cut_at,
        computed=sum(made.values()),
        seconds=time.perf_counter() - started,
        **done,
    )


class _Note:
    """What `run.json` says while shards are made: what was begun, and the shards that are done.

    records: by the names of their files, what it says of each; cut_at: tokens after which texts are cut, once it is known.
    """

    def __init__(self, folder: VectorFolder, run: dict, records: dict[str, dict], cut_at: int | None):
        self.folder, self.run, self.records, self.cut_at = folder, run, records, cut_at
        self.last = -_PAUSE

    def add(self, made: Made) -> None:
        """A shard whose file is there; written down at once, but no more than once a second."""
        self.keep(made)
        if time.monotonic() - self.last >= _PAUSE:
            self.write()

    def keep(self, made: Made) -> None:
        """A shard whose file is there, to be written down with the next."""
        self.records[made.name], self.cut_at = made.record(), made.longest or self.cut_at

    def write(self, done: dict | None = None) -> None:
        found = self.run | {"cut_at": self.cut_at, "shards": dict(sorted(self.records.items()))}
        self.folder.write_run(found if done is None else found | {"done": done})
        self.last = time.monotonic()


def _unchanged(make_encoder: Callable[[], TextEncoder], model: Path, identity: str) -> TextEncoder:
    """The encoder, once it is known that no other model has taken the place of the one that `run.json` will name."""
    encoder = make_encoder()
    if model_identity(model) != identity:
        raise ServingError(f"{model} has changed since this command began: begin it again, once the model is whole")
    return encoder


def _digest_of_paths(sources: Sequence[str]) -> str:
    """What tells where texts are read, so that no folder of the caller is in `run.json`."""
    places = [os.path.abspath(source) if os.path.exists(source) else source for source in sources]
    return hashlib.sha256(json.dumps(places).encode()).hexdigest()


def _check_apart(output: Path, sources: Iterable[str | Path]) -> None:
    for source in map(Path, sources):
        if source.is_dir() and source.resolve() in (output.resolve(), *output.resolve().parents):
            raise ServingError(f"{output} is in the folder of the texts, {source}: name a folder next to it")


def _whole(shards: Iterator[Shard], folder: VectorFolder, names: set[str], records: dict[str, dict]) -> Iterator[Shard]:
    """Those that need not be computed again; nothing is read beyond the last of which there is a file."""
    if names:
        last = max(names)
        for shard in shards:
            if shard.name in names and folder.has(shard, records.get(shard.name)):
                yield shard
            if shard.name >= last:
                return


def _written(results: Iterator[Made], folder: VectorFolder, note: _Note) -> Iterator[Made]:
    """The results, each of which a thread writes while the next is computed. What is begun is written down before."""

    def write(made: Made) -> None:
        folder.write(made.name, made.data)
        note.add(made)

    with closing(results), ThreadPoolExecutor(1) as writer:
        writing: Future | None = None
        try:
            for result in results:
                if writing is None:
                    note.write()
                else:
                    writing.result()
                writing = writer.submit(write, result)
                yield result
        finally:
            if writing is not None:
                writing.result()
                note.write()


def shards_to_do(corpus: Texts, shard_size: int, kept: frozenset[str]) -> Iterator[Shard]:
    """All shards of a corpus but those whose names are given."""
    return (shard for shard in corpus.shards(shard_size) if shard.name not in kept)


def compute_here(
    shards: Iterator[Shard], make_encoder: Callable[[], TextEncoder], make_file: Callable[..., memoryview]
) -> Iterator[Made]:
    """In this process; while a shard is computed, a thread reads and tokenizes the next."""
    shard = next(shards, None)
    if shard is None:
        return
    encoder = make_encoder()

    def tokenized(shard: Shard | None) -> tuple | None:
        return shard and (shard, *encoder.tokenize_and_count(shard.texts))

    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(tokenized, shard)
        while (found := coming.result()) is not None:
            coming = ahead.submit(lambda: tokenized(next(shards, None)))
            shard, ids, cut = found
            vectors = encoder.vectors(ids, shard.ids)
            data = make_file(shard, vectors, cut, encoder.max_length)
            yield Made(shard.name, len(shard), shard.read, shard.left_out, cut, encoder.max_length, data)
