"""benchmarks/pretraining.py, with a small model and few steps."""

import json

import pytest
from helpers.paths import REPOSITORY
from helpers.scripts import run_script

from modeling_roformer.training.pretraining import pretrain as module

BENCHMARKS = REPOSITORY / "benchmarks"


@pytest.mark.slow
def test_pretrain_and_the_bare_step_are_timed_on_the_same_pieces(tmp_path, monkeypatch, capfd):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    usual = module.StageTrainer
    words = ["--quick", "--device", "cpu", "--output", tmp_path / "found"]
    assert run_script(BENCHMARKS / "pretraining.py", words, monkeypatch, capfd)[0] == 0
    assert module.StageTrainer is usual
    table = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["tables"]["pretraining"]
    rows = {row[3]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert rows.keys() == {"pretrain", "the bare step", "one worker's batches"}
    assert rows["the bare step"]["share"]["median"] == 1
    for row in rows.values():
        assert row["steps/s"]["runs"] == row["share"]["runs"] == 2 and row["steps/s"]["median"] > 0
        tokens = row["tokens/s"]["median"] / row["steps/s"]["median"]  # of a step of 4 pieces
        assert 4 * 3 < tokens < 4 * 512
