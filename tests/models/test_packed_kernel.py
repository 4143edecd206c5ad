"""torch's kernel for packed texts: where it takes the place of SDPA, what it is passed, and that results are the same.

A stand-in computes what the kernel is defined to. tests/gpu has the kernel itself.
"""

import inspect
import sys
from functools import partial, wraps

import pytest
import torch
from cases import ENCODERS, NO_DROPOUT
from helpers.flattened import ENDS, LENGTHS, TEXTS, flatten
from helpers.packed_kernel import pack_any_padding, use_packed_kernel
from helpers.small_models import small_model
from helpers.waits import host_reads
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from modeling_roformer.unpadding import attend_packed, is_faster_packed, packed_dtype, packed_kernel

HALF = torch.bfloat16
LONGEST = 2**20  # stands for the length of the longest text
DECODER = {"is_decoder": True, "use_cache": False}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4, "attention_factor": 1.5}
VARIANTS = {
    "encoder": {},
    "decoder": DECODER,
    "yarn": {"rope_parameters": YARN},
    "yarn decoder": {"rope_parameters": YARN, **DECODER},
    **{name: ENCODERS[name] for name in ("rotary values", "dynamic", "learned", "no positions")},
}
MASK = torch.tensor([[1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1]])
IDS = torch.randint(5, 90, MASK.shape, generator=torch.Generator().manual_seed(1))
BATCHES = {
    "padded": {"input_ids": IDS, "attention_mask": MASK},
    "in a row": flatten(),
    "with ends": flatten(names=ENDS),
}


def make_model(head="RoFormerModel", **fields):
    """Return a model whose outputs bfloat16 changes by a few per cent."""
    return small_model(head, **{"initializer_range": 0.1, **fields})


def assert_near(found, expected, share=0.03):
    """Compare norms: bfloat16 rounds each number by up to 0.4 %."""
    assert (found.float() - expected.float()).norm() <= share * expected.float().norm()


