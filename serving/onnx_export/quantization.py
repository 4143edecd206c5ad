"""Smaller graphs, with int8 or float16 weights.

For int8, weight matrices are quantised in blocks of 16 values with a scale each, and so are activations, while the
graph runs (`accuracy_level` 4 of ONNX Runtime's MatMulNBits). Scales per block keep the outputs close, as
`benchmarks/onnx_export.py` shows beside ONNX Runtime's `quantize_dynamic`. That has one scale per activation tensor, so
its outputs also depend on the rest of the batch. Embeddings have a scale per row.

Attention's value projections stay in float32: they are one twelfth of a layer's weights and caused 40 % of the error.
So do attention's own products, which have no weights, norms and softmax.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .graph import quiet

if TYPE_CHECKING:
    from onnx import GraphProto
    from transformers import PreTrainedModel

BLOCK = 16
IN_FLOAT32 = ("self.value.weight",)  # suffixes of the names of weights
MIN_QUANTISED_ROWS = 1024  # of an embedding table
# Sums over many numbers and exponentials exceed float16's range or precision, so they stay in float32, between casts.
# So does NEZHA's sum over distances, `ScatterElements`: ONNX Runtime has no float16 kernel for it.
FLOAT32_OPS = (
    "LayerNormalization",
    "RMSNormalization",
    "Softmax",
    "ReduceMean",
    "ReduceSum",
    "Pow",
    "Sqrt",
    "Exp",
    "Div",
    "ScatterElements",
)


def quantize(
    source: Path,
    target: Path,
    model: PreTrainedModel,
    block: int = BLOCK,
    symmetric: bool = False,
    accuracy_level: int = 4,
    in_float32: tuple[str, ...] = IN_FLOAT32,
) -> None:
    """Write the graph at `source` with int8 weights; its inputs and outputs stay in float32.

    Args:
        model: the exported model, which has the names of the weights.
        block: values that share a scale, a power of two of at least 16.
        symmetric: whether the range of every block is centred on 0.
        accuracy_level: 4, or 1 to multiply in float32, which is more exact and slower.
        in_float32: suffixes of the names of weights that stay in float32.
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


def products_of(graph: GraphProto, model: PreTrainedModel, suffixes: tuple[str, ...]) -> list[str]:
    """Return the nodes that multiply by weights with such names. A graph has them transposed and renamed."""
    from onnx import numpy_helper

    wanted = {
        weight.detach().numpy().T.tobytes() for name, weight in model.named_parameters() if name.endswith(suffixes)
    }
    weights = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights]
    return [node.name for node in products if numpy_helper.to_array(weights[node.input[1]]).tobytes() in wanted]


def untie(graph: GraphProto) -> None:
    """Give an output layer with tied weights, transposed while the graph runs, a matrix of its own to quantise."""
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "Transpose" and node.input[0] in weights:
            matrix = np.ascontiguousarray(numpy_helper.to_array(weights[node.input[0]]).T)
            graph.initializer.append(numpy_helper.from_array(matrix, node.output[0]))
            graph.node.remove(node)


def quantize_rows(graph: GraphProto) -> None:
    """Store each large embedding table as int8 with a scale per row: x = scale · int8."""
    from onnx import TensorProto, helper, numpy_helper

    weights = {tensor.name: tensor for tensor in graph.initializer}
    for at, node in reversed(list(enumerate(graph.node))):
        tensor = weights.get(node.input[0]) if node.op_type == "Gather" else None
        if tensor is None or tensor.data_type != TensorProto.FLOAT or tensor.dims[0] < MIN_QUANTISED_ROWS:
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


def halve(source: Path, target: Path) -> None:
    """Convert the graph at `source` to float16; its inputs and outputs keep their dtype.

    ONNX Runtime computes in float32 where it has no float16 kernel, as on most CPUs.
    """
    import onnx
    import onnx_ir
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    exported = onnx.load(source)
    # The converter declares every weight with an entry here as float16, even those it leaves in float32.
    weights = {tensor.name for tensor in exported.graph.initializer}
    kept = [value for value in exported.graph.value_info if value.name not in weights]
    del exported.graph.value_info[:]
    exported.graph.value_info.extend(kept)
    with quiet():
        halved = convert_float_to_float16(
            exported, keep_io_types=True, op_block_list=[*DEFAULT_OP_BLOCK_LIST, *FLOAT32_OPS]
        )
    # The converter appends its casts at the end, but ONNX requires topological order.
    sorted_model = onnx_ir.from_proto(halved)
    sorted_model.graph.sort()
    onnx.save(onnx_ir.to_proto(sorted_model), target)
