"""Folders of runs, checks of numbers, and settings in YAML."""

import json
import math
import multiprocessing
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from helpers.messages import refused
from helpers.small_models import TINY
from safetensors.torch import save_file
from transformers import Trainer, TrainingArguments

from modeling_roformer import RoFormerConfig, RoFormerForSequenceClassification
from modeling_roformer.training import FiniteCallback, NotFinite, TrainingError, last_checkpoint, start_run
from modeling_roformer.training.runs.finite_callback import first_not_finite
from modeling_roformer.training.runs.yaml_settings import read_yaml, to_dataclass

SETTINGS = {"learning_rate": 1e-3, "seeds": [0, 1], "output": "ignored", "resume": False}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("明月几时有", encoding="utf-8")
    return path


# Folders


def test_a_run_is_recorded_and_resumed(tmp_path, text):
    folder = tmp_path / "run"
    with start_run(folder, SETTINGS, {"train": text, "test": None}) as run:
        assert run.results == {} and run.checkpoint is None
        run.results["0"] = {"accuracy": 0.5}
        run.save_results()
    moved = text.rename(tmp_path / "moved.txt")
    with start_run(folder, {**SETTINGS, "output": "elsewhere"}, {"train": moved}, resume=True) as run:
        assert run.results == {"0": {"accuracy": 0.5}}


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_other_files_is_refused(tmp_path, resume):
    (tmp_path / "photo.png").touch()
    with pytest.raises(TrainingError, match=f"{tmp_path} is not empty"), start_run(tmp_path, {}, {}, resume):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


def test_a_run_is_continued_only_if_asked(tmp_path):
    with start_run(tmp_path, {}, {}):
        pass
    with pytest.raises(TrainingError, match="--resume"), start_run(tmp_path, {}, {}):
        pass


@pytest.mark.parametrize(
    ("settings", "data", "named"),
    [
        ({**SETTINGS, "learning_rate": 3e-3}, "明月几时有", "learning_rate"),
        ({**SETTINGS, "seeds": [0], "length": 8}, "明月几时有", "seeds, length"),
        (SETTINGS, "把酒问青天", "train"),
    ],
)
def test_another_run_is_refused_by_what_differs(tmp_path, text, settings, data, named):
    folder = tmp_path / "run"
    with start_run(folder, SETTINGS, {"train": text}) as run:
        run.results["0"] = 1
        run.save_results()
    text.write_text(data, encoding="utf-8")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(TrainingError, match=f"different {named}:"), start_run(folder, settings, {"train": text}, True):
        pass
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_of_another_script_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["examples/finetune_triplet.py"])
    with start_run(tmp_path, {"scorer": "bi"}, {}):
        pass
    monkeypatch.setattr(sys, "argv", ["examples/finetune_glue.py"])
    names = "finetune_triplet.py", "finetune_glue.py"
    with refused(TrainingError, tmp_path, *names), start_run(tmp_path, {"tasks": ["sst2"]}, {}, resume=True):
        pass
    # A copy under another name resumes the run, if the settings are the same; so do runs that did not record it.
    settings = json.loads((tmp_path / "settings.json").read_text())
    for begun in settings, {name: settings[name] for name in ("settings", "data")}:
        (tmp_path / "settings.json").write_text(json.dumps(begun))
        with start_run(tmp_path, {"scorer": "bi"}, {}, resume=True):
            pass


def test_data_sets_are_compared_by_their_content(tmp_path):
    from datasets import Dataset, DatasetDict

    data = DatasetDict(train=Dataset.from_dict({"text": ["明月"]}))
    with start_run(tmp_path, {}, {"texts": data, "files": [__file__, tmp_path.parent / "no-file"]}):
        pass
    data["train"] = data["train"].map(lambda row: {"text": row["text"] * 2})
    with pytest.raises(TrainingError, match="different texts"), start_run(tmp_path, {}, {"texts": data}, True):
        pass


def _hold(folder, entered, leave):
    with start_run(folder, {}, {}):
        entered.set()
        leave.wait()


def test_a_folder_of_very_many_files_is_one_checksum(tmp_path, monkeypatch):
    """THUCNews has 740,000 files: a list of them would be larger than what is read again."""
    monkeypatch.setattr("modeling_roformer.training.runs.run_folder._MOST_LISTED", 2)
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"{number}.txt").write_text("text", encoding="utf-8")
    data = {"train": tmp_path / "data"}
    with start_run(tmp_path / "run", {}, data):
        pass
    recorded = json.loads((tmp_path / "run" / "settings.json").read_text())["data"]["train"]
    assert isinstance(recorded, str) and len(recorded) == 64
    with start_run(tmp_path / "run", {}, data, resume=True):
        pass
    (tmp_path / "data" / "0.txt").rename(tmp_path / "data" / "4.txt")
    with refused(TrainingError, tmp_path / "run", "different train"), start_run(tmp_path / "run", {}, data, True):
        pass


def test_two_processes_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    entered, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path / "run", entered, leave))
    other.start()
    entered.wait()
    with pytest.raises(TrainingError, match="another process"), start_run(tmp_path / "run", {}, {}, resume=True):
        pass
    leave.set()
    other.join()
    with start_run(tmp_path / "run", {}, {}, resume=True):
        pass


