"""examples/paper/position_laboratory: each encoding against its equation, written out, and the script."""

import json
import math
import re
import statistics

import pytest
import torch
from encoder import Encoder, SelfAttention, Sizes
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from helpers.scripts import run_script
from hypothesis import given
from hypothesis import strategies as st
from position_encodings import ENCODINGS
from transformers import Trainer

from modeling_roformer.training.comparing import curves
from modeling_roformer.training.runs.finite import NotFinite

SCRIPT = REPOSITORY / "examples" / "paper" / "position_laboratory" / "compare.py"
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


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("明月几时有，把酒问青天。\n" * 60, encoding="utf-8")
    small = ["--layers", 1, "--hidden-size", 8, "--heads", 2, "--length", 8, "--batch-size", 4, "--steps", 4]

    def run(*arguments, text="text.txt"):
        return run_script(SCRIPT, [text, *small, "--output", "runs", *arguments], monkeypatch, capfd)

    return run


def test_the_script_has_the_name_of_every_encoding():
    from compare import NAMES

    assert tuple(ENCODINGS) == NAMES


def test_it_compares_and_goes_on_where_it_was_stopped(run, tmp_path, monkeypatch):
    seen, step = {}, Trainer.training_step

    def seeing(self, model, inputs, *rest):
        name = self.args.output_dir.rpartition("/")[2]
        _, batches = seen.setdefault(name, ({k: v.clone() for k, v in model.state_dict().items()}, {}))
        batches[self.state.global_step] = inputs["input_ids"].clone(), inputs["labels"].clone()
        if (name, self.state.global_step) == stop:
            raise KeyboardInterrupt
        return step(self, model, inputs, *rest)

    monkeypatch.setattr(Trainer, "training_step", seeing)
    names = ["--encodings", "learned", "shaw", "rotary"]
    stop = None
    code, out, err = run(*names)
    assert code == 0, err
    # Common weights, batches and masks are the same; what an encoding learns is its own.
    common, batches = seen["rotary-0"]
    assert len(batches) == 4 and not torch.equal(batches[0][0], batches[1][0])
    for name in "learned-0", "shaw-0":
        start, others = seen[name]
        assert all(torch.equal(start[key], value) for key, value in common.items())
        assert start.keys() > common.keys() and all(key.startswith("encoding.") for key in start.keys() - common.keys())
        for at, both in batches.items():
            assert all(torch.equal(a, b) for a, b in zip(both, others[at], strict=True))
    ids, labels = batches[0]
    masked = labels != -100
    assert (ids == ids.max()).equal(masked) and 0 < masked.float().mean() < 0.5

    def saved(folder):
        return {run["encoding"]: run for run in json.loads((tmp_path / folder / "results.json").read_text())["runs"]}

    results = saved("runs")
    assert list(results) == names[1:]
    for name, result in results.items():
        assert result["seed"] == 0 and result["parameters"] == {"learned": 8 * 8, "shaw": 2 * 33 * 8, "rotary": 0}[name]
        assert len(result["training"]) == 4
        assert [found is None for found in result["measured"]] == [False, *[name == "learned"] * 3]
        cells = ["1", *(f"{found['loss']:.3f}" if found else "–" for found in result["measured"])]
        cells += [f"{result['tokens_per_second']:,.0f}", f"{result['parameters']}"]
        assert re.search(rf"│ {name} +│ +" + " +│ +".join(map(re.escape, cells)) + " │", out), out
        shares = [f"{found['accuracy']:.1%}" if found else "–" for found in result["measured"]]
        assert re.search(rf"│ {name} +│ 1 +│ +" + " │ +".join(shares), out), out
    assert_states(out, "learned", "end at 8")
    assert (tmp_path / "runs" / "encodings.png").read_bytes().startswith(b"\x89PNG")
    assert all(len(list((tmp_path / "runs" / f"{name}-0").glob("checkpoint-*"))) == 2 for name in names[1:])

    stop = "shaw-0", 2
    assert run(*names, "--output", "stopped")[0] == 130
    seen.clear()
    stop = None
    assert run(*names, "--output", "stopped")[0] == 0
    assert list(seen) == ["shaw-0", "rotary-0"] and list(seen["shaw-0"][1]) == [2, 3]
    for at, both in seen["shaw-0"][1].items():
        assert all(torch.equal(a, b) for a, b in zip(both, batches[at], strict=True))
    again = saved("stopped")
    for name in results:
        assert again[name]["training"] == results[name]["training"]
        assert again[name]["measured"] == results[name]["measured"]
    # A run that is done is shown beside another one, and not repeated.
    seen.clear()
    code, out, _ = run("--encodings", "rotary", "none", "--output", "stopped")
    assert code == 0 and list(seen) == ["none-0"] and "–" not in out and "shaw" not in out
    # Another seed has other weights, batches and masks, and the table has means.
    seen.clear()
    code, out, _ = run("--encodings", "rotary", "rotary", "--seeds", 1, 0, 1, "--output", "stopped")
    assert code == 0 and list(seen) == ["rotary-1"]
    assert not torch.equal(seen["rotary-1"][1][0][0], batches[0][0])
    assert not torch.equal(seen["rotary-1"][0]["prediction.weight"], common["prediction.weight"])
    both = [saved("stopped")["rotary"], results["rotary"]]  # the last of that name is of seed 1
    assert [of["seed"] for of in both] == [1, 0]
    for at in range(4):
        losses = [of["measured"][at]["loss"] for of in both]
        assert_states(out, f"{statistics.mean(losses):.3f} ±", f"{statistics.stdev(losses):.3f}")


