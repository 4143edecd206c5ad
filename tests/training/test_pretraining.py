"""Pre-training in stages: what is learned and logged, and how a stopped run is resumed."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from helpers.messages import refused
from helpers.paths import REPOSITORY
from helpers.small_models import TINY
from helpers.waits import host_reads
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.training import Corpus, Stage, TrainingError, held_out_scores, pretrain
from modeling_roformer.training.pretraining import documents
from modeling_roformer.training.pretraining.masking import MaskingCollator, StageExamples
from modeling_roformer.training.pretraining.stage_trainer import StageTrainer

VOCAB = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"
TEXT = REPOSITORY / "examples" / "long_document.txt"
STAGES = [Stage(32, 4, 3, 1e-3), Stage(64, 4, 6, 1e-3, masked=[0.3, 0.15])]
OPTIONS = {"device_tokens": 128, "save_steps": 2, "logging_steps": 1, "disable_tqdm": True, "resume": True}


@pytest.fixture(scope="module")
def tokenizer():
    return RoFormerTokenizer(str(VOCAB))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus([TEXT], cache=tmp_path_factory.mktemp("corpus"))


def make_model(**fields):
    torch.manual_seed(0)
    return RoFormerForMaskedLM(RoFormerConfig(**{"vocab_size": 12_000, **TINY, **fields}))


@pytest.fixture
def run(tokenizer, corpus):
    def run(output, stages=STAGES, model=None, **options):
        options = OPTIONS | options
        model = make_model() if model is None else model
        inputs = options.pop("tokenizer", tokenizer), stages, options.pop("corpus", corpus)
        return pretrain(model, *inputs, output, **options)

    return run


@pytest.fixture(scope="module")
def uninterrupted(tokenizer, corpus, tmp_path_factory):
    """Return the folder of an uninterrupted run."""
    output = tmp_path_factory.mktemp("runs") / "uninterrupted"
    pretrain(make_model(), tokenizer, STAGES, corpus, output, **OPTIONS)
    return output


def logged(output, stage=2):
    """Loss and accuracy of every entry, by step."""
    entries = json.loads((output / f"stage-{stage}" / "log.json").read_text())
    return {entry["step"]: (entry["loss"], entry["accuracy"]) for entry in entries if "loss" in entry}


def assert_same_weights(output, other):
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (output, other))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def at_step(monkeypatch, stage, step, action):
    """Do something in the middle of a step: before the last part of its batch."""
    training_step, parts = StageTrainer.training_step, []

    def patched(self, *args, **kwargs):
        if self.args.output_dir.endswith(f"stage-{stage}") and self.state.global_step == step - 1:
            parts.append(None)
            if len(parts) == self.args.gradient_accumulation_steps:
                action(self)
        return training_step(self, *args, **kwargs)

    monkeypatch.setattr(StageTrainer, "training_step", patched)


def interrupt(*_):
    raise KeyboardInterrupt


# The tests' own run in a process of its own, which kills itself in the middle of step 5 of stage 2.
KILLED = """
import os, signal, sys
import pytest, test_pretraining as t
t.at_step(pytest.MonkeyPatch(), 2, 5, lambda trainer: os.kill(os.getpid(), signal.SIGKILL))
corpus = t.Corpus([t.TEXT], cache=sys.argv[1])
t.pretrain(t.make_model(), t.RoFormerTokenizer(str(t.VOCAB)), t.STAGES, corpus, sys.argv[2], **t.OPTIONS)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(run, uninterrupted, corpus, tmp_path):
    path = os.pathsep.join([str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "training")])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, corpus.cache, tmp_path / "run"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "run" / "stage-1" / "model").exists() and not (tmp_path / "run" / "model").exists()
    # Another one was begun when the process was killed.
    (tmp_path / "run" / "stage-2" / "checkpoint-6").mkdir()
    (tmp_path / "run" / "stage-2" / "checkpoint-6" / "trainer_state.json").write_text("{")
    with refused(TrainingError, tmp_path / "run", "--resume"):
        run(tmp_path / "run", resume=False)
    run(tmp_path / "run")
    assert_same_weights(tmp_path / "run", uninterrupted)
    assert {path.name for path in (tmp_path / "run" / "stage-2").iterdir()} == {"log.json", "model"}


