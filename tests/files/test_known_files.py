"""A command with --force keeps the files that it did not write, and never replaces what it reads."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.command_line import ROFORMER
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY

from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.runs.run_folder import start_run

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy" / "word"


def convert(*arguments) -> tuple[int, str]:
    done = subprocess.run([ROFORMER, "convert", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stderr


def model(folder: Path, *files: str) -> Path:
    """Make a folder that passes for a saved model, with further files."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    return folder


def test_files_of_the_user_are_named_and_kept(tmp_path):
    names = [f"{number}.txt" for number in range(7)]
    output = model(tmp_path / "out", *names, "data/train.csv", "train.py", "pytorch_model.bin")
    (output / "weights").symlink_to("gone")
    before = sorted(output.rglob("*"))
    for options in ("--force",), ("--force", "--dry-run"):
        code, err = convert(LEGACY, output, *options)
        assert code == 1 and err.count("\n") == 1
        assert_states(err, output, *names[:5], 6)
        assert sorted(output.rglob("*")) == before


def test_what_the_commands_write_is_replaced(tmp_path):
    output = model(
        tmp_path / "out",
        *("model-00001-of-00002.safetensors", "model.safetensors.index.json", "generation_config.json", "README.md"),
        *("onnx/model.onnx", ".gitattributes", ".cache/huggingface/download/config.json.metadata"),
        *("1_Pooling/config.json", "2_Dense/model.safetensors", "modules.json", "rotary.py", "tokenizer.py"),
        "__pycache__/rotary.cpython-311.pyc",
    )
    assert convert(LEGACY, output, "--force") == (0, "")
    assert not (output / "onnx").exists() and (output / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["notes.txt", "rotary/notes.txt", "__pycache__/notes.txt", "__init__.py"])
def test_every_output_folder_keeps_them(name, tmp_path):
    output = model(tmp_path / "out", name)
    with refused(FileExistsError, output, name), output_folder(output, force=True) as folder:
        model(folder)
    assert (output / name).read_text() == name
    with output_folder(output, force=True) as folder:  # the new folder has it too, as after a pull
        model(folder, name)


@pytest.mark.parametrize("place", ["legacy/out", "link/out", "legacy", "link", ".", "up"])
def test_neither_folder_is_in_the_other(place, tmp_path):
    source = shutil.copytree(LEGACY, model(tmp_path / "parent") / "legacy")
    model(source)
    (tmp_path / "parent" / "link").symlink_to("legacy")
    (tmp_path / "parent" / "up").symlink_to(".")
    before = sorted(source.rglob("*"))
    code, err = convert(source, tmp_path / "parent" / place, "--force")
    assert code == 1 and err.count("\n") == 1
    assert_states(err, source, "in the input")
    assert sorted(source.rglob("*")) == before


def test_a_file_to_which_the_source_links_is_not_replaced(tmp_path):
    assert convert(LEGACY, tmp_path / "out") == (0, "")
    (tmp_path / "source").mkdir()
    for path in (tmp_path / "out").iterdir():
        (tmp_path / "source" / path.name).symlink_to(path)
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    code, err = convert(tmp_path / "source", tmp_path / "out", "--force", "--dtype", "float16")
    assert code == 1 and err.count("\n") == 1
    assert_states(err, tmp_path / "out", tmp_path / "source")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights


def test_a_run_is_not_resumed_if_its_model_has_files_of_the_user(tmp_path):
    with start_run(tmp_path / "run", {}, {}):
        model(tmp_path / "run" / "model", "notes.txt")
    with refused(TrainingError, "notes.txt"), start_run(tmp_path / "run", {}, {}, resume=True):
        pass
    (tmp_path / "run" / "model" / "notes.txt").unlink()
    with start_run(tmp_path / "run", {}, {}, resume=True):
        pass
