"""The cross-entropy over a vocabulary, against its formula written out and against torch's."""

from functools import partial

import pytest
import torch
from helpers.properties import max_examples
from hypothesis import example, given
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer import fast_cross_entropy as module
from modeling_roformer.fast_cross_entropy import cross_entropy
from modeling_roformer.inputs import is_transformed, is_wrapped

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


@pytest.mark.parametrize("label", [11, -1, -101, 2**40])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_label_out_of_range_is_torchs_error(label, reduction):
    logits, classes = made(7, 11)
    classes[3] = label
    with pytest.raises(IndexError, match=f"{label} is out of bounds"):
        F.cross_entropy(logits, classes, reduction=reduction)
    with pytest.raises(IndexError, match=f"{label} is out of bounds"):
        cross_entropy(logits, classes, reduction=reduction)


def outcome(function, logits, labels, reduction, how):
    """Return a function's result and its gradient, or the type of its error."""
    if how == "detached":
        logits = logits.detach()
    elif how == "a view":
        logits = torch.stack([logits, logits], dim=-1)[..., 0]
    elif how == "transposed":
        logits = logits.mT.contiguous().mT if logits.ndim > 1 else logits
    x = logits.detach().requires_grad_(how != "detached" and logits.is_floating_point())
    try:
        loss = function(x, labels, reduction=reduction)
        if x.requires_grad:
            (loss * torch.arange(1.0, loss.numel() + 1).to(loss.dtype).view_as(loss)).sum().backward()
    except Exception as error:
        return type(error)
    return loss.detach(), x.grad


@max_examples(150)
@given(
    rows=st.integers(0, 40),
    vocab_size=st.integers(1, 300),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64]),
    kind=st.sampled_from([torch.int64, torch.uint8, torch.int32, torch.float32]),
    shape=st.sampled_from(["rows", "rows", "rows", "one less", "of probabilities", "one row", "three dimensions"]),
    ignored=st.sampled_from(["none", "some", "all", "first", "last"]),
    wrong=st.sampled_from([None, None, None, "end", "-1", "156"]),
    reduction=st.sampled_from(["mean", "none", "sum", "other"]),
    how=st.sampled_from(["plain", "detached", "a view", "transposed"]),
    seed=st.integers(0, 99),
)
@example(1, 1, torch.float64, torch.uint8, "rows", "none", "-1", "none", "plain", 0)
def test_whatever_is_given_it_answers_as_torch(
    rows, vocab_size, dtype, kind, shape, ignored, wrong, reduction, how, seed
):
    some = torch.Generator().manual_seed(seed)
    logits = (5 * torch.randn(rows, vocab_size, generator=some)).to(dtype)
    labels = torch.randint(vocab_size, (rows,), generator=some)
    if wrong is not None and rows:
        labels[rows // 2] = {"end": vocab_size, "-1": -1, "156": 156}[wrong]
    chosen = {
        "none": torch.zeros(rows, dtype=torch.bool),
        "some": torch.rand(rows, generator=some) < 0.5,
        "all": torch.ones(rows, dtype=torch.bool),
        "first": torch.arange(rows) == 0,
        "last": torch.arange(rows) == rows - 1,
    }[ignored]
    labels = labels.masked_fill(chosen, -100).to(kind)
    if shape == "one less":
        labels = labels[1:]
    elif shape == "of probabilities":
        labels = torch.rand(rows, vocab_size, generator=some)
    elif shape == "one row" and rows:
        logits, labels = logits[0], labels[0]
    elif shape == "three dimensions":
        logits, labels = logits[..., None], labels[:, None]
    found, expected = (outcome(f, logits, labels, reduction, how) for f in (cross_entropy, F.cross_entropy))
    if isinstance(expected, type):
        # torch puts a label of uint8 into its message as a byte, which Python cannot always read; ours asks torch at times.
        found, expected = (IndexError if error is UnicodeDecodeError else error for error in (found, expected))
        assert found is expected
        return
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype, 1e-5)
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None:
            assert ours is None
        else:
            assert_close(ours, theirs, rtol=tolerance, atol=tolerance * 10, equal_nan=True)


def test_forward_mode():
    logits, classes = made(7, 11, ignored=2)
    logits, tangent = logits.detach(), torch.randn(7, 11, dtype=torch.float64)
    for reduction in ("mean", "none"):
        function = partial(cross_entropy, labels=classes, reduction=reduction)
        value, found = torch.func.jvp(function, (logits,), (tangent,))
        step = 1e-6 * tangent
        assert_close(found, (function(logits + step) - function(logits - step)) / 2e-6, rtol=1e-5, atol=1e-6)
        with forward_ad.dual_level():
            dual = function(forward_ad.make_dual(logits, tangent))
            assert_close(forward_ad.unpack_dual(dual).tangent, found)
            assert_close(forward_ad.unpack_dual(dual).primal, value)


def test_torchs_private_name_may_go(monkeypatch):
    """It says whether a transform of torch.func is at work; what calls none needs no such name."""
    monkeypatch.delattr(torch._C, "_are_functorch_transforms_active")
    monkeypatch.delattr(torch._C._functorch, "is_functorch_wrapped_tensor")
    transformed, wrapped = is_transformed(), is_wrapped(torch.ones(1))
    monkeypatch.undo()  # torch itself uses them
    assert not transformed and not wrapped


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
