"""Linear attention against equation 19 written out with N x N matrices in float64, and as its users call it."""

import functools
import math
import subprocess
import sys

import pytest
import torch
from cases import FEATURE_MAPS, LINEAR_MAPS, make_ids
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from helpers.small_models import small_config, small_model
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForMaskedLM, DynamicCache, StaticCache
from transformers.utils import logging

from modeling_roformer import RoFormerForCausalLM, RoFormerForMaskedLM, RoFormerModel
from modeling_roformer.linear_attention import LinearAttentionCache

HEAD_DIM = 16
DIRECTIONS = {"bidirectional": {}, "causal": {"is_decoder": True}}


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()


def fields_of(name, **more):
    return {**LINEAR_MAPS[f"linear {name}"], **more}


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


# Equation 19, written out


@functools.cache
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
        # Where more than the differences of positions matters, they are counted from the first token after padding.
        start = int(keep.int().argmax()) if keep is not None and (value or name == "favor before") else 0
        positions = [max(m - start, 0) for m in range(s)]
        for j in range(h):
            weights, below = pair_weights(name, q[i, :, j], k[i, :, j], positions, projection, rotary)
            values = rotated(v[i, :, j], positions) if value else v[i, :, j]
            out[i, :, j] = (weights * visible) @ values / (below * visible).sum(-1, keepdim=True)
    return out.flatten(-2)


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


@pytest.mark.parametrize("direction", ["bidirectional", "causal"])
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_without_positions_and_with_rotated_values(name, direction):
    rotation = {"position_encoding": "none"} if name != "favor before" else {}
    model = make_model(name, **DIRECTIONS[direction], **rotation)
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(1, 70))
    assert_close(found, written_out(model, hidden_states, name, direction, rotary=not rotation))
    model = make_model(name, rotary_value=True, **DIRECTIONS[direction])
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(1, 70))
    assert_close(found, written_out(model, hidden_states, name, direction, value=True))


@max_examples(60)
@example("favor before", "causal", 2, 53, 65479174, 4.0)
@given(
    name=st.sampled_from(list(FEATURE_MAPS)),
    direction=st.sampled_from(list(DIRECTIONS)),
    b=st.integers(1, 3),
    s=st.integers(1, 200),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.01, 1.0, 4.0]),
)
def test_any_lengths_masks_and_sizes_of_keys(name, direction, b, s, seed, scale):
    """In float64: in float32, exponents of large keys are rounded by more than a mistake would show."""
    model = make_model(name, seed=seed % 100, **DIRECTIONS[direction]).double()
    with torch.no_grad():
        model.encoder.layer[0].attention.self.key.weight.mul_(scale)
    mask = (torch.rand(b, s, generator=torch.Generator().manual_seed(seed)) < 0.8).long()
    hidden_states, found, _ = attention_of(model, input_ids=make_ids(b, s, seed=seed), attention_mask=mask)
    expected = written_out(model, hidden_states, name, direction, mask)
    alone = expected.isnan()  # before the first token that is attended to there is nothing: 0 / 0
    assert not found[alone].any()
    assert_close(found.masked_fill(alone, 0.0), expected.masked_fill(alone, 0.0))


# Models


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", [name for name in FEATURE_MAPS if name != "favor before"])
def test_only_differences_of_positions_matter(name, direction):
    model = make_model(name, **DIRECTIONS[direction], initializer_range=0.2)
    ids, positions = make_ids(2, 70), torch.arange(70)[None]
    with torch.no_grad():
        expected, shifted, stretched = (
            model(ids, position_ids=p).last_hidden_state for p in (positions, positions + 100_000, positions * 2)
        )
    torch.testing.assert_close(shifted, expected, atol=2e-5, rtol=0)
    assert (stretched - expected).abs().max() > 1e-3


def test_rotated_before_the_map_they_do_in_the_mean():
    """Random features have directions of their own, which a rotation turns vectors away from."""
    errors = []
    for m in (16, 4096):
        model = make_model("favor before", linear_num_features=m, initializer_range=0.1)
        ids, positions = make_ids(2, 70), torch.arange(70)[None]
        with torch.no_grad():
            outputs = [attention_of(model, input_ids=ids, position_ids=p)[1] for p in (positions, positions + 1000)]
        errors.append((outputs[1] - outputs[0]).norm() / outputs[0].norm())
    assert errors[1] < errors[0] / 8


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_matrices_are_made_on_request(name, direction):
    """And give the same answer; their rows add up to 1 where the denominator has the same weights."""
    model = make_model(name, num_hidden_layers=2, **DIRECTIONS[direction]).double()
    ids, mask = make_ids(2, 75), torch.ones(2, 75, dtype=torch.long)
    mask[1, 50:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    with torch.no_grad():
        expected, found = model(**inputs), model(**inputs, output_attentions=True)
    torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state, atol=1e-9, rtol=0)
    assert [matrix.shape for matrix in found.attentions] == [(2, 2, 75, 75)] * 2
    for matrix in found.attentions:
        assert not matrix[1, :, :, 50:].any()
        if direction == "causal":
            assert not matrix.triu(1).any()
        if name in ("cosine", "favor before"):
            torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 2, 75, dtype=torch.float64))
            assert (matrix >= 0).all()


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("name", ["elu", "favor"])
def test_gradients_reach_the_weights_of_pairs(name, is_decoder):
    """The output is computed from them, as in softmax attention."""
    model = make_model(name, is_decoder=is_decoder, use_cache=False)
    outputs = model(make_ids(1, 6), output_attentions=True)
    gradients = torch.autograd.grad(outputs.last_hidden_state.square().sum(), outputs.attentions)
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_weights_of_cached_tokens_are_refused():
    decoder = make_model("elu", is_decoder=True)
    cache = decoder(make_ids(1, 3), use_cache=True).past_key_values
    with refused(ValueError, "output_attentions=True", "use_cache=False"):
        decoder(make_ids(1, 1), past_key_values=cache, output_attentions=True)


