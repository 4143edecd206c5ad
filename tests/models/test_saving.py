"""A model that is saved over another: the weights that are loaded are those that were saved last, and others stay."""

import json
import os

import peft
import pytest
import torch
from helpers.small_models import TINY, small_config
from safetensors.torch import load_file
from transformers import AutoModel, PreTrainedModel

from modeling_roformer import (
    NezhaConfig,
    NezhaModel,
    RoFormerModel,
    RoFormerSeq2SeqConfig,
    RoFormerSeq2SeqModel,
)
from modeling_roformer.locks import lock_folder

CLASSES = {
    RoFormerModel: small_config(**TINY),
    NezhaModel: small_config(NezhaConfig, **TINY),
    RoFormerSeq2SeqModel: small_config(RoFormerSeq2SeqConfig, **TINY, decoder_layers=1),
}


@pytest.fixture
def models():
    return [RoFormerModel(small_config(**TINY)) for _ in range(2)]


def weights(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith((".model", "model")))


def assert_same(model, loaded):
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("sizes", [("50GB", "5KB"), ("5KB", "50GB"), ("4KB", "8KB"), ("8KB", "4KB"), ("50GB", "50GB")])
def test_what_was_saved_last_is_loaded(tmp_path, kind, sizes):
    for number, size in enumerate(sizes):
        torch.manual_seed(number)
        model = kind(CLASSES[kind])
        model.save_pretrained(tmp_path, max_shard_size=size)
    assert_same(model, kind.from_pretrained(tmp_path))
    index = tmp_path / "model.safetensors.index.json"
    if sizes[1] == "50GB":
        assert weights(tmp_path) == ["model.safetensors"]
    else:
        shards = set(json.loads(index.read_text())["weight_map"].values())
        assert len(shards) > 1 and weights(tmp_path) == sorted({*shards, index.name})


def test_again_and_again(models, tmp_path):
    for number in range(6):
        model = models[number % 2]
        model.save_pretrained(tmp_path, max_shard_size=["50GB", "5KB", "8KB"][number % 3])
        assert_same(model, AutoModel.from_pretrained(tmp_path))


def test_other_variants_and_other_files_stay(models, tmp_path):
    first, second = models
    first.save_pretrained(tmp_path, variant="fp16", max_shard_size="5KB")
    first.save_pretrained(tmp_path, variant="bf16")
    others = {"adapter_model.safetensors", "pytorch_model.bin", "model.onnx", "model-of-mine.safetensors", "model.txt"}
    others |= {"model-00001-of-00002.bin", "model.safetensors.bak"}
    for name in others:
        (tmp_path / name).write_text(name)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "config.json"}
    assert "model.fp16-00001-of-00003.safetensors" in kept
    for size in ("50GB", "5KB", "8KB", "50GB"):
        second.save_pretrained(tmp_path, max_shard_size=size)
        assert {name: (tmp_path / name).read_bytes() for name in kept} == kept
        assert not [name for name in weights(tmp_path) if name.startswith(".")]
        assert_same(second, RoFormerModel.from_pretrained(tmp_path))
    assert_same(first, RoFormerModel.from_pretrained(tmp_path, variant="fp16"))
    # And the other way about: the variant is replaced, and the weights without a variant stay.
    second.save_pretrained(tmp_path, variant="fp16")
    first.save_pretrained(tmp_path, variant="bf16", max_shard_size="5KB")
    assert_same(second, RoFormerModel.from_pretrained(tmp_path, variant="fp16"))
    assert_same(first, RoFormerModel.from_pretrained(tmp_path, variant="bf16"))
    assert "model.safetensors.index.fp16.json" not in weights(tmp_path) and "model.bf16.safetensors" not in weights(
        tmp_path
    )
    assert_same(second, RoFormerModel.from_pretrained(tmp_path))


def test_the_clock_does_not_decide(models, tmp_path):
    """A file that was copied from a machine whose clock is fast, with its time, is replaced as any other."""
    for sizes in (("50GB", "5KB"), ("5KB", "50GB")):
        folder = tmp_path / sizes[0]
        models[0].save_pretrained(folder, max_shard_size=sizes[0])
        for path in folder.iterdir():
            os.utime(path, (4e9, 4e9))
        models[1].save_pretrained(folder, max_shard_size=sizes[1])
        assert_same(models[1], RoFormerModel.from_pretrained(folder))


