"""The cross-entropy over a vocabulary, against its formula written out and against torch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer import cross_entropy as module
from modeling_roformer.cross_entropy import cross_entropy

FEW = 64  # elements at a time, in place of a million


@pytest.fixture(autouse=True)
def some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "ELEMENTS", FEW)


def made(labels: int, vocab_size: int, dtype=torch.float64, seed: int = 0, ignored: int = 0):
    """Logits, and classes of which the first are ignored."""
    some = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(labels, vocab_size, generator=some, dtype=torch.float64)
    classes = torch.randint(vocab_size, (labels,), generator=some)
    classes[:ignored] = -100
    return logits.to(dtype).requires_grad_(), classes


@settings(deadline=None)
@given(
    labels=st.integers(1, 40), vocab_size=st.integers(2, 200), ignored=st.integers(0, 40), seed=st.integers(0, 99),
    shift=st.sampled_from([0, 1e4, -1e4]),
)  # fmt: skip
def test_it_is_the_formula(labels, vocab_size, ignored, seed, shift):
    ignored = min(ignored, labels - 1)
    logits, classes = made(labels, vocab_size, seed=seed, ignored=ignored)
    probabilities = logits.detach().exp() / logits.detach().exp().sum(dim=1, keepdim=True)
    losses = [0.0 if c == -100 else -float(torch.log(p[c])) for p, c in zip(probabilities, classes, strict=True)]
    expected = probabilities.clone()
    for row, label in zip(expected, classes, strict=True):
        if label == -100:
            row.zero_()
        else:
            row[label] -= 1
    expected /= labels - ignored
    found = cross_entropy(logits + shift, classes, reduction="none")
    assert_close(found, torch.tensor(losses, dtype=torch.float64))
    mean = cross_entropy(logits + shift, classes)
    assert mean.item() == pytest.approx(sum(losses) / (labels - ignored))
    mean.backward()
    assert_close(logits.grad, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_it_is_as_exact_as_torchs_in_every_type(dtype, autocast, reduction):
    logits, classes = made(30, 70, dtype, ignored=3)
    weights = 0.5 ** (torch.arange(30, dtype=torch.float64) % 4)  # exact in every type
    if reduction == "mean":
        weights = weights[1]
    answers = []
    for function, x, autocasts in [
        (cross_entropy, logits, autocast),
        (F.cross_entropy, logits.detach().clone().requires_grad_(), autocast),
        (F.cross_entropy, logits.detach().double().requires_grad_(), False),
    ]:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocasts):
            loss = function(x, classes, reduction=reduction)
        (loss * weights).sum().backward()
        answers.append((loss.detach(), x.grad))
    found, torchs, exact = answers
    for ours, theirs, right in zip(found, torchs, exact, strict=True):
        assert ours.dtype == theirs.dtype
        error, their_error = ((x.double() - right).abs().max() for x in (ours, theirs))
        assert error <= their_error + 1e-6


def test_it_differentiates_twice():
    logits, classes = made(7, 11, ignored=2)
    for reduction in ("mean", "none"):

        def losses(x, reduction=reduction):
            return cross_entropy(x, classes, reduction=reduction)

        assert torch.autograd.gradcheck(losses, (logits,))
        assert torch.autograd.gradgradcheck(losses, (logits,))


def test_two_backward_passes_add_up():
    logits, classes = made(7, 11)
    loss = cross_entropy(logits, classes)
    loss.backward(retain_graph=True)
    once = logits.grad.clone()
    loss.backward()
    assert_close(logits.grad, 2 * once)


def test_function_transforms_go_through():
    logits, classes = made(7, 11)
    expected = torch.func.grad(F.cross_entropy)(logits.detach(), classes)
    assert_close(torch.func.grad(cross_entropy)(logits.detach(), classes), expected)
    batched = torch.func.vmap(cross_entropy)(torch.stack([logits, 2 * logits]), torch.stack([classes, classes]))
    assert_close(batched[1], F.cross_entropy(2 * logits, classes))


def test_a_batch_without_labels_is_as_torchs():
    logits, classes = made(7, 11, ignored=7)
    assert torch.isnan(cross_entropy(logits, classes))
    assert torch.equal(cross_entropy(logits, classes, reduction="none"), torch.zeros(7, dtype=torch.float64))


@pytest.mark.parametrize("label", [11, -1])
def test_a_label_out_of_range_is_an_error(label):
    logits, classes = made(7, 11)
    classes[3] = label
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        cross_entropy(logits, classes)


class Sizes(TorchDispatchMode):
    """Elements of every new tensor: what an operation returns, and does not share with its inputs."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor):
            known = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
            if output.untyped_storage().data_ptr() not in known:
                self.seen.append(output.numel())
        return output


def test_only_the_gradient_is_as_large_as_the_logits():
    logits, classes = made(100, 20, torch.bfloat16)
    with Sizes() as forward, torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(logits, classes)
    assert 0 < max(forward.seen) <= len(classes)  # the losses, and FEW // 20 rows
    with Sizes() as backward:
        loss.backward()
    assert [size for size in backward.seen if size > len(classes)] == [logits.numel()]


@pytest.mark.parametrize("sparse", [True, False])
def test_a_language_model_learns_as_with_torchs(monkeypatch, sparse):
    torch.manual_seed(0)
    config = RoFormerConfig(
        vocab_size=90, embedding_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        sparse_prediction=sparse, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = RoFormerForMaskedLM(config)
    ids = torch.randint(5, 90, (3, 8))
    labels = ids.where(torch.rand(3, 8) < 0.6, -100)
    answers = []
    for elements in (FEW, 1 << 20):  # ours, torch's
        monkeypatch.setattr(module, "ELEMENTS", elements)
        model.zero_grad()
        loss = model(ids, labels=labels).loss
        loss.backward()
        answers.append((loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]))
    (found, gradients), (expected, theirs) = answers
    assert_close(found, expected)
    assert_close(gradients, theirs)
