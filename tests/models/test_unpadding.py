"""unpad_inputs: the same outputs and gradients, with nothing computed on padding, by default where that is faster."""

import itertools
import json

import pytest
import torch
from helpers.flattened import use_varlen_attention
from helpers.properties import max_examples
from helpers.small_models import SMALL, small_model
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer import RoFormerConfig, RoFormerModel
from modeling_roformer.unpadding import is_faster_packed

ROPE = {"factor": 4.0, "original_max_position_embeddings": 4}
VARIANTS = {
    "plain": {},
    "rotary_value": {"rotary_value": True},
    "factorised": {"embedding_size": 16},
    "v2": {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"},
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", **ROPE}},
    "yarn": {"rope_parameters": {"rope_type": "yarn", **ROPE}},
    "trainable_rope": {"trainable_rope": True},
    "decoder": {"is_decoder": True, "use_cache": False},
    **{name: {"position_encoding": name} for name in ("learned", "sinusoidal", "none")},
    "learned v2": {"position_encoding": "learned", "norm_type": "rms_norm", "use_bias": False},
}
RIGHT = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]])
HOLES = torch.tensor([[1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1]])
LEFT = RIGHT.flip(1)


@pytest.fixture(autouse=True)
def packs_any_padding(monkeypatch):
    """Small models gain nothing from packing, and would not pack."""
    monkeypatch.setattr("modeling_roformer.unpadding.LEAST_SAVED", 1)


def make_batch(mask):
    generator = torch.Generator().manual_seed(1)
    ids, segments = (torch.randint(low, high, mask.shape, generator=generator) for low, high in ((5, 90), (0, 2)))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


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


@torch.no_grad()
def assert_unpads_to_the_same(model, atol=2e-5, **inputs):
    is_token = inputs["attention_mask"] != 0
    found = model(**inputs, unpad_inputs=True).last_hidden_state
    expected = model(**inputs, unpad_inputs=False).last_hidden_state
    torch.testing.assert_close(found[is_token], expected[is_token], atol=atol, rtol=0)
    assert not found[~is_token].any()
    assert tokens_computed(model, **inputs, unpad_inputs=True) == is_token.sum()


@pytest.mark.parametrize("mask", [RIGHT, HOLES], ids=["right", "holes"])
@pytest.mark.parametrize(
    ("variant", "implementation"), [*((name, "sdpa") for name in VARIANTS), ("plain", "eager"), ("dynamic", "eager")]
)
def test_outputs_are_the_same(variant, mask, implementation):
    model = small_model(attn_implementation=implementation, **VARIANTS[variant])
    assert_unpads_to_the_same(model, **make_batch(mask))


@max_examples(40)
@given(data=st.data())
def test_any_mask_and_positions(data):
    b, s = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 12))
    tokens = st.lists(st.booleans(), min_size=s - 1, max_size=s - 1)
    mask = torch.tensor([[True, *data.draw(tokens)] for _ in range(b)])
    dtype = data.draw(st.sampled_from([torch.bool, torch.long, torch.float32]))
    batch = make_batch(mask.to(dtype))
    rows = data.draw(st.sampled_from([0, 1, b]))
    if rows:
        batch["position_ids"] = torch.randint(0, 500, (rows, s), generator=torch.Generator().manual_seed(s))
    assert_unpads_to_the_same(small_model(rotary_value=data.draw(st.booleans())), **batch)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_the_same(variant, sparse, checkpointing):
    head = "RoFormerForCausalLM" if variant == "decoder" else "RoFormerForMaskedLM"
    fields = {**VARIANTS[variant], "sparse_prediction": sparse}
    batch = make_batch(HOLES)
    labels = batch["input_ids"].masked_fill(HOLES == 0, -100)
    if variant == "decoder":  # the token after a hole is predicted from the hole
        labels[:, 1:].masked_fill_(HOLES[:, :-1] == 0, -100)
    gradients, losses = [], []
    for unpad in (True, False):
        model = small_model(head, **fields, unpad_inputs=unpad, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        losses.append(model(**batch, labels=labels).loss)
        losses[-1].backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*losses, atol=1e-5, rtol=0)
    assert gradients[0].keys() == gradients[1].keys()
    for name in gradients[0]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], atol=2e-5, rtol=1e-3, msg=name)


