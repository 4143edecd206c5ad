"""examples/finetune_triplet.py: Table 5 from small models, what it leaves behind, and what it says when it cannot."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from helpers.hub_server import hub  # noqa: F401  (the fixture)
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.small_models import TINY
from huggingface_hub import ModelCard
from matplotlib.image import imread
from transformers import AutoTokenizer, BertConfig, Trainer, pipeline

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerForTripletMatching, RoFormerTokenizer
from modeling_roformer.conversion import convert
from modeling_roformer.hub import push
from modeling_roformer.model_cards import write_card

SCRIPT = REPOSITORY / "examples" / "finetune_triplet.py"
TRIPLETS = REPOSITORY / "examples" / "triplets.jsonl"
VOCAB = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"


def save_model(folder, **fields):
    characters = fields.pop("characters", False)
    tokenizer = RoFormerTokenizer(str(VOCAB), **({"word_segmentation": None} if characters else {}))
    torch.manual_seed(0)
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=len(tokenizer), **TINY, **fields)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Save a RoFormer, and a BERT of our classes with character tokens and 32 learned positions."""
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "roformer")
    save_model(folder / "bert", characters=True, position_encoding="learned", max_position_embeddings=32)
    return folder


@pytest.fixture
def folder(tmp_path, models, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    shutil.copy(TRIPLETS, "triplets.jsonl")
    (tmp_path / "models").symlink_to(models)
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""

    def run(*arguments):
        words = ["--epochs", 2, "--learning-rate", 1e-3, "--output", "run", *arguments]
        return run_script(SCRIPT, words, monkeypatch, capfd)

    return run


def rows_of(folder="run"):
    with open(f"{folder}/results.json", encoding="utf-8") as file:
        return {row["name"]: row for row in json.load(file)["rows"]}


def card_text(folder):
    return " ".join(ModelCard.load(f"{folder}/README.md").text.split())


def write_lines(path, lines):
    path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")


def read_lines():
    return [json.loads(line) for line in TRIPLETS.read_text(encoding="utf-8").splitlines()]


def test_table_5(run, folder, monkeypatch, request, hub):  # noqa: F811
    models = ["--models", "models/bert", "models/roformer"]
    arguments = ["triplets.jsonl", *models, "--max-length", 24, 48, "--seeds", 1, 0, "--baselines"]
    code, out, err = run(*arguments)
    assert code == 0, err
    rows = rows_of()
    trained = ["bert-24", "roformer-24", "roformer-48"]
    without = ["text-blind: wins in training", "TF-IDF, words", "TF-IDF, pairs of characters"]
    assert {name for name, row in rows.items() if row["runs"]} == {
        *without, *trained, *(f"{name}, not trained" for name in trained)
    }  # fmt: skip
    assert "32" in rows["bert-48"]["note"] and rows["bert-48"]["note"] in out
    saved = json.loads((folder / "run" / "results.json").read_text(encoding="utf-8"))
    triplets = {f"triplets.jsonl, line {number}": line for number, line in enumerate(read_lines(), 1)}
    for name, row in rows.items():
        for number in row["runs"]:
            right = [
                {True: 1, False: 0}[answer == triplets[place]["label"]] for place, answer in number["answers"].items()
            ]
            ties = sum(answer == "neither" for answer in number["answers"].values())
            assert len(right) == 5 and number["accuracy"] == pytest.approx((sum(right) + ties / 2) / 5)
        if row["runs"]:
            accuracies = [number["accuracy"] for number in row["runs"]]
            summary = saved["summary"][name]["test"]
            assert (summary["mean"], summary["deviation"]) == pytest.approx(
                (np.mean(accuracies), np.std(accuracies, ddof=1))
            )
            assert f"{100 * summary['mean']:.1f} ± {100 * summary['deviation']:.1f}" in out
    # With one seed all rows are asked about the same triplets.
    for number in (0, 1):
        assert len({tuple(row["runs"][number]["answers"]) for row in rows.values() if row["runs"]}) == 1
    compared = {(pair["row"], pair["against"]) for pair in saved["comparisons"]}
    assert {("roformer-48", "roformer-24"), ("roformer-24", "bert-24"), ("roformer-24", without[0])} <= compared
    assert ("roformer-48", "bert-24") not in compared
    assert_states(out.splitlines()[-2], 0, "15")

    # The folder of a row is the model of its best seed: it gives that seed's answers.
    for name in trained:
        best = max(rows[name]["runs"], key=lambda number: number["validation"])
        match = pipeline("triplet-matching", model=f"run/{name}", device="cpu")
        assert match.tokenizer.model_max_length == int(name[-2:])
        assert {place: match(triplets[place])["label"] for place in best["answers"]} == best["answers"]
        card = ModelCard.load(f"run/{name}/README.md")
        (score,) = card.data.eval_results
        assert (score.metric_type, score.metric_value) == ("accuracy", pytest.approx(best["accuracy"], abs=1e-4))
        assert card.data.base_model == name.rpartition("-")[0] and "- learning rate: " in card.text
        assert "](curves.png)" in card.text and len(imread(f"run/{name}/curves.png")) > 100
        assert str(write_card(f"run/{name}")).endswith("up to date")
    assert sorted(path.name for path in (folder / "run").iterdir()) == sorted([*trained, "results.json"])
    assert push("run/roformer-48", "somebody/triplets").endswith("somebody/triplets")
    pushed = hub.repos["somebody/triplets"].files()
    assert {"README.md", "curves.png", "model.safetensors", "vocab.txt"} <= set(pushed)
    assert pushed["README.md"] == (folder / "run" / "roformer-48" / "README.md").read_bytes()

    # The same command again trains nothing and shows the same.
    def train(*_, **__):
        raise AssertionError("there is nothing to train")

    monkeypatch.setattr(Trainer, "train", train)
    request.getfixturevalue("no_pictures")
    assert run(*arguments)[:2] == (0, out)
    code, _, err = run(*arguments, "--scorer", "bi")
    assert code == 1
    assert_states(err, "run/results.json", "scorer")
    save_model(folder / "other" / "roformer", initializer_range=0.1)
    code, _, err = run("triplets.jsonl", "--models", "other/roformer", "--max-length", 24)
    assert code == 1
    assert_states(err, "run/results.json", "weights of roformer-24")


def test_a_run_that_was_stopped_goes_on(run, folder, monkeypatch, no_pictures):
    arguments = ["triplets.jsonl", "--models", "models/roformer", "--max-length", 24, "--seeds", 0, 1, "--epochs", 1]
    begun = []
    train = Trainer.train

    def stop(self, *given, **named):
        begun.append(self.args.seed)
        assert (Path(self.args.output_dir).parent / "results.json").exists()  # so that even a killed one goes on
        if begun == [0, 1]:
            raise KeyboardInterrupt
        return train(self, *given, **named)

    monkeypatch.setattr(Trainer, "train", stop)
    code, _, err = run(*arguments)
    assert code == 130 and err.startswith("finetune_triplet: ") and begun == [0, 1]
    assert [number["seed"] for number in rows_of()["roformer-24"]["runs"]] == [0]
    assert RoFormerForTripletMatching.from_pretrained("run/roformer-24").config.triplet_scorer == "cross"
    assert run(*arguments)[0] == 0 and begun == [0, 1, 1]
    gone_on = rows_of()["roformer-24"]
    assert run(*arguments, "--output", "whole")[0] == 0

    def of(row):
        return [(number["seed"], number["validation"], number["answers"]) for number in row["runs"]]

    assert of(rows_of("whole")["roformer-24"]) == of(gone_on)


def test_a_given_test_file_is_only_tested(run, folder, no_pictures):
    lines = read_lines()
    write_lines(folder / "train.jsonl", lines[:14])
    write_lines(folder / "test.jsonl", lines[14:])
    swapped = [{**line, "label": "CB"["BC".index(line["label"])]} for line in lines[14:]]
    write_lines(folder / "swapped.jsonl", swapped)
    model = ["--models", "models/roformer", "--max-length", 24, "--scorer", "bi", "--baselines"]
    assert run("--train", "train.jsonl", "--test", "test.jsonl", *model)[0] == 0
    assert run("--train", "train.jsonl", "--test", "swapped.jsonl", *model, "--output", "swapped")[0] == 0
    one, other = rows_of(), rows_of("swapped")
    for name in one:
        (first,), (second,) = one[name]["runs"], other[name]["runs"]
        assert list(first["answers"].values()) == list(second["answers"].values())
        assert first["accuracy"] == pytest.approx(1 - second["accuracy"])
        assert first["validation"] == second["validation"]
    # A fifth of 14 lines are 3; a given file for validation serves whole.
    assert_states(card_text("run/roformer-24"), "11 triplets of train.jsonl", "on 3 others")
    (score,) = ModelCard.load("run/roformer-24/README.md").data.eval_results
    assert score.dataset_name == "test.jsonl"
    assert_states(card_text("run/roformer-24"), "10 triplets of test.jsonl")
    write_lines(folder / "validation.jsonl", lines[4:17])
    files = ["--train", "train.jsonl", "--validation", "validation.jsonl", "--test", "test.jsonl"]
    code, out, err = run(*files, *model, "--output", "three", "--data-name", "cases", "--bf16", "--epochs", 1)
    assert code == 0, err
    assert_states(out.splitlines()[-2], 9, "30")
    assert_states(card_text("three/roformer-24"), "14 triplets of cases", "on 13 others")
    assert AutoTokenizer.from_pretrained("three/roformer-24").model_max_length == 24


def test_a_table_with_other_names_at_the_default_rate(folder, monkeypatch, capfd, no_pictures):
    frame = pandas.DataFrame(read_lines()).rename(columns={"A": "case", "B": "first", "C": "second", "label": "closer"})
    frame.to_csv("cases.csv", index=False)
    names = ["--a", "case", "--b", "first", "--c", "second", "--label", "closer"]
    words = ["cases.csv", *names, "--models", "models/roformer", "--max-length", 24, "--epochs", 1, "--output", "run"]
    code, out, err = run_script(SCRIPT, words, monkeypatch, capfd)
    assert code == 0, err
    assert_states(out.splitlines()[0], "learning rate 0.001", f"width {TINY['hidden_size']}", "--learning-rate")
    card = ModelCard.load("run/roformer-24/README.md")
    assert card.data.eval_results[0].dataset_name == "cases.csv" and str(folder) not in str(card)
    assert "- learning rate: 0.001\n" in card.text


def test_bad_arguments_are_named(run, folder):
    def refusal(*arguments):
        code, _, err = run(*arguments)
        assert code == 1 and err.startswith("finetune_triplet: ") and not (folder / "run").exists()
        return err

    roformer = ["--models", "models/roformer"]
    lines = read_lines()
    write_lines(folder / "alike.jsonl", [line for line in lines if line["label"] == "C"])
    assert_states(refusal("alike.jsonl", *roformer), "alike.jsonl", "label", "C")
    write_lines(folder / "few.jsonl", lines[:3])
    assert_states(refusal("few.jsonl", *roformer), "few.jsonl", "3 triplets")
    assert_states(refusal("--train", "triplets.jsonl", "--test", "few.jsonl", *roformer), "few.jsonl", "3 triplets")
    write_lines(folder / "bad.jsonl", [*lines[:6], {"A": "甲", "B": "乙", "label": "B"}])
    assert_states(refusal("bad.jsonl", *roformer), "bad.jsonl", "line 7", "C")
    assert "none.jsonl does not exist" in refusal("none.jsonl", *roformer)

    assert_states(refusal("triplets.jsonl", "--models", "./nowhere"), "./nowhere")
    legacy = REPOSITORY / "tests" / "fixtures" / "legacy"
    assert_states(refusal("triplets.jsonl", "--models", legacy / "word"), "config.json", "`roformer convert`")
    BertConfig().save_pretrained("plain-bert")
    assert_states(refusal("triplets.jsonl", "--models", "plain-bert"), "plain-bert", "bert", "RoFormer")
    convert(legacy / "wonezha", "wonezha")
    assert_states(refusal("triplets.jsonl", "--models", "wonezha"), "wonezha", "nezha", "RoFormer")
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=20, **TINY)).save_pretrained("bare")
    assert_states(refusal("triplets.jsonl", "--models", "bare"), "bare", "no tokenizer", "vocab.txt")
    shutil.copy(VOCAB, "bare")
    assert_states(refusal("triplets.jsonl", "--models", "bare"), "bare", "12,000", 20)
    assert_states(refusal("triplets.jsonl", *roformer, folder / "models" / "roformer"), "same name", "roformer")
    shutil.copytree(folder / "models" / "roformer", "short")
    weights = folder / "short" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert_states(
        refusal("triplets.jsonl", "--models", "short"), "short/model.safetensors", "cannot be loaded", "restore"
    )
    write_lines(folder / "empty.jsonl", [*lines[:6], {"A": "甲", "B": "\u0001", "C": "乙", "label": "B"}, *lines])
    for options in (["--epochs", 0, "--baselines"], []):
        code, _, err = run("empty.jsonl", *roformer, *options, "--output", f"empty{len(options)}")
        assert code == 1
        assert_states(err, "empty.jsonl, line 7", 'text "B"', "token")
    (folder / "run").mkdir()
    (folder / "run" / "notes.txt").write_text("mine")
    code, _, err = run("triplets.jsonl", *roformer)
    assert code == 1
    assert_states(err, "run", "no results.json")
    for wrong in (
        roformer,
        ["triplets.jsonl"],
        ["triplets.jsonl", *roformer, "--test", "triplets.jsonl"],
        ["triplets.jsonl", *roformer, "--max-length", 3],
        ["triplets.jsonl", *roformer, "--batch-size", 0],
    ):
        assert run(*wrong)[0] == 2  # argparse's own


