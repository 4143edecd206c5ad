"""Triplet matching: scores and losses against the formulas, the pipeline, and what is saved, here and elsewhere."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from helpers import hub_server
from helpers.messages import refused
from helpers.paths import SHARED, needs_shared
from helpers.properties import max_examples
from helpers.small_models import small_config, small_model
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from transformers import pipeline
from transformers.models.roformer.modeling_roformer import RoFormerModel as TheirModel
from transformers.pipelines.pt_utils import KeyDataset
from transformers.utils.generic import find_labels

from modeling_roformer import (
    AutoModelForTripletMatching,
    RoFormerConfig,
    RoFormerForMaskedLM,
    RoFormerForMultipleChoice,
    RoFormerForQuestionAnswering,
    RoFormerForTripletMatching,
    RoFormerTokenizer,
)
from modeling_roformer.hub import push
from modeling_roformer.hub.remote_code import files_with_code
from modeling_roformer.triplet_matching import TripletMatchingPipeline, encode_triplet

hub = hub_server.hub  # the fixture
REPO = "somebody/triplets"
CHARACTERS = "原告与被于年月日登记结婚借款合同纠纷民间贷离本院认为应予支持偿还利息元万。，"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS]
LOSSES = [("cross", "binary_cross_entropy"), ("cross", "softmax"), ("bi", "softmax"), ("bi", "margin")]
TRIPLET = {"A": "借款合同纠纷，应予偿还。", "B": "民间借贷纠纷", "C": "原告与被告于年月日登记结婚。"}
TRIPLETS = [
    TRIPLET,
    {"A": "离婚", "B": "本院认为应予支持", "C": "原告与被告登记结婚，离婚。" * 5},
    {"A": "利息" * 30, "B": "元", "C": "万元"},
]


def make_model(scorer="cross", **fields):
    fields = {"vocab_size": len(VOCABULARY), "triplet_scorer": scorer, "num_attention_heads": 4, **fields}
    model = small_model(RoFormerForTripletMatching, **fields)
    with torch.no_grad():  # weights of the size that training leaves, so that differences show
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        if scorer == "cross":
            model.scorer.weight.mul_(10)
    return model


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


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return RoFormerTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module", params=["cross", "bi"])
def folder(request, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    make_model(request.param).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def expected_answers(folder, tokenizer, triplets, max_length=1024):
    """Compute the pipeline's expected output with the model and the tokenizer alone."""
    model = RoFormerForTripletMatching.from_pretrained(folder).double()
    answers = []
    for triplet in triplets:
        a, b, c = (triplet[name] for name in "ABC")
        texts = [(a, b), (a, c)] if model.config.triplet_scorer == "cross" else [(a,), (b,), (c,)]
        encoded = [tokenizer(*text, truncation=True, max_length=max_length, return_tensors="pt") for text in texts]
        with torch.no_grad():
            vectors = [model.roformer(**one).last_hidden_state[0].mean(dim=0) for one in encoded]
            if len(vectors) == 2:
                for_b, for_c = (model.scorer(vector).item() for vector in vectors)
            else:
                for_b, for_c = (F.cosine_similarity(vectors[0], other, dim=0).item() / 0.05 for other in vectors[1:])
        score_of_b = 1 / (1 + np.exp(for_c - for_b))
        answers.append(("B", score_of_b) if score_of_b > 0.5 else ("C", 1 - score_of_b))
    return answers


def assert_answers(answers, expected, atol=2e-5):
    assert [answer["label"] for answer in answers] == [label for label, _ in expected]
    np.testing.assert_allclose([answer["score"] for answer in answers], [score for _, score in expected], atol=atol)
    assert all(set(answer) == {"label", "score"} and type(answer["score"]) is float for answer in answers)


# The model


