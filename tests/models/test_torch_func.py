"""Models under torch.func: gradients as functions, and of each text by itself."""

import pytest
import torch
from helpers.small_models import small_config
from torch.func import functional_call, grad, jvp, vmap

from modeling_roformer import RoFormerForCausalLM, RoFormerForMaskedLM

MODELS = {
    "plain": {},
    "unpadded, some logits": {"unpad_inputs": True, "sparse_prediction": True},
    "decoder": {"is_decoder": True},
    "favor": {"attention_type": "linear", "linear_feature_map": "favor", "linear_num_features": 8},
    "causal elu": {"attention_type": "linear", "linear_feature_map": "elu", "is_decoder": True},
}
IDS = torch.randint(5, 90, (2, 9), generator=torch.Generator().manual_seed(0))


def make(name, dtype=torch.float32):
    torch.manual_seed(0)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = small_config(num_hidden_layers=1, **dropout, **MODELS[name])
    model = (RoFormerForCausalLM if config.is_decoder else RoFormerForMaskedLM)(config).to(dtype).train()
    return model, {key: x.detach() for key, x in model.named_parameters()}


def loss_of(model, weights, ids, mask=None):
    return functional_call(model, weights, (ids,), {"attention_mask": mask, "labels": ids}).loss


def expected_gradients(model, *inputs):
    model.zero_grad()
    loss_of(model, dict(model.named_parameters()), *inputs).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_backward(name, precision):
    model, weights = make(name, torch.bfloat16 if precision == "bfloat16" else torch.float32)
    mask = torch.ones_like(IDS)
    mask[0, 5:] = 0
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        found = grad(lambda weights: loss_of(model, weights, IDS, mask))(weights)
        expected = expected_gradients(model, IDS, mask)
    for key, gradient in expected.items():
        atol = 1e-6 if precision == "float32" else 0.02 * gradient.abs().max().item() + 1e-3
        torch.testing.assert_close(found[key], gradient, atol=atol, rtol=1e-4, msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_each_text(name):
    model, weights = make(name)
    per_text = vmap(grad(lambda weights, ids: loss_of(model, weights, ids[None])), (None, 0))(weights, IDS)
    for i, ids in enumerate(IDS):
        for key, gradient in expected_gradients(model, ids[None]).items():
            torch.testing.assert_close(per_text[key][i], gradient, atol=1e-6, rtol=1e-3, msg=key)


@pytest.mark.parametrize("name", ["favor", "causal elu"])
def test_derivatives_in_forward_mode(name):
    """Beside the product with the gradient; torch's fused softmax attention has none."""
    model, weights = make(name, torch.float64)
    generator = torch.Generator().manual_seed(1)
    tangents = {key: torch.randn(x.shape, generator=generator, dtype=x.dtype) for key, x in weights.items()}
    _, found = jvp(lambda weights: loss_of(model, weights, IDS), (weights,), (tangents,))
    expected = sum((g * tangents[key]).sum() for key, g in expected_gradients(model, IDS).items())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
