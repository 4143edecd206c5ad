"""Resuming: the same run is resumed, even if its data have moved, and any other run is refused."""

import gzip
import json
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import pytest
import torch
import transformers
from helpers.messages import assert_states, refused
from helpers.resumable import DOCUMENTS, EXAMPLES, VOCAB, command, save_model, write, write_inputs
from helpers.scripts import run_script
from safetensors.torch import load_file, save_file

from modeling_roformer import RoFormerTokenizer
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.pretraining.documents import read_documents
from modeling_roformer.training.runs.digests import digest_of_model, digest_of_rows, digest_of_tokenizer, file_digests
from modeling_roformer.training.runs.finite import NotFinite
from modeling_roformer.training.runs.kept_model import digest_of_kept, to_train
from modeling_roformer.training.runs.resuming import ResultsFile, check_same, recorded_setting, run_lock
from modeling_roformer.training.triplets.reading import digest_of_triplets, read_triplets

SCRIPTS = [
    "paper/char_lm",
    "paper/position_laboratory/compare",
    "finetune_glue",
    "finetune_classification",
    "finetune_triplet",
    "train_retriever",
    "translate",
    "pretrain_mlm",
    "paper/compare_position_embeddings",
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.fixture
def folder(tmp_path, inputs, monkeypatch):
    """With a copy of the inputs in `first`."""
    shutil.copytree(inputs, tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trained(monkeypatch):
    """Record each training that has begun."""
    trained, train = [], transformers.Trainer.train

    def counted(self, *arguments, **options):
        trained.append(self)
        return train(self, *arguments, **options)

    monkeypatch.setattr(transformers.Trainer, "train", counted)
    return trained


@pytest.fixture
def run(folder, trained, no_pictures, monkeypatch, capfd):
    """Run a script on the inputs in a folder. Return its exit code, the number of trainings, and the last line of
    stderr."""
    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.draw_curves", lambda *_: None)

    def run(script, place, *options):
        trained.clear()
        words = [*command(script, folder / place), "--output", "runs", *options]
        code, _, err = run_script(EXAMPLES / f"{script}.py", words, monkeypatch, capfd)
        return code, len(trained), err

    return run


def contents(folder):
    """Return the bytes of all files, except those of a corpus: it must be read before it can be compared."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "corpus" not in path.parts}


def warnings(caplog):
    """Return our warnings about settings that could not be compared."""
    return " ".join(record.getMessage() for record in caplog.records if record.name.endswith("runs.resuming"))


def names_of(named):
    """Return the settings in a list such as "text, seed and rate"."""
    return re.split(", | and ", named)


def file_of(script):
    """Return the file in which a script records its settings."""
    of_run = {"pretrain_mlm": "run.json", "paper/compare_position_embeddings": "rotary/run.json"}
    return Path("runs") / of_run.get(script, "results.json")


def replace_in(path, *pair):
    path.write_text(path.read_text(encoding="utf-8").replace(*pair), encoding="utf-8")


def other_model(folder):
    shutil.rmtree(folder / "a" / "model")
    save_model(folder / "a" / "model", seed=1)


def other_config(folder):
    """Change the config of the model, with the same weights."""
    replace_in(folder / "a" / "model" / "config.json", '"position_encoding": "rotary"', '"position_encoding": "none"')


def other_tokenizer(folder):
    """Change the tokenizer of the model, with the same vocabulary."""
    RoFormerTokenizer(str(VOCAB), do_lower_case=False).save_pretrained(folder / "a" / "model")


def replace_secretly(folder):
    """Every character, with the file's size and time as they were."""
    path, stat = folder / "corpus.txt", (folder / "corpus.txt").stat()
    write(path, re.sub("[^\n]", "天", path.read_text(encoding="utf-8")))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)


OF_CORPUS = [
    (lambda folder: replace_in(folder / "corpus.txt", "明", "天"), [], "corpus"),
    (replace_secretly, [], "corpus"),
    (lambda folder: write(folder / "corpus.txt", "\n".join([*DOCUMENTS, "多"])), [], "corpus and documents"),
    (lambda folder: write(folder / "corpus.txt", "\n".join(reversed(DOCUMENTS))), [], "corpus"),
    (lambda folder: replace_in(folder / "stages.yaml", "16", "15"), ["--seed", 1], "stages and seed"),
    (lambda folder: None, ["--bf16"], "arguments"),
    (lambda folder: None, ["--characters"], "tokenizer"),
]
OTHERS = [
    ("paper/char_lm", lambda folder: replace_in(folder / "text.txt", "times", "tames"), [], "text"),
    ("paper/char_lm", lambda folder: None, ["--seed", 1, "--learning-rate", 0.1], "learning_rate and seed"),
    ("paper/position_laboratory/compare", lambda folder: replace_in(folder / "text.txt", "times", "tames"), [], "text"),
    ("paper/position_laboratory/compare", lambda folder: None, ["--bf16", "--steps", 5], "steps and bf16"),
    ("finetune_glue", other_model, [], "model model"),
    ("finetune_glue", other_config, [], "model model"),
    ("finetune_glue", other_tokenizer, [], "model model"),
    ("finetune_glue", lambda folder: replace_in(folder / "glue/sst2/train.tsv", "明", "天"), [], "data of sst2"),
    ("finetune_glue", lambda folder: replace_in(folder / "glue/sst2/dev.tsv", "\t0", "\t1"), [], "data of sst2"),
    ("finetune_glue", lambda folder: None, ["--length", 15, "--epochs", 2], "epochs and length"),
    ("finetune_classification", other_model, [], "model"),
    ("finetune_classification", other_tokenizer, ["--patience", 1], "model and patience"),
    (
        "finetune_classification",
        lambda folder: replace_in(folder / "reviews.tsv", "有", "天"),
        [],
        "train_texts, validation_texts and test_texts",
    ),
    ("finetune_triplet", other_model, [], "weights of model-16"),
    ("finetune_triplet", other_config, [], "weights of model-16"),
    ("finetune_triplet", lambda folder: replace_in(folder / "triplets.jsonl", "。", "，"), [], "files"),
    ("finetune_triplet", lambda folder: None, ["--scorer", "bi", "--patience", 1], "scorer and patience"),
    ("train_retriever", other_model, [], "model"),
    (
        "train_retriever",
        lambda folder: replace_in(folder / "questions.tsv", "明", "天"),
        [],
        "train_questions and passages",
    ),
    ("train_retriever", other_tokenizer, ["--batch-size", 2, "--length", 12], "model, length and batch_size"),
    ("translate", lambda folder: replace_in(folder / "train.de", "und", "oder"), [], "train"),
    ("translate", lambda folder: replace_in(folder / "test.en", "and", "or"), ["--bf16"], "test and bf16"),
    ("translate", lambda folder: replace_in(folder / "setting.yaml", "beams: 2", "beams: 3"), [], "beams"),
    *(("paper/compare_position_embeddings", *other) for other in OF_CORPUS),
    ("pretrain_mlm", *OF_CORPUS[0]),
    ("pretrain_mlm", other_model, [], "weights"),
    ("pretrain_mlm", other_config, [], "model"),
    ("pretrain_mlm", lambda folder: replace_in(folder / "held-out.txt", "明", "天"), [], "held_out"),
]
# Options that change no result.
FREE = {
    "paper/char_lm": ["--prompt", "1", "--new-tokens", 2, "--device-batch", 2],
    "finetune_triplet": ["--device-tokens", 64, "--data-name", "cases"],
    "train_retriever": ["--device-batch", 2],
    "pretrain_mlm": ["--device-tokens", 64, "--save-steps", 1, "--cache", "cache", "--num-proc", 1],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_run_is_told_from_others_by_what_it_learns_from(script, run, folder, caplog):
    code, count, err = run(script, "first")
    assert (code, count) == (0, 1), err
    done = contents(Path("runs"))
    # Other contents under the same names.
    for name, change, options, named in OTHERS:
        if name == script:
            shutil.copytree("first", "other")
            change(Path("other"))
            (folder / "first").rename(folder / "kept")
            (folder / "other").rename(folder / "first")
            code, count, err = run(script, "first", *options)
            assert (code, count) == (1, 0), err
            assert_states(err.partition("or start")[0], file_of(script).parent, *names_of(named))
            assert contents(Path("runs")) == done
            shutil.rmtree("first")
            (folder / "kept").rename(folder / "first")
    # The same contents under other names, and settings that change no result.
    (folder / "first").rename(folder / "moved")
    code, count, err = run(script, "moved", *FREE.get(script, []))
    assert (code, count) == (0, 0), err
    assert not warnings(caplog)


@pytest.mark.parametrize(
    ("script", "file"),
    [
        ("paper/char_lm", "text.txt"),
        ("paper/position_laboratory/compare", "text.txt"),
        ("finetune_glue", "glue/sst2/train.tsv"),
        ("finetune_classification", "reviews.tsv"),
        ("finetune_triplet", "triplets.jsonl"),
        ("train_retriever", "questions.tsv"),
        ("translate", "train.de"),
        ("pretrain_mlm", "corpus.txt"),
    ],
)
def test_how_a_file_is_written_does_not_matter(script, file, run, folder, caplog):
    """With a byte order mark, and with other ends of lines."""
    assert run(script, "first")[:2] == (0, 1)
    path = folder / "first" / file
    text = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert path.read_bytes().count(b"\r\n") > 1
    code, count, err = run(script, "first")
    assert (code, count) == (0, 0), err
    assert not warnings(caplog)


def test_compressed_files_hold_what_the_others_hold(run, folder):
    assert run("translate", "first")[:2] == (0, 1)
    files = [folder / "first" / f"train.{language}" for language in ("de", "en")]
    for file in files:
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.write_text("gone")
    code, count, err = run("translate", "first", "--train", *(f"{file}.gz" for file in files))
    assert (code, count) == (0, 0), err
    triplets = folder / "first" / "triplets.jsonl"
    Path(f"{triplets}.gz").write_bytes(gzip.compress(triplets.read_bytes()))
    same = {digest_of_triplets(read_triplets(path)) for path in (triplets, f"{triplets}.gz")}
    other = triplets.read_text(encoding="utf-8").replace("。", "，", 1)
    write(triplets, other)
    assert len(same) == 1 and digest_of_triplets(read_triplets(triplets)) not in same


@pytest.mark.parametrize(
    ("script", "model", "rows", "trainings"),
    [
        ("paper/char_lm", "after/model", "results", 0),  # of which checkpoints are there
        ("translate", "rotary-0/model", "runs", 0),
        ("finetune_glue", "model-sst2", "runs", 1),
        ("finetune_classification", "model", "seeds", 1),
        ("finetune_triplet", "model-16", "rows", 1),
        ("train_retriever", "model", "rows", 1),
    ],
)
def test_a_model_that_was_removed_is_made_again(script, model, rows, trainings, run, folder):
    seeds = ["--seeds", 2, 0, 1] if trainings else []  # scores of some are equal
    assert run(script, "first", *seeds)[:2] == (0, len(seeds[1:]) or 1)
    weights = Path("runs", model, "model.safetensors")
    first = file_digests([weights])
    shutil.rmtree(Path("runs", model))
    before = len(json.loads(file_of(script).read_text(encoding="utf-8"))[rows])
    code, count, err = run(script, "first", *seeds)
    assert (code, count) == (0, trainings), err
    assert file_digests([weights]) == first
    assert len(json.loads(file_of(script).read_text(encoding="utf-8"))[rows]) == before


@pytest.mark.parametrize(
    ("script", "model", "damaged", "trainings"),
    [
        ("paper/char_lm", "after/model", "cut", 0),
        ("paper/char_lm", "after/model", "other", 0),
        ("translate", "rotary-0/model", "cut", 0),
        ("translate", "rotary-0/model", "other", 0),
        ("finetune_glue", "model-sst2", "other", 1),
        ("finetune_classification", "model", "cut", 1),
        ("finetune_classification", "model", "other", 1),
        ("finetune_triplet", "model-16", "other", 1),
        ("train_retriever", "model", "other", 1),
    ],
)
def test_a_model_that_is_not_the_recorded_one_is_made_again(script, model, damaged, trainings, run, folder):
    """A process leaves it so if it is killed after it has saved the model of a seed, and before it records its
    scores."""
    assert run(script, "first")[:2] == (0, 1)
    weights = Path("runs", model, "model.safetensors")
    first = file_digests([weights])
    if damaged == "cut":
        weights.write_bytes(weights.read_bytes()[:-8])
    else:
        save_file({name: value + 1 for name, value in load_file(weights).items()}, weights, {"format": "pt"})
    code, count, err = run(script, "first")
    assert (code, count) == (0, trainings), err
    assert file_digests([weights]) == first
    assert run(script, "first")[:2] == (0, 0)


# Of each script that keeps the model of its best seed: its place, the rows of results.json, and the score by which they
# compare.
OF_SEEDS = {
    "finetune_glue": ("model-sst2", lambda saved: saved["runs"], lambda row: (row["scores"], "validation", 100.0)),
    "finetune_classification": (
        "model",
        lambda saved: [*saved["seeds"].values()],
        lambda row: (row["scores"]["validation"], "accuracy", 1.0),
    ),
    "finetune_triplet": ("model-16", lambda saved: saved["rows"][-1]["runs"], lambda row: (row, "validation", 1.0)),
    "train_retriever": (
        "model",
        lambda saved: [row for row in saved["rows"] if row["name"] == "trained"],
        lambda row: (row["scores"]["validation"], "ndcg@10", 1.0),
    ),
}


def results_of(script):
    return json.loads(file_of(script).read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", OF_SEEDS)
def test_a_model_that_scores_lower_when_it_is_made_again_gives_way_to_the_best(script, run, folder):
    """Other hardware may give other scores. Then the weights are not those of the best, so that one is made again,
    too."""
    model, rows, score = OF_SEEDS[script]
    assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 2)
    saved = results_of(script)
    true, weights = rows(saved), digest_of_kept(Path("runs", model))
    (other,) = (number for number, row in enumerate(true) if row["weights"] != weights)
    changed = results_of(script)
    place, name, best = score(rows(changed)[other])
    for row in rows(changed):  # 0 but for the other one, which has a score that it does not reach
        of, *_ = score(row)
        of[name] = 0.0
    place[name] = best
    write(file_of(script), json.dumps(changed))
    code, count, err = run(script, "first", "--seeds", 0, 1)
    assert code == 0 and count in (1, 2), err
    now = rows(results_of(script))
    found, name, _ = score(now[other])
    assert found[name] == score(true[other])[0][name]  # what it was before
    ranked = [score(row)[0][name] for row in now]
    assert now[ranked.index(max(ranked))]["weights"] == digest_of_kept(Path("runs", model))
    assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 0)


@pytest.mark.parametrize("script", OF_SEEDS)
def test_results_outlast_a_lost_model_that_cannot_be_made_again(script, run, folder, monkeypatch):
    model, rows, _ = OF_SEEDS[script]
    assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 2)
    true = rows(results_of(script))
    shutil.rmtree(Path("runs", model))
    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise NotFinite("the loss is nan at step 1")

        patch.setattr(transformers.Trainer, "train", fail)
        code, _, err = run(script, "first", "--seeds", 0, 1)
    assert code == 0 and rows(results_of(script)) == true, err
    assert not Path("runs", model).exists()
    assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 1)
    assert [row["weights"] for row in rows(results_of(script))] == [row["weights"] for row in true]