@pytest.mark.parametrize("scorer", ["cross", "bi"])
@pytest.mark.parametrize("fields", [{}, {"embedding_size": 16}, {"norm_type": "rms_norm", "use_bias": False}])
def test_logits_are_those_of_the_formulas(scorer, fields):
    model, batch = make_model(scorer, **fields).double(), make_batch(texts_for(scorer))
    logits = model(**batch).logits
    assert logits.shape == (3, 2)
    np.testing.assert_allclose(logits.detach().numpy(), naive_logits(model, batch), atol=1e-9)


@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_padding_changes_nothing(scorer):
    model, batch = make_model(scorer).double(), make_batch(texts_for(scorer))
    logits = model(**batch).logits
    wider = {name: F.pad(value, (0, 9)) for name, value in batch.items()}
    torch.testing.assert_close(model(**wider).logits, logits, atol=1e-9, rtol=0)
    left = {name: F.pad(value, (9, 0)) for name, value in batch.items()}
    # Positions move on, and with them cos and sin, which are rounded to float32.
    torch.testing.assert_close(model(**left).logits, logits, atol=1e-6, rtol=0)
    for i in range(3):
        alone = model(**{name: value[i : i + 1] for name, value in batch.items()}).logits
        torch.testing.assert_close(alone[0], logits[i], atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_mean_of_a_long_text_stays_in_the_range_of_half_precision(dtype):
    model = make_model("bi", rope_parameters=None).to(dtype)
    batch = {"input_ids": torch.full((1, 3, 4096), 7), "attention_mask": torch.ones(1, 3, 4096)}
    with torch.no_grad():
        model.roformer.encoder.layer[-1].output.LayerNorm.bias.fill_(30.0)  # 4,096 of them are beyond float16
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
def test_gradients_reach_every_parameter_and_the_model_learns(scorer, loss):
    model = make_model(scorer, triplet_loss=loss, triplet_margin=1.5, hidden_dropout_prob=0.0).train()
    batch, labels = make_batch(texts_for(scorer)), torch.tensor([0, 1, 1])
    model(**batch, labels=labels).loss.backward()
    for name, parameter in model.named_parameters():
        # A bias of the logits cancels in the softmax over the two.
        if (name, loss) != ("scorer.bias", "softmax"):
            assert parameter.grad.abs().sum() > 0, name
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
    logits = model.eval()(**batch).logits
    assert logits.argmax(dim=-1).tolist() == labels.tolist()
    # Labels the other way round are worse: the loss has the right sign.
    assert model.triplet_loss(logits, labels) < model.triplet_loss(logits, 1 - labels)


@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_one_graph(scorer):
    model, batch = make_model(scorer), make_batch(texts_for(scorer))
    batch["labels"] = torch.tensor([0, 1, 1])
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits)


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
        ("cross", {"input_ids": torch.ones(0, 2, 11).long()}, ["input_ids", (0, 2, 11), "(batch, 2, length)"]),
        ("cross", {"input_ids": None}, ["either", "input_ids", "inputs_embeds"]),
        ("cross", {"input_ids": torch.ones(3, 2, 11)}, ["input_ids", "torch.float32"]),
        ("bi", {"input_ids": [[[1, 2], [3, 4], [5, 6]]]}, ["input_ids", "list", "tensor"]),
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


@pytest.mark.parametrize(("scorer", "text"), [("cross", "(A, C)"), ("bi", "B")])
def test_a_text_that_the_mask_hides_whole_is_refused(scorer, text):
    model, batch = make_model(scorer), make_batch(texts_for(scorer))
    batch["attention_mask"][2, 1] = 0
    with refused(ValueError, "attention_mask", text, 2):
        model(**batch)


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
        (["借款", " \n"], ["texts[1]", "empty"]),
        (["借款", None], ["texts[1]", "NoneType"]),
        (["借款", "\u200b"], ["texts[1]", "token"]),
        ("借款", ["texts", "list"]),
    ]:
        with refused(ValueError, *facts):
            model.encode(texts, tokenizer)
    with refused(ValueError, "batch_size", 0, 1):
        model.encode(["借款"], tokenizer, batch_size=0)
    with refused(ValueError, "max_length", 2, 5):
        model.encode(["借款"], tokenizer, max_length=2)
    with refused(ValueError, 'triplet_scorer="bi"', '"cross"'):
        make_model("cross").encode(["借款"], tokenizer)
    with refused(ValueError, "vector", "vectors", (8,), (5, 9)):
        model.rank(torch.ones(8), torch.ones(5, 9))
    with refused(ValueError, "top_k", 0, 1):
        model.rank(torch.ones(8), torch.ones(5, 8), top_k=0)
    with refused(ValueError, "top_k", 1.5, 1):
        model.rank(torch.ones(8), torch.ones(5, 8), top_k=1.5)
    with refused(ValueError, "vector", "finite"):
        model.rank(torch.full((8,), torch.nan), torch.ones(5, 8))
    damaged = torch.ones(5, 8)
    damaged[3, 2] = torch.nan
    with refused(ValueError, "vectors[3]", "finite"):
        model.rank(torch.ones(8), damaged)


