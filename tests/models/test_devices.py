"""Every model on devices other than a CPU: no tensor is made on the CPU by mistake.

Tensors on the meta device have no values, so nothing is computed or read there. On the simulated device of
helpers/simulated_device.py a CPU computes the values. It cannot be unregistered, so its tests, device_cases.py, run in
a process of their own.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.paths import REPOSITORY
from helpers.small_models import small_model
from helpers.training_steps import CASES, WITHOUT_MASK, make_step
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import StaticCache

# Values of labels choose a shape with sparse_prediction, so meta tensors cannot have it.
STEPS = [(case, "with padding") for case in CASES if "sparse" not in case]
STEPS += [(case, "no mask") for case in WITHOUT_MASK]


class OnlyMeta(TorchDispatchMode):
    """Refuses tensors of the CPU in operations; numbers, of no dimension, may be computed there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves((args, kwargs, result)):
            if isinstance(x, torch.Tensor) and x.ndim and x.device.type != "meta":
                raise AssertionError(f"{func} has a tensor of shape {tuple(x.shape)} on {x.device}")
        return result


def to_meta(inputs):
    return {name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


@pytest.mark.parametrize("mistake", [lambda x: x + torch.zeros(3), lambda x: torch.arange(3), lambda x: x.cpu()])
def test_a_tensor_on_the_cpu_is_refused(mistake):
    x = torch.zeros(3, device="meta")
    with pytest.raises((AssertionError, NotImplementedError, RuntimeError)), OnlyMeta():
        mistake(x)


@pytest.mark.parametrize(("case", "mask"), STEPS)
def test_a_training_step_on_meta(case, mask):
    model, inputs = make_step(case, mask)
    model, inputs = model.to("meta"), to_meta(inputs)
    optimizer = torch.optim.AdamW(model.parameters())
    with OnlyMeta():
        outputs = model(**inputs)
        loss = outputs[0]
        (loss if loss.ndim == 0 else loss.sum()).backward()
        optimizer.step()
    assert loss.device.type == "meta"
    assert all(p.grad.device.type == "meta" for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("case", CASES)
def test_a_model_that_is_made_on_meta(case):
    """`from_pretrained` makes it there: the same weights as on a CPU, without values."""
    on_cpu, _ = make_step(case)
    with torch.device("meta"):
        model = type(on_cpu)(on_cpu.config)
    expected = {name: x.shape for name, x in on_cpu.state_dict().items()}
    assert {name: x.shape for name, x in model.state_dict().items()} == expected
    assert {x.device.type for x in (*model.parameters(), *model.buffers())} == {"meta"}


@pytest.mark.parametrize("fields", [{}, {"attn_implementation": "eager"}, {"output_hidden_states": True}])
def test_several_texts_in_a_row_on_meta(fields):
    """A mask of four dimensions separates them, and positions begin again."""
    model = small_model("RoFormerForMaskedLM", **fields).to("meta")
    ids, positions = torch.ones(1, 6, dtype=torch.long), torch.tensor([[0, 1, 2, 0, 1, 2]])
    text = torch.tensor([0, 0, 0, 1, 1, 1])
    mask = (text[:, None] == text)[None, None]
    inputs = to_meta({"input_ids": ids, "attention_mask": mask, "position_ids": positions, "labels": ids})
    with OnlyMeta():
        assert model(**inputs).logits.shape == (1, 6, 100)


@pytest.mark.parametrize("kind", ["dynamic", "static", "linear", "prefix_lm"])
def test_caches_on_meta(kind):
    ids = torch.ones(2, 4, dtype=torch.long, device="meta")
    fields = {"linear": {"attention_type": "linear"}, "prefix_lm": {"prefix_lm": True}}.get(kind, {})
    model = small_model("RoFormerForCausalLM", is_decoder=True, **fields).to("meta")
    cache = StaticCache(model.config, max_cache_len=8) if kind == "static" else None
    with OnlyMeta(), torch.no_grad():
        first = model(ids, past_key_values=cache, use_cache=True)
        second = model(ids[:, :1], past_key_values=first.past_key_values)
    assert second.logits.shape == (2, 1, 100)


@pytest.mark.slow
def test_on_a_simulated_device():
    cases = Path(__file__).with_name("device_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(cases)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
