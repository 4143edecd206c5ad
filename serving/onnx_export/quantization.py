"""A graph whose weights are int8.

Each matrix of weights is quantized in blocks of 16 numbers, and what it is multiplied with when it gets there, in blocks as
well (`accuracy_level` 4 of ONNX Runtime's MatMulNBits). A scale for each block rather than for a whole tensor is what keeps
the answers: `benchmarks/onnx_export.py` measures it beside ONNX Runtime's `quantize_dynamic`, whose one scale for all that is
multiplied also makes an answer depend on what shares its batch. Embeddings have a scale for each row.

Attention's projections to values stay in float32: they are one of twelve parts of a layer's weights, and four tenths of the
error came from them. So do its products, which have no weights, norms and softmax.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .quiet import quiet

if TYPE_CHECKING:
    from onnx import GraphProto
    from transformers import PreTrainedModel

BLOCK = 16
IN_FLOAT32 = ("self.value.weight",)  # what the names of these weights end with
FEWEST_ROWS = 1024  # of a table that is worth it


def quantize(
    source: Path,
    target: Path,
    model: PreTrainedModel,
    block: int = BLOCK,
    symmetric: bool = False,
    accuracy_level: int = 4,
    in_float32: tuple[str, ...] = IN_FLOAT32,
) -> None:
    """Write the graph at `source` with int8 weights; inputs and outputs stay as they are, float32.

    Args:
        model: what the graph was exported from, which knows its weights by name.
        block: how many numbers share a scale, a power of two from 16.
        symmetric: whether 0 is the middle of every block's range.
        accuracy_level: 4, or 1 to multiply in float32, which is more exact and slower.
        in_float32: what the names of the weights that are not quantized end with.
    """
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    exported = onnx.load(source)
    untie(exported.graph)
    quantize_rows(exported.graph)
    kept = products_of(exported.graph, model, in_float32)
    in_blocks = DefaultWeightOnlyQuantConfig(
        block_size=block, is_symmetric=symmetric, accuracy_level=accuracy_level, bits=8
    )
    with quiet():
        matrices = MatMulNBitsQuantizer(exported, algo_config=in_blocks, nodes_to_exclude=kept)
        matrices.process()
        matrices.model.save_model_to_file(str(target))


def products_of(graph: GraphProto, model: PreTrainedModel, names: tuple[str, ...]) -> list[str]:
    """The nodes that multiply with weights whose names end so; a graph has its matrices transposed, under other names."""
    from onnx import numpy_helper

    wanted = {weight.detach().numpy().T.tobytes() for name, weight in model.named_parameters() if name.endswith(names)}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    return [
        node.name
        for node in graph.node
        if node.op_type == "MatMul"
        and node.input[1] in weights
        and numpy_helper.to_array(weights[node.input[1]]).tobytes() in wanted
    ]


def untie(graph: GraphProto) -> None:
    """Give an output layer that is the embeddings, transposed while the graph runs, a matrix of its own to quantize."""
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "Transpose" and node.input[0] in weights:
            matrix = np.ascontiguousarray(numpy_helper.to_array(weights[node.input[0]]).T)
            graph.initializer.append(numpy_helper.from_array(matrix, node.output[0]))
            graph.node.remove(node)


def quantize_rows(graph: GraphProto) -> None:
    """Hold each large table of embeddings as int8, with a scale for each row: x = scale · int8."""
    from onnx import TensorProto, helper, numpy_helper

    weights = {tensor.name: tensor for tensor in graph.initializer}
    for at, node in reversed(list(enumerate(graph.node))):
        tensor = weights.get(node.input[0]) if node.op_type == "Gather" else None
        if tensor is None or tensor.data_type != TensorProto.FLOAT or tensor.dims[0] < FEWEST_ROWS:
            continue
        table, ids, rows = numpy_helper.to_array(tensor), node.input[1], node.output[0]
        scales = np.maximum(np.abs(table).max(-1, keepdims=True), np.finfo(np.float32).tiny) / 127
        integers = np.round(table / scales).astype(np.int8)
        graph.initializer.append(numpy_helper.from_array(integers, f"{tensor.name}_int8"))
        graph.initializer.append(numpy_helper.from_array(scales, f"{tensor.name}_scales"))
        graph.node.remove(node)
        for new in (
            helper.make_node("Mul", [f"{rows}_float", f"{rows}_scales"], [rows]),
            helper.make_node("Gather", [f"{tensor.name}_scales", ids], [f"{rows}_scales"]),
            helper.make_node("Cast", [f"{rows}_int8"], [f"{rows}_float"], to=TensorProto.FLOAT),
            helper.make_node("Gather", [f"{tensor.name}_int8", ids], [f"{rows}_int8"]),
        ):
            graph.node.insert(at, new)
    used = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    for tensor in list(graph.initializer):
        if tensor.name not in used:
            graph.initializer.remove(tensor)