@pytest.mark.parametrize("script", OF_SEEDS)
def test_results_without_their_models_are_made_again_and_the_better_model_stays(script, run, folder):
    """results.json was carried to other hardware, on which no seed reaches its recorded score."""
    model, rows, score = OF_SEEDS[script]
    assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 2)
    true = [score(row)[0][score(row)[1]] for row in rows(results_of(script))]
    changed = results_of(script)
    for row in rows(changed):
        place, name, best = score(row)
        place[name] = best
    write(file_of(script), json.dumps(changed))
    shutil.rmtree(Path("runs", model))
    code, count, err = run(script, "first", "--seeds", 0, 1)
    assert (code, count) == (0, 2 if max(true) < best else 1), err
    now = rows(results_of(script))
    ranked = [score(row)[0][name] for row in now]
    assert now[ranked.index(max(ranked))]["weights"] == digest_of_kept(Path("runs", model))
    assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 0)


@pytest.mark.parametrize("script", OF_SEEDS)
def test_a_model_that_is_made_again_does_not_pass_for_one_without_a_digest(script, run, folder):
    """Earlier versions recorded no digests, or empty ones."""
    model, rows, score = OF_SEEDS[script]
    assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 2)
    true = [score(row)[0][score(row)[1]] for row in rows(results_of(script))]
    for without in None, "":  # any weights count
        changed = results_of(script)
        for row in rows(changed):
            row["weights"] = without
        write(file_of(script), json.dumps(changed))
        assert run(script, "first", "--seeds", 0, 1)[:2] == (0, 0)
    for row in rows(changed):  # the model of the first is lost, then scores lower than the second
        place, name, best = score(row)
        place[name], row["weights"] = best, None
    write(file_of(script), json.dumps(changed))
    shutil.rmtree(Path("runs", model))
    code, count, err = run(script, "first", "--seeds", 0, 1)
    assert (code, count) == (0, 2 if true[0] < best else 1), err
    now = rows(results_of(script))
    ranked = [score(row)[0][name] for row in now]
    assert now[ranked.index(max(ranked))]["weights"] == digest_of_kept(Path("runs", model))


