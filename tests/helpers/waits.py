"""Operations for which a host waits for its device."""

import torch

# Their results, or the shapes of these, are known only when the device has finished.
READS = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_consecutive"}


def is_index_by_mask(name: str, args: tuple) -> bool:
    """Return whether an operation indexes by a mask, so that the values of the mask decide the shape of its result."""
    return name == "index" and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
