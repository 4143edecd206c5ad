"""A Trainer whose checkpoints are whole, and which goes on from the last of them, and no further than its end."""

import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from modeling_roformer.training.checkpointing import CheckpointingTrainer
from modeling_roformer.training.checkpoints import checkpoints, is_whole
from modeling_roformer.training.errors import TrainingError


class Regression(nn.Module):
    """With dropout, so that a step depends on the state of the generator."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x, labels):
        predictions = self.layers(x).squeeze(-1)
        return {"loss": (predictions - labels).square().mean(), "logits": predictions}


def make_trainer(folder, steps=6):
    some = torch.Generator().manual_seed(1)
    rows = [{"x": x, "labels": x.sum()} for x in torch.randn(40, 4, generator=some)]
    arguments = TrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=4,
        save_steps=2,
        save_total_limit=2,
        logging_steps=1,
        learning_rate=0.1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    return CheckpointingTrainer(Regression(), arguments, train_dataset=rows)


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    trainer = make_trainer(tmp_path_factory.mktemp("whole"))
    trainer.train_on()
    return trainer


def assert_same(trainer, expected):
    assert losses(trainer) == losses(expected) and len(losses(expected)) == 6
    for name, weight in expected.model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], weight, atol=0, rtol=0)


def test_the_latest_checkpoints_stay_and_are_whole(whole_run):
    found = checkpoints(whole_run.folder)
    assert [path.name for path in found] == ["checkpoint-6", "checkpoint-4"]
    assert all(map(is_whole, found)) and sorted(whole_run.folder.iterdir()) == sorted(found)


def test_a_finished_run_takes_no_further_step(whole_run, monkeypatch):
    monkeypatch.setattr(Trainer, "training_step", lambda *_: pytest.fail("a step"))
    again = make_trainer(whole_run.folder)
    again.train_on()
    assert again.state.global_step == 6
    assert_same(again, whole_run)


@pytest.mark.parametrize("spoilt", [[], ["checkpoint-4"]])
def test_a_run_that_was_stopped_goes_on(spoilt, whole_run, tmp_path, monkeypatch):
    save, stopped = CheckpointingTrainer._save_checkpoint, make_trainer(tmp_path)

    def stop(self, *arguments):
        save(self, *arguments)
        if self.state.global_step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CheckpointingTrainer, "_save_checkpoint", stop)
        stopped.train_on()
    for name in spoilt:  # as a full disk leaves it
        weights = tmp_path / name / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
    trainer = make_trainer(tmp_path)
    trainer.train_on()
    assert_same(trainer, whole_run)


def test_where_it_cannot_be_written(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    save = CheckpointingTrainer.save_more

    def full(self, folder):
        if self.state.global_step == 4:
            raise OSError(28, "No space left on device")
        save(self, folder)

    monkeypatch.setattr(CheckpointingTrainer, "save_more", full)
    with pytest.raises(TrainingError, match="checkpoint-4 cannot be written: No space left.*checkpoint-2 is whole"):
        trainer.train_on()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