def outputs_and_gradients(model, batch, **options):
    """Return the outputs at tokens, and the gradients of their weighted sum by name."""
    mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])) != 0
    model.zero_grad()
    outputs = model(**batch, **options).last_hidden_state[mask]
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(2))
    (outputs.float() * weights).sum().backward()
    return outputs.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("signature", ["older", "newer"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_gradients_are_those_of_float32(variant, batch, signature, monkeypatch):
    model, batch = make_model(**VARIANTS[variant]), BATCHES[batch]
    expected, expected_gradients = outputs_and_gradients(model, batch)
    calls = use_packed_kernel(monkeypatch, signature)
    found, gradients = outputs_and_gradients(model.bfloat16(), batch)
    assert len(calls) == 2 and model.config._attn_implementation == "sdpa"
    assert_near(found, expected)
    assert gradients.keys() == expected_gradients.keys()
    for name, x in expected_gradients.items():
        if "key.bias" not in name:  # a sum that cancels
            assert_near(gradients[name], x, share=0.1)


@torch.no_grad()
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("signature", "variant", "options"),
    [
        ("older", "encoder", {"is_causal": False}),
        ("older", "decoder", {"is_causal": True}),
        ("newer", "encoder", {"scale": 0.25, "window_size": (LONGEST, LONGEST)}),
        ("newer", "decoder", {"scale": 0.25, "window_size": (LONGEST, 0)}),
        ("older", "yarn", {"is_causal": False}),
        ("newer", "yarn", {"scale": 0.25 * 1.5**2, "window_size": (LONGEST, LONGEST)}),
        ("newer", "yarn decoder", {"scale": 0.25 * 1.5**2, "window_size": (LONGEST, 0)}),
    ],
)
def test_each_layer_calls_the_kernel_once(signature, variant, options, batch, monkeypatch):
    """The window excludes no pair, but keeps torch from calling cuDNN."""
    calls = use_packed_kernel(monkeypatch, signature)
    make_model(**VARIANTS[variant]).to(HALF)(**BATCHES[batch])
    longest = 6 if batch == "padded" else max(LENGTHS)
    windows = {"window_size": tuple(size and longest for size in options.get("window_size", ()))}
    assert calls == [options | (windows if signature == "newer" else {})] * 2


@torch.no_grad()
@pytest.mark.parametrize("signature", ["older", "newer"])
@pytest.mark.parametrize("way", ["padded", "in a row"])
def test_a_later_token_does_not_change_earlier_logits_of_a_decoder(way, signature, monkeypatch):
    calls = use_packed_kernel(monkeypatch, signature)
    model = make_model("RoFormerForCausalLM", **DECODER).to(HALF)
    batch, place = (BATCHES["padded"], (1, 4)) if way == "padded" else (flatten(), (0, 7))  # of the second text
    ids = batch["input_ids"].clone()
    ids[place] += 1
    one, other = (model(**{**batch, "input_ids": x}).logits for x in (batch["input_ids"], ids))
    changed = (one != other).any(dim=-1).nonzero().tolist()
    row, column = place
    assert changed == [[row, i] for i in range(column, 6 if way == "padded" else LENGTHS[0] + LENGTHS[1])]
    assert len(calls) == 4


@torch.no_grad()
@pytest.mark.parametrize("signature", ["older", "newer"])
def test_every_token_of_a_text_sees_a_change_in_an_encoder_and_no_other_text_does(signature, monkeypatch):
    use_packed_kernel(monkeypatch, signature)
    model, batch = make_model().to(HALF), flatten()
    ids = batch["input_ids"].clone()
    ids[0, 7] += 1
    one, other = (model(**{**batch, "input_ids": x}).last_hidden_state[0] for x in (batch["input_ids"], ids))
    assert (one != other).any(dim=-1).nonzero().flatten().tolist() == list(range(3, 10))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("batch", BATCHES)
def test_under_autocast_the_dtype_is_that_of_autocast(batch, checkpointing, monkeypatch):
    """Gradient checkpointing computes the layers again by the same kernel."""
    model, batch = make_model(**NO_DROPOUT).train(), BATCHES[batch]
    expected, expected_gradients = outputs_and_gradients(model, batch)
    calls = use_packed_kernel(monkeypatch)
    if checkpointing:
        model.gradient_checkpointing_enable()
    with torch.autocast("cpu", HALF):
        found, gradients = outputs_and_gradients(model, batch)
    assert len(calls) == (4 if checkpointing else 2)
    assert_near(found, expected)
    for name, x in expected_gradients.items():
        if "key.bias" not in name:
            assert_near(gradients[name], x, share=0.1)


@torch.no_grad()
def test_projections_in_float32_are_cast_as_sdpa_casts_them(monkeypatch):
    model = make_model()
    expected = model(**flatten()).last_hidden_state
    calls = use_packed_kernel(monkeypatch)
    for layer in model.encoder.layer:
        layer.attention.self.query.register_forward_hook(lambda module, args, output: output.float())
    with torch.autocast("cpu", HALF):
        found = model(**flatten()).last_hidden_state
    assert len(calls) == 2
    assert_near(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("batch", BATCHES)
def test_autocast_leaves_float64_to_sdpa(batch, monkeypatch):
    model = make_model().double()
    pack_any_padding(monkeypatch)
    expected = model(**BATCHES[batch]).last_hidden_state
    calls = use_packed_kernel(monkeypatch)
    with torch.autocast("cpu", HALF):
        torch.testing.assert_close(model(**BATCHES[batch]).last_hidden_state, expected)
    assert not calls


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("dropout", "training", "number"),
    [
        ({"attention_probs_dropout_prob": 0.5}, True, 0),
        ({"attention_probs_dropout_prob": 0.5}, False, 2),
        ({"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.0}, True, 2),
    ],
)
def test_attention_that_is_dropped_out_is_left_to_sdpa(dropout, training, number, batch, monkeypatch):
    calls = use_packed_kernel(monkeypatch)
    model = make_model(**dropout).to(HALF).train(training)
    one, other = model(**BATCHES[batch])[0], model(**BATCHES[batch])[0]
    assert len(calls) == 2 * number
    assert torch.equal(one, other) == (not training)


@torch.no_grad()
@pytest.mark.parametrize(
    "fields",
    [
        {"attn_implementation": "eager"},
        {"attention_type": "linear"},
        {"hidden_size": 24},
        {"hidden_size": 528},
        {**DECODER, "prefix_lm": True},
        {"model_class": "NezhaModel"},
    ],
    ids=["eager", "linear", "heads of 12", "heads of 264", "UniLM", "NEZHA"],
)
@pytest.mark.parametrize("batch", BATCHES)
def test_other_attention_is_computed_as_without_the_kernel(fields, batch, monkeypatch):
    model = small_model(**fields).to(HALF)
    pack_any_padding(monkeypatch)
    expected = model(**BATCHES[batch]).last_hidden_state
    calls = use_packed_kernel(monkeypatch)
    assert torch.equal(model(**BATCHES[batch]).last_hidden_state, expected)
    assert not calls


@torch.no_grad()
@pytest.mark.parametrize("argument", [{"is_causal": False}, {"position_bias": torch.zeros(1, dtype=HALF)}])
def test_arguments_of_sdpa_are_left_to_it(argument, monkeypatch):
    model, batch = make_model(**DECODER).to(HALF), flatten([TEXTS[1], TEXTS[3]])
    expected = model(**batch, **argument).last_hidden_state
    calls = use_packed_kernel(monkeypatch)
    assert torch.equal(model(**batch, **argument).last_hidden_state, expected)
    assert not calls


def test_cross_attention_takes_padded_queries(monkeypatch):
    model = make_model(is_decoder=True, add_cross_attention=True)
    batch = BATCHES["padded"] | {
        "encoder_hidden_states": torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(4))
    }
    expected, _ = outputs_and_gradients(model, batch, use_cache=False)
    calls = use_packed_kernel(monkeypatch)
    batch["encoder_hidden_states"] = batch["encoder_hidden_states"].to(HALF)
    found, _ = outputs_and_gradients(model.to(HALF), batch, use_cache=False)
    assert len(calls) == 2
    assert_near(found, expected)


def test_transforms_and_compiled_layers_have_sdpa(monkeypatch):
    calls = use_packed_kernel(monkeypatch)
    model = make_model(**NO_DROPOUT).to(HALF)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (), BATCHES["padded"]).last_hidden_state.float().sum()

    torch.func.grad(loss)(parameters)
    model.encoder.layer[0].compile(backend="eager")
    model(**BATCHES["padded"])
    model(**flatten())
    assert not calls
    torch.compiler.reset()


@torch.no_grad()
def test_lengths_that_are_given_are_not_read(monkeypatch):
    use_packed_kernel(monkeypatch)
    model, own = make_model().to(HALF), 2 * 3  # of the stand-in, per layer
    reads = {way: host_reads(partial(model, **batch)).total() for way, batch in BATCHES.items()}
    assert reads == {"padded": 2 + own, "in a row": 2 + own, "with ends": 1 + own}


# Where there is the kernel, on tensors that are said to be on a GPU.


def on_gpu(dtype=HALF, tokens=200):
    """Return hidden states and a mask without values."""
    with FakeTensorMode():
        return torch.ones(2, tokens, 32, dtype=dtype, device="cuda"), torch.ones(2, tokens, device="cuda")


@pytest.fixture
def kernel_of_torch(monkeypatch):
    """An H100 as `packed_kernel` sees it; patches of a test go before its calls."""
    packed_kernel.cache_clear()
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    yield monkeypatch
    packed_kernel.cache_clear()


GPU = torch.device("cuda:0")


def test_torch_has_the_kernel(kernel_of_torch):
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="torch 2.9 has no kernel for packed texts")
    assert packed_kernel(GPU) is varlen.varlen_attn


