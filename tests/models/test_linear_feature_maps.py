"""Performer's random features, and what feature maps do with numbers that are hard to compute with."""

from itertools import pairwise

import pytest
import torch
from cases import FEATURE_MAPS, make_ids
from helpers.messages import refused
from helpers.small_models import small_config
from test_linear_attention import attention_of, fields_of, make_model, written_out
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

from modeling_roformer import RoFormerForMaskedLM, RoFormerModel


def make_attention(m, rotation, longest=3.0, **fields):
    """A model with so many features whose queries and keys are at most so long, and the same with softmax attention."""
    torch.manual_seed(0)
    ids, models = make_ids(1, 40), []
    for linear in (
        {},
        {"attention_type": "linear", "linear_feature_map": "favor", "linear_num_features": m, **rotation},
    ):
        model = RoFormerModel(small_config(num_hidden_layers=1, **linear, **fields)).eval()
        if models:
            model.load_state_dict(models[0].state_dict(), strict=False)
        models.append(model)
    with torch.no_grad():
        attention = models[0].encoder.layer[0].attention.self
        embeddings = models[0].embeddings(ids)
        for projection in (attention.query, attention.key):
            lengths = projection(embeddings).unflatten(-1, (-1, 16)).norm(dim=-1)
            projection.weight.mul_(longest / lengths.max())
            projection.bias.mul_(longest / lengths.max())
        models[1].load_state_dict(models[0].state_dict(), strict=False)
    return ids, *models


def error_of(m, rotation, seeds=4, **fields):
    """Return the error of favor's output against softmax attention's, over many draws, as a share of its size."""
    total = size = 0.0
    for seed in range(seeds):
        ids, softmax, favor = make_attention(m, rotation, linear_seed=seed, **fields)
        expected, found = attention_of(softmax, input_ids=ids)[1], attention_of(favor, input_ids=ids)[1]
        total, size = total + (found - expected).square().sum(), size + expected.square().sum()
    return (total / size).sqrt().item()


@pytest.mark.parametrize(
    ("rotation", "fields"),
    [
        ({"linear_rotation": "before"}, {}),
        ({}, {"position_encoding": "none"}),
        ({"linear_rotation": "before"}, {"is_decoder": True}),
    ],
)
def test_more_features_come_nearer_to_softmax_attention(rotation, fields):
    """By the square root of their number, as a mean of random numbers does."""
    errors = [error_of(m, rotation, **fields) for m in (16, 256, 4096)]
    assert errors[2] < 0.05
    assert 2 < errors[0] / errors[1] < 8 and 2 < errors[1] / errors[2] < 8


def test_rotated_after_the_map_they_do_not():
    errors = [error_of(m, {"linear_rotation": "after"}) for m in (16, 256, 4096)]
    assert min(errors) > 0.2 and errors[2] > 0.5 * errors[1]


def test_features_are_orthogonal_and_as_long_as_gaussian_vectors():
    model = make_model("favor", num_hidden_layers=2, linear_num_features=400)
    for layer in model.encoder.layer:
        blocks = layer.attention.self.feature_map.projection.double().unflatten(0, (-1, 16))
        products = blocks @ blocks.mT
        lengths = products.diagonal(dim1=-2, dim2=-1)
        assert (products - torch.diag_embed(lengths)).abs().max() < 1e-4
        assert lengths.mean() == pytest.approx(16, rel=0.1) and lengths.std() == pytest.approx(32**0.5, rel=0.2)
        assert blocks.mean().abs() < 0.05  # no side is preferred


def projections(model):
    return torch.stack([layer.attention.self.feature_map.projection for layer in model.base_model.encoder.layer])


def test_features_follow_from_the_seed_and_differ_from_layer_to_layer():
    first, again, other = (projections(make_model("favor", num_hidden_layers=2, linear_seed=s)) for s in (3, 3, 4))
    assert torch.equal(first, again) and not torch.isclose(first, other).any()
    assert not torch.isclose(first[0], first[1]).any()