# The pipeline


def test_the_pipeline_answers_as_computed_by_hand(folder, tokenizer):
    match = pipeline("triplet-matching", model=str(folder))
    assert type(match) is TripletMatchingPipeline and type(match.model) is RoFormerForTripletMatching
    expected = expected_answers(folder, tokenizer, TRIPLETS)
    assert_answers([match(triplet) for triplet in TRIPLETS], expected)
    assert_answers(match(TRIPLETS), expected)
    assert match([]) == []
    # The other way round, the label changes and the score stays.
    turned = [{"A": t["A"], "B": t["C"], "C": t["B"]} for t in TRIPLETS]
    assert_answers(match(turned), [("C" if label == "B" else "B", score) for label, score in expected])


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_lists_generators_and_datasets_in_batches(folder, tokenizer, batch_size):
    match = pipeline("triplet-matching", model=str(folder), batch_size=batch_size)
    rows = [{**triplet, "label": "B", "number": i} for i, triplet in enumerate(TRIPLETS)]  # as data sets have them
    expected = expected_answers(folder, tokenizer, rows)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, i):
            return rows[i]

    assert_answers(match(rows), expected)
    assert_answers(list(match(row for row in rows)), expected)
    assert_answers(list(match(Rows())), expected)
    assert_answers(list(match(KeyDataset([{"triplet": row} for row in rows], "triplet"))), expected)


def test_padding_on_the_left_is_not_the_pipelines_way(folder):
    """Values are rotated too here, so positions matter, and not only their differences."""
    config = RoFormerConfig.from_pretrained(folder, rotary_value=True)
    model = RoFormerForTripletMatching.from_pretrained(folder, config=config)
    left = RoFormerTokenizer.from_pretrained(folder, padding_side="left")
    match = TripletMatchingPipeline(model=model, tokenizer=left)
    alone = [match(triplet) for triplet in TRIPLETS]
    assert_answers(match(TRIPLETS, batch_size=3), [(one["label"], one["score"]) for one in alone])


def test_long_texts_are_cut(folder, tokenizer):
    match = pipeline("triplet-matching", model=str(folder))
    rng = np.random.default_rng(0)
    long = {name: "".join(rng.choice(list(CHARACTERS), 1500)) for name in "ABC"}
    assert_answers([match(long)], expected_answers(folder, tokenizer, [long]), atol=1e-4)
    (short,) = expected_answers(folder, tokenizer, [long], max_length=40)
    assert_answers([match(long, max_length=40)], [short])
    assert abs(short[1] - match(long)["score"]) > 1e-3
    limited = RoFormerTokenizer.from_pretrained(folder, model_max_length=40)
    assert_answers([pipeline("triplet-matching", model=str(folder), tokenizer=limited)(long)], [short])
    assert_answers([pipeline("triplet-matching", model=str(folder), max_length=40)(long)], [short])


