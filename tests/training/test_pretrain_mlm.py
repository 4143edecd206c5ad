"""examples/pretrain_mlm.py: from nothing, from a saved model, from a WoBERT, and what it says when it cannot."""

import json
import os
import signal

import pytest
import torch
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.small_models import TINY
from huggingface_hub import ModelCard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForMaskedLM, AutoTokenizer

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.conversion import convert
from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.tokenization.vocabulary_maker.word_vocabulary import make_word_vocabulary
from modeling_roformer.training.pretraining.stage_trainer import StageTrainer

SCRIPT = REPOSITORY / "examples" / "pretrain_mlm.py"
LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
VOCAB = LEGACY / "word" / "vocab.txt"
TEXTS = ["明月旋转，明月几时有。把酒问青天。", "不知天上宫阙，今夕是何年。", "没有句号的一行"] * 3
STAGES = """
stages:
  - {length: 8, batch_size: 4, steps: 2, learning_rate: 1e-3}
  - {length: 16, batch_size: 4, steps: 3, learning_rate: 1e-3}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stages.yaml").write_text(STAGES, encoding="utf-8")
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""

    def run(*arguments):
        words = ["stages.yaml", "--corpus", "corpus.txt", "--logging-steps", "1", *arguments]
        return run_script(SCRIPT, words, monkeypatch, capfd)

    return run


def test_from_nothing_and_from_what_came_out(run, folder):
    arguments = ["--tokenizer", VOCAB, "--config", "config.json", "--eval", "corpus.txt", "--output", "run"]
    code, out, err = run(*arguments)
    assert code == 0, err
    assert_states(out.splitlines()[-1], "run/model", "run/curves.png")
    model = AutoModelForMaskedLM.from_pretrained("run/model")
    assert isinstance(model, RoFormerForMaskedLM) and model.config.hidden_size == 16
    assert model.config.max_position_embeddings == 1536  # the default, which is longer than any stage
    assert AutoTokenizer.from_pretrained("run/model").get_vocab() == RoFormerTokenizer(str(VOCAB)).get_vocab()
    for stage, steps in (1, 2), (2, 3):
        events = EventAccumulator(str(folder / "run" / "tensorboard" / f"stage-{stage}")).Reload()
        assert {"train/loss", "train/accuracy", "eval/loss", "eval/accuracy"} <= set(events.Tags()["scalars"])
        assert [event.step for event in events.Scalars("train/loss")] == list(range(1, steps + 1))
    # The same command again has nothing to do; further training starts from the weights.
    assert run(*arguments)[0] == 0
    (folder / "stages.yaml").write_text("stages: [{length: 8, batch_size: 4, steps: 1, learning_rate: 1e-12}]")
    code, _, err = run(*arguments)
    assert code == 1
    assert_states(err, "run", "stages", "run/stage-1/model")
    code, _, err = run("--from", "run/model", "--output", "more")
    assert code == 0, err
    more = AutoModelForMaskedLM.from_pretrained("more/model").state_dict()
    assert all(torch.allclose(more[name], value, atol=1e-6) for name, value in model.state_dict().items())


def test_from_texts_alone(run, folder, monkeypatch, capfd):
    """A folder of texts, a vocabulary from it, and no list of stages."""
    texts, held_out = folder / "texts", folder / "secret-place" / "held-out"
    for place in (texts, held_out):
        place.mkdir(parents=True)
        for number, text in enumerate(TEXTS[:2]):
            (place / f"{number}.txt").write_text(text.replace("。", "。\n") * 3, encoding="utf-8")
    make_word_vocabulary([texts], None, folder / "vocab.txt", num_proc=1)
    options = ["--sample-by", "document", "--eval", held_out, "--tokenizer", "vocab.txt", "--config", "tiny"]
    words = ["--corpus", texts, *options, "--epochs", "2", "--output", folder / "secret-place" / "run"]
    code, out, err = run_script(SCRIPT, words, monkeypatch, capfd)
    assert code == 0, err
    place = folder / "secret-place" / "run"
    assert_states(out.splitlines()[0], "2 pieces", "steps: 1,", "learning_rate: 0.001")
    (entry,) = [entry for entry in json.loads((place / "stage-1" / "log.json").read_text()) if "eval_loss" in entry]
    assert_states(out, f"loss {entry['eval_loss']:.3f}", f"accuracy {entry['eval_accuracy']:.1%}")
    model = AutoModelForMaskedLM.from_pretrained(place / "model")
    assert (model.config.hidden_size, model.config.num_hidden_layers, model.config.intermediate_size) == (128, 2, 512)
    card = ModelCard.load(place / "model" / "README.md")
    assert_states(card.text, "2 documents of texts", "stage 1: {length: 512, batch_size: 32, steps: 1")
    assert info(place / "model").trained_length == 512
    assert card.data.model_name == "run" and "secret-place" not in str(card)
    scores = {score.metric_type: score.metric_value for score in card.data.eval_results}
    assert scores == {"loss": entry["eval_loss"], "accuracy": entry["eval_accuracy"]}
    assert {score.dataset_name for score in card.data.eval_results} == {"held-out"}
    # Further training names its base; a refused corpus changes nothing but the cache.
    code, _, err = run("--from", place / "model", "--output", "more")
    assert code == 0, err
    assert_states(ModelCard.load("more/model/README.md").text, "corpus.txt", "run")
    before = sorted(folder.rglob("*"))
    (folder / "corpus.txt").write_text("明月\n", encoding="utf-8")
    code, _, err = run("--from", place / "model", "--output", "more")
    assert code == 1
    assert_states(err, "more", "corpus")
    new = {*folder.rglob("*")} - {*before}
    assert new and all(folder / "more" / "corpus" in path.parents for path in new)
    assert {*before} <= {*folder.rglob("*")}
    assert run("--from", place / "model", "--output", "new", "--epochs", "3")[0] == 1 and not (folder / "new").exists()


def test_from_a_wobert(run, folder):
    convert(LEGACY / "wobert", "start", as_family="roformer")
    code, _, err = run("--from", "start", "--output", "run")
    assert code == 0, err
    before, after = (AutoModelForMaskedLM.from_pretrained(place).state_dict() for place in ("start", "run/model"))
    assert before.keys() == after.keys()
    moved = max((after[name] - before[name]).abs().max() for name in before)
    assert 0 < moved < 5e-3 < max(value.abs().max() for value in before.values())
    convert(LEGACY / "wobert", "wobert")
    code, _, err = run("--from", "wobert", "--output", "other")
    assert code == 1
    assert_states(err, "wobert", "RoFormer", "`roformer convert --as roformer`")


def test_characters(run):
    code, _, err = run("--tokenizer", VOCAB, "--characters", "--config", "config.json", "--output", "run")
    assert code == 0, err
    assert AutoTokenizer.from_pretrained("run/model").word_segmentation is None


def test_sigterm(run, folder, monkeypatch, default_signals):
    training_step = StageTrainer.training_step

    def patched(self, *arguments):
        if (self.folder.name, self.state.global_step) == ("stage-2", 1):
            os.kill(os.getpid(), signal.SIGTERM)
        return training_step(self, *arguments)

    arguments = ["--tokenizer", VOCAB, "--config", "config.json", "--output", "run"]
    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "training_step", patched)
        code, out, err = run(*arguments)
    assert code == 128 + signal.SIGTERM and "run/model" not in out
    assert_states(err, "step 2 of 3", "stage 2", "resume")
    assert os.listdir(folder / "run" / "stage-2") == ["checkpoint-2"]
    assert run(*arguments)[0] == 0 and (folder / "run" / "model").exists()


def test_bad_arguments_are_named(run, folder):
    def refusal(*arguments):
        code, _, err = run(*arguments)
        assert code == 1 and err.startswith("pretrain_mlm: ") and os.listdir(folder) == before
        return err

    convert(LEGACY / "word", folder / "word")
    convert(LEGACY / "gpt", folder / "gpt")
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=10, **TINY)).save_pretrained(folder / "bare")
    (folder / "empty.txt").touch()
    before = os.listdir(folder)
    fresh = ["--tokenizer", VOCAB, "--output", "run"]
    assert_states(refusal("--tokenizer", "nowhere", "--output", "run"), "nowhere")
    assert_states(refusal("--from", "./nowhere", "--tokenizer", VOCAB, "--output", "run"), "./nowhere")
    assert_states(refusal(*fresh, "--config", "stages.yaml"), "stages.yaml", "JSON")
    (folder / "config.json").write_text('{"hidden_size": 16, "hidden_size": 32}')
    assert_states(refusal(*fresh, "--config", "config.json"), "config.json", "JSON", "'hidden_size'")
    (folder / "config.json").write_text('{"hidden": 16}')
    assert_states(refusal(*fresh, "--config", "config.json"), "RoFormerConfig", "hidden")
    (folder / "config.json").write_text('{"hidden_size": 15}')
    assert_states(refusal(*fresh, "--config", "config.json"), "hidden_size", 15)
    assert_states(refusal("--from", LEGACY / "word", "--output", "run"), "config.json", "`roformer convert`")
    assert_states(refusal("--from", "gpt", "--output", "run"), "gpt", "is_decoder")
    other = ["--from", "word", "--tokenizer", LEGACY / "character" / "vocab.txt", "--output", "run"]
    assert_states(refusal(*other), "word", "vocabulary", "--tokenizer", "`roformer vocab-init`")
    assert_states(refusal("--from", "bare", *fresh), "bare", "vocabulary", "`roformer vocab-init`")
    assert_states(refusal(*fresh, "--corpus", "missing.txt"), "missing.txt")
    assert_states(refusal(*fresh, "--eval", "empty.txt"), "no text", "empty.txt")
    (folder / "corpus.txt").write_text("")
    assert_states(refusal(*fresh), "no text", "corpus.txt")
    (folder / "stages.yaml").write_text(STAGES.replace("steps: 3", "step: 3"))
    assert_states(refusal(*fresh), "stages.yaml", "line 4", "stage 2", "step")
    assert run("--output", "run")[0] == 2  # argparse's own, where an option is missing
