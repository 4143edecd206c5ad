"""unpad_inputs: where padding is left out of the computation. test_padding.py shows that results are the same."""

import itertools
import json

import pytest
import torch
from cases import DECODER, NO_DROPOUT
from helpers.flattened import use_varlen_attention
from helpers.small_models import SMALL, small_model
from test_padding import HOLES, MASKS, RIGHT, make_batch

from modeling_roformer import RoFormerConfig, RoFormerModel
from modeling_roformer.unpadding import is_faster_packed

pytestmark = pytest.mark.usefixtures("packs_any_padding")


def tokens_computed(model, **inputs):
    """Return the number of tokens that the first layer sees."""
    seen = []
    layer = next(module for module in model.modules() if type(module).__name__ == "RoFormerIntermediate")
    hook = layer.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[:-1].numel()))
    try:
        model(**inputs)
    finally:
        hook.remove()
    return seen[0]


def test_dropout_is_applied():
    model = small_model(attention_probs_dropout_prob=0.5, hidden_dropout_prob=0, unpad_inputs=True).train()
    one, other = (model(**make_batch(RIGHT)).last_hidden_state[RIGHT.bool()] for _ in range(2))
    assert (one - other).abs().max() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {"output_attentions": True}),
        ({}, {"output_hidden_states": True}),
        ({}, {"unpad_inputs": False}),
        ({"unpad_inputs": False}, {}),
        (DECODER, {}),
        ({**DECODER, "prefix_lm": True}, {"output_hidden_states": True}),
        ({"chunk_size_feed_forward": 1}, {"output_attentions": True}),
    ],
)
def test_padding_is_computed_where_rows_are_needed(fields, options, mask):
    model, batch = small_model(**fields), make_batch(MASKS[mask])
    found = model(**batch, **options)
    expected = model(**batch, **{**options, "unpad_inputs": False})
    assert found.last_hidden_state.abs().min() > 0
    for name in ("last_hidden_state", *(option.removeprefix("output_") for option in options if "output" in option)):
        torch.testing.assert_close(found[name], expected[name], atol=0, rtol=0)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["eager", "compiled"])
def test_padding_is_computed_if_a_label_lies_on_it(compiled):
    model, batch = small_model("RoFormerForMaskedLM"), make_batch(RIGHT)
    labels = torch.full_like(RIGHT, -100)
    labels[:, 3] = 7  # on padding in three rows
    torch.compiler.reset()
    called = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    with torch.no_grad():
        found = called(**batch, labels=labels)
        expected = model(**batch, labels=labels, unpad_inputs=False)
    torch.testing.assert_close(found.loss, expected.loss, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.logits, expected.logits, atol=2e-5, rtol=0)


def test_padding_is_left_out_where_that_is_faster(packs_any_padding, monkeypatch):
    """The bound on a CPU is 8 tokens of padding per text at a width of 256."""
    monkeypatch.undo()
    model = small_model(hidden_size=256, num_hidden_layers=1)
    few, many = (torch.arange(40)[None] < torch.tensor([[40], [40 - n]]) for n in (15, 16))
    assert tokens_computed(model, **make_batch(few)) == 80
    assert tokens_computed(model, **make_batch(many)) == 64
    assert tokens_computed(model, **make_batch(many), unpad_inputs=False) == 80
    assert tokens_computed(model, **make_batch(few), unpad_inputs=True) == 80
    assert tokens_computed(small_model(hidden_size=256, unpad_inputs=False), **make_batch(many)) == 80
    assert tokens_computed(small_model(hidden_size=256, is_decoder=True), **make_batch(many)) == 80
    assert tokens_computed(small_model(), **make_batch(many)) == 80


@pytest.mark.parametrize(("implementation", "on_gpu"), [("sdpa", False), ("eager", False), ("flash_attention_2", True)])
def test_elsewhere_than_on_a_cpu_only_a_kernel_for_packed_texts_is_sure_to_gain(implementation, on_gpu):
    mask, config = torch.ones(2, 200), RoFormerConfig(hidden_size=1024, num_attention_heads=16)
    config._attn_implementation = implementation
    for device, expected in (("cpu", True), ("meta", on_gpu)):
        hidden_states = torch.ones(2, 200, 1024, dtype=torch.bfloat16, device=device)
        assert is_faster_packed(config, mask.to(device), 100, hidden_states, 0.0) == expected


def loss_and_gradients(model, **inputs):
    loss = model(**inputs).loss
    return torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad]), loss


READERS = [
    ("RoFormerForQuestionAnswering", {}),
    ("RoFormerForMaskedLM", {}),
    ("RoFormerForMaskedLM", {"sparse_prediction": True}),
    ("RoFormerForTokenClassification", {"num_labels": 90}),
    ("RoFormerForCausalLM", {"is_decoder": True, "use_cache": False}),
]