@pytest.mark.parametrize(("script", "rows"), [("paper/char_lm", "results"), ("translate", "runs")])
def test_results_outlast_a_lost_model_of_one_run_that_cannot_be_made_again(script, rows, run, folder, monkeypatch):
    assert run(script, "first")[:2] == (0, 1)
    true = results_of(script)[rows]
    for path in Path("runs").glob("*/checkpoint-*"):
        shutil.rmtree(path)
    (lost,) = (path.parent for path in Path("runs").glob("*/model/config.json"))
    weights = digest_of_kept(lost)
    shutil.rmtree(lost)
    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise NotFinite("the loss is nan at step 1")

        patch.setattr(transformers.Trainer, "train", fail)
        code, _, err = run(script, "first")
    assert code == 0 and results_of(script)[rows] == true, err
    assert run(script, "first")[:2] == (0, 1)
    assert digest_of_kept(lost) == weights


def test_runs_that_are_trained(tmp_path):
    kept, done, scores = 0, {0: 0.9, 1: 0.5, 2: 0.7}, {0: 0.6, 1: 0.5, 2: 0.4, 3: 0.1}

    def lost():
        best = max(done, key=done.get)
        return [] if kept == best else [best]

    assert [*to_train([0, 1, 2], done.__contains__, lost)] == []
    kept, trained = None, []
    for key, is_lost in to_train([2, 3], done.__contains__, lost):
        trained.append((key, is_lost))
        done[key] = scores[key]
        kept = key if is_lost or key == max(done, key=done.get) else kept
    # 0 scores lower than 2 now, which scores lower than 0: each is repeated once.
    assert trained == [(0, True), (2, True), (3, False)] and done == {0: 0.6, 1: 0.5, 2: 0.4, 3: 0.1} and kept == 2
    assert [key for key, _ in to_train([], done.__contains__, lost)] == [0]