def train_steps(model, steps, seed=0):
    """Projections after each of so many training steps."""
    ids, found = make_ids(2, 9, seed=seed), []
    for _ in range(steps):
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        found.append(projections(model).clone())
        update(model)
    return found


@torch.no_grad()
def update(model):
    """A step of gradient descent, by `.data`, as many optimizers make it: torch counts no change of the weight then."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.data -= 0.01 * parameter.grad


def test_features_are_redrawn_in_training(tmp_path):
    model = make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=3).train()
    before = projections(model).clone()
    steps = [before, *train_steps(model, 8)]
    changed = [not torch.equal(a, b) for a, b in pairwise(steps)]
    assert changed == [False, False, False, True, False, False, True, False]
    # Saved with the weights, and a model that goes on draws what one that was not stopped does.
    model.save_pretrained(tmp_path)
    loaded = RoFormerForMaskedLM.from_pretrained(tmp_path).train()
    assert torch.equal(projections(loaded), projections(model))
    for a, b in zip(train_steps(model, 5), train_steps(loaded, 5), strict=True):
        assert torch.equal(a, b)


def test_features_stay_where_nothing_is_trained():
    model = make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=1)
    before, ids = projections(model).clone(), make_ids(2, 9)
    model.eval()
    model(ids)
    with torch.no_grad():
        model.train()(ids)
    assert model.roformer.encoder.training_steps == 0
    never = make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=None).train()
    train_steps(never, 3)
    assert torch.equal(projections(model), before) and torch.equal(projections(never), before)


def test_gradient_checkpointing_computes_with_the_same_features():
    """And counts a step once, though the layers are computed twice."""
    models = [
        make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=2, hidden_dropout_prob=0.0) for _ in range(2)
    ]
    models[1].gradient_checkpointing_enable()
    for model in models:
        train_steps(model.train(), 4)
    assert torch.equal(projections(models[0]), projections(models[1]))
    for (name, a), b in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, msg=name)


def each_layer(model, wrapper):
    for i, layer in enumerate(model.encoder.layer):
        model.encoder.layer[i] = wrapper(layer)
    return model


def checkpointed(way):
    """A function that applies a model to embeddings under activation checkpointing of that kind, and the model
    prepared."""
    if way.startswith("whole"):
        return lambda model: model, lambda model, x: checkpoint(
            lambda x: model(inputs_embeds=x).last_hidden_state, x, use_reentrant=way == "whole, reentrant"
        )

    def prepare(model):
        if way.startswith("layers"):
            kind = CheckpointImpl.REENTRANT if way == "layers, reentrant" else CheckpointImpl.NO_REENTRANT
            return each_layer(model, lambda layer: checkpoint_wrapper(layer, checkpoint_impl=kind))
        if way.startswith("model's own"):
            model.gradient_checkpointing_enable({"use_reentrant": way == "model's own, reentrant"})
        return model

    return prepare, lambda model, x: model(inputs_embeds=x).last_hidden_state


WAYS = ["none", *(f"{what}{how}" for what in ("layers", "model's own", "whole") for how in ("", ", reentrant"))]


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_a_recomputed_layer_has_the_features_that_it_had(way, interval):
    """Two calls wait for one backward pass, as in contrastive learning: beside one that keeps everything, once the
    features have been drawn. They are drawn anew between steps, not within one."""
    model = make_model("favor", num_hidden_layers=2, linear_redraw_interval=interval, hidden_dropout_prob=0.0).train()
    prepare, apply = checkpointed(way)
    plain, model = model, prepare(model)
    draws = []
    for step in range(6):
        a, b = (
            model.embeddings.word_embeddings(make_ids(2, 9, seed=seed)).detach().requires_grad_() for seed in (step, 99)
        )
        model.zero_grad()
        first, second = apply(model, a), apply(model, b)
        (first * second).mean().backward()
        found = {name.replace("_checkpoint_wrapped_module.", ""): p.grad for name, p in model.named_parameters()}
        state = {name.replace("_checkpoint_wrapped_module.", ""): x for name, x in model.state_dict().items()}
        plain = make_model("favor", num_hidden_layers=2)
        plain.load_state_dict(state)
        (plain(inputs_embeds=a).last_hidden_state * plain(inputs_embeds=b).last_hidden_state).mean().backward()
        for name, parameter in plain.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(found[name], parameter.grad, atol=1e-7, rtol=1e-4, msg=name)
        draws.append(projections(plain).clone())
        update(model)
    assert sum(not torch.equal(a, b) for a, b in pairwise(draws)) >= 5 // interval


def test_features_stay_while_the_weights_do():
    """However many calls there are; and are redrawn at the first call after."""
    model = make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=2).train()
    before, ids = projections(model).clone(), make_ids(2, 9)
    for _ in range(5):
        model(ids, labels=ids).loss.backward()
    assert torch.equal(projections(model), before)
    update(model)
    model(ids)
    assert not torch.equal(projections(model), before)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_frozen_model_keeps_its_features(way):
    """In prompt tuning nothing of the model is trained, but gradients go through it to its input."""
    model = make_model("favor", linear_redraw_interval=1, hidden_dropout_prob=0.0).requires_grad_(False).train()
    prepare, apply = checkpointed(way)
    features, embeddings = projections(model).clone(), model.embeddings.word_embeddings(make_ids(2, 9))
    model, prompt = prepare(model), torch.zeros(32, requires_grad=True)
    (apply(model, embeddings + prompt) * apply(model, embeddings - 2 * prompt)).mean().backward()
    assert torch.equal(projections(model), features)
    other = torch.zeros(32, requires_grad=True)
    model = make_model("favor")
    (apply(model, embeddings + other) * apply(model, embeddings - 2 * other)).mean().backward()
    torch.testing.assert_close(prompt.grad, other.grad, atol=1e-7, rtol=1e-4)


def test_a_function_of_torch_func_draws_and_counts_nothing():
    model = make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=1, hidden_dropout_prob=0.0).train()
    train_steps(model, 2)
    buffers, ids = {name: x.clone() for name, x in model.named_buffers()}, make_ids(2, 9)
    weights = {name: x.detach() for name, x in model.named_parameters()}
    found = torch.func.grad(lambda p: torch.func.functional_call(model, p, (ids,), {"labels": ids}).loss)(weights)
    for name, x in model.named_buffers():
        assert torch.equal(x, buffers[name]), name
    model.eval().zero_grad()
    model(ids, labels=ids).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, msg=name)


def test_features_are_the_same_whatever_the_default_device():
    expected = projections(make_model("favor", num_hidden_layers=2))
    config = make_model("favor", num_hidden_layers=2).config
    with torch.device("meta"):
        model = RoFormerModel(config)
        drawn = model.encoder.layer[1].attention.self.feature_map.draw()
    assert torch.equal(drawn, expected[1])
    assert {x.device.type for x in model.state_dict().values()} == {"meta"}


def test_a_softmax_checkpoint_becomes_a_linear_one(tmp_path):
    """It has no weight that linear attention lacks; random features are drawn. Part of them missing is damage."""
    softmax = RoFormerModel(small_config())
    softmax.save_pretrained(tmp_path / "softmax")
    model = RoFormerModel.from_pretrained(tmp_path / "softmax", **fields_of("favor"))
    assert torch.equal(projections(model), projections(RoFormerModel(model.config)))
    for name, weight in softmax.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)
    state = model.state_dict()
    del state["encoder.layer.1.attention.self.feature_map.projection"]
    model.save_pretrained(tmp_path / "favor", state_dict=state)
    with refused(ValueError, "encoder.layer.1.attention.self.feature_map.projection", "output_loading_info=True"):
        RoFormerModel.from_pretrained(tmp_path / "favor")


# Numbers that are hard to compute with


def attend(name, q, k, v, **fields):
    """Self-attention of one head over given queries, keys and values of shape (s, d)."""
    config = small_config(hidden_size=16, num_attention_heads=1, **fields_of(name, **fields))
    attention = RoFormerModel(config).encoder.layer[0].attention.self
    q, k, v = (x.float()[None, :, None] for x in (q, k, v))
    return attention.attend_linearly(q, k, v, ())[0][0, :, 0]


@pytest.mark.parametrize("fields", [{}, {"is_decoder": True}])
def test_a_cosine_without_weights_is_zero_and_a_vector_without_length_weighs_one(fields):
    v = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    x = torch.randn(16, generator=torch.Generator().manual_seed(1)).expand(3, -1)
    q = x.clone().requires_grad_()
    found = attend("cosine", q, -2 * x, v, **fields)
    assert not found.any()
    found.sum().backward()
    assert q.grad.isfinite().all()
    q = torch.zeros(3, 16, requires_grad=True)
    found = attend("cosine", q, x, v, **fields)
    mean = v.cumsum(0) / torch.arange(1, 4)[:, None] if fields else v.mean(0).expand(3, -1)
    torch.testing.assert_close(found, mean)
    found.sum().backward()
    assert q.grad.isfinite().all()


@pytest.mark.parametrize("fields", [{}, {"is_decoder": True}])
@pytest.mark.parametrize("name", ["elu", "softmax", "favor"])
def test_large_and_small_numbers(name, fields):
    """Exponentials by themselves would overflow here, or sums of them vanish."""
    generator = torch.Generator().manual_seed(0)
    for size in (1e-6, 1e3, 1e4):
        q, k, v = (size * torch.randn(70, 16, generator=generator) for _ in range(3))
        q.requires_grad_()
        found = attend(name, q, k, v / size, **fields)
        assert found.isfinite().all()
        found.sum().backward()
        assert q.grad.isfinite().all()
    q, k = -40 + torch.randn(2, 70, 16, generator=generator)  # elu + 1 is e^-40 there
    found = attend(name, q, k, v / size, **fields)
    assert found.isfinite().all() and found.any(dim=-1).all()


@pytest.mark.parametrize("direction", [{}, {"is_decoder": True}])
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_bfloat16_on_long_texts(name, direction):
    """Its error against float32 does not grow with the length."""
    full = make_model(name, **direction, hidden_size=16, num_attention_heads=1, intermediate_size=16)
    half = make_model(name, **direction, hidden_size=16, num_attention_heads=1, intermediate_size=16).bfloat16()
    errors = []
    for length in (1024, 16_384):
        ids = make_ids(1, length)
        expected, found = (attention_of(model, input_ids=ids)[1].float() for model in (full, half))
        assert found.isfinite().all()
        errors.append((found - expected)[:, -512:].abs().mean().item())
    assert errors[1] <= 1.5 * errors[0]


@pytest.mark.parametrize("direction", [{}, {"is_decoder": True}], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_a_long_text_is_computed_in_parts(name, direction):
    """A part has fewer tokens the more texts there are: its sums go on in the next, and gradients come back."""
    model = make_model(name, **direction, hidden_size=16, num_attention_heads=1)
    ids = make_ids(1, 600)
    mask = torch.ones(1, 600, dtype=torch.long)
    mask[:, 300:580] = 0  # a whole part, among others
    hidden_states, found, _ = attention_of(model, input_ids=ids, attention_mask=mask)
    expected = written_out(model, hidden_states, name, "causal" if direction else "bidirectional", mask)
    assert (found - expected).abs().max() < 1e-5 * max(1, expected.abs().max())

    gradients = []
    for texts in (1, 4):
        model.zero_grad()
        output = model(ids.expand(texts, -1), attention_mask=mask.expand(texts, -1)).last_hidden_state
        output[..., :8].square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for one, four in zip(*gradients, strict=True):
        torch.testing.assert_close(four, one, atol=1e-6, rtol=1e-3)