@pytest.mark.parametrize("mask", [RIGHT, HOLES], ids=["right", "holes"])
@pytest.mark.parametrize(("head", "fields"), READERS)
def test_heads_that_read_padding_learn_the_same(head, fields, mask):
    """Question answering weighs every position, and labels may lie on padding."""
    batch = make_batch(mask)
    if head == "RoFormerForQuestionAnswering":
        positions = torch.arange(len(mask)) % 2
        batch |= {"start_positions": positions, "end_positions": positions + 1}
    else:
        batch["labels"] = batch["input_ids"]
    model = small_model(head, **fields, **NO_DROPOUT).train()
    found, loss = loss_and_gradients(model, **batch, unpad_inputs=True)
    expected, expected_loss = loss_and_gradients(model, **batch)
    torch.testing.assert_close(loss, expected_loss, atol=1e-5, rtol=0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("head", "fields"), READERS[1:])
def test_padding_is_left_out_where_no_label_lies_on_it(head, fields):
    batch = make_batch(RIGHT)
    labels = batch["input_ids"].masked_fill(RIGHT == 0, -100)
    model = small_model(head, **fields, unpad_inputs=True).train()
    assert tokens_computed(model, **batch) == RIGHT.sum()
    assert tokens_computed(model, **batch, labels=labels) == RIGHT.sum()
    assert tokens_computed(model, **batch, labels=batch["input_ids"]) == RIGHT.numel()
    if head == "RoFormerForCausalLM":  # the word after the text is predicted from its last one
        labels[0, 3] = 7
        assert tokens_computed(model, **batch, labels=labels) == RIGHT.sum()
        already_shifted = {"labels": labels, "shift_labels": batch["input_ids"]}
        assert tokens_computed(model, **batch, **already_shifted) == RIGHT.numel()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["each layer in place", "each layer wrapped", "attention", "encoder"])
@torch.no_grad()
def test_layers_compiled_one_by_one_are_compiled_once(how):
    """Packed, each new set of lengths would be another graph, which `fullgraph` refuses after eight of them."""
    torch._dynamo.reset()
    model, graphs = small_model(unpad_inputs=True), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    options = {"fullgraph": True, "backend": backend, "dynamic": False}
    layers = model.encoder.layer
    if how == "encoder":
        model.encoder.compile(**options)
    for i, layer in enumerate(list(layers)):
        if how == "each layer in place":
            layer.compile(**options)
        elif how == "each layer wrapped":
            layers[i] = torch.compile(layer, **options)
        elif how == "attention":
            layer.attention.compile(**options)
    for lengths in itertools.combinations(range(1, 7), 3):
        mask = (torch.arange(7) < torch.tensor([*lengths, 7])[:, None]).long()
        inputs = make_batch(mask)
        found = model(**inputs).last_hidden_state
    assert 0 < len(graphs) <= len(layers)
    torch._dynamo.reset()
    expected = model(**inputs, unpad_inputs=False).last_hidden_state
    torch.testing.assert_close(found[mask != 0], expected[mask != 0], atol=1e-5, rtol=0)


def test_a_decoder_in_training_leaves_padding_out():
    """Nothing is generated in training, so that no cache is made, in which padding would have its place."""
    model = small_model("RoFormerForCausalLM", is_decoder=True, unpad_inputs=True)
    inputs = make_batch(RIGHT)
    inputs["labels"] = inputs["input_ids"].masked_fill(RIGHT == 0, -100)
    assert tokens_computed(model.train(), **inputs) == RIGHT.sum()
    assert tokens_computed(model, **inputs, use_cache=True) == RIGHT.numel()
    del inputs["labels"]
    assert model(**inputs).past_key_values is not None
    assert tokens_computed(model.eval(), **inputs) == RIGHT.numel()


@pytest.mark.parametrize("is_decoder", [False, True])
def test_flash_attention_gets_all_texts_in_one_call(is_decoder, monkeypatch):
    name, calls = use_varlen_attention(monkeypatch)
    model = small_model(vocab_size=90, is_decoder=is_decoder, use_cache=False, unpad_inputs=True).to(torch.bfloat16)
    batch = make_batch(HOLES)
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        model.config._attn_implementation = name
        found = model(**batch).last_hidden_state
    assert len(calls) == SMALL["num_hidden_layers"]
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0)
    assert (found - expected).float().pow(2).mean().sqrt() < 0.01


@pytest.mark.parametrize("choice", [None, False, True])
def test_the_choice_is_saved(choice, tmp_path):
    """Configurations of 0.2.0 may have None, for the default."""
    small_model(unpad_inputs=choice).save_pretrained(tmp_path)
    expected = choice is not False
    assert json.loads((tmp_path / "config.json").read_text())["unpad_inputs"] == expected
    assert RoFormerModel.from_pretrained(tmp_path).config.unpad_inputs == expected
