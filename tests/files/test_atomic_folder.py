"""An output folder appears complete or not at all, at whatever moment its process is stopped."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from modeling_roformer.files import atomic_folder
from modeling_roformer.files.atomic_folder import output_folder, temporary_sibling

# Writes half a folder, says so, and waits to be stopped.
HALF_WAY = """
import sys, time
from modeling_roformer.files.atomic_folder import output_folder
with output_folder(sys.argv[1], force=True) as folder:
    (folder / "config.json").write_text("{}")
    print("half-way", flush=True)
    time.sleep(600)
"""


def write(path: Path, text: str, force: bool = True) -> None:
    """Write a folder that passes for a saved model."""
    with output_folder(path, force) as folder:
        (folder / "config.json").write_text(json.dumps({"model_type": "roformer", "text": text}))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*") if file.is_file()}


class Stop(BaseException):
    """An interruption at a chosen moment."""


def stop_at(monkeypatch, moment: int) -> list[str]:
    """Interrupt at the n-th call to the system; returns the list that the calls are counted in."""
    calls: list[str] = []
    for name in ("mkdir", "fsync", "replace", "rename", "scandir"):
        original = getattr(os, name)

        def call(*arguments, original=original, name=name, **options):
            calls.append(name)
            if len(calls) == moment:
                raise Stop
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize("is_there", [False, True])
def test_stopped_before_any_call_to_the_system_it_leaves_the_old_folder_or_the_new_one(is_there, tmp_path, monkeypatch):
    """Stopped while it removes, a process leaves a hidden folder, which the next one removes."""
    output = tmp_path / "output"
    write(tmp_path / "elsewhere", "new")
    finished = contents(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    if is_there:
        write(output, "old")
    before, moment = contents(output), 0
    while True:
        moment += 1
        with monkeypatch.context() as patched:
            calls = stop_at(patched, moment)
            try:
                write(output, "new")
                break
            except Stop:
                pass
        found = contents(output)
        visible = [name for name in os.listdir(tmp_path) if not name.endswith(".unfinished")]
        assert visible == (["output"] if found else []) and found in (before, finished)
        if found == finished:  # stopped after the last step
            shutil.rmtree(output)
            if is_there:
                write(output, "old")
    assert moment > 8 and len(calls) < moment
    assert os.listdir(tmp_path) == ["output"] and contents(output) == finished


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_process_leaves_the_old_folder_and_the_next_one_cleans_up(number, tmp_path, default_signals):
    output = tmp_path / "output"
    write(output, "old")
    before = contents(output)
    process = subprocess.Popen([sys.executable, "-c", HALF_WAY, output], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"half-way\n"
    process.send_signal(number)
    process.communicate(timeout=600)
    assert process.returncode != 0 and contents(output) == before
    left = [name for name in os.listdir(tmp_path) if name != "output"]
    assert len(left) == (number == signal.SIGKILL)
    with temporary_sibling(output) as in_use:  # removes what the killed process left
        assert not set(left) & set(os.listdir(tmp_path))
        write(output, "new")
        assert in_use.is_dir()  # it is locked
    assert contents(output) != before and os.listdir(tmp_path) == ["output"]


class SystemWithoutExchange:
    def __init__(self, *_args, **_options):
        pass

    @staticmethod
    def renameat2(*_arguments):
        return -1


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_whole_folder_is_always_there(can_exchange, tmp_path, monkeypatch):
    """With and without a system that can exchange folders; a rename that fails brings the old one back."""
    output = tmp_path / "output"
    write(output, "old")
    before = contents(output)
    if not can_exchange:
        monkeypatch.setattr(atomic_folder.ctypes, "CDLL", SystemWithoutExchange)
    rename, seen = os.rename, []

    def watched(source, target):
        seen.append((Path(source).name, Path(target).name))
        if len(seen) == 2:
            raise OSError(errno.EIO, "input/output error", str(target))
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", watched)
        if can_exchange:
            write(output, "new")
            assert seen == []
        else:
            with pytest.raises(OSError, match="input/output error"):
                write(output, "new")
            assert contents(output) == before and len(seen) == 3
    write(output, "newest")
    assert contents(output)["1_Pooling/config.json"] == "newest" and os.listdir(tmp_path) == ["output"]
