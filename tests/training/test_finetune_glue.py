"""examples/finetune_glue.py: it reads GLUE's files, scores as GLUE does, compares, goes on, and says what it cannot
read."""

import json
import shutil

import datasets
import numpy as np
import pytest
import torch
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.small_models import TINY
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from scipy.stats import rankdata
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.finetuning.glue import read_task
from modeling_roformer.training.metrics import metric

SCRIPT = REPOSITORY / "examples" / "finetune_glue.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
MODELS = ["bert", "roformer"]
WORDS = "明月几时有把酒问青天不知今夕是何年"


def write(path, *lines, newline="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((newline.join(lines) + newline).encode())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two small models, and a file of each kind that GLUE has."""
    monkeypatch.chdir(tmp_path)
    tokenizer = RoFormerTokenizer(str(VOCAB))
    for name, encoding in (("bert", "learned"), ("roformer", "rotary")):
        torch.manual_seed(0)
        config = RoFormerConfig(vocab_size=len(tokenizer), position_encoding=encoding, **TINY)
        RoFormerForMaskedLM(config).save_pretrained(name)
        tokenizer.save_pretrained(name)
    pairs = [(WORDS[i : i + 4], WORDS[i + 1 : i + 5], i % 2) for i in range(12)]
    glue = tmp_path / "glue"
    heading = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    for file in ("train", "test"):  # which is what the published MRPC has, with its byte order mark and line ends
        write(glue / "MRPC" / f"{file}.tsv", heading, *(f"{y}\t1\t2\t{a}\t{b}" for a, b, y in pairs), newline="\r\n")
    for file in ("train", "dev"):
        write(glue / "sst2" / f"{file}.tsv", *(f'"{a}\t{y}' for a, _, y in pairs))
        write(glue / "stsb" / f"{file}.csv", *(f'"{a}，\u2028, ",{b},{y * 2.5}' for a, b, y in pairs))
        names = ("entailment", "not_entailment")
        write(
            glue / "qnli" / f"{file}.tsv",
            "index\tquestion\tsentence\tlabel",
            *(f"{i}\t{a}\t{b}\t{names[y]}" for i, (a, b, y) in enumerate(pairs)),
        )
    for file in ("train", "dev_matched", "dev_mismatched"):
        names = ("contradiction", "neutral")
        write(
            glue / "MNLI" / f"{file}.tsv",
            "index\tsentence1\tgenre\tsentence2\tgold_label",
            *(f"{i}\t{a}\tx\t{b}\t{names[y]}" for i, (a, b, y) in enumerate(pairs)),
        )
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script on the named models with options: exit code, output, last line of errors."""

    def run(models, *options):
        arguments = ["--models", *models, "--data", "glue", "--output", "runs", *options]
        return run_script(SCRIPT, arguments, monkeypatch, capfd)

    return run


def test_files_of_every_kind_are_read(folder):
    read = {name: read_task(name, "glue") for name in ("mrpc", "sst2", "stsb", "qnli", "mnli")}
    assert read["mrpc"]["validation"][1] == {"text": WORDS[1:5], "pair": WORDS[2:6], "label": 1}
    assert read["sst2"]["train"][1] == {"text": f'"{WORDS[1:5]}', "label": 1}  # a quote is part of the text there
    assert read["stsb"]["train"][1] == {"text": f"{WORDS[1:5]}，\u2028, ", "pair": WORDS[2:6], "label": 2.5}
    assert read["qnli"]["train"].features["label"].names == ["entailment", "not_entailment"]
    assert read["qnli"]["train"]["label"][:2] == [0, 1]
    assert list(read["mnli"]) == ["train", "validation_matched", "validation_mismatched"]
    assert read["mnli"]["train"]["label"][:2] == [2, 1]
    assert all(len(texts) == 12 for parts in read.values() for texts in parts.values())


def test_a_data_set_has_a_configuration_for_each_task(folder, monkeypatch):
    columns = {"premise": [WORDS[:4], WORDS[1:5]], "hypothesis": [WORDS[2:6], WORDS[3:7]], "label": [2, 0]}
    features = datasets.Features(
        premise=datasets.Value("string"),
        hypothesis=datasets.Value("string"),
        label=datasets.ClassLabel(names=["entailment", "neutral", "contradiction"]),
    )
    asked = []

    def load_dataset(name, config, split, **_):
        asked.append((name, config, split))
        return datasets.Dataset.from_dict(columns, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    read = read_task("mnli", "nyu-mll/glue")
    assert asked == [
        ("nyu-mll/glue", "mnli", part) for part in ("train", "validation_matched", "validation_mismatched")
    ]
    assert read["train"][0] == {"text": WORDS[:4], "pair": WORDS[2:6], "label": 2}
    columns["label"] = [-1, 0]  # as the published test parts have it
    with refused(TrainingError, "nyu-mll/glue:mnli", "row 1 of train", "'-1'", "entailment"):
        read_task("mnli", "nyu-mll/glue")


def test_scores_are_those_of_glue():
    predictions, references = np.array([1, 1, 0, 1, 0, 0]), np.array([1, 0, 0, 1, 1, 0])
    both = ((predictions == 1) & (references == 1)).sum()
    expected = 2 * both / (predictions.sum() + references.sum())
    assert metric("f1").compute(predictions=predictions, references=references)["f1"] == pytest.approx(expected)
    numbers, others = np.array([0.1, 3.0, 2.0, 2.0, 5.0]), np.array([1.0, 2.0, 2.5, 4.0, 3.0])
    expected = np.corrcoef(rankdata(numbers), rankdata(others))[0, 1]
    found = metric("spearman").compute(predictions=numbers, references=others)["spearman"]
    assert found == pytest.approx(expected)
    assert metric("spearman").compute(predictions=[1.0, 1.0], references=[1.0, 2.0])["spearman"] == 0


def test_models_are_compared_and_the_best_kept(folder, run, monkeypatch):
    options = ["--tasks", "stsb", "mnli", "--epochs", "1", "--length", "16", "--batch-size", "4"]
    options += ["--learning-rates", "1e-3", "1e-2", "--seeds", "0", "1"]
    code, out, error = run(MODELS, *options)
    assert code == 0, error
    runs = json.loads((folder / "runs" / "results.json").read_text())["runs"]
    assert len(runs) == 2 * 2 * 2 * 2
    assert "STS-B, spearman" in out and "MNLI, accuracy" in out and "±" in out
    for name in ("bert", "roformer"):
        of_task = [entry for entry in runs if (entry["model"], entry["task"]) == (name, "stsb")]
        means = {
            rate: np.mean([entry["scores"]["validation"] for entry in of_task if entry["rate"] == rate])
            for rate in (1e-3, 1e-2)
        }
        assert f"{max(means.values()):.1f} ±" in out
    saved = AutoModelForSequenceClassification.from_pretrained("runs/roformer-stsb")
    assert saved.config.problem_type == "regression" and saved.num_labels == 1
    saved = AutoModelForSequenceClassification.from_pretrained("runs/bert-mnli")
    assert saved.config.position_encoding == "learned" and saved.config.id2label[2] == "contradiction"
    card = ModelCard((folder / "runs/roformer-stsb/README.md").read_text(encoding="utf-8"))
    score = card.data.eval_results[0]
    assert card.data.base_model == "roformer" and "- learning rate: " in card.text and str(folder) not in str(card)
    best = max(
        entry["scores"]["validation"] for entry in runs if (entry["model"], entry["task"]) == ("roformer", "stsb")
    )
    assert (score.metric_type, score.metric_value) == ("spearman", pytest.approx(best / 100))

    monkeypatch.setattr(Trainer, "train", lambda *_, **__: pytest.fail("trained again"))
    code, again, _ = run(MODELS, *options)
    assert code == 0 and again.splitlines()[-3:] == out.splitlines()[-3:]
    code, _, error = run(MODELS, "--tasks", "mrpc", "--epochs", "2")
    assert code == 1
    assert_states(error, "runs/results.json", "epochs")


@pytest.mark.parametrize(
    ("name", "file", "lines", "facts"),
    [
        ("sst2", "sst2/train.tsv", ["好\t1", "坏\t2"], ["line 2", "label", "'2'", "0, 1"]),
        ("stsb", "stsb/dev.csv", ["一,二,5.5"], ["line 1", "label", "'5.5'", 0, 5]),
        ("stsb", "stsb/dev.csv", ["一,二,nan"], ["line 1", "label", "'nan'"]),
        (
            "qnli",
            "qnli/dev.tsv",
            ["index\tquestion\tlabel"],
            ["line 1", "sentence", "index, question, label"],
        ),
        ("qnli", "qnli/dev.tsv", ["question\tsentence\tlabel", "一\t二"], ["line 2", "2 columns", 3]),
        ("mrpc", "MRPC/train.tsv", ["一\t \t1"], ["line 1", "text", "empty"]),
        ("mrpc", "MRPC/train.tsv", [""], ["no text"]),
        ("stsb", "stsb/dev.csv", ['"一,二,3'], ["line"]),
    ],
)
def test_files_that_cannot_be_read(folder, name, file, lines, facts):
    write(folder / "glue" / file, *lines)
    with refused(TrainingError, f"glue/{file}", *facts):
        read_task(name, "glue")


def test_what_is_missing_is_said(folder, run):
    with refused(TrainingError, "glue", "qqp", "QQP"):
        read_task("qqp", "glue")
    (folder / "glue" / "sst2" / "dev.tsv").unlink()
    with refused(TrainingError, "glue/sst2", "dev.tsv", "dev.csv", "test.tsv"):
        read_task("sst2", "glue")
    with refused(TrainingError, "elsewhere"):
        read_task("sst2", "elsewhere")
    BertConfig().save_pretrained("other")
    code, _, error = run(["other"], "--tasks", "mrpc")
    assert code == 1
    assert_states(error, "other", "bert")
    code, _, error = run(["bert", "../" + folder.name + "/bert"], "--tasks", "mrpc")
    assert code == 1
    assert_states(error, "same name", "bert")
    assert not (folder / "runs").exists()


def test_a_failed_run_is_named_and_never_best(folder, run):
    """At this rate SST-2 gives a loss of 0 or none, and by the first class of each text an accuracy of one half."""
    options = ["--tasks", "sst2", "stsb", "--epochs", "2", "--length", "16", "--batch-size", "4", "--seeds", "0", "1"]
    code, out, error = run(["roformer"], *options, "--learning-rates", "1e20", "1e-3")
    assert code == 0, error
    text = (folder / "runs" / "results.json").read_text()
    runs = json.loads(text, parse_constant=pytest.fail)["runs"]
    for entry in runs:
        assert (entry["scores"] is None) == bool(entry.get("failed")) == (entry["rate"] == 1e20)
    assert "failed: roformer, sst2, learning rate 1e+20, seed 1: " in out and out.count("(0.001)") == 2
    for task in ("sst2", "stsb"):
        card = ModelCard((folder / f"runs/roformer-{task}/README.md").read_text(encoding="utf-8"))
        best = max(entry["scores"]["validation"] for entry in runs if entry["task"] == task and entry["scores"])
        assert card.data.eval_results[0].metric_value == pytest.approx(best / 100)
        assert all(value.isfinite().all() for value in load_file(f"runs/roformer-{task}/model.safetensors").values())
    # The row is there, and the run is not made again.
    code, again, error = run(["roformer"], *options, "--learning-rates", "1e20")
    assert code == 1 and "│ failed" in again
    assert_states(error, "4 runs")
    assert (folder / "runs" / "results.json").read_text() == text


def test_a_rate_at_which_fewer_seeds_failed_is_better(folder, run, monkeypatch):
    scores = {(1e-3, 0): 90.0, (1e-3, 1): None, (1e-4, 0): 60.0, (1e-4, 1): 70.0}
    shutil.copytree(folder / "roformer", folder / "runs" / "roformer-sst2")  # the best model
    rows = [
        {"model": "roformer", "task": "sst2", "rate": rate, "seed": seed, "scores": score and {"validation": score}}
        | ({} if score else {"failed": "the loss is nan"})
        for (rate, seed), score in scores.items()
    ]
    settings = {"data": "glue", "epochs": 3.0, "batch_size": 32, "length": 512, "bf16": False}
    (folder / "runs" / "results.json").write_text(json.dumps({"settings": settings, "runs": rows}))
    options = ["--tasks", "sst2", "--seeds", "0", "1", "--learning-rates", "1e-3"]
    code, out, error = run(["roformer"], *options)
    assert code == 0 and "90.0 (0.001; 1 of 2 failed)" in out, error
    code, out, error = run(["roformer"], *options, "1e-4")
    assert code == 0 and "65.0 ± 7.1 (0.0001)" in out, error
    whole = (folder / "runs" / "results.json").read_text()
    for wrong in ({"scores": None}, {"scores": {"validation": None}}, {"task": "x"}, {"seed": None}, {"rate": "1"}):
        (folder / "runs" / "results.json").write_text(json.dumps({"settings": settings, "runs": [rows[0] | wrong]}))
        code, _, error = run(["roformer"], *options)
        assert code == 1
        assert_states(error, "results.json", "damaged")
    (folder / "runs" / "results.json").write_text(whole.replace("90.0", "NaN"))
    code, _, error = run(["roformer"], *options)
    assert code == 1
    assert_states(error, "results.json", "damaged")
    (folder / "runs" / "results.json").write_text(whole.replace("finetune_glue.py", "translate.py"))
    code, _, error = run(["roformer"], *options)
    assert code == 1
    assert_states(error, "results.json", "translate.py", "another folder")
    assert run(["roformer"], *options, "--length", "2")[0] == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda runs: runs.append(runs[0]),
        lambda runs: runs[0].update(scores={"validation": 4000.0}),
        lambda runs: runs[0].update(scores={"val": 50.0}),
        lambda runs: runs[0].update(scores={}),
        lambda runs: runs[0].update(rate="fast"),
        lambda runs: runs[0].update(seed=0.5),
        lambda runs: runs[0].update(weights=1),
    ],
)
def test_misshapen_results_are_named_and_kept(folder, run, change):
    done = {"model": "a", "task": "sst2", "rate": 1e-3, "seed": 0, "scores": {"validation": 50.0}, "weights": ""}
    path = folder / "runs" / "results.json"
    path.parent.mkdir()
    runs = [done, {**done, "seed": 1, "scores": None, "failed": "the loss is nan"}]
    change(runs)
    recipe = {"epochs": 3, "batch_size": 16, "length": 128, "bf16": False}
    path.write_text(json.dumps({"script": "finetune_glue.py", "settings": recipe, "runs": runs}))
    before = path.read_bytes()
    code, _, error = run(["roformer"], "--tasks", "sst2")
    assert code == 1 and path.read_bytes() == before
    assert_states(error, path.relative_to(folder), "damaged")
