"""What training does not keep: the same gradients, in less memory, wherever gradients are taken."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer.dropout import Dropout
from modeling_roformer.recomputation import recomputed_in_backward

SIZES = dict(vocab_size=90, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=160)
B, S = 2, 7


def make_model(recompute=True, **fields):
    torch.manual_seed(0)
    model = RoFormerForMaskedLM(RoFormerConfig(**{**SIZES, "initializer_range": 0.3, **fields})).train()
    if not recompute:
        for layer in model.roformer.encoder.layer:
            layer.output.keeps_input = False
    return model


def make_ids():
    return torch.randint(5, 90, (B, S), generator=torch.Generator().manual_seed(1))


def gradients(model):
    torch.manual_seed(2)
    model(make_ids(), labels=make_ids()).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        {"hidden_act": "relu", "norm_type": "rms_norm", "use_bias": False},
        {"hidden_act": "gelu_new"},
        {"chunk_size_feed_forward": 1},
    ],
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_are_the_same(fields, checkpointing):
    """Bit for bit: what is computed again is what was computed before, and dropout draws the same numbers."""
    models = [make_model(recompute, **fields) for recompute in (True, False)]
    if checkpointing:
        models[0].gradient_checkpointing_enable()
    found, expected = map(gradients, models)
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


def test_gradients_of_the_compiled_model_are_the_same():
    fields = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    expected, model = gradients(make_model(**fields)), make_model(**fields)
    torch.compile(model, fullgraph=True, backend="aot_eager")(make_ids(), labels=make_ids()).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-6, rtol=1e-4)


def test_gradients_in_half_precision():
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = (gradients(make_model(recompute)) for recompute in (True, False))
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


def pieces():
    torch.manual_seed(0)
    wide = torch.randn(B, S, 12, dtype=torch.float64, requires_grad=True)
    return wide, torch.nn.Linear(12, 3, dtype=torch.float64)


def project(wide, linear, function=torch.nn.functional.gelu):
    activated = function(wide)
    with recomputed_in_backward(activated, function, wide):
        return linear(activated)


def test_the_activation_is_not_kept():
    """It is computed once for the output, and once more when backward asks for it; nothing holds it in between."""
    made, alive = 0, []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, gradient):
            return 2 * ctx.saved_tensors[0] * gradient

    def activation(x):
        nonlocal made
        made += 1
        y = Watched.apply(x)
        alive.append(torch.multiprocessing.reductions.StorageWeakRef(y.untyped_storage()))
        return y

    wide, linear = pieces()
    output = project(wide, linear, activation)
    assert made == 1
    assert alive[0].expired()
    output.sum().backward()
    assert made == 2
    torch.testing.assert_close(linear.weight.grad, wide.detach().square().sum((0, 1)).expand(3, -1))


def test_derivatives_are_right_up_to_the_second():
    wide, linear = pieces()
    parameters = (wide, linear.weight, linear.bias)

    def function(wide, weight, bias):
        return project(wide, lambda x: torch.nn.functional.linear(x, weight, bias))

    assert torch.autograd.gradcheck(function, parameters)
    assert torch.autograd.gradgradcheck(function, parameters)


def test_inside_a_checkpoint_and_inside_torch_func():
    wide, linear = pieces()
    expected = torch.autograd.grad(project(wide, linear).sum(), linear.weight)[0]
    inside = checkpoint(project, wide, linear, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(inside.sum(), linear.weight)[0], expected)
    found = torch.func.grad(lambda weight: project(wide, lambda x: x @ weight.T).sum())(linear.weight.detach())
    torch.testing.assert_close(found, expected)


def test_nothing_is_computed_twice_without_gradients():
    calls = []
    wide, linear = pieces()
    with torch.no_grad():
        project(wide, linear, lambda x: calls.append(x) or x.relu())
    assert len(calls) == 1


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout(p):
    dropout, x = Dropout(p), torch.ones(100, 1000, requires_grad=True)
    torch.manual_seed(0)
    y = dropout(x)
    y.sum().backward()
    assert torch.equal(x.grad, y)  # the same elements, scaled alike
    assert set(y.detach().unique().tolist()) == (
        {0.0} if p == 1 else {1.0} if p == 0 else {0.0, torch.tensor(4 / 3).item()}
    )
    assert abs((y == 0).float().mean().item() - p) < 0.01
    assert dropout.eval()(x) is x
