"""Every model on a simulated device, as on a GPU: nothing is made on the CPU, and reads of the device are counted.

test_devices.py runs these in a process of their own, where nothing else is.
"""

from itertools import product

import pytest
import torch
from helpers.seq2seq_models import make_ids, padded
from helpers.seq2seq_models import make_model as make_seq2seq
from helpers.simulated_device import NAME, SimulatedDevice
from helpers.small_models import small_model
from helpers.training_steps import CASES, WITHOUT_MASK, loss_and_gradients, make_step, number_of_reads

# Without a mask, the choices are the same for every head.
STEPS = [*((case, "with padding") for case in CASES), *((case, "no mask") for case in WITHOUT_MASK)]


@pytest.fixture
def device():
    with SimulatedDevice() as device:
        yield device


def to_device(inputs):
    return {name: x.to(NAME) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


def on_cpu(x):
    return x.to("cpu") if isinstance(x, torch.Tensor) else x


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        if isinstance(x, torch.Tensor):
            assert found[name].device.type == NAME
            torch.testing.assert_close(on_cpu(found[name]), x, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x + torch.zeros(3),
        lambda x: torch.where(torch.zeros(3) == 0, x, 0),
        lambda x: torch.cat([x, torch.zeros(3)]),
        lambda x: x[torch.arange(2)],
    ],
)
def test_a_tensor_on_the_cpu_is_refused(mistake, device):
    with pytest.raises(RuntimeError, match="on the CPU"):
        mistake(torch.zeros(3, device=NAME))


@pytest.mark.parametrize(("reading", "waits"), [
    (lambda x: x.sum().item(), 1), (lambda x: x.tolist(), 1), (lambda x: bool(x.any()), 1), (lambda x: x[x > 0], 1),
    (lambda x: x.nonzero(), 1), (lambda x: x.cpu(), 1), (lambda x: torch.tensor([1.0]).to(NAME), 1),
    (lambda x: torch.tensor([1.0], device=NAME), 1), (lambda x: x + 1, 0), (lambda x: x * torch.tensor(2.0), 0),
    (lambda x: torch.where(x > 0, x, torch.inf), 0), (lambda x: torch.zeros(3, device=x.device), 0),
])  # fmt: skip
def test_waits_are_counted(reading, waits, device):
    x = torch.ones(3, device=NAME)
    device.waits.clear()
    reading(x)
    assert device.waits.total() == waits


@pytest.fixture
def device_without_float64(monkeypatch):
    monkeypatch.setattr("modeling_roformer.rotary._kept", {})
    for module in ("rotary", "linear_feature_maps", "triplet_matching"):
        monkeypatch.setattr(f"modeling_roformer.{module}.has_float64", lambda device: device.type != NAME)
    with SimulatedDevice(has_float64=False) as device:
        yield device


def test_float64_is_refused_where_a_device_has_none(device_without_float64):
    with pytest.raises(TypeError, match="float64"):
        torch.zeros(3, device=NAME).double()


def assert_same_step(device, case, mask="with padding"):
    """Compare a step with that on a CPU, and return the number of its waits."""
    model, inputs = make_step(case, mask, dropout=0.0)
    expected = loss_and_gradients(model, inputs)
    model.zero_grad()
    model, inputs = model.to(NAME), to_device(inputs)
    model.tie_weights()
    device.waits.clear()
    found = loss_and_gradients(model, inputs)
    waits = device.waits.total()
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    return waits


@pytest.mark.parametrize("case", CASES)
def test_a_training_step_without_float64(case, device_without_float64):
    assert_same_step(device_without_float64, case)


def test_random_features_are_redrawn_without_float64(device_without_float64):
    model, inputs = make_step("RoFormerModel Performer", dropout=0.0)
    model.config.linear_redraw_interval = 1
    model, inputs = model.to(NAME), to_device(inputs)
    first = on_cpu(model.encoder.layer[0].attention.self.feature_map.projection).clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss_and_gradients(model, inputs)
        optimizer.step()
    assert not torch.equal(on_cpu(model.encoder.layer[0].attention.self.feature_map.projection), first)


def test_similar_vectors_are_ranked_without_float64(device_without_float64):
    model = small_model("RoFormerForTripletMatching", triplet_scorer="bi")
    vectors = torch.eye(3)
    values, indices = model.rank(vectors[1], vectors.to(NAME))
    assert (on_cpu(values).tolist(), on_cpu(indices).tolist()) == ([1, 0, 0], [1, 0, 2])


