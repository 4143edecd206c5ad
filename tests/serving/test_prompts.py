"""Prompts of sentence-transformers: `roformer embed`, `rank`, `export-onnx --vectors` and the page compute what its
`encode_document`, `encode_query` and `encode` do."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from helpers.messages import assert_states, refused
from helpers.small_texts import TEXTS
from helpers.vector_folders import contents, read_vectors

from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.onnx_export import export_onnx
from modeling_roformer.serving.page import similarity
from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.serving.pooling import PROMPTS as FILE
from modeling_roformer.serving.prompts import prompts_of
from modeling_roformer.serving.vectors import embed, rank
from modeling_roformer.serving.vectors.encoder import TextEncoder, model_identity

sentence_transformers = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
PROMPTS = {"query": "故事：", "document": "所以我们听孩"}
MORE = {"document": "明", "query": None, "passage": "文章："}
QUERIES = ["明月", "孩子在桥头数星星"]


@pytest.fixture(scope="module")
def plain(saved, tmp_path_factory):
    """Save an encoder by sentence-transformers; return the folder."""
    folder = tmp_path_factory.mktemp("plain") / "plain"
    encoder = modules.Transformer(str(saved("word")))
    parts = [encoder, modules.Pooling(encoder.get_embedding_dimension(), "mean")]
    sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(folder))
    return folder


@pytest.fixture
def prompted(plain, tmp_path):
    """Return a function that makes a model with prompts; it returns the folder."""

    def prompted(prompts, mode="mean", include_prompt=True, **settings):
        folder = tmp_path / "prompted"
        shutil.copytree(plain, folder, dirs_exist_ok=True)
        change(folder / "1_Pooling" / "config.json", pooling_mode=mode, include_prompt=include_prompt)
        change(folder / FILE, prompts=prompts, **settings)
        return folder

    return prompted


def change(path, **fields):
    """Change fields of a file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")


