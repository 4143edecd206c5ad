"""`roformer vocab-init`: the rows of a new vocabulary, against means taken one by one, and the model around them."""

import io
import json
import os
import shutil
from itertools import product

import pytest
import torch
from helpers.messages import assert_states, refused
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer.conversion.word_embeddings import initialise_words
from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary import VocabularyError

OLD = [
    "[PAD]",
    "[unused1]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"今天气非常好我们去公园玩，。",
    "the",
    "##s",
    "##天",
    "a",
]
NEW = ["[UNK]", "[PAD]", *"天今气非常好我们去公园玩，。", "the", "##s", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["天气", "公园", "我们", "非常", "天花板", "龘龘"]
NEW += WORDS
FORMS = ["safetensors", "sharded"]
RESIZED = {
    "embeddings.word_embeddings.weight",
    "cls.predictions.bias",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
}
SIZES = dict(
    vocab_size=len(OLD),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=64,
    type_vocab_size=2,
)


def write_entries(path, entries):
    path.write_text("".join(entry + "\n" for entry in entries), encoding="utf-8")
    return path


def make_model(kind):
    torch.manual_seed(0)
    if kind == "roformer":
        model = RoFormerForMaskedLM(RoFormerConfig(**SIZES, embedding_size=8))
    else:
        model = BertForMaskedLM(BertConfig(**SIZES, tie_word_embeddings=kind != "untied"))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture
def new_vocab(tmp_path):
    return write_entries(tmp_path / "words.txt", NEW)


@pytest.fixture
def checkpoint(tmp_path):
    """Make a folder of a character-level model; `form` is how its weights are saved."""

    def checkpoint(kind="bert", form="safetensors", dtype=torch.float32):
        folder = tmp_path / "characters"
        model = make_model(kind).to(dtype)
        model.save_pretrained(folder, max_shard_size="4KB" if "sharded" in form else "1GB")
        write_entries(folder / "vocab.txt", OLD)
        saved = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 64, "never_split": None}
        (folder / "tokenizer_config.json").write_text(json.dumps(saved))
        return folder, model

    return checkpoint


def naive(old: torch.Tensor) -> torch.Tensor:
    """The new rows, one by one: the words of this test under its old vocabulary."""
    rows = []
    for entry in NEW:
        known = [entry] if entry in OLD else [c for c in entry if c in OLD] or ["[UNK]"]
        rows.append(sum(old[OLD.index(part)].double() for part in known) / len(known))
    return torch.stack(rows).to(old.dtype)


def is_resized(key):
    return key.removeprefix("bert.").removeprefix("roformer.") in RESIZED


@pytest.mark.parametrize(
    ("kind", "form", "dtype"),
    [
        *product(["bert", "untied", "roformer"], FORMS, ["float32"]),
        *product(["bert"], ["safetensors"], ["float16", "bfloat16", "float64"]),
    ],
)
def test_every_row_and_every_other_weight(checkpoint, new_vocab, tmp_path, kind, form, dtype):
    folder, _ = checkpoint(kind, form, getattr(torch, dtype))
    before = {key: tensor for file in folder.glob("*.safetensors") for key, tensor in load_file(file).items()}
    report = initialise_words(folder, new_vocab, tmp_path / "out")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert after.keys() == before.keys()
    assert sorted(report.resized) == sorted(key for key in before if is_resized(key))
    assert report.unchanged == len(before) - len(report.resized)
    for key, tensor in before.items():
        expected = naive(tensor) if is_resized(key) else tensor
        assert after[key].dtype == tensor.dtype
        if is_resized(key):
            exact = {"rtol": 1e-6, "atol": 1e-7} if dtype == "float32" else {"rtol": 0, "atol": 0}
            torch.testing.assert_close(after[key], expected, **exact)
            copied = [n for n, entry in enumerate(NEW) if entry in OLD]
            assert torch.equal(after[key][copied], expected[copied])
        else:
            assert torch.equal(after[key], expected)
    made = report.composition
    assert (made.copied, made.averaged, made.incomplete, made.unknown) == (len(NEW) - len(WORDS), 5, 1, 1)
    assert report.dropped == len(set(OLD) - set(NEW))


