"""Scores per seed: the best one, results.json, and resuming."""

import json
import re

from helpers.messages import refused
from rich.console import Console

from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.finetuning.results import SeedResults

SETTINGS = {"model": "mini", "texts": {"train": 3}}


def scores(validation, test):
    return {"test": {"accuracy": test}, "validation": {"accuracy": validation, "macro_f1": 0.0}}


def test_the_best_is_chosen_by_validation(tmp_path):
    results = SeedResults(tmp_path, SETTINGS)
    assert results.best is None and results.is_best(3, scores(0.1, 0.1))
    results.add(3, scores(0.5, 0.9), [])
    results.add(4, scores(0.7, 0.2), [])
    results.add(5, scores(0.7, 0.8), [])
    assert results.best == "4"
    assert results.is_best(6, scores(0.71, 0)) and not results.is_best(6, scores(0.7, 1))
    # If 4 is repeated, its new score counts: the first of equal ones is the best.
    assert results.is_best(4, scores(0.7, 0)) and not results.is_best(4, scores(0.69, 0))
    assert 4 in results and 6 not in results


def test_what_is_done_is_found_again(tmp_path):
    output = tmp_path / "run"
    output.mkdir()
    SeedResults(output, SETTINGS).add(0, scores(0.5, 0.6), [{"epoch": 1, "loss": 2.0}])
    again = SeedResults(output, SETTINGS)
    assert 0 in again and again.seeds["0"]["log"] == [{"epoch": 1, "loss": 2.0}]
    again.add(1, scores(0.1, 0.2), [])
    assert list(json.loads((output / "results.json").read_text())["seeds"]) == ["0", "1"]
    with refused(TrainingError, "run/results.json", "texts"):
        SeedResults(output, {**SETTINGS, "texts": {"train": 4}})
    misshapen = [{"0": {"scores": {}, "log": []}}, {"0": {"scores": scores(7.5, 0.1), "log": []}}]
    misshapen += [{"0": {"scores": scores(0.5, 0.1)}}, {"abc": {"scores": scores(0.5, 0.1), "log": []}}]
    misshapen += [{"0": {"scores": scores(0.5, 0.1), "log": [{"loss": 1.0}]}}]
    for broken in "{", "[]", "{}", *(json.dumps({"settings": SETTINGS, "seeds": seeds}) for seeds in misshapen):
        (output / "results.json").write_text(broken)
        with refused(TrainingError, output / "results.json"):
            SeedResults(output, SETTINGS)
    (output / "results.json").rename(output / "thesis.json")
    with refused(TrainingError, output, "no results.json"):
        SeedResults(output, SETTINGS)


def printed(results):
    console = Console(width=200, record=True)
    console.print(results.table())
    return console.export_text()


def test_mean_and_standard_deviation(tmp_path):
    results = SeedResults(tmp_path, SETTINGS)
    results.add(0, scores(0.5, 0.6), [])
    assert "mean" not in printed(results) and "validation macro f1" in printed(results)
    results.add(1, scores(0.7, 0.6), [])
    assert "│ 1 (best) │" in printed(results)
    assert "0.600 ± 0.141" in printed(results) and "0.600 ± 0.000" in printed(results)


def test_a_failed_run_is_never_the_best(tmp_path):
    results = SeedResults(tmp_path / "run", SETTINGS)
    results.add_failed(0, "the loss is nan")
    assert (
        results.best is None and results.is_best(1, scores(0.0, 0.0)) and re.search(r"│ 0 +│ +failed", printed(results))
    )
    results.add(1, scores(0.5, 0.6), [])
    results.add(2, scores(0.7, 0.6), [])
    again = SeedResults(tmp_path / "run", SETTINGS)
    assert 0 in again and again.best == "2" and again.failed == {"0": "the loss is nan", "1": None, "2": None}
    assert re.search(r"│ 0 +│ +failed", printed(again)) and "0.600 ± 0.141" in printed(again)