def test_results_that_are_not_finite_are_not_written(tmp_path):
    with start_run(tmp_path, {}, {}) as run:
        run.results["0"] = math.nan
        with pytest.raises(ValueError):
            run.save_results()
    assert not (tmp_path / "results.json").exists()


def test_an_unfinished_checkpoint_is_passed_over(tmp_path):
    assert last_checkpoint(tmp_path) is None
    for step, state in (9, '{"global_step": 9}'), (10, '{"global_step": 10'), (11, None):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-9")


NORMAL = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin")


@pytest.mark.parametrize(
    "names",
    [
        NORMAL,
        ("model.safetensors", "training_args.bin"),  # save_only_model
        ("optimizer_0/", "pytorch_model_fsdp_0/", "scheduler.pt", "rng_state_0.pth"),  # FSDP, sharded
        ("optimizer.bin", "pytorch_model_fsdp.bin", "scheduler.pt", "rng_state_0.pth"),  # FSDP, whole
        ("global_step9/", "latest", "scheduler.pt", "rng_state_0.pth", "zero_to_fp32.py"),  # DeepSpeed
        ("global_step9/", "latest", "rng_state_0.pth"),  # with DeepSpeed's own schedule
    ],
)
def test_checkpoints_of_every_kind_are_resumed(tmp_path, names):
    place = checkpoint(tmp_path, names)
    assert last_checkpoint(tmp_path) == str(place)


@pytest.mark.parametrize(
    "removed", [("optimizer.pt",), ("scheduler.pt",), ("optimizer.pt", "scheduler.pt"), ("rng_state.pth",)]
)
def test_a_checkpoint_without_its_optimizer_is_refused(tmp_path, removed):
    place = checkpoint(tmp_path, [name for name in NORMAL if name not in removed])
    with refused(TrainingError, place, removed[0]):
        last_checkpoint(tmp_path)


def checkpoint(folder, names):
    place = folder / "checkpoint-9"
    place.mkdir()
    for name in names:
        (place / name).mkdir() if name.endswith("/") else torch.save({}, place / name)
    if (place / "model.safetensors").exists():
        save_file({}, place / "model.safetensors")
    (place / "trainer_state.json").write_text('{"global_step": 9}')
    return place


def test_a_checkpoint_of_trainer_is_resumed_unless_a_file_is_truncated_or_removed(tmp_path):
    trainer(tmp_path, save_steps=2).train()
    place = last_checkpoint(tmp_path)
    assert {*NORMAL, "trainer_state.json"} <= {path.name for path in Path(place).iterdir()}
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        whole = (Path(place) / name).read_bytes()
        (Path(place) / name).write_bytes(whole[: len(whole) // 2])
        with refused(TrainingError, place, Path(place) / name):
            last_checkpoint(tmp_path)
        (Path(place) / name).write_bytes(whole)
    (Path(place) / "optimizer.pt").unlink()
    with refused(TrainingError, place, "optimizer.pt"):
        last_checkpoint(tmp_path)
    trainer(tmp_path / "light", save_steps=2, save_only_model=True).train()
    assert last_checkpoint(tmp_path / "light") == str(tmp_path / "light" / "checkpoint-4")


def test_a_model_is_replaced_when_the_new_one_is_complete(tmp_path):
    model = RoFormerForSequenceClassification(RoFormerConfig(vocab_size=50, **TINY))
    with start_run(tmp_path, {}, {}) as run:
        with run.saving() as folder:
            model.save_pretrained(folder)
        before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
        with pytest.raises(KeyError), run.saving() as folder:
            (folder / "config.json").write_text("{")
            raise KeyError
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


# Numbers that are not finite


def trainer(folder, **arguments):
    torch.manual_seed(0)
    model = RoFormerForSequenceClassification(RoFormerConfig(vocab_size=50, num_labels=2, **TINY))
    rows = [{"input_ids": torch.tensor([1, i, 2]), "labels": i % 2} for i in range(3, 11)]
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        **{"max_steps": 4, "logging_steps": 1, **arguments},
    )
    return Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, callbacks=[FiniteCallback()])


def test_a_loss_that_is_not_finite(tmp_path, monkeypatch):
    of = trainer(tmp_path, save_steps=1)
    weight = of.model.classifier.out_proj.weight
    before = []

    def loss(model, inputs, **_):
        before.append(weight.detach().clone())
        return model(**inputs).loss * (math.nan if of.state.global_step == 2 else 1)

    monkeypatch.setattr(of, "compute_loss", loss)
    with pytest.raises(NotFinite, match=r"gradient of \S+ is not finite in step 3"):
        of.train()
    assert weight.isfinite().all() and torch.equal(weight, before[-1])
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")


