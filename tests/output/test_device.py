"""The device of a command, with a torch that was built for CUDA on a machine without a GPU, as pip installs it."""

import pytest
import torch
from helpers.messages import refused

from modeling_roformer.output.device import device_of


# A torch for CUDA without a GPU: CUDA is the accelerator that it was built for; the driver says what is available.
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
