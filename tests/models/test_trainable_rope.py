"""Trainable frequencies: an offset of their logarithms, in training and in files."""

import copy
import math

import pytest
import torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from helpers.messages import refused
from helpers.small_models import small_model
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch.func import functional_call
from transformers import PreTrainedModel

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerModel
from modeling_roformer.rotary import scaled_inverse_frequencies

KEY, OLDER_KEY = "roformer.encoder.log_inv_freq_offset", "roformer.encoder.inv_freq"
INITIAL = [10000.0 ** (-2 * i / 16) for i in range(8)]
OFFSETS = [-0.3, 0.2, 0.0, 0.1, -0.1, 0.4, -0.4, 0.05]
TRAINED = [f * math.exp(x) for f, x in zip(INITIAL, OFFSETS, strict=True)]
IDS = torch.randint(5, 90, (2, 50), generator=torch.Generator().manual_seed(1))
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def parameter_of(model):
    [parameter] = [x for name, x in model.named_parameters() if "log_inv_freq" in name]
    return parameter


def trained_model(**fields):
    model = small_model(RoFormerForMaskedLM, trainable_rope=True, **fields)
    with torch.no_grad():
        parameter_of(model).copy_(torch.tensor(OFFSETS))
    return model


def frequencies(model):
    offset = getattr(model.base_model.encoder, "log_inv_freq_offset", None)
    return scaled_inverse_frequencies(model.config, 10, torch.device("cpu"), offset=offset).detach()


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(ids).logits


@pytest.mark.parametrize("rope", [None, YARN, {**YARN, "rope_type": "dynamic"}])
def test_they_begin_as_those_that_are_not_trained(rope, tmp_path):
    plain = small_model(RoFormerForMaskedLM, rope_parameters=rope)
    plain.save_pretrained(tmp_path)
    made = small_model(RoFormerForMaskedLM, rope_parameters=rope, trainable_rope=True)
    for model in (made, RoFormerForMaskedLM.from_pretrained(tmp_path, trainable_rope=True)):
        assert parameter_of(model).tolist() == [0.0] * 8
        assert torch.equal(logits(model), logits(plain))
        model(IDS, labels=IDS).loss.backward()
        assert parameter_of(model).grad.abs().min() > 0


def make_older(folder, frequencies):
    """Rewrite a saved model as version 0.2 wrote it, and return its weights."""
    file = folder / "model.safetensors"
    weights = {name: x for name, x in load_file(file).items() if name != KEY} | {OLDER_KEY: frequencies}
    save_file(weights, file, metadata={"format": "pt"})
    return weights


def test_files_have_the_frequencies_and_a_loaded_model_computes_the_same(tmp_path):
    model = trained_model()
    torch.testing.assert_close(frequencies(model), torch.tensor(TRAINED, dtype=torch.float64), rtol=2e-7, atol=0)
    model.save_pretrained(tmp_path)
    for stored in (load_file(tmp_path / "model.safetensors"), model.state_dict()):
        assert torch.equal(stored[KEY], parameter_of(model))
        torch.testing.assert_close(stored[OLDER_KEY], torch.tensor(TRAINED), rtol=2e-7, atol=0)
    loaded = RoFormerForMaskedLM.from_pretrained(tmp_path)
    assert loaded.config.trainable_rope
    given = small_model(RoFormerForMaskedLM, seed=1, trainable_rope=True)
    given.load_state_dict(model.state_dict())
    with torch.device("meta"):
        assigned = RoFormerForMaskedLM(model.config).eval()
    assigned.load_state_dict(model.state_dict(), assign=True)
    bare = RoFormerModel.from_pretrained(tmp_path)
    for again in (loaded, given, assigned, bare):
        assert parameter_of(again).requires_grad
        torch.testing.assert_close(parameter_of(again), parameter_of(model), rtol=0, atol=1e-7)
    for again in (loaded, given, assigned):
        assert torch.equal(logits(again), logits(model))


class Wrapper(PreTrainedModel):
    """A user's own model with one of ours inside."""

    config_class = RoFormerConfig
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.backbone = RoFormerModel(config)
        self.post_init()

    def forward(self, ids):
        return self.backbone(ids).last_hidden_state


def in_a_wrapper(model, folder):
    wrapper = Wrapper(model.config).eval()
    wrapper.backbone.load_state_dict(model.roformer.state_dict())
    wrapper.save_pretrained(folder)
    return Wrapper.from_pretrained(folder)(IDS)


def by_accelerate(model, folder):
    model.save_pretrained(folder)
    with init_empty_weights():
        empty = RoFormerForMaskedLM(model.config).eval()
    empty.tie_weights()
    loaded = load_checkpoint_and_dispatch(empty, str(folder / "model.safetensors"), device_map={"": "cpu"})
    return loaded.roformer(IDS).last_hidden_state


def by_functional_call(model, folder):
    return functional_call(model.roformer, model.roformer.state_dict(), (IDS,)).last_hidden_state


