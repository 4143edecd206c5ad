"""Weights in PyTorch's formats: safetensors or what torch.save writes, as one file or as shards with an index.

Pickled code never runs: torch.load reads only tensors (weights_only=True). Files are memory-mapped, and tensors are
read one at a time; only the format from before PyTorch 1.6 must fit into memory. torch.save's archives have a CRC-32
for each record, which torch.load ignores and which is checked here; safetensors has no checksums, so values are only
checked to be finite.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_STORED, is_zipfile

import numpy as np
from safetensors import SafetensorError, safe_open

from ..errors import CheckpointError
from .dtypes import DTYPES
from .pytorch_files import read_index
from .source import Source, Tensor
from .zip_archive import open_zip

if TYPE_CHECKING:
    import torch

_SAFETENSORS = {dtype.safetensors: name for name, dtype in DTYPES.items()}
# What DataParallel, Lightning's modules and torch.compile put before the name of every tensor.
WRAPPERS = ("module.", "model.", "_orig_mod.")
# Scripts of training, such as Lightning's, save a state dict under these names, beside the state of training.
INSIDE = ("state_dict", "model_state_dict", "model")


class PyTorchSource(Source):
    """The tensors of a file or of an index's shards under their own names, linear weights of shape (out, in).

    Attributes:
        path: the file or index; files: the names of the files that hold the tensors; entries: name -> `Tensor`.
        beside: what a file has beside the state dict, if that is a part of it.

    Raises CheckpointError, one sentence naming the file, if one is missing, damaged, or holds more than tensors.
    """

    has_keys = True

    def __init__(self, path: Path):
        self.path = path
        self.entries: dict[str, Tensor] = {}
        self._tensor: dict[str, Callable[[], torch.Tensor]] = {}
        self.beside: list[str] = []
        self._unchecked: dict[str, Path] = {}  # names in archives whose checksums are not checked yet
        weight_map = read_index(path) if path.suffix == ".json" else None
        self.files = [path.name] if weight_map is None else sorted(set(weight_map.values()))
        for name in self.files:
            file = path.parent / name
            if not file.is_file():
                raise CheckpointError(f"{path} names the file {name}, which is missing")
            if file.suffix == ".safetensors":
                self._open_safetensors(file)
            else:
                self._open_pickle(file)
        if not self.entries:
            raise CheckpointError(f"{path} contains no tensors")

    def unwrap(self) -> None:
        """Take off the prefixes of `WRAPPERS` that all names have."""
        while prefix := next((name for name in WRAPPERS if all(key.startswith(name) for key in self.entries)), ""):
            self._tensor = {name.removeprefix(prefix): tensor for name, tensor in self._tensor.items()}
            self._unchecked = {name.removeprefix(prefix): path for name, path in self._unchecked.items()}
            entries = [replace(entry, name=name.removeprefix(prefix)) for name, entry in self.entries.items()]
            self.entries = {entry.name: entry for entry in entries}

    def _open_safetensors(self, path: Path) -> None:
        try:
            header = safe_open(path, "np")
            tensors = cache(lambda: safe_open(path, "pt"))  # imports torch, which headers do not need
            for name in header.keys():  # noqa: SIM118, it is not a dict
                part = header.get_slice(name)
                dtype = _SAFETENSORS.get(part.get_dtype(), part.get_dtype())
                self._add(name, dtype, part.get_shape(), lambda name=name: tensors().get_tensor(name))
        except SafetensorError as error:
            raise CheckpointError(f"{path} is damaged: {error}") from None

    def _open_pickle(self, path: Path) -> None:
        import torch

        archive = is_zipfile(path)
        if archive:
            with open_zip(path) as records:  # torch maps the records, so it would take compressed bytes for values
                if any(record.compress_type != ZIP_STORED for record in records.infolist()):
                    raise CheckpointError(f"{path} is a compressed .zip, which torch.save never writes")
        try:
            with warnings.catch_warnings():  # about pickle protocols
                warnings.simplefilter("ignore")
                state = torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
        except Exception:  # a damaged file causes errors of every kind
            raise CheckpointError(
                f"{path} is damaged, or holds objects other than tensors; pickled code is never loaded"
            ) from None
        state, beside = _state_dict(state)
        if state is None:
            raise CheckpointError(
                f"{path} is not a state dict: it does not hold tensors by name, nor has it one under one of the names "
                f"{', '.join(INSIDE)}"
            )
        self.beside += beside
        for name, tensor in state.items():
            self._add(name, str(tensor.dtype).removeprefix("torch."), tensor.shape, lambda tensor=tensor: tensor)
            if archive:
                self._unchecked[name] = path

    def _add(self, name: str, dtype: str, shape, tensor: Callable[[], torch.Tensor]) -> None:
        if name in self.entries:
            raise CheckpointError(f"{self.path} names several files that hold the tensor {name}")
        shape = tuple(shape)
        itemsize = DTYPES[dtype].numpy.itemsize if dtype in DTYPES else 0
        self.entries[name] = Tensor(name, dtype, shape, int(np.prod(shape, dtype=object)) * itemsize)
        self._tensor[name] = tensor

    def tensor(self, name: str) -> torch.Tensor:
        """Return one tensor, memory-mapped if the format allows it."""
        if (path := self._unchecked.get(name)) is not None:
            _check_sums(path)
            self._unchecked = {name: other for name, other in self._unchecked.items() if other != path}
        return self._tensor[name]()

    def load(self, entry: Tensor) -> np.ndarray:
        """Return one tensor with any values, memory-mapped if the format allows it."""
        return as_array(self.tensor(entry.name))

    def check(self, name: str) -> None:
        """Read one tensor only to check its checksum."""
        self.tensor(name)


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's values as a contiguous array, bfloat16 as uint16."""
    import torch

    tensor = tensor.detach().contiguous()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _state_dict(content: object) -> tuple[dict[str, torch.Tensor] | None, list[str]]:
    """Return the state dict that a file holds, and the names of what is beside it if it is only a part of the file.

    Returns None if there is not exactly one.
    """
    import torch

    if _is_state_dict(content):
        return content, []
    if isinstance(content, dict):
        found = [name for name in INSIDE if content.get(name) and _is_state_dict(content[name])]
        has_others = any(isinstance(value, torch.Tensor) and value.dim() for value in content.values())
        if len(found) == 1 and not has_others:
            return content[found[0]], sorted(str(name) for name in content if name != found[0])
    return None, []


def _is_state_dict(content: object) -> bool:
    import torch

    return isinstance(content, dict) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) and value.layout == torch.strided
        for name, value in content.items()
    )


def _check_sums(path: Path) -> None:
    """Check the CRC-32 of an archive's records; it is 0 if torch.save did not compute it."""
    with open_zip(path) as archive:
        for record in archive.infolist():
            if record.CRC != 0:
                with archive.open(record) as data:
                    while data.read(1 << 22):
                        pass
