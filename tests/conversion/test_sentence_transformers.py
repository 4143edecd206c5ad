"""A converted RoFormer-Sim in sentence-transformers: its vectors are bert4keras', and the folder is a model still."""

import json

import numpy as np
import pytest
import torch
from helpers.absent_package import run_without_package
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.word_embeddings import initialise_words
from modeling_roformer.hub import push

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
REFERENCE = np.load(LEGACY / "sim" / "reference.npz")
SENTENCES = REFERENCE["sentences"].tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("converted") / "sim"
    assert convert(LEGACY / "sim", path, family="sim", verify=True).verified
    return path


@pytest.fixture(scope="module")
def encoder(folder):
    return SentenceTransformer(str(folder), device="cpu")


def pooled(encoder, token_ids, segment_ids):
    """The modules' output for given tokens; 0 is padding."""
    tokens = torch.from_numpy(token_ids).long()
    features = {
        "input_ids": tokens,
        "attention_mask": (tokens != 0).long(),
        "token_type_ids": torch.from_numpy(segment_ids).long(),
    }
    with torch.inference_mode():
        return encoder(features)["sentence_embedding"].numpy()


@pytest.mark.parametrize("batch_size", [1, 32])
def test_sentences_have_bert4keras_vectors(encoder, batch_size):
    """From the text on: bert4keras' own tokenizer, which read one sentence at a time, so without padding."""
    found = encoder.encode(SENTENCES, batch_size=batch_size)
    assert np.ptp(REFERENCE["vectors"], axis=0).min() > 0.05
    np.testing.assert_allclose(found, REFERENCE["vectors"], rtol=0, atol=2e-5)


def test_pairs_have_bert4keras_vectors(encoder):
    """Segment 0 sees itself whole and nothing of segment 1, as UniLM's mask has it; the second text is padded."""
    found = pooled(encoder, REFERENCE["token_ids"], REFERENCE["segment_ids"])
    np.testing.assert_allclose(found, REFERENCE["pooled"], rtol=0, atol=2e-5)
    # Other words in segment 1 change nothing of it.
    others = np.where(REFERENCE["segment_ids"] == 1, 7, REFERENCE["token_ids"])
    np.testing.assert_allclose(pooled(encoder, others, REFERENCE["segment_ids"]), found, rtol=0, atol=1e-6)
    first_words = np.where(np.arange(others.shape[1]) == 2, 7, REFERENCE["token_ids"])
    assert np.abs(pooled(encoder, first_words, REFERENCE["segment_ids"]) - found).max() > 1e-3


def test_similarity_is_the_cosine(encoder):
    a, b = REFERENCE["vectors"][:2]
    found = encoder.similarity(*(encoder.encode([sentence]) for sentence in SENTENCES[:2]))
    np.testing.assert_allclose(found.item(), a @ b / np.linalg.norm(a) / np.linalg.norm(b), atol=1e-5)


@max_examples(10)
@given(st.lists(st.text(st.sampled_from("明月山路 a.[MASK]旋转"), max_size=20), min_size=1, max_size=4))
def test_vectors_are_the_models_pooler_output(encoder, folder, sentences):
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        expected = [model(**tokenizer(text, return_tensors="pt")).pooler_output[0].numpy() for text in sentences]
    np.testing.assert_allclose(encoder.encode(sentences), expected, rtol=0, atol=2e-5)


def test_long_texts_are_read_to_their_end(encoder):
    """Positions are computed, so nothing is cut unless the user says where."""
    text = "明月" * 1500
    assert encoder.preprocess([text])["input_ids"].shape == (1, 3002)
    whole, other_end = encoder.encode([text, text[:-1] + "山"])
    assert np.abs(whole - other_end).max() > 1e-6


@pytest.fixture(scope="module")
def word_folder(tmp_path_factory):
    return convert(LEGACY / "word", tmp_path_factory.mktemp("word") / "word").output


