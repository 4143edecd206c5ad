"""The modules that a folder of sentence-transformers lists, in `roformer embed` and on the page."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.messages import assert_states, refused
from helpers.vector_folders import read_vectors
from safetensors.torch import load_file, save_file

import modeling_roformer  # noqa: F401
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.word_embeddings import initialise_words
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.serving.page.similarity import vectors
from modeling_roformer.serving.vectors.encoder import TextEncoder, model_identity

sentence_transformers = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
TEXTS = ["今天天气非常好。", "床前明月光，疑是地上霜", "a", "今天天气非常好，" * 20]


def pooling(mode, *more):
    """Return a function that replaces the modules after the encoder of a SentenceTransformer."""
    return lambda model: [model[0], modules.Pooling(model[0].get_embedding_dimension(), mode), *more]


def normalised_tokens(model):
    return [model[0], modules.Normalize("token_embeddings"), model[1]]


def normalised_before_pooling(model):
    return [model[0], modules.Normalize(), model[1]]


def normalised_before_dense(model):
    return [model[0], model[1], modules.Normalize(), model[2]]


POOLING, BERT = "1_Pooling/config.json", "sentence_bert_config.json"
OLDER_CLS = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
OLDER_MEAN = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
SHORT_TOKENIZER = {"model_max_length": 20}
HIDDEN_STATES = {"text": {"method": "forward", "method_output_name": ["hidden_states", 0]}}
ENCODER = {"type": "sentence_transformers.models.Transformer", "path": ""}


def listed(kind, path):
    """Return the content of a list of modules: the encoder, and another."""
    return json.dumps([ENCODER, {"type": kind, "path": path}])


ONLY_ENCODER = json.dumps([ENCODER])
FOREIGN = listed("os.path.Pooling", "1_Pooling")
OUTSIDE = listed("sentence_transformers.models.Pooling", "../1_Pooling")
ROUTES = listed("sentence_transformers.models.Router", "1_Pooling")
MEAN = listed("sentence_transformers.models.Pooling", "1_Pooling")
COMMAND = "from roformer_command import main\nmain()"
WITHOUT_FOLDER = listed("sentence_transformers.models.Pooling", "gone")
SIM = list  # the modules of RoFormer-Sim: its encoder, [CLS], and its pooler as a Dense

# The model, its modules, and its files: JSON fields to set, the whole text, or None for no file.
SAME_VECTORS = {
    "mean": ("word", pooling("mean"), {}),
    "cls": ("word", pooling("cls"), {}),
    "sqrt": ("word", pooling("mean_sqrt_len_tokens"), {}),
    "mean of length 1": ("word", pooling("mean", modules.Normalize()), {}),
    "cls of length 1": ("word", pooling("cls", modules.Normalize()), {}),
    "sqrt of length 1": ("word", pooling("mean_sqrt_len_tokens", modules.Normalize()), {}),
    "max": ("word", pooling("max"), {}),
    "weighted mean": ("word", pooling("weightedmean"), {}),
    "last token": ("word", pooling("lasttoken"), {}),
    "mean and max": ("word", pooling(("mean", "max")), {}),
    "Dense": ("word", pooling("mean", modules.Dense(24, 8)), {}),
    "Dense and length 1": ("word", pooling("cls", modules.Dense(24, 8), modules.Normalize()), {}),
    "LayerNorm": ("word", pooling("mean", modules.LayerNorm(24)), {}),
    "normalised tokens": ("word", normalised_tokens, {}),
    "normalised before pooling": ("word", normalised_before_pooling, {}),
    "normalised before Dense": ("sim", normalised_before_dense, {}),
    "residual Dense": ("sim", SIM, {"2_Dense/config.json": {"use_residual": True}}),
    # sentence-transformers takes tanh for an activation of another package.
    "activated Dense": ("sim", SIM, {"2_Dense/config.json": {"activation_function": "somewhere.Identity"}}),
    "older field of cls": ("word", pooling("mean"), {POOLING: json.dumps(OLDER_CLS)}),
    "older field of mean": ("word", pooling("cls"), {POOLING: json.dumps(OLDER_MEAN)}),
    "sim": ("sim", SIM, {}),
    "length": ("word", pooling("mean"), {BERT: '{"max_seq_length": 9, "do_lower_case": false}'}),
    "length beside the tokenizer's": (
        "word",
        pooling("mean"),
        {BERT: '{"max_seq_length": 40}', "tokenizer_config.json": SHORT_TOKENIZER},
    ),
    "length without modules": (
        "word",
        pooling("mean"),
        {BERT: '{"max_seq_length": 40}', "tokenizer_config.json": SHORT_TOKENIZER, "modules.json": None},
    ),
}
# The same, and the facts of the refusal.
REFUSED = {
    "no pooling": (
        "word",
        lambda model: [model[0]],
        {},
        ["sentence_transformers.base.modules.transformer.Transformer"],
    ),
    "tokens that are no text's": ("word", pooling("mean", modules.LSTM(24, 8)), {}, []),
    "truncated vectors": (
        "word",
        pooling("mean"),
        {"config_sentence_transformers.json": {"truncate_dim": 4}},
        ["truncate_dim"],
    ),
    "length of queries": ("word", pooling("mean"), {BERT: {"query_length": 8}}, ["query_length"]),
    "length of documents": ("word", pooling("mean"), {BERT: {"document_length": 8}}, ["document_length"]),
    "expanded queries": (
        "word",
        pooling("mean"),
        {BERT: {"query_expansion": {"strategy": "fixed", "length": 8}}},
        ["query_expansion"],
    ),
    "arguments of the tokenizer": (
        "word",
        pooling("mean"),
        {BERT: {"processing_kwargs": {"text": {"max_length": 8}}}},
        ["processing_kwargs"],
    ),
    "small letters": (
        "word",
        pooling("mean"),
        {BERT: {"do_lower_case": True}, "tokenizer_config.json": {"do_lower_case": False}},
        ["do_lower_case"],
    ),
    "first hidden states": ("word", pooling("mean"), {BERT: {"modality_config": HIDDEN_STATES}}, ["modality_config"]),
    "a number as pooling": ("word", pooling("cls"), {POOLING: '{"pooling_mode": [1]}'}, ["1"]),
    "a module of another package": ("word", pooling("mean"), {"modules.json": FOREIGN}, ["os.path.Pooling"]),
    "a module outside the folder": ("word", pooling("mean"), {"modules.json": OUTSIDE}, ["../1_Pooling"]),
    "two routes": ("word", pooling("mean"), {"modules.json": ROUTES}, ["sentence_transformers.models.Router"]),
    "Dense of another width": ("word", pooling("mean", modules.Dense(32, 8)), {}, ["1x24", "32x8"]),
    "damaged Dense": ("sim", SIM, {"2_Dense/model.safetensors": "damaged"}, []),
    "damaged length": ("word", pooling("mean"), {BERT: "["}, []),
    "no encoder": ("word", pooling("mean"), {"modules.json": ONLY_ENCODER}, []),
    "empty modules": ("word", pooling("mean"), {"modules.json": ""}, []),
    "modules in no list": ("word", pooling("mean"), {"modules.json": "{}"}, []),
    "a number as module": ("word", pooling("mean"), {"modules.json": "[1]"}, []),
    "nested modules": ("word", pooling("mean"), {"modules.json": "[" * 100_000}, []),
    "module without a folder": ("word", pooling("mean"), {"modules.json": WITHOUT_FOLDER}, []),
    "modules in no UTF-8": ("word", pooling("mean"), {"modules.json": "\ud800"}, []),
}


@pytest.fixture
def folder_of(saved, tmp_path):
    """Return a function that saves a model with modules of sentence-transformers and changes files of its folder."""

    def folder_of(kind, choose_modules, files):
        folder = shutil.copytree(saved(kind), tmp_path / "model")
        model = sentence_transformers.SentenceTransformer(str(saved(kind)), device="cpu")
        parts = choose_modules(model)
        sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(tmp_path / "library"))
        for path in (tmp_path / "library").iterdir():  # all but the model itself, whose class the library changes
            if path.is_dir():
                shutil.copytree(path, folder / path.name, dirs_exist_ok=True)
            elif path.name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
                shutil.copy(path, folder)
        for name, content in files.items():
            if isinstance(content, dict):
                content = json.dumps(json.loads((folder / name).read_text(encoding="utf-8")) | content)
            if content is None:
                (folder / name).unlink()
            else:
                (folder / name).write_text(content, encoding="utf-8", errors="surrogatepass")
        return folder

    return folder_of


def change(path, **fields):
    """Change fields of a file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")