@pytest.mark.parametrize(("stage", "step"), [(1, 2), (2, 1), (2, 6)])
def test_stopped_anywhere(run, uninterrupted, tmp_path, monkeypatch, stage, step):
    with monkeypatch.context() as patch:
        at_step(patch, stage, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    run(tmp_path / "run")
    assert_same_weights(tmp_path / "run", uninterrupted)


def test_stopped_before_a_stage_is_saved(run, uninterrupted, tmp_path, monkeypatch):
    """No step is added to those of the last checkpoint."""
    with monkeypatch.context() as patch:
        patch.setattr("modeling_roformer.training.pretraining.pretrain.write_json", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    run(tmp_path / "run")
    assert_same_weights(tmp_path / "run", uninterrupted)


@pytest.fixture
def other_pieces(monkeypatch):
    """Return a function that has other code split documents from now on: one token earlier."""

    def other_pieces():
        bounds = documents.piece_bounds

        def shorter(tokens, characters, starts, length):
            return bounds(tokens, characters, starts, length - 1)

        monkeypatch.setattr(documents, "piece_bounds", shorter)
        monkeypatch.setattr(documents, "code_digest", lambda: "of code with other pieces")

    return other_pieces


def test_a_run_continues_if_other_code_makes_the_same_pieces(run, uninterrupted, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 1, 3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    monkeypatch.setattr(documents, "code_digest", lambda: "of code with the same pieces")
    run(tmp_path / "run")
    assert_same_weights(tmp_path / "run", uninterrupted)


def test_a_run_with_other_pieces_is_refused(run, corpus, tmp_path, monkeypatch, other_pieces):
    with monkeypatch.context() as patch:
        at_step(patch, 1, 3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", held_out=corpus)
    before = (tmp_path / "run" / "settings.json").read_text()
    other_pieces()
    with refused(TrainingError, tmp_path / "run", "corpus at 32 tokens", "held_out at 32 tokens") as error:
        run(tmp_path / "run", held_out=corpus)
    assert "64" not in str(error.value).replace(str(tmp_path), "")  # no sentence is cut there
    assert (tmp_path / "run" / "settings.json").read_text() == before and not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize(("lacking", "fact"), [("documents", "documents"), ("checksums", "corpus at 32 tokens")])
def test_a_run_without_what_is_compared_is_refused(run, tmp_path, monkeypatch, lacking, fact):
    """It may have read other texts."""
    with monkeypatch.context() as patch:
        at_step(patch, 1, 3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    path = tmp_path / "run" / "settings.json"
    recorded = json.loads(path.read_text())
    del (recorded if lacking in recorded else recorded["settings"])[lacking]
    path.write_text(json.dumps(recorded))
    with refused(TrainingError, tmp_path / "run", fact):
        run(tmp_path / "run")
    assert json.loads(path.read_text()) == recorded


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
    assert_same_weights(tmp_path / "through", tmp_path / "stopped")
    run(tmp_path / "adamw", STAGES[:1])
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("through", "adamw"))
    matrix = "roformer.encoder.layer.0.attention.self.query.weight"
    assert not torch.allclose(ours[matrix], theirs[matrix], atol=1e-4)


def test_the_log_has_every_field(tokenizer, corpus, run, tmp_path):
    """Loss and accuracy, computed from the first batch by hand; and the same however the batch is divided."""
    stages = [Stage(32, 8, 2, 1e-9)]
    fields = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=1.0)

    def model_that_says_shall():  # so that some of its answers are right
        model = make_model(**fields)
        model.cls.predictions.bias.data[tokenizer.convert_tokens_to_ids("应当")] = 20.0
        return model

    model = model_that_says_shall().eval()

    def loss_and_accuracy(batch):
        has_label = batch["labels"] != -100
        with torch.no_grad():
            logits = model(batch["input_ids"], batch["attention_mask"]).logits[has_label]
        labels = batch["labels"][has_label]
        loss = torch.nn.functional.cross_entropy(logits, labels).item()
        return loss, (logits.argmax(-1) == labels).float().mean().item()

    pieces = corpus.pieces(tokenizer, 32)
    examples = StageExamples(pieces, stages[0], seed=5, number=1)
    expected = loss_and_accuracy(MaskingCollator(tokenizer, seed=5, stage=1)([examples[i] for i in range(8)]))
    assert expected[1] > 0
    for device_tokens, workers in (32, 0), (256, 1):
        output = tmp_path / str(device_tokens)
        options = {"device_tokens": device_tokens, "dataloader_num_workers": workers, "seed": 5, "held_out": corpus}
        run(output, stages, model_that_says_shall(), **options)
        assert logged(output, 1)[1] == pytest.approx(expected, abs=1e-5)
    everything = MaskingCollator(tokenizer, replaced=1, random=0)([{"epoch": 0, **row} for row in pieces])
    assert (everything["input_ids"][everything["labels"] != -100] == tokenizer.mask_token_id).all()
    assert tuple(held_out_scores(output).values()) == pytest.approx(loss_and_accuracy(everything), abs=1e-4)


def test_the_folder_of_a_finished_run(uninterrupted, tokenizer):
    for place in "stage-1/model", "model":
        model, loading = AutoModelForMaskedLM.from_pretrained(uninterrupted / place, output_loading_info=True)
        assert not any(loading.values())
        usual = RoFormerConfig()  # training sets both fields to True
        assert (model.config.sparse_prediction, model.config.unpad_inputs) == (False, usual.unpad_inputs)
    assert RoFormerTokenizer.from_pretrained(uninterrupted / "model").get_vocab() == tokenizer.get_vocab()
    assert (uninterrupted / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert logged(uninterrupted).keys() == {1, 2, 3, 4, 5, 6}
    assert held_out_scores(uninterrupted) == {}


def test_what_an_earlier_training_left_is_not_saved(run, tmp_path):
    """The limit of its tokenizer, and the settings of a checkpoint of a stage."""
    limited, stages = RoFormerTokenizer(str(VOCAB), model_max_length=16), [Stage(64, 4, 1, 1e-3), Stage(32, 4, 1, 1e-3)]
    model = run(tmp_path / "run", stages, make_model(sparse_prediction=True), tokenizer=limited)
    assert model.config.sparse_prediction is False and limited.model_max_length == 16
    for place, longest in {"stage-1/model": 64, "stage-2/model": 32, "model": 64}.items():
        assert RoFormerTokenizer.from_pretrained(tmp_path / "run" / place).model_max_length == longest


def test_a_tokenizer_without_a_limit_gets_the_length_of_the_longest_stage(run, tmp_path):
    stages = [Stage(32, 4, 1, 1e-3), Stage(64, 4, 1, 1e-3), Stage(16, 4, 1, 1e-3)]
    run(tmp_path / "run", stages)
    assert RoFormerTokenizer.from_pretrained(tmp_path / "run" / "model").model_max_length == 64


def test_it_learns(run, tmp_path):
    """A text that it sees again and again."""
    run(tmp_path / "run", [Stage(32, 16, 40, 2e-2)], make_model(hidden_size=32), logging_steps=10, device_tokens=512)
    losses = [loss for loss, _ in logged(tmp_path / "run", 1).values()]
    accuracies = [accuracy for _, accuracy in logged(tmp_path / "run", 1).values()]
    assert losses[-1] < losses[0] - 2 and accuracies[-1] > accuracies[0]


def test_how_often_a_step_waits_for_the_device(run, tmp_path):
    """Twice in each part of its batch, for the labels and for the texts, and once for the gradients, whose norms CUDA
    copies in the meantime."""
    steps = {n: [Stage(32, 8, n, 1e-3)] for n in (2, 5)}
    options = {"device_tokens": 128, "save_steps": 100, "logging_steps": 100}  # two parts
    reads = {n: host_reads(lambda n=n: run(tmp_path / str(n), steps[n], **options)) for n in steps}
    assert reads[5] - reads[2] == {"tolist": 3 * (2 * 2 + 1)}


def test_bfloat16_is_the_default_where_a_gpu_has_it(run, tmp_path, monkeypatch):
    """The precision is recorded, so that a run is not resumed in another one; the error names the option to give."""
    stage = [Stage(32, 4, 1, 1e-3)]

    def recorded(name, **options):
        run(tmp_path / name, stage, **options)
        arguments = json.loads((tmp_path / name / "settings.json").read_text())["settings"]["arguments"]
        return arguments.get("bf16")

    assert recorded("none") is False and recorded("unset", bf16=None) is False
    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.has_bfloat16", lambda: True)
    assert recorded("default") is True and recorded("chosen", bf16=False) is False
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("default", "chosen"))
    assert not all(torch.equal(ours[name], theirs[name]) for name in theirs)
    with refused(
        TrainingError, tmp_path / "none", "different arguments.bf16", "the command that began it with --no-bf16"
    ):
        run(tmp_path / "none", stage)
    with refused(TrainingError, "different arguments.bf16", "the command that began it with --no-bf16"):
        run(tmp_path / "unset", stage)
    for name in "none", "unset":
        run(tmp_path / name, stage, bf16=False)
    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.has_bfloat16", lambda: False)
    with refused(TrainingError, tmp_path / "default", "the command that began it with --bf16"):
        run(tmp_path / "default", stage)


@pytest.mark.parametrize("ahead", [False, True])
def test_batches_are_copied_ahead_where_that_is_right(ahead, run, tmp_path, monkeypatch):
    """Such copies can be wrong without an error on Apple's GPUs."""
    trainers = []

    class Watched(StageTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            trainers.append(self)

    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.StageTrainer", Watched)
    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.COPIES_AHEAD", ahead)
    run(tmp_path / "run", [Stage(32, 4, 1, 1e-3)])
    (trainer,) = trainers
    assert trainer.accelerator.non_blocking == ahead


@pytest.mark.parametrize("has_float64", [False, True])
def test_means_are_in_float64_where_the_device_has_it(has_float64, monkeypatch):
    dtypes = []

    def reduce(values, how):
        dtypes.append(values.dtype)
        return values

    monkeypatch.setattr("modeling_roformer.training.pretraining.stage_trainer.has_float64", lambda device: has_float64)
    trainer = SimpleNamespace(accelerator=SimpleNamespace(device=torch.device("cpu"), reduce=reduce))
    assert StageTrainer._mean(trainer, [3.0, 5], 4) == [0.75, 1.25]
    assert dtypes == [torch.float64 if has_float64 else torch.float32]


def test_bad_settings_are_refused_before_anything_begins(run, tmp_path, monkeypatch):
    with refused(TrainingError, "12,000", 500, "`roformer vocab-init`"):
        run(tmp_path / "run", model=make_model(vocab_size=500))
    three = SimpleNamespace(num_processes=3, is_main_process=True)
    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.processes", lambda: three)
    with refused(TrainingError, "4 pieces", "3 devices"):
        run(tmp_path / "run", [Stage(32, 6, 3, 1e-3), *STAGES])
    assert not (tmp_path / "run").exists()


def test_another_run_in_the_same_folder_is_refused(run, uninterrupted, corpus, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")}
    other = tmp_path / "other.txt"
    other.write_text("另一个。", encoding="utf-8")
    changes = {
        "stages": {"stages": [STAGES[0], Stage(64, 4, 7, 1e-3)]},
        "seed": {"seed": 1},
        "model": {"model": make_model(hidden_size=32)},
        "arguments": {"max_grad_norm": 0.5},
        "corpus": {"corpus": Corpus([other], cache=corpus.cache)},
        "tokenizer": {"tokenizer": RoFormerTokenizer(str(VOCAB), user_dict=["几时有"])},
    }
    for name, change in changes.items():
        with refused(TrainingError, uninterrupted, f"different {name}"):
            run(uninterrupted, **change)
    assert {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")} == before


def test_a_run_that_is_done_trains_no_more(run, uninterrupted, monkeypatch):
    monkeypatch.setattr(StageTrainer, "train", interrupt)
    model = run(uninterrupted)
    weights = load_file(uninterrupted / "model" / "model.safetensors")
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items())
