"""The device "simulated", whose tensors a CPU computes: it refuses tensors of the CPU, and counts what waits for a
device.

What computes there is real: autograd, the dispatcher and `device.type` treat it as a device of its own. To import this
module registers it, for the rest of the process.
"""

from collections import Counter

import torch
from helpers.waits import READS, is_index_by_mask
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "simulated"
COPIES = {"_to_copy", "copy_", "_copy_from"}
_setup_privateuseone_for_python_backend(NAME)
KERNELS = torch.library.Library("aten", "IMPL")  # of `torch.tensor(…, device=…)`, which no mode sees


class OnDevice(torch.Tensor):
    """A tensor on the device; `values` are those that the CPU computes."""

    waits: Counter = Counter()
    has_float64 = True

    @staticmethod
    def __new__(cls, values: torch.Tensor):
        if values.dtype == torch.float64 and not cls.has_float64:
            raise TypeError("the device has no float64")
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, **layout, dtype=values.dtype, device=f"{NAME}:0")

    def __init__(self, values: torch.Tensor):
        self.values = values

    def __repr__(self):
        return f"OnDevice({self.values})"

    def tolist(self):
        self.waits["tolist"] += 1
        return self.values.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _compute(func, args, kwargs or {})


class SimulatedDevice(TorchDispatchMode):
    """A block in which tensors may be made on the device. `waits` counts operations by name for which a host waits.

    Args:
        has_float64: whether the device computes in float64.
    """

    def __init__(self, has_float64: bool = True):
        super().__init__()
        OnDevice.has_float64 = has_float64

    def __enter__(self):
        self.waits = OnDevice.waits = Counter()
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _compute(func, args, kwargs or {})


def _compute(func, args, kwargs):
    name = func.overloadpacket.__name__
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    on_device = [x for x in tensors if isinstance(x, OnDevice)]
    on_cpu = [x for x in tensors if x.ndim and not isinstance(x, OnDevice)]
    if on_device and on_cpu and name not in COPIES:
        shapes = [tuple(x.shape) for x in on_cpu]
        raise RuntimeError(f"{func}: tensors of the shapes {shapes} are on the CPU, and others on a device")
    if name == "_fused_sdp_choice":
        return 0  # no fused kernel
    device = kwargs.get("device")
    to_device = bool(on_device) if device is None else torch.device(device).type == NAME
    moves = name in COPIES and (bool(on_device) != to_device or bool(on_device and on_cpu))
    if moves or is_index_by_mask(name, args) or (on_device and name in READS):
        OnDevice.waits[name] += 1
    args, kwargs = tree_map_only(OnDevice, lambda x: x.values, (args, kwargs))
    if device is not None:
        kwargs["device"] = torch.device("cpu")
    results = func(*args, **kwargs)
    if not to_device:
        return results
    same = {id(x.values): x for x in on_device}  # operations in place return their argument
    return tree_map_only(torch.Tensor, lambda x: same[id(x)] if id(x) in same else OnDevice(x), results)


def _empty_strided(size, stride, dtype=None, **kwargs):
    return OnDevice(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source, target, non_blocking=False):
    OnDevice.waits["_copy_from"] += source.numel() > 0
    target.values.copy_(source)
    return target


KERNELS.impl("empty_strided", _empty_strided, "PrivateUse1")
KERNELS.impl("_copy_from", _copy_from, "PrivateUse1")