def test_new_entries_that_are_never_found_are_reported(checkpoint, tmp_path):
    """jieba cuts them into parts, or texts are lower-cased before; `user_dict` finds words of the first kind."""
    lost = ["匀强磁场", "公园·玩", "B超", "b超", "非常好玩"]
    words = ["天气", "##x", "[unused9]", "[X]", "", "\u2028", "##\u2028", "mp3", "公园", ".", "？"]
    new = write_entries(tmp_path / "words.txt", [*OLD, *lost, *words])
    folder, _ = checkpoint()
    report = initialise_words(folder, new, tmp_path / "out")
    assert report.never_found == lost
    (row,) = [row for row in summary(report) if "never found" in row]
    assert_states(row, 5, *lost)

    AutoTokenizer.from_pretrained(tmp_path / "out", user_dict=["匀强磁场"]).save_pretrained(tmp_path / "out")
    again = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again.tokenize("匀强磁场，好天气") == ["匀强磁场", "，", "好", "天气"]

    many = write_entries(tmp_path / "many.txt", [*OLD, "天气", *(f"{c}·{c}" for c in "甲乙丙丁戊己庚")])
    report = initialise_words(folder, many, tmp_path / "many")
    (row,) = [row for row in summary(report) if "never found" in row]
    assert_states(row, 7, "戊·戊", "…")
    assert "己" not in row

    report = initialise_words(folder, write_entries(tmp_path / "none.txt", [*OLD, "天气", "公园"]), tmp_path / "none")
    assert report.never_found == [] and not [row for row in summary(report) if "never found" in row]


def summary(report):
    """Return the rows of the table, as a user sees them."""
    console = Console(width=200, file=io.StringIO())
    console.print(report.table())
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("kind", ["bert", "roformer"])
def test_it_loads_and_answers_as_before(checkpoint, new_vocab, tmp_path, kind):
    """A text without new words has the same tokens, hidden states and logits of old entries."""
    folder, model = checkpoint(kind)
    initialise_words(folder, new_vocab, tmp_path / "out")
    loaded, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values()), info
    assert type(loaded) is type(model)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(tokenizer) is RoFormerTokenizer and tokenizer.word_segmentation == "jieba"
    assert tokenizer.model_max_length == 64
    assert tokenizer.get_vocab() == {entry: number for number, entry in enumerate(NEW)}
    assert "/".join(tokenizer.tokenize("我们去公园玩，天气非常好。")) == "我们/去/公园/玩/，/天气/非常/好/。"
    config = loaded.config
    assert (config.vocab_size, config.pad_token_id) == (len(NEW), NEW.index("[PAD]"))

    text = "去玩，好好玩。thes"
    old_tokenizer = RoFormerTokenizer(str(folder / "vocab.txt"))
    old_inputs, inputs = (t([text, "去"], padding=True, return_tensors="pt") for t in (old_tokenizer, tokenizer))
    assert old_tokenizer.tokenize(text) == tokenizer.tokenize(text)
    with torch.no_grad():
        before = model(**old_inputs, output_hidden_states=True)
        after = loaded(**inputs, output_hidden_states=True)
    for old, new in zip(before.hidden_states, after.hidden_states, strict=True):
        assert torch.equal(old, new)
    shared = [entry for entry in NEW if entry in OLD]
    columns = [[entries.index(entry) for entry in shared] for entries in (OLD, NEW)]
    torch.testing.assert_close(before.logits[..., columns[0]], after.logits[..., columns[1]])


def test_a_classifier_keeps_its_head(checkpoint, new_vocab, tmp_path):
    folder, _ = checkpoint()
    model = BertForSequenceClassification(BertConfig(**SIZES, num_labels=3, id2label={0: "a", 1: "b", 2: "c"}))
    model.save_pretrained(folder)
    initialise_words(folder, new_vocab, tmp_path / "out")
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "out")
    assert torch.equal(loaded.classifier.weight, model.classifier.weight)
    assert loaded.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert loaded.config.architectures == ["BertForSequenceClassification"]