@pytest.mark.parametrize("way", [in_a_wrapper, by_accelerate, by_functional_call])
def test_ways_to_load_that_are_not_ours_give_the_same_model(way, tmp_path):
    """None of them calls `load_state_dict`, or `from_pretrained` of a model of this package."""
    model = trained_model()
    with torch.no_grad():
        torch.testing.assert_close(way(model, tmp_path), model.roformer(IDS).last_hidden_state, atol=1e-6, rtol=0)


@pytest.mark.parametrize("how", ["passed", "set"])
def test_other_rope_parameters_scale_them_unless_passed_when_loading(how, tmp_path):
    trained_model().save_pretrained(tmp_path)
    model = RoFormerModel.from_pretrained(tmp_path, **({"rope_parameters": YARN} if how == "passed" else {}))
    model.config.rope_parameters = YARN
    fixed = frequencies(small_model(rope_parameters=YARN))
    expected = fixed * torch.tensor(OFFSETS, dtype=torch.float64).exp()
    if how == "passed":
        expected = torch.tensor(TRAINED, dtype=torch.float64)
    torch.testing.assert_close(frequencies(model), expected, rtol=2e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_file_of_version_0_2_is_read(dtype, tmp_path):
    """Its parameter was the frequencies."""
    model = small_model(RoFormerForMaskedLM, trainable_rope=True)
    model.save_pretrained(tmp_path)
    older = torch.tensor(TRAINED).to(dtype)
    weights = make_older(tmp_path, older)
    loaded, bare = (x.from_pretrained(tmp_path) for x in (RoFormerForMaskedLM, RoFormerModel))
    model.load_state_dict(weights, strict=False)
    for again in (loaded, bare, model):
        torch.testing.assert_close(frequencies(again), older.double(), rtol=2e-7, atol=0)
    loaded.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert torch.equal(saved[KEY], parameter_of(loaded))
    assert torch.equal(saved[OLDER_KEY], older.float())


@pytest.mark.parametrize("value", [-1.3e-4, 0.0, math.nan, math.inf])
def test_a_frequency_that_has_no_logarithm_is_refused(value, tmp_path):
    model = small_model(RoFormerForMaskedLM, trainable_rope=True)
    model.save_pretrained(tmp_path)
    older = make_older(tmp_path, torch.tensor([*INITIAL[:3], value, *INITIAL[4:]]))
    with refused(ValueError, "encoder.inv_freq[3]", f"{value:.3g}"):
        RoFormerForMaskedLM.from_pretrained(tmp_path)
    with refused(ValueError, f"{OLDER_KEY}[3]", f"{value:.3g}"):
        model.load_state_dict(older, strict=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("how", ["loaded", "cast"])
def test_they_stay_float32(dtype, how, tmp_path):
    model = trained_model()
    known = frequencies(model)
    model.save_pretrained(tmp_path / "first")
    if how == "loaded":
        model = RoFormerForMaskedLM.from_pretrained(tmp_path / "first", dtype=dtype)
    else:
        model = copy.deepcopy(model).to(dtype)
    assert model.dtype == dtype
    assert parameter_of(model).dtype == torch.float32
    assert torch.equal(frequencies(model), known)
    model.save_pretrained(tmp_path / "second")
    first, second = (load_file(tmp_path / name / "model.safetensors")[OLDER_KEY] for name in ("first", "second"))
    assert torch.equal(first, second)
    model(IDS, labels=IDS).loss.backward()
    assert parameter_of(model).grad.dtype == torch.float32


def test_gradients_stay_float32_in_casts():
    model = trained_model()
    model(IDS, labels=IDS).loss.backward()
    gradient = parameter_of(model).grad.clone()
    assert torch.equal(parameter_of(model.to(torch.bfloat16).to(torch.float32)).grad, gradient)


def test_the_gradient_is_that_of_the_logarithm():
    """∂L/∂ log f, by differences: the offset is added to log f."""
    model = trained_model(num_hidden_layers=1).double()
    model(IDS, labels=IDS).loss.backward()
    offset = parameter_of(model)
    for i in (0, 3):
        losses = []
        for step in (1e-3, -2e-3):
            with torch.no_grad():
                offset[i] += step
                losses.append(model(IDS, labels=IDS).loss)
        with torch.no_grad():
            offset[i] += 1e-3
        expected = (losses[0] - losses[1]).item() / 2e-3
        assert math.isclose(offset.grad[i].item(), expected, rel_tol=1e-2, abs_tol=1e-4)


def test_peft_saves_and_loads_them(tmp_path):
    settings = LoraConfig(target_modules=["transform.dense"], modules_to_save=["encoder"], r=2)
    adapted = get_peft_model(small_model(RoFormerForMaskedLM, trainable_rope=True), settings)
    [trained] = [x for name, x in adapted.named_parameters() if "log_inv_freq" in name and x.requires_grad]
    with torch.no_grad():
        trained.copy_(torch.tensor(OFFSETS))
    adapted.save_pretrained(tmp_path)
    [stored] = [x for name, x in load_file(tmp_path / "adapter_model.safetensors").items() if "log_inv_freq" in name]
    assert stored.tolist() == trained.tolist()
    again = PeftModel.from_pretrained(small_model(RoFormerForMaskedLM, trainable_rope=True), tmp_path).eval()
    assert torch.equal(logits(again), logits(adapted.eval()))