@pytest.mark.parametrize(("case", "mask"), STEPS)
def test_a_training_step(case, mask, device):
    assert assert_same_step(device, case, mask) <= number_of_reads(case, NAME)


@pytest.mark.parametrize("case", ["RoFormerForMaskedLM", "RoFormerModel linear", "RoFormerForTripletMatching bi"])
def test_padding_is_left_out_at_one_more_wait_where_that_is_faster(case, device, monkeypatch):
    """On a device that is sure only with a kernel for packed texts."""
    model, inputs = make_step(case, dropout=0.0)
    inputs |= {"labels": inputs["input_ids"].masked_fill(inputs["input_ids"] == 0, -100)} if "Masked" in case else {}
    model, inputs = model.to(NAME), to_device(inputs)
    model.tie_weights()
    waits, results = {}, {}
    for choice in (False, None, True):
        if choice:  # as with such a kernel
            monkeypatch.setattr("modeling_roformer.call.is_faster_packed", lambda *args: True)
        device.waits.clear()
        model.zero_grad()
        _, gradients = loss_and_gradients(model, inputs, unpad_inputs=choice)
        waits[choice] = device.waits.total()
        results[choice] = {name: on_cpu(x) for name, x in gradients.items()}
    assert waits[None] == waits[False] and waits[True] == waits[False] + 1
    if case != "RoFormerModel linear":  # its sum is over padding too
        for name, x in results[False].items():
            torch.testing.assert_close(results[True][name], x, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("case", ["RoFormerForMaskedLM", "RoFormerForCausalLM", "RoFormerModel Performer"])
def test_several_steps_of_an_optimiser(case, device):
    """Dropout draws from the CPU's generator on both."""
    states = []
    for place in ("cpu", NAME):
        model, inputs = make_step(case)
        if "Performer" in case:
            model.config.linear_redraw_interval = 2  # features are drawn anew
        model, inputs = model.to(place), {name: x.to(place) for name, x in inputs.items()}
        model.tie_weights()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        torch.manual_seed(1)
        for _ in range(4):
            optimizer.zero_grad()
            loss_and_gradients(model, inputs)
            optimizer.step()
        states.append({name: on_cpu(x) for name, x in model.state_dict().items()})
    for name, x in states[0].items():
        torch.testing.assert_close(states[1][name], x, atol=1e-4, rtol=1e-3, msg=name)


@torch.no_grad()
@pytest.mark.parametrize(
    ("fields", "options"),
    [
        *product(({}, {"attention_type": "linear"}, {"prefix_lm": True}), ({}, {"num_beams": 2}, {"use_cache": False})),
        ({}, {"cache_implementation": "static"}),
    ],
)
def test_generation(fields, options, device):
    model = small_model("RoFormerForCausalLM", is_decoder=True, pad_token_id=0, eos_token_id=99, **fields)
    inputs = {"input_ids": torch.tensor([[0, 7, 8], [5, 6, 9]]), "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]])}
    options = {"max_new_tokens": 4, "do_sample": False, **options}
    expected = model.generate(**inputs, **options, disable_compile=True)
    found = model.to(NAME).generate(**to_device(inputs), **options, disable_compile=True)
    assert found.device.type == NAME
    assert found.tolist() == expected.tolist()


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, {"attn_implementation": "eager"}, {"output_hidden_states": True}])
def test_several_texts_in_a_row(fields, device):
    """A mask of four dimensions separates them, and positions begin again."""
    model, text = small_model("RoFormerForMaskedLM", **fields), torch.tensor([0, 0, 0, 1, 1, 1])
    mask = (text[:, None] == text)[None, None]
    inputs = {"input_ids": torch.arange(5, 11)[None], "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2]])}
    expected = model(**inputs, attention_mask=mask)
    model = model.to(NAME)
    model.tie_weights()
    assert_same(
        {"logits": model(**to_device(inputs), attention_mask=mask.to(NAME)).logits}, {"logits": expected.logits}
    )


@torch.no_grad()
def test_generation_of_a_translation(device):
    model = make_seq2seq()
    inputs = padded([make_ids(5), make_ids(3)])
    expected = model.generate(**inputs, max_new_tokens=4, num_beams=2)
    model = model.to(NAME)
    model.tie_weights()
    assert model.generate(**to_device(inputs), max_new_tokens=4, num_beams=2).tolist() == expected.tolist()
