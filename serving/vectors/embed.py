"""Vectors of a corpus: read, tokenized, computed and written shard by shard, each step beside the others."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table

from ...output.progress_bar import byte_progress
from ...output.summary import summary_table
from ..errors import ServingError
from .encoder import BATCH_TOKENS, DTYPES, TextEncoder, check_model, model_identity
from .repeated_ids import repeated_ids
from .texts import Shard, Texts
from .vector_folder import VECTOR_DTYPES, Made, VectorFolder, shard_file

SHARD_SIZE = 4096


@dataclass(frozen=True)
class EmbedReport:
    """What was made.

    texts, shards: in the folder; kept: shards of them that were there already; again: of which there were files that were
    damaged, or of other texts; width: of a vector; repeated, example: how many ids stand more than once, and one of them.
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
    """Write vectors of texts into Parquet files; called again with the same arguments, it goes on where it was stopped.

    Args:
        directory: a saved encoder with its tokenizer; see `TextEncoder`.
        texts: files, folders and names of data sets; see `Texts`.
        output: folder of vectors; see `VectorFolder`. Each file appears whole.
        field, id_field: where JSON Lines, Parquet and data sets keep the text and its id.
        max_length, dtype, batch_tokens, device: see `TextEncoder`.
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
    model, folder = check_model(directory), VectorFolder(output)
    corpus = Texts(tuple(map(str, sources)), field, id_field)
    _check_apart(folder.path, sources)
    size = corpus.check()
    run = {
        "model": model_identity(model), "texts": list(corpus.sources), "field": field, "id_field": id_field,
        "max_length": max_length, "dtype": dtype, "vector_dtype": vector_dtype, "keep_text": keep_text,
        "shard_size": shard_size,
    }  # fmt: skip
    folder.check(run)
    if next(corpus.shards(shard_size), None) is None:
        raise ServingError(f"there is no text in {', '.join(corpus.sources)}")
    make_encoder = partial(
        TextEncoder, model.resolve(), max_length=max_length, dtype=dtype, device=device, batch_tokens=batch_tokens
    )
    make_file = partial(shard_file, dtype=vector_dtype, keep_text=keep_text)
    place = str(model.resolve())
    with folder.writing(), byte_progress(progress) as bar:
        task = bar.add_task("looking", total=size)
        before = {path.name for path in folder.files()}
        kept = {}
        for shard in _whole(corpus.shards(shard_size), folder, before):
            kept[shard.name] = len(shard)
            bar.advance(task, shard.read)
        todo = partial(shards_to_do, corpus, shard_size, frozenset(kept))
        if ray is None:
            results = compute_here(todo(), make_encoder, make_file)
        else:
            from .on_ray import compute_on_ray

            on_gpus = device is None or not device.startswith("cpu")
            results = compute_on_ray(todo, make_encoder, make_file, place, run["model"], ray, workers, on_gpus)
        made: dict[str, int] = {}
        bar.update(task, description="embedding")
        for result in _written(results, folder, run | {"model_path": place}):
            made[result.name] = result.texts
            bar.update(task, advance=result.read, description=f"{sum(made.values()):,} texts embedded")
        if more := before - kept.keys() - made.keys():
            raise ServingError(
                f"{folder.path} holds {len(more):,} shards beyond the end of the texts, {min(more)} the first: the input was "
                "longer when they were made; remove them, or name a new folder"
            )
        repeated, example = repeated_ids(folder) if id_field is not None else (0, None)
        found = kept | made
        done = {"texts": sum(found.values()), "shards": len(found), "width": folder.width()}
        folder.write_run(run | {"model_path": place, "done": done})
    return EmbedReport(
        model=Path(directory),
        output=Path(output),
        kept=len(kept),
        again=len(before & made.keys()),
        dtype=vector_dtype,
        repeated=repeated,
        example=example,
        computed=sum(made.values()),
        seconds=time.perf_counter() - started,
        **done,
    )


def _check_apart(output: Path, sources: Iterable[str | Path]) -> None:
    for source in map(Path, sources):
        if source.is_dir() and source.resolve() in (output.resolve(), *output.resolve().parents):
            raise ServingError(f"{output} is in the folder of the texts, {source}: name a folder next to it")


def _whole(shards: Iterator[Shard], folder: VectorFolder, names: set[str]) -> Iterator[Shard]:
    """Those that need not be computed again; nothing is read beyond the last of which there is a file."""
    if names:
        last = max(names)
        for shard in shards:
            if shard.name in names and folder.has(shard):
                yield shard
            if shard.name >= last:
                return


def _written(results: Iterator[Made], folder: VectorFolder, run: dict) -> Iterator[Made]:
    """The results, each of which a thread writes while the next is computed. What is begun is written down before."""
    with closing(results), ThreadPoolExecutor(1) as writer:
        writing: Future | None = None
        for result in results:
            if writing is None:
                folder.write_run(run)
            else:
                writing.result()
            writing = writer.submit(folder.write, result.name, result.data)
            yield result
        if writing is not None:
            writing.result()


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
        return shard and (shard, encoder.tokenize(shard.texts))

    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(tokenized, shard)
        while (found := coming.result()) is not None:
            coming = ahead.submit(lambda: tokenized(next(shards, None)))
            shard, ids = found
            yield Made(shard.name, len(shard), shard.read, make_file(shard, encoder.vectors(ids)))
