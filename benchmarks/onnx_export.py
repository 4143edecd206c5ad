"""Accuracy and speed of quantised graphs of a masked language model, by setting, compared with PyTorch.

    python benchmarks/onnx_export.py --model DIR --texts FILE [FILE …]

Each file is a source: text with one document per line, or JSON Lines. It is split into pieces of 128 tokens at sentence
ends, 15 % of whose words are replaced by [MASK] (a fixed seed), up to 4,000 masks in all. Pieces are run one at a time.
The table has the share of masks with the same top prediction as PyTorch in float32, the minimum and the mean cosine of
the vectors (the mean over tokens of the bare model's last hidden states), the graph's size, and its time for all pieces
on one thread relative to the float32 graph, as the median of alternating rounds.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import reporting
import timing
import torch
from masked_accuracy import masked_batches
from onnxruntime.quantization import QuantType, quantize_dynamic
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForMaskedLM

from modeling_roformer.serving.onnx_export.graph import quiet, write_graph
from modeling_roformer.serving.onnx_export.quantization import halve, quantize
from modeling_roformer.training import load_tokenizer
from modeling_roformer.training.pretraining.masking import IGNORED


def second_products(graph: Path) -> list[str]:
    """Return the names of the feed-forward networks' second products, whose matrix has four times as many rows as
    columns."""
    model = onnx.load(graph).graph
    shapes = {tensor.name: tensor.dims for tensor in model.initializer}
    products = [node for node in model.node if node.op_type == "MatMul" and node.input[1] in shapes]
    return [node.name for node in products if shapes[node.input[1]][0] == 4 * shapes[node.input[1]][1]]


def dynamic(source: Path, target: Path, model, no_second: bool = False, **options) -> None:
    """Quantise with ONNX Runtime's `quantize_dynamic`, which has one scale per activation tensor."""
    excluded = second_products(source) if no_second else []
    with quiet():
        quantize_dynamic(source, target, nodes_to_exclude=excluded, **options)


LENGTH = 128  # most tokens per piece
VALUES, OUTPUTS, SECOND = "self.value.weight", "attention.output.dense.weight", ".output.dense.weight"
QINT8, QUINT8 = {"weight_type": QuantType.QInt8}, {"weight_type": QuantType.QUInt8}
PRODUCTS = {"op_types_to_quantize": ["MatMul"]}
# Functions of a graph, a file to write, and the model.
SETTINGS: dict[str, Callable[[Path, Path, torch.nn.Module], object]] = {
    "float16": lambda source, target, model: halve(source, target),
    "int8": quantize,
    "int8, values too": partial(quantize, in_float32=()),
    "int8, but attention's outputs, too": partial(quantize, in_float32=(VALUES, OUTPUTS)),
    "int8, but those and FFN's second": partial(quantize, in_float32=(VALUES, SECOND)),
    "int8, blocks of 32": partial(quantize, block=32),
    "int8, blocks of 128": partial(quantize, block=128),
    "int8, symmetric": partial(quantize, symmetric=True),
    "int8 weights only": partial(quantize, accuracy_level=1),
    "dynamic, QInt8": partial(dynamic, **QINT8),
    "dynamic, QInt8, per channel": partial(dynamic, **QINT8, per_channel=True),
    "dynamic, QUInt8": partial(dynamic, **QUINT8),
    "dynamic, QUInt8, per channel": partial(dynamic, **QUINT8, per_channel=True),
    "dynamic, QUInt8, per channel, reduce_range": partial(dynamic, **QUINT8, per_channel=True, reduce_range=True),
    "dynamic, QUInt8, per channel, products": partial(dynamic, **QUINT8, **PRODUCTS, per_channel=True),
    "the same, without FFN's second": partial(dynamic, **QUINT8, **PRODUCTS, per_channel=True, no_second=True),
}