@max_examples(50)
@given(lengths=st.tuples(*[st.integers(1, 40)] * 3), max_length=st.integers(5, 50))
def test_pairs_are_cut_longest_first(tokenizer, lengths, max_length):
    triplet = {name: character * length for name, character, length in zip("ABC", "借款合", lengths, strict=True)}
    encoded = encode_triplet(tokenizer, triplet, "cross", max_length)
    for ids, segments, other in zip(encoded["input_ids"], encoded["token_type_ids"], lengths[1:], strict=True):
        first, second = lengths[0], other
        while first + second > max_length - 3:  # one token after the other from the longer text
            if first > second:
                first -= 1
            else:
                second -= 1
        kept = (segments.count(0) - 2, segments.count(1) - 1)
        assert len(ids) == sum(kept) + 3
        if abs(first - second) > 1:
            assert kept == (first, second)
        else:  # which of two equally long texts gives the odd token, implementations decide differently
            assert sorted(kept) == sorted((first, second))
    alone = encode_triplet(tokenizer, triplet, "bi", max_length)
    assert [len(ids) for ids in alone["input_ids"]] == [min(length + 2, max_length) for length in lengths]


@pytest.mark.parametrize(
    ("triplet", "facts"),
    [
        ({"A": "借款", "B": "", "C": "合同"}, ['"B"', "empty"]),
        ({"A": " \n", "B": "借款", "C": "合同"}, ['"A"', "empty"]),
        ({"A": "借款", "B": "合同", "C": "\u200b"}, ['"C"', "token"]),
        ({"A": "借款", "B": None, "C": "合同"}, ['"B"', "NoneType"]),
        ({"A": "借款", "B": "合同"}, ["dict", '"A"', '"B"', '"C"']),
        ("借款", ["dict", '"A"', '"B"', '"C"']),
    ],
)
def test_what_is_no_triplet_is_refused(folder, triplet, facts):
    match = pipeline("triplet-matching", model=str(folder))
    for inputs in (triplet, [TRIPLET, triplet]):
        with refused(ValueError, *facts):
            match(inputs)
    with refused(ValueError, "max_length", 4, 5):
        match(TRIPLET, max_length=4)
    for max_length in ("x", "40", 40.0, True):
        with refused(ValueError, "max_length", repr(max_length)):
            match(TRIPLET, max_length=max_length)
        with refused(ValueError, "max_length", repr(max_length)):
            encode_triplet(match.tokenizer, TRIPLET, "bi", max_length)
    assert match(TRIPLET, max_length=np.int64(40)) == match(TRIPLET, max_length=40)


def test_another_head_is_refused(tokenizer):
    model = RoFormerForMaskedLM(small_config(vocab_size=len(VOCABULARY)))
    with refused(ValueError, "RoFormerForMaskedLM", "AutoModelForTripletMatching"):
        pipeline("triplet-matching", model=model, tokenizer=tokenizer)


# On disk


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


def test_no_other_head_takes_the_scorer_for_its_own(tmp_path):
    make_model("cross").save_pretrained(tmp_path)
    _, report = RoFormerForMultipleChoice.from_pretrained(tmp_path, output_loading_info=True)
    assert {"classifier.weight", "classifier.bias"} <= set(report["missing_keys"])


def test_a_pipeline_comes_back_with_the_package_and_nobody_is_asked(folder, tmp_path, monkeypatch):
    match = pipeline("triplet-matching", model=str(folder))
    answers = match(TRIPLETS)
    match.save_pretrained(tmp_path / "saved")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked whether to run the code"))
    for trust in ({}, {"trust_remote_code": False}, {"trust_remote_code": True}):
        again = pipeline("triplet-matching", model=str(tmp_path / "saved"), **trust)
        assert type(again) is TripletMatchingPipeline and type(again.model) is RoFormerForTripletMatching
        assert again(TRIPLETS) == answers
    assert not list((tmp_path / "saved").glob("*.part"))
    with refused(ValueError, "save_pretrained", "push_to_hub"):
        match.save_pretrained(tmp_path / "other", push_to_hub=True)
    assert not (tmp_path / "other").exists()


