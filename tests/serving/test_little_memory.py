"""`roformer embed` when memory runs out: batches become smaller, and the vectors stay the same."""

import subprocess

import numpy as np
import pytest
import torch
from helpers.command_line import ROFORMER
from helpers.little_memory import CPU_ERROR, with_little_memory
from helpers.messages import assert_states, refused
from helpers.small_texts import TEXTS
from helpers.vector_folders import read_vectors, shards_of

from modeling_roformer import RoFormerModel
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.vectors import TextEncoder, embed

LONG = "今天天气非常好，" * 8
FORWARD = RoFormerModel.forward


@pytest.fixture
def limit(monkeypatch):
    """Return a function that makes the model raise an error for batches of more tokens; it returns their sizes."""

    def limit(tokens: int, error: Exception) -> list[int]:
        sizes = []

        def forward(self, input_ids, **arguments):
            sizes.append(input_ids.numel())
            if sizes[-1] > tokens:
                raise error
            return FORWARD(self, input_ids, **arguments)

        monkeypatch.setattr(RoFormerModel, "forward", forward)
        return sizes

    return limit


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError(CPU_ERROR)])
def test_batches_are_halved_until_they_fit(saved, tmp_path, limit, error):
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, LONG, *TEXTS]), encoding="utf-8")
    embed(saved("word"), tmp_path / "texts.txt", tmp_path / "enough", shard_size=7)
    sizes, notes = limit(80, error), []
    embed(saved("word"), tmp_path / "texts.txt", tmp_path / "little", shard_size=7, tell=notes.append)
    (ids, expected, _), (found_ids, found, _) = map(read_vectors, (tmp_path / "enough", tmp_path / "little"))
    assert ids == found_ids
    np.testing.assert_allclose(found, expected, atol=2e-6)
    (note,) = notes
    assert_states(note, "--batch-tokens", 16384)
    assert max(sizes) > 80 and len(sizes) > 6
    assert all(size <= 80 for size in sizes[-3:])  # later shards begin with small batches


def test_a_text_that_does_not_fit_alone_is_named(saved, tmp_path, limit):
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, LONG]), encoding="utf-8")
    limit(20, torch.OutOfMemoryError("CUDA out of memory."))
    with refused(ServingError, f"texts.txt:{len(TEXTS) + 1}", "--batch-tokens", "--max-length", "--chunk"):
        embed(saved("word"), tmp_path / "texts.txt", tmp_path / "out", tell=pytest.fail)
    with refused(ServingError, "number 2", "--max-length"):
        TextEncoder(saved("word"))(["今天", LONG])


def test_another_error_of_the_model_is_raised_as_it_is(saved, limit):
    sizes = limit(0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with refused(RuntimeError, "mat1"):
        TextEncoder(saved("word"))(TEXTS)
    assert len(sizes) == 1


def test_the_installed_command_tells_it_once(saved, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, LONG, *TEXTS]), encoding="utf-8")
    command = [ROFORMER, "embed", saved("word"), "texts.txt"]
    environments = {80: with_little_memory(tmp_path / "80", 80), 20: with_little_memory(tmp_path / "20", 20)}
    options = {"cwd": tmp_path, "capture_output": True, "text": True}
    subprocess.run([*command, "enough", "--shard-size", "7"], **options, check=True)
    done = subprocess.run([*command, "little", "--shard-size", "7"], env=environments[80], **options)
    assert done.returncode == 0 and done.stderr.count("note: ") == 1, done.stderr
    assert_states(done.stderr, "--batch-tokens", 16384)
    (ids, expected, _), (found_ids, found, _) = map(read_vectors, (tmp_path / "enough", tmp_path / "little"))
    assert ids == found_ids
    np.testing.assert_allclose(found, expected, atol=2e-6)
    done = subprocess.run([*command, "none"], env=environments[20], **options)
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr, done.stderr
    assert_states(done.stderr, f"texts.txt:{len(TEXTS) + 1}", "--batch-tokens", "--max-length")
    assert not shards_of(tmp_path / "none")