def test_comparisons_do_not_depend_on_the_order_of_commands_and_outlast_a_refused_one(run, folder, no_pictures):
    arguments = ["triplets.jsonl", "--models", "models/roformer", "--max-length", 24, "--epochs", 1]

    def compared():
        saved = json.loads((folder / "run" / "results.json").read_text())
        return {(pair["row"], pair["against"]) for pair in saved["comparisons"]}

    assert run(*arguments)[0] == 0 and not compared()
    assert run(*arguments, "--baselines")[0] == 0
    assert ("roformer-24", "text-blind: wins in training") in (found := compared())
    save_model(folder / "other" / "roformer", initializer_range=0.1)
    assert run("triplets.jsonl", "--models", "other/roformer", "--max-length", 24, "--epochs", 1)[0] == 1
    assert compared() == found


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.update(name=1),
        lambda row: row.update(failed=["0"]),
        lambda row: row.update(failed={"x": "the loss is nan"}),
        lambda row: row["runs"].append(None),
        lambda row: row["runs"][0].update(validation=None),
        lambda row: row["runs"][0].update(seed="0"),
        lambda row: row["runs"][0].update(results=[1]),
        lambda row: row["runs"][0].update(results=[], answers={}),
        lambda row: row["runs"][0].pop("ties"),
        lambda row: row["runs"][0].update(accuracy=2),
        lambda row: row["runs"][0].update(accuracy=0.999),
        lambda row: row["runs"][0].update(ties=1),
        lambda row: row["runs"][0]["results"].pop() + len(row["runs"][0]["answers"].popitem()),
        lambda row: row.update(failed={"0": "the loss is nan"}),
    ],
)
def test_misshapen_results_are_named_and_kept(run, folder, change):
    arguments = ["triplets.jsonl", "--baselines", "--epochs", 0]
    assert run(*arguments)[0] == 0
    path = folder / "run" / "results.json"
    saved = json.loads(path.read_text())
    change(saved["rows"][1])
    path.write_text(json.dumps(saved))
    before = path.read_text()
    code, _, err = run(*arguments)
    assert code == 1 and path.read_text() == before
    assert_states(err, "results.json", "damaged", "another folder")


