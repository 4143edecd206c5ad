"""`roformer export-onnx`: write a saved model as a folder for ONNX Runtime and transformers.js."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from modeling_roformer.conversion.folder.legacy_folder import checked_output
from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.output.extras import needs_extra
from modeling_roformer.output.progress import progress_on_stderr

from ..errors import ServingError
from ..model_folder import named_when_unreadable, table_length
from ..pooling import TRANSFORMER, length_for_servers
from ..prompts import TASKS
from .agreement import FLOAT32_TOLERANCE, compare, open_session, read_texts
from .graph import MAX_LENGTH
from .quantization import halve, quantize
from .report import CARD, FLOAT16, FLOAT32, INT8, OnnxReport, card_of
from .saved_model import load_model, saved_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .saved_model import SavedModel


def export_onnx(
    directory: str | Path,
    output: str | Path,
    *,
    int8: bool = False,
    fp16: bool = False,
    vectors: bool = False,
    max_length: int | None = None,
    texts: str | Path | None = None,
    force: bool = False,
    progress: bool = False,
) -> OnnxReport:
    """Export a saved model to a folder with config.json, the tokenizer, onnx/model.onnx and a model card.

    The graph takes the tokenizer's output, for any batch size and length, and has transformers' output names. Before
    the folder appears, the outputs are compared with PyTorch's, and each graph passes the full check of the package
    onnx.

    Args:
        directory: a RoFormer, NEZHA or BERT with its tokenizer, as save_pretrained writes it.
        output: folder to create; it appears only if everything succeeds.
        int8: also write onnx/model_quantized.onnx, a quarter of the size.
        fp16: also write onnx/model_fp16.onnx, half of the size, for GPUs.
        vectors: export the encoder with pooling: `sentence_embedding` is the vector of a text, of length 1.
        max_length: maximum tokens of a text for other programs, written as the tokenizer's `model_max_length`. The
            default is the model's `max_position_embeddings`, or less if its own files state less. The graph takes any
            length.
        texts: file of texts to compare outputs on, one per line. At most 2,048 tokens of each are read. The default is
            twelve built-in sentences.
        force: replace the saved model at `output`, in one step.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: the model is damaged, incomplete or a decoder with a cache; `max_length` exceeds its table of
            positions; the graph's outputs differ from PyTorch's; or the extra `export` is not installed.
        OSError: a file cannot be read or written; FileExistsError if `output` is not empty and may not be replaced.

    >>> report = export_onnx("roformer-mini-zh", "roformer-mini-onnx", int8=True)
    >>> report.agreements["model.onnx"].difference < 5e-5
    True
    """
    started = time.perf_counter()
    saved = saved_model(directory, vectors)
    table = table_length(saved.config)
    if table is not None and max_length is not None and max_length > table:
        raise ServingError(
            f"--max-length {max_length:,}: the model in {saved.folder} has a table of {table:,} positions, which its "
            "inputs cannot exceed"
        )
    target = checked_output(saved.folder, output)
    sentences = read_texts(texts)
    with (
        output_folder(target, force) as folder,
        _steps(progress, 4 + int8 + fp16, len(sentences) + 1) as (begin, advance),
    ):
        begin("loading")
        with needs_extra("export", ServingError):
            import onnx
            import onnxruntime  # noqa: F401, runs the graphs
            import onnxscript  # noqa: F401, torch exports with it
        from modeling_roformer.registration import registered_transformers

        from ..sentence_vectors import SentenceVectors
        from .graph import write_graph
        from .sentence_vectors import ExportedVectors

        with named_when_unreadable(saved.folder):
            tokenizer = registered_transformers.AutoTokenizer.from_pretrained(saved.folder, local_files_only=True)
        model = load_model(saved)
        if saved.prompts is not None:
            vectors = SentenceVectors(saved.folder, model.config)
            if any(saved.prompts.values()) and not vectors.pools_prompts:
                raise ServingError(
                    f"{saved.folder} makes vectors without the tokens of its prompts (include_prompt), which a graph "
                    "does not tell from those of the text: compute them with `roformer embed`, or export without "
                    "--vectors"
                )
            model = ExportedVectors(model, vectors)

        begin("exporting")
        (folder / "onnx").mkdir()
        graphs = {FLOAT32: folder / "onnx" / FLOAT32}
        inputs, outputs = write_graph(model, tokenizer, graphs[FLOAT32])
        if int8:
            begin("int8")
            graphs[INT8] = folder / "onnx" / INT8
            quantize(graphs[FLOAT32], graphs[INT8], model)
        if fp16:
            begin("float16")
            graphs[FLOAT16] = folder / "onnx" / FLOAT16
            halve(graphs[FLOAT32], graphs[FLOAT16])

        begin("checking")
        for path in graphs.values():
            onnx.checker.check_model(path, full_check=True)

        begin("comparing")
        sessions = {name: open_session(path) for name, path in graphs.items()}
        agreements = compare(model, tokenizer, sessions, sentences, min(MAX_LENGTH, table or MAX_LENGTH), advance)
        exact = agreements[FLOAT32]
        if not exact.is_exact:
            raise ServingError(
                f"the outputs of the graph of {saved.folder} differ from PyTorch's by {exact.difference:.1e}; float32 "
                f"explains at most {FLOAT32_TOLERANCE * exact.scale:.1e}"
            )
        length = max_length or length_for_servers(saved.folder, tokenizer.model_max_length, model.config)
        tokenizer.model_max_length = length
        if saved.prompts is not None:  # text-embeddings-inference reads it before config.json
            (folder / TRANSFORMER).write_text(f'{{"max_seq_length": {length}}}\n', encoding="utf-8")
        word_level = write_tokenizer(tokenizer, folder)
        write_config(saved, folder)
        source = "that come with the package" if texts is None else f"of {Path(texts).name}"
        report = OnnxReport(
            source=saved.folder,
            output=Path(output),  # as the caller gave it
            architecture=saved.architecture,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            inputs=inputs,
            outputs=outputs,
            texts=f"{len(sentences):,} texts {source}",
            agreements=agreements,
            word_level=word_level,
            prompts={task: prompt for task in TASKS if saved.prompts and (prompt := saved.prompts[task])},
            note="its language model, which uses a cache, is left out" if saved.leaves_language_model else None,
            files=sorted([CARD, *(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())]),
            seconds=time.perf_counter() - started,
        )
        (folder / CARD).write_text(card_of(saved, report, folder), encoding="utf-8")
        return report


def write_config(saved: SavedModel, folder: Path) -> None:
    """Write the model's config.json with the graph's class and dtype."""
    from modeling_roformer.registration import registered_transformers

    config = registered_transformers.AutoConfig.from_pretrained(saved.folder, local_files_only=True)
    config.architectures, config.dtype = [saved.architecture], "float32"
    for name in ("auto_map", "custom_pipelines"):  # their code is not exported
        if hasattr(config, name):
            delattr(config, name)
    config.save_pretrained(folder)


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> bool:
    """Write the tokenizer's files, and return whether it segments words.

    If it does, no tokenizer.json is written. It cannot hold a segmenter, so transformers.js would compute other ids.
    """
    word_level = getattr(tokenizer, "word_segmentation", None) is not None
    tokenizer.save_pretrained(folder, legacy_format=word_level)
    return word_level


@contextmanager
def _steps(shown: bool, steps: int, texts: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Show a progress bar. Yield a function that begins a step by name, and one that advances it by one of `texts`."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with progress_on_stderr(shown, *columns) as bar:
        task, done = bar.add_task("", total=steps * texts), iter(range(0, steps * texts, texts))
        yield lambda name: bar.update(task, description=name, completed=next(done)), lambda: bar.advance(task)
