"""The device of a command, with a torch that was built for CUDA on a machine without a GPU, as pip installs it."""

import os
import subprocess
from types import SimpleNamespace

import pytest
import torch
from helpers.command_line import ROFORMER
from helpers.messages import refused
from helpers.small_texts import LEGACY, TEXTS
from helpers.vector_folders import read_vectors

from modeling_roformer.conversion import convert
from modeling_roformer.output.device import device_of

# A torch for CUDA without a GPU: CUDA is the accelerator that it was built for; the driver says what is available.
BUILT_FOR_CUDA = """
import torch
torch._C._accelerator_getAccelerator = lambda: torch.device("cuda")
"""


@pytest.fixture
def built_for_cuda(monkeypatch):
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch.accelerator.current_accelerator() == torch.device("cuda")


def test_without_a_gpu_it_is_the_cpu(built_for_cuda):
    assert device_of() == device_of("cpu") == torch.device("cpu")
    for name in ("cuda", "cuda:0", "gpu", "meta", "", torch.device("cuda")):
        with refused(OSError, f"'{name}'", "cpu"):
            device_of(name, OSError)


def test_with_two_gpus_it_is_the_current_one(built_for_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert device_of() == torch.device("cuda")
    for name in ("cpu", "cuda", "cuda:0", "cuda:1"):
        assert device_of(name) == torch.device(name)
    for name in ("cuda:2", "mps", "GPU"):
        with refused(ValueError, f"'{name}'", "cpu or cuda or cuda:0 or cuda:1"):
            device_of(name)


@pytest.mark.slow
def test_the_commands_on_a_torch_for_cuda(tmp_path):
    """They compute on the CPU; a device that is not there is one sentence, and leaves nothing behind."""
    convert(LEGACY / "word", tmp_path / "word")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BUILT_FOR_CUDA)

    def run(*arguments) -> SimpleNamespace:
        inside = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        return subprocess.run([ROFORMER, *arguments], cwd=tmp_path, env=inside, capture_output=True, text=True)

    for device in ("gpu", "cuda"):
        done = run("embed", "word", "texts.txt", "new/vectors", "--device", device)
        assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1, done.stderr
        assert f"'{device}'" in done.stderr and "cpu" in done.stderr
        assert not (tmp_path / "new").exists()
    done = run("embed", "word", "texts.txt", "vectors")
    assert done.returncode == 0, done.stderr
    assert len(read_vectors(tmp_path / "vectors")[0]) == len(TEXTS)
    done = run("rank", TEXTS[0], "vectors", "--top-k", "1")
    assert done.returncode == 0 and "texts.txt:1" in done.stdout, done.stderr