@pytest.mark.parametrize("is_causal", [False, True])
def test_torchs_kernel_takes_the_arguments(is_causal, monkeypatch):
    """On tensors without values, of which it computes the shapes. Without a window, torch 2.14 would call cuDNN."""
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="torch 2.9 has no kernel for packed texts")
    windows = []

    @wraps(varlen.varlen_attn)
    def kernel(*args, **kwargs):
        windows.append(kwargs.get("window_size"))
        return varlen.varlen_attn(*args, **kwargs)

    monkeypatch.setattr("modeling_roformer.unpadding.packed_kernel", lambda device: kernel)
    query, key, value = (torch.ones(22, 2, 16, dtype=HALF, device="meta", requires_grad=True) for _ in range(3))
    ends = torch.ones(6, dtype=torch.int32, device="meta")
    found = attend_packed(query, key, value, ends, 7, 0.5, is_causal)
    assert (found.shape, found.dtype) == (query.shape, HALF)
    has_window = "window_size" in inspect.signature(varlen.varlen_attn).parameters
    assert windows == [(7, 0 if is_causal else 7) if has_window else None]
    found.sum().backward()
    assert query.grad.shape == key.grad.shape == value.grad.shape == query.shape


@pytest.mark.parametrize("device", ["cpu", "meta", "mps", "xpu"])
def test_other_devices_have_no_kernel(device, kernel_of_torch):
    assert packed_kernel(torch.device(device)) is None


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (torch.cuda, "get_device_capability", lambda device: (7, 5)),
        (torch.version, "hip", "6.4"),
        (torch.backends.cuda, "is_flash_attention_available", lambda: False),
    ],
    ids=["Turing", "ROCm", "built without flash attention"],
)
def test_other_gpus_and_builds_have_no_kernel(owner, name, value, kernel_of_torch):
    kernel_of_torch.setattr(owner, name, value)
    assert packed_kernel(GPU) is None


