"""A machine with little memory: the model's forward pass raises torch's error for batches of more tokens."""

import os
from pathlib import Path

CPU_ERROR = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."
# Python runs a file `sitecustomize.py` at its start; Ray has many processes that do not compute.
_AT_START = """
import sys

def within_memory(self, batch, prompt_length):
    if len(batch) * max(map(len, batch)) > {tokens}:
        raise RuntimeError({error!r})
    return pooled(self, batch, prompt_length)

if any(argument.endswith(("roformer", "default_worker.py")) for argument in sys.orig_argv):
    from modeling_roformer.serving.vectors.encoder import TextEncoder

    pooled, TextEncoder._pooled = TextEncoder._pooled, within_memory
"""


def with_little_memory(folder: Path, tokens: int) -> dict[str, str]:
    """Return an environment of processes in which a batch of more than `tokens` tokens does not fit in memory."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_AT_START.format(tokens=tokens, error=CPU_ERROR))
    return {**os.environ, "PYTHONPATH": str(folder)}