def test_a_process_that_is_killed_during_its_first_write_does_not_block_the_folder(tmp_path):
    first = ResultsFile("script.py", tmp_path, {"steps": 1})
    for name in (".results.json.0123abcd.unfinished", ".results.json.89abcdef.unfinished"):
        (tmp_path / name).write_text("{")
    assert first.read(dict) is None
    first.write(rows=[])
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert first.read(lambda saved: saved["rows"]) == []


@pytest.mark.parametrize("number", ["abc", True, -1, float("nan"), None, [1]])
def test_a_recorded_setting_that_is_no_number_is_not_taken(number, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"settings": {"learning_rate": number}}))
    assert recorded_setting(tmp_path, "learning_rate") is None


def test_a_model_is_not_trained_where_it_cannot_be_put(run, folder):
    assert run("finetune_classification", "first")[:2] == (0, 1)
    Path("runs", "model", ".git").mkdir()
    code, count, err = run("finetune_classification", "first", "--seeds", 0, 1)
    assert (code, count) == (1, 0)
    assert_states(err, "runs/model", "git repository", "--output")


def test_a_grid_grows_and_belongs_to_the_weights(run, folder):
    """In GLUE, rates, seeds and models are rows. A model is identified by its content, not by the name of its
    folder."""
    assert run("finetune_glue", "first")[:2] == (0, 1)
    assert run("finetune_glue", "first", "--learning-rates", "1e-3", "1e-2", "--seeds", 0, 1)[:2] == (0, 3)
    save_model(folder / "b" / "model", seed=1)
    code, count, err = run("finetune_glue", "first", "--models", folder / "b" / "model")
    assert (code, count) == (1, 0)
    assert_states(err, "runs/results.json", "model model")
    (folder / "b" / "model").rename(folder / "b" / "second")
    (folder / "first" / "a" / "model").rename(folder / "b" / "renamed")
    both = ["--models", folder / "b" / "renamed", folder / "b" / "second"]
    assert run("finetune_glue", "first", *both)[:2] == (0, 1)
    runs = json.loads(file_of("finetune_glue").read_text(encoding="utf-8"))["runs"]
    assert [row["model"] for row in runs] == ["model"] * 4 + ["second"]
    assert {path.name for path in Path("runs").iterdir()} == {"results.json", "model-sst2", "second-sst2"}
    (folder / "b" / "second").rename(folder / "b" / "model")
    code, count, err = run("finetune_glue", "first", "--models", folder / "b" / "renamed", folder / "b" / "model")
    assert (code, count) == (0, 0), err
    shutil.copytree(folder / "b" / "model", folder / "b" / "copy")
    code, count, err = run("finetune_glue", "first", "--models", folder / "b" / "model", folder / "b" / "copy")
    assert (code, count) == (1, 0)
    assert_states(err, "model, copy", "same model")


