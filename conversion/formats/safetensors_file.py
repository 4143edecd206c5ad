"""Write safetensors files, one or several with an index, as `save_pretrained` does."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from huggingface_hub import StateDictSplit, split_state_dict_into_shards_factory
from safetensors import TensorSpec, serialize_file

INDEX = "model.safetensors.index.json"
MAX_SHARD_SIZE = "5GB"


def split_into_shards(sizes: Mapping[str, int], limit: int | str) -> StateDictSplit:
    """Return the files of tensors whose `sizes` in bytes are given by name.

    Each file has at most `limit` bytes (or "5GB"), unless one tensor is larger.

    >>> list(split_into_shards({"a": 32, "b": 32}, 40).filename_to_tensors)
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    return split_state_dict_into_shards_factory(
        dict(sizes),
        get_storage_size=lambda size: size,
        get_storage_id=lambda size: None,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=limit,
    )


def write_shard_index(path: Path, split: StateDictSplit, parameters: int) -> None:
    """Write the JSON file that lists the shard of each tensor, as `save_pretrained` writes it."""
    index = {
        "metadata": {"total_parameters": parameters, **split.metadata},
        "weight_map": split.tensor_to_filename,
    }
    path.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> None:
    """Write a file of contiguous arrays in the NumPy dtypes of their `dtypes`, by name.

    `safetensors.numpy` derives the dtype from the array, so it would write bfloat16 as U16.
    """
    specs = {
        name: TensorSpec(dtype=dtypes[name], shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, array in tensors.items()
    }
    serialize_file(specs, path, {"format": "pt"})
