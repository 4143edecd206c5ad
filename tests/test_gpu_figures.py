"""The scripts of `make figures-gpu`, with small models on a CPU, and what they have in common."""

import itertools
import json
import os
import subprocess
import sys

import pytest
import torch
from helpers.messages import assert_states
from helpers.paths import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"
sys.path.append(str(BENCHMARKS))
import embedding  # noqa: E402
import encoders  # noqa: E402
import figures  # noqa: E402
import gpu_figures  # noqa: E402
import measure  # noqa: E402
import padding  # noqa: E402
import peers  # noqa: E402

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
PARTS = [name for name, part in figures.PARTS.items() if part.gpu]
SMALL = peers.Size(layers=2, width=192, words=100, longest=32)


def rows_of(table):
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the output of `make figures-gpu` on a CPU, and the folder of its results."""
    folder = tmp_path_factory.mktemp("figures-gpu")
    options = ["GPU_DEVICE=cpu", "QUICK=1", f"GPU_PYTHON={sys.executable}", f"GPU_FIGURES={folder}"]
    command = ["make", "--silent", "figures-gpu", *options]
    done = subprocess.run(command, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, folder


@pytest.mark.slow
def test_the_section_and_the_row_of_the_readme_are_printed(ran):
    output, folder = ran
    section, _, row = output.partition("docs/figures.md:\n\n## On a GPU")[2].partition("README.md:\n\n")
    for name in PARTS:
        for table in figures.read(name, folder)["tables"].values():
            assert measure.to_markdown(table) in section, name
    assert figures.NOT_MEASURED not in section and figures.NOT_KEPT not in section
    first = rows_of(figures.read("gpu-encoders", folder)["tables"]["encoders"])[0]
    both = [first[name]["text"] for name in ("RoFormer", "transformers' RoFormer")]
    assert row.strip().endswith(f"| {both[0]} tokens/s | {both[1]} tokens/s |")


@pytest.mark.slow
def test_each_job_compares_all_encoders(ran):
    rows = rows_of(json.loads((ran[1] / "gpu-encoders.json").read_text(encoding="utf-8"))["tables"]["encoders"])
    jobs = [(row[""], row["attention dropout"], row["unit"]) for row in rows]
    forward = [("forward pass", "", unit) for unit in ("tokens/s",) * 3 + ("ms", "texts/s")]
    assert jobs == forward + [("training step", dropout, "tokens/s") for dropout in ("0", "0", "0.1", "0.1")]
    assert "64 × 1 to 32" in rows[4]["texts"]
    for row in rows:
        for name in encoders.PEERS:
            if row["unit"] == "ms":  # the median of the ratios of three runs is not the ratio of their medians
                assert row[f"/ {name}"]["runs"] == 3
            else:
                speed_up = row["RoFormer"]["median"] / row[name]["median"]
                assert row[f"/ {name}"]["median"] == pytest.approx(speed_up, rel=1e-3)


@pytest.mark.slow
def test_embed_is_compared_with_sentence_transformers(ran):
    rows = rows_of(figures.read("gpu-embedding", ran[1])["tables"]["speed"])
    peers = [f"sentence-transformers, {name}" for name in ("BERT, SDPA", "transformers' RoFormer", "ModernBERT, SDPA")]
    assert [row[""] for row in rows] == ["the model alone", "roformer embed", *peers]
    assert rows[2]["/ sentence-transformers, BERT, SDPA"]["median"] == 1


@pytest.mark.slow
def test_embed_is_compared_with_the_model_alone(tmp_path):
    embedding.write_pieces(tmp_path / "texts.jsonl")
    model = embedding.write_models(tmp_path, 2, 64)[peers.OURS]
    options = ["--model", model, "--texts", tmp_path / "texts.jsonl", "--quick", "--output", tmp_path / "found"]
    script = [sys.executable, BENCHMARKS / "embedding.py"]
    subprocess.run([*script, *options], env=ENVIRONMENT, check=True, capture_output=True)
    table = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["tables"]["speed"]
    assert table["columns"] == ["", "texts/s", "tokens/s", "/ the model alone"] and len(table["rows"]) == 2


def test_embedding_takes_a_model_and_texts_or_makes_them(monkeypatch, capsys):
    for options in ([], ["--peers", "--model", "mini"], ["--texts", "reviews.jsonl"]):
        monkeypatch.setattr(sys, "argv", ["embedding.py", *options])
        with pytest.raises(SystemExit):
            embedding.main()
        assert_states(capsys.readouterr().err, "--model and --texts, or --peers")


@pytest.mark.slow
def test_a_part_that_fails_is_named_after_the_others_ran(tmp_path, monkeypatch, capsys):
    part = figures.PARTS["gpu-padding"]
    missing = figures.Part("no_such_script.py --device cuda", part.code, gpu=True)
    monkeypatch.setattr(figures, "PARTS", {"gpu-encoders": missing, "gpu-padding": part})
    monkeypatch.setattr(figures, "SUMMARY", ())
    (tmp_path / "gpu-encoders.json").write_text("of an earlier run")
    monkeypatch.setattr(sys, "argv", ["gpu_figures.py", "--device", "cpu", "--quick", "--output", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        gpu_figures.main()
    assert_states(str(stop.value), "failed", "gpu-encoders")
    assert "gpu-padding" not in str(stop.value)
    assert (tmp_path / "gpu-encoders.json").read_text() == "of an earlier run"
    assert "| 2x64 |" in capsys.readouterr().out


@pytest.fixture
def parts_of_scripts(tmp_path, monkeypatch):
    """Replace the parts by two scripts, `first` and `second`, and return the folder in which a test writes them."""
    names = ("first", "second")
    monkeypatch.setattr(figures, "PARTS", {name: figures.Part(f"{name}.py", (), gpu=True) for name in names})
    monkeypatch.setattr(figures, "SUMMARY", ())
    monkeypatch.setattr(figures, "BENCHMARKS", tmp_path)
    return tmp_path


def run_parts(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["gpu_figures.py", "--device", "cpu", *map(str, options)])
    gpu_figures.main()


WRITES = """
import sys
from pathlib import Path
Path(sys.argv[sys.argv.index("--output") + 1] + ".json").write_text("new")
"""


def test_a_part_without_results_has_failed_and_earlier_results_stay(parts_of_scripts, monkeypatch):
    (parts_of_scripts / "first.py").write_text("")
    (parts_of_scripts / "second.py").write_text(WRITES)
    output = parts_of_scripts / "output"
    output.mkdir()
    for name in ("first", "second"):
        (output / f"{name}.json").write_text("old")
    with pytest.raises(SystemExit, match="failed.*: first$"):
        run_parts(monkeypatch, "--output", output)
    assert {path.name: path.read_text() for path in output.iterdir()} == {"first.json": "old", "second.json": "new"}


def test_a_trial_leaves_the_results_of_a_gpu(parts_of_scripts, monkeypatch):
    for name in ("first", "second"):
        (parts_of_scripts / f"{name}.py").write_text(WRITES)
    monkeypatch.setattr(measure, "ROOT", parts_of_scripts)
    monkeypatch.setattr(gpu_figures, "section", lambda folder: "")
    run_parts(monkeypatch, "--quick")
    assert [path.name for path in (parts_of_scripts / "build").iterdir()] == ["figures-gpu-trial"]


def test_a_folder_that_cannot_be_written_is_refused_before_a_part_runs(parts_of_scripts, monkeypatch, capsys):
    for name in ("first", "second"):
        (parts_of_scripts / f"{name}.py").write_text(f"open({str(parts_of_scripts / 'ran')!r}, 'w')")
    (parts_of_scripts / "file").write_text("")
    with pytest.raises(SystemExit):
        run_parts(monkeypatch, "--output", parts_of_scripts / "file")
    assert_states(capsys.readouterr().err, "cannot be written", "another folder")
    assert not (parts_of_scripts / "ran").exists()


def test_the_layers_of_all_encoders_have_as_many_parameters():
    def in_layers(name):
        parameters = dict(peers.make_encoder(name, SMALL).named_parameters())
        return sum(value.numel() for key, value in parameters.items() if "embeddings" not in key)

    ours = in_layers(peers.OURS)
    for name in encoders.PEERS:
        assert in_layers(name) == pytest.approx(ours, rel=0.02), name


@pytest.mark.parametrize("name", encoders.NAMES)
def test_a_training_step_has_the_dropout_that_is_stated(name):
    model = peers.make_masked(name, SMALL, attention=0.25, hidden=0.5)
    rates = [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert set(rates) <= {0.25, 0.5} and rates.count(0.5) > SMALL.layers
    fields = model.config.to_dict()
    assert 0.25 in (fields.get("attention_dropout"), fields.get("attention_probs_dropout_prob"))
    without = peers.make_masked(name, SMALL, attention=0.0, hidden=0.0)
    assert not any(module.p for module in without.modules() if isinstance(module, torch.nn.Dropout))


class Memory:
    """Memory of a GPU that is not there, as torch counts it."""

    def __init__(self, monkeypatch):
        self.allocated = self.peak = 0
        for name, value in {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "synchronize": lambda: None,
            "memory_allocated": lambda: self.allocated,
            "max_memory_allocated": lambda: self.peak,
            "reset_peak_memory_stats": lambda: setattr(self, "peak", self.allocated),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    def take(self, size):
        self.allocated += size
        self.peak = max(self.peak, self.allocated)


def test_the_peak_memory_of_a_subject_leaves_out_the_others(monkeypatch):
    memory = Memory(monkeypatch)

    def make(weights, state):
        memory.take(weights)
        rest = [state]

        def run(activations):
            memory.take(rest.pop() if rest else 0)  # an optimizer makes its state in the first step
            memory.take(activations)
            memory.take(-activations)

        return run

    small, large = measure.Resident(make, 10, 20), measure.Resident(make, 1000, 2000)
    found = measure.alternate({"small": (small, 5), "large": (large, 7)}, runs=2)
    assert {name: of.peak for name, of in found.items()} == {"small": 10 + 20 + 5, "large": 1000 + 2000 + 7}


@pytest.mark.parametrize(
    ("found", "share"),
    [
        ([False, False, True, True, True, True], "5%"),
        ([True] * 6, "0%"),
        ([False] * 6, "none"),
        ([True, False, True, True, False, True], "40%"),
    ],
)
def test_the_share_is_the_least_from_which_all_are_faster(found, share):
    assert padding.from_share(found) == share


@pytest.mark.parametrize("case", padding.CASES)
def test_a_batch_has_the_share_of_padding_that_its_column_states(case):
    _, lengths, batches = padding.CASES[case]
    for s, b, share in itertools.product(lengths, batches, padding.SHARES):
        mask = padding.mask_of(b, s, share, "cpu")
        assert 0 <= (mask == 0).sum().item() - share * b * s < 1
        assert mask[0].all() and mask[:, 0].all()


def test_a_batch_is_computed_without_its_padding_and_the_default_is_told(monkeypatch):
    monkeypatch.setattr(padding.source, "is_faster_packed", padding.is_faster_packed)
    computed, threads = [], torch.get_num_threads()
    subject = padding.make_model(2, 64, "cpu", threads)
    monkeypatch.setattr(
        padding.source, "Packing", lambda mask, of=padding.source.Packing: computed.append(of(mask)) or computed[-1]
    )
    assert [subject(4, 16, share, True) for share in (0.0, 0.4)] == [False, False]  # 8 × 16 tokens are too few
    assert len(computed) == 1
    assert subject(4, 2048, 0.4, True)
    subject(4, 2048, 0.4, False)
    assert len(computed) == 2
