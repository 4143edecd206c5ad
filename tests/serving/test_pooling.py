"""The pooling that a folder of sentence-transformers states, in `roformer embed` and on the page."""

import json
import shutil

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
TEXTS = ["今天天气非常好。", "床前明月光，疑是地上霜", "a"]


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


@pytest.mark.parametrize("mode", ["mean", "cls", "mean_sqrt_len_tokens"])
def test_vectors_are_those_of_sentence_transformers(pooled, saved, mode):
    for more in ([], [modules.Normalize()]):
        folder = pooled(mode, *more)
        expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
        found = TextEncoder(folder, device="cpu")(TEXTS)
        np.testing.assert_allclose(found, expected, atol=4e-6)
    with torch.no_grad():
        on_page, _ = vectors(ServedModel(folder), TEXTS, TEXTS)
    np.testing.assert_allclose(on_page.numpy(), expected, atol=2e-6)


def test_the_fields_of_older_versions(pooled, tmp_path):
    expected = TextEncoder(pooled("cls"), device="cpu")(TEXTS)
    path = tmp_path / "cls" / "1_Pooling" / "config.json"
    older = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    path.write_text(json.dumps(older))
    np.testing.assert_array_equal(TextEncoder(tmp_path / "cls", device="cpu")(TEXTS), expected)


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


def test_vectors_that_cannot_be_made_are_refused(pooled, saved, tmp_path):
    for mode, *more in (("max",), (("mean", "max"),), ("mean", modules.Dense(32, 8))):
        with refused(ServingError, "modules.json", "SentenceTransformer", "max" if not more else "Dense"):
            TextEncoder(pooled(mode, *more))
    for file, field, value in (
        ("config_sentence_transformers.json", "truncate_dim", 4),
        ("sentence_bert_config.json", "query_length", 8),
        ("sentence_bert_config.json", "document_length", 8),
        ("sentence_bert_config.json", "query_expansion", {"strategy": "fixed", "length": 8}),
        ("sentence_bert_config.json", "processing_kwargs", {"text": {"max_length": 8}}),
        ("sentence_bert_config.json", "do_lower_case", True),
        (
            "sentence_bert_config.json",
            "modality_config",
            {"text": {"method": "forward", "method_output_name": ["hidden_states", 0]}},
        ),
    ):
        shutil.rmtree(tmp_path / "mean")
        path = pooled("mean") / file
        path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
        settings = path.with_name("tokenizer_config.json")
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "do_lower_case": False}))
        with refused(ServingError, "modules.json", field):
            TextEncoder(tmp_path / "mean")
    bi = shutil.copytree(saved("bi"), tmp_path / "bi")
    for name in ("modules.json", "1_Pooling"):
        (shutil.copytree if name == "1_Pooling" else shutil.copy)(pooled("cls") / name, bi / name)
    with refused(ServingError, bi / "modules.json", "cls"):
        TextEncoder(bi)
    folder = pooled("cls")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": [1]}')
    with refused(ServingError, folder / "modules.json", "by 1"):
        TextEncoder(folder)
    inside = '[{"type": "x.Transformer", "path": "0_Transformer"}]'
    for text in (inside, "", "{}", "[1]", "[" * 100_000, '[{"type": "x.Pooling", "path": "gone"}]', "\ud800"):
        (folder / "modules.json").write_text(text, errors="surrogatepass")
        with refused(ServingError, folder / "modules.json"):
            TextEncoder(folder)
    (folder / "config.json").rename(folder / "1_Pooling" / "config.json")
    with refused(ServingError, folder, "subfolder", "SentenceTransformer"):
        TextEncoder(folder)