def test_dropout_is_applied():
    model = small_model(attention_probs_dropout_prob=0.5, hidden_dropout_prob=0, unpad_inputs=True).train()
    one, other = (model(**make_batch(RIGHT)).last_hidden_state[RIGHT.bool()] for _ in range(2))
    assert (one - other).abs().max() > 1e-2


def test_embeddings_may_come_instead_of_ids():
    model, batch = small_model(), make_batch(HOLES)
    embeddings = model.embeddings.word_embeddings(batch.pop("input_ids"))
    assert_unpads_to_the_same(model, **batch, inputs_embeds=embeddings)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prefix_lm": True, "is_decoder": True},
        {"is_decoder": True},
        {"is_decoder": True, "use_cache": False, "attn_implementation": "eager"},
        {"chunk_size_feed_forward": 1},
    ],
)
@pytest.mark.parametrize("mask", [RIGHT, LEFT, HOLES, torch.ones(2, 5, dtype=torch.long)])
@pytest.mark.parametrize("asked", [{}, {"output_attentions": True}, {"output_hidden_states": True}])
def test_outputs_on_request_are_right(fields, mask, asked):
    """A call whose padding cannot be left out is computed with it."""
    batch = make_batch(mask)
    outputs = []
    for unpad in (True, False):
        model = small_model(**fields, unpad_inputs=unpad)
        with torch.no_grad():
            outputs.append(model(**batch, **asked))
    found, expected = outputs
    assert list(found.keys()) == list(expected.keys())
    is_token = mask.bool()
    torch.testing.assert_close(
        found.last_hidden_state[is_token], expected.last_hidden_state[is_token], atol=2e-5, rtol=0
    )
    *layers, last = found.get("hidden_states") or (found.last_hidden_state,)
    assert torch.equal(last, found.last_hidden_state)
    for one, other in zip(layers, (expected.get("hidden_states") or ())[:-1], strict=True):
        assert torch.equal(one, other)
    for one, other in zip(found.get("attentions") or (), expected.get("attentions") or (), strict=True):
        assert torch.equal(one, other)


@torch.no_grad()
@pytest.mark.parametrize("mask", [RIGHT, LEFT, HOLES], ids=["right", "left", "holes"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"attention_type": "linear"}, {"position_encoding": "learned"}, {"is_decoder": True, "use_cache": False}],
    ids=["default", "linear", "learned", "decoder"],
)
def test_outputs_at_padding_are_zero_where_it_is_left_out(fields, mask):
    """Texts that begin with padding are computed with it: their first position may be read."""
    model, batch = small_model(**fields), make_batch(mask)
    found, is_packed = model(**batch).last_hidden_state, bool(mask[:, 0].all())
    assert found[mask == 0].any() != is_packed
    assert found[mask == 1].abs().min() > 0


@torch.no_grad()
@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"unpad_inputs": False}, {}),
        ({"prefix_lm": True}, {}),
        ({"is_decoder": True}, {}),
        ({"chunk_size_feed_forward": 1}, {}),
        ({}, {"output_hidden_states": True}),
        ({}, {"output_attentions": True}),
    ],
)
def test_outputs_at_padding_are_computed_otherwise(fields, asked):
    assert small_model(**fields)(**make_batch(RIGHT), **asked).last_hidden_state.abs().min() > 0


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


def test_padding_is_left_out_where_that_is_faster(monkeypatch):
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
    model = small_model(head, **fields, hidden_dropout_prob=0, attention_probs_dropout_prob=0).train()
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


@pytest.mark.parametrize("mask", [RIGHT, LEFT, HOLES], ids=["right", "left", "holes"])
@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("RoFormerForSequenceClassification", {}),
        ("RoFormerForMultipleChoice", {}),  # reads the last position, padding or not
        ("RoFormerForMultipleChoice", {"summary_type": "first"}),
        ("RoFormerForMultipleChoice", {"summary_type": "mean"}),
        ("RoFormerModel", {"add_pooling_layer": True, "pooler_activation": "tanh"}),
    ],
)
def test_outputs_of_a_whole_text_are_the_same(head, fields, mask):
    batch = make_batch(mask)
    if head == "RoFormerForMultipleChoice":
        batch = {name: x[:, None] for name, x in batch.items()}
    outputs = []
    for unpad in (True, False):
        with torch.no_grad():
            model = small_model(head, **fields, unpad_inputs=unpad)
            outputs.append(model(**batch)["pooler_output" if head == "RoFormerModel" else "logits"])
    torch.testing.assert_close(*outputs, atol=2e-5, rtol=0)


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