def test_so_does_a_pipeline_that_transformers_saves_by_itself(tokenizer, tmp_path):
    model = RoFormerForQuestionAnswering(small_config(vocab_size=len(VOCABULARY))).eval()
    answer = pipeline("extractive-question-answering", model=model, tokenizer=tokenizer)
    answer.save_pretrained(tmp_path)
    again = pipeline("extractive-question-answering", model=str(tmp_path))
    asked = {"question": "借款", "context": "原告与被告于年月日登记结婚"}
    assert type(again) is type(answer) and again(asked) == answer(asked)


def test_only_models_for_triplets_carry_the_pipeline(folder, tokenizer, tmp_path):
    files = files_with_code(folder)
    config = json.loads(files["config.json"])
    (info,) = config["custom_pipelines"].values()
    assert f"class {info['impl'].partition('.')[2]}(".encode() in files[f"{info['impl'].partition('.')[0]}.py"]
    RoFormerForMaskedLM(small_config(vocab_size=len(VOCABULARY))).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    files = files_with_code(tmp_path)
    assert "custom_pipelines" not in json.loads(files["config.json"])


@pytest.mark.slow
def test_with_code_only_it_loads_saves_and_loads_again(hub, folder, tmp_path):
    """On a machine without this package: from a folder and from the Hub."""
    match = pipeline("triplet-matching", model=str(folder))
    match.save_pretrained(tmp_path / "saved")
    push(folder, REPO, with_code=True)
    script = textwrap.dedent(
        """
        import json, sys

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "modeling_roformer":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Absent())
        from transformers import pipeline

        _, saved, repo, again, triplets, results = sys.argv
        triplets, answers = json.loads(triplets), {}
        for place in (saved, repo):
            match = pipeline("triplet-matching", model=place, trust_remote_code=True)
            answers[place] = match(triplets, batch_size=2)
            for thing in (match, match.model, match.tokenizer, match.model.config):
                assert type(thing).__module__.startswith("transformers_modules."), type(thing)
        pipeline("triplet-matching", model=saved, trust_remote_code=True).save_pretrained(again)
        answers[again] = pipeline("triplet-matching", model=again, trust_remote_code=True)(triplets)
        try:
            pipeline("triplet-matching", model=saved)
        except ValueError as error:
            assert "trust_remote_code" in str(error)
        else:
            raise AssertionError("ran the code unasked")
        assert "modeling_roformer" not in sys.modules
        with open(results, "w") as file:
            json.dump(answers, file)
        """
    )
    arguments = [tmp_path / "saved", REPO, tmp_path / "again", json.dumps(TRIPLETS), tmp_path / "results.json"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=hub.environment | {"OMP_NUM_THREADS": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")},
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    expected = [(answer["label"], answer["score"]) for answer in match(TRIPLETS)]
    answers = json.loads((tmp_path / "results.json").read_text())
    assert len(answers) == 3
    for found in answers.values():
        assert_answers(found, expected)
    # What was saved without the package is read with it.
    assert_answers(pipeline("triplet-matching", model=str(tmp_path / "again"))(TRIPLETS), expected)


@needs_shared
@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_court_cases(scorer, tmp_path):
    """Triplets of CAIL2019-SCM, each of some thousand characters."""
    lines = (SHARED / "cail2019_scm" / "dev.jsonl").read_text(encoding="utf-8").split("\n")[:4]
    rows = [json.loads(line) for line in lines]
    characters = sorted({c for row in rows for name in "ABC" for c in row[name].lower() if not c.isspace()})
    (tmp_path / "vocab.txt").write_text("\n".join([*VOCABULARY[:5], *characters]) + "\n", encoding="utf-8")
    tokenizer = RoFormerTokenizer.from_pretrained(tmp_path)
    model = make_model(scorer, vocab_size=len(characters) + 5)
    match = TripletMatchingPipeline(model=model, tokenizer=tokenizer)
    model.save_pretrained(tmp_path)
    expected = expected_answers(tmp_path, tokenizer, rows)
    assert_answers(match(rows, batch_size=4), expected, atol=1e-4)
