"""Fixtures of all tests of training."""

import pytest
from transformers import Trainer


@pytest.fixture
def no_pictures(monkeypatch):
    """Skip drawing curves, which takes longer than a small training."""
    monkeypatch.setattr("modeling_roformer.training.comparing.curves.draw_panels", lambda picture, *_, **__: picture)


@pytest.fixture
def failing(monkeypatch):
    """Make the loss NaN in the second step of runs whose folder has a given name."""
    step = Trainer.training_step

    def fail(name):
        def patched(self, *arguments):
            loss = step(self, *arguments)
            is_it = self.args.output_dir.rpartition("/")[2] == name and self.state.global_step == 1
            return loss * float("nan") if is_it else loss

        monkeypatch.setattr(Trainer, "training_step", patched)

    return fail