@pytest.mark.parametrize("name", ["elu", "favor", "favor before"])
def test_scaled_positions_are_nearer(name):
    plain, scaled = (make_model(name, rope_parameters=p) for p in (None, {"rope_type": "linear", "factor": 4.0}))
    scaled.load_state_dict(plain.state_dict())
    ids, positions = make_ids(1, 40), torch.arange(40)[None] * 5
    with torch.no_grad():
        expected = plain(ids, position_ids=positions).last_hidden_state
        found = scaled(ids, position_ids=4 * positions).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.fixture
def warnings_of_loading(caplog):
    """Warnings of loading, as a function: a class and arguments in, text out."""

    def warnings(model_class, folder, **kwargs) -> str:
        logging.get_logger("modeling_roformer.loading").warning_once.cache_clear()
        caplog.clear()
        model_class.from_pretrained(folder, **kwargs)
        return caplog.text

    return warnings


def test_another_attention_than_the_trained_one_is_said(tmp_path, warnings_of_loading):
    softmax = RoFormerForMaskedLM(small_config(num_hidden_layers=1))
    softmax.save_pretrained(tmp_path / "softmax")
    linear = AutoModelForMaskedLM.from_pretrained(tmp_path / "softmax", attention_type="linear")
    linear.save_pretrained(tmp_path / "linear")
    for name, weight in softmax.state_dict().items():
        assert torch.equal(weight, linear.state_dict()[name])

    said = warnings_of_loading(AutoModelForMaskedLM, tmp_path / "softmax", attention_type="linear")
    assert_states(said, tmp_path / "softmax", "linear (linear_feature_map='elu')", "examples/pretrain_mlm.py")
    assert said.index("softmax attention") < said.index("linear (")  # trained with, loaded with
    config = AutoConfig.from_pretrained(tmp_path / "softmax", attention_type="linear", linear_feature_map="cosine")
    assert "'cosine'" in warnings_of_loading(RoFormerForMaskedLM, tmp_path / "softmax", config=config)
    said = warnings_of_loading(RoFormerForMaskedLM, tmp_path / "linear", attention_type="softmax")
    assert said.index("linear (linear_feature_map='elu')") < said.index("softmax attention")
    for name, fields in (("softmax", {}), ("linear", {}), ("linear", {"attention_type": "linear"})):
        for model_class in (AutoModelForMaskedLM, RoFormerForMaskedLM):
            assert not warnings_of_loading(model_class, tmp_path / name, **fields)


@pytest.mark.slow
def test_plain_transformers_refuses_it(tmp_path):
    make_model("elu", RoFormerForMaskedLM).save_pretrained(tmp_path)
    program = f"from transformers import AutoModel; AutoModel.from_pretrained({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode and "roformer_x" in done.stderr


def test_sums_are_not_rounded_under_autocast():
    """Autocast rounds queries, keys and values, as bfloat16 weights do, and nothing after them."""
    model = make_model("elu", hidden_size=16, num_attention_heads=1, position_encoding="none")
    with torch.autocast("cpu", torch.bfloat16):
        hidden_states, found, _ = attention_of(model, input_ids=make_ids(1, 3000))
    with torch.no_grad():
        expected, _ = model.bfloat16().encoder.layer[0].attention.self(hidden_states.bfloat16())
    assert torch.equal(found, expected)