def on_page(folder):
    with torch.no_grad():
        return vectors(ServedModel(folder), TEXTS, TEXTS)[0].numpy()


@pytest.mark.parametrize("case", SAME_VECTORS)
def test_vectors_are_those_of_sentence_transformers(folder_of, case):
    folder = folder_of(*SAME_VECTORS[case])
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    found = TextEncoder(folder, device="cpu")(TEXTS)
    np.testing.assert_allclose(found, expected, atol=4e-6, rtol=1e-6)
    if BERT not in SAME_VECTORS[case][2]:  # the page reads longer texts
        lengths = np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(on_page(folder), expected / lengths, atol=2e-6)


@pytest.mark.parametrize("case", REFUSED)
def test_vectors_that_cannot_be_made_are_refused(folder_of, case):
    *arguments, facts = REFUSED[case]
    folder = folder_of(*arguments)
    # The module that cannot be loaded, or the list of modules.
    files = {"damaged Dense": "2_Dense", "damaged length": BERT, "a number as pooling": "1_Pooling"}
    files["module without a folder"] = "gone"
    with refused(ServingError, folder / files.get(case, "modules.json"), *facts):
        TextEncoder(folder)


@pytest.mark.parametrize("listing", [FOREIGN, OUTSIDE, ROUTES])
def test_modules_are_refused_before_anything_is_imported(folder_of, tmp_path, listing):
    folder = folder_of("word", pooling("mean"), {"modules.json": listing})
    (tmp_path / "texts.txt").write_text("今天", encoding="utf-8")
    code = "import sys\nfor name in ('torch', 'sentence_transformers'): sys.modules[name] = None\n" + COMMAND
    command = [sys.executable, "-c", code, "embed", folder, "texts.txt", "vectors"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert_states(
        done.stderr, folder / "modules.json", json.loads(listing)[1]["path" if listing == OUTSIDE else "type"]
    )


def test_a_matcher_normalises_what_its_modules_make(folder_of):
    folder = folder_of("bi", pooling("max"), {})
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(TextEncoder(folder, device="cpu")(TEXTS), expected, atol=2e-6)


def test_a_model_in_a_subfolder_is_refused(folder_of):
    folder = folder_of("word", pooling("cls"), {})
    (folder / "config.json").rename(folder / "1_Pooling" / "config.json")
    with refused(ServingError, folder, "subfolder", "SentenceTransformer"):
        TextEncoder(folder)


@pytest.fixture
def pooled(saved, tmp_path):
    """Return a function that saves an encoder by sentence-transformers with a pooling; it returns the folder."""

    def pooled(mode, *more):
        encoder = modules.Transformer(str(saved("word")))
        width = encoder.get_embedding_dimension()
        folder = tmp_path / ("_".join(mode) if isinstance(mode, tuple) else mode)
        parts = [encoder, modules.Pooling(width, mode), *more]
        sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(folder))
        return folder

    return pooled


