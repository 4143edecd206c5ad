"""Choice of the tokens that a device computes at once, and of the precision, tested without a GPU."""

import runpy
from types import SimpleNamespace

import pytest
import torch

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer.training.runs import device
from modeling_roformer.training.runs.device import default_device_tokens, has_bfloat16, tokens_for_memory

GB = 10**9
BASE, LARGE, MINI = (12, 768), (24, 1024), (4, 256)
WEIGHTS = {BASE: 500_000_000, LARGE: 1_420_000_000, MINI: 65_000_000}  # in bytes, of 50,000 words


@pytest.mark.parametrize(("memory", "size", "tokens"), [
    # What torch reports for a V100, a T4, an RTX 4090, an A100, an H100 and an H200.
    (16.9 * GB, BASE, 8_192), (15.6 * GB, BASE, 8_192), (25.3 * GB, BASE, 16_384), (42.4 * GB, BASE, 32_768),
    (85.0 * GB, BASE, 65_536), (150.1 * GB, BASE, 131_072),
    (85.0 * GB, MINI, 65_536), (85.0 * GB, LARGE, 16_384), (1000, LARGE, 1), (None, LARGE, 16_384),
    # An RTX 4060: four times the weights of a large model leave a third of its memory.
    (8.6 * GB, LARGE, 1_024), (8.6 * GB, BASE, 4_096), (4.0 * GB, LARGE, 1),
])  # fmt: skip
def test_tokens_by_memory(memory, size, tokens):
    assert tokens_for_memory(memory and int(memory), *size, WEIGHTS[size]) == tokens


def model_of(size):
    with torch.device("meta"):
        layers, width = size
        config = RoFormerConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64)
        return RoFormerForMaskedLM(RoFormerConfig(**config.to_dict() | {"intermediate_size": 4 * width}))


@pytest.mark.parametrize("size", WEIGHTS)
def test_weights_of_the_sizes(size):
    """Within a tenth of what the models have."""
    assert sum(x.nbytes for x in model_of(size).parameters()) == pytest.approx(WEIGHTS[size], rel=0.1)


@pytest.fixture
def gpu(monkeypatch):
    """Have this process compute on a device, without one."""
    gpu = SimpleNamespace(device=torch.device("cuda", 0))
    monkeypatch.setattr(device, "processes", lambda: gpu)
    monkeypatch.setattr(device, "gather_object", lambda found: found)
    return gpu


def test_all_processes_take_what_the_smallest_device_has_room_for(gpu, monkeypatch):
    properties = SimpleNamespace(total_memory=85 * GB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda of: properties if of == gpu.device else None)
    assert default_device_tokens(model_of(BASE)) == 65_536
    monkeypatch.setattr(device, "gather_object", lambda found: [*found, 16_384])
    assert default_device_tokens(model_of(BASE)) == 16_384


def test_the_weights_of_the_model_are_subtracted(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda of: SimpleNamespace(total_memory=int(8.6 * GB)))
    assert [default_device_tokens(model_of(size)) for size in (BASE, LARGE)] == [4_096, 1_024]


@pytest.mark.parametrize(("memory", "tokens"), [(5.7, 2_048), (11.5, 8_192), (22.9, 16_384), (103, 16_384)])
def test_an_apple_gpu_takes_no_more_than_a_cpu(memory, tokens, gpu, monkeypatch):
    """Its share of a memory of 8, 16, 32 and 144 GB, which all other programs use too."""
    gpu.device = torch.device("mps")
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: int(memory * GB))
    assert default_device_tokens(model_of(BASE)) == tokens


def test_the_memory_of_an_intel_gpu_is_read(gpu, monkeypatch):
    gpu.device = torch.device("xpu", 1)
    properties = SimpleNamespace(total_memory=25 * GB)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda of: properties if of == gpu.device else None)
    assert default_device_tokens(model_of(BASE)) == 16_384


def test_the_memory_of_other_devices_is_not_read(gpu):
    gpu.device = torch.device("cpu")
    assert default_device_tokens(model_of(LARGE)) == 16_384


@pytest.mark.parametrize(("kind", "ahead"), [("cuda", True), ("mps", False), ("xpu", False), ("cpu", False)])
def test_batches_are_copied_ahead_on_cuda_only(kind, ahead, monkeypatch):
    monkeypatch.setattr("modeling_roformer.output.device.device_of", lambda: torch.device(kind))
    path = device.__spec__.origin
    found = runpy.run_path(path, run_name=device.__name__)
    assert (found["ON_CPU"], found["COPIES_AHEAD"]) == (kind == "cpu", ahead)


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