def theirs(folder):
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def cosines(a, b):
    return (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T


@pytest.mark.parametrize(
    ("prompts", "mode", "include_prompt"),
    [
        (PROMPTS, "mean", True),
        (PROMPTS, "mean_sqrt_len_tokens", False),
        (MORE, "mean", False),
        (MORE, "mean_sqrt_len_tokens", True),
        (MORE, "cls", False),
        ({"query": " "}, "mean", False),
    ],
)
def test_vectors_are_those_of_encode_query_and_encode_document(prompted, prompts, mode, include_prompt):
    """A prompt may end in another word with a text behind it, as 明 does before 月; with it, texts are truncated."""
    folder, texts = prompted(prompts, mode, include_prompt=include_prompt), ["月", *TEXTS, "明月" * 50]
    model = theirs(folder)
    for max_length in (None, 9):
        model.max_seq_length = max_length or model.max_seq_length
        encoder = TextEncoder(folder, max_length=max_length, device="cpu")
        np.testing.assert_allclose(encoder(texts), model.encode_document(texts), atol=2e-6, rtol=1e-5)
        np.testing.assert_allclose(encoder(texts, "document"), model.encode_document(texts), atol=2e-6, rtol=1e-5)
        np.testing.assert_allclose(encoder(texts, "query"), model.encode_query(texts), atol=2e-6, rtol=1e-5)


def test_embed_and_rank_are_encode_document_and_encode_query(prompted, tmp_path):
    folder = prompted(PROMPTS, "mean", include_prompt=False)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    embed(folder, tmp_path / "texts.txt", tmp_path / "out", keep_text=True, shard_size=4)
    _, vectors, texts = read_vectors(tmp_path / "out")
    model = theirs(folder)
    assert texts == TEXTS
    np.testing.assert_allclose(vectors, model.encode_document(TEXTS), atol=2e-6)
    expected = cosines(model.encode_query(QUERIES), model.encode_document(TEXTS))
    without = cosines(model.encode(QUERIES), model.encode(TEXTS))
    assert np.abs(expected - without).max() > 0.02
    for matches, row in zip(rank(QUERIES, tmp_path / "out").matches, expected, strict=True):
        found = {match.text: match.cosine for match in matches}
        np.testing.assert_allclose([found[text] for text in TEXTS], row, atol=2e-6)


def test_each_chunk_has_the_prompt(prompted, tmp_path):
    """The vector of a chunk is that of its text with the prompt, where the tokens of both are the same apart."""
    folder = prompted({"document": "文章："}, include_prompt=False)
    long = "今天天气非常好，我们去看明月。" * 9
    (tmp_path / "texts.txt").write_text(long, encoding="utf-8")
    embed(folder, tmp_path / "texts.txt", tmp_path / "out", keep_text=True, chunk=16, overlap=3)
    ids, vectors, texts = read_vectors(tmp_path / "out")
    encoder = TextEncoder(folder, device="cpu")
    assert ids == ["texts.txt:1"] * len(texts) and len(texts) > 5
    np.testing.assert_allclose(vectors, theirs(folder).encode_document(texts), atol=2e-6)
    assert [len(row) for row in encoder.rows(texts, texts).tokens[:-1]] == [16] * (len(texts) - 1)
    for options, facts in (
        ({"chunk": 5}, ["chunk", 5, 3, 6]),
        ({"chunk": 16, "overlap": 11}, ["overlap", 11, 10, 16, 3]),
        ({"max_length": 5}, ["max_length", 5, 3, 6]),
    ):
        with refused(ServingError, *facts):
            embed(folder, tmp_path / "texts.txt", tmp_path / "other", **options)
        assert not (tmp_path / "other").exists()


def test_vectors_of_other_prompts_are_not_mixed(prompted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    folder = prompted({"document": "查询："})
    embed(folder, "texts.txt", "out", shard_size=4)
    whole = contents(tmp_path / "out")
    change(folder / FILE, prompts=PROMPTS)
    with refused(ServingError, "out", "model's files"):
        embed(folder, "texts.txt", "out", shard_size=4)
    with refused(ServingError, "out", "prompted"):
        rank("今天", "out")
    assert contents(tmp_path / "out") == whole


def test_the_identity_of_a_model_without_modules(saved):
    """SHA-256 of its files, as folders of vectors hold it."""
    found, names = hashlib.sha256(), ("config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt")
    folder = saved("word")
    paths = sorted([*(folder / name for name in names), *folder.glob("tokenizer.json")])
    for path in paths:
        found.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    assert model_identity(folder) == found.hexdigest()


def test_a_default_prompt(prompted):
    """It is one of `encode` alone: `encode_query` and `encode_document` do not take it."""
    folder = prompted(PROMPTS, default_prompt_name="document")
    model, encoder = theirs(folder), TextEncoder(folder, device="cpu")
    np.testing.assert_allclose(encoder(TEXTS), model.encode_document(TEXTS), atol=2e-6)
    np.testing.assert_allclose(encoder(TEXTS), model.encode(TEXTS), atol=2e-6)
    np.testing.assert_allclose(encoder(TEXTS, "query"), model.encode_query(TEXTS), atol=2e-6)
    change(folder / FILE, default_prompt_name="query", prompts={"query": "查询："})
    model, encoder = theirs(folder), TextEncoder(folder, device="cpu")
    np.testing.assert_allclose(encoder(TEXTS), model.encode_document(TEXTS), atol=2e-6)
    change(folder / FILE, default_prompt_name="similar", prompts={"similar": ""})
    assert not any(prompts_of(folder).values())


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"prompts": {"similar": "比较："}, "default_prompt_name": "similar"}, ["default_prompt_name", "'similar'"]),
        ({"prompts": PROMPTS, "default_prompt_name": "other"}, ["default_prompt_name", "'other'", "query, document"]),
        ({"prompts": {"query": "查询：", "passage": "文章："}}, ["'passage'", "'document'"]),
        ({"prompts": {"corpus": "文章：", "document": ""}}, ["'corpus'", "'document'"]),
    ],
)
def test_prompts_that_sentence_transformers_does_not_take(prompted, run, tmp_path, settings, facts):
    folder = prompted({})
    change(folder / FILE, **settings)
    (tmp_path / "texts.txt").write_text("今天", encoding="utf-8")
    code, out, err = run("embed", folder, tmp_path / "texts.txt", tmp_path / "out")
    assert (code, out) == (1, "") and err.count("\n") == 1 and not (tmp_path / "out").exists()
    assert_states(err, folder / FILE, *facts)