def test_older_versions_of_torch_have_no_kernel(kernel_of_torch):
    kernel_of_torch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    assert packed_kernel(GPU) is None


@pytest.mark.parametrize(
    ("fields", "dtype", "dropout", "found"),
    [
        *(
            ({"_attn_implementation": name}, HALF, 0.0, None)
            for name in ("eager", "flex_attention", "flash_attention_2")
        ),
        ({}, HALF, 0.0, HALF),
        ({}, torch.float16, 0.0, torch.float16),
        ({}, torch.float32, 0.0, None),
        ({}, HALF, 0.1, None),
        ({"hidden_size": 24}, HALF, 0.0, None),
        ({"hidden_size": 512}, HALF, 0.0, HALF),
        ({"hidden_size": 528}, HALF, 0.0, None),
        ({"attention_type": "linear"}, HALF, 0.0, None),
    ],
)
def test_the_kernel_takes_half_precision_without_dropout_in_place_of_sdpa(fields, dtype, dropout, found, monkeypatch):
    use_packed_kernel(monkeypatch)
    config, (hidden_states, _) = small_model().config, on_gpu(dtype)
    for name, value in fields.items():
        setattr(config, name, value)
    assert packed_dtype(config, hidden_states, dropout) is found


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1)])
@pytest.mark.parametrize("width", [192, 200, 224, 232])
@pytest.mark.parametrize("needs_gradients", [False, True])
def test_gradients_of_wide_heads_are_left_to_sdpa_where_it_does_not_take_flash_attention(
    capability, width, needs_gradients, kernel_of_torch
):
    """The condition is torch's own: compute capability 8.6 to 8.9 and 12, heads of 193 to 224."""
    kernel_of_torch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    config, (hidden_states, _) = small_model(hidden_size=2 * width).config, on_gpu()
    lacks = capability in [(8, 6), (8, 7), (8, 9), (12, 0), (12, 1)] and width in (200, 224)
    with torch.set_grad_enabled(needs_gradients):
        assert packed_dtype(config, hidden_states, 0.0) is (None if lacks and needs_gradients else HALF)


@pytest.mark.parametrize(("dtype", "found"), [(HALF, HALF), (torch.float16, torch.float16)])
def test_autocast_decides_the_dtype(dtype, found, monkeypatch):
    use_packed_kernel(monkeypatch)
    config, (hidden_states, _) = small_model().config, on_gpu(torch.float32)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", {"cuda": dtype}.get)
    assert packed_dtype(config, hidden_states, 0.0) is found


def test_kernels_of_sdpa_that_are_chosen_by_hand_are_kept(monkeypatch):
    use_packed_kernel(monkeypatch)
    config, (hidden_states, _) = small_model().config, on_gpu()
    with sdpa_kernel(SDPBackend.MATH):
        assert packed_dtype(config, hidden_states, 0.0) is None
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        assert packed_dtype(config, hidden_states, 0.0) is HALF


def test_on_a_gpu_the_kernel_pays_from_a_tenth_of_padding(monkeypatch):
    config, (hidden_states, mask) = small_model().config, on_gpu()
    monkeypatch.setattr("modeling_roformer.unpadding.packed_kernel", lambda device: None)
    assert not is_faster_packed(config, mask, 399, hidden_states, 0.0)
    use_packed_kernel(monkeypatch)
    assert [is_faster_packed(config, mask, n, hidden_states, 0.0) for n in (39, 40)] == [False, True]
    assert not is_faster_packed(config, mask, 399, hidden_states, 0.1)
    assert not is_faster_packed(config, mask, 399, hidden_states.float(), 0.0)
    config._attn_implementation = "flash_attention_2"
    assert is_faster_packed(config, mask, 1, hidden_states, 0.1)
