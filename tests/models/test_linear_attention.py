"""Linear attention against equation 19 written out with N x N matrices in float64."""

import math
from itertools import product

import pytest
import torch
from helpers.properties import max_examples
from helpers.small_models import small_model
from hypothesis import example, given
from hypothesis import strategies as st

from modeling_roformer import RoFormerModel

HEAD_DIM = 16
MAPS = {
    "elu": {},
    "softmax": {},
    "cosine": {},
    "favor": {"linear_num_features": 24},
    "favor before": {"linear_num_features": 24, "linear_rotation": "before"},
}
DIRECTIONS = {"bidirectional": {}, "causal": {"is_decoder": True}}


def fields_of(name, **more):
    return {"attention_type": "linear", "linear_feature_map": name.split()[0], **MAPS[name], **more}


def make_model(name, model_class=RoFormerModel, seed=0, **more):
    fields = {
        "vocab_size": 90,
        "num_hidden_layers": 1,
        "intermediate_size": 40,
        "initializer_range": 0.5,
        **fields_of(name),
        **more,
    }
    return small_model(model_class, seed, **fields)


def make_ids(b, s, seed=1):
    return torch.randint(5, 90, (b, s), generator=torch.Generator().manual_seed(seed))


# Equation 19, written out


def rotation(position, width, theta=10000.0):
    """R_m of equation 15, as a matrix."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for i in range(width // 2):
        angle = position * theta ** (-2 * i / width)
        cos, sin = math.cos(angle), math.sin(angle)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[cos, -sin], [sin, cos]])
    return matrix


def rotated(x, positions):
    return torch.stack([rotation(p, x.shape[1]) @ row for p, row in zip(positions, x, strict=True)])


def pair_weights(name, q, k, positions, projection=None, rotary=True):
    """The N x N terms W and Z of both sums for one head and text: q and k of shape (s, d), float64."""

    def turn(x):
        return rotated(x, positions) if rotary else x

    if name == "elu":
        q, k = torch.where(q > 0, q + 1, q.exp()), torch.where(k > 0, k + 1, k.exp())
    elif name == "softmax":
        q, k = q.softmax(-1), k.exp()
    elif name == "cosine":
        q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        weights = 1 + turn(q) @ turn(k).T
        return weights, weights
    else:
        if name == "favor before":
            q, k = turn(q), turn(k)
        d, m = q.shape[1], len(projection)
        q, k = (
            torch.exp(x / d**0.25 @ projection.T - (x**2).sum(-1, keepdim=True) / (2 * d**0.5)) / m**0.5 for x in (q, k)
        )
        if name == "favor before":
            return q @ k.T, q @ k.T
    return turn(q) @ turn(k).T, q @ k.T


def visible_pairs(s, direction, keep=None):
    """Return a matrix that is 1 where a query (row) sees a key (column)."""
    visible = torch.ones(s, s, dtype=torch.bool)
    if direction == "causal":
        visible = visible.tril()
    return visible if keep is None else visible & keep[None, :]


def projected(layer, hidden_states):
    """Query, key and value of shape (b, s, h, d), float64."""
    x = hidden_states.double()
    return (
        (x @ p.weight.double().T + p.bias.double()).unflatten(-1, (-1, HEAD_DIM))
        for p in (layer.query, layer.key, layer.value)
    )


def written_out(model, hidden_states, name, direction, attention_mask=None, rotary=True, value=False):
    """Return the expected output of the first layer's self-attention, shape (b, s, hidden_size), float64."""
    layer = model.base_model.encoder.layer[0].attention.self
    q, k, v = projected(layer, hidden_states)
    projection = layer.feature_map.projection.double() if name.startswith("favor") else None
    b, s, h, _ = q.shape
    out = torch.zeros(b, s, h, HEAD_DIM, dtype=torch.float64)
    for i in range(b):
        keep = None if attention_mask is None else attention_mask[i].bool()
        visible = visible_pairs(s, direction, keep)
        for j in range(h):
            weights, below = pair_weights(name, q[i, :, j], k[i, :, j], range(s), projection, rotary)
            values = rotated(v[i, :, j], range(s)) if value else v[i, :, j]
            out[i, :, j] = (weights * visible) @ values / (below * visible).sum(-1, keepdim=True)
    return out.flatten(-2)


