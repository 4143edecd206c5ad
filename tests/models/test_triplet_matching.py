"""Triplet matching: scores and losses against the formulas, and what is saved."""

import numpy as np
import pytest
import torch
from helpers import triplets
from helpers.messages import refused
from helpers.properties import max_examples
from helpers.triplets import LOSSES, TRIPLET, TRIPLETS, VOCABULARY, make_model
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from transformers.models.roformer.modeling_roformer import RoFormerModel as TheirModel
from transformers.utils.generic import find_labels

from modeling_roformer import AutoModelForTripletMatching, RoFormerForTripletMatching

REPO = "somebody/triplets"
tokenizer, folder = triplets.tokenizer, triplets.folder  # the fixtures


def make_batch(n, b=3, s=11):
    """Texts of different lengths, with padding on the right."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, s + 1, (b, n), generator=generator)
    lengths[0, 0] = s
    mask = (torch.arange(s) < lengths[..., None]).long()
    ids = torch.randint(5, len(VOCABULARY), (b, n, s), generator=generator) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (torch.arange(s) >= 2).long() * mask}


def texts_for(scorer):
    return 2 if scorer == "cross" else 3


def naive_logits(model, batch):
    """One text after the other, without padding, and the formulas written out."""
    rows = []
    for ids, mask, segments in zip(*batch.values(), strict=True):
        vectors = []
        for i in range(len(ids)):
            keep = mask[i].bool()
            states = model.roformer(ids[i][keep][None], token_type_ids=segments[i][keep][None]).last_hidden_state[0]
            vectors.append(states.detach().numpy().sum(axis=0) / int(keep.sum()))
        if model.config.triplet_scorer == "cross":
            weight, bias = model.scorer.weight.detach().numpy()[0], model.scorer.bias.item()
            rows.append([vector @ weight + bias for vector in vectors])
        else:
            a, *others = (vector / np.sqrt((vector**2).sum()) for vector in vectors)
            rows.append([a @ other / model.config.triplet_temperature for other in others])
    return np.array(rows)


def naive_loss(kind, logits, labels, temperature, margin):
    losses = []
    for (for_b, for_c), label in zip(logits, labels, strict=True):
        closer, further = (for_b, for_c) if label == 0 else (for_c, for_b)
        if kind == "softmax":
            losses.append(np.log(1 + np.exp(further - closer)))
        elif kind == "binary_cross_entropy":  # of the original script: target 1 for the closer pair, 0 for the other
            losses += [np.log(1 + np.exp(-closer)), np.log(1 + np.exp(further))]
        else:
            losses.append(max(0.0, margin + further * temperature - closer * temperature))
    return np.mean(losses)


@pytest.mark.parametrize("fields", [{}, {"embedding_size": 16}, {"norm_type": "rms_norm", "use_bias": False}])
@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_logits_are_those_of_the_formulas(scorer, fields):
    model, batch = make_model(scorer, **fields).double(), make_batch(texts_for(scorer))
    logits = model(**batch).logits
    assert logits.shape == (3, 2)
    expected = naive_logits(model, batch)
    np.testing.assert_allclose(logits.detach().numpy(), expected, atol=1e-9)
    left = {name: F.pad(value, (9, 0)) for name, value in batch.items()}
    # Positions move on, and with them cos and sin, which are rounded to float32.
    np.testing.assert_allclose(model(**left).logits.detach().numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_a_row_of_padding_alone_gives_no_nan(scorer):
    """One NaN in a batch would make all weights NaN."""
    model, batch = make_model(scorer), make_batch(texts_for(scorer))
    expected = model(**batch).logits
    batch["attention_mask"][0, -1] = 0
    batch["labels"] = torch.tensor([0, 1, 0])
    outputs = model(**batch)
    outputs.loss.backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())
    torch.testing.assert_close(outputs.logits[1:], expected[1:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_mean_of_a_long_text_stays_in_the_range_of_half_precision(dtype):
    model = make_model("bi", rope_parameters=None).to(dtype)
    batch = {"input_ids": torch.full((1, 3, 2304), 7), "attention_mask": torch.ones(1, 3, 2304)}
    with torch.no_grad():
        model.roformer.encoder.layer[-1].output.LayerNorm.bias.fill_(30.0)  # 2,304 of them are beyond float16
        logits = model(**batch).logits
    assert torch.isfinite(logits).all()


@torch.no_grad()
def test_cosines_of_half_precision_are_no_ties():
    """The vectors are rounded; their cosines are not, which differ by less than bfloat16 tells apart."""
    model = make_model("bi").bfloat16()
    model.roformer.encoder.layer[-1].output.LayerNorm.bias.fill_(5.0)  # all texts point the same way
    batch = {"input_ids": torch.randint(5, 43, (64, 3, 9), generator=torch.Generator().manual_seed(0))}
    logits = model(**batch, attention_mask=torch.ones(64, 3, 9)).logits
    cosines = logits * model.config.triplet_temperature
    assert (cosines.bfloat16()[:, 0] == cosines.bfloat16()[:, 1]).sum() > 10
    assert logits.dtype == torch.float32 and (logits[:, 0] == logits[:, 1]).sum() == 0


@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_embeddings_in_place_of_ids_and_positions_given(scorer):
    model, batch = make_model(scorer), make_batch(texts_for(scorer))
    logits = model(**batch).logits
    embeds = model.get_input_embeddings()(batch.pop("input_ids"))
    positions = torch.arange(11).expand(*batch["attention_mask"].shape) + 5
    torch.testing.assert_close(
        model(inputs_embeds=embeds, position_ids=positions, **batch).logits, logits, atol=1e-4, rtol=0
    )


@max_examples(40)
@given(
    kind=st.sampled_from(LOSSES),
    logits=st.lists(st.tuples(*[st.floats(-20, 20)] * 2), min_size=1, max_size=5),
    data=st.data(),
)
def test_losses_are_those_of_the_formulas(kind, logits, data):
    scorer, loss = kind
    labels = data.draw(st.lists(st.integers(0, 1), min_size=len(logits), max_size=len(logits)))
    temperature, margin = data.draw(st.floats(0.01, 2)), data.draw(st.floats(0.01, 1))
    model = make_model(
        scorer, triplet_loss=loss, triplet_temperature=temperature, triplet_margin=margin, num_hidden_layers=1
    )
    value = model.triplet_loss(torch.tensor(logits, dtype=torch.float64), torch.tensor(labels))
    assert value.item() == pytest.approx(naive_loss(loss, logits, labels, temperature, margin), abs=1e-9)


@pytest.mark.parametrize(("scorer", "default"), [("cross", "binary_cross_entropy"), ("bi", "softmax")])
def test_the_loss_of_a_batch_is_the_scorers_default(scorer, default):
    model, batch = make_model(scorer).double(), make_batch(texts_for(scorer))
    output = model(**batch, labels=torch.tensor([0, 1, 1]))
    expected = naive_loss(default, output.logits.tolist(), [0, 1, 1], 0.05, 0.2)
    assert output.loss.item() == pytest.approx(expected, abs=1e-9)
    assert list(output.keys())[:2] == ["loss", "logits"]
    assert find_labels(type(model)) == ["labels"]  # what transformers' Trainer looks for
    loss, logits = model(**batch, labels=torch.tensor([0, 1, 1]), return_dict=False)
    assert torch.equal(loss, output.loss) and torch.equal(logits, output.logits)


@pytest.mark.parametrize(("scorer", "loss"), LOSSES)
def test_gradients_reach_every_parameter(scorer, loss):
    model = make_model(scorer, triplet_loss=loss, triplet_margin=1.5, hidden_dropout_prob=0.0).train()
    batch, labels = make_batch(texts_for(scorer)), torch.tensor([0, 1, 1])
    model(**batch, labels=labels).loss.backward()
    for name, parameter in model.named_parameters():
        # A bias of the logits cancels in the softmax over the two.
        if (name, loss) != ("scorer.bias", "softmax"):
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("scorer", "changes", "facts"),
    [
        (
            "cross",
            {"input_ids": torch.ones(3, 3, 11).long()},
            ["input_ids", (3, 3, 11), "'cross'", "(batch, 2, length)"],
        ),
        ("bi", {"input_ids": torch.ones(3, 2, 11).long()}, ["input_ids", (3, 2, 11), "'bi'", "(batch, 3, length)"]),
        ("cross", {"input_ids": torch.ones(3, 11).long()}, ["input_ids", (3, 11), "(batch, 2, length)"]),
        ("cross", {"input_ids": None}, ["exactly one", "input_ids", "inputs_embeds"]),
        (
            "cross",
            {"input_ids": None, "inputs_embeds": torch.ones(3, 2, 11)},
            ["inputs_embeds", (3, 2, 11), "(batch, 2, length, embedding_size)"],
        ),
        ("cross", {"attention_mask": torch.ones(3, 11)}, ["attention_mask", (3, 11), (3, 2, 11)]),
        ("bi", {"token_type_ids": torch.ones(3, 3, 10)}, ["token_type_ids", (3, 3, 10), (3, 3, 11)]),
        ("cross", {"position_ids": torch.ones(1, 11)}, ["position_ids", (1, 11), (3, 2, 11)]),
        ("cross", {"labels": torch.tensor([0, 1, 2])}, ["labels", 2, 0, 1]),
        ("cross", {"labels": torch.tensor([0, -100, 1])}, ["labels", -100, 0, 1]),
        ("cross", {"labels": torch.tensor([0, 1])}, ["labels", "torch.int64", (2,), (3,)]),
        ("cross", {"labels": torch.tensor([0.0, 1.0, 1.0])}, ["labels", "torch.float32", (3,)]),
        ("bi", {"labels": torch.tensor([[0], [1], [1]])}, ["labels", "torch.int64", (3, 1), (3,)]),
    ],
)
def test_bad_input_is_refused_before_anything_is_computed(scorer, changes, facts, monkeypatch):
    model = make_model(scorer)
    monkeypatch.setattr(model.roformer, "forward", lambda *_, **__: pytest.fail("computed"))
    with refused(ValueError, *facts):
        model(**{**make_batch(texts_for(scorer)), **changes})


# Ranking


def test_encode_gives_the_vectors_in_order(tokenizer):
    model = make_model("bi", hidden_dropout_prob=0.5).train()
    texts = [triplet[name] for triplet in TRIPLETS for name in "ABC"]
    vectors = model.encode(texts, tokenizer, batch_size=4)
    assert model.training  # and yet no dropout
    assert vectors.dtype == torch.float32 and not vectors.requires_grad
    model.eval()
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            expected = model.roformer(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
        torch.testing.assert_close(vector, expected / expected.norm(), atol=1e-5, rtol=0)
    assert model.encode([], tokenizer).shape == (0, 32)


def test_texts_of_like_length_share_a_batch(tokenizer):
    model, computed = make_model("bi"), []
    model.roformer.embeddings.register_forward_hook(lambda module, inputs, output: computed.append(output.shape[:2]))
    model.encode(["元", "利息" * 20] * 4, tokenizer, batch_size=2)
    assert sorted(computed) == [(2, 3)] * 2 + [(2, 42)] * 2


def test_rank_agrees_with_the_logits_of_triplets(tokenizer):
    model = make_model("bi", triplet_temperature=0.5)
    encoded = tokenizer([TRIPLET[name] for name in "ABC"], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**{name: value[None] for name, value in encoded.items()}).logits[0]
    a, *others = model.encode([TRIPLET[name] for name in "ABC"], tokenizer)
    values, indices = model.rank(a, torch.stack(others))
    torch.testing.assert_close(values, logits.sort(descending=True).values * 0.5, atol=1e-5, rtol=0)
    assert indices.tolist() == logits.argsort(descending=True).tolist()


def test_rank_finds_the_closest():
    vectors = F.normalize(torch.randn(50, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    values, indices = RoFormerForTripletMatching.rank(vectors[17], vectors, top_k=3)
    cosines = (vectors.double() @ vectors[17].double()).numpy()
    assert indices.tolist() == np.argsort(-cosines)[:3].tolist() and indices[0] == 17
    np.testing.assert_allclose(values, np.sort(cosines)[::-1][:3], atol=1e-6)
    assert len(RoFormerForTripletMatching.rank(vectors[0], vectors, top_k=100)[0]) == 50


@pytest.mark.parametrize("width", [24, 100, 256, 768])
def test_equal_vectors_rank_in_the_order_of_their_texts(width):
    """However many there are: a product in float32 differs by where a row lies."""
    query, near, far = F.normalize(torch.randn(3, width, generator=torch.Generator().manual_seed(width)), dim=-1)
    if query @ near < query @ far:
        near, far = far, near
    for n in (2, 7, 100, 1001):
        vectors = torch.stack([near if i % 3 else far for i in range(n)])
        values, indices = RoFormerForTripletMatching.rank(query, vectors)
        assert indices.tolist() == [i for i in range(n) if i % 3] + [i for i in range(n) if not i % 3]
        assert len(values.unique()) == 2
        assert RoFormerForTripletMatching.rank(query, vectors, top_k=3)[1].tolist() == indices[:3].tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rank_takes_queries_of_any_floating_type(dtype):
    query, vectors = torch.eye(5)[2].to(dtype), torch.eye(5)[[0, 2, 3]]
    for a, b in ((query, vectors), (query.float(), vectors.to(dtype)), (query, vectors.to(dtype))):
        values, indices = RoFormerForTripletMatching.rank(a, b, top_k=2)
        assert indices.tolist() == [1, 0] and values.tolist() == [1, 0] and values.dtype.itemsize >= 4


def test_a_progress_bar_where_it_takes_long(tokenizer, capsys):
    model = make_model("bi")
    model.encode(["借款"] * 20, tokenizer, batch_size=1)
    assert not capsys.readouterr().err
    model.encode(["借款"] * 21, tokenizer, batch_size=1)
    assert "21/21" in capsys.readouterr().err
    model.encode(["借款"] * 21, tokenizer, batch_size=1, progress=False)
    assert not capsys.readouterr().err


def test_texts_that_cannot_be_encoded_are_named(tokenizer):
    model = make_model("bi")
    for texts, facts in [
        (["借款", " \n"], ["texts[1]", "token"]),
        (["借款", "\u200b"], ["texts[1]", "token"]),
        ("借款", ["texts", "list"]),
    ]:
        with refused(ValueError, *facts):
            model.encode(texts, tokenizer)
    with refused(ValueError, 'triplet_scorer="bi"', '"cross"'):
        make_model("cross").encode(["借款"], tokenizer)


def test_rank_refuses_numbers_that_are_not_finite():
    rank = RoFormerForTripletMatching.rank
    with refused(ValueError, "vector", "finite"):
        rank(torch.full((8,), torch.nan), torch.ones(5, 8))
    damaged = torch.ones(5, 8)
    damaged[3, 2] = torch.nan
    with refused(ValueError, "vectors[3]", "finite"):
        rank(torch.ones(8), damaged)


def test_the_model_comes_back_whole(folder):
    model, report = AutoModelForTripletMatching.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    written = make_model(model.config.triplet_scorer)
    assert type(model) is RoFormerForTripletMatching
    state = written.state_dict()
    assert set(state) == set(model.state_dict())
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_the_encoder_goes_to_transformers_and_back(folder, tmp_path):
    model, batch = RoFormerForTripletMatching.from_pretrained(folder), make_batch(1)
    batch = {name: value[:, 0] for name, value in batch.items()}
    theirs = TheirModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = model.roformer(**batch).last_hidden_state
        mask = batch["attention_mask"].bool()
        torch.testing.assert_close(theirs(**batch).last_hidden_state[mask], expected[mask], atol=5e-5, rtol=0)
    theirs.save_pretrained(tmp_path)
    again = AutoModelForTripletMatching.from_pretrained(tmp_path, triplet_scorer=model.config.triplet_scorer)
    state = model.roformer.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in again.roformer.state_dict().items())