def test_a_failed_run_is_named_and_the_others_compared(run, tmp_path, failing, monkeypatch):
    failing("t5-0")
    code, out, err = run("--encodings", "t5", "rotary")
    assert code == 0, err
    assert re.search(r"│ t5 +│ 0, 1 +│ +failed", out) and re.search(r"│ rotary +│ 1 +│ +\d", out)
    assert_states(out, "failed: t5, seed 0", "nan at step 2")
    results = tmp_path / "runs" / "results.json"
    failed, done = json.loads(results.read_text(), parse_constant=pytest.fail)["runs"]
    assert failed.keys() == {"encoding", "seed", "failed"} and failed["encoding"] == "t5" and "failed" not in done
    # Another seed, which has not failed, is in the table and in the picture.
    pictures, draw = [], curves.draw_panels
    monkeypatch.setattr(
        curves, "draw_panels", lambda file, panels, **rest: pictures.append(panels) or draw(file, panels, **rest)
    )
    code, out, err = run("--encodings", "t5", "rotary", "--seeds", 0, 1)
    assert code == 0, err
    assert re.search(r"│ t5 +│ 1, 1", out)
    assert_states(out, "of seed 0 or 1")
    assert all(list(panel) == ["t5, seed 1", "rotary"] and all(panel.values()) for panel in pictures[0].values())
    monkeypatch.setattr(Trainer, "train", lambda *_, **__: pytest.fail("trained again"))
    code, _, err = run("--encodings", "t5")
    assert code == 1 and err.startswith("compare: ")


@pytest.mark.parametrize(
    "misshapen",
    [
        {"measured": [{"loss": 1.0, "accuracy": 0.5}] * 3},
        {"measured": [{"loss": "1", "accuracy": 0.5}] * 4},
        {"measured": [{"loss": 1.0}] * 4},
        {"training": [[1]]},
        {"training": [[1, None]]},
        {"parameters": "0"},
        {"tokens_per_second": "9"},
        {"seed": None},
        {"seed": 1},  # twice
        {"encoding": 1},
        {"failed": 1},
    ],
)
def test_misshapen_results_are_refused(misshapen):
    from compare import read_runs

    found = [{"loss": 1.0, "accuracy": 0.5}, None, None, None]
    done = {"parameters": 0, "training": [[1, 2.0]], "tokens_per_second": None, "measured": found}
    runs = [{"encoding": "learned", "seed": 0, **done}, {"encoding": "learned", "seed": 1, "failed": "the loss is nan"}]
    assert read_runs({"runs": runs}) == runs
    with pytest.raises((ValueError, LookupError, TypeError)):
        read_runs({"runs": [runs[0] | misshapen, runs[1]]})
    for key in runs[0]:
        with pytest.raises(LookupError):
            read_runs({"runs": [{name: value for name, value in runs[0].items() if name != key}]})


def test_the_loss_is_the_mean_over_masked_characters_if_there_are_any():
    model = randomised(Encoder(SIZES, ENCODINGS["none"])).float()
    ids = torch.randint(SIZES.vocabulary, (2, 16))
    labels = ids.masked_fill(torch.arange(16) % 5 > 0, -100)
    found = model(ids, labels)
    assert found["loss"].equal(torch.nn.functional.cross_entropy(found["logits"].flatten(0, 1), labels.flatten()))
    loss = model(ids, torch.full_like(ids, -100))["loss"]
    loss.backward()
    assert loss == 0 and all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_a_loss_that_is_not_finite_where_it_is_measured():
    from compare import measure

    model = randomised(Encoder(SIZES, ENCODINGS["t5"]))
    next(model.parameters()).data.fill_(torch.nan)
    with refused(NotFinite, "loss", 16, "nan"):
        measure(model, dict.fromkeys(("input_ids", "labels"), torch.zeros(32, dtype=torch.long)), 16, 2)


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


def test_bad_arguments_are_named(run, tmp_path):
    def refusal(*arguments, code=1, **text):
        found, _, err = run(*arguments, **text)
        assert found == code and not (tmp_path / "runs").exists()
        return err

    assert "missing.txt does not exist" in refusal(text="missing.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    assert_states(refusal(text="bytes.txt"), "bytes.txt", "UTF-8")
    assert_states(refusal("--length", 16), "text.txt", 78, "--length 16")
    (tmp_path / "short.txt").write_text("明月几时有\n" * 14, encoding="utf-8")
    assert_states(refusal("--length", 1, "--seeds", 0, 2, text="short.txt"), "short.txt", "seed 2")
    assert_states(refusal("--hidden-size", 10, code=2), "--hidden-size", 10, "--heads", 2)
    assert_states(refusal("--steps", 0, code=2), "--steps", 0)
    assert "invalid choice: 'fixed'" in refusal("--encodings", "fixed", code=2)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "results.json").write_text('{"settings": {"layers": 3}, "runs": []}')
    assert_states(run()[2], "runs/results.json", "layers")
    (tmp_path / "runs" / "results.json").write_text('{"settings": {}, "runs": [{"encoding": "rotary", "seed": 0}]}')
    assert_states(run()[2], "runs/results.json", "damaged")