def test_every_file_of_the_modules_belongs_to_the_model(pooled):
    """Vectors of before are not completed with those of other modules."""
    folder = pooled("mean", modules.Dense(24, 8))
    found = {model_identity(folder)}
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    save_file({name: weight * 2 for name, weight in weights.items()}, folder / "2_Dense" / "model.safetensors")
    found.add(model_identity(folder))
    change(folder / POOLING, pooling_mode="cls")
    found.add(model_identity(folder))
    change(folder / BERT, max_seq_length=20)
    found.add(model_identity(folder))
    change(folder / "config_sentence_transformers.json", prompts={"query": "查询："})
    found.add(model_identity(folder))
    (folder / "modules.json").write_text(MEAN)
    found.add(model_identity(folder))
    (folder / "modules.json").unlink()
    found.add(model_identity(folder))
    assert len(found) == 7


def test_a_trained_dense_makes_the_vectors(saved, tmp_path):
    """Training with sentence-transformers changes the Dense, and leaves the model's own pooler as it was."""
    model = sentence_transformers.SentenceTransformer(str(saved("sim")), device="cpu")
    with torch.no_grad():
        model[2].linear.weight.mul_(2)
    model.save(str(tmp_path / "trained"))
    found = TextEncoder(tmp_path / "trained", device="cpu")(TEXTS)
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=2e-6)
    assert np.abs(found - TextEncoder(saved("sim"), device="cpu")(TEXTS)).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word", "sim", "bi"])
def test_the_library_is_needed_only_for_modules(saved, tmp_path, kind):
    """Without it, a model without modules has the same vectors; one with modules is refused in a sentence."""
    folder = shutil.copytree(saved(kind), tmp_path / "model")
    (folder / "modules.json").unlink(missing_ok=True)
    expected = TextEncoder(folder, device="cpu")(TEXTS)
    code = "import sys\nsys.modules['sentence_transformers'] = None\n" + COMMAND
    command = [sys.executable, "-c", code, "embed", "model", "texts.txt", "vectors"]
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(read_vectors(tmp_path / "vectors")[1], expected, atol=1e-6)
    (folder / "modules.json").write_text(MEAN)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    done = subprocess.run([*command[:-1], "others"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert_states(done.stderr, "sentence_transformers", "pip install '.[sentence-transformers]'")


def test_the_page_loads_the_modules_only_for_vectors(pooled):
    folder = pooled("max")
    (folder / "modules.json").write_text(ROUTES)
    served = ServedModel(folder)
    with refused(ServingError, folder / "modules.json", "sentence_transformers.models.Router"):
        vectors(served, TEXTS, TEXTS)


def test_a_new_vocabulary_or_a_conversion_keeps_the_pooling(pooled, tmp_path):
    folder = pooled("cls", modules.Normalize())
    initialise_words(folder, folder / "vocab.txt", tmp_path / "new")
    convert(folder, tmp_path / "converted")
    expected = TextEncoder(folder, device="cpu")(TEXTS)
    for name in ("new", "converted"):
        found = TextEncoder(tmp_path / name, device="cpu")
        np.testing.assert_allclose(found(TEXTS), expected, atol=2e-6)
