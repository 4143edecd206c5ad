"""The pooling that a folder of sentence-transformers states, in `roformer embed` and on the page."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from helpers.messages import refused
from helpers.vector_folders import read_settings, write_settings

import modeling_roformer  # noqa: F401
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.word_embeddings import initialise_words
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.serving.page.similarity import vectors
from modeling_roformer.serving.vectors import embed
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
ONLY_ENCODER = '[{"type": "x.Transformer", "path": "0_Transformer"}]'
WITHOUT_FOLDER = '[{"type": "x.Pooling", "path": "gone"}]'
SIM = list  # the modules of RoFormer-Sim: its encoder, [CLS], and its pooler as a Dense

# The model, its modules, and its files: JSON fields to set, the whole text, or None for no file.
SAME_VECTORS = {
    "mean": ("word", pooling("mean"), {}),
    "cls": ("word", pooling("cls"), {}),
    "sqrt": ("word", pooling("mean_sqrt_len_tokens"), {}),
    "mean of length 1": ("word", pooling("mean", modules.Normalize()), {}),
    "cls of length 1": ("word", pooling("cls", modules.Normalize()), {}),
    "sqrt of length 1": ("word", pooling("mean_sqrt_len_tokens", modules.Normalize()), {}),
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
    "max": ("word", pooling("max"), {}, ["SentenceTransformer", "max"]),
    "mean and max": ("word", pooling(("mean", "max")), {}, ["SentenceTransformer", "mean", "max"]),
    "Dense": ("word", pooling("mean", modules.Dense(32, 8)), {}, ["SentenceTransformer", "Dense"]),
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
    "cls of a triplet matcher": ("bi", pooling("cls"), {}, ["cls"]),
    "a number as pooling": ("word", pooling("cls"), {POOLING: '{"pooling_mode": [1]}'}, ["by 1"]),
    "normalised tokens": ("word", normalised_tokens, {}, ["Normalize", "mean"]),
    "normalised before pooling": ("word", normalised_before_pooling, {}, ["Normalize", "mean"]),
    "normalised elsewhere": (
        "word",
        pooling("mean", modules.Normalize(module_output_name="elsewhere")),
        {},
        ["Normalize"],
    ),
    "normalised before Dense": ("sim", normalised_before_dense, {}, ["Normalize"]),
    "residual Dense": ("sim", SIM, {"2_Dense/config.json": {"use_residual": True}}, ["Dense"]),
    "Dense of tokens": ("sim", SIM, {"2_Dense/config.json": {"module_input_name": "token_embeddings"}}, ["Dense"]),
    "Dense to elsewhere": ("sim", SIM, {"2_Dense/config.json": {"module_output_name": "elsewhere"}}, ["Dense"]),
    # sentence-transformers takes tanh for an activation of another package.
    "activated Dense": (
        "sim",
        SIM,
        {"2_Dense/config.json": {"activation_function": "somewhere.Identity"}},
        ["Dense"],
    ),
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


def on_page(folder):
    with torch.no_grad():
        return vectors(ServedModel(folder), TEXTS, TEXTS)[0].numpy()


def hide_library(monkeypatch):
    """Make the import of sentence-transformers fail, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)


@pytest.mark.parametrize("case", SAME_VECTORS)
def test_vectors_are_those_of_sentence_transformers_with_and_without_the_library(folder_of, monkeypatch, case):
    folder = folder_of(*SAME_VECTORS[case])
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    found = TextEncoder(folder, device="cpu")(TEXTS)
    np.testing.assert_allclose(found, expected, atol=4e-6, rtol=1e-6)
    hide_library(monkeypatch)
    np.testing.assert_array_equal(TextEncoder(folder, device="cpu")(TEXTS), found)
    if BERT not in SAME_VECTORS[case][2]:  # the page reads longer texts
        lengths = np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(on_page(folder), expected / lengths, atol=2e-6)


@pytest.mark.parametrize("case", REFUSED)
def test_vectors_that_cannot_be_made_are_refused_with_and_without_the_library(folder_of, monkeypatch, case):
    *arguments, facts = REFUSED[case]
    folder = folder_of(*arguments)
    # The file that is damaged or, if it can be read, the list of modules.
    file = {"damaged Dense": "2_Dense", "damaged length": BERT}.get(case, "modules.json")
    with refused(ServingError, folder / file, *facts) as with_library:
        TextEncoder(folder)
    hide_library(monkeypatch)
    with refused(ServingError) as without_library:
        TextEncoder(folder)
    assert str(without_library.value) == str(with_library.value)


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


def test_another_pooling_is_another_model(pooled, tmp_path):
    """Vectors of before are not completed with those of another pooling."""
    mean = pooled("mean")
    before = model_identity(mean)
    other = shutil.copytree(mean, tmp_path / "other")
    (other / "modules.json").unlink()
    assert model_identity(other) == before  # the mean is what a folder without the file has
    assert model_identity(pooled("mean", modules.Normalize())) != before
    for mode in ("cls", "mean_sqrt_len_tokens"):
        (mean / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
        assert model_identity(mean) != before
    # Of length 1, both means are the same.
    assert model_identity(pooled("mean_sqrt_len_tokens", modules.Normalize())) == model_identity(
        pooled("mean", modules.Normalize())
    )


def test_a_trained_dense_is_refused(saved, tmp_path):
    """Training with sentence-transformers changes the Dense, and leaves the model's own pooler as it was."""
    model = sentence_transformers.SentenceTransformer(str(saved("sim")), device="cpu")
    with torch.no_grad():
        model[2].linear.weight.mul_(2)
    model.save(str(tmp_path / "trained"))
    with refused(ServingError, tmp_path / "trained" / "modules.json", "Dense", "pooler", "SentenceTransformer"):
        TextEncoder(tmp_path / "trained")


def test_vectors_with_another_stated_length_are_not_mixed(pooled, tmp_path):
    folder, texts = pooled("mean"), tmp_path / "texts.txt"
    statement = folder / "sentence_bert_config.json"
    statement.write_text('{"max_seq_length": 40}')
    texts.write_text("今天天气非常好，" * 20 + "\n", encoding="utf-8")
    embed(folder, texts, tmp_path / "vectors")
    assert embed(folder, texts, tmp_path / "vectors").kept == 1
    statement.write_text('{"max_seq_length": 20}')
    with refused(ServingError, tmp_path / "vectors", "max_seq_length", 40, 20):
        embed(folder, texts, tmp_path / "vectors")
    settings = read_settings(tmp_path / "vectors")
    del settings["stated_length"]
    write_settings(tmp_path / "vectors", settings)  # as of earlier versions
    assert embed(folder, texts, tmp_path / "vectors").kept == 1


def test_the_page_reads_the_pooling_only_for_vectors(pooled):
    folder = pooled("max")
    served = ServedModel(folder)
    with refused(ServingError, folder / "modules.json", "max"):
        vectors(served, TEXTS, TEXTS)


def test_a_new_vocabulary_or_a_conversion_keeps_the_pooling(pooled, tmp_path):
    folder = pooled("cls", modules.Normalize())
    initialise_words(folder, folder / "vocab.txt", tmp_path / "new")
    convert(folder, tmp_path / "converted")
    expected = TextEncoder(folder, device="cpu")(TEXTS)
    for name in ("new", "converted"):
        found = TextEncoder(tmp_path / name, device="cpu")
        assert found.pooling == "cls"
        np.testing.assert_allclose(found(TEXTS), expected, atol=2e-6)