@pytest.mark.slow
def test_a_compiled_model_is_trained():
    model = make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=1, hidden_dropout_prob=0.0).train()
    ids = make_ids(2, 70)
    torch.compile(model, fullgraph=True, backend="aot_eager")(ids, labels=ids).loss.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    for found, expected in zip(gradients, (p.grad for p in model.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


# Generation: a state of constant size in place of keys and values


def make_decoder(name, **more):
    model = make_model(name, RoFormerForCausalLM, num_hidden_layers=2, is_decoder=True, **more)
    model.generation_config.pad_token_id = 0
    return model


def test_a_cache_is_continued_after_a_call_that_returned_matrices():
    model, ids = make_decoder("softmax").double(), make_ids(1, 80)
    with torch.no_grad():
        cache = model(ids[:, :70], use_cache=True, output_attentions=True).past_key_values
        found = model(ids[:, 70:], past_key_values=cache).logits
        torch.testing.assert_close(found, model(ids).logits[:, 70:], atol=1e-9, rtol=0)


def size_of(cache):
    return [x.shape for layer in cache.layers for x in layer.sums if x is not None]


def test_the_state_has_a_constant_size():
    model = make_decoder("softmax")
    with torch.no_grad():
        short, long = (model(make_ids(2, s), use_cache=True).past_key_values for s in (1, 300))
    assert size_of(short) == size_of(long) == [(2, 2, 16, 16), (2, 2, 16), (2, 2)] * 2
    assert isinstance(long, LinearAttentionCache) and long.get_seq_length() == 300


@torch.no_grad()
@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda cache: cache.reorder_cache(torch.tensor([2, 0, 0])), [2, 0, 0]),
        (lambda cache: cache.batch_select_indices(torch.tensor([1])), [1]),
        (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
    ],
)
def test_texts_of_a_cache_are_selected_and_repeated(change, rows):
    model, ids = make_decoder("favor").double(), make_ids(3, 20)
    cache = model(ids, use_cache=True).past_key_values
    change(cache)
    found = model(ids[rows, :1], past_key_values=cache).logits[:, -1]
    expected = model(torch.cat([ids, ids[:, :1]], dim=1)).logits[rows, -1]
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    cache.reset()
    assert cache.get_seq_length() == 0
    expected = model(ids[rows]).logits
    torch.testing.assert_close(model(ids[rows], past_key_values=cache).logits, expected, atol=1e-9, rtol=0)


def test_a_key_larger_than_all_before_it():
    """The state is scaled down, and what was said before it does not change."""
    model = make_decoder("softmax")
    with torch.no_grad():
        embeddings = model.get_input_embeddings()(make_ids(1, 90))
        key = model.roformer.encoder.layer[0].attention.self.key
        key.weight.mul_(200)  # exponents of up to some hundreds
        together = model(inputs_embeds=embeddings, use_cache=False).logits
        cache, logits = None, []
        for i in range(90):
            outputs = model(inputs_embeds=embeddings[:, i : i + 1], past_key_values=cache, use_cache=True)
            cache = outputs.past_key_values
            logits.append(outputs.logits)
    assert together.isfinite().all()
    torch.testing.assert_close(torch.cat(logits, 1), together, atol=5e-3, rtol=1e-3)


def test_operations_that_need_a_cropped_cache_are_refused():
    model, ids = make_decoder("elu"), make_ids(1, 6)
    cache = model(ids, use_cache=True).past_key_values
    with refused(ValueError, "cache", "prompt_lookup_num_tokens"):
        cache.crop(-1)
    assert not cache.is_croppable
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, prompt_lookup_num_tokens=2, max_new_tokens=3)
    with refused(ValueError, "StaticCache", 'attention_type="linear"'):
        model.generate(ids, cache_implementation="static", max_new_tokens=3)
    assert model.generate(ids, cache_implementation="dynamic", max_new_tokens=3).shape == (1, 9)


def test_caches_of_the_other_attention_are_refused():
    linear, ids = make_decoder("elu"), make_ids(1, 6)
    softmax = RoFormerForCausalLM(small_config(num_hidden_layers=1, is_decoder=True)).eval()
    for cache in (DynamicCache(), StaticCache(config=softmax.config, max_cache_len=8)):
        facts = "past_key_values", type(cache).__name__, 'attention_type="linear"', "LinearAttentionCache"
        with refused(ValueError, *facts):
            linear(ids, past_key_values=cache)


# Bad input


def test_a_call_refuses_the_mask_of_prefixes_that_was_set_afterwards():
    model = make_model("elu", is_decoder=True)
    model.config.prefix_lm = True
    with refused(ValueError, "prefix_lm=True", 'attention_type="linear"'):
        model(make_ids(1, 5))


def test_yarn_without_its_factor_on_scores():
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.0}
    model = make_model("elu", rope_parameters=rope)
    assert model(make_ids(1, 5)).last_hidden_state.isfinite().all()
    with refused(ValueError, "yarn", "attention_factor", "1.0"):  # nor is it set in silence
        model.config.rope_parameters = {**rope, "attention_factor": None}
    assert model.config.rope_parameters["attention_factor"] == 1.0


def test_masks_of_pairs_are_refused():
    model = make_model("elu")
    with refused(ValueError, 'attention_type="linear"', "attention_mask", "(batch, length)"):
        model(make_ids(2, 5), attention_mask=torch.ones(2, 1, 5, 5))
