"""TensorFlow's checkpoint format: what is written is read, what TensorFlow wrote is read, and damage is noticed."""

import struct
import zlib
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
from modeling_roformer.conversion.formats.protocol_buffers import (
    BYTES,
    FIXED32,
    VARINT,
    read_varint,
    write_field,
    write_varint,
)
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


def entry_record(dtype=1, shape=(2,), offset=0, size=8, crc=0, extra=b"") -> bytes:
    dims = b"".join(write_field(2, BYTES, write_field(1, VARINT, n)) for n in shape)
    record = write_field(1, VARINT, dtype) + write_field(2, BYTES, dims) + write_field(4, VARINT, offset)
    return record + write_field(5, VARINT, size) + write_field(6, FIXED32, crc) + extra


HEADER = write_field(1, VARINT, 1) + write_field(3, BYTES, write_field(1, VARINT, 1))


def with_index(folder: Path, entries: list[tuple[bytes, bytes]], data: bytes = bytes(8)) -> Path:
    prefix = folder / "model.ckpt"
    sstable.write_table(prefix.with_name("model.ckpt.index"), entries)
    prefix.with_name("model.ckpt.data-00000-of-00001").write_bytes(data)
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


def test_names_and_dtypes_that_cannot_be_written(tmp_path):
    with refused(ValueError, "'a'"):
        write_bundle(tmp_path / "m", [("a", np.zeros(1)), ("a", np.zeros(1))])
    with refused(ValueError, "''"):
        write_bundle(tmp_path / "m", [("", np.zeros(1))])


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
        for content in [good + b"\0", b"\0" + good, *(good[:length] for length in range(len(good)))]:
            file.write_bytes(content)
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


@pytest.mark.parametrize(
    ("entries", "facts"),
    [
        ([(b"a", entry_record())], ["model.ckpt.index", "no header"]),
        ([(b"", write_field(1, VARINT, 1) + write_field(2, VARINT, 1)), (b"a", entry_record())], ["big-endian"]),
        ([(b"", write_field(1, VARINT, 2)), (b"a", entry_record())], ["model.ckpt.data-00000-of-00002", "missing"]),
        (
            [(b"", write_field(1, VARINT, 1) + write_field(3, BYTES, write_field(2, VARINT, 9)))],
            ["newer format", "version 1"],
        ),
        ([(b"", HEADER), (b"a", entry_record(dtype=7))], ["a", "string"]),
        ([(b"", HEADER), (b"a", entry_record(dtype=99))], ["a", "dtype 99"]),
        ([(b"", HEADER), (b"a", entry_record(extra=write_field(7, BYTES, b"")))], ["a", "partitioned"]),
        ([(b"", HEADER), (b"a", entry_record(extra=write_field(9, VARINT, 1)))], ["a", "unknown field 9"]),
        ([(b"", HEADER), (b"a", entry_record(shape=(3,)))], ["a", (3,), "float32", "8 bytes"]),
        ([(b"", HEADER), (b"a", entry_record(shape=(1 << 62, 1 << 62)))], ["a", (1 << 62, 1 << 62), "8 bytes"]),
        (
            [(b"", HEADER), (b"a", entry_record(shape=(1 << 40,), size=1 << 42))],
            ["model.ckpt.data-00000-of-00001", f"{1 << 42:,}"],
        ),
        ([(b"", HEADER), (b"a", entry_record(offset=4))], ["gap", "a"]),
        ([(b"", HEADER), (b"a", entry_record()), (b"b", entry_record())], ["overlap", "b"]),
        ([(b"", HEADER), (b"a", entry_record()), (b"b", entry_record(offset=4))], ["overlap", "b"]),
        ([(b"", HEADER)], ["model.ckpt.data-00000-of-00001", "8 bytes"]),
        ([(b"", HEADER), (b"a", entry_record(extra=write_field(3, VARINT, 5)))], ["a", "shard 5 of 1"]),
        ([(b"", HEADER), (b"a", b"\x08")], ["model.ckpt.index", "byte 1"]),
        ([], ["model.ckpt.index", "no header"]),
    ],
)
def test_indexes_whose_checksums_are_right(tmp_path, entries, facts):
    with refused(CheckpointError, *facts):
        read_all(with_index(tmp_path, entries))


def block_with_trailer(block: bytes, compression: int = 0) -> bytes:
    return block + bytes([compression]) + struct.pack("<I", crc32c.masked(block + bytes([compression])))


RESTART = struct.pack("<II", 0, 1)


def table_of_blocks(*blocks: bytes, metaindex=RESTART, compression=0, before=b"", last=0xFF) -> bytes:
    """A table of data blocks made by hand: after some bytes of no block, each under a key that begins with `last`."""
    content, handles = before, []
    for block in [*blocks, metaindex]:
        handles.append(write_varint(len(content)) + write_varint(len(block)))
        content += block_with_trailer(block, compression if block is not metaindex else 0)
    index = b""
    for number, handle in enumerate(handles[:-1]):
        index += write_varint(0) + write_varint(2) + write_varint(len(handle)) + bytes([last, number]) + handle
    index += RESTART
    footer = handles[-1] + write_varint(len(content)) + write_varint(len(index))
    content += block_with_trailer(index)
    return content + footer.ljust(40, b"\0") + struct.pack("<Q", sstable.MAGIC)


BLOCK = write_varint(0) + write_varint(0) + write_varint(len(HEADER)) + HEADER + b"\0\1\0n"


def test_a_compressed_table_is_refused(tmp_path):
    (tmp_path / "m.index").write_bytes(table_of_blocks(zlib.compress(b"anything"), compression=1))
    with refused(CheckpointError, tmp_path / "m.index", "compressed"):
        TensorBundle(tmp_path / "m")


def test_a_table_made_by_hand_is_read(tmp_path):
    """The one that the tables above are spoilt versions of; only its second record is no entry of a checkpoint."""
    (tmp_path / "m.index").write_bytes(table_of_blocks(BLOCK + RESTART))
    assert sstable.read_table(tmp_path / "m.index") == [(b"", HEADER), (b"n", b"")]
