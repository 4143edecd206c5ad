"""`roformer info`: what it says is what loading the checkpoint shows, and it reads no data."""

import builtins
import io
import json
import os
import shutil
import zipfile
from itertools import product
from pathlib import Path

import pytest
import torch
import transformers
from helpers import hub_server
from helpers.hub_server import Blob, Fault, Repo
from helpers.legacy_checkpoints import edit_config
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from huggingface_hub import constants
from transformers import AutoModelForMaskedLM
from typer.testing import CliRunner

import modeling_roformer
from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerForTripletMatching
from modeling_roformer.cli.commands import app
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.conversion.tf_exporter import export_tf
from modeling_roformer.hub import HubError
from modeling_roformer.model_cards.facts import read_facts

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
KERAS = REPOSITORY / "tests" / "fixtures" / "keras"
REPO = "somebody/model"
DATA = "bert_model.ckpt.data-00000-of-00001"
# fixture: what the summary of a conversion calls it, and whether plain transformers serves
FAMILIES = {
    "word": ("RoFormer", "word", False),
    "character": ("RoFormer", "character", False),
    "gpt": ("RoFormer-GPT", "character", True),
    "sim": ("RoFormer-Sim", "character", True),
    "v2": ("RoFormer-V2", "word", True),
    "wobert": ("WoBERT", "word", False),
    "wonezha": ("WoNEZHA", "word", True),
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """name of a fixture -> folder that it was converted to, once; nobody may change it."""
    parent, made = tmp_path_factory.mktemp("converted"), {}

    def make(name):
        if name not in made:
            made[name] = parent / name
            convert(LEGACY / name, made[name])
        return made[name]

    return make


@pytest.fixture
def no_data(monkeypatch):
    """Whoever opens a file of weights and reads more than a header of it fails."""
    plain = builtins.open

    def guarded(file, *args, **kwargs):
        name = os.path.basename(os.fspath(file)) if isinstance(file, (str, os.PathLike)) else ""
        assert ".data-" not in name, f"{name} was opened"
        return plain(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", guarded)
    monkeypatch.setattr(io, "open", guarded)


def run(*arguments):
    return CliRunner().invoke(app, ["info", *map(str, arguments)])


# Saved models.


@pytest.mark.parametrize("name", FAMILIES)
def test_a_converted_folder_is_what_the_loaded_model_is(name, converted):
    family, unit, needs = FAMILIES[name]
    folder = converted(name)
    found = info(folder)
    config = json.loads((folder / "config.json").read_text())
    module = transformers if name == "wobert" else modeling_roformer
    model = getattr(module, config["architectures"][0]).from_pretrained(folder)
    assert found.kind == "saved model" and found.family == family and found.needs_package == needs
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.dtypes == {"float32": found.parameters}
    assert found.architecture == type(model).__name__ and found.model_type == config["model_type"]
    assert (found.layers, found.hidden_size) == (model.config.num_hidden_layers, model.config.hidden_size)
    assert found.vocabulary["entries"] == model.config.vocab_size and found.vocabulary["unit"] == unit
    assert found.tokenizer.startswith(json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"])
    assert found.source["source"] == name and f"source file {DATA}" in found.source
    assert not found.notes and found.trained_length == (
        model.config.max_position_embeddings if name == "wobert" else None
    )
    assert dict(found.files) == {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("name", [*FAMILIES, "shards", "float16", "bfloat16"])
def test_a_legacy_checkpoint_is_described_without_its_data(name, no_data):
    found = info(LEGACY / name)
    assert found.kind == "TensorFlow checkpoint" and found.sign and found.loads_with.startswith("bert4keras")
    assert list(found.dtypes) == [name if "float" in name else "float32"]


def test_sharded_half_precision_and_other_heads(tmp_path, converted):
    model = RoFormerForTripletMatching.from_pretrained(converted("word"), triplet_scorer="cross").half()
    model.save_pretrained(tmp_path, max_shard_size="20kB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    found = info(tmp_path)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.dtypes == {"float16": found.parameters}
    assert found.architecture == "RoFormerForTripletMatching" and found.needs_package
    assert "transformers has no RoFormerForTripletMatching" in found.loads_with


def test_stretched_positions_say_the_length_of_training(tmp_path):
    rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=20, rope_parameters=rope, **sizes)).save_pretrained(tmp_path)
    found = info(tmp_path)
    assert found.positions == {"type": "rotary", "theta": 10000.0, "scaling": "yarn", "factor": 4.0}
    assert found.trained_length == 512 and found.needs_package
    assert found.vocabulary == {"entries": 20} and found.tokenizer is None


LENGTHS = {"chinese_roformer_L-12_H-768_A-12": 1536, "chinese_roformer_L-6_H-384_A-6": None}


@pytest.mark.parametrize(("name", "length"), [*LENGTHS.items(), ("somebody_L-12_H-768_A-12", None)])
def test_the_length_of_a_release_is_known_by_its_source(tmp_path, name, length):
    """From the card, whatever the folder is called; the weights may be missing."""
    layers, hidden = (12, 768) if "L-12" in name else (6, 384)
    sizes = {"num_hidden_layers": layers, "num_attention_heads": layers, "intermediate_size": 4 * hidden}
    RoFormerConfig(hidden_size=hidden, **sizes, architectures=["RoFormerForMaskedLM"]).save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "天气", *(f"word{i}" for i in range(49994))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (tmp_path / "README.md").write_text(f"<!-- facts -->\n| source | {name} |\n<!-- /facts -->\n")
    found = info(tmp_path)
    assert found.trained_length == length and len(found.notes) == 1 and found.parameters is None
    assert_states(found.notes[0], "no weights")
    assert found.source == {"source": name}


# PyTorch.


def test_a_pytorch_folder_of_others(tmp_path, converted):
    """Weights saved by the package roformer 0.4.3: a table of sinusoids, the tied weights twice, zip or not."""
    model = RoFormerForMaskedLM.from_pretrained(converted("word"))
    state = model.state_dict()
    state["roformer.encoder.embed_positions.weight"] = torch.zeros(1536, 12)
    state["roformer.embeddings.position_ids"] = torch.arange(512)
    shutil.copytree(converted("word"), tmp_path / "others", ignore=shutil.ignore_patterns("*.safetensors", "README.md"))
    for zipped in (True, False):
        torch.save(state, tmp_path / "others" / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        found = info(tmp_path / "others")
        assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
        assert found.family == "RoFormer" and not found.needs_package and not found.notes


def test_of_two_configurations_the_one_of_the_weights_is_read(tmp_path, converted):
    folder = shutil.copytree(converted("word"), tmp_path / "word")
    shutil.copy(LEGACY / "word" / "bert_config.json", folder)
    edit_config(folder, hidden_size=48)
    found = info(folder)
    assert (found.hidden_size, found.architecture) == (24, "RoFormerForMaskedLM")


def test_a_refused_pytorch_folder_is_described_by_what_convert_finds(tmp_path):
    folder = shutil.copytree(REPOSITORY / "tests" / "fixtures" / "pytorch" / "v1", tmp_path / "v1")
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "vocab.txt").write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    report = convert(folder, tmp_path / "output", padded_vocabulary=True, dry_run=True)
    found = info(folder)
    assert found.converts_to is None and len(found.notes) == 1
    assert (found.family, found.sign, found.parameters) == (report.family, report.sign, report.parameters)
    assert found.left_out == {kind: len(names) for kind, names in report.extras.items()} != {}


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("bomb"),))


def test_a_pickle_that_runs_code_is_not_run(tmp_path, converted, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(converted("word"), tmp_path / "bad", ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save({"weight": Bomb()}, folder / "pytorch_model.bin")
    found = info(folder)
    assert not (tmp_path / "bomb").exists()
    assert found.parameters is None
    assert_states(found.notes[0], folder / "pytorch_model.bin", "code")


# Legacy checkpoints.


def test_without_the_data_file_only_that_is_missing(tmp_path, no_data):
    folder = shutil.copytree(LEGACY / "word", tmp_path / "word", ignore=shutil.ignore_patterns("*.data-*"))
    found, whole = info(folder), info(LEGACY / "word")
    assert len(found.notes) == 1
    assert_states(found.notes[0], DATA, "missing")
    assert (found.family, found.parameters, found.left_out) == (whole.family, whole.parameters, whole.left_out)
    assert not whole.notes and whole.left_out


@pytest.mark.parametrize("name", ["v2", "gpt", "shards"])
def test_the_published_zip_is_not_unpacked(name, tmp_path, no_data, monkeypatch):
    """Its data stay packed: the archive here holds garbage in their place."""
    archive = tmp_path / f"chinese_{name}.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((LEGACY / name).iterdir()):
            content = b"garbage" if ".data-" in path.name else path.read_bytes()
            file.writestr(f"folder/{path.name}", content)
        file.writestr("__MACOSX/folder/._vocab.txt", b"")
    found, whole = info(archive), info(LEGACY / name)
    assert found.path == str(archive) and found.family == whole.family and not found.notes
    assert (found.parameters, found.vocabulary, found.left_out) == (whole.parameters, whole.vocabulary, whole.left_out)
    assert dict(found.files)[next(path.name for path in (LEGACY / name).glob("*.data-00000*"))] == len("garbage")


# What it prints.


def test_the_table_and_the_json_say_the_same(converted, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder = converted("word")
    found, facts = info(folder), read_facts((folder / "README.md").read_text(encoding="utf-8"))
    printed, content = run(folder).stdout, json.loads(run(folder, "--json").stdout)
    assert content["family"] == "RoFormer" and content["parameters"] == found.parameters
    assert content["vocabulary"] == found.vocabulary and content["needs_package"] is False
    assert content["source"]["converted on"] == facts["converted on"]
    assert {"name": "model.safetensors", "size": (folder / "model.safetensors").stat().st_size} in content["files"]
    rows = found.rows()
    assert_states(rows["size"], 2, 24)
    assert_states(rows["vocabulary"], "word-level", 22, 154)
    assert (rows["parameters"], rows["dtype"]) == (f"{found.parameters:,}", "float32")
    for name in rows:
        assert name in printed


# Nothing of the kind.


def write(name, content):
    return lambda folder: (folder / name).write_text(content)


NOTHING = {
    "an empty folder": (lambda folder: None, ["config.json", "weights"]),
    "other files": (write("notes.txt", "hello"), ["config.json", "weights"]),
    "weights alone": (write("model.safetensors", ""), ["weights", "no config.json"]),
    "a legacy configuration alone": (write("bert_config.json", "{}"), ["bert_config.json", "no weights"]),
    "a broken configuration": (write("config.json", "{"), ["config.json", "JSON"]),
    "a list": (write("config.json", "[]"), ["config.json", "JSON object"]),
}


@pytest.mark.parametrize("case", NOTHING)
def test_an_unknown_folder_is_one_sentence(case, tmp_path):
    spoil, facts = NOTHING[case]
    spoil(tmp_path)
    result = run(tmp_path)
    assert result.exit_code != 0 and isinstance(result.exception, ValueError) and not result.stdout.strip()
    assert_states(result.exception, tmp_path, *facts)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(
    ("name", "content", "error", "facts"),
    [
        ("nothing", None, ValueError, ["exist", "OWNER/NAME"]),
        ("a/b/c", None, ValueError, ["exist", "OWNER/NAME"]),
        ("x.zip", b"no zip", CheckpointError, ["readable .zip"]),
    ],
)
def test_a_path_that_is_no_folder_is_one_sentence(name, content, error, facts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    with refused(error, name, *facts):
        info(name)


LEGACY_FILES = ("vocab.txt", "bert_config.json", "bert_model.ckpt.index")
SAVED_FILES = ("vocab.txt", "tokenizer_config.json", "model.safetensors")


@pytest.mark.parametrize(
    ("name", "is_saved", "content"),
    [*product(LEGACY_FILES, [False], [b"", b"\xff\xfe\x00"]), *product(SAVED_FILES, [True], [b"\xff\xfe\x00"])],
)
def test_a_damaged_file_is_told_or_noted(name, is_saved, content, tmp_path, converted):
    folder = shutil.copytree(converted("word") if is_saved else LEGACY / "word", tmp_path / "word")
    (folder / name).write_bytes(content)
    try:
        found = info(folder)
    except ValueError as error:
        assert name in str(error) and "\n" not in str(error)
    else:
        assert any(name in note for note in found.notes)


WRONG_TYPES = {  # file -> field -> a value that it cannot have
    "config.json": {
        "hidden_size": "16",
        "intermediate_size": [48],
        "embedding_size": {"a": 1},
        "num_hidden_layers": True,
        "num_attention_heads": 2.0,
        "vocab_size": "154",
        "max_position_embeddings": "1536",
        "hidden_act": ["gelu"],
        "model_type": ["roformer"],
        "rope_parameters": "default",
        "rope_scaling": [2.0],
        "position_encoding": {"type": "rotary"},
    },
    "tokenizer_config.json": {"tokenizer_class": ["RoFormerTokenizer"], "word_segmentation": 1},
    "bert_config.json": {"hidden_size": "24", "hidden_act": ["gelu"], "application": ["lm"], "exported_as": {"a": 1}},
}


@pytest.mark.parametrize(("file", "field"), [(file, field) for file, fields in WRONG_TYPES.items() for field in fields])
def test_a_field_of_a_wrong_type_is_one_sentence(file, field, tmp_path, converted):
    folder = shutil.copytree(LEGACY / "word" if "bert" in file else converted("word"), tmp_path / "word")
    path, value = folder / file, WRONG_TYPES[file][field]
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {field: value}), encoding="utf-8")
    with refused(CheckpointError, path, field, json.dumps(value)):
        info(folder)


@pytest.mark.parametrize("value", [[16], {"a": 1}, True, "RoFormerForMaskedLM"])
def test_classes_of_a_wrong_type_are_one_sentence(value, tmp_path, converted):
    """An export is refused, and a PyTorch folder is described without them."""
    export_tf(converted("word"), tmp_path / "exported")
    edit_config(tmp_path / "exported", architectures=value)
    with refused(CheckpointError, "bert_config.json", "architectures", json.dumps(value)):
        info(tmp_path / "exported")
    folder = shutil.copytree(REPOSITORY / "tests" / "fixtures" / "pytorch" / "v1", tmp_path / "v1")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": value}))
    assert_states(info(folder).notes[0], folder / "config.json", "architectures", json.dumps(value))


@pytest.mark.parametrize("field", ["config", "tokenizer"])
def test_our_own_fields_of_a_wrong_type_are_one_sentence(field, tmp_path, converted):
    export_tf(converted("word"), tmp_path / "exported")
    edit_config(tmp_path / "exported", **{field: "16"})
    with refused(CheckpointError, "bert_config.json", field, '"16"'):
        info(tmp_path / "exported")


def test_another_model_is_said_to_be_none_of_ours(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 2}')
    found = info(tmp_path)
    assert found.family is None and "gpt2 is not one of this package's" in found.sign and found.needs_package is False
    assert found.positions == {} and run(tmp_path).exit_code == 0


# The Hub.


def put(hub, folder, name=REPO):
    repo = hub.repos.setdefault(name, Repo())
    files = {}
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        lfs = path.suffix in hub_server.LFS_SUFFIXES or ".data-" in path.name
        files[path.relative_to(folder).as_posix()] = blob = Blob(path.read_bytes(), lfs=lfs)
        if lfs:
            hub.objects[blob.sha256] = blob.data
    repo.commit("main", files, "put")
    return repo


def same_but_for_the_place(found, local):
    for field in ("path", "kind", "sign"):
        setattr(found, field, getattr(local, field))
    return found == local


@pytest.mark.parametrize("name", ["word", "sim", "wobert"])
def test_a_repository_is_what_the_folder_is_and_its_weights_stay_there(name, hub, converted):
    repo = put(hub, converted(name))
    found = info(REPO)
    assert found.kind == "saved model on the Hub" and found.path == REPO
    assert same_but_for_the_place(found, info(converted(name)))
    cached = [path for path in Path(constants.HF_HUB_CACHE).rglob("*") if path.is_file()]
    weights = repo.files()["model.safetensors"]
    assert cached and all(path.read_bytes() != weights for path in cached)
    assert not any("tokenizer.json" in request for request in hub.requests)


def test_shards_on_the_hub_and_a_revision(hub, tmp_path, converted):
    repo = put(hub, converted("word"))
    first = repo.branches["main"]
    model = AutoModelForMaskedLM.from_pretrained(converted("word")).half()
    model.save_pretrained(tmp_path, max_shard_size="20kB")
    put(hub, tmp_path)
    found = json.loads(run(REPO, "--json").stdout)
    assert found["dtypes"] == {"float16": sum(parameter.numel() for parameter in model.parameters())}
    assert len([file for file in found["files"] if file["name"].endswith(".safetensors")]) > 1
    assert list(info(REPO, revision=first).dtypes) == ["float32"]
    with refused(ValueError, tmp_path, "revisions", repr(first)):  # the folder is not described instead
        info(tmp_path, revision=first)


def test_a_legacy_checkpoint_on_the_hub(hub):
    put(hub, LEGACY / "shards")
    found, local = info(REPO), info(LEGACY / "shards")
    assert found.kind == "TensorFlow checkpoint on the Hub" and found.family == "RoFormer" and not found.notes
    assert (found.parameters, found.files) == (local.parameters, local.files)
    assert not any(".data-" in request for request in hub.requests)


def test_a_pytorch_file_stays_on_the_hub(hub, tmp_path, converted):
    folder = shutil.copytree(converted("word"), tmp_path / "x", ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save({"a": torch.zeros(3)}, folder / "pytorch_model.bin")
    put(hub, folder)
    found = info(REPO)
    assert found.family == "RoFormer" and found.parameters is None
    (note,) = found.notes
    assert_states(note, "pytorch_model.bin", "parameters")
    assert not any("pytorch_model.bin" in request for request in hub.requests)


@pytest.mark.parametrize(("status", "facts"), [(404, []), (401, ["HF_TOKEN"]), (403, ["HF_TOKEN"]), (418, [])])
def test_a_refusal_of_the_hub_is_one_sentence(status, facts, hub, converted):
    if status != 404:  # without a repository
        put(hub, converted("word"))
        hub.faults.append(Fault("GET /api/models", status=status, times=99))
    with refused(HubError, REPO, "folder", status, *facts) as caught:
        info(REPO)
    assert hub.token not in str(caught.value)


def test_a_repository_without_a_checkpoint(hub, tmp_path):
    (tmp_path / "README.md").write_text("# nothing\n")
    put(hub, tmp_path)
    with refused(ValueError, REPO, "config.json") as caught:
        info(REPO)
    assert "/tmp" not in str(caught.value)


def test_damaged_headers_on_the_hub_are_noted(hub, tmp_path, converted):
    folder = shutil.copytree(converted("word"), tmp_path / "x")
    (folder / "model.safetensors").write_bytes(b"\xff" * 40)
    put(hub, folder)
    found = info(REPO)
    assert found.family == "RoFormer" and found.parameters is None and len(found.notes) == 1
