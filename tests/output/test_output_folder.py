"""Output folders of commands: unusual names, existing files, and the current folder."""

import errno
import io
import json
import os
import re
import resource
import shutil
import sys
from contextlib import contextmanager

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY

from modeling_roformer.cli import main
from modeling_roformer.files import output_folder, write_whole

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy" / "word"
OTHER = REPOSITORY / "tests" / "fixtures" / "legacy" / "v2"


@pytest.fixture
def convert(monkeypatch, capsys):
    """Return a function that runs `roformer convert` and returns the exit code and stderr."""

    def convert(*arguments) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["roformer", "convert", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, capsys.readouterr().err

    return convert


def assert_refused(result, *facts) -> None:
    code, err = result
    assert code == 1 and err.startswith("roformer: ") and err.count("\n") == 1
    assert_states(err, *facts)


def kind(folder) -> str:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]


def test_a_name_may_be_as_long_as_the_file_system_allows(convert, tmp_path):
    for name in ("x" * 255, "名" * 85):
        assert convert(LEGACY, tmp_path / name) == (0, "")
        assert (tmp_path / name / "config.json").is_file() and os.listdir(tmp_path) == [name]
        shutil.rmtree(tmp_path / name)
    assert_refused(convert(LEGACY, tmp_path / ("x" * 256)), os.strerror(errno.ENAMETOOLONG))


def test_a_name_that_the_terminal_cannot_show(convert, tmp_path, monkeypatch):
    """The command succeeds, and escapes the name."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert convert(LEGACY, tmp_path / "模型🤗") == (0, "")
    terminal.flush()
    shown = re.sub(rb"[\s|]", b"", terminal.buffer.getvalue())  # of which a table breaks the lines
    assert b"\\u6a21\\u578b\\U0001f917" in shown


def test_the_current_folder_is_not_replaced(convert, tmp_path, monkeypatch):
    """Whoever is in it would stay in the folder that was there before, and see nothing of the model."""
    monkeypatch.chdir(tmp_path)
    for name in (".", tmp_path, "../" + tmp_path.name, ""):
        assert_refused(convert(LEGACY, name), tmp_path, "current folder")
    assert convert(LEGACY, "model") == (0, "")
    monkeypatch.chdir("model")
    before = sorted(os.listdir("."))
    assert_refused(convert(OTHER, ".", "--force"), tmp_path / "model", "current folder")
    assert sorted(os.listdir(".")) == before


def test_an_error_of_the_system_is_a_sentence_too(convert, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for source in (tmp_path / "loop", tmp_path / ("x" * 300)):
        assert_refused(convert(source, tmp_path / "output"), source)
        assert os.listdir(tmp_path) == ["loop"]
    assert "Errno" not in convert(tmp_path / ("x" * 300), tmp_path / "output")[1]


@pytest.mark.parametrize("force", [False, True])
def test_a_model_that_another_command_wrote_meanwhile(convert, tmp_path, monkeypatch, force):
    """Without --force it stays; with it, the last one to finish has its way."""
    output, other = tmp_path / "output", tmp_path / "other"
    assert convert(OTHER, other) == (0, "")
    sync = os.fsync

    def other_first(descriptor):  # what is written is whole, and not yet in its place
        if not output.exists():
            shutil.copytree(other, output)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", other_first)
    result = convert(LEGACY, output, *["--force"] * force)
    if force:
        assert result == (0, "") and kind(output) == "roformer"
    else:
        assert_refused(result, output, "--force")
        assert kind(output) == "roformer_v2"
    assert sorted(os.listdir(tmp_path)) == ["other", "output"]


@contextmanager
def files_of_at_most(size: int):
    """Let no file in the block grow beyond `size` bytes: the system says so as it does of a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_named_by_the_path(tmp_path):
    """The system names no file where there is no space."""
    with pytest.raises(OSError) as caught, files_of_at_most(100):
        write_whole(tmp_path / "file", bytes(200))
    assert caught.value.filename == str(tmp_path / "file")
    with pytest.raises(OSError) as caught, files_of_at_most(100), output_folder(tmp_path / "model") as folder:
        (folder / "weights").write_bytes(bytes(200))
    assert caught.value.filename == str(tmp_path / "model")
    with pytest.raises(OSError) as caught, output_folder(tmp_path / "model"):
        raise ConnectionResetError(errno.ECONNRESET, "of the network")
    assert caught.value.filename is None
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named_by_its_own_path(tmp_path):
    for path in (tmp_path / "missing" / "file", tmp_path):
        with pytest.raises(OSError) as caught:
            write_whole(path, "text")
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)
