"""examples/paper/position_laboratory: each encoding against its equation, written out, and the script."""

import json
import math
import re
import statistics

import pytest
import torch
from encoder import Encoder, SelfAttention, Sizes
from helpers.messages import assert_states
from helpers.properties import max_examples
from helpers.script_process import run
from hypothesis import given
from hypothesis import strategies as st
from position_encodings import ENCODINGS

SCRIPT = "paper/position_laboratory/compare.py"
D, HEADS = 6, 2  # width of a head, how many
SIZES = Sizes(vocabulary=20, layers=2, width=D * HEADS, heads=HEADS, length=24)
RELATIVE = ["shaw", "transformer_xl", "t5", "deberta", "alibi", "rotary"]
ENDING = ["learned", "tupe"]
NEAR = [0, 1, 2, 4, 7, 12, 23]  # 23 is more than Shaw's 16
FAR = [0, 7, 14, 28, 49, 84, 161]  # 161 is more than T5's 128, and than DeBERTa's 23


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """In float64, with every parameter at random, those that start at 0 as well."""
    for parameter in module.double().parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


# The equations, for one head, one query at m and one key at n; `e` is the encoding and holds what it has learned.


def dot(a, b, head):
    return sum(float(a[i]) * float(b[i]) for i in range(head * D, (head + 1) * D))


