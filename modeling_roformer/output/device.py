"""The device that a command computes on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_of(name: "str | torch.device | None" = None, error: type[Exception] = ValueError) -> "torch.device":
    """Return the device of this name; by default the accelerator that this machine has, or else the CPU.

    Raises `error` if this machine has no such device.
    """
    import torch

    # Without the check, a torch that was built for CUDA returns it on a machine without a GPU too.
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name is None:
        return accelerator or torch.device("cpu")
    known = ["cpu"]
    if accelerator is not None:
        kind = accelerator.type
        known += [kind, *(f"{kind}:{number}" for number in range(torch.accelerator.device_count()))]
    if str(name) not in known:
        raise error(f"device is '{name}', which torch does not find on this machine; expected {' or '.join(known)}")
    return torch.device(name)
