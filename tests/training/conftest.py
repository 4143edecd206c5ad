"""What all tests of training share."""

import gc

import pytest
from transformers import Trainer


@pytest.fixture(autouse=True, scope="module")
def quick_collection():
    """Trainer collects garbage before each training: not among all that was imported, which takes longer than training."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_pictures(monkeypatch):
    """Curves of runs are not drawn, which takes longer than a small training: for tests that do not look at them."""
    monkeypatch.setattr("modeling_roformer.training.comparing.curves.draw_panels", lambda picture, *_, **__: picture)


@pytest.fixture
def failing(monkeypatch):
    """Has Trainer see a loss that is not a number, in the second step of runs whose folder has this name."""
    step = Trainer.training_step

    def fail(name):
        def patched(self, *arguments):
            loss = step(self, *arguments)
            is_it = self.args.output_dir.rpartition("/")[2] == name and self.state.global_step == 1
            return loss * float("nan") if is_it else loss

        monkeypatch.setattr(Trainer, "training_step", patched)

    return fail