def test_a_triplet_model_is_found_again_under_another_name(run, folder):
    assert run("finetune_triplet", "first")[:2] == (0, 1)
    (folder / "first" / "a" / "model").rename(folder / "renamed")
    assert run("finetune_triplet", "first", "--models", "renamed", "--seeds", 0, 1)[:2] == (0, 1)
    rows = json.loads(file_of("finetune_triplet").read_text(encoding="utf-8"))["rows"]
    assert [(row["name"], len(row["runs"])) for row in rows] == [("model-16", 2)]


def test_one_process_writes_into_a_folder(run, folder):
    """Another that comes meanwhile is refused; the lock goes with its holder."""
    with run_lock("runs"):
        code, count, err = run("paper/char_lm", "first")
        assert (code, count) == (1, 0)
        assert_states(err, "runs", "another process")
    assert not Path("runs").exists()
    assert run("paper/char_lm", "first")[:2] == (0, 1)
    Path("file").touch()
    with refused(TrainingError, "file", "folder"), run_lock("file"):
        pass


def test_a_folder_is_locked_under_every_name(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to("runs")
    for one, other in ("runs", "link"), ("link", "runs"), ("link", "link"):
        with (
            run_lock(tmp_path / one),
            refused(TrainingError, other, "another process"),
            run_lock(tmp_path / other),
        ):
            pass


def test_runs_that_start_at_once(tmp_path):
    """One of them has the folder, which none has made before. A lock is of a file that was opened, so threads do for
    processes."""
    begin, end = threading.Barrier(4), threading.Barrier(4)

    def enter(_):
        begin.wait(30)
        try:
            with run_lock(tmp_path / "new" / "runs"):
                end.wait(30)
                return "in"
        except TrainingError:
            end.wait(30)
            return "refused"

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(enter, range(4))) == ["in", "refused", "refused", "refused"]
    # The one that has the folder may have seen it, or its parent, as another's, and then leaves it empty.
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_the_digest_of_rows_is_of_their_values():
    columns = {"text": ["一", "", "two", None, "x" * 9], "label": [0, 1, 1, 0, 1]}
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["a", "b"]))
    rows = datasets.Dataset.from_dict(columns, features=features)
    same = [
        datasets.concatenate_datasets([rows.select([0, 1]), rows.select([2, 3, 4])]),
        rows.select([4, 3, 2, 1, 0]).select([4, 3, 2, 1, 0]),
        rows.cast_column("text", datasets.Value("large_string")),
        rows.select_columns(["label", "text"]),
        rows.map(lambda row: row, batch_size=2, writer_batch_size=2),
    ]
    assert {digest_of_rows(one) for one in same} == {digest_of_rows(rows)}
    others = [
        rows.select([1, 0, 2, 3, 4]),
        rows.select(range(4)),
        rows.rename_column("text", "pair"),
        rows.cast_column("label", datasets.ClassLabel(names=["b", "a"])),
        *(
            datasets.Dataset.from_dict({**columns, name: values}, features=features)
            for name, values in (
                ("text", ["一", "", "two", "", "x" * 9]),
                ("text", ["一", "t", "wo", None, "x" * 9]),
                ("label", [0, 1, 1, 1, 1]),
            )
        ),
    ]
    assert len({digest_of_rows(one) for one in [rows, *others]}) == 1 + len(others)


