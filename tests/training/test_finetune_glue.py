"""examples/finetune_glue.py: it reads GLUE's files, scores as GLUE does, compares, and is resumed."""

import json
import subprocess
import sys

import datasets
import pytest
import torch
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.small_models import TINY
from huggingface_hub import ModelCard
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoModelForSequenceClassification, Trainer, pipeline

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.training import TrainingError, read_glue

SCRIPT = REPOSITORY / "examples" / "finetune_glue.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
WORDS = "明月几时有把酒问青天不知今夕是何年"
OPTIONS = ["--data", "glue", "--output", "runs", "--epochs", "1", "--length", "16"]


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
        write(glue / "stsb" / f"{file}.csv", *(f'"{a}, ",{b},{y * 2.5}' for a, b, y in pairs))
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
    """Run the script on both models with options: exit code, output, last line of errors."""

    def run(*options):
        return run_script(SCRIPT, ["--models", "bert", "roformer", *OPTIONS, *options], monkeypatch, capfd)

    return run


def test_files_of_every_kind_are_read(folder):
    a, b = WORDS[1:5], WORDS[2:6]
    read = {task: read_glue(task, folder / "glue") for task in ("mrpc", "sst2", "stsb", "mnli")}
    assert read["mrpc"]["train"][1] == {"text": a, "pair": b, "label": 1}
    assert read["sst2"]["validation"][1] == {"text": f'"{a}', "label": 1}
    assert read["stsb"]["train"][1] == {"text": f"{a}, ", "pair": b, "label": 2.5}
    assert list(read["mnli"]) == ["train", "validation_matched", "validation_mismatched"]
    assert read["mnli"]["validation_matched"].features["label"].names == ["entailment", "neutral", "contradiction"]
    assert read["mnli"]["train"][1]["label"] == 1 and read["mnli"]["train"][0]["label"] == 2


def test_a_data_set_has_a_configuration_for_each_task(monkeypatch):
    def load_dataset(name, config, split, **_):
        assert (name, config) == ("nyu-mll/glue", "mrpc") and split in ("train", "validation")
        features = {name: datasets.Value("string") for name in ("sentence1", "sentence2")}
        features["label"] = datasets.ClassLabel(names=["not_equivalent", "equivalent"])
        rows = {"sentence1": ["a"], "sentence2": [split], "label": [1]}
        return datasets.Dataset.from_dict(rows, datasets.Features(features))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_glue("mrpc", "nyu-mll/glue")["train"].to_list() == [{"text": "a", "pair": "train", "label": 1}]


@pytest.mark.parametrize(
    ("file", "lines", "facts"),
    [
        ("sst2/train.tsv", ["明月\t2"], ["sst2/train.tsv, row 1", "2"]),
        ("sst2/dev.tsv", ["sentence\tlabel", "明月\t1", "明月\tx"], ["sst2/dev.tsv, row 2: label", "x"]),
        (
            "stsb/train.tsv",
            ["sentence1\tsentence2\tscore", "明\t月\t1.5", "明\t月\tx"],
            ["stsb/train.tsv, row 2: score", "x"],
        ),
        ("sst2/train.tsv", ["sentence\tlabel", " \t1"], ["sst2/train.tsv", "row 1"]),
        ("sst2/dev.tsv", ["text\tlabel", "明月\t1"], ["sst2/dev.tsv", "sentence"]),
    ],
)
def test_files_that_cannot_be_read(folder, file, lines, facts):
    write(folder / "glue" / file, *lines)
    with refused(TrainingError, *facts):
        read_glue(file.partition("/")[0], folder / "glue")