def test_links_are_replaced_and_what_they_lead_to_stays(models, tmp_path):
    """A snapshot in huggingface_hub's cache holds links to files that other snapshots share."""
    snapshot, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    blobs.mkdir()
    models[0].save_pretrained(snapshot)
    for path in list(snapshot.iterdir()):
        path.rename(blobs / path.name)
        path.symlink_to(f"../blobs/{path.name}")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in blobs.iterdir()}
    for size in ("5KB", "50GB"):
        models[1].save_pretrained(snapshot, max_shard_size=size)
        assert_same(models[1], RoFormerModel.from_pretrained(snapshot))
        assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in blobs.iterdir()} == before


def test_given_weights_are_not_emptied(models, tmp_path):
    given = models[1].state_dict()
    models[0].save_pretrained(tmp_path, state_dict=given)
    assert given.keys() == models[1].state_dict().keys()
    assert_same(models[1], RoFormerModel.from_pretrained(tmp_path))


def test_an_adapter_replaces_no_weights(models, tmp_path):
    for size in ("50GB", "5KB"):
        models[0].save_pretrained(tmp_path / size, max_shard_size=size)
    models[1].add_adapter(peft.LoraConfig(target_modules=["query"]))
    for size in ("50GB", "5KB"):
        before = weights(tmp_path / size)
        models[1].save_pretrained(tmp_path / size)
        assert weights(tmp_path / size) == before and (tmp_path / size / "adapter_model.safetensors").exists()


def test_another_process_than_the_main_one_removes_nothing(models, tmp_path):
    models[0].save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    models[1].save_pretrained(tmp_path, is_main_process=False, max_shard_size="5KB")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_save_that_fails_removes_nothing(models, tmp_path, monkeypatch):
    """The disk is full at the third shard: what was there before is what is loaded."""
    models[0].save_pretrained(tmp_path, variant="fp16", max_shard_size="5KB")
    models[0].save_pretrained(tmp_path)
    written = []

    def save_file(tensors, path, metadata):
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")

    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", save_file)
    with pytest.raises(OSError, match="No space left"):
        models[1].save_pretrained(tmp_path, max_shard_size="5KB")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    assert_same(models[0], RoFormerModel.from_pretrained(tmp_path))


def test_what_is_saved_for_pipelines_and_by_position(models, tmp_path):
    """`variant` may be given by its place, and a path as text."""
    models[0].save_pretrained(str(tmp_path), True, None, False, "50GB", "fp16")
    models[1].save_pretrained(str(tmp_path), True, None, False, "5KB", "fp16")
    assert "model.fp16.safetensors" not in weights(tmp_path)
    assert_same(models[1], RoFormerModel.from_pretrained(tmp_path, variant="fp16"))
    assert load_file(tmp_path / weights(tmp_path)[0])


def left_behind(folder):
    """The hidden folder that a killed process leaves in the middle of a save."""
    (folder / ".saving-killed").mkdir(parents=True)
    (folder / ".saving-killed" / "model.safetensors").write_bytes(b"half of a model")
    return folder / ".saving-killed"


def test_what_a_killed_process_left_is_removed(models, tmp_path):
    old = left_behind(tmp_path)
    (tmp_path / "notes").mkdir()
    models[0].save_pretrained(tmp_path)
    assert not old.exists() and {"notes", "config.json", "model.safetensors"} == set(os.listdir(tmp_path))


def test_what_another_process_is_writing_stays(models, tmp_path):
    used = left_behind(tmp_path)
    lock = lock_folder(used)
    models[0].save_pretrained(tmp_path)
    os.close(lock)
    assert (used / "model.safetensors").read_bytes() == b"half of a model"
    models[0].save_pretrained(tmp_path)
    assert not used.exists()


def test_two_saves_into_one_folder_leave_each_other_whole(models, tmp_path, monkeypatch):
    """The second begins and ends in the middle of the first."""
    first, second = models
    save, begun = PreTrainedModel.save_pretrained, []

    def saving(self, save_directory, *args, **kwargs):
        begun.append(save_directory)
        if self is first:
            second.save_pretrained(tmp_path)
            assert os.path.isdir(save_directory)
        return save(self, save_directory, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", saving)
    first.save_pretrained(tmp_path)
    assert len(set(begun)) == 2
    assert_same(first, RoFormerModel.from_pretrained(tmp_path))
    assert set(os.listdir(tmp_path)) == {"config.json", "model.safetensors"}