@pytest.mark.parametrize(
    ("arguments", "steps", "saved"),
    [
        ({"save_steps": 2}, 3, "checkpoint-2"),
        ({"save_steps": 3}, 2, None),
        ({"max_steps": 3}, 2, None),
        ({"eval_strategy": "steps", "eval_steps": 3}, 2, None),
        ({"logging_steps": 1}, 2, None),
    ],
)
def test_a_gradient_that_is_read_a_step_late(tmp_path, monkeypatch, arguments, steps, saved):
    """Reading late, as on CUDA, comes before the next step, and before a checkpoint, an evaluation or a log entry."""
    monkeypatch.setattr("modeling_roformer.training.runs.finite_callback._reads_later", lambda device: True)
    of = trainer(tmp_path, **{"logging_steps": 100, "save_steps": 100, **arguments})
    begun, ended = [], []
    monkeypatch.setattr(of, "evaluate", lambda **_: pytest.fail("evaluated"))

    def spoil(gradient):
        begun.append(of.state.global_step)
        return gradient * (math.inf if of.state.global_step == 2 else 1)

    of.model.classifier.out_proj.bias.register_hook(spoil)
    monkeypatch.setattr(of.callback_handler, "on_optimizer_step", lambda *_: ended.append(of.state.global_step) or _[2])
    with pytest.raises(NotFinite, match=r"gradient of classifier.out_proj.bias is not finite in step 3"):
        of.train()
    assert (begun[-1], ended[-1]) == (steps, 2)
    checkpoint = last_checkpoint(tmp_path)
    assert checkpoint == (saved and str(tmp_path / saved))


def test_a_gradient_is_read_at_once_if_a_signal_may_save(tmp_path, monkeypatch):
    monkeypatch.setattr("modeling_roformer.training.runs.finite_callback._reads_later", lambda device: True)
    of = trainer(tmp_path, logging_steps=100, save_steps=100)
    of.args.enable_jit_checkpoint = True  # only now: as an argument, it would set a handler of signals
    weight = of.model.classifier.out_proj.weight
    weight.register_hook(lambda gradient: gradient * (math.inf if of.state.global_step == 2 else 1))
    with pytest.raises(NotFinite, match=r"in step 3"):
        of.train()
    assert weight.isfinite().all()


def test_a_weight_that_is_not_finite_before_the_first_step(tmp_path):
    of = trainer(tmp_path)
    of.model.classifier.out_proj.bias.data[0] = math.inf
    with pytest.raises(NotFinite, match=r"weight classifier.out_proj.bias is not finite before"):
        of.train()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_any_type(dtype):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    largest = torch.full((3, 3), torch.finfo(dtype).max, dtype=torch.float64)
    model[1].weight = torch.nn.Parameter(largest.to(dtype), requires_grad=False)
    assert first_not_finite(model) is None
    model[1].weight.data[1, 2] = math.nan
    assert first_not_finite(model) == "1.weight"


def test_a_weight_that_a_step_breaks_is_not_saved(tmp_path):
    of = trainer(tmp_path, save_steps=2)
    step = of.create_optimizer().step

    def broken(*arguments, **options):
        step(*arguments, **options)
        if of.state.global_step == 1:
            of.model.classifier.out_proj.bias.data[0] = math.nan

    of.optimizer.step = broken
    with pytest.raises(NotFinite, match=r"the weight classifier.out_proj.bias is not finite after step 2"):
        of.train()
    assert last_checkpoint(tmp_path) is None


def test_a_score_that_is_not_finite_is_never_the_best(tmp_path):
    of = trainer(
        tmp_path,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="f",
    )
    of.compute_metrics = lambda predicted: {"f": math.nan}
    with pytest.raises(NotFinite, match="eval_f is nan"):
        of.train()
    assert of.state.best_metric is None


# Settings in YAML


@dataclass
class Setting:
    steps: int
    rate: float = 1.0
    name: str = "a"

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; expected at least 1")


def test_yaml_into_a_dataclass(tmp_path):
    path = tmp_path / "setting.yaml"
    path.write_text("\ufeffsteps: 200_000\nrate: 3e-3\nname: '3e-3'", encoding="utf-8")
    assert to_dataclass(Setting, read_yaml(path), str(path)) == Setting(200_000, 3e-3, "3e-3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 1\nsteps: 2", "line 1: steps appears twice"),
        ("steps: &a 1\nrate: *a", "line 2: the alias"),
        ("steps: [1", "line 1: "),
        ("steps: 1\nstep: 2", "unknown field step; expected steps, rate, name"),
        ("steps: three", "steps is 'three'; expected int"),
        ("steps: true", "steps is True; expected int"),
        ("steps: 1.5", "steps is 1.5; expected int"),
        ("steps: 1\nrate: x", "rate is 'x'; expected float"),
        ("steps: 1\nname: no", "name is False; expected str"),
        ("rate: 1", "steps is missing"),
        ("steps: 0", "steps is 0; expected at least 1"),
        ("- 1", r"found \[1\]; expected fields"),
        ("", "found None; expected fields"),
        ("steps: !!python/name:os.system ''", "line 1: "),
        ("steps: \x00", "is not YAML"),
    ],
)
def test_bad_yaml(tmp_path, text, message):
    path = tmp_path / "setting.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TrainingError, match=message) as error:
        to_dataclass(Setting, read_yaml(path), str(path))
    assert str(error.value).startswith(str(path))
