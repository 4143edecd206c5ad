"""examples/finetune_triplet.py: seeds and baselines, the model it keeps, resuming, and what it refuses."""

import json
import shutil

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.script_process import run
from helpers.small_models import TINY, save_masked_lm
from huggingface_hub import ModelCard
from transformers import pipeline

SCRIPT = "finetune_triplet.py"
TRIPLETS = REPOSITORY / "examples" / "triplets.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a saved model and triplets."""
    folder = tmp_path_factory.mktemp("triplets")
    save_masked_lm(folder / "base", REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt", **TINY)
    shutil.copy(TRIPLETS, folder)
    return folder


def arguments(output, *more):
    return ["base", "--train", "triplets.jsonl", "--epochs", 3, "--learning-rate", 1e-3, "--output", output, *more]


def results(folder):
    return json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)


def without_times(result):
    return {name: value for name, value in result.items() if name != "log"}


@pytest.mark.slow
def test_seeds_baselines_and_the_best_model(folder):
    options = ["--seeds", 0, 1, "--baselines", "--max-length", 32, "--bf16"]
    code, out, err = run(SCRIPT, folder, *arguments("runs", *options))
    assert code == 0, err
    saved = results(folder / "runs")
    assert len(saved) == 4 and all(of.keys() == {"0", "1"} for of in saved.values())
    for of in saved.values():
        for seed, result in of.items():
            assert result["rows"] == saved["trained"][seed]["rows"] and len(result["rows"]) == 5
            assert result["test"] == pytest.approx(sum(result["results"]) / 5)
    assert saved["text-blind: wins in training"]["0"]["results"] == [0.5] * 5
    best = max(("0", "1"), key=lambda seed: saved["trained"][seed]["validation"])
    mean = sum(of["test"] for of in saved["trained"].values()) / 2
    assert_states(out, "trained: accuracy", f"{mean:.3f}", "seeds 0, 1", "runs/model")

    # The saved model gives the results of the best seed.
    lines = [json.loads(line) for line in TRIPLETS.read_text().splitlines()]
    asked = [lines[row - 1] for row in saved["trained"][best]["rows"]]
    match = pipeline("triplet-matching", model=str(folder / "runs" / "model"), device="cpu")
    answers = [answer["label"] == triplet["label"] for answer, triplet in zip(match(asked), asked, strict=True)]
    assert answers == saved["trained"][best]["results"] and match.tokenizer.model_max_length == 32
    card = ModelCard.load(folder / "runs" / "model" / "README.md")
    assert card.data.eval_results[0].metric_value == saved["trained"][best]["test"]
    assert_states(card.text, "triplets.jsonl", "learning rate: 0.001", f"seed: {best}")
    assert str(folder) not in card.text
    assert (folder / "runs" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (folder / "runs").glob("[!.]*")} == {
        "curves.png",
        "model",
        "results.json",
        "settings.json",
    }


def test_without_training_the_card_tells_of_none(folder, run_here):
    code, _, err = run_here(SCRIPT, folder, *arguments("zero", "--epochs", 0))
    assert code == 0, err
    text = ModelCard.load(folder / "zero" / "model" / "README.md").text
    assert "14 triplets" not in text and "learning rate" not in text and "scorer: cross" in text


def test_unusable_input_is_named_on_one_line(folder, run_here):
    code, _, err = run_here(SCRIPT, folder, "base", "--train", "none.jsonl", "--output", "bad")
    assert code == 1
    assert_states(err, "finetune_triplet: ", "none.jsonl")
