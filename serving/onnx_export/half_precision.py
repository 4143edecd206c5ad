"""Graphs in float16, half the size, for GPUs."""

from pathlib import Path

from .graph import quiet

# Sums over many numbers and exponentials exceed float16's range or precision, so they stay in float32, between casts.
# So does NEZHA's sum over distances, `ScatterElements`, for which ONNX Runtime has no float16 kernel.
IN_FLOAT32 = (
    "LayerNormalization", "RMSNormalization", "Softmax", "ReduceMean", "ReduceSum", "Pow", "Sqrt", "Exp", "Div",
    "ScatterElements",
)  # fmt: skip


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
            exported, keep_io_types=True, op_block_list=[*DEFAULT_OP_BLOCK_LIST, *IN_FLOAT32]
        )
    # The converter appends its casts at the end, but ONNX requires topological order.
    sorted_model = onnx_ir.from_proto(halved)
    sorted_model.graph.sort()
    onnx.save(onnx_ir.to_proto(sorted_model), target)
