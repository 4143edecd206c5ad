"""A graph in float16: half of the size, and what GPUs compute fastest."""

from pathlib import Path

from .quiet import quiet

# Sums over many numbers, and exponentials, leave float16's range or its precision: they stay in float32, between casts.
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
)


def halve(source: Path, target: Path) -> None:
    """Write the graph at `source` in float16; inputs and outputs stay as they are, float32.

    Where ONNX Runtime has no kernel in float16, as it has few on a CPU, it computes in float32 by itself.
    """
    import onnx
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    with quiet():
        halved = convert_float_to_float16(
            onnx.load(source), keep_io_types=True, op_block_list=[*DEFAULT_OP_BLOCK_LIST, *IN_FLOAT32]
        )
    onnx.save(halved, target)
