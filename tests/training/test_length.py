"""The length at which a model was trained is that of its saved tokenizer, in every script."""

import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.small_models import TINY, save_masked_lm
from transformers import AutoTokenizer, pipeline

from modeling_roformer.training import TrainingError, check_length, with_trained_length

VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
ROWS = "明月几时有\t月\n天上宫阙\t天\n" * 6
GLUE = {"train": "明月几时有\t1\n天上宫阙\t0\n" * 4, "dev": "明月\t1\n天上\t0\n"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a saved model, whose tokenizer has no limit, and data for every script."""
    folder = tmp_path_factory.mktemp("lengths")
    save_masked_lm(folder / "start", VOCAB, **TINY)
    (folder / "texts.tsv").write_text(f"text\tlabel\n{ROWS}", encoding="utf-8")
    (folder / "glue" / "sst2").mkdir(parents=True)
    for part, rows in GLUE.items():
        (folder / "glue" / "sst2" / f"{part}.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
    return folder


CLASSIFICATION = ["start", "--train", "texts.tsv", "--epochs", 1, "--learning-rate", 1e-3]
GLUE_OPTIONS = ["--models", "start", "--data", "glue", "--tasks", "sst2", "--epochs", 1, "--learning-rates", 1e-3]


@pytest.mark.parametrize(("own", "saved"), [(None, 24), (16, 24), (32, 32)])
def test_a_longer_limit_stays(folder, own, saved):
    tokenizer = AutoTokenizer.from_pretrained(folder / "start")
    before = tokenizer.model_max_length = own or tokenizer.model_max_length
    trained = with_trained_length(tokenizer, 24)
    assert trained.model_max_length == saved and tokenizer.model_max_length == before
    assert trained("明月几时有")["input_ids"] == tokenizer("明月几时有")["input_ids"]


@pytest.mark.parametrize(
    ("script", "arguments", "place"),
    [
        ("finetune_classification.py", CLASSIFICATION, "model"),
        ("finetune_glue.py", GLUE_OPTIONS, "start-sst2"),
    ],
)
def test_a_script_saves_the_length(folder, run_here, script, arguments, place):
    output = script.partition(".")[0]
    code, _, err = run_here(script, folder, *arguments, "--length", 8, "--output", output)
    assert code == 0, err
    classify = pipeline("text-classification", model=str(folder / output / place), device="cpu")
    assert classify.tokenizer.model_max_length == 8
    long = classify.preprocess("明月几时有" * 1000, truncation=True)
    assert long["input_ids"].shape == (1, 8)


@pytest.mark.parametrize(
    ("script", "arguments", "option"),
    [
        ("finetune_classification.py", CLASSIFICATION, "--length"),
        ("finetune_glue.py", GLUE_OPTIONS, "--length"),
        ("finetune_triplet.py", ["start", "--train", "texts.tsv"], "--max-length"),
        ("train_retriever.py", ["start", "--train", "texts.tsv"], "--max-length"),
    ],
)
def test_a_length_without_room_for_a_text_is_refused(folder, run_here, script, arguments, option):
    code, _, err = run_here(script, folder, *arguments, option, 2, "--output", "refused")
    assert code == 1 and not (folder / "refused").exists()
    assert_states(err, f"{option} is 2")


@pytest.mark.parametrize("script", ["translate.py", "paper/char_lm.py", "paper/position_laboratory/compare.py"])
def test_a_length_of_one_is_refused(folder, run_here, script, monkeypatch):
    monkeypatch.syspath_prepend((REPOSITORY / "examples" / script).parent)
    option, text = (
        ("--max-length", ["--train", "texts.tsv"]) if script == "translate.py" else ("--length", ["texts.tsv"])
    )
    code, _, err = run_here(script, folder, *text, option, 1, "--output", "refused")
    assert code in (1, 2) and not (folder / "refused").exists()
    assert_states(err, f"{option} is 1", 2)


def test_a_pair_needs_a_token_of_each_text(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "start")
    for texts, least in (1, 3), (2, 5):
        check_length(tokenizer, least, texts)
        with refused(TrainingError, f"--length is {least - 1}", least):
            check_length(tokenizer, least - 1, texts)
