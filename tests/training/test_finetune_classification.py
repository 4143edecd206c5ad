"""examples/finetune_classification.py: it learns, keeps the best seed, goes on, and says what it cannot do."""

import json
import os
import re

import pandas
import pytest
import torch
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from huggingface_hub import ModelCard
from tqdm.auto import tqdm
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, Trainer, pipeline

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer

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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = RoFormerTokenizer(str(VOCAB))
    torch.manual_seed(0)
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=len(tokenizer), **FIELDS)).save_pretrained("start")
    tokenizer.save_pretrained("start")
    (tmp_path / "texts.tsv").write_text("\n".join(LINES), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""

    def run(*arguments):
        words = [
            "start",
            "--output",
            "run",
            "--learning-rate",
            "3e-2",
            "--batch-size",
            "4",
            "--patience",
            "2",
            *arguments,
        ]
        return run_script(SCRIPT, words, monkeypatch, capfd)

    return run


def test_weights_that_are_not_finite_are_named(run, folder):
    model = RoFormerForMaskedLM.from_pretrained("start")
    with torch.no_grad():
        model.roformer.embeddings.word_embeddings.weight[5] = torch.inf
    model.save_pretrained("start")
    code, out, err = run("--train", "texts.tsv")
    assert code == 1 and not (folder / "run" / "model").exists(), err
    assert_states(out, "failed: seed 0", "roformer.embeddings.word_embeddings.weight of start", "not finite", "earlier")


def test_a_run_in_the_folder_of_its_texts_is_refused(run, folder):
    """Its results would be read as texts when it resumes."""
    (folder / "texts").mkdir()
    (folder / "texts.tsv").rename(folder / "texts" / "texts.tsv")
    code, _, err = run("--train", "texts", "--output", "texts/run")
    assert code == 1 and not (folder / "texts" / "run").exists()
    assert_states(err, "texts", "texts/run", "outside of it")


def test_one_file_is_split_and_learned(run, folder):
    code, out, err = run("--train", "texts.tsv", "--epochs", "12")
    assert code == 0, err
    assert "train: 24 texts, validation: 8 texts, test: 8 texts\n" in out
    assert_states(out.splitlines()[-1], "run/model", "run/curves.png")
    assert sorted(os.listdir("run")) == ["curves.png", "model", "results.json"]
    results = json.loads((folder / "run" / "results.json").read_text())
    scores = results["seeds"]["0"]["scores"]
    assert results["settings"]["texts"] == {"train": 24, "validation": 8, "test": 8}
    assert scores["validation"] == {"accuracy": 1.0, "macro_f1": 1.0} and scores["test"]["accuracy"] > 0.7
    # It stopped when there was nothing to gain for two epochs.
    log = results["seeds"]["0"]["log"]
    best = next(entry["epoch"] for entry in log if entry.get("eval_accuracy") == 1)
    assert log[-1]["epoch"] == best + 2 < 12

    model = AutoModelForSequenceClassification.from_pretrained("run/model")
    assert model.config.id2label == {0: "天", 1: "月"}
    classify = pipeline("text-classification", model="run/model", device="cpu")
    assert [answer["label"] for answer in classify(["明月几时有", "天上"])] == ["月", "天"]
    assert AutoTokenizer.from_pretrained("run/model").get_vocab() == RoFormerTokenizer(str(VOCAB)).get_vocab()
    card = ModelCard.load("run/model/README.md")
    assert [(r.dataset_name, r.dataset_split, r.metric_type, r.metric_value) for r in card.data.eval_results] == [
        ("texts.tsv", "test", name, value) for name, value in scores["test"].items()
    ]
    assert card.data.base_model == "start" and str(folder) not in str(card)
    assert_states(card.text, "24 texts of texts.tsv", "8 others", "learning rate: 0.03", "batch size: 4", "seed: 0")
    assert (
        "\n# run\n" in card.text and f"- accuracy on texts.tsv (test): {scores['test']['accuracy']:.4g}\n" in card.text
    )


def test_seeds_and_going_on(run, folder, monkeypatch, no_pictures):
    """Results of a seed are kept, and the model is that of the best seed by validation, not by test."""
    accuracies = {0: (0.5, 1.0), 1: (0.9, 0.3), 2: (0.6, 0.6)}  # of validation and test
    trained = []
    train = Trainer.train

    def patched(self, *arguments, **options):
        if trained == [0] and not (folder / "stopped").exists():
            (folder / "stopped").touch()
            raise KeyboardInterrupt
        trained.append(self.args.seed)
        done = train(self, *arguments, **options)
        for entry in self.state.log_history:
            if "eval_accuracy" in entry:
                entry["eval_accuracy"] = accuracies[self.args.seed][0]
        return done

    predict = Trainer.predict

    def measured(self, *arguments, **options):
        found = predict(self, *arguments, **options)
        found.metrics["test_accuracy"] = accuracies[self.args.seed][1]
        return found

    monkeypatch.setattr(Trainer, "train", patched)
    monkeypatch.setattr(Trainer, "predict", measured)
    arguments = ["--train", "texts.tsv", "--test", "texts.tsv", "--epochs", "1", "--most", "8"]
    code, _, err = run(*arguments, "--seeds", "0", "1", "2")
    assert code == 130 and err.startswith("finetune_classification: ")
    assert sorted(os.listdir("run")) == ["model", "results.json"]
    (folder / "run" / ".checkpoints").mkdir()  # as a run leaves it that was killed
    code, out, err = run(*arguments, "--seeds", "0", "1", "2")
    assert code == 0 and trained == [0, 1, 2] and not (folder / "run" / ".checkpoints").exists(), err
    assert "train: 8 texts, validation: 8 texts, test: 40 texts\n" in out
    assert "│ 1 (best) │" in out
    assert ModelCard.load("run/model/README.md").data.eval_results[0].metric_value == 0.3
    assert "0.667 ± 0.208" in out and "0.633 ± 0.351" in out
    code, _, err = run(*arguments[:-2], "--seeds", "0")
    assert code == 1
    assert_states(err, "run/results.json", "most", "texts", "train_texts")


def test_validation_alone(run, folder, no_pictures):
    """Is what is measured, and the output says so."""
    (folder / "other.jsonl").write_text('{"text": "明月", "label": "月"}\n{"text": "天上", "label": "天"}\n')
    code, out, err = run("--train", "texts.tsv", "--validation", "other.jsonl", "--epochs", "1")
    assert code == 0 and "train: 40 texts, validation: 2 texts\n" in out and "test" not in out.partition("seed")[2], err
    score = ModelCard.load("run/model/README.md").data.eval_results[0]
    assert (score.dataset_name, score.dataset_split) == ("other.jsonl", "validation")


def test_a_failed_seed_is_named_and_never_best(run, folder, monkeypatch, no_pictures):
    """Whose scores would be the best ones: a model of NaN names the first class."""
    step = Trainer.training_step

    def failing(self, model, *arguments):
        if self.args.seed == 0 and self.state.global_step == 2:
            next(model.parameters()).data.fill_(torch.nan)
        return step(self, model, *arguments)

    monkeypatch.setattr(Trainer, "training_step", failing)
    (folder / "one.tsv").write_text("".join(f"{line}\n" for line in LINES if line.endswith("天")), encoding="utf-8")
    arguments = ["--train", "texts.tsv", "--validation", "one.tsv", "--epochs", "2", "--learning-rate", "1e-6"]
    code, out, err = run(*arguments, "--seeds", "0", "1")
    assert code == 0 and re.search(r"│ 0 +│ +failed", out) and "failed: seed 0: the loss is nan at step 3" in out, err
    seeds = json.loads((folder / "run" / "results.json").read_text(), parse_constant=pytest.fail)["seeds"]
    assert seeds["0"]["scores"] is None and seeds["1"]["scores"]
    value = ModelCard.load("run/model/README.md").data.eval_results[0].metric_value
    assert value == seeds["1"]["scores"]["validation"]["accuracy"]
    monkeypatch.setattr(Trainer, "train", lambda *_, **__: pytest.fail("trained again"))
    assert run(*arguments, "--seeds", "0", "1")[0] == 0


def test_where_all_seeds_fail(run, folder):
    code, out, err = run("--train", "texts.tsv", "--epochs", "1", "--seeds", "0", "1", "--learning-rate", "1e30")
    assert code == 1
    assert_states(err, "2 runs")
    assert re.search(r"│ 1 +│ +failed", out) and os.listdir("run") == ["results.json"]
    json.loads((folder / "run" / "results.json").read_text(), parse_constant=pytest.fail)


def test_sentence_pairs(run, folder):
    """The label is in the second text alone, so what is learned was read from it."""
    lines = ["sentence1\tsentence2\tlabel", *(f"何时\t{line}" for line in LINES)]
    (folder / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    words = ["--train", "pairs.tsv", "--text", "sentence1"]
    code, _, err = run(*words, "--text-pair", "sentence2", "--epochs", "20", "--patience", "20")
    assert code == 0, err
    scores = json.loads((folder / "run" / "results.json").read_text())["seeds"]["0"]["scores"]
    assert scores["test"]["accuracy"] > 0.9
    assert_states((folder / "run" / "model" / "README.md").read_text(), "pairs of texts")
    assert run("--train", "pairs.tsv", "--text-pair", "sentence2")[0] == 2


def test_a_table_at_the_default_rate(folder, monkeypatch, capfd, no_pictures):
    """Nothing is learned in one epoch; a hint says so, and what to try."""
    hints = []
    monkeypatch.setattr(tqdm, "write", staticmethod(lambda line, **_: hints.append(str(line))))
    rows = [line.split("\t") for line in LINES]
    pandas.DataFrame(rows, columns=["comment", "about"]).to_csv("texts.csv", index=False)
    words = ["start", "--train", "texts.csv", "--label", "about", "--output", "run", "--epochs", "1"]
    code, out, err = run_script(SCRIPT, words, monkeypatch, capfd)
    assert code == 0 and "learning rate 0.001, chosen for a model of width 16" in out, err
    assert "batch size 4 and patience 7, for 24 training texts" in out
    scores = json.loads((folder / "run" / "results.json").read_text())["seeds"]["0"]["scores"]
    labels = [row[1] for row in rows]
    assert scores["validation"]["accuracy"] <= max(map(labels.count, labels)) / len(labels)
    # Defaults of a run stay those that it began with.
    results = json.loads((folder / "run" / "results.json").read_text())
    results["settings"] |= {"learning_rate": 2e-3, "patience": 1}
    (folder / "run" / "results.json").write_text(json.dumps(results))
    assert run_script(SCRIPT, words, monkeypatch, capfd)[0] == 0
    (hint,) = [line for line in hints if line.startswith("hint")]
    assert_states(
        hint, f"{scores['validation']['accuracy']:.3f}", "--learning-rate", "0.001", "--epochs", "--batch-size"
    )


def test_bad_arguments_are_named(run, folder):
    def refusal(*arguments):
        code, _, err = run(*arguments)
        assert code == 1 and err.startswith("finetune_classification: ") and not (folder / "run").exists()
        return err

    (folder / "empty.tsv").touch()
    assert_states(refusal("--train", "empty.tsv"), "empty.tsv", "no labelled text")
    (folder / "bad.tsv").write_text("明月\t月\n天上 天\n", encoding="utf-8")
    assert_states(refusal("--train", "bad.tsv"), "bad.tsv", "line 2", "'column 2'")
    (folder / "few.tsv").write_text("明月\t月\n天上\t天\n", encoding="utf-8")
    assert_states(refusal("--train", "few.tsv"), "few.tsv", "2 texts", 5)
    (folder / "more.tsv").write_text("明月\t月\n天上\t地\n", encoding="utf-8")
    assert_states(refusal("--train", "texts.tsv", "--test", "more.tsv"), "more.tsv", "line 2", "'地'")
    assert_states(refusal("--train", "missing.tsv"), "missing.tsv")
    BertConfig().save_pretrained(folder / "start")
    assert_states(refusal("--train", "texts.tsv"), "start", "bert", "RoFormer")


@pytest.mark.parametrize("option", ["--epochs", "--most", "--length", "--batch-size", "--patience"])
def test_sizes_are_above_zero(option, run, folder):
    code, _, err = run("--train", "texts.tsv", option, "0")
    assert code == 2 and not (folder / "run").exists()
    assert_states(err, option, "0 is not")
