"""A Trainer whose checkpoints are whole, and which resumes from the last good one, and goes no further than its end."""

import hashlib
import json
import os
import re
import shutil

import pytest
import torch
from helpers.messages import assert_states, refused
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Trainer, TrainingArguments

from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.runs.checkpointing import CheckpointingTrainer
from modeling_roformer.training.runs.checkpoints import atomic_checkpoint, checkpoints, is_complete, remove_all_but
from modeling_roformer.training.runs.finite import NotFinite


class Regression(nn.Module):
    """With dropout, so that a step depends on the state of the generator."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x, labels):
        predictions = self.layers(x).squeeze(-1)
        return {"loss": (predictions - labels).square().mean(), "logits": predictions}


def make_trainer(folder, steps=6, keep=2, bar=False, run=None):
    some = torch.Generator().manual_seed(1)
    rows = [{"x": x, "labels": x.sum()} for x in torch.randn(40, 4, generator=some)]
    arguments = TrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=4,
        save_steps=2,
        save_total_limit=keep,
        logging_steps=1,
        learning_rate=0.1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=not bar,
    )
    return CheckpointingTrainer(Regression(), arguments, train_dataset=rows, run=run)


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    trainer = make_trainer(tmp_path_factory.mktemp("whole"))
    trainer.train_or_resume()
    return trainer


def assert_same(trainer, expected):
    assert losses(trainer) == losses(expected) and len(losses(expected)) == 6
    for name, weight in expected.model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], weight, atol=0, rtol=0)


def test_the_latest_checkpoints_stay_and_are_whole(whole_run):
    found = checkpoints(whole_run.folder)
    assert [path.name for path in found] == ["checkpoint-6", "checkpoint-4"]
    assert all(map(is_complete, found)) and sorted(whole_run.folder.iterdir()) == sorted(found)


def test_no_file_of_a_checkpoint_names_a_folder(whole_run):
    files = [path for path in whole_run.folder.rglob("*") if path.is_file()]
    assert {"optimizer.pt", "trainer_state.json"} <= {path.name for path in files}
    told = str(whole_run.folder).encode()
    assert not [path for path in files if told in path.read_bytes()]


def test_a_finished_run_takes_no_further_step(whole_run, monkeypatch):
    monkeypatch.setattr(Trainer, "training_step", lambda *_: pytest.fail("a step"))
    again = make_trainer(whole_run.folder)
    again.train_or_resume()
    assert again.state.global_step == 6
    assert_same(again, whole_run)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    """Return the folder of a run that ended with its checkpoint of step 4."""
    save, trainer = CheckpointingTrainer._save_checkpoint, make_trainer(tmp_path_factory.mktemp("stopped"))

    def stop(self, *arguments):
        save(self, *arguments)
        if self.state.global_step == 4:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CheckpointingTrainer, "_save_checkpoint", stop)
        trainer.train_or_resume()
    return trainer.folder


@pytest.fixture
def folder(stopped_run, tmp_path):
    return shutil.copytree(stopped_run, tmp_path / "run")


def zero(content):
    return bytes(len(content))


def flip_a_bit(content):
    """In what lies behind every header."""
    place = len(content) * 4 // 5
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def cut(content):
    return content[:-1]


def spoil(file, how):
    file.write_bytes(how(file.read_bytes()))


def test_each_file_of_a_checkpoint_has_a_digest(folder):
    checkpoint = folder / "checkpoint-4"
    manifest = json.loads((checkpoint / "whole.json").read_text())
    assert manifest.keys() == {path.name for path in checkpoint.iterdir()} - {"whole.json"}
    for name, file in manifest.items():
        content = (checkpoint / name).read_bytes()
        assert file == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_a_run_that_was_stopped_is_resumed(folder, whole_run):
    trainer = make_trainer(folder)
    trainer.train_or_resume()
    assert trainer.checkpoint.name == "checkpoint-4"
    assert_same(trainer, whole_run)


FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


@pytest.mark.parametrize("how", [zero, flip_a_bit, cut])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_resumed(name, how, folder, whole_run, caplog):
    spoil(folder / "checkpoint-4" / name, how)
    trainer = make_trainer(folder)
    trainer.train_or_resume()
    (warning,) = (record.message for record in caplog.records if record.name.startswith("modeling_roformer"))
    assert_states(warning, f"{folder}/checkpoint-4/{name}", f"{folder}/checkpoint-2", "checkpoint-4.damaged")
    assert_same(trainer, whole_run)
    # The damaged one is kept, and takes no good one's place.
    assert {path.name for path in folder.iterdir()} == {"checkpoint-4", "checkpoint-6", "checkpoint-4.damaged"}
    assert all(map(is_complete, checkpoints(folder)))


def test_the_bar_of_a_resumed_run_begins_at_the_checkpoint(folder, capfd):
    make_trainer(folder, bar=True).train_or_resume()
    shown = [int(step) for step in re.findall(r"(\d+)/6 ", capfd.readouterr().err)]
    assert shown[0] == 4 and shown[-1] == 6 and shown == sorted(shown)


def test_files_that_are_missing(folder, whole_run, caplog):
    (folder / "checkpoint-4" / "optimizer.pt").unlink()
    trainer = make_trainer(folder)
    trainer.train_or_resume()
    assert_states(caplog.text, "checkpoint-4/optimizer.pt", "missing")
    assert_same(trainer, whole_run)


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"optimizer.pt": {"bytes": 1}}', '{"optimizer.pt": null}'])
def test_a_damaged_list_of_files(manifest, folder, caplog):
    (folder / "checkpoint-4" / "whole.json").write_text(manifest)
    assert not is_complete(folder / "checkpoint-4")
    assert make_trainer(folder).checkpoint == folder / "checkpoint-2"
    assert_states(caplog.text, "checkpoint-4/whole.json")


def test_where_no_checkpoint_is_good(folder):
    spoil(folder / "checkpoint-2" / "optimizer.pt", flip_a_bit)
    spoil(folder / "checkpoint-4" / "model.safetensors", zero)
    before = sorted(folder.rglob("*"))
    facts = folder / "checkpoint-4/model.safetensors", folder / "checkpoint-2/optimizer.pt", f"remove {folder}"
    for _ in range(2):
        with refused(TrainingError, *facts):
            make_trainer(folder).train_or_resume()
    assert sorted(folder.rglob("*")) == before


def test_several_damaged_ones_of_one_step_are_all_kept(folder):
    for _ in range(2):
        shutil.copytree(folder / "checkpoint-2", folder / "checkpoint-4", dirs_exist_ok=True)
        (folder / "checkpoint-4" / "optimizer.pt").unlink()
        assert make_trainer(folder).checkpoint == folder / "checkpoint-2"
    assert {path.name for path in folder.iterdir()} == {
        "checkpoint-2",
        "checkpoint-4.damaged",
        "checkpoint-4.damaged-2",
    }


def test_a_checkpoint_of_another_model_is_named(folder):
    """Whole, as it was written, and yet not for this run."""
    trainer = make_trainer(folder)
    trainer.model.layers[0] = nn.Linear(4, 9)
    trainer.model.layers[2] = nn.Linear(9, 1)
    with refused(TrainingError, folder / "checkpoint-4", "weights", "size mismatch"):
        trainer.train_or_resume()


def test_a_checkpoint_of_another_run_is_named(tmp_path, whole_run):
    """Whole, and of an equal model, with another seed or rate."""
    make_trainer(tmp_path, run={"seed": 0, "rate": 0.1}).train_or_resume()
    shutil.rmtree(tmp_path / "checkpoint-6")
    before = sorted(tmp_path.rglob("*"))
    with refused(TrainingError, tmp_path / "checkpoint-4", "seed and rate", f"move {tmp_path / 'checkpoint-4'} away"):
        make_trainer(tmp_path, run={"seed": 1, "rate": 0.2}).train_or_resume()
    assert sorted(tmp_path.rglob("*")) == before
    resumed = make_trainer(tmp_path, run={"seed": 0, "rate": 0.1})
    resumed.train_or_resume()
    assert_same(resumed, whole_run)


def test_weights_under_other_names_are_not_taken_for_these(folder):
    """Whole, as it was written, and yet of a model with other layers."""
    file = folder / "checkpoint-4" / "model.safetensors"
    weights = load_file(file)
    weights["layers.9.weight"] = weights.pop("layers.0.weight")
    save_file(weights, file, {"format": "pt"})
    manifest = json.loads((file.parent / "whole.json").read_text())
    content = file.read_bytes()
    manifest[file.name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (file.parent / "whole.json").write_text(json.dumps(manifest))
    with refused(TrainingError, folder / "checkpoint-4", "weights", "layers.0.weight"):
        make_trainer(folder).train_or_resume()


def test_at_least_two_are_kept(tmp_path):
    trainer = make_trainer(tmp_path, keep=1)
    trainer.train_or_resume()
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-6", "checkpoint-4"]


def test_damaged_ones_do_not_crowd_out_good_ones(folder):
    """While a run is under way, too."""
    shutil.copytree(folder / "checkpoint-4", folder / "checkpoint-5")
    spoil(folder / "checkpoint-5" / "optimizer.pt", cut)
    remove_all_but(folder, 2)
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-5", "checkpoint-4", "checkpoint-2"]
    remove_all_but(folder, 1)
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-5", "checkpoint-4"]
    remove_all_but(folder, 0)
    assert not list(folder.iterdir())


def test_a_process_that_is_killed_while_it_removes_leaves_no_half(folder, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        remove_all_but(folder, 1)
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-4"]
    with atomic_checkpoint(folder / "checkpoint-6") as new:
        (new / "some").touch()
    assert {path.name for path in folder.iterdir()} == {"checkpoint-4", "checkpoint-6"}


def test_weights_that_are_not_finite_are_not_saved(tmp_path, monkeypatch):
    save = CheckpointingTrainer._save_checkpoint

    def spoil(self, *arguments):
        if self.state.global_step == 4:
            self.model.layers[2].bias.data.fill_(torch.nan)
        save(self, *arguments)

    monkeypatch.setattr(CheckpointingTrainer, "_save_checkpoint", spoil)
    with refused(NotFinite, "layers.2.bias", "step 4"):
        make_trainer(tmp_path).train_or_resume()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_where_it_cannot_be_written(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    save = CheckpointingTrainer.save_extra_state

    def full(self, folder):
        if self.state.global_step == 4:
            raise OSError(28, "No space left on device")
        save(self, folder)

    monkeypatch.setattr(CheckpointingTrainer, "save_extra_state", full)
    with refused(TrainingError, tmp_path / "checkpoint-4", "No space left on device", tmp_path / "checkpoint-2"):
        trainer.train_or_resume()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_where_the_first_cannot_be_written(tmp_path, monkeypatch):
    def full(self, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointingTrainer, "save_extra_state", full)
    with refused(TrainingError, tmp_path / "checkpoint-2", "No space left on device", "no checkpoint") as raised:
        make_trainer(tmp_path).train_or_resume()
    assert_states(raised.value, "first step")
    assert not os.listdir(tmp_path)