def test_a_normalisation_of_something_else_than_the_vector_is_refused(pooled, saved, tmp_path):
    """A Normalize of tokens, or of what a later module reads, makes other vectors than one at the end."""
    for number, normalisation in enumerate((modules.Normalize("token_embeddings"), modules.Normalize())):
        encoder = modules.Transformer(str(saved("word")))
        parts = [encoder, normalisation, modules.Pooling(encoder.get_embedding_dimension(), "mean")]
        folder = tmp_path / str(number)
        sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(folder))
        with refused(ServingError, folder / "modules.json", "Normalize", "mean"):
            TextEncoder(folder)
    with refused(ServingError, "modules.json", "Normalize"):
        TextEncoder(pooled("mean", modules.Normalize(module_output_name="elsewhere")))
    model = sentence_transformers.SentenceTransformer(str(saved("sim")), device="cpu")
    parts = [model[0], model[1], modules.Normalize(), model[2]]
    sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(tmp_path / "sim"))
    with refused(ServingError, tmp_path / "sim" / "modules.json", "Normalize"):
        TextEncoder(tmp_path / "sim")


@pytest.mark.parametrize(
    "settings",
    [
        {"use_residual": True},
        {"module_input_name": "token_embeddings"},
        {"module_output_name": "elsewhere"},
        {"activation_function": "somewhere.Identity"},  # for which sentence-transformers takes tanh
    ],
)
def test_a_dense_that_computes_something_else_than_the_pooler_is_refused(saved, tmp_path, settings):
    folder = tmp_path / "sim"
    model = sentence_transformers.SentenceTransformer(str(saved("sim")), device="cpu")
    model.save(str(folder))
    path = folder / "2_Dense" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    ours = model.encode(TEXTS)
    assert theirs.shape != ours.shape or np.abs(theirs - ours).max() > 0.01
    with refused(ServingError, folder / "modules.json", "Dense"):
        TextEncoder(folder)


def test_the_dense_of_roformer_sim_is_its_pooler(saved, tmp_path):
    """Training with sentence-transformers changes the Dense, and leaves the model's own pooler as it was."""
    model = sentence_transformers.SentenceTransformer(str(saved("sim")), device="cpu")
    model.save(str(tmp_path / "same"))
    np.testing.assert_allclose(TextEncoder(tmp_path / "same", device="cpu")(TEXTS), model.encode(TEXTS), atol=2e-6)
    with torch.no_grad():
        model[2].linear.weight.mul_(2)
    model.save(str(tmp_path / "trained"))
    with refused(ServingError, tmp_path / "trained" / "modules.json", "Dense", "pooler", "SentenceTransformer"):
        TextEncoder(tmp_path / "trained")
    (tmp_path / "trained" / "2_Dense" / "model.safetensors").write_bytes(b"damaged")
    with refused(ServingError, tmp_path / "trained" / "2_Dense"):
        TextEncoder(tmp_path / "trained")


def test_the_length_that_older_versions_state(pooled):
    folder, long = pooled("mean"), "今天天气非常好，" * 20
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9, "do_lower_case": false}')
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == 9
    encoder = TextEncoder(folder, device="cpu")
    np.testing.assert_allclose(encoder([long]), model.encode([long]), atol=2e-6)
    assert len(encoder.rows("x", [long]).tokens[0]) == 9
    (folder / "sentence_bert_config.json").write_text("[")
    with refused(ServingError, folder / "sentence_bert_config.json"):
        TextEncoder(folder)


@pytest.mark.parametrize("listed", [True, False])
def test_the_older_statement_of_a_length_replaces_the_tokenizers(pooled, listed):
    """It does so in sentence-transformers, if the folder has a list of modules."""
    folder, long = pooled("mean"), "今天天气非常好，" * 20
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": 20}))
    if not listed:
        (folder / "modules.json").unlink()
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == (40 if listed else 20)
    encoder = TextEncoder(folder, device="cpu")
    assert encoder.max_length == model.max_seq_length
    np.testing.assert_allclose(encoder([long]), model.encode([long]), atol=2e-6)


def test_vectors_with_another_stated_length_are_not_mixed(pooled, tmp_path):
    folder, texts = pooled("mean"), tmp_path / "texts.txt"
    statement = folder / "sentence_bert_config.json"
    statement.write_text('{"max_seq_length": 40}')
    texts.write_text("今天天气非常好，" * 20 + "\n", encoding="utf-8")
    embed(folder, texts, tmp_path / "vectors")
    assert embed(folder, texts, tmp_path / "vectors").kept == 1
    statement.write_text('{"max_seq_length": 20}')
    with refused(ServingError, tmp_path / "vectors", "stated_length", 40, 20):
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
