"""Batches of texts of similar length, which become smaller when memory runs out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import ServingError

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = 16_384
CPU_BATCH_TOKENS = 4096  # whose hidden states stay in the cache
# In the RuntimeErrors of torch for a CPU and for MPS; CUDA and XPU have a type of their own.
_OUT_OF_MEMORY = ("you tried to allocate", "MPS backend out of memory")


def run_in_batches(
    lengths: Sequence[int],
    batch_tokens: int,
    compute: Callable[[list[int]], None],
    name: Callable[[int], str],
    device: "torch.device",
) -> int:
    """Compute texts in batches of similar length, the longest first, without gradients.

    If a batch does not fit in memory, it is halved, and so are all later ones.

    Args:
        lengths: tokens of each text.
        batch_tokens: maximum tokens of a batch, padding included.
        compute: called with the places of a batch's texts in `lengths`.
        name: returns the name of the text at a place, for errors.

    Returns:
        The tokens per batch at the end.

    Raises:
        ServingError: a text alone does not fit in memory.
    """
    import torch

    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    with torch.inference_mode():
        while start < len(order):
            longest = max(1, lengths[order[start]])
            batch = order[start : start + max(1, batch_tokens // longest)]
            try:
                compute(batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise ServingError(
                        f"the text {name(batch[0])} with {longest:,} tokens does not fit in the memory of {device}, "
                        "even without others: set a smaller --max-length, or split texts with --chunk (a smaller "
                        "--batch-tokens does not help)"
                    ) from None
                batch_tokens = len(batch) * longest // 2
                continue
            start += len(batch)
    return batch_tokens


@contextmanager
def without_onednn(dtype: "torch.dtype") -> Iterator[None]:
    """Switch oneDNN off in a block if the dtype is float32: only gelu would use it, without a gain, and its cache of
    1,024 shapes takes 100 MB."""
    import torch

    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = before and dtype != torch.float32
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether torch raised an error because memory ran out: that of an accelerator, or of the CPU."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or any(sentence in str(error) for sentence in _OUT_OF_MEMORY)