def sinusoid(position):
    """Equation 4."""
    p = []
    for t in range(D * HEADS // 2):
        angle = position / 10000 ** (2 * t / (D * HEADS))
        p += [math.sin(angle), math.cos(angle)]
    return torch.tensor(p, dtype=torch.float64)


def clip(distance, furthest):
    return max(-furthest, min(furthest, distance)) + furthest


def t5_range(offset):
    """To either side 0 to 7 by themselves; then 8 ranges, each √2 times as far as the one before, as 8·√2^8 = 128."""
    far = abs(offset)
    number = far if far < 8 else min(15, 8 + (far * far // 64).bit_length() - 1)
    return number + (16 if offset > 0 else 0)


def t5_number(e, m, n, head):
    """b_{m,n}, which is added to what has been divided by √d already."""
    return float(e.b.weight[t5_range(n - m), head]) * math.sqrt(D)


def equation_7(e, w_q, w_k, x_m, x_n, m, n, head):
    relative_key = e.key.weight @ sinusoid(m - n)
    return (
        dot(w_q @ x_m, w_k @ x_n, head)
        + dot(w_q @ x_m, relative_key, head)
        + dot(w_q @ e.u, w_k @ x_n, head)
        + dot(w_q @ e.v, relative_key, head)
    )


def equation_9(e, w_q, w_k, x_m, x_n, m, n, head):
    of_positions = dot(e.query.weight @ e.p.weight[m], e.key.weight @ e.p.weight[n], head)
    return dot(w_q @ x_m, w_k @ x_n, head) + of_positions + t5_number(e, m, n, head)


def equation_10(e, w_q, w_k, x_m, x_n, m, n, head):
    p = e.p.weight[clip(m - n, SIZES.length - 1)]
    return dot(w_q @ x_m, w_k @ x_n, head) + dot(w_q @ x_m, w_k @ p, head) + dot(w_q @ p, w_k @ x_n, head)


def equation_16(e, w_q, w_k, x_m, x_n, m, n, head):
    turned = (w_k @ x_n).clone()
    for pair in range(D * HEADS // 2):
        angle = (n - m) / 10000 ** (2 * (pair % (D // 2)) / D)
        first, second = float(turned[2 * pair]), float(turned[2 * pair + 1])
        turned[2 * pair] = math.cos(angle) * first - math.sin(angle) * second
        turned[2 * pair + 1] = math.sin(angle) * first + math.cos(angle) * second
    return dot(w_q @ x_m, turned, head)


def alibi(e, w_q, w_k, x_m, x_n, m, n, head):
    return dot(w_q @ x_m, w_k @ x_n, head) - 2 ** (-8 * (head + 1) / HEADS) * abs(m - n) * math.sqrt(D)


SCORES = {
    "none": lambda e, w_q, w_k, x_m, x_n, m, n, head: dot(w_q @ x_m, w_k @ x_n, head),
    "sinusoidal": lambda e, w_q, w_k, x_m, x_n, m, n, head: dot(
        w_q @ (x_m + sinusoid(m)), w_k @ (x_n + sinusoid(n)), head
    ),
    "learned": lambda e, w_q, w_k, x_m, x_n, m, n, head: dot(
        w_q @ (x_m + e.p.weight[m]), w_k @ (x_n + e.p.weight[n]), head
    ),
    "shaw": lambda e, w_q, w_k, x_m, x_n, m, n, head: dot(w_q @ x_m, w_k @ (x_n + e.p_k.weight[clip(m - n, 16)]), head),
    "transformer_xl": equation_7,
    "t5": lambda e, w_q, w_k, x_m, x_n, m, n, head: dot(w_q @ x_m, w_k @ x_n, head) + t5_number(e, m, n, head),
    "tupe": equation_9,
    "deberta": equation_10,
    "alibi": alibi,
    "rotary": equation_16,
}
# What a key's x_n becomes before W_v, where that is not x_n.
VALUES = {
    "sinusoidal": lambda e, x_n, m, n: x_n + sinusoid(n),
    "learned": lambda e, x_n, m, n: x_n + e.p.weight[n],
    "shaw": lambda e, x_n, m, n: x_n + e.p_v.weight[clip(m - n, 16)],
}


@pytest.mark.parametrize(
    ("name", "positions"),
    [(name, NEAR) for name in ENCODINGS] + [(name, FAR) for name in ENCODINGS if name not in ENDING],
)
@torch.no_grad()
def test_scores_and_outputs_are_those_of_the_equation(name, positions):
    assert SCORES.keys() == ENCODINGS.keys()
    layer, encoding = randomised(SelfAttention(SIZES)), randomised(ENCODINGS[name](SIZES))
    x = torch.randn(len(positions), SIZES.width, dtype=torch.float64)
    w_q, w_k, w_v = (linear.weight for linear in (layer.query, layer.key, layer.value))
    at = torch.tensor(positions)
    embedded = encoding.embeddings(x[None], at)
    scores = layer.scores(embedded, encoding, at)[0]  # (h, s, s)
    outputs = layer(embedded, encoding, at)[0]  # (s, w)
    for i, m in enumerate(positions):
        summed = []
        for head in range(HEADS):
            expected = [
                SCORES[name](encoding, w_q, w_k, x[i], x[j], m, n, head) / math.sqrt(D) for j, n in enumerate(positions)
            ]
            assert scores[head, i].tolist() == pytest.approx(expected, abs=1e-5)
            weights = [math.exp(score - max(expected)) for score in expected]
            mean = torch.zeros(D, dtype=torch.float64)
            for weight, x_n, n in zip(weights, x, positions, strict=True):
                value = w_v @ VALUES.get(name, lambda e, x_n, m, n: x_n)(encoding, x_n, m, n)
                mean += weight / sum(weights) * value[head * D : (head + 1) * D]
            summed.append(mean)
        expected = layer.output.weight @ torch.cat(summed) + layer.output.bias
        assert outputs[i].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", RELATIVE)
@max_examples(10)
@given(shift=st.integers(min_value=0, max_value=100_000), length=st.integers(min_value=1, max_value=40))
@torch.no_grad()
def test_relative_positions_are_distances_alone(name, shift, length):
    model = randomised(Encoder(SIZES, ENCODINGS[name]))
    ids = torch.randint(SIZES.vocabulary, (2, length))
    logits = model(ids, positions=torch.arange(length))["logits"]
    shifted = model(ids, positions=torch.arange(length) + shift)["logits"]
    torch.testing.assert_close(shifted, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "none"])
@torch.no_grad()
def test_models_with_positions_depend_on_the_order(name):
    model = randomised(Encoder(SIZES, ENCODINGS[name]))
    ids, swapped = torch.arange(8)[None], torch.tensor([1, 0, *range(2, 8)])
    assert (model(ids[:, swapped])["logits"][:, swapped] - model(ids)["logits"]).abs().max() > 1e-5
    if name not in RELATIVE:
        assert (model(ids, positions=torch.arange(8) + 5)["logits"] - model(ids)["logits"]).abs().max() > 1e-3


@torch.no_grad()
def test_without_positions_the_order_is_unknown():
    model = randomised(Encoder(SIZES, ENCODINGS["none"]))
    ids = torch.arange(8)[None]
    torch.testing.assert_close(model(ids.flip(1))["logits"].flip(1), model(ids)["logits"])


@pytest.mark.parametrize("name", ENCODINGS)
def test_everything_that_an_encoding_learns_gets_a_gradient(name):
    model = randomised(Encoder(SIZES, ENCODINGS[name]))
    ids = torch.randint(SIZES.vocabulary, (2, SIZES.length))
    model(ids, labels=ids)["loss"].backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())
    assert model.encoding.longest == (SIZES.length if name in ENDING else None)


SMALL = ["--layers", 1, "--hidden-size", 8, "--heads", 2, "--length", 8, "--batch-size", 4, "--steps", 4]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("明月几时有，把酒问青天。\n" * 60, encoding="utf-8")
    return tmp_path


def arguments(output, *more):
    return ["text.txt", *SMALL, "--output", output, *more]


NAMES = ["learned", "shaw", "rotary"]
SEVERAL = ["--encodings", *NAMES, "--seeds", 0, 1]


def results(folder):
    return json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
def test_encodings_are_compared(folder):
    code, out, err = run(SCRIPT, folder, *arguments("whole", *SEVERAL))
    assert code == 0, err
    saved = results(folder / "whole")
    assert list(saved) == NAMES
    for name, of in saved.items():
        for result in of.values():
            assert result["parameters"] == {"learned": 8 * 8, "shaw": 2 * 33 * 8, "rotary": 0}[name]
            assert len(result["training"]) == 4
            assert [found is None for found in result["measured"]] == [False, *[name == "learned"] * 3]
        losses = [result["measured"][0]["loss"] for result in of.values()]
        cells = f"{statistics.mean(losses):.3f} ± {statistics.stdev(losses):.3f}"
        assert re.search(rf"│ {name} +│ 2 +│ +{re.escape(cells)} │", out), out
    assert_states(out, "learned", "end at 8")
    assert (folder / "whole" / "encodings.png").read_bytes().startswith(b"\x89PNG")


def test_encoders_differ_in_positions_alone():
    """All start with the same weights, except for what an encoding learns, and masks depend on seed and number."""
    from compare import MaskedTexts

    texts = torch.arange(32).view(4, 8)
    same, other = (MaskedTexts(texts, 99, seed, 8) for seed in (0, 1))
    assert len(same) == 8
    first, again, later = same[1], same[1], same[5]  # the same text twice, with other masks
    assert torch.equal(first["input_ids"], again["input_ids"])
    assert any(not torch.equal(same[n]["labels"], same[n + 4]["labels"]) for n in range(4))
    assert any(not torch.equal(same[n]["labels"], other[n]["labels"]) for n in range(8))
    masked = later["labels"] != -100
    assert torch.equal(later["input_ids"] == 99, masked) and torch.equal(later["labels"][masked], texts[1][masked])


def test_the_loss_is_the_mean_over_masked_characters_if_there_are_any():
    model = randomised(Encoder(SIZES, ENCODINGS["none"])).float()
    ids = torch.randint(SIZES.vocabulary, (2, 16))
    labels = ids.masked_fill(torch.arange(16) % 5 > 0, -100)
    found = model(ids, labels)
    assert found["loss"].equal(torch.nn.functional.cross_entropy(found["logits"].flatten(0, 1), labels.flatten()))
    loss = model(ids, torch.full_like(ids, -100))["loss"]
    loss.backward()
    assert loss == 0 and all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_measuring_is_per_masked_character():
    from compare import measure

    model = randomised(Encoder(SIZES, ENCODINGS["t5"]))
    ids = torch.randint(SIZES.vocabulary, (48,))
    labels = torch.where(torch.arange(48) < 7, ids, -100)  # all in one of the texts, of unequal batches
    found = measure(model, {"input_ids": ids, "labels": labels}, 16, 2)
    with torch.no_grad():
        logits = model(ids.view(3, 16))["logits"].flatten(0, 1)[:7]
    assert found["loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, ids[:7]).item(), abs=1e-5)
    assert found["accuracy"] == (logits.argmax(-1) == ids[:7]).float().mean().item()
