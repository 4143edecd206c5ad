"""examples/translate.py and its parts: the vocabulary, the average of checkpoints, splits, and the model it keeps."""

import json

import datasets
import pytest
import sacrebleu
import torch
from helpers.messages import assert_states, refused
from helpers.script_process import kill_at, run
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import modeling_roformer  # noqa: F401, registers the model
from modeling_roformer.training import (
    TrainingError,
    average_checkpoints,
    load_texts,
    split_by,
    train_translation_tokenizer,
)

SCRIPT = "translate.py"
QUICK = ["--steps", "140", "--width", "64", "--batch-size", "32", "--learning-rate", "4e-3"]
NUMBERS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five", "sechs": "six"}


def test_the_vocabulary_gives_back_every_text():
    tokenizer = train_translation_tokenizer(["ein Haus", "a house, a house"], 280, 32)
    for text in ("Das ist ein Haus (groß), 3,5 m²!", "a  house", "房子"):
        ids = tokenizer(text)["input_ids"]
        assert ids[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.convert_tokens_to_ids("<pad>") == tokenizer.pad_token_id == 0
    assert tokenizer.model_max_length == 32
    for size in 100, 2_000_000_000:  # the larger one would end the process
        with refused(TrainingError, f"{size:,}", "258"):
            train_translation_tokenizer(["a"], size, 32)


def test_the_last_checkpoints_are_averaged(tmp_path):
    for step, value in (2, 1.0), (4, 2.0), (10, 6.0):
        (tmp_path / f"checkpoint-{step}").mkdir()
        weights = {"a": torch.full((2,), value), "b": torch.full((1,), value, dtype=torch.bfloat16)}
        save_file(weights, tmp_path / f"checkpoint-{step}" / "model.safetensors")
    (tmp_path / "checkpoint-best").mkdir()
    for last, mean in (1, 6.0), (2, 4.0), (3, 3.0), (9, 3.0):
        average = average_checkpoints(tmp_path, last)
        assert torch.equal(average["a"], torch.full((2,), mean)) and average["b"].dtype == torch.bfloat16
    with refused(TrainingError, tmp_path / "empty", "no checkpoint"):
        average_checkpoints(tmp_path / "empty", 2)


def test_parts_share_no_value():
    rows = datasets.Dataset.from_dict({"source": [str(n % 20) for n in range(60)], "number": list(range(60))})
    train, test = split_by(rows, "source", 0.2)
    assert not {*train["source"]} & {*test["source"]} and len(test) == 12
    assert sorted([*train["number"], *test["number"]]) == list(range(60))
    assert split_by(rows, "source", 0.2)[1]["number"] == test["number"] != split_by(rows, "source", 0.2, 1)[1]["number"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with sentence pairs."""
    folder = tmp_path_factory.mktemp("translation")
    pairs = [
        (f"{a} und {b} oder {c}.", f"{NUMBERS[a]} and {NUMBERS[b]} or {NUMBERS[c]}.")
        for a in NUMBERS
        for b in NUMBERS
        for c in NUMBERS
    ]
    (folder / "pairs.csv").write_text("de,en\n" + "".join(f"{de},{en}\n" for de, en in pairs), encoding="utf-8")
    return folder


def arguments(output, *more):
    small = "--vocabulary-size 320 --dropout 0 --warmup-steps 50 --bf16"
    return ["--train", "pairs.csv", "--source", "de", "--target", "en", "--output", output, *small.split(), *more]


def results(folder):
    return json.loads((folder / "results.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)


@pytest.mark.slow
def test_it_learns_to_translate_and_keeps_the_best_model(folder):
    code, out, err = run(SCRIPT, folder, *arguments("runs", *QUICK, "--seeds", 0, 1))
    assert code == 0, err
    saved = results(folder / "runs")
    assert saved.keys() == {"0", "1"} and max(of["bleu"] for of in saved.values()) > 50
    assert all(len(of["translations"]) == 20 for of in saved.values())
    best = min(saved, key=lambda seed: saved[seed]["validation_loss"])
    assert_states(out, "bleu: ", "±", "tok:13a", "runs/model")
    assert (folder / "runs" / "curves.png").read_bytes().startswith(b"\x89PNG")

    # The saved model translates as the best seed did.
    model = AutoModelForSeq2SeqLM.from_pretrained(folder / "runs" / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "runs" / "model")
    pairs = load_texts(folder / "pairs.csv", {"source": "de", "target": "en"}, cache=folder / "cache")
    train, _ = split_by(pairs, "source", 0.1)
    test = split_by(train, "source", 0.1)[1]
    inputs = tokenizer(test["source"][:], padding=True, return_tensors="pt")
    ids = model.generate(**inputs, num_beams=4, max_new_tokens=50)
    translations = tokenizer.batch_decode(ids, skip_special_tokens=True)
    bleu = sacrebleu.corpus_bleu(translations, [test["target"][:]]).score
    assert bleu == pytest.approx(saved[best]["bleu"])
    card = ModelCard.load(folder / "runs" / "model" / "README.md")
    assert card.data.eval_results[0].metric_value == saved[best]["bleu"]
    assert_states(card.text, "pairs.csv", f"seed: {best}")


@pytest.mark.slow
def test_a_killed_run_goes_on(folder):
    given = ("--steps", 40, "--layers", 1, "--width", 32, "--position-encoding", "sinusoidal")
    assert run(SCRIPT, folder, *arguments("whole", *given))[0] == 0
    # In the third epoch, which has three steps like the others.
    kill_at(SCRIPT, folder, "parts/seed-0/checkpoint-8/trainer_state.json", *arguments("parts", *given))
    code, _, err = run(SCRIPT, folder, *arguments("parts", *given, "--resume"))
    assert code == 0, err
    whole, parts = (load_file(folder / name / "model" / "model.safetensors") for name in ("whole", "parts"))
    for name, weight in whole.items():
        assert torch.equal(parts[name], weight)
    assert results(folder / "parts")["0"]["translations"] == results(folder / "whole")["0"]["translations"]


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (["--train", "none.csv"], ["none.csv"]),
        (["--source", "fr"], ["pairs.csv", "fr", "de, en"]),
        (["--learning-rate", "1e20", "--steps", 5], ["use a lower learning rate"]),
        (["--vocabulary-size", 10], ["vocabulary of 10"]),
    ],
)
def test_unusable_input_is_named_on_one_line(run_here, folder, more, facts):
    code, _, err = run_here(SCRIPT, folder, *arguments(f"bad{len(facts)}{more[1]}", *more))
    assert code == 1
    assert_states(err, "translate: ", *facts)
