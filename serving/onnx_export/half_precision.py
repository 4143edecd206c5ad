"""A graph in float16: half of the size, and what GPUs compute fastest."""

from pathlib import Path

from .quiet import quiet

# Sums over many numbers, and exponentials, leave float16's range or its precision: they stay in float32, between casts.
# So does NEZHA's sum over distances, `ScatterElements`, for which ONNX Runtime has no kernel in float16.
IN_FLOAT32 = (
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


def halve(source: Path, target: Path) -> None:
    """Write the graph at `source` in float16; inputs and outputs stay as they are, float32.

    Where ONNX Runtime has no kernel in float16, as it has few on a CPU, it computes in float32 by itself.
    """
    import onnx
    import onnx_ir
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    exported = onnx.load(source)
    # Of weights, the converter calls all float16 that have an entry here, also those that it leaves in float32.
    weights = {tensor.name for tensor in exported.graph.initializer}
    kept = [value for value in exported.graph.value_info if value.name not in weights]
    del exported.graph.value_info[:]
    exported.graph.value_info.extend(kept)
    with quiet():
        halved = convert_float_to_float16(
            exported, keep_io_types=True, op_block_list=[*DEFAULT_OP_BLOCK_LIST, *IN_FLOAT32]
        )
    # The casts were appended at the end; ONNX wants each node after those whose outputs it reads.
    sorted_model = onnx_ir.from_proto(halved)
    sorted_model.graph.sort()
    onnx.save(onnx_ir.to_proto(sorted_model), target)