def test_how_a_corpus_is_stored_does_not_matter(tmp_path):
    """Text or JSON Lines, in how many files, and read by how many processes into which cache."""
    write(tmp_path / "a.txt", "\n".join(DOCUMENTS))
    write(tmp_path / "b" / "1.txt", "\n".join(DOCUMENTS[:4]))
    lines = (json.dumps({"content": text}) for text in DOCUMENTS[4:])
    write(tmp_path / "b" / "2.jsonl", "\n".join(lines))
    one = read_documents([tmp_path / "a.txt"], tmp_path / "cache")
    two = read_documents([tmp_path / "b"], tmp_path / "other", field="content", num_proc=2)
    assert digest_of_rows(one) == digest_of_rows(two)


def test_a_tokenizer_is_what_gives_the_ids(tmp_path):
    tokenizer = RoFormerTokenizer(str(VOCAB))
    digest = digest_of_tokenizer(tokenizer)
    tokenizer(["明月", "天"], padding=True, truncation=True, max_length=3)
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved", model_max_length=7)
    assert digest == digest_of_tokenizer(tokenizer) == digest_of_tokenizer(saved)
    others = [
        {"do_lower_case": False},
        {"word_segmentation": None},
        {"user_dict": ["明月几时"]},
        {"add_sep_token": False},
    ]
    digests = {digest_of_tokenizer(RoFormerTokenizer(str(VOCAB), **other)) for other in others}
    assert len(digests | {digest}) == 5


