"""Devices without float64, Apple's GPUs and some of Intel's: positions are computed on the CPU.

Tensors without values stand for those on such a device. device_cases.py has whole models.
"""

from types import SimpleNamespace

import pytest
import torch
from helpers.small_models import small_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from modeling_roformer.inputs import has_float64
from modeling_roformer.rotary import (
    SinusoidalPositionEmbeddings,
    rotary_position_embeddings,
    scaled_inverse_frequencies,
)

DEVICES = ["mps", "xpu"]


class NoFloat64(TorchDispatchMode):
    """A block in which no operation returns float64 on the devices."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        for x in tree_leaves(results):
            if isinstance(x, torch.Tensor) and x.dtype == torch.float64 and x.device.type in DEVICES:
                raise TypeError(f"{func}: float64 on {x.device}")
        return results


@pytest.fixture
def arc(monkeypatch):
    """An Arc A, which computes float64 nowhere."""
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: SimpleNamespace(has_fp64=False))


@pytest.mark.parametrize("device", DEVICES)
def test_float64_is_refused(device):
    with FakeTensorMode(), NoFloat64(), pytest.raises(TypeError, match="float64"):
        torch.ones(3, device=device).double()


def test_devices_with_float64(monkeypatch):
    for name in ("cpu", "cuda", "meta"):
        assert has_float64(torch.device(name))
    assert not has_float64(torch.device("mps"))
    for has_fp64 in (False, True):
        properties = {torch.device("xpu", 1): SimpleNamespace(has_fp64=has_fp64)}
        monkeypatch.setattr(torch.xpu, "get_device_properties", properties.get)
        assert has_float64(torch.device("xpu", 1)) == has_fp64


ROPE = {"factor": 2.0, "original_max_position_embeddings": 2}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rope_type", ["default", "linear", "dynamic", "yarn"])
@pytest.mark.parametrize("trained", [False, True])
def test_angles_are_computed_on_the_cpu(trained, rope_type, device, arc):
    rope = {} if rope_type == "default" else {"rope_parameters": {"rope_type": rope_type, **ROPE}}
    config = small_model(trainable_rope=trained, **rope).config
    with FakeTensorMode(), NoFloat64():
        positions, lengths = torch.arange(4, device=device).unsqueeze(0), torch.ones(1, device=device)
        offset = torch.ones(config.rotary_dim // 2, device=device) if trained else None
        frequencies = scaled_inverse_frequencies(config, lengths, positions.device, offset=offset)
        rotation = rotary_position_embeddings(positions, frequencies)
    assert (rotation.device.type, rotation.dtype) == (device, torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_sinusoids_are_computed_on_the_cpu(device, arc):
    with FakeTensorMode(), NoFloat64():
        positions = torch.arange(4, device=device).unsqueeze(0)
        assert SinusoidalPositionEmbeddings(8)(positions).device.type == device
