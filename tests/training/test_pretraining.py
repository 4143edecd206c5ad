"""Pre-training in stages: what is learned and logged, and how a run goes on after whatever has stopped it."""

import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.messages import refused
from helpers.paths import REPOSITORY
from helpers.small_models import TINY
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.model_cards import file_fact
from modeling_roformer.training.errors import StoppedBySignal, TrainingError
from modeling_roformer.training.pretraining.masking import MaskingCollator, StageExamples
from modeling_roformer.training.pretraining.pretrain import Corpus, held_out_scores, pretrain
from modeling_roformer.training.pretraining.stage_trainer import StageTrainer, StopSignal
from modeling_roformer.training.pretraining.stages import Stage
from modeling_roformer.training.runs.finite import NotFinite

VOCAB = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"
TEXT = REPOSITORY / "examples" / "long_document.txt"
STAGES = [Stage(32, 4, 3, 1e-3), Stage(64, 4, 6, 1e-3, masked=(0.3, 0.15))]


@pytest.fixture(scope="module")
def tokenizer():
    return RoFormerTokenizer(str(VOCAB))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus([TEXT], tmp_path_factory.mktemp("corpus"))


def make_model(**fields):
    torch.manual_seed(0)
    return RoFormerForMaskedLM(RoFormerConfig(**{"vocab_size": 12_000, **TINY, **fields}))


@pytest.fixture
def run(tokenizer, corpus):
    def run(output, stages=STAGES, model=None, **options):
        options = {"device_tokens": 128, "save_steps": 2, "logging_steps": 1, "disable_tqdm": True} | options
        model = make_model() if model is None else model
        return pretrain(model, tokenizer, stages, options.pop("corpus", corpus), output, **options)

    return run


@pytest.fixture(scope="module")
def uninterrupted(tokenizer, corpus, tmp_path_factory):
    """Return the folder of an uninterrupted run."""
    output = tmp_path_factory.mktemp("runs") / "uninterrupted"
    options = {"device_tokens": 128, "save_steps": 2, "logging_steps": 1, "disable_tqdm": True}
    pretrain(make_model(), tokenizer, STAGES, corpus, output, **options)
    return output


@pytest.fixture(scope="module")
def logged_seldom(tokenizer, corpus, tmp_path_factory):
    """Return the same, with a log entry every four steps."""
    output = tmp_path_factory.mktemp("runs") / "seldom"
    pretrain(make_model(), tokenizer, STAGES, corpus, output, device_tokens=128, logging_steps=4, disable_tqdm=True)
    return output


def logged(output, stage=2):
    """Loss and accuracy of every entry, by step."""
    entries = json.loads((output / f"stage-{stage}" / "log.json").read_text())
    return {entry["step"]: (entry["loss"], entry["accuracy"]) for entry in entries if "loss" in entry}


def assert_same_run(output, other):
    for stage in 1, 2:
        losses, others = logged(output, stage), logged(other, stage)
        assert losses.keys() == others.keys() and len(losses) == STAGES[stage - 1].steps
        for step in losses:
            assert losses[step] == pytest.approx(others[step], abs=1e-6)
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (output, other))
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-6)


def at_step(monkeypatch, stage, step, action):
    """Do something in the middle of a step: before the last part of its batch."""
    training_step = StageTrainer.training_step
    parts = []

    def patched(self, *args, **kwargs):
        if self.folder.name == f"stage-{stage}" and self.state.global_step == step - 1:
            parts.append(None)
            if len(parts) == self.args.gradient_accumulation_steps:
                action(self)
        return training_step(self, *args, **kwargs)

    monkeypatch.setattr(StageTrainer, "training_step", patched)


def interrupt(_trainer):
    raise KeyboardInterrupt


