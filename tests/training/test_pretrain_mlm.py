"""examples/pretrain_mlm.py: from nothing, from a saved model, from a WoBERT, and what it says when it cannot."""

import json
import os

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.small_models import TINY
from huggingface_hub import ModelCard
from transformers import AutoModelForMaskedLM, AutoTokenizer

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.conversion import convert
from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.vocabulary_maker.word_vocabulary import make_word_vocabulary

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
    # The same command again has nothing to do; further training starts from the weights.
    code, _, err = run(*arguments)
    assert code == 1
    assert_states(err, "run", "--resume")
    assert run(*arguments, "--resume")[0] == 0
    code, _, err = run(*arguments, "--resume", "--characters")
    assert code == 1
    assert_states(err, "run", "different word_segmentation")
    (folder / "stages.yaml").write_text("stages: [{length: 8, batch_size: 4, steps: 1, learning_rate: 1e-12}]")
    code, _, err = run(*arguments, "--resume")
    assert code == 1
    assert_states(err, "run", "different stages")
    code, _, err = run("--from", "run/model", "--output", "more")
    assert code == 0, err
    more = AutoModelForMaskedLM.from_pretrained("more/model").state_dict()
    assert all((more[name] - value).abs().max() < 1e-6 for name, value in model.state_dict().items())


def test_from_texts_alone(folder, monkeypatch, capfd):
    """A folder of texts, a vocabulary from it, and no list of stages."""
    texts, held_out = folder / "texts", folder / "secret-place" / "held-out"
    for place in (texts, held_out):
        place.mkdir(parents=True)
        for number, text in enumerate(TEXTS[:2]):
            (place / f"{number}.txt").write_text(text.replace("。", "。\n") * 3, encoding="utf-8")
    make_word_vocabulary([texts], None, folder / "vocab.txt", num_proc=1)
    place = folder / "secret-place" / "run"
    options = ["--sample-by", "document", "--eval", held_out, "--tokenizer", "vocab.txt", "--config", "tiny"]
    words = ["--corpus", texts, *options, "--epochs", "2", "--output", place]
    code, out, err = run_script(SCRIPT, words, monkeypatch, capfd)
    assert code == 0, err
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


def test_from_a_wobert(run, folder):
    convert(LEGACY / "wobert", "start", as_family="roformer")
    code, _, err = run("--from", "start", "--output", "run")
    assert code == 0, err
    before, after = (AutoModelForMaskedLM.from_pretrained(place).state_dict() for place in ("start", "run/model"))
    assert before.keys() == after.keys()
    moved = max((after[name] - before[name]).abs().max() for name in before)
    assert 0 < moved < 5e-3 < max(value.abs().max() for value in before.values())


def test_characters(run):
    code, _, err = run("--tokenizer", VOCAB, "--characters", "--config", "config.json", "--output", "run")
    assert code == 0, err
    assert AutoTokenizer.from_pretrained("run/model").word_segmentation is None


def test_bad_arguments_are_named(run, folder):
    def refusal(*arguments):
        code, _, err = run(*arguments)
        assert code == 1 and err.startswith("pretrain_mlm: ") and os.listdir(folder) == before
        return err

    for name in ("word", "gpt", "wobert"):
        convert(LEGACY / name, folder / name)
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=10, **TINY)).save_pretrained(folder / "bare")
    (folder / "empty.txt").touch()
    before = os.listdir(folder)
    fresh = ["--tokenizer", VOCAB, "--output", "run"]
    assert_states(refusal(*fresh, "--config", "stages.yaml"), "stages.yaml", "JSON")
    (folder / "config.json").write_text('{"hidden": 16}')
    assert_states(refusal(*fresh, "--config", "config.json"), "RoFormerConfig", "hidden")
    assert_states(refusal("--from", "gpt", "--output", "run"), "gpt", "decoder")
    assert_states(refusal("--from", "wobert", "--output", "run"), "wobert", "`roformer convert --as roformer`")
    other = ["--from", "word", "--tokenizer", LEGACY / "character" / "vocab.txt", "--output", "run"]
    assert_states(refusal(*other), "word", "vocabulary", "--tokenizer", "`roformer vocab-init`")
    assert_states(refusal("--from", "bare", *fresh), "bare", "vocabulary", "`roformer vocab-init`")
    assert_states(refusal(*fresh, "--eval", "empty.txt"), "empty.txt")
    assert run("--output", "run")[0] == 2  # argparse's own, where an option is missing
