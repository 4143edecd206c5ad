"""The scripts of benchmarks/, with small models on a CPU."""

import itertools
import json
import os
import subprocess
import sys

import encoders
import figures
import measure
import outputs
import padding
import peers
import pytest
import torch
from helpers.paths import REPOSITORY
from helpers.scripts import run_script

from modeling_roformer.training.pretraining import pretrain as module

BENCHMARKS = REPOSITORY / "benchmarks"
SMALL = peers.Size(layers=2, width=192, words=100, longest=32)
INFINITE, NAN = float("inf"), float("nan")


def rows_of(file, table):
    """Return the rows of a table of results, as dicts."""
    found = json.loads(file.read_text(encoding="utf-8"))["tables"][table]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


@pytest.fixture
def one_thread():
    """Restore the number of threads, which scripts set."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


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
            assert measure.to_markdown(table) in section, name
    assert figures.NOT_MEASURED not in section and figures.NOT_KEPT not in section
    first = rows_of(folder / "gpu-encoders.json", "encoders")[0]
    both = [first[name]["text"] for name in ("RoFormer", "transformers' RoFormer")]
    assert row.strip().endswith(f"| {both[0]} tokens/s | {both[1]} tokens/s |")


@pytest.mark.slow
def test_each_job_compares_all_encoders(ran):
    rows = [row for row in rows_of(ran[1] / "gpu-encoders.json", "encoders") if row["unit"] != "ms"]
    assert {row[""] for row in rows} == {"forward pass", "training step"}
    for row, name in itertools.product(rows, encoders.PEERS):
        assert row[f"/ {name}"]["median"] == pytest.approx(row["RoFormer"]["median"] / row[name]["median"], rel=1e-3)


def test_the_layers_of_all_encoders_have_as_many_parameters():
    def in_layers(name):
        parameters = peers.make_encoder(name, SMALL).named_parameters()
        return sum(value.numel() for key, value in parameters if "embeddings" not in key)

    assert [in_layers(name) for name in encoders.PEERS] == pytest.approx(
        [in_layers(peers.OURS)] * len(encoders.PEERS), rel=0.02
    )


@pytest.mark.parametrize("name", encoders.NAMES)
def test_a_training_step_has_the_dropout_that_is_stated(name):
    model = peers.make_masked(name, SMALL, attention=0.25, hidden=0.5)
    rates = [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert set(rates) <= {0.25, 0.5} and rates.count(0.5) > SMALL.layers
    fields = model.config.to_dict()
    assert 0.25 in (fields.get("attention_dropout"), fields.get("attention_probs_dropout_prob"))


@pytest.mark.parametrize("case", padding.CASES)
def test_a_batch_has_the_share_of_padding_that_its_column_states(case):
    _, lengths, batches = padding.CASES[case]
    for s, b, share in itertools.product(lengths, batches, padding.SHARES):
        mask = padding.mask_of(b, s, share, "cpu")
        assert 0 <= (mask == 0).sum().item() - share * b * s < 1
        assert mask[0].all() and mask[:, 0].all()


@pytest.mark.slow
def test_each_way_to_generate_has_a_row_for_each_model(tmp_path, monkeypatch, capfd, one_thread):
    words = ["--quick", "--output", tmp_path / "found"]
    assert run_script(BENCHMARKS / "generation.py", words, monkeypatch, capfd)[0] == 0
    rows = rows_of(tmp_path / "found.json", "speed")
    expected = {("greedy", f"{b} × {s}") for b in (1, 2) for s in (8, 16)}
    expected |= {(way, f"{b} × 8") for way in ("sampling", "4 beams", "static cache") for b in (1, 2)}
    assert {(row[""], row["prompts"]) for row in rows} == expected
    for row in rows:
        assert row["new tokens/s"]["median"] > 0 and row["prefill, ms"]["median"] > 0
        if row["model"] in ("GPT-2", "transformers' RoFormer"):
            assert row[f"/ {row['model']}"]["median"] == 1


@pytest.mark.slow
def test_pretrain_and_the_bare_step_are_timed_on_the_same_pieces(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    usual = module.StageTrainer
    words = ["--quick", "--device", "cpu", "--output", tmp_path / "found"]
    assert run_script(BENCHMARKS / "pretraining.py", words, monkeypatch, capfd)[0] == 0
    assert module.StageTrainer is usual
    rows = {row[""]: row for row in rows_of(tmp_path / "found.json", "pretraining")}
    assert rows.keys() == {"pretrain", "the bare step", "one worker's batches"}
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
