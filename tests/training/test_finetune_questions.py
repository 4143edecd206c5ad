"""examples/finetune_questions.py: it learns, resumes, and its model is served with the answers it was scored on."""

import json
import random

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
from transformers import AutoTokenizer

from modeling_roformer.serving.answers import windows_of
from modeling_roformer.serving.page.question_answering import answer_question
from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.training import answer_scores, label_windows, load_answered_questions

SCRIPT = REPOSITORY / "examples" / "finetune_questions.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
FIELDS = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.3,
}
FILLER = ["山路", "河边", "树林", "桥头", "星星", "老人", "故事"]
OPTIONS = ["start", "--train", "rows.jsonl", "--learning-rate", "1e-2", "--length", "12"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The answer of each question is the word that the question has, in a context of several windows."""
    monkeypatch.chdir(tmp_path)
    save_masked_lm("start", VOCAB, **FIELDS)
    words, rows = random.Random(0), []
    for number in range(40):
        context = words.choices(FILLER, k=words.randint(3, 20))
        context.insert(words.randrange(len(context) + 1), "明月")
        row = {"question": "明月？", "context": "".join(context), "answer": ["明月", "月"], "topic": f"{number // 2}"}
        rows.append(json.dumps(row) + "\n")
    (tmp_path / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""
    return lambda *words: run_script(SCRIPT, [*OPTIONS, "--output", "run", *words], monkeypatch, capfd)


@pytest.mark.slow
def test_the_saved_model_is_served_with_the_answers_that_were_scored(run, folder):
    code, out, err = run("--group", "topic", "--epochs", "12", "--predictions", "found.jsonl", "--seeds", "0", "1")
    assert code == 0, err
    assert "train: 24 questions, validation: 8 questions, test: 8 questions\n" in out
    rows = [json.loads(line) for line in (folder / "found.jsonl").read_text(encoding="utf-8").splitlines()]
    result = json.loads((folder / "run" / "results.json").read_text())
    seeds = [seed["scores"] for seed in result["seeds"].values()]
    scores = max(seeds, key=lambda of: of["validation"]["f1"])["test"]
    assert scores == answer_scores([row["predicted"] for row in rows], [row["answer"] for row in rows])
    assert scores["f1"] > 0.8 and result["questions"] == {"train": 24, "validation": 8, "test": 8}

    served = ServedModel("run/model")
    assert served.longest == 12
    for row in rows:
        best, _ = answer_question(served, row["question"], row["context"])
        assert best[0]["answer"] == row["predicted"] and best[0]["score"] == pytest.approx(row["score"], abs=1e-5)
    assert any(len(windows_of(served.tokenizer, row["question"], row["context"], 12)) > 1 for row in rows)
    # Both questions of a topic are in one split.
    every = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    topics = {row["group"] for row in rows}
    assert len(rows) == 2 * len(topics) == sum(row["topic"] in topics for row in every)
    card = ModelCard.load("run/model/README.md")
    assert {(r.task_type, r.dataset_name, r.metric_type) for r in card.data.eval_results} == {
        ("question-answering", "rows.jsonl", name) for name in ("exact_match", "f1")
    }
    assert_states(card.text, "24 questions", "learning rate: 0.01")
    assert (folder / "run" / "curves.png").exists()


@pytest.mark.slow
def test_a_killed_run_resumes_as_if_it_had_not_been_killed(folder):
    words = [*OPTIONS, "--epochs", "3", "--patience", "3", "--output"]
    assert run_process(SCRIPT.name, folder, *words, "whole", "--predictions", "whole.csv")[0] == 0
    kill_at(SCRIPT.name, folder, "run/seed-0/checkpoint-*/trainer_state.json", *words, "run")
    code, out, err = run_process(SCRIPT.name, folder, *words, "run", "--resume", "--predictions", "run.csv")
    assert code == 0 and "run/seed-0/checkpoint-" in out, err
    models = [load_file(folder / name / "model" / "model.safetensors") for name in ("whole", "run")]
    assert all(torch.equal(weight, models[1][name]) for name, weight in models[0].items())
    assert (folder / "whole.csv").read_bytes() == (folder / "run.csv").read_bytes()


def test_windows_without_the_answer_are_labelled_by_cls(folder):
    tokenizer = AutoTokenizer.from_pretrained("start")
    rows = load_answered_questions("rows.jsonl", {name: name for name in ("question", "context", "answer")})
    windows = label_windows(rows, windows_of, tokenizer, 12)
    assert {*windows["row"]} == {*range(len(rows))} and len(windows) > 60
    with_answer = set()
    for window in windows:
        context = rows["context"][window["row"]]
        first, last = window["start_positions"], window["end_positions"]
        if "明月" in context[window["offsets"][0][0] : window["offsets"][-1][1]]:
            start, _ = window["offsets"][window["places"].index(first)]
            _, end = window["offsets"][window["places"].index(last)]
            assert context[start:end] == "明月"
            with_answer.add(window["row"])
        else:
            assert (first, last) == (0, 0)
    assert with_answer == {*range(len(rows))}


def test_bad_arguments_are_named(run, folder):
    def refusal(*arguments, code=1):
        found, _, err = run(*arguments)
        assert found == code and not (folder / "run").exists()
        return err

    assert_states(refusal("--length", "513", code=2), "--length", 513, 512)
    assert_states(refusal("--length", "4"), "--length is 4")
    assert_states(refusal("--length", "5"), "明月？", "room", 5)
    assert_states(refusal("--answer-start", "begin"), "rows.jsonl", "'begin'", "--answer-start")
    assert_states(refusal("--answer", "topic"), "rows.jsonl", "no answer occurs")
    # The only answer is in the part for validation.
    rows = [{"question": "谁？", "context": f"老人{n}", "answer": "老人" if n == 4 else "星星"} for n in range(10)]
    (folder / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_states(refusal("--train", "few.jsonl"), "few.jsonl", "no answer occurs", "for training")
    assert_states(refusal("--doc-stride", "40"), "overlap is 40")
