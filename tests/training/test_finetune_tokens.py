"""examples/finetune_tokens.py: it learns, resumes, and the saved model serves the entities that were counted."""

import json
import os

import pytest
import torch
from helpers.messages import assert_states
from helpers.page_models import VOCABULARY
from helpers.paths import REPOSITORY
from helpers.script_process import kill_at
from helpers.script_process import run as run_process
from helpers.scripts import run_script
from helpers.small_models import save_masked_lm
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, pipeline

from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.serving.page.tasks import entities as entities_of_page
from modeling_roformer.training import SpanPredictions

SCRIPT = REPOSITORY / "examples" / "finetune_tokens.py"
FIELDS = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.3,
}
PEOPLE, PLACES = "王李张刘陈杨赵黄周吴", "京津沪渝粤鲁豫川湘桂"
TAGS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
# A name begins at the first character, and a place at the fourth.
SENTENCES = [
    (f"{person}明去{place}州。", [[0, 2, "PER"], [3, 5, "LOC"]]) for person, place in zip(PEOPLE, PLACES, strict=True)
]
SENTENCES *= 2
HELD_OUT = [("孙明去苏州。", [[0, 2, "PER"], [3, 5, "LOC"]]), ("马明去app", [[0, 2, "PER"], [3, 5, "LOC"]])]
HELD_OUT += [("何明去杭州。" + "他去2023年Ａcafe\u0301 的" * 4, [[0, 2, "PER"], [3, 5, "LOC"], [40, 42, "LOC"]])]
OPTIONS = ["start", "--train", "train.bmes", "--validation", "train.bmes", "--test", "test.jsonl", "--length", "24"]
OPTIONS += ["--learning-rate", "3e-2", "--batch-size", "5"]