def test_tokens_of_a_data_set_are_not_kept(monkeypatch, tmp_path):
    """They would be found again after the tokenizer's code has changed. `map` writes beside the files of a table."""
    features = datasets.Features(sentence=datasets.Value("string"), label=datasets.ClassLabel(names=["0", "1"]))
    datasets.Dataset.from_dict({"sentence": ["明月"], "label": [1]}, features).to_parquet(tmp_path / "rows.parquet")

    def load_dataset(name, config, split, cache_dir, **options):
        return datasets.Dataset.from_parquet(
            str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"), **options
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    tokens = read_glue("sst2", "nyu-mll/glue")["train"].map(RoFormerTokenizer(str(VOCAB)), input_columns=["text"])
    assert tokens["input_ids"][0] and not list((tmp_path / "cache").rglob("cache-*"))


def test_classes_of_a_data_set_may_have_another_order(monkeypatch):
    names = ["not_entailment", "entailment"]

    def load_dataset(name, config, split, **options):
        kinds = {"question": datasets.Value("string"), "sentence": datasets.Value("string")}
        features = datasets.Features(**kinds, label=datasets.ClassLabel(names=names))
        return datasets.Dataset.from_dict({"question": ["a"], "sentence": ["b"], "label": [1]}, features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    labels = read_glue("qnli", "nyu-mll/glue")["train"]
    assert labels.features["label"].int2str(labels["label"]) == ["entailment"] and labels["label"] == [0]


@pytest.mark.slow
def test_the_script(folder):
    """All kinds of scores, in a process of its own."""
    (folder / "private").mkdir()
    (folder / "glue").rename(folder / "private" / "glue")
    words = ["--models", "bert", "roformer", *OPTIONS, "--tasks", "mrpc", "stsb", "mnli", "--learning-rates", "1e-3"]
    words += ["--data", "private/glue", "--bf16"]
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert_states(done.stdout, "MRPC, f1", "STS-B, spearman", "MNLI, accuracy", "runs/results.json")
    runs = json.loads((folder / "runs" / "results.json").read_text(), parse_constant=pytest.fail)["runs"]
    assert [(of["task"], of["model"]) for of in runs] == [
        (task, model) for task in ("mrpc", "stsb", "mnli") for model in ("bert", "roformer")
    ]
    assert {*runs[-1]["scores"]} == {"validation_matched", "validation_mismatched"}
    assert AutoModelForSequenceClassification.from_pretrained("runs/roformer-mnli").config.num_labels == 3
    card = ModelCard.load("runs/bert-mrpc/README.md")
    assert card.data.model_name == "bert-mrpc" and card.data.base_model is None
    assert "| base model | bert |" in card.text and '"runs/bert-mrpc"' in card.text and '"text_pair"' in card.text
    (score,) = card.data.eval_results
    assert (score.metric_type, score.metric_value) == ("f1", runs[0]["score"] / 100)
    assert score.dataset_name == "glue:mrpc" and "private" not in str(card)


def test_models_are_compared_and_the_best_kept(folder, run, monkeypatch):
    """By the best learning rate, whose mean over the seeds is highest; and resumed after a stop."""
    accuracies = {
        ("bert", 1e-3): [0, 12], ("bert", 2e-3): [8, 8], ("roformer", 1e-3): [3, 4], ("roformer", 2e-3): [0, 0],
    }  # fmt: skip
    trained, train, predict = [], Trainer.train, Trainer.predict

    def patched(self, *arguments, **options):
        if len(trained) == 3 and not (folder / "stopped").exists():
            (folder / "stopped").touch()
            raise KeyboardInterrupt
        trained.append((self.model.name_or_path, self.args.learning_rate, self.args.seed))
        return train(self, *arguments, **options)

    def measured(self, texts, **options):
        found = predict(self, texts, **options)
        right = accuracies[self.model.name_or_path, self.args.learning_rate][self.args.seed]
        answers = torch.tensor(found.label_ids)
        answers[right:] = 1 - answers[right:]
        return found._replace(predictions=torch.nn.functional.one_hot(answers, 2).numpy())

    monkeypatch.setattr(Trainer, "train", patched)
    monkeypatch.setattr(Trainer, "predict", measured)
    options = ["--tasks", "sst2", "--learning-rates", "1e-3", "2e-3", "--seeds", "0", "1"]
    assert run(*options)[0] == 130
    code, out, err = run(*options, "--resume")
    assert code == 0 and len(trained) == len({*trained}) == 8, err
    assert "66.7 ± 0.0 (0.002)" in out and "29.2 ± 5.9 (0.001)" in out
    assert ModelCard.load("runs/bert-sst2/README.md").data.eval_results[0].metric_value == 1
    code, out, err = run(*options[:-1], "--resume")
    assert code == 1 and "66.7" not in out
    assert_states(err, "runs", "different seeds")


def test_a_trained_head_keeps_its_order_of_labels(folder, run):
    """MNLI's classes have another order in many checkpoints. The positive class of MRPC is 1, wherever it is."""
    heads = {"bert": ["CONTRADICTION", "ENTAILMENT", "NEUTRAL"], "roformer": ["1", "0"]}
    for name, labels in heads.items():
        torch.manual_seed(1)
        numbers = dict(enumerate(labels))
        head = AutoModelForSequenceClassification.from_pretrained(name, id2label=numbers, ignore_mismatched_sizes=True)
        head.save_pretrained(name)
    code, _, err = run("--tasks", "mnli", "mrpc", "--learning-rates", "1e-9")
    assert code == 0, err
    runs = {(of["task"], of["model"]): of for of in json.loads((folder / "runs" / "results.json").read_text())["runs"]}
    for (name, labels), task in zip(heads.items(), ("mnli", "mrpc"), strict=True):
        trained = AutoModelForSequenceClassification.from_pretrained(f"runs/{name}-{task}")
        assert list(trained.config.id2label.values()) == [label.lower() for label in labels]
        first = AutoModelForSequenceClassification.from_pretrained(name)
        assert torch.allclose(trained.classifier.out_proj.weight, first.classifier.out_proj.weight, atol=1e-6)
        for part, score in runs[task, name]["scores"].items():
            rows = read_glue(task, folder / "glue")[part]
            classify = pipeline("text-classification", model=f"runs/{name}-{task}", device="cpu")
            pairs = [{"text": row["text"], "text_pair": row["pair"]} for row in rows]
            answers = [answer["label"] for answer in classify(pairs)]
            expected = [rows.features["label"].int2str(number) for number in rows["label"]]
            if task == "mnli":
                assert score == pytest.approx(100 * accuracy_score(expected, answers))
            else:
                assert score == pytest.approx(100 * f1_score(expected, answers, pos_label="1"))