def test_ids_in_the_configurations_are_translated(checkpoint, new_vocab, tmp_path):
    folder, _ = checkpoint()
    config = json.loads((folder / "config.json").read_text())
    changes = {"eos_token_id": [OLD.index("[SEP]")], "bos_token_id": OLD.index("[CLS]"), "sep_token_id": None}
    changes["_name_or_path"] = str(folder)
    (folder / "config.json").write_text(json.dumps(config | changes | {"tokenizer_class": "BertTokenizer", "mine": 1}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": OLD.index("[SEP]"), "max_length": 9}))
    initialise_words(folder, new_vocab, tmp_path / "out")
    made = json.loads((tmp_path / "out" / "config.json").read_text())
    assert made["eos_token_id"] == [NEW.index("[SEP]")] and made["bos_token_id"] == NEW.index("[CLS]")
    assert "_name_or_path" not in made  # of whoever saved the model
    assert made["sep_token_id"] is None and made["mine"] == 1 and made["tokenizer_class"] == "RoFormerTokenizer"
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation == {"eos_token_id": NEW.index("[SEP]"), "max_length": 9}


# What can be wrong


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def pickled(change):
    """Return a function that replaces the weights of a folder by what `change` makes of them, saved by torch."""

    def damage(folder):
        state = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save(change(state), folder / "pytorch_model.bin")

    return damage


KERNEL = "bert.encoder.layer.0.output.dense.weight"
TROUBLES = {
    "no folder": (lambda f: shutil.rmtree(f), ["characters", "not a folder"]),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ["no weights"]),
    "no config": (lambda f: (f / "config.json").unlink(), ["config.json"]),
    "broken config": (lambda f: (f / "config.json").write_text("{"), ["config.json", "JSON"]),
    "config of a list": (lambda f: (f / "config.json").write_text("[]"), ["config.json"]),
    "another model": (lambda f: edit_config(f, model_type="gpt2"), ["model_type", "'gpt2'"]),
    "a size that is a text": (lambda f: edit_config(f, hidden_size="x"), ["config.json", "hidden_size", "'x'"]),
    "an id of nothing": (lambda f: edit_config(f, eos_token_id=1), ["eos_token_id", "1"]),
    "no tokenizer": (lambda f: [(f / n).unlink() for n in ("vocab.txt", "tokenizer_config.json")], ["no vocabulary"]),
    "long vocabulary": (
        lambda f: write_entries(f / "vocab.txt", OLD + list("一二三四")),
        ["entries", "rows"],
    ),
    "cut safetensors": (lambda f: os.truncate(f / "model.safetensors", 3000), ["model.safetensors", "damaged"]),
    "no safetensors": (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), ["model.safetensors", "damaged"]),
    "pickled objects": (pickled(lambda state: {"weight": object()}), ["pytorch_model.bin", "tensors"]),
    "NaN in a kernel": (
        pickled(lambda state: state | {KERNEL: state[KERNEL].index_fill(0, torch.tensor([3]), float("nan"))}),
        ["pytorch_model.bin", "finite", KERNEL],
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_broken_checkpoint_gets_one_sentence(run, checkpoint, new_vocab, tmp_path, trouble):
    folder, _ = checkpoint()
    damage, facts = TROUBLES[trouble]
    damage(folder)
    code, out, err = run("vocab-init", folder, new_vocab, tmp_path / "out")
    assert (code, out) == (1, "")
    assert err.startswith("roformer: ") and err.count("\n") == 1 and "Traceback" not in err
    assert_states(err, *facts)
    assert set(os.listdir(tmp_path)) <= {"characters", "words.txt"}


def test_a_vocabulary_that_lost_a_line_is_refused_unless_its_embeddings_are_padded(
    run, checkpoint, new_vocab, tmp_path
):
    folder, _ = checkpoint()
    kept = [entry for entry in OLD if entry != "，"]
    write_entries(folder / "vocab.txt", kept)
    facts = [folder / "vocab.txt", f"{len(kept)} entries", "config.json", "model.safetensors", len(OLD)]
    code, out, err = run("vocab-init", folder, new_vocab, tmp_path / "out")
    assert (code, out) == (1, "") and not (tmp_path / "out").exists()
    assert_states(err, *facts, "--padded-vocabulary")
    code, out, err = run("vocab-init", folder, new_vocab, tmp_path / "out", "--padded-vocabulary")
    assert code == 0 and "WARNING" in out and "WARNING" in err
    assert_states(err, *facts)

    RoFormerTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)  # with the id of every entry
    assert initialise_words(folder, new_vocab, tmp_path / "saved").warnings == []


@pytest.mark.parametrize(
    ("entries", "facts"),
    [
        (OLD, ["two", "Han", "word_segmentation=None"]),
        ([entry for entry in NEW if entry != "[MASK]"], ["[MASK]"]),
        ([entry for entry in NEW if entry != "[UNK]"], ["[UNK]"]),
        ([*NEW, "天气"], ["'天气'"]),
        ([], ["[UNK]"]),
    ],
)
def test_a_vocabulary_that_cannot_be(checkpoint, tmp_path, entries, facts):
    folder, _ = checkpoint()
    path = write_entries(tmp_path / "words.txt", entries)
    with refused(VocabularyError, *facts):
        initialise_words(folder, path, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["characters", "words.txt"]


def test_settings_and_added_tokens_of_the_tokenizer_are_not_lost(checkpoint, new_vocab, tmp_path):
    folder, model = checkpoint()
    model.resize_token_embeddings(len(OLD) + 1)
    model.save_pretrained(folder)
    settings = {"add_sep_token": False, "padding_side": "left", "truncation_side": "left"}
    tokenizer = RoFormerTokenizer(str(folder / "vocab.txt"), **settings)
    tokenizer.add_tokens(["<e1>"])
    (folder / "vocab.txt").unlink()
    tokenizer.save_pretrained(folder)
    with refused(VocabularyError, new_vocab, "<e1>"):
        initialise_words(folder, new_vocab, tmp_path / "out")
    key = "bert.embeddings.word_embeddings.weight"
    initialise_words(folder, write_entries(tmp_path / "more.txt", [*NEW, "<e1>"]), tmp_path / "out")
    new = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert new.tokenize("天气<e1>。") == ["天气", "<e1>", "。"] and new("<e1>")["input_ids"][1:] == [len(NEW)]
    assert {name: getattr(new, name) for name in settings} == settings
    before, after = (load_file(place / "model.safetensors")[key] for place in (folder, tmp_path / "out"))
    assert torch.equal(after[-1], before[len(OLD)])


def test_the_command(run, checkpoint, new_vocab, tmp_path):
    folder, _ = checkpoint()
    code, out, err = run("vocab-init", folder, new_vocab, tmp_path / "out")
    assert code == 0, err
    for row in ("copied by name", "mean of their tokens", "start as [UNK]", "BertForMaskedLM"):
        assert row in out
    files = sorted(os.listdir(tmp_path / "out"))
    assert files == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == new_vocab.read_bytes()
    code, _, err = run("vocab-init", folder, new_vocab, tmp_path / "out")
    assert code == 1 and str(tmp_path / "out") in err and "--force" in err
    assert sorted(os.listdir(tmp_path / "out")) == files
    (tmp_path / "out" / "of_the_old_one").touch()
    code, _, err = run("vocab-init", folder, new_vocab, tmp_path / "out", "--force")
    assert code == 1 and "of_the_old_one" in err and (tmp_path / "out" / "of_the_old_one").exists()
    (tmp_path / "out" / "of_the_old_one").unlink()
    assert run("vocab-init", folder, new_vocab, tmp_path / "out", "--force")[0] == 0
    assert sorted(os.listdir(tmp_path / "out")) == files


def test_the_checkpoint_is_not_replaced(run, checkpoint, new_vocab, tmp_path):
    folder, _ = checkpoint()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for output in (folder, tmp_path, f"{folder}/../{folder.name}"):
        code, _, err = run("vocab-init", folder, new_vocab, output, "--force")
        assert code == 1 and err.count("\n") == 1 and str(folder) in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
