"""Length extension: the formulas written out, and no sequence changes another's output."""

import math

import pytest
import torch
from cases import EAGER, LINEAR, make_ids
from helpers.messages import refused
from helpers.small_models import small_model
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from modeling_roformer import RoFormerForCausalLM
from modeling_roformer.rotary import attention_factor, scaled_inverse_frequencies

HEAD_DIM = 16
IDS = make_ids(1, 50)
TYPES = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
}


def expected_frequencies(name, length, theta=10000.0):
    """The papers' formulas, in Python's floats."""
    plain = [theta ** (-2 * i / HEAD_DIM) for i in range(HEAD_DIM // 2)]
    if name == "linear":
        return [f / 4.0 for f in plain]
    if name == "dynamic":
        grown = theta * (4.0 * max(length, 16) / 16 - 3.0) ** (HEAD_DIM / (HEAD_DIM - 2))
        return [grown ** (-2 * i / HEAD_DIM) for i in range(HEAD_DIM // 2)]

    def dimension(rotations):  # where a dimension turns so many times within the trained length
        return HEAD_DIM * math.log(16 / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), HEAD_DIM - 1)
    ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(HEAD_DIM // 2)]
    return [f / 4.0 * r + f * (1 - r) for f, r in zip(plain, ramp, strict=True)]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("length", [10, 50])
def test_frequencies_are_the_papers(name, length):
    model = small_model(rope_parameters=TYPES[name])
    found = scaled_inverse_frequencies(model.config, length, torch.device("cpu"))
    expected = torch.tensor(expected_frequencies(name, length), dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)


YARN_OPTIONS = [{}, {"beta_fast": 8.0, "beta_slow": 2.0}, {"truncate": False}, {"attention_factor": 1.3}]
YARN_OPTIONS += [{"mscale": 0.7, "mscale_all_dim": 0.4}, {"mscale": 0.7}]
CHOICES = [("linear", {}), ("dynamic", {}), *(("yarn", options) for options in YARN_OPTIONS)]


@pytest.mark.parametrize(("name", "options"), CHOICES)
@pytest.mark.parametrize("head_dim", [4, 16, 64])
@pytest.mark.parametrize(("theta", "trained", "length"), [(10000.0, 16, 50), (500.0, 512, 100), (1e6, 4096, 65536)])
def test_frequencies_and_factor_are_those_of_transformers(name, options, head_dim, theta, trained, length):
    rope = {
        "rope_type": name,
        "rope_theta": theta,
        "factor": 2.5,
        "original_max_position_embeddings": trained,
        **options,
    }
    given = {field: value for field, value in rope.items() if name != "linear" or not field.startswith("original")}
    model = small_model(rope_parameters=given, hidden_size=2 * head_dim, num_hidden_layers=1)
    theirs = LlamaConfig(
        rope_parameters=rope, hidden_size=2 * head_dim, num_attention_heads=2, max_position_embeddings=trained
    )
    expected, factor = ROPE_INIT_FUNCTIONS[name](theirs, torch.device("cpu"), seq_len=length)
    found = scaled_inverse_frequencies(model.config, length, torch.device("cpu"))
    torch.testing.assert_close(found, expected.double(), rtol=3e-6, atol=0)  # theirs are float32
    assert math.isclose(attention_factor(model.config), factor**2, rel_tol=1e-12)


@pytest.mark.parametrize("name", TYPES)
def test_heads_of_two_dimensions(name):
    """θ_1 = 1 is the highest frequency: dynamic NTK leaves it, and YaRN here, too."""
    model = small_model(rope_parameters=TYPES[name], hidden_size=4)
    [found] = scaled_inverse_frequencies(model.config, 50, torch.device("cpu")).flatten().tolist()
    assert found == {"linear": 0.25, "dynamic": 1.0, "yarn": 1.0}[name]
    assert model(IDS).last_hidden_state.isfinite().all()


FIELDS = [*({"rope_parameters": rope} for rope in TYPES.values()), {"prefix_lm": True}]
FIELDS += [{"rotary_value": True}, {"is_decoder": True}, {"is_decoder": True, "rotary_value": True}]
NOT_LINEAR = [{"rope_parameters": TYPES["yarn"]}, {"prefix_lm": True}]  # which linear attention refuses


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(kind, x) for kind in ({}, EAGER, LINEAR) for x in FIELDS if kind is not LINEAR or x not in NOT_LINEAR],
)
@torch.no_grad()
def test_a_field_set_after_a_call_is_the_same_as_from_the_start(fields, kind):
    """Each call reads the configuration anew."""
    inputs = {"input_ids": IDS, "token_type_ids": (torch.arange(50)[None] > 20).long()}
    changed, expected = (small_model(**kind, use_cache=False, **given) for given in ({}, fields))
    changed(**inputs)
    for name, value in fields.items():
        setattr(changed.config, name, value)
    assert torch.equal(changed(**inputs).last_hidden_state, expected(**inputs).last_hidden_state)


@torch.no_grad()
def test_dynamic_takes_the_length_from_positions_that_are_given():
    """The last position and one, as in transformers, for each text, without padding: the base grows by it."""
    model, ids = small_model(rope_parameters=TYPES["dynamic"]), make_ids(2, 12)
    positions = torch.stack([torch.linspace(0, 3099, 12).long(), torch.arange(12) * 3])
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    found = model(ids, position_ids=positions, attention_mask=mask).last_hidden_state
    for i, length in ((0, 3100), (1, 25)):
        grown = 10000.0 * (4.0 * length / 16 - 3.0) ** (HEAD_DIM / (HEAD_DIM - 2))
        plain = small_model(rope_parameters={"rope_type": "default", "rope_theta": grown})
        inputs = {"position_ids": positions[i : i + 1], "attention_mask": mask[i : i + 1]}
        torch.testing.assert_close(found[i], plain(ids[i : i + 1], **inputs).last_hidden_state[0], atol=1e-5, rtol=0)
    shared = model(ids, position_ids=positions[:1]).last_hidden_state
    torch.testing.assert_close(shared[0], found[0], atol=1e-5, rtol=0)


def test_dynamic_generates_with_positions_that_are_given():
    model = small_model(RoFormerForCausalLM, is_decoder=True, rope_parameters=TYPES["dynamic"])
    ids, positions = make_ids(1, 6), torch.tensor([[0, 5, 20, 90, 91, 92]])
    settings = dict(max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
    found = model.generate(ids, position_ids=positions, **settings)
    assert found.tolist() != model.generate(ids, **settings).tolist()
    for _ in range(4):
        with torch.no_grad():
            word = model(ids, position_ids=positions).logits[:, -1:].argmax(-1)
        ids, positions = torch.cat([ids, word], 1), torch.cat([positions, positions[:, -1:] + 1], 1)
    assert found.tolist() == ids.tolist()


def test_dynamic_refuses_a_cache():
    """Each new word rotates all keys again."""
    model = small_model(RoFormerForCausalLM, rope_parameters=TYPES["dynamic"], is_decoder=True)
    with refused(ValueError, '"dynamic"', "past_key_values", "use_cache=False"):
        model.generate(IDS, max_new_tokens=2, use_cache=True)