def warnings_of(caplog, texts, encoder):
    caplog.clear()
    logging.warning_once.cache_clear()
    for text in texts:
        encoder.preprocess([text])
    return [record.message for record in caplog.records if "max_position_embeddings" in record.message]


def test_a_limit_that_no_one_chose_warns_once_when_it_truncates(word_folder, caplog):
    """sentence-transformers takes the limit of other encoders from `max_position_embeddings`."""
    encoder = SentenceTransformer(str(word_folder), device="cpu")
    assert warnings_of(caplog, ["明月", "明月山" * 500], encoder) == []
    (warning,) = warnings_of(caplog, ["明月山" * 800, "山明月" * 800], encoder)
    assert_states(warning, "1,536", "max_seq_length")
    encoder.max_seq_length = 8192
    assert warnings_of(caplog, ["明月山" * 800], encoder) == []


def test_the_longest_texts_of_training_are_read_whole(tmp_path):
    """The small model's last stage had 4,096 tokens, which its configuration says."""
    convert(REPOSITORY / "examples" / "roformer-mini-zh", tmp_path / "mini")
    assert SentenceTransformer(str(tmp_path / "mini"), device="cpu").max_seq_length == 4096


def test_a_new_vocabulary_or_a_conversion_leaves_the_vectors(folder, tmp_path):
    """Vectors of a trained Dense, which is not the model's pooler."""
    encoder = SentenceTransformer(str(folder), device="cpu")
    with torch.no_grad():
        encoder[2].linear.weight.mul_(2)
    encoder.save(str(tmp_path / "old"))
    entries = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    (tmp_path / "words.txt").write_text("\n".join([*entries, "我们们"]) + "\n", encoding="utf-8")
    initialise_words(tmp_path / "old", tmp_path / "words.txt", tmp_path / "new")
    convert(tmp_path / "old", tmp_path / "float32")
    convert(tmp_path / "old", tmp_path / "float16", dtype="float16")
    texts = ["我和你", "你听一句"]
    for name, atol in {"new": 1e-6, "float32": 1e-6, "float16": 0.04}.items():
        vectors = SentenceTransformer(str(tmp_path / name), device="cpu").encode(texts)
        np.testing.assert_allclose(vectors, encoder.encode(texts), rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_number_formats(tmp_path, dtype):
    convert(LEGACY / "sim", tmp_path / "sim", family="sim", dtype=dtype)
    dense = load_file(tmp_path / "sim" / "2_Dense" / "model.safetensors")
    whole = load_file(tmp_path / "sim" / "model.safetensors")
    for name in ("weight", "bias"):
        assert dense[f"linear.{name}"].dtype == getattr(torch, dtype)
        assert torch.equal(dense[f"linear.{name}"], whole[f"roformer.pooler.dense.{name}"])
    encoder = SentenceTransformer(str(tmp_path / "sim"), device="cpu")
    found = encoder.encode(SENTENCES, convert_to_tensor=True)
    tolerance = {"float16": 0.02, "bfloat16": 0.1, "float64": 2e-5}[dtype]
    np.testing.assert_allclose(found.float().numpy(), REFERENCE["vectors"], rtol=0, atol=tolerance)


@pytest.mark.slow
def test_a_published_folder_needs_only_its_code(hub, folder, tmp_path):
    """A machine that has sentence-transformers and not this package."""
    push(folder, "somebody/sim", with_code=True)
    script = """
import json
import numpy
from sentence_transformers import SentenceTransformer
encoder = SentenceTransformer("somebody/sim", device="cpu", trust_remote_code=True)
numpy.save(sys.argv[1], encoder.encode(json.loads(sys.argv[2])))
"""
    arguments = tmp_path / "vectors.npy", json.dumps(SENTENCES)
    run_without_package(script, tmp_path, *arguments, environment=hub.environment)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), REFERENCE["vectors"], rtol=0, atol=2e-5)


def test_other_families_have_no_such_files(tmp_path):
    convert(LEGACY / "word", tmp_path / "word")
    assert not (tmp_path / "word" / "modules.json").exists()
