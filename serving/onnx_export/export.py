"""`roformer export-onnx`: a saved model as a folder that ONNX Runtime and transformers.js read."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ...output.atomic_folder import output_folder
from ...output.extras import not_installed
from ..errors import ServingError
from .report import FLOAT16, FLOAT32, INT8, OnnxReport
from .saved_model import load_model, load_tokenizer, saved_model
from .texts import read_texts

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

    from .saved_model import SavedModel

NEEDED = ("onnx", "onnxruntime", "onnxscript")


def export_onnx(
    directory: str | Path,
    output: str | Path,
    *,
    int8: bool = False,
    fp16: bool = False,
    texts: str | Path | None = None,
    force: bool = False,
    progress: bool = False,
) -> OnnxReport:
    """Write a saved model as a folder with config.json, the tokenizer, onnx/model.onnx, and a card.

    The graph takes what the tokenizer gives, for any batch and any length, and answers under transformers' names. Its
    answers are compared with PyTorch's, and each file passes the full check of the package onnx, before the folder appears.

    Args:
        directory: a RoFormer, NEZHA or BERT with its tokenizer, as save_pretrained writes it.
        output: folder to create; it appears only if everything succeeds.
        int8: also write onnx/model_quantized.onnx, a quarter of the size.
        fp16: also write onnx/model_fp16.onnx, half of the size, for GPUs.
        texts: a file of texts, one a line, to compare the answers on; None for a dozen sentences of ours.
        force: replace the saved model at `output`, in one step.
        progress: show a progress bar on stderr.

    Raises:
        ServingError: the model is damaged, incomplete or a decoder with a cache; its graph does not answer as PyTorch
            does; or the extra `export` is not installed.
        OSError: a file cannot be read or written; FileExistsError if `output` is not empty and may not be replaced.

    >>> report = export_onnx("roformer-mini-zh", "roformer-mini-onnx", int8=True)
    >>> report.agreements["model.onnx"].difference < 5e-5
    True
    """
    started = time.perf_counter()
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        raise ServingError(not_installed("export", *lacking))
    saved, place = saved_model(directory), Path(output).resolve()
    if place in (saved.folder.resolve(), *saved.folder.resolve().parents):
        raise FileExistsError(f"{place} is or contains the model to export: name a folder next to it")
    sentences = read_texts(texts)
    with output_folder(place, force) as folder, _Steps(progress, 4 + int8 + fp16, len(sentences) + 1) as steps:
        steps.begin("loading")
        tokenizer, model = load_tokenizer(saved), load_model(saved)

        steps.begin("exporting")
        from .card import CARD, card_of
        from .graph import check_graph, write_graph

        (folder / "onnx").mkdir()
        graphs = {FLOAT32: folder / "onnx" / FLOAT32}
        inputs, outputs = write_graph(model, tokenizer, graphs[FLOAT32])
        if int8:
            from .quantization import quantize

            steps.begin("int8")
            graphs[INT8] = folder / "onnx" / INT8
            quantize(graphs[FLOAT32], graphs[INT8], model)
        if fp16:
            from .half_precision import halve

            steps.begin("float16")
            graphs[FLOAT16] = folder / "onnx" / FLOAT16
            halve(graphs[FLOAT32], graphs[FLOAT16])

        steps.begin("checking")
        for path in graphs.values():
            check_graph(path)

        steps.begin("comparing")
        from .agreement import MOST, compare, open_session

        sessions = {name: open_session(path) for name, path in graphs.items()}
        agreements = compare(model, tokenizer, sessions, sentences, longest_input(model.config), steps.advance)
        exact = agreements[FLOAT32]
        if not exact.is_exact:
            raise ServingError(
                f"the graph of {saved.folder} answers otherwise than PyTorch: they differ by {exact.difference:.1e}, and "
                f"float32 explains {MOST * exact.scale:.1e} at most"
            )
        word_level = write_tokenizer(tokenizer, folder)
        write_config(saved, folder)
        report = OnnxReport(
            source=saved.folder,
            output=Path(output),  # as the caller gave it
            architecture=saved.architecture,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            inputs=inputs,
            outputs=outputs,
            texts=f"{len(sentences):,} texts "
            + ("that come with the package" if texts is None else f"of {Path(texts).name}"),
            agreements=agreements,
            word_level=word_level,
            note="its language model is left out, which writes with a cache" if saved.leaves_language_model else None,
            files=sorted([CARD, *(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())]),
            seconds=time.perf_counter() - started,
        )
        (folder / CARD).write_text(card_of(saved, report, folder), encoding="utf-8")
        return report


def longest_input(config: PreTrainedConfig) -> int | None:
    """How many tokens the model can take; None where there is no end of them."""
    if config.model_type == "bert" or getattr(config, "position_encoding", "rotary") == "learned":
        return config.max_position_embeddings
    return None


def write_config(saved: SavedModel, folder: Path) -> None:
    """config.json as it was, with the class and the dtype of the graph."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(saved.folder, local_files_only=True)
    config.architectures, config.dtype = [saved.architecture], "float32"
    for name in ("auto_map", "custom_pipelines"):  # the code that they name stays where it is
        if hasattr(config, name):
            delattr(config, name)
    config.save_pretrained(folder)


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> bool:
    """The tokenizer's files; gives whether it segments words, which Python alone can do.

    A tokenizer.json, which has no place for a segmenter, is left out then: transformers.js would read it, and give other
    ids.
    """
    word_level = getattr(tokenizer, "word_segmentation", None) is not None
    tokenizer.save_pretrained(folder, legacy_format=word_level)
    return word_level


class _Steps:
    """A bar over the steps of an export, and over the texts of its last."""

    def __init__(self, shown: bool, steps: int, texts: int):
        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not (shown and console.is_terminal), transient=True)
        self._task = self._bar.add_task("", total=steps * texts)
        self._texts, self._begun = texts, 0

    def __enter__(self) -> _Steps:
        self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()

    def begin(self, name: str) -> None:
        self._bar.update(self._task, description=name, completed=self._begun * self._texts)
        self._begun += 1

    def advance(self) -> None:
        self._bar.advance(self._task)
