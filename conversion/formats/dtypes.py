"""The dtypes of checkpoints: TensorFlow's codes, and rounding from one dtype to another.

NumPy has no bfloat16; its 16 bits, the upper half of a float32, are kept as uint16 under the name "bfloat16".
"""

import numpy as np

# tensorflow/core/framework/types.proto; STORAGE has the dtypes that can be converted.
CODES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16",
    17: "uint16", 18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
    24: "float8_e5m2", 25: "float8_e4m3fn", 29: "int4", 30: "uint4",
}  # fmt: skip
STORAGE = {
    "float32": np.dtype("<f4"), "float64": np.dtype("<f8"), "float16": np.dtype("<f2"), "bfloat16": np.dtype("<u2"),
    "int32": np.dtype("<i4"), "int64": np.dtype("<i8"),
}  # fmt: skip
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
            out = wide.astype(STORAGE[target])
            infinite = np.isinf(out) if out.itemsize < wide.itemsize else None
    if infinite is not None and np.any(infinite & np.isfinite(array if source != "bfloat16" else wide)):
        raise OverflowError(f"a value is too large for {target}")
    return out
