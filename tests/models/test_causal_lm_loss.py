"""The loss of the causal language model: transformers', in value and gradient, computed by the heads' cross-entropy."""

import pytest
import torch
from helpers.small_models import small_model
from transformers.loss.loss_utils import ForCausalLMLoss

from modeling_roformer import fast_cross_entropy

IDS = torch.randint(5, 100, (3, 12), generator=torch.Generator().manual_seed(1))
LABELS = IDS.masked_fill(torch.arange(12) < torch.tensor([[2], [0], [9]]), -100)


def make_model(**fields):
    return small_model("RoFormerForCausalLM", is_decoder=True, **fields)


def loss_and_gradient(model, **arguments):
    outputs = model(IDS, labels=LABELS, **arguments)
    outputs.loss.backward()
    gradient = model.roformer.encoder.layer[0].output.dense.weight.grad
    model.zero_grad()
    return outputs.loss, gradient


@pytest.mark.parametrize("elements", [fast_cross_entropy.ELEMENTS, 300])  # as torch computes it, and in parts
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"num_items_in_batch": 40},
        {"num_items_in_batch": torch.tensor(40)},
        {"shift_labels": LABELS.roll(-2, 1)},
        {"shift_labels": None},
        {"ignore_index": -100},
    ],
    ids=str,
)
def test_it_is_that_of_transformers(arguments, dtype, elements, monkeypatch):
    monkeypatch.setattr(fast_cross_entropy, "ELEMENTS", elements)
    model = make_model().to(dtype)
    found = loss_and_gradient(model, **arguments)
    monkeypatch.setattr(
        model, "_loss_function", lambda *args, **kwargs: ForCausalLMLoss(*args, **kwargs), raising=False
    )
    expected = loss_and_gradient(model, **arguments)
    assert found[0].dtype == expected[0].dtype == torch.float32
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], atol=2e-7, rtol=2e-2 if dtype == torch.bfloat16 else 1e-4)


def test_a_large_vocabulary_is_computed_in_parts(monkeypatch):
    monkeypatch.setattr(fast_cross_entropy, "ELEMENTS", 300)
    parts = []
    whole = fast_cross_entropy._CrossEntropy.apply
    monkeypatch.setattr(fast_cross_entropy._CrossEntropy, "apply", lambda *args: parts.append(args) or whole(*args))
    make_model()(IDS, labels=LABELS)
    assert len(parts) == 1


def test_a_loss_function_of_ones_own_gets_what_transformers_gives_it():
    model, seen = make_model(), []

    def loss_function(logits, labels, vocab_size, **kwargs):
        seen.append((labels, vocab_size, set(kwargs)))
        return logits.sum()

    model.loss_function = loss_function
    outputs = model(IDS, labels=LABELS, shift_labels=LABELS)
    assert outputs.loss == outputs.logits.sum()
    assert seen == [(LABELS, 100, {"shift_labels"})]


def test_another_loss_type_is_used():
    model = make_model()
    model.loss_type = "ForMaskedLM"
    outputs = model(IDS, labels=LABELS)
    expected = torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), LABELS.flatten())
    torch.testing.assert_close(outputs.loss, expected)
