"""The lock of a folder that commands write into."""

import os

import pytest

from modeling_roformer.files import lock
from modeling_roformer.files.lock import only_writer


def test_a_second_writer_is_refused(tmp_path):
    first, second = (only_writer(tmp_path / "out", RuntimeError) for _ in range(2))
    with first, pytest.raises(RuntimeError, match="out"), second:
        pass
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("is_locked", [False, True], ids=["before it is opened", "before it is locked"])
def test_a_folder_that_another_process_removes_is_made_and_locked_again(tmp_path, monkeypatch, is_locked):
    """A process that ends without a file removes the folder that it made."""
    folder, lock_folder, removed = tmp_path / "out", lock.lock_folder, []

    def lock_after_removal(path):
        descriptor = lock_folder(path) if is_locked else None
        if not removed:
            removed.append(path)
            os.rmdir(path)
        return descriptor if is_locked else lock_folder(path)

    monkeypatch.setattr(lock, "lock_folder", lock_after_removal)
    with only_writer(folder, RuntimeError):
        assert removed and folder.is_dir()
        monkeypatch.setattr(lock, "lock_folder", lock_folder)
        with pytest.raises(RuntimeError, match="out"), only_writer(folder, RuntimeError):
            pass