def test_where_all_runs_fail(run, folder):
    arguments = ["triplets.jsonl", "--models", "models/roformer", "--max-length", 24, "--seeds", 0, 1]
    code, out, err = run(*arguments, "--learning-rate", "1e30")
    assert code == 1
    assert_states(err, "2 runs")
    assert "roformer-24 │ 0, 2 failed │     failed │ failed" in out and "failed: roformer-24, seed 1: " in out
    (row,) = json.loads((folder / "run" / "results.json").read_text(), parse_constant=pytest.fail)["rows"]
    assert row["runs"] == [] and row["failed"].keys() == {"0", "1"}
    assert [path.name for path in (folder / "run").iterdir()] == ["results.json"]


def test_a_failed_run_is_named_and_never_best(run, folder, monkeypatch, no_pictures):

    step = Trainer.training_step

    def failing(self, model, *arguments):
        if self.args.seed == 0:
            next(model.parameters()).data.fill_(torch.nan)
        return step(self, model, *arguments)

    monkeypatch.setattr(Trainer, "training_step", failing)
    arguments = ["triplets.jsonl", "--models", "models/roformer", "--max-length", 24, "--seeds", 0, 1, "--epochs", 1]
    code, out, err = run(*arguments)
    assert (
        code == 0
        and "roformer-24 │ 1, 1 failed" in out
        and "failed: roformer-24, seed 0: the loss is nan at step 1" in out
    ), err
    results = folder / "run" / "results.json"
    (row,) = json.loads(results.read_text(), parse_constant=pytest.fail)["rows"]
    (good,) = row["runs"]
    assert good["seed"] == 1 and row["failed"].keys() == {"0"}
    assert "this model, seed 1" in (folder / "run" / "roformer-24" / "README.md").read_text(encoding="utf-8")
    monkeypatch.setattr(Trainer, "train", lambda *_, **__: pytest.fail("trained again"))
    assert run(*arguments)[0] == 0


def test_vectors_that_are_not_finite(run, folder):
    model = RoFormerForMaskedLM.from_pretrained("models/roformer")
    model.roformer.embeddings.LayerNorm.bias.data.fill_(torch.nan)
    model.save_pretrained("models/roformer")
    code, out, err = run(
        "triplets.jsonl", "--models", "models/roformer", "--max-length", 24, "--baselines", "--epochs", 0
    )
    assert code == 0, err
    (line,) = (line for line in out.splitlines() if "│ roformer-24, not trained" in line)
    assert_states(line, "0, 1 failed", "failed │ failed")
    assert_states(out, "failed: roformer-24, not trained, seed 0: the weight", "roformer.embeddings.LayerNorm.bias")
