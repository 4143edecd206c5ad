"""The dtypes of checkpoints, and rounding from one to another.

NumPy has no bfloat16; its 16 bits, the upper half of a float32, are kept as uint16 under the name "bfloat16".
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DType:
    """The number of a dtype in TensorFlow's types.proto, its name in safetensors' headers, and that of its arrays."""

    tensorflow: int
    safetensors: str
    numpy: np.dtype


DTYPES = {
    "float32": DType(1, "F32", np.dtype("<f4")),
    "float64": DType(2, "F64", np.dtype("<f8")),
    "float16": DType(19, "F16", np.dtype("<f2")),
    "bfloat16": DType(14, "BF16", np.dtype("<u2")),
    "int32": DType(3, "I32", np.dtype("<i4")),
    "int64": DType(9, "I64", np.dtype("<i8")),
}
FLOATS = ("float32", "float16", "bfloat16", "float64")


def is_finite(array: np.ndarray, dtype: str) -> bool:
    """Return whether all values, stored as `dtype` (a name in FLOATS), are finite."""
    if dtype == "bfloat16":
        return bool(((array & 0x7F80) != 0x7F80).all())  # the exponent of infinite values and NaN
    return bool(np.isfinite(array).all())


def cast(array: np.ndarray, source: str, target: str) -> np.ndarray:
    """Round values stored as `source` to the nearest even value, in the storage of `target` (both names in FLOATS).

    Returns the array itself if the dtypes are equal. Raises OverflowError if a finite value does not fit.
    """
    if source == target:
        return array
    wide = np.left_shift(array, 16, dtype="<u4").view("<f4") if source == "bfloat16" else array
    with np.errstate(over="ignore", invalid="ignore"):
        if target == "bfloat16":
            wide = wide.astype("<f4", copy=False)
            bits = wide.view("<u4")
            rounded = ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype("<u2")
            out = np.where(np.isnan(wide), np.uint16(0x7FC0), rounded)
            infinite = (out & 0x7FFF) == 0x7F80
        else:
            out = wide.astype(DTYPES[target].numpy)
            infinite = np.isinf(out) if out.itemsize < wide.itemsize else None
    if infinite is not None and np.any(infinite & np.isfinite(array if source != "bfloat16" else wide)):
        raise OverflowError(f"a value is too large for {target}")
    return out
