"""Choice of the tokens that a device computes at once, and of the precision, tested without a GPU."""

from types import SimpleNamespace

import pytest
import torch

from modeling_roformer.training.runs import device
from modeling_roformer.training.runs.device import default_device_tokens, has_bfloat16, tokens_for_memory

GB = 10**9
BASE, LARGE, MINI = (12, 768), (24, 1024), (4, 256)


@pytest.mark.parametrize(("memory", "size", "tokens"), [
    # What torch reports for a V100, a T4, an RTX 4090, an A100, an H100 and an H200.
    (16.9 * GB, BASE, 8_192), (15.6 * GB, BASE, 8_192), (25.3 * GB, BASE, 16_384), (42.4 * GB, BASE, 32_768),
    (85.0 * GB, BASE, 65_536), (150.1 * GB, BASE, 131_072),
    (85.0 * GB, MINI, 65_536), (85.0 * GB, LARGE, 16_384), (1000, LARGE, 1), (None, LARGE, 16_384),
])  # fmt: skip
def test_tokens_by_memory(memory, size, tokens):
    assert tokens_for_memory(memory and int(memory), *size) == tokens


def test_all_processes_take_what_the_smallest_device_has_room_for(monkeypatch):
    gpu = SimpleNamespace(device=torch.device("cuda", 0))
    monkeypatch.setattr(device, "processes", lambda: gpu)
    properties = SimpleNamespace(total_memory=85 * GB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda of: properties if of == gpu.device else None)
    assert default_device_tokens(*BASE) == 65_536
    monkeypatch.setattr(device, "gather_object", lambda found: [*found, 16_384])
    assert default_device_tokens(*BASE) == 16_384
    gpu.device = torch.device("mps")
    monkeypatch.setattr(device, "gather_object", lambda found: found)
    assert default_device_tokens(*BASE) == 16_384


@pytest.mark.parametrize(
    ("on_cpu", "available", "supported", "expected"),
    [
        (True, True, True, False),
        (False, False, True, False),
        (False, True, False, False),
        (False, True, True, True),
    ],
)
def test_bfloat16_is_that_of_a_gpu(monkeypatch, on_cpu, available, supported, expected):
    monkeypatch.setattr(device, "ON_CPU", on_cpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert has_bfloat16() is expected
