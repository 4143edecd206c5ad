"""The loss of the causal language model is transformers', in value and gradient."""

import pytest
import torch
from helpers.small_models import small_model
from transformers.loss.loss_utils import ForCausalLMLoss

IDS = torch.randint(5, 100, (3, 12), generator=torch.Generator().manual_seed(1))
LABELS = IDS.masked_fill(torch.arange(12) < torch.tensor([[2], [0], [9]]), -100)


def make_model(**fields):
    return small_model("RoFormerForCausalLM", is_decoder=True, **fields)


def gradient_of(loss, model):
    weight = model.roformer.encoder.layer[0].output.dense.weight
    return torch.autograd.grad(loss, weight, retain_graph=True)[0]


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
def test_it_is_that_of_transformers(arguments, dtype):
    model = make_model().to(dtype)
    outputs = model(IDS, labels=LABELS, **arguments)
    expected = ForCausalLMLoss(outputs.logits, LABELS, 100, **arguments)
    assert outputs.loss.dtype == torch.float32
    torch.testing.assert_close(outputs.loss, expected)
    torch.testing.assert_close(gradient_of(outputs.loss, model), gradient_of(expected, model))


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
