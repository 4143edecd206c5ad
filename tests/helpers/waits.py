"""Operations for which a host waits for its device."""

from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Their results, or the shapes of these, are known only when the device has finished.
READS = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_consecutive"}
READS |= {"isin"}  # sorts the different values, from some 40 on


def is_index_by_mask(name: str, args: tuple) -> bool:
    """Return whether an operation indexes by a mask, so that the values of the mask decide the shape of its result."""
    return name == "index" and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])


class Operations(TorchDispatchMode):
    """Counts the operations whose result, or its shape, the host waits for."""

    def __init__(self, reads: Counter):
        super().__init__()
        self.reads = reads

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.reads[name] += name in READS or is_index_by_mask(name, args)
        return func(*args, **(kwargs or {}))


class Copies(TorchFunctionMode):
    """Counts what copies a whole tensor to the host, which on a CPU is no operation."""

    def __init__(self, reads: Counter):
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        self.reads[name] += name in ("tolist", "cpu", "numpy")
        return func(*args, **(kwargs or {}))


def host_reads(function) -> Counter:
    """Return the reads of a call, by the name of the operation."""
    reads = Counter()
    with Copies(reads), Operations(reads):
        function()
    return +reads
