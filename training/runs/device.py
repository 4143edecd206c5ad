"""The device and the processes of a run."""

from accelerate import PartialState

from ...output.device import device_of

ON_CPU = device_of().type == "cpu"


def processes() -> PartialState:
    """Return the processes of this run, started by torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)
