"""Files and folders that commands and training write have the permissions that the umask gives to new ones."""

import os
from pathlib import Path
from stat import S_IMODE

import numpy as np
import pytest
from helpers.paths import REPOSITORY
from safetensors.numpy import save_file

from modeling_roformer.conversion import convert
from modeling_roformer.files.atomic_folder import output_folder

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def assert_as_new(folder: Path, umask: int, least: int) -> None:
    """Assert that a folder, and everything in it, has the permissions of what is made by open() and mkdir()."""
    paths = [folder, *folder.rglob("*")]
    assert sum(path.is_file() for path in paths) >= least
    modes = {str(path): oct(S_IMODE(path.stat().st_mode)) for path in paths}
    assert modes == {str(path): oct((0o777 if path.is_dir() else 0o666) & ~umask) for path in paths}


def test_output_folders(umask, tmp_path):
    (tmp_path / "secret").write_text("")
    (tmp_path / "secret").chmod(0o600)
    with output_folder(tmp_path / "a" / "out") as folder:
        save_file({"weight": np.zeros(3)}, folder / "model.safetensors")
        (folder / "inner").mkdir()
        save_file({"weight": np.zeros(3)}, folder / "inner" / "model.safetensors")
        (folder / "inner" / "link").symlink_to(tmp_path / "secret")
    assert S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600  # a link's target is not ours
    (tmp_path / "a" / "out" / "inner" / "link").unlink()
    assert_as_new(tmp_path / "a", umask, 2)


@pytest.mark.parametrize("umask", [0o037], indirect=True)
def test_the_commands(umask, tmp_path, run):
    """With a model that has files for sentence-transformers, written by safetensors itself."""
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text("今天天气很好\n我想去公园玩\n", encoding="utf-8")
    convert(LEGACY / "sim", out / "sim", family="sim")
    for command in (
        ("convert", LEGACY / "word", out / "word", "--max-shard-size", "20KB"),
        ("bundle", out / "sim", out / "bundle"),
        ("export-tf", out / "word", out / "tf"),
        ("embed", out / "word", texts, out / "vectors"),
        ("vocab", texts, "--base", out / "word" / "vocab.txt", "--output", out / "new.txt", "--min-count", "1"),
        ("vocab-init", out / "word", out / "new.txt", out / "longer"),
    ):
        code, _, err = run(*command)
        assert code == 0, err
    (out / "word" / "README.md").unlink()
    assert run("card", out / "word")[0] == 0
    assert_as_new(out, umask, 60)
