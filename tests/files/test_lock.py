"""The lock of a folder that commands write into."""

import fcntl
import os

import pytest

from modeling_roformer.files.lock import lock_folder, make_and_lock, only_writer


def test_a_second_writer_is_refused(tmp_path):
    first, second = (only_writer(tmp_path / "out", RuntimeError) for _ in range(2))
    with first, pytest.raises(RuntimeError, match="out"), second:
        pass
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("moment", ["removed before it is opened", "removed before it is locked", "locked"])
def test_a_folder_that_another_process_takes_is_made_and_locked_again(tmp_path, monkeypatch, moment):
    """A process that ends without a file removes the folder that it made, and one that begins removes leftovers."""
    made, others = [], []
    flock = fcntl.flock

    def make():
        made.append(tmp_path / str(len(made)))
        made[-1].mkdir()
        if len(made) == 1 and moment == "removed before it is opened":
            made[0].rmdir()
        elif len(made) == 1 and moment == "locked":
            others.append(lock_folder(made[0]))
        return made[-1]

    def late_flock(descriptor, operation):
        if len(made) == 1 and moment == "removed before it is locked":
            made[0].rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late_flock)
    folder, lock = make_and_lock(make)
    assert [folder] == made[1:]
    with pytest.raises(BlockingIOError):
        lock_folder(folder)
    for descriptor in (lock, *others):
        os.close(descriptor)
