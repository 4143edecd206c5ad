"""The scripts of benchmarks/, with small models on a CPU."""

import itertools
import json
import logging
import os
import subprocess
import sys

import defaults
import figures
import outputs
import padding
import peers
import pytest
import reporting
import torch
import transformers
from helpers.paths import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"
ENCODERS = (peers.BERT, peers.THEIRS, peers.MODERN)
SMALL = peers.Size(layers=2, width=192, words=100, longest=32)
INFINITE, NAN = float("inf"), float("nan")


def rows_of(file, table):
    """Return the rows of a table of results, as dicts."""
    found = json.loads(file.read_text(encoding="utf-8"))["tables"][table]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


@pytest.fixture(autouse=True)
def messages():
    """Show transformers' messages and bars again after a test: a benchmark hides them in its own process."""
    logger = logging.getLogger("transformers")
    level = logger.level
    yield
    logger.setLevel(level)
    transformers.utils.logging.enable_progress_bar()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the output of `make figures-gpu` on a CPU, and the folder of its results."""
    folder = tmp_path_factory.mktemp("figures-gpu")
    options = ["GPU_DEVICE=cpu", "QUICK=1", f"GPU_PYTHON={sys.executable}", f"GPU_FIGURES={folder}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = ["make", "--silent", "figures-gpu", *options]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, folder


@pytest.mark.slow
def test_the_section_and_the_row_of_a_gpu_are_printed(ran):
    output, folder = ran
    section, _, row = output.partition("docs/figures.md:\n\n## On a GPU")[2].partition("README.md:\n\n")
    for name in (name for name, part in figures.PARTS.items() if part.gpu):
        for table in figures.read(name, folder)["tables"].values():
            assert reporting.to_markdown(table) in section, name
    assert figures.NOT_MEASURED not in section and figures.NOT_KEPT not in section
    rows = {row[""]: row for row in reversed(rows_of(folder / "gpu-inference.json", "forward, cuda"))}
    both = [rows[name]["tokens/s"]["text"] for name in ("RoFormer", "transformers' RoFormer")]
    assert row.strip().endswith(f"| {both[0]} tokens/s | {both[1]} tokens/s |")


@pytest.mark.slow
@pytest.mark.parametrize(("part", "table"), [("gpu-inference", "forward, cuda"), ("gpu-training", "cuda")])
def test_each_batch_compares_all_encoders(part, table, ran):
    of_models = {}
    for row in rows_of(ran[1] / f"{part}.json", table):
        of_models.setdefault(row[""], []).append(row)
    assert {*ENCODERS} <= of_models.keys()
    for peer in ENCODERS:
        assert len(of_models[peer]) == len(of_models[peers.OURS]) > 1
    assert all(row["/ BERT, SDPA"]["median"] == 1 for row in of_models[peers.BERT] if part == "gpu-inference")


def test_the_layers_of_all_encoders_have_as_many_parameters():
    def in_layers(name):
        parameters = peers.make_model(name, "Model", SMALL).named_parameters()
        return sum(value.numel() for key, value in parameters if "embeddings" not in key)

    assert [in_layers(name) for name in ENCODERS] == pytest.approx([in_layers(peers.OURS)] * len(ENCODERS), rel=0.02)


@pytest.mark.parametrize("name", [*ENCODERS, peers.OURS])
def test_a_training_step_has_the_dropout_that_is_stated(name):
    model = peers.make_masked(name, SMALL, attention=0.25, hidden=0.5)
    rates = [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert set(rates) <= {0.25, 0.5} and rates.count(0.5) > SMALL.layers
    fields = model.config.to_dict()
    assert 0.25 in (fields.get("attention_dropout"), fields.get("attention_probs_dropout_prob"))


@pytest.mark.parametrize("name", [defaults.THEIRS, defaults.BERT, defaults.OURS])
def test_sentence_encoders_have_the_classes_that_their_rows_name(name):
    model = defaults.make_sentence_encoder(name, defaults.make_tokenizer())[0].model
    assert type(model) is type(peers.make_model(name, "Model", defaults.SIZE)) and not model.training


@pytest.mark.parametrize("case", padding.CASES)
def test_a_batch_has_the_share_of_padding_that_its_column_states(case):
    sizes, _, lengths = padding.CASES[case]
    for s, b, share in itertools.product(lengths, {b for texts in sizes.values() for b in texts}, padding.SHARES):
        mask = padding.mask_of(b, s, share, "cpu")
        assert 0 <= (mask == 0).sum().item() - share * b * s < 1
        assert mask[0].all() and mask[:, 0].all()


@pytest.mark.slow
def test_each_way_to_generate_has_a_row_for_each_model(tmp_path):
    command = [sys.executable, BENCHMARKS / "generation.py", "--quick", "--output", tmp_path / "found"]
    subprocess.run(command, check=True, capture_output=True)
    rows = rows_of(tmp_path / "found.json", "speed")
    expected = {("greedy", f"{b} × {s}") for b in (1, 2) for s in (8, 16)}
    expected |= {(way, f"{b} × 8") for way in ("sampling", "4 beams", "static cache") for b in (1, 2)}
    assert {(row[""], row["prompts"]) for row in rows} == expected
    for row in rows:
        assert row["new tokens/s"]["median"] > 0 and row["prefill, ms"]["median"] > 0
        if row["model"] in ("GPT-2", "transformers' RoFormer"):
            assert row[f"/ {row['model']}"]["median"] == 1


@pytest.mark.slow
def test_pretrain_and_the_bare_step_are_timed_on_the_same_pieces(ran):
    rows = {row[""]: row for row in rows_of(ran[1] / "gpu-pretraining.json", "pretraining")}
    assert rows.keys() == {"pretrain", "the bare step"}
    assert rows["the bare step"]["share"]["median"] == 1
    for row in rows.values():
        assert 4 * 3 < row["tokens/s"]["median"] / row["steps/s"]["median"] < 4 * 512  # of a step of 4 pieces


@pytest.mark.parametrize("same", [INFINITE, -INFINITE, NAN, 0.5])
def test_equal_values_of_two_recordings_do_not_differ(same):
    assert outputs.compare({"x": torch.tensor([same])}, {"x": torch.tensor([same])}, 0.0) == []


@pytest.mark.parametrize(
    ("before", "now"), [(INFINITE, -INFINITE), (INFINITE, 1.0), (NAN, 1.0), (1.0, NAN), (1.0, 1.1)]
)
def test_each_other_value_differs(before, now):
    assert len(outputs.compare({"x": torch.tensor([before, 0.0])}, {"x": torch.tensor([now, 0.0])}, 0.01)) == 1