def write(folder):
    """Write the model and the data into a folder."""
    save_masked_lm(folder / "start", VOCABULARY, **FIELDS)
    lines = [f"{text[0]}\tB-PER\n明\tE-PER\n去\tO\n{text[3]}\tB-LOC\n州\tE-LOC\n。\tO\n" for text, _ in SENTENCES]
    (folder / "train.bmes").write_text("\n".join(lines), encoding="utf-8")
    rows = [json.dumps({"text": text, "label": spans}) + "\n" for text, spans in HELD_OUT]
    (folder / "test.jsonl").write_text("".join(rows), encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Run the script in a process, with two seeds. Return its folder and stdout."""
    folder = tmp_path_factory.mktemp("runs")
    write(folder)
    words = ["--seeds", "0", "1", "--epochs", "4", "--output", "whole", "--predictions", "found.jsonl"]
    code, out, err = run_process(SCRIPT.name, folder, *OPTIONS, *words)
    assert code == 0, err
    return folder, out


@pytest.mark.slow
def test_it_serves_the_entities_that_it_counted(trained, monkeypatch):
    folder, out = trained
    assert_states(
        out,
        "train: 20 texts with 40 entities",
        "test: 1 of 7 entities",
        "whole/model",
        "whole/curves.png",
        "found.jsonl",
    )
    assert sorted(os.listdir(folder / "whole")) == ["curves.png", "model", "results.json", "settings.json"]
    rows = [json.loads(line) for line in (folder / "found.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == [text for text, _ in HELD_OUT]
    spans = {
        name: [[(of["start"], of["end"], of["label"]) for of in row[name]] for row in rows]
        for name in ("entities", "predicted")
    }
    assert spans["entities"] == [[*map(tuple, spans)] for _, spans in HELD_OUT]
    assert all({(0, 2, "PER"), (3, 5, "LOC")} & {*found} for found in spans["predicted"])  # it has learned

    find = pipeline(
        "token-classification", model=str(folder / "whole/model"), aggregation_strategy="simple", device="cpu"
    )
    served = ServedModel(folder / "whole/model")
    for (text, _), found in zip(HELD_OUT, spans["predicted"], strict=True):
        assert found == [(of["start"], of["end"], of["entity_group"]) for of in find(text)]
        assert found == [(of["start"], of["end"], of["entity"]) for of in entities_of_page(served, text)[0]]
    # Those that chose the seed and are on the card, which Trainer counted, are the same.
    scores = SpanPredictions(spans["entities"], spans["predicted"])
    seeds = json.loads((folder / "whole/results.json").read_text())["seeds"].values()
    best = max(seeds, key=lambda seed: seed["scores"]["validation"]["f1"])["scores"]
    assert (
        best["test"] == pytest.approx({"f1": scores.f1, "macro_f1": scores.macro_f1}) and best["validation"]["f1"] > 0.9
    )
    card = ModelCard.load(folder / "whole/model/README.md")
    assert [(result.metric_type, result.metric_value) for result in card.data.eval_results] == [*best["test"].items()]
    assert card.data.pipeline_tag == "token-classification" and str(folder) not in str(card)
    assert [*AutoConfig.from_pretrained(folder / "whole/model").id2label.values()] == TAGS


@pytest.mark.slow
def test_a_killed_run_resumes_as_if_it_had_not_been_killed(trained):
    folder, _ = trained
    words = [*OPTIONS, "--seeds", "0", "1", "--epochs", "4", "--output", "run"]
    kill_at(SCRIPT.name, folder, "run/seed-0/checkpoint-8/trainer_state.json", *words)
    code, out, err = run_process(SCRIPT.name, folder, *words, "--resume")
    assert code == 0 and "run/seed-0/checkpoint-" in out, err
    whole, parts = (json.loads((folder / name / "results.json").read_text())["seeds"] for name in ("whole", "run"))
    assert {seed: result["scores"] for seed, result in whole.items()} == {
        seed: result["scores"] for seed, result in parts.items()
    }
    models = [load_file(folder / name / "model" / "model.safetensors") for name in ("whole", "run")]
    assert all(torch.equal(weight, models[1][name]) for name, weight in models[0].items())


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    return lambda *arguments: run_script(SCRIPT, [*OPTIONS, "--output", "run", *arguments], monkeypatch, capfd)


def test_words_are_labelled_where_they_are_asked_for(run, tmp_path, no_pictures):
    """北京 is a word of the vocabulary, so no token ends after 北."""
    text = "王明去北京。"
    spans = [[0, 2, "PER"], [3, 4, "LOC"]]
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": text, "label": spans}) + "\n", encoding="utf-8")
    code, out, err = run("--words", "--epochs", "1")
    assert code == 0, err
    assert_states(out, "test: 1 of 2 entities")
    words = AutoTokenizer.from_pretrained("start").tokenize(text)
    assert AutoTokenizer.from_pretrained("run/model").tokenize(text) == words and "北京" in words
    # Predictions may be asked for when the training is over. Another tokenizer is another run.
    before = (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns
    code, _, err = run("--words", "--epochs", "1", "--resume", "--predictions", "found/test.jsonl")
    assert code == 0 and (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns == before, err
    assert json.loads((tmp_path / "found/test.jsonl").read_text(encoding="utf-8"))["text"] == text
    code, _, err = run("--epochs", "1", "--resume")
    assert code == 1
    assert_states(err, "run", "different words")


def test_a_trained_head_keeps_its_tags(run, no_pictures):
    order = ["B-PER", "I-PER", "O", "B-LOC", "I-LOC"]
    config = AutoConfig.from_pretrained("start")
    config.id2label, config.label2id = dict(enumerate(order)), {tag: number for number, tag in enumerate(order)}
    config.save_pretrained("start")
    code, _, err = run("--epochs", "1", "--learning-rate", "1e-9")
    assert code == 0, err
    assert [*AutoConfig.from_pretrained("run/model").id2label.values()] == order
    tokens = AutoTokenizer.from_pretrained("run/model")
    assert tokens.tokenize("王明") == ["王", "明"] and tokens.model_max_length == 24


def test_bad_arguments_are_named(run, tmp_path):
    def refusal(*arguments):
        code, _, err = run(*arguments)
        assert code == 1 and err.startswith("finetune_tokens: ") and not (tmp_path / "run").exists()
        return err

    (tmp_path / "more.jsonl").write_text(json.dumps({"text": "北京大学", "label": [[0, 4, "ORG"]]}), encoding="utf-8")
    assert_states(refusal("--test", "more.jsonl"), "more.jsonl", "line 1", "'ORG'")
    assert_states(refusal("--predictions", "test.jsonl"), "test.jsonl")
    assert_states(refusal("--length", "2"), "--length", 2, 3)
