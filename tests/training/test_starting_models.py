"""A model to start from that is not there is one sentence, before anything is read, and the Hub is asked once."""

import json
import shutil

import pytest
from helpers.hub_server import Blob, Fault
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.small_models import small_config
from transformers import AutoModel

from modeling_roformer import RoFormerModel, RoFormerTokenizer
from modeling_roformer.hub import push
from modeling_roformer.training import TrainingError, check_model_source, fresh_model, load_tokenizer, trained_model

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy" / "word"
REPO = "somebody/model"


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = RoFormerTokenizer(LEGACY / "vocab.txt")
    RoFormerModel(small_config(vocab_size=len(tokenizer))).save_pretrained("runs/tickets/model")
    tokenizer.save_pretrained("runs/tickets/model")
    return tmp_path / "runs" / "tickets" / "model"


def test_models_pass_without_an_error(model):
    for source in (model, "runs/tickets/model", "runs/tickets/model/", "./runs/tickets/model"):
        check_model_source(source)
    for name in ("vocab.txt", "tokenizer.json"):  # tokenizers of other kinds have other files
        (model / name).unlink()
        check_model_source(model)


@pytest.mark.parametrize(
    "source",
    [
        "runs/tickets/modle",
        "runs/modle",
        "./modle",
        "../x",
        "/nowhere/x",
        "~/x",
        "a\\b",
        "a/b/c",
        "modle/",
        "模型",
    ],
)
def test_what_is_written_like_a_path_is_not_sought_on_the_hub(hub, model, source):
    for load in (check_model_source, load_tokenizer):
        with refused(TrainingError, source, "does not exist"):
            load(source)
    assert not hub.requests


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda folder: (folder / "config.json").unlink(), ["config.json", "convert"]),
        (
            lambda folder: [
                (folder / name).unlink() for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
            ],
            ["no tokenizer", "vocab.txt", "tokenizer.json"],
        ),
        (lambda folder: (folder / "config.json").rename(folder / "adapter_config.json"), ["PeftModel.from_pretrained"]),
    ],
)
def test_a_folder_without_a_model_is_named(hub, model, change, facts):
    change(model)
    with refused(TrainingError, model, *facts):
        check_model_source(model)
    assert not hub.requests


def test_other_folders_and_files(hub, model):
    with refused(TrainingError, "runs/tickets", "runs/tickets/model"):
        check_model_source("runs/tickets")  # the folder of the run
    with refused(TrainingError, model / "vocab.txt", "not a folder"):
        check_model_source(model / "vocab.txt")
    with refused(TrainingError, LEGACY, "config.json", "convert"):
        check_model_source(LEGACY)
    assert not hub.requests


@pytest.mark.parametrize("source", ["somebody/else", "nobody/model"])
def test_the_hub_is_asked_once(hub, model, source):
    for load in (check_model_source, load_tokenizer, lambda name: trained_model(name, None)):
        hub.requests.clear()
        with refused(TrainingError, source, "Hub", "hf auth login"):
            load(source)
        assert hub.requests == [f"GET /api/models/{source}"]
        hub.faults.append(Fault("GET /api/models", cut=0))
        with refused(TrainingError, source, "Hub"):
            load(source)
        assert len(hub.requests) == 2


def test_a_repository_with_a_model_passes_without_an_error(hub, model):
    push(model, REPO)
    check_model_source(REPO)
    AutoModel.from_pretrained(REPO)
    hub.requests.clear()
    check_model_source(REPO)  # from the cache
    assert not hub.requests
    repo = hub.repos["somebody/other"] = hub.repos[REPO].__class__()
    repo.commit("main", {"README.md": Blob(b"")}, "first")
    with refused(TrainingError, "somebody/other", "config.json"):
        check_model_source("somebody/other")


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("finetune_classification.py", ["./modle", "--train", "reviews.csv"]),
        ("finetune_questions.py", ["./modle", "--train", "questions.jsonl"]),
        ("finetune_glue.py", ["--models", "./modle", "--data", "glue"]),
        ("finetune_triplet.py", ["./modle", "--train", "triplets.jsonl"]),
        ("train_retriever.py", ["./modle", "--train", "questions.jsonl"]),
        ("pretrain_mlm.py", ["--from", "./modle", "--corpus", "laws.txt", "--tokenizer", "vocab.txt"]),
    ],
)
def test_every_script_names_a_model_that_is_not_there(hub, run_here, tmp_path, script, arguments):
    (tmp_path / "laws.txt").write_text("今天\n", encoding="utf-8")
    shutil.copy(LEGACY / "vocab.txt", tmp_path)
    code, _, err = run_here(script, tmp_path, *arguments, "--output", "run")
    assert code == 1
    assert_states(err, "modle", "does not exist")
    assert not hub.requests and not (tmp_path / "run").exists()


def test_an_unknown_size_of_a_fresh_model_is_refused(tmp_path):
    tokenizer = load_tokenizer(LEGACY / "vocab.txt")
    with refused(TrainingError, "huge", "tiny, mini, small, medium, base"):
        fresh_model(tokenizer, "huge")
    with refused(TrainingError, tmp_path / "none.json"):
        fresh_model(tokenizer, tmp_path / "none.json")


def test_a_bad_field_of_a_fresh_model_names_its_file(tmp_path):
    tokenizer, file = load_tokenizer(LEGACY / "vocab.txt"), tmp_path / "size.json"
    for fields, facts in ({"hiden_size": 256}, ["hiden_size"]), ({"hidden_size": 250, "num_attention_heads": 4}, [250]):
        file.write_text(json.dumps(fields))
        with refused(TrainingError, file, *facts):
            fresh_model(tokenizer, file)