# The tests' own run in a process of its own, which kills itself in the middle of step 5 of stage 2.
KILLED = """
import os, signal, sys
import pytest, test_pretraining as t
t.at_step(pytest.MonkeyPatch(), 2, 5, lambda trainer: os.kill(os.getpid(), signal.SIGKILL))
t.pretrain(
    t.make_model(), t.RoFormerTokenizer(str(t.VOCAB)), t.STAGES, t.Corpus([t.TEXT], sys.argv[1]), sys.argv[2],
    device_tokens=128, save_steps=2, logging_steps=1, disable_tqdm=True,
)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_losses_of_one_that_was_not(run, uninterrupted, corpus, tmp_path):
    path = os.pathsep.join([str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "training")])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, corpus.cache, tmp_path / "run"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "run" / "stage-1" / "model").exists() and not (tmp_path / "run" / "model").exists()
    assert {path.name for path in (tmp_path / "run" / "stage-2").iterdir()} == {"checkpoint-2", "checkpoint-4"}
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize(("stage", "step"), [(1, 2), (2, 1), (2, 6)])
def test_stopped_anywhere(run, uninterrupted, tmp_path, monkeypatch, stage, step):
    with monkeypatch.context() as patch:
        at_step(patch, stage, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


def test_muon_goes_on_as_adamw_does(run, tmp_path, monkeypatch):
    stages = [Stage(32, 4, 4, 1e-3, optimizer="muon")]
    run(tmp_path / "through", stages)
    with monkeypatch.context() as patch:
        at_step(patch, 1, 4, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "stopped", stages)
    checkpoint = torch.load(tmp_path / "stopped" / "stage-1" / "checkpoint-2" / "optimizer.pt", weights_only=True)
    assert len(checkpoint["parts"][1]["param_groups"][0]["params"]) == 6  # one layer's matrices
    run(tmp_path / "stopped", stages)
    losses, others = (logged(tmp_path / name, 1) for name in ("through", "stopped"))
    assert losses == {step: pytest.approx(others[step], abs=1e-6) for step in (1, 2, 3, 4)}
    run(tmp_path / "adamw", STAGES[:1])
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("through", "adamw"))
    matrix = "roformer.encoder.layer.0.attention.self.query.weight"
    assert not torch.allclose(ours[matrix], theirs[matrix], atol=1e-4)


def test_a_half_written_checkpoint_is_passed_over(run, uninterrupted, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 2, 6, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    stage = tmp_path / "run" / "stage-2"
    optimizer = stage / "checkpoint-4" / "optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:-1000])
    (stage / ".unfinished" / "checkpoint-6").mkdir(parents=True)
    (stage / ".unfinished" / "checkpoint-6" / "config.json").write_text("{")
    resumed = []
    with monkeypatch.context() as patch:
        train = StageTrainer.train
        patch.setattr(
            StageTrainer,
            "train",
            lambda self, **how: resumed.append(how["resume_from_checkpoint"]) or train(self, **how),
        )
        run(tmp_path / "run")
    assert resumed == [str(stage / "checkpoint-2")]
    assert_same_run(tmp_path / "run", uninterrupted)
    assert {path.name for path in stage.iterdir()} == {"log.json", "model", "checkpoint-4.damaged"}


def flip(path):
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_a_damaged_stage_model_is_not_used(run, uninterrupted, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 2, 2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    model = tmp_path / "run" / "stage-1" / "model"
    flip(model / "model.safetensors")
    with refused(TrainingError, model / "model.safetensors", "damaged", "stage 1"):
        run(tmp_path / "run")
    assert model.is_dir()
    shutil.rmtree(model)
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_finished_stage_with_nan_is_not_used(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 2, 2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    model = tmp_path / "run" / "stage-1" / "model"
    weights = load_file(model / "model.safetensors")
    weights["cls.predictions.bias"][5] = math.nan
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    manifest = json.loads((model / "whole.json").read_text())
    manifest["model.safetensors"]["sha256"] = file_fact(model / "model.safetensors").split()[-1]
    (model / "whole.json").write_text(json.dumps(manifest))
    with refused(TrainingError, model, "cls.predictions.bias", "stage 1", "learning_rate"):
        run(tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()


def test_weights_that_are_not_finite_are_not_saved(run, uninterrupted, tmp_path, monkeypatch):
    """The last update of a stage is one whose outcome no loss has seen."""
    with monkeypatch.context() as patch:
        save = StageTrainer._save_checkpoint

        def spoil(trainer, *arguments):
            if (trainer.folder.name, trainer.state.global_step) == ("stage-2", 4):
                trainer.model.cls.predictions.bias.data[3] = math.inf
            save(trainer, *arguments)

        patch.setattr(StageTrainer, "_save_checkpoint", spoil)
        last = tmp_path / "run" / "stage-2" / "checkpoint-2"
        with refused(NotFinite, "cls.predictions.bias", "step 4 of stage-2", last, "learning_rate"):
            run(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "stage-2").iterdir()] == ["checkpoint-2"]
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends(run, logged_seldom, tmp_path, monkeypatch, number, default_signals):
    handler = signal.getsignal(number)
    with monkeypatch.context() as patch:
        at_step(patch, 2, 3, lambda trainer: os.kill(os.getpid(), number))
        with refused(StoppedBySignal, "step 3 of 6", "stage 2", "resume") as stopped:
            run(tmp_path / "run", logging_steps=4)
    assert stopped.value.signal == number and signal.getsignal(number) == handler
    checkpoint = RoFormerConfig.from_pretrained(tmp_path / "run" / "stage-2" / "checkpoint-3")
    assert not checkpoint.sparse_prediction  # for training alone
    # An entry has all steps since the last, those before the stop too.
    run(tmp_path / "run", logging_steps=4)
    assert logged(tmp_path / "run").keys() == {4, 6}  # the last steps are always logged
    for step in 4, 6:
        assert logged(tmp_path / "run")[step] == pytest.approx(logged(logged_seldom)[step], abs=1e-6)
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path / "run", logged_seldom))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_an_ignored_signal_stays_ignored(default_signals):
    """Background jobs of a shell script ignore Ctrl-C, for example."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        stop = StopSignal()
        with stop.listening():
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.number == 0
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.number == signal.SIGTERM
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_is_logged(tokenizer, corpus, run, tmp_path):
    """Loss and accuracy, computed from the first batch by hand; and the same however the batch is divided."""
    held_out = Corpus([TEXT], corpus.cache)
    stages = [Stage(32, 8, 2, 1e-9)]
    fields = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=1.0)

    def model_that_says_shall():  # so that some of its answers are right
        model = make_model(**fields)
        model.cls.predictions.bias.data[tokenizer.convert_tokens_to_ids("应当")] = 20.0
        return model

    model = model_that_says_shall().eval()
    pieces = corpus.pieces(tokenizer, 32)
    examples = StageExamples(pieces, stages[0], seed=5, number=1)
    batch = MaskingCollator(tokenizer, seed=5, stage=1)([examples[i] for i in range(8)])
    has_label = batch["labels"] != -100
    with torch.no_grad():
        logits = model(batch["input_ids"], batch["attention_mask"]).logits[has_label]
    loss = torch.nn.functional.cross_entropy(logits, batch["labels"][has_label]).item()
    right = (logits.argmax(-1) == batch["labels"][has_label]).float().mean().item()
    assert right > 0
    for device_tokens, workers in (32, 0), (256, 1):
        output = tmp_path / str(device_tokens)
        options = {"device_tokens": device_tokens, "dataloader_num_workers": workers, "seed": 5, "held_out": held_out}
        run(output, stages, model_that_says_shall(), **options)
        assert logged(output, 1)[1] == pytest.approx((loss, right), abs=1e-5)
        (evaluated,) = [e for e in json.loads((output / "stage-1" / "log.json").read_text()) if "eval_loss" in e]
    everything = MaskingCollator(tokenizer, replaced=1, random=0)([{"epoch": 0, **row} for row in pieces])
    has_label = everything["labels"] != -100
    assert (everything["input_ids"][has_label] == tokenizer.mask_token_id).all()
    with torch.no_grad():
        logits = model(everything["input_ids"], everything["attention_mask"]).logits[has_label]
    labels = everything["labels"][has_label]
    assert evaluated["eval_loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), abs=1e-4)
    assert evaluated["eval_accuracy"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item(), abs=1e-6)


def test_what_comes_out(uninterrupted, tokenizer):
    for place in "stage-1/model", "model":
        model, loading = AutoModelForMaskedLM.from_pretrained(uninterrupted / place, output_loading_info=True)
        assert not any(loading.values())
        assert not model.config.sparse_prediction  # for training alone
    assert RoFormerTokenizer.from_pretrained(uninterrupted / "model").get_vocab() == tokenizer.get_vocab()
    assert (uninterrupted / "curves.png").read_bytes().startswith(b"\x89PNG")
    begun = load_file(uninterrupted / "stage-1" / "model" / "model.safetensors")
    assert any(not torch.equal(begun[name], value) for name, value in model.state_dict().items() if name in begun)


def test_a_corpus_is_tokenized_by_the_tokenizer_that_asks(tokenizer, tmp_path):
    corpus = Corpus([TEXT], tmp_path)
    words = corpus.pieces(tokenizer, 64)
    characters = corpus.pieces(RoFormerTokenizer(str(VOCAB), word_segmentation=None), 64)
    assert sum(map(len, characters["input_ids"])) > 1.3 * sum(map(len, words["input_ids"]))
    assert corpus.pieces(tokenizer, 64).with_format(None)[:] == words.with_format(None)[:]


def test_it_learns(run, tmp_path):
    """A text that it sees again and again."""
    run(tmp_path / "run", [Stage(32, 16, 40, 2e-2)], make_model(hidden_size=32), logging_steps=10, device_tokens=512)
    losses = [loss for loss, _ in logged(tmp_path / "run", 1).values()]
    accuracies = [accuracy for _, accuracy in logged(tmp_path / "run", 1).values()]
    assert losses[-1] < losses[0] - 2 and accuracies[-1] > accuracies[0]


def test_a_loss_that_is_not_a_number(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 2, 4, lambda trainer: trainer.model.cls.predictions.bias.data.fill_(math.nan))
        with refused(NotFinite, "loss", "nan", "step 4 of stage-2", tmp_path / "run/stage-2/checkpoint-2"):
            run(tmp_path / "run")
    (checkpoint,) = (tmp_path / "run" / "stage-2").glob("checkpoint-*")
    assert all(value.isfinite().all() for value in load_file(checkpoint / "model.safetensors").values())
    run(tmp_path / "run")


def test_a_gradient_that_is_not_finite(run, tmp_path, monkeypatch):
    """Before it has changed a weight."""

    def spoil(trainer):
        trainer.model.cls.predictions.bias.register_hook(lambda gradient: gradient * math.inf)

    at_step(monkeypatch, 1, 3, spoil)
    with refused(NotFinite, "gradient", "step 3 of stage-1", tmp_path / "run/stage-1/checkpoint-2"):
        run(tmp_path / "run")


def test_a_full_disk(run, uninterrupted, tmp_path, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # stands for it: no file may grow beyond
    with monkeypatch.context() as patch:
        at_step(patch, 2, 4, lambda trainer: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1])))
        try:
            with refused(TrainingError, "stage-2/checkpoint-4", "MB", tmp_path / "run/stage-2/checkpoint-2"):
                run(tmp_path / "run")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (tmp_path / "run" / "stage-2").iterdir()] == ["checkpoint-2"]
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_disk_that_is_full_when_a_stage_is_done(run, uninterrupted, tmp_path, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    save_model = StageTrainer.save_model

    def patched(self, output_dir, *args, **kwargs):
        if Path(output_dir).name == "model":
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        save_model(self, output_dir, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "save_model", patched)
        try:
            with refused(TrainingError, "stage-1/model", "MB", tmp_path / "run/stage-1/checkpoint-3"):
                run(tmp_path / "run")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


def test_batches_that_cannot_be_shared_out_are_named_before_anything_begins(run, tmp_path, monkeypatch):
    three = SimpleNamespace(num_processes=3, is_main_process=True)
    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.processes", lambda: three)
    with refused(TrainingError, "4 pieces", "3 devices"):
        run(tmp_path / "run", [Stage(32, 6, 3, 1e-3), *STAGES])
    assert not (tmp_path / "run").exists()


def test_another_run_in_the_same_folder_is_refused(run, uninterrupted, corpus, tokenizer, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")}
    with refused(TrainingError, uninterrupted, "stages"):
        run(uninterrupted, [STAGES[0], Stage(64, 4, 7, 1e-3)])
    with refused(TrainingError, uninterrupted, "seed"):
        run(uninterrupted, seed=1)
    with refused(TrainingError, uninterrupted, "model"):
        run(uninterrupted, model=make_model(hidden_size=32))
    other = tmp_path / "other.txt"
    other.write_text("另一个。", encoding="utf-8")
    with refused(TrainingError, uninterrupted, "corpus", "documents"):
        run(uninterrupted, corpus=Corpus([other], corpus.cache))
    assert {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")} == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with refused(TrainingError, tmp_path / "full", "run.json"):
        run(tmp_path / "full")
    with refused(TrainingError, "12,000", 500, "`roformer vocab-init`"):
        run(tmp_path / "run", model=make_model(vocab_size=500))
    with refused(TrainingError, "no text", tmp_path / "empty.txt"):
        empty = tmp_path / "empty.txt"
        empty.touch()
        run(tmp_path / "run", corpus=Corpus([empty], corpus.cache))
    assert not (tmp_path / "run").exists()


def test_a_damaged_cache_of_the_corpus_is_named(run, tokenizer, tmp_path):
    cache = tmp_path / "run" / "corpus"
    run(tmp_path / "run", corpus=Corpus([TEXT], cache))
    shutil.rmtree(tmp_path / "run" / "model")
    shutil.rmtree(tmp_path / "run" / "stage-2")
    for pattern in "**/cache-*.arrow", "**/*generator-train.arrow", "**/dataset_info.json":
        for file in cache.glob(pattern):
            file.write_bytes(file.read_bytes()[:300])
        with refused(TrainingError, cache, "damaged", "remove"):
            run(tmp_path / "run", corpus=Corpus([TEXT], cache))
        shutil.rmtree(cache)
        Corpus([TEXT], cache).pieces(tokenizer, 64)
    run(tmp_path / "run", corpus=Corpus([TEXT], cache))


def test_a_run_that_is_done_does_nothing_more(run, uninterrupted, monkeypatch):
    monkeypatch.setattr(StageTrainer, "train", interrupt)
    left = uninterrupted / "stage-2" / "checkpoint-2"  # by a process that was killed when the stage was done
    left.mkdir()
    model = run(uninterrupted)
    assert not left.exists()
    weights = load_file(uninterrupted / "model" / "model.safetensors")
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items())


def test_weights_of_another_run_are_refused(run, uninterrupted, tmp_path, monkeypatch):
    """Copied into the folder: a checkpoint, or the model of a finished stage."""
    for seed, name in (0, "run"), (1, "other"):
        with monkeypatch.context() as patch:
            at_step(patch, 2, 4, interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path / name, seed=seed)
    for place in "stage-2/checkpoint-2", "stage-1/model":
        own, moved, other = (tmp_path / folder / place for folder in ("run", "moved", "other"))
        moved.parent.mkdir(parents=True)
        own.rename(moved)
        shutil.copytree(other, own)
        with refused(TrainingError, own, "another run", "seed", "move"):
            run(tmp_path / "run")
        shutil.rmtree(own)
        moved.rename(own)
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_checkpoint_of_another_script_is_refused(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            StageTrainer, "record_run", lambda _, folder: (folder / "run.json").write_text('{"variant": "none"}')
        )
        at_step(patch, 1, 3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    with refused(TrainingError, tmp_path / "run" / "stage-1" / "checkpoint-2", "another script", "move"):
        run(tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refused_run_removes_nothing(run, corpus, tmp_path, monkeypatch):
    """Another process may write its checkpoints, or texts of its own, below the same folder meanwhile."""
    other = tmp_path / "other.txt"
    other.write_text("另一个。", encoding="utf-8")
    cache = tmp_path / "run" / "cache" / "tokens"
    run(tmp_path / "run", corpus=Corpus([TEXT], cache), stages=STAGES[:1])
    before = {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"
    }
    theirs = tmp_path / "run" / "theirs", cache / "theirs"
    read = Corpus.documents

    def documents(self):
        for place in theirs:
            place.mkdir(exist_ok=True)
            (place / "model.safetensors").touch()
        return read(self)

    monkeypatch.setattr(Corpus, "documents", documents)
    with refused(TrainingError, tmp_path / "run", "corpus"):
        run(tmp_path / "run", corpus=Corpus([other], cache), stages=STAGES[:1])
    assert all((place / "model.safetensors").is_file() for place in theirs)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # Before the corpus is read, which may take hours.
    monkeypatch.setattr(Corpus, "documents", lambda _: pytest.fail("read"))
    with refused(TrainingError, tmp_path, "not empty", "run.json"):
        run(tmp_path, corpus=Corpus([TEXT], tmp_path / "corpus"))


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_stage_of_another_run_beside_the_last_is_refused(unfinished, run, uninterrupted, tmp_path):
    output = tmp_path / "run"
    shutil.copytree(uninterrupted, output)
    shutil.copytree(output / "stage-2", output / "stage-3")
    if unfinished:
        shutil.rmtree(output / "stage-2")
    recorded = json.loads((output / "run.json").read_text())
    del recorded["seed"]  # as in a run of an earlier version
    (output / "run.json").write_text(json.dumps(recorded))
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    with refused(TrainingError, output / "stage-3", "stage 2", "move it away"):
        run(output, seed=1)
    assert {path: path.read_bytes() for path in before} == before
    (output / "stage-3").rename(output / "stage-03")  # as a backup is named
    run(output)
    assert_same_run(output, uninterrupted)
    assert held_out_scores(output) == held_out_scores(uninterrupted)


def test_a_run_inside_its_corpus_is_refused(run, tmp_path):
    """Its files would be read as texts when it resumes."""
    texts = tmp_path / "texts"
    texts.mkdir()
    shutil.copy(TEXT, texts)
    other = tmp_path / "cache"
    for output, cache in (texts / "run", other), (tmp_path / "run", texts / "cache"), (tmp_path / "run", texts):
        of_texts = Corpus([texts], cache)
        for corpora in {"corpus": of_texts}, {"corpus": Corpus([TEXT], cache), "held_out": of_texts}:
            with refused(TrainingError, texts, "written into it"):
                run(output, stages=STAGES[:1], **corpora)
            assert [path.name for path in texts.iterdir()] == [TEXT.name] and not (tmp_path / "run").exists()
    run(
        texts / ".run", corpus=Corpus([texts], texts / ".run" / "corpus"), stages=STAGES[:1]
    )  # hidden files are not read
    run(texts / ".run", corpus=Corpus([texts], texts / ".run" / "corpus"), stages=STAGES[:1])


def test_the_score_is_that_of_the_last_stage(tmp_path):
    for stage, entry in (1, {"step": 2, "eval_loss": 9.0, "eval_accuracy": 0.1}), (2, {"step": 3, "loss": 2.0}):
        (tmp_path / f"stage-{stage}").mkdir()
        (tmp_path / f"stage-{stage}" / "log.json").write_text(json.dumps([entry]))
    assert held_out_scores(tmp_path) == {}


def test_other_intervals_hold_from_the_checkpoint_on(run, uninterrupted, corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 2, 3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    saved, save = [], StageTrainer._save_checkpoint

    def record(self, *arguments):
        saved.append(self.state.global_step)
        save(self, *arguments)

    monkeypatch.setattr(StageTrainer, "_save_checkpoint", record)
    run(tmp_path / "run", save_steps=3)
    assert saved == [3, 6]
    assert_same_run(tmp_path / "run", uninterrupted)
