"""examples/finetune_classification.py: it learns, keeps the best seed, resumes, and shows what it predicts."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import torch
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.script_process import kill_at
from helpers.script_process import run as run_process
from helpers.scripts import run_script
from helpers.small_models import save_masked_lm
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, pipeline

from modeling_roformer import RoFormerTokenizer

SCRIPT = REPOSITORY / "examples" / "finetune_classification.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
FIELDS = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "initializer_range": 0.3,
}
# What a text is about: the moon or heaven.
LINES = [
    f"{words}{end}\t{label}" for label, words in (("月", "明月"), ("天", "天上")) for end in "。，几何时有不知今夕" * 2
]
OPTIONS = ["start", "--output", "run", "--learning-rate", "3e-2", "--batch-size", "4", "--patience", "2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_masked_lm("start", VOCAB, **FIELDS)
    (tmp_path / "texts.tsv").write_text("\n".join(["text\tlabel", *LINES]), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""

    def run(*arguments, options=OPTIONS):
        return run_script(SCRIPT, [*options, *arguments], monkeypatch, capfd)

    return run


def results(folder):
    return json.loads((folder / "run" / "results.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
def test_one_file_is_split_and_learned(folder):
    words = [*OPTIONS, "--train", "texts.tsv", "--epochs", "12"]
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "train: 24 texts, validation: 8 texts, test: 8 texts\n" in done.stdout
    assert_states(" ".join(done.stdout.splitlines()[-2:]), "run/model", "run/curves.png", "run/confusion.png")
    assert sorted(os.listdir("run")) == ["confusion.png", "curves.png", "model", "results.json", "settings.json"]
    assert results(folder)["texts"] == {"train": 24, "validation": 8, "test": 8}
    scores, log = results(folder)["seeds"]["0"].values()
    assert scores["validation"] == {"accuracy": 1.0, "macro_f1": 1.0} and scores["test"]["accuracy"] > 0.7
    # It stopped when there was nothing to gain for two epochs.
    epochs = {entry["epoch"]: entry["eval_accuracy"] for entry in log if "eval_accuracy" in entry}
    best = min(epoch for epoch, accuracy in epochs.items() if accuracy == 1)
    assert max(epochs) == best + 2 < 12
    # A line per epoch, and no bars where there is no terminal.
    assert len([line for line in done.stdout.splitlines() if line.startswith("epoch ")]) == len(epochs)
    assert "it/s" not in done.stderr and "pin_memory" not in done.stderr and "\r" not in done.stderr

    model = AutoModelForSequenceClassification.from_pretrained("run/model")
    assert model.config.id2label == {0: "天", 1: "月"}
    classify = pipeline("text-classification", model="run/model", device="cpu")
    assert [answer["label"] for answer in classify(["明月几时有", "天上"])] == ["月", "天"]
    assert AutoTokenizer.from_pretrained("run/model").get_vocab() == RoFormerTokenizer(str(VOCAB)).get_vocab()
    card = ModelCard.load("run/model/README.md")
    assert [(r.dataset_name, r.dataset_split, r.metric_type, r.metric_value) for r in card.data.eval_results] == [
        ("texts.tsv", "test", name, value) for name, value in scores["test"].items()
    ]
    assert (
        card.data.base_model is None
        and "| base model | start |" in card.text
        and str(folder) not in str(card)
        and "\n# run\n" in card.text
    )
    assert_states(card.text, "24 labelled texts", "learning rate: 0.03", "batch size: 4", "seed: 0")


def test_a_trained_head_keeps_its_labels(run, no_pictures):
    labels = {"id2label": {0: "月", 1: "天"}, "label2id": {"月": 0, "天": 1}}  # not sorted
    first = AutoModelForSequenceClassification.from_pretrained("start", **labels)
    first.save_pretrained("start")
    options = [*OPTIONS[:3], "--learning-rate", "1e-9", "--train", "texts.tsv", "--epochs", "1"]
    assert run(options=options)[0] == 0
    model = AutoModelForSequenceClassification.from_pretrained("run/model")
    assert model.config.id2label == first.config.id2label
    assert torch.allclose(model.classifier.out_proj.weight, first.classifier.out_proj.weight, atol=1e-6)


def test_seeds_and_going_on(run, folder, monkeypatch, no_pictures):
    """Results of a seed are kept, and the model is that of the best seed by validation, not by test."""
    accuracies = {0: (0.5, 1.0), 1: (0.9, 0.3), 2: (0.6, 0.6)}  # of validation and test
    trained, train, predict = [], Trainer.train, Trainer.predict

    def patched(self, *arguments, **options):
        if trained == [0] and not (folder / "stopped").exists():
            (folder / "stopped").touch()
            raise KeyboardInterrupt
        trained.append(self.args.seed)
        return train(self, *arguments, **options)

    def measured(self, texts, **options):
        found = predict(self, texts, **options)
        if self.args.seed in accuracies:  # not for the table of the saved model
            found.metrics["test_accuracy"] = accuracies[self.args.seed][len(texts) == 40]
        return found

    monkeypatch.setattr(Trainer, "train", patched)
    monkeypatch.setattr(Trainer, "predict", measured)
    few = "".join(f"{line}\n" for line in ["text\tlabel", *LINES[15:25]])
    (folder / "few.tsv").write_text(few, encoding="utf-8")
    arguments = ["--train", "few.tsv", "--validation", "few.tsv", "--test", "texts.tsv", "--epochs", "1"]
    code, _, err = run(*arguments, "--seeds", "0", "1", "2")
    assert code == 130 and err.startswith("finetune_classification: ")
    assert {"model", "results.json", "settings.json"} <= {*os.listdir("run")} and not os.path.exists("run/curves.png")
    command = shlex.split(err[err.index("python ") :])  # which resumes
    assert command[2:] == [*OPTIONS, *arguments, "--seeds", "0", "1", "2", "--resume"]
    code, out, err = run(*arguments, "--seeds", "0", "1", "2", "--resume")
    assert code == 0 and trained == [0, 1, 2] and not [*folder.glob("run/seed-*")], err
    assert ModelCard.load("run/model/README.md").data.eval_results[0].metric_value == 0.3
    assert "0.667 ± 0.208" in out and "0.633 ± 0.351" in out
    # Another run's results are never printed as this one's.
    for change, name in (["--seeds", "0"], "seeds"), (["--seeds", "0", "1", "2", "--train", "texts.tsv"], "train"):
        code, out, err = run(*arguments, *change, "--resume")
        assert code == 1 and "0.667" not in out
        assert_states(err, "run", f"different {name}")


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", ["seed-0/checkpoint-12", "seed-0/checkpoint-18", "seed-1/checkpoint-6"])
def test_a_killed_seed_resumes_as_if_it_had_not_been_killed(folder, checkpoint):
    """In the second epoch, after the last one, which patience ended, and in the second seed."""
    words = [*OPTIONS[:1], "--train", "texts.tsv", "--seeds", "0", "1", "--learning-rate", "1e-9", "--batch-size", "4"]
    words += ["--patience", "2", "--output"]  # nothing is learned, so the third epoch is the last one
    assert run_process(SCRIPT.name, folder, *words, "whole")[0] == 0
    kill_at(SCRIPT.name, folder, f"run/{checkpoint}/trainer_state.json", *words, "run")
    code, out, err = run_process(SCRIPT.name, folder, *words, "run", "--resume")
    assert code == 0 and f"run/{checkpoint}" in out, err
    whole, parts = (json.loads((folder / name / "results.json").read_text())["seeds"] for name in ("whole", "run"))
    for seed in "0", "1":
        assert whole[seed]["scores"] == parts[seed]["scores"]
        # All but the summary at the end, whose time is of the last part.
        logs = whole[seed]["log"][:-1], parts[seed]["log"][:-1]
        for entry in (*logs[0], *logs[1]):
            for name in [name for name in entry if name.endswith(("runtime", "per_second"))]:
                del entry[name]
        assert logs[0] == logs[1] and logs[0][-1]["epoch"] == 3
    models = [load_file(folder / name / "model" / "model.safetensors") for name in ("whole", "run")]
    assert all(torch.equal(weight, models[1][name]) for name, weight in models[0].items())


KINDS = {"several": ["--label-separator", "+"], "numbers": ["--numbers"]}


@pytest.fixture
def arguments_of(folder):
    """Return a function that writes texts with several labels or numbers, and returns the arguments for them."""

    def write(kind, *more):
        texts = {"月": "明月", "天": "天上", "月+天": "明月天上"}
        labels = dict(zip(texts, texts if kind == "several" else (100, 300, 250), strict=True))
        rows = [f"{texts[label]}{end}\t{labels[label]}" for label in texts for end in "。，几何时有不知今夕" * 2]
        (folder / "rows.tsv").write_text("\n".join(["text\tkind", *rows, "明月。\t-"]), encoding="utf-8")
        words = ["start", "--train", "rows.tsv", "--label", "kind", "--ignore-label", "-", *KINDS[kind]]
        return [*words, "--learning-rate", "3e-2", "--batch-size", "4", *more]

    return write


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_several_labels_and_numbers_are_learned_and_served(kind, run, folder, arguments_of, no_pictures):
    words = arguments_of(kind, "--epochs", "30", "--patience", "30", "--output", "run")
    code, out, err = run("--predictions", "found.jsonl", options=words)
    assert code == 0 and "train: 36 texts, validation: 12 texts, test: 12 texts, left out: 1 texts\n" in out, err
    assert not (folder / "run" / "confusion.png").exists()
    scores = results(folder)["seeds"]["0"]["scores"]["test"]
    assert scores["exact_match"] > 0.7 if kind == "several" else scores["mean_absolute_error"] < 30
    card = ModelCard.load(folder / "run" / "model" / "README.md")
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == scores
    rows = [json.loads(line) for line in (folder / "found.jsonl").read_text(encoding="utf-8").splitlines()]
    classify = pipeline("text-classification", model="run/model", top_k=None, device="cpu")
    for row, answers in zip(rows, classify([row["text"] for row in rows]), strict=True):
        served = [(answer["label"], answer["score"]) for answer in answers]
        if kind == "several":
            found = zip(row["predicted"], row["score"], strict=True)
            served = [(label, score) for label, score in served if score >= 0.5]
        else:
            found = [("kind", row["predicted"])]
        assert [*found] == [(label, pytest.approx(score, rel=1e-4)) for label, score in served]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_of_several_labels_or_numbers_resumes_as_if_it_had_not_been_killed(kind, folder, arguments_of):
    words = arguments_of(kind, "--epochs", "3", "--output")
    assert run_process(SCRIPT.name, folder, *words, "whole")[0] == 0
    kill_at(SCRIPT.name, folder, "run/seed-0/checkpoint-9/trainer_state.json", *words, "run")
    code, out, err = run_process(SCRIPT.name, folder, *words, "run", "--resume")
    assert code == 0 and "run/seed-0/checkpoint-" in out, err
    whole, resumed = (json.loads((folder / name / "results.json").read_text()) for name in ("whole", "run"))
    assert whole["seeds"]["0"]["scores"] == resumed["seeds"]["0"]["scores"]
    models = [load_file(folder / name / "model" / "model.safetensors") for name in ("whole", "run")]
    assert all(torch.equal(weight, models[1][name]) for name, weight in models[0].items())


@pytest.mark.slow
def test_labels_from_folders_with_weights(run, folder, no_pictures):
    """A fifth of the texts are of the rare class."""
    for number, line in enumerate(LINES[:20] + LINES[20:] * 4):
        text, label = line.split("\t")
        place = folder / "data" / label / f"{number}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    words = ["--train", "data", "--label-from-folders", "--class-weights", "balanced", "--epochs", "20"]
    code, out, err = run(*words, "--patience", "20", "--learning-rate", "1e-2")
    assert code == 0 and "train: 60 texts, validation: 20 texts, test: 20 texts\n" in out, err
    assert results(folder)["seeds"]["0"]["scores"]["test"]["macro_f1"] > 0.8
    assert_states(ModelCard.load(folder / "run" / "model" / "README.md").text, "class weights: balanced")


def test_predictions_are_those_of_the_saved_model(run, folder, no_pictures):
    """Also if they are asked for when the training is over."""
    arguments = ["--train", "texts.tsv", "--test", "texts.tsv", "--epochs", "2"]
    assert run(*arguments)[0] == 0
    before = (folder / "run" / "model" / "model.safetensors").stat().st_mtime_ns
    code, _, err = run(*arguments, "--resume", "--predictions", "found/texts.jsonl")
    assert code == 0 and (folder / "run" / "model" / "model.safetensors").stat().st_mtime_ns == before, err
    rows = [json.loads(line) for line in (folder / "found" / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [f"{row['text']}\t{row['label']}" for row in rows] == LINES
    answers = pipeline("text-classification", model="run/model", device="cpu")([row["text"] for row in rows])
    assert [row["predicted"] for row in rows] == [answer["label"] for answer in answers]
    assert [row["score"] for row in rows] == pytest.approx([answer["score"] for answer in answers], abs=1e-4)


def test_sentence_pairs(run, folder):
    """The label is in the second text alone, so what is learned was read from it."""
    lines = ["sentence1\tsentence2\tlabel", *(f"何时\t{line}" for line in LINES)]
    (folder / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    words = ["--train", "pairs.tsv", "--text", "sentence1", "sentence2", "--epochs", "20", "--patience", "20"]
    code, _, err = run(*words)
    assert code == 0, err
    assert results(folder)["seeds"]["0"]["scores"]["test"]["accuracy"] > 0.9


def test_defaults_for_few_texts(run, folder, no_pictures):
    words = ["--train", "texts.tsv", "--epochs", "1"]
    AutoTokenizer.from_pretrained("start", model_max_length=16).save_pretrained("start")  # as after another training
    code, out, err = run(*words, options=["start", "--output", "run"])
    assert code == 0 and "learning rate 0.001, chosen for a model of width 16" in out, err
    assert "batch size 4 and patience 7, for 24 training texts" in out
    assert AutoTokenizer.from_pretrained("run/model").model_max_length == 512


def test_bad_arguments_are_named(run, folder):
    def refusal(*arguments):
        code, _, err = run(*arguments)
        assert code == 1 and err.startswith("finetune_classification: ") and not (folder / "run").exists()
        return err

    (folder / "one.tsv").write_text("text\tlabel\n明月\t月\n", encoding="utf-8")
    assert_states(refusal("--train", "one.tsv"), "one.tsv", "'月'")
    (folder / "more.tsv").write_text("text\tlabel\n明月\t地\n", encoding="utf-8")
    assert_states(refusal("--train", "texts.tsv", "--test", "more.tsv"), "more.tsv", "地")
    assert_states(refusal("--train", "texts.tsv", "--label", "class"), "texts.tsv", "class", "text, label")
    assert_states(refusal("--train", "texts.tsv", "--predictions", "texts.tsv"), "texts.tsv")
    assert_states(refusal("--train", "texts.tsv", "--numbers"), "texts.tsv, row 1", "'月'")
    assert_states(refusal("--train", "texts.tsv", "--ignore-label", "-"), "texts.tsv", "'-'")
    weights = refusal("--train", "texts.tsv", "--label-separator", ",", "--class-weights", "balanced")
    assert_states(weights, "--class-weights")
    code, _, err = run("--train", "texts.tsv", "--text", "text", "text", "other")
    assert code == 2
    assert_states(err, "--text", "two")
    code, _, err = run("--train", "texts.tsv", "--numbers", "--label-separator", ",")
    assert code == 2
    assert_states(err, "--numbers", "--label-separator")
    code, _, err = run("--train", "texts", "--label-from-folders", "--text", "a", "b")
    assert code == 2
    assert_states(err, "--label-from-folders", "--text")