def test_without_modules_the_file_is_not_read(prompted):
    folder = prompted(PROMPTS)
    (folder / "modules.json").unlink()
    np.testing.assert_allclose(TextEncoder(folder, device="cpu")(TEXTS), theirs(folder).encode(TEXTS), atol=2e-6)
    assert not any(prompts_of(folder).values())


@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts_of_a_dense(saved, tmp_path, include_prompt):
    folder = shutil.copytree(saved("sim"), tmp_path / "sim")
    change(folder / FILE, prompts=PROMPTS)
    change(folder / "1_Pooling" / "config.json", include_prompt=include_prompt)
    model, encoder = theirs(folder), TextEncoder(folder, device="cpu")
    np.testing.assert_allclose(encoder(TEXTS), model.encode_document(TEXTS), atol=2e-6)
    np.testing.assert_allclose(encoder(TEXTS, "query"), model.encode_query(TEXTS), atol=2e-6)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_the_page_ranks_with_prompts_and_compares_as_encode_does(prompted, include_prompt):
    folder = prompted(PROMPTS, include_prompt=include_prompt, default_prompt_name="query")
    model, served = theirs(folder), ServedModel(folder)
    cases, found, _ = similarity.rank(served, QUERIES[0], "\n".join(TEXTS))
    (expected,) = cosines(model.encode_query(QUERIES[:1]), model.encode_document(TEXTS))
    np.testing.assert_allclose(found, np.sort(expected)[::-1], atol=2e-6)
    assert cases[0] == TEXTS[int(expected.argmax())]
    _, table, _ = similarity.compare(served, "\n".join(TEXTS))
    np.testing.assert_allclose(table, cosines(model.encode(TEXTS), model.encode(TEXTS)), atol=2e-6)
    with refused(ServingError, "the query"):
        similarity.rank(served, " ", "今天")


@pytest.mark.slow
def test_the_graph_computes_prompts_that_are_in_the_text(prompted, tmp_path):
    """It gets token ids, so the summary and the card say which prompts to put before texts."""
    from modeling_roformer.serving.onnx_export.agreement import open_session

    folder = prompted(PROMPTS)
    report = export_onnx(folder, tmp_path / "onnx", vectors=True)
    card = (tmp_path / "onnx" / "README.md").read_text(encoding="utf-8")
    model, tokenizer = theirs(folder), TextEncoder(folder).tokenizer
    graph = open_session(tmp_path / "onnx" / "onnx" / "model.onnx")
    for task, encode in (("query", model.encode_query), ("document", model.encode_document)):
        assert PROMPTS[task] in card and PROMPTS[task] in str(report.prompts)
        (found,) = graph.run(["sentence_embedding"], dict(tokenizer(PROMPTS[task] + TEXTS[0], return_tensors="np")))
        np.testing.assert_allclose(found, encode(TEXTS[:1], normalize_embeddings=True), atol=2e-6)


def test_a_graph_cannot_leave_prompts_out(prompted, tmp_path):
    folder = prompted(PROMPTS, include_prompt=False)
    with refused(ServingError, folder, "include_prompt", "--vectors"):
        export_onnx(folder, tmp_path / "onnx", vectors=True)
    assert not (tmp_path / "onnx").exists()
