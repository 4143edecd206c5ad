"""benchmarks/generation.py, with small models and short prompts."""

import json
from argparse import Namespace

import pytest
import torch
from helpers.paths import REPOSITORY
from helpers.scripts import run_script

BENCHMARKS = REPOSITORY / "benchmarks"


@pytest.fixture
def one_thread(monkeypatch):
    """Restore the number of threads, which the script sets."""
    threads = torch.get_num_threads()
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_each_way_and_each_length_has_a_row(tmp_path, monkeypatch, capfd, one_thread):
    code, _, _ = run_script(
        BENCHMARKS / "generation.py", ["--quick", "--output", tmp_path / "found"], monkeypatch, capfd
    )
    assert code == 0
    tables = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["tables"]
    rows = [dict(zip(tables["speed"]["columns"], row, strict=True)) for row in tables["speed"]["rows"]]
    cases = {(row[""], row["prompts"]) for row in rows}
    expected = {("greedy", f"{b} × {s}") for b in (1, 2) for s in (8, 16)}
    expected |= {(way, f"{b} × 8") for way in ("sampling", "4 beams", "static cache") for b in (1, 2)}
    assert cases == expected
    for row in rows:
        models = {other["model"] for other in rows if (other[""], other["prompts"]) == (row[""], row["prompts"])}
        peers = {"GPT-2", "transformers' RoFormer", "RoFormer-GPT", "RoFormer-Sim"}
        assert models == (peers if row[""] == "static cache" else peers | {"linear attention"})
        assert row["new tokens/s"]["median"] > 0 and row["prefill, ms"]["median"] > 0
        if row["model"] in ("GPT-2", "transformers' RoFormer"):
            assert row[f"/ {row['model']}"]["median"] == 1
    lengths = tables["lengths"]
    assert [row[0] for row in lengths["rows"]] == ["16", "32"] and len(lengths["columns"]) == 5
    assert [lengths["rows"][0][i]["median"] for i in (2, 4)] == [1, 1]


def test_one_new_token_has_no_decoding(monkeypatch, capfd, one_thread):
    code, _, error = run_script(BENCHMARKS / "generation.py", ["--new-tokens", "1"], monkeypatch, capfd)
    assert code == 2 and "--new-tokens" in error


@pytest.mark.parametrize(("device", "expected"), [("cpu", [9, 3]), ("cuda", [9, 9])])
def test_long_batches_have_fewer_runs_on_a_cpu_only(monkeypatch, one_thread, device, expected):
    import generation

    runs = []
    monkeypatch.setattr(generation, "in_turn", lambda calls, number, progress: runs.append(number) or {})
    sizes = {"ways": ["greedy"], "prompts": [128], "batches": [1, 64], "new_tokens": 2, "runs": 9}
    generation.measure_speed({}, Namespace(device=device, **sizes), print)
    assert runs == expected
