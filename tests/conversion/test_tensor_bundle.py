"""TensorFlow's checkpoint format: what is written is read, what TensorFlow wrote is read, and damage is noticed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from hypothesis import example, given
from hypothesis import strategies as st

from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.formats import crc32c, dtypes, sstable
from modeling_roformer.conversion.formats.protocol_buffers import read_varint, write_varint
from modeling_roformer.conversion.formats.tensor_bundle import Entry, TensorBundle
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle, write_index

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
EVERY_DTYPE = LEGACY.parent / "every_dtype"
NUMPY_DTYPES = ["float32", "float64", "float16", "int32", "int64"]


def read_all(prefix: Path) -> dict[str, np.ndarray]:
    bundle = TensorBundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries}


def small_bundle(folder: Path) -> Path:
    prefix = folder / "model.ckpt"
    tensors = {
        "bert/embeddings/word_embeddings": np.arange(6, dtype="float32").reshape(2, 3),
        "bert/embeddings/LayerNorm/beta": np.ones(3, "float16"),
        "global_step": np.array(7, "int64"),
    }
    write_bundle(prefix, tensors.items())
    return prefix


# What is written is read.


def test_crc32c_of_the_examples_of_rfc_3720():
    assert crc32c.masked(bytes(32)) == crc32c.mask(0x8A9136AA)
    assert crc32c.masked(b"\xff" * 32) == crc32c.mask(0x62A8AB43)
    assert crc32c.masked(np.arange(32, dtype="uint8")) == crc32c.mask(0x46DD794E)
    assert crc32c.mask(0) == 0xA282EAD8


@given(st.integers(0, 2**64 - 1))
def test_varints_are_read_back(value):
    data = write_varint(value) + b"\xff"
    assert read_varint(data, 0) == (value, len(data) - 1)


@st.composite
def tensors(draw):
    names = draw(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), unique=True, max_size=40))
    found = {}
    for name in names:
        dtype = draw(st.sampled_from(NUMPY_DTYPES))
        shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
        found[name] = np.random.default_rng(draw(st.integers(0, 99))).normal(0, 9, shape).astype(dtype)
    return found


@given(tensors(), st.integers(1, 4))
def test_every_tensor_is_read_back(tmp_path_factory, tensors, num_shards):
    prefix = tmp_path_factory.mktemp("bundle") / "model.ckpt"
    write_bundle(prefix, tensors.items(), num_shards=num_shards)
    bundle = TensorBundle(prefix)
    assert list(bundle.entries) == sorted(tensors, key=str.encode)
    for name, array in tensors.items():
        found = bundle.read(name)
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)


def test_an_index_of_several_blocks(tmp_path):
    tensors = {f"layer_{i}/{'x' * 60}/kernel": np.array(i, "int32") for i in range(5000)}
    write_bundle(tmp_path / "m", tensors.items(), num_shards=3)
    assert (tmp_path / "m.index").stat().st_size > 1.2 * sstable.BLOCK_SIZE
    found = read_all(tmp_path / "m")
    assert len(found) == 5000 and all(found[name] == array for name, array in tensors.items())


# What TensorFlow wrote.


@pytest.mark.parametrize("folder", [*sorted(LEGACY.iterdir()), EVERY_DTYPE], ids=lambda path: path.name)
def test_our_index_is_tensorflows_byte_for_byte(folder, tmp_path):
    (index,) = folder.glob("*.index")
    bundle = TensorBundle(index.with_suffix(""))
    write_index(tmp_path / "m", bundle.entries.values(), bundle.num_shards)
    assert (tmp_path / "m.index").read_bytes() == index.read_bytes()


def test_bfloat16_as_tensorflow_wrote_it():
    bundle = TensorBundle(EVERY_DTYPE / "model.ckpt")
    expected = np.load(EVERY_DTYPE / "expected.npz")
    assert {entry.dtype for entry in bundle.entries.values()} == set(dtypes.DTYPES)
    for name, entry in bundle.entries.items():
        found = bundle.read(name)
        if entry.dtype == "bfloat16":
            found = dtypes.cast(found, "bfloat16", "float32")
        np.testing.assert_array_equal(found, expected[name])


# Rounding.


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from(["float16", "bfloat16", "float64"]))
@example([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], "bfloat16")  # half-way between two neighbours
@example([1 + 2**-11, 1 + 3 * 2**-11, 2**-25], "float16")
def test_rounding_is_torchs(numbers, target):
    array = np.array(numbers, "float32")
    expected = torch.from_numpy(array).to(getattr(torch, target))
    if torch.isinf(expected).logical_and(torch.from_numpy(np.isfinite(array))).any():
        with pytest.raises(OverflowError, match=target):
            dtypes.cast(array, "float32", target)
        return
    found = dtypes.cast(array, "float32", target)
    assert found.dtype == dtypes.DTYPES[target].numpy
    # Through float32, in which every float16 and bfloat16 is exact; NaNs compare equal here.
    wide = dtypes.cast(found, target, "float32") if target != "float64" else found
    np.testing.assert_array_equal(wide, expected.to(torch.float32 if target != "float64" else torch.float64).numpy())


@given(st.lists(st.integers(0, 65535), min_size=1), st.sampled_from(["float32", "float16", "float64"]))
def test_bfloat16_widens_as_in_torch(bits, target):
    array = np.array(bits, "uint16")
    expected = torch.from_numpy(array.view("int16")).view(torch.bfloat16).to(getattr(torch, target)).numpy()
    finite = np.isfinite(dtypes.cast(array, "bfloat16", "float64"))
    if (np.isinf(expected) & finite).any():
        with pytest.raises(OverflowError):
            dtypes.cast(array, "bfloat16", target)
    else:
        np.testing.assert_array_equal(dtypes.cast(array, "bfloat16", target), expected)


# Damage.


def test_no_changed_byte_changes_a_value_and_truncation_is_noticed(tmp_path):
    """The padding of the footer and the empty metaindex are not read."""
    prefix = small_bundle(tmp_path)
    bundle = TensorBundle(prefix)
    entry = bundle.entries["global_step"]
    assert entry == Entry("global_step", "int64", (), size=8, offset=30, shard=0, crc=entry.crc)
    assert [each.name for each in bundle.in_file_order()][-1] == "global_step"
    expected = {name: array.tobytes() for name, array in read_all(prefix).items()}
    for file in sorted(tmp_path.iterdir()):
        good = file.read_bytes()
        for length in range(len(good)):
            file.write_bytes(good[:length])
            with pytest.raises(CheckpointError, match=r"model\.ckpt\.(index|data)"):
                read_all(prefix)
        for at in range(len(good)):
            for change in (0x01, 0x40, 0x80, 0xFF):
                file.write_bytes(good[:at] + bytes([good[at] ^ change]) + good[at + 1 :])
                try:
                    assert {name: array.tobytes() for name, array in read_all(prefix).items()} == expected
                except CheckpointError as error:
                    assert_states(error, prefix)
        file.write_bytes(good)


def test_missing_files(tmp_path):
    prefix = small_bundle(tmp_path)
    data = tmp_path / "model.ckpt.data-00000-of-00001"
    data.rename(tmp_path / "elsewhere")
    with refused(CheckpointError, data, "missing"):
        TensorBundle(prefix)
    with refused(CheckpointError, tmp_path / "other.index", "missing"):
        TensorBundle(tmp_path / "other")