def test_a_model_is_what_it_computes(inputs, tmp_path):
    model = inputs / "a" / "model"
    digest = digest_of_model(model)
    shutil.copytree(model, tmp_path / "moved")
    (tmp_path / "moved" / "README.md").write_text("a card")
    assert digest_of_model(tmp_path / "moved") == digest
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(model)
    loaded.save_pretrained(tmp_path / "moved")  # by the version that is installed, with its name and fields
    assert digest_of_model(tmp_path / "moved") == digest
    loaded.save_pretrained(tmp_path / "shards", max_shard_size="5KB")
    shutil.copy(VOCAB, tmp_path / "shards" / "vocab.txt")
    sharded = digest_of_model(tmp_path / "shards")
    path = sorted((tmp_path / "shards").glob("*.safetensors"))[-1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert digest_of_model(tmp_path / "shards") != sharded
    torch.save(loaded.state_dict(), tmp_path / "moved" / "pytorch_model.bin")
    (tmp_path / "moved" / "model.safetensors").unlink()
    assert digest_of_model(tmp_path / "moved") != digest
    (tmp_path / "moved" / "pytorch_model.bin").unlink()
    with refused(TrainingError, tmp_path / "moved", "model.safetensors", "pytorch_model.bin"):
        digest_of_model(tmp_path / "moved")


def test_all_that_differs_is_named(caplog):
    begun = {"text": "0" * 64, "seed": 0, "rate": 0.1, "gone": 1, "files": ["old.txt"], "held_out": None}
    check_same("runs", begun, {"text": "0" * 64, "seed": 0, "rate": 0.1})
    assert not caplog.messages
    with refused(TrainingError, "runs", "text", "seed", "rate"):
        check_same("runs", begun, {"text": "1" * 64, "seed": 1, "rate": 0.2})
    with refused(TrainingError, "runs", "held_out"):
        check_same("runs", begun, {"held_out": "1" * 64})
    check_same("runs", begun, {"seed": 0, "new": 1, "other": 2})
    assert_states(caplog.messages[0], "runs", "earlier version", "new", "other")
