"""Commands on a full disk: one sentence names the path, and a stopped `roformer embed` is resumed."""

import subprocess

import pytest
from helpers.command_line import ROFORMER
from helpers.messages import assert_states
from helpers.small_texts import TEXTS
from helpers.vector_folders import read_vectors


def run_with_small_files(folder, kilobytes, *arguments):
    """Run the installed command, where no file may have more than some kilobytes."""
    line = f'ulimit -f {kilobytes} && exec "$0" "$@"'
    done = subprocess.run(["bash", "-c", line, ROFORMER, *arguments], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.slow
def test_embed_and_export(saved, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS * 50), encoding="utf-8")
    error = run_with_small_files(tmp_path, 8, "embed", str(saved("word")), "texts.txt", "vectors")
    assert_states(error, "vectors/000000.parquet")
    done = subprocess.run([ROFORMER, "embed", str(saved("word")), "texts.txt", "vectors"], cwd=tmp_path)
    assert done.returncode == 0 and len(read_vectors(tmp_path / "vectors")[0]) == 50 * len(TEXTS)
    error = run_with_small_files(tmp_path, 40, "export-onnx", str(saved("word")), "onnx")
    assert_states(error, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists() and not list(tmp_path.glob(".*"))