def allowed_error(model, hidden_states, name, direction, attention_mask):
    """Return how far "favor" in float32 may be from `written_out`, for each number of its output.

    An exponent ω·x - |x|²/2 has the rounding of its terms, by which its feature is off as a share. Rotated products of
    features add up to W, which may be small beside Σ|W|, or large beside Z: the error is that of Σ|W||v| / Z. Of so many
    roundings most cancel, hence a quarter of the sum.
    """
    layer = model.base_model.encoder.layer[0].attention.self
    q, k, v = projected(layer, hidden_states)
    projection = layer.feature_map.projection.double()
    bounds = torch.zeros_like(v)
    for i, j in product(range(q.shape[0]), range(q.shape[2])):
        keep = attention_mask[i].bool()
        visible = visible_pairs(q.shape[1], direction, keep)
        terms, exponents = [], []
        for x in (q[i, :, j] / HEAD_DIM**0.25, k[i, :, j] / HEAD_DIM**0.25):
            x = rotated(x, range(len(x))) if name == "favor before" else x
            squares = (x**2).sum(-1, keepdim=True)
            terms.append((x.abs() @ projection.abs().T).amax(-1) + squares.squeeze(-1))
            exponents.append(torch.exp(x @ projection.T - squares / 2))
        features_of_q, features_of_k = exponents
        below = (features_of_q @ features_of_k.T) * visible
        lengths = [x.unflatten(-1, (-1, 2)).norm(dim=-1) for x in exponents]  # of the pairs that are rotated
        weights = (lengths[0] @ lengths[1].T) * visible if name == "favor" else below
        share = torch.finfo(torch.float32).eps / 4 * (terms[0][:, None] + terms[1][None, :])
        values = v[i, :, j].abs()
        of_weights = (weights * share) @ values
        of_below = (below * share).sum(-1, keepdim=True) * (weights @ values) / below.sum(-1, keepdim=True)
        bounds[i, :, j] = (of_weights + of_below) / below.sum(-1, keepdim=True)
        # Weights that vanish beside the product of the largest features are none: the output is 0.
        largest = features_of_q.amax(-1) * (features_of_k.amax(-1) * visible).amax(-1)
        vanish = below.sum(-1) < 4 * torch.finfo(torch.float32).tiny ** 0.5 * largest
        bounds[i, vanish, j] = torch.inf
    return bounds.flatten(-2)


def attention_of(model, **inputs):
    """Input and output of the first layer's self-attention in a call of a model."""
    seen = {}

    def look(module, args, output):
        seen["in"], seen["out"] = args[0], output[0]

    handle = model.base_model.encoder.layer[0].attention.self.register_forward_hook(look)
    with torch.no_grad():
        outputs = model(**inputs)
    handle.remove()
    return seen["in"], seen["out"], outputs


def assert_close(found, expected, tolerance=1e-5):
    scale = max(1.0, expected.abs().max().item())
    assert (found.double() - expected).abs().max().item() <= tolerance * scale


@pytest.mark.parametrize("length", [1, 7, 150])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", MAPS)
def test_equation_19(name, direction, length):
    model = make_model(name, **DIRECTIONS[direction])
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(2, length))
    assert_close(found, written_out(model, hidden_states, name, direction))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", MAPS)
def test_equation_19_without_what_is_masked(name, direction):
    model = make_model(name, **DIRECTIONS[direction])
    mask = torch.randint(0, 2, (3, 140), generator=torch.Generator().manual_seed(2))
    mask[0, :70], mask[1, 70:] = 0, 0  # padding on the left, and on the right
    mask[:, 75] = 1
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(3, 140), attention_mask=mask)
    expected = written_out(model, hidden_states, name, direction, mask)
    alone = expected.isnan()  # before the first token that is attended to there is nothing: 0 / 0
    assert_close(found.masked_fill(alone, 0.0), expected.masked_fill(alone, 0.0))
    assert not found[alone].any()


@pytest.mark.parametrize("direction", ["bidirectional", "causal"])
@pytest.mark.parametrize("name", MAPS)
def test_without_positions_and_with_rotated_values(name, direction):
    rotation = {"position_encoding": "none"} if name != "favor before" else {}
    model = make_model(name, **DIRECTIONS[direction], **rotation)
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(1, 70))
    assert_close(found, written_out(model, hidden_states, name, direction, rotary=not rotation))
    model = make_model(name, rotary_value=True, **DIRECTIONS[direction])
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(1, 70))
    assert_close(found, written_out(model, hidden_states, name, direction, value=True))


@max_examples(60)
@example("favor", "bidirectional", 2, 3, 3582, 1.0)
@example("favor before", "causal", 2, 53, 65479174, 4.0)
@given(
    name=st.sampled_from(list(MAPS)),
    direction=st.sampled_from(list(DIRECTIONS)),
    b=st.integers(1, 3),
    s=st.integers(1, 200),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.01, 1.0, 4.0]),
)
def test_any_lengths_masks_and_sizes_of_keys(name, direction, b, s, seed, scale):
    model = make_model(name, seed=seed % 100, **DIRECTIONS[direction])
    with torch.no_grad():
        model.encoder.layer[0].attention.self.key.weight.mul_(scale)
    mask = (torch.rand(b, s, generator=torch.Generator().manual_seed(seed)) < 0.8).long()
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(b, s, seed), attention_mask=mask)
    expected = written_out(model, hidden_states, name, direction, mask)
    alone = expected.isnan()
    assert found.isfinite().all()
    found, expected = found.masked_fill(alone, 0.0), expected.masked_fill(alone, 0.0)
    # An exponent's rounding grows with it, and each of its features' relative error so.
    tolerance = (5e-4 if scale > 1 else 5e-5) * max(1.0, expected.abs().max().item())
    if name.startswith("favor"):
        allowed = allowed_error(model, hidden_states, name, direction, mask)
        tolerance = tolerance + allowed.masked_fill(alone, 0.0)
    assert ((found.double() - expected).abs() <= tolerance).all()