def pieces_of(chosen: argparse.Namespace, tokenizer) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Return the inputs and the mask positions of each piece."""
    wanted, pieces = chosen.masks // len(chosen.texts), []
    with tempfile.TemporaryDirectory() as cache:
        for path in chosen.texts:
            for batch in masked_batches(path, tokenizer, cache, wanted, LENGTH):
                for row, (mask, labels) in enumerate(zip(batch["attention_mask"], batch["labels"], strict=True)):
                    n = int(mask.sum())
                    inputs = {name: batch[name][row : row + 1, :n].numpy() for name in ("input_ids", "attention_mask")}
                    inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
                    asked = np.flatnonzero(labels[:n] != IGNORED)
                    if len(asked):
                        pieces.append((inputs, asked))
    return pieces


def open_on_one_thread(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def logits_of(session: onnxruntime.InferenceSession, pieces: list[tuple]) -> list[np.ndarray]:
    """Return the logits of the masked words of each piece."""
    return [session.run(["logits"], inputs)[0][0, asked] for inputs, asked in track(pieces, "graph", transient=True)]


def in_pytorch(model, inputs: dict[str, np.ndarray]) -> np.ndarray:
    with torch.inference_mode():
        return model(**{name: torch.from_numpy(x) for name, x in inputs.items()})[0][0].numpy()


def cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    ours, theirs = ours.mean(0), theirs.mean(0)
    return float(ours @ theirs / (np.linalg.norm(ours) * np.linalg.norm(theirs)))


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--model", required=True, help="a saved masked language model")
    parser.add_argument("--texts", type=Path, nargs="+", required=True, help="one file per source")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--masks", type=int, default=4_000, help="masks in all sources together")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    figures = reporting.Figures(chosen.output, "onnx", "onnxruntime")
    tokenizer = load_tokenizer(chosen.model)
    model = AutoModelForMaskedLM.from_pretrained(chosen.model, dtype=torch.float32).eval()
    pieces = pieces_of(chosen, tokenizer)
    answers = [in_pytorch(model, inputs)[asked].argmax(-1) for inputs, asked in track(pieces, "PyTorch")]
    vectors = [in_pytorch(model.base_model, inputs) for inputs, _ in track(pieces, "PyTorch")]

    masks = f"{sum(map(len, answers)):,} masks in {len(pieces):,} pieces"
    table = Table(masks, "same words", "minimum cosine", "mean cosine", "MB", "time")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_graph(model, tokenizer, folder / "masked")
        write_graph(model.base_model, tokenizer, folder / "bare")
        plain = open_on_one_thread(folder / "masked")
        for setting in ["float32", *chosen.settings]:
            paths = {kind: folder / kind for kind in ("masked", "bare")}
            if setting != "float32":
                paths = {kind: path.with_name(f"{kind} smaller") for kind, path in paths.items()}
                for kind, path in paths.items():
                    SETTINGS[setting](folder / kind, path, model)
            masked, bare = (open_on_one_thread(path) for path in paths.values())
            logits = logits_of(masked, pieces)
            same = sum(int((x.argmax(-1) == y).sum()) for x, y in zip(logits, answers, strict=True))
            subject = timing.Resident(lambda: logits_of)
            calls = {session: (subject, session, pieces) for session in (masked, plain)}
            time_ratio = reporting.ratio(*timing.alternate(calls, 3, warm_up=False).values(), "{:.2f}")
            cosines = [
                cosine(bare.run(["last_hidden_state"], inputs)[0][0], right)
                for (inputs, _), right in zip(pieces, vectors, strict=True)
            ]
            shares = f"{same / sum(map(len, answers)):.2%}", f"{min(cosines):.5f}", f"{statistics.mean(cosines):.5f}"
            table.add_row(setting, *shares, f"{paths['masked'].stat().st_size / 1e6:.1f}", time_ratio)
    with figures:
        figures.add("graphs", table)


if __name__ == "__main__":
    main()
