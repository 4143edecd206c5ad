"""`roformer rank`: the order is that of all cosines, computed at once."""

import json
import re
import shutil
from pathlib import Path

import command_line
import numpy as np
import pyarrow.parquet
import pytest
from small_texts import TEXTS

from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.vectors import Match, embed, rank
from modeling_roformer.serving.vectors.rank import _Best

run = command_line.run  # the fixture
QUERY = "今天去看明月"


@pytest.fixture
def vectors(saved, tmp_path, monkeypatch):
    """Of eleven texts, the last of which is the first again, in files of four."""
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("".join(text + "\n" for text in [*TEXTS, TEXTS[0]]), encoding="utf-8")
    embed(saved("word"), "texts.txt", tmp_path / "vectors", shard_size=4, keep_text=True)
    return tmp_path / "vectors"


def cosines(naive, folder, queries, texts):
    a, b = (naive(folder, some, "mean").astype(np.float64) for some in (queries, texts))
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    return a @ b.T


def test_matches_are_the_largest_cosines(saved, naive, vectors, tmp_path):
    texts = [*TEXTS, TEXTS[0]]
    (expected,) = cosines(naive, saved("word"), [QUERY], texts)
    order = np.argsort(-expected, kind="stable")
    for top_k in (1, 3, 5, 11, 20):
        (matches,) = rank(QUERY, vectors, top_k=top_k).matches
        assert [match.text for match in matches] == [texts[i] for i in order[:top_k]]
        np.testing.assert_allclose([match.cosine for match in matches], expected[order[:top_k]], atol=1e-6)
    # Of the two that are equal the first comes first.
    places = [match.id.rpartition(":")[2] for match in matches if match.text == TEXTS[0]]
    assert places == ["1", "11"]


def test_a_file_of_queries_and_half_precision(saved, naive, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(TEXTS)))
    embed(saved("word"), path, tmp_path / "vectors", id_field="id", vector_dtype="float16")
    queries = [QUERY, "旋转", TEXTS[3]]
    (tmp_path / "queries.txt").write_text("\n".join(queries), encoding="utf-8")
    ranking = rank(tmp_path / "queries.txt", tmp_path / "vectors", top_k=2)
    assert ranking.queries == queries and ranking.finished
    expected = cosines(naive, saved("word"), queries, TEXTS)
    for matches, row in zip(ranking.matches, expected, strict=True):
        assert [match.text for match in matches] == [None, None]
        np.testing.assert_allclose([match.cosine for match in matches], np.sort(row)[:-3:-1], atol=1e-3)
        np.testing.assert_allclose([row[int(match.id)] for match in matches], np.sort(row)[:-3:-1], atol=1e-3)
    assert ranking.matches[2][0].id == "3"


def test_the_best_of_many_in_any_number_of_files():
    """Against sorting them all, with equal ones among them."""
    numbers = np.random.default_rng(0).integers(0, 50, 1000).astype(np.float32)
    for top_k in (1, 7, 400):
        best = _Best(top_k)
        for start in range(0, 1000, 130):
            best.add(start // 130, numbers[start : start + 130])
        order = np.argsort(-numbers, kind="stable")[:top_k]
        assert [130 * file + row for file, row in best.places] == order.tolist()
        assert best.cosines.tolist() == numbers[order].tolist()


def test_what_the_command_prints(run, vectors):
    code, out, err = run("rank", QUERY, vectors, "--top-k", 2)
    assert code == 0 and err == ""
    rows = re.findall(r"│ (0\.\d{3}) +│ texts\.txt:\d+ +│ (\S[^│]*\S) +│", out)
    assert len(rows) == 2 and rows[0][0] >= rows[1][0] and {text for _, text in rows} <= set(TEXTS)
    assert "query" not in out


def test_vectors_that_are_not_all_there_are_ranked_with_a_note(run, vectors):
    path = vectors / "run.json"
    begun = json.loads(path.read_text(encoding="utf-8"))
    del begun["done"]
    path.write_text(json.dumps(begun), encoding="utf-8")
    (vectors / "000002.parquet").unlink()
    code, out, err = run("rank", QUERY, vectors, "--top-k", 100)
    assert code == 0 and out.count("texts.txt:") == 8 and "is not finished" in err


def test_a_model_that_was_moved_or_is_another(saved, vectors, tmp_path):
    path = vectors / "run.json"
    begun = json.loads(path.read_text(encoding="utf-8"))
    assert begun["model_path"] == str(saved("word"))
    path.write_text(json.dumps({**begun, "model_path": str(tmp_path / "gone")}), encoding="utf-8")
    with pytest.raises(ServingError, match=r"is no longer at .*gone: --model names its folder"):
        rank(QUERY, vectors)
    shutil.copytree(saved("word"), tmp_path / "moved")
    assert isinstance(rank(QUERY, vectors, model=tmp_path / "moved", top_k=1).matches[0][0], Match)
    with pytest.raises(ServingError, match="is not the model that made the vectors"):
        rank(QUERY, vectors, model=saved("bi"))


def test_what_cannot_be_ranked(run, vectors, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_text("\n")
    for arguments, what in [
        ((QUERY, tmp_path / "missing"), "does not exist: `roformer embed` makes"),
        ((QUERY, tmp_path / "empty"), "holds no vectors"),
        ((QUERY, vectors, "--top-k", 0), "top_k is 0"),
        ((" ", vectors), "the query is empty"),
        ((tmp_path / "blank.txt", vectors), "there is no text in"),
    ]:
        code, out, err = run("rank", *arguments)
        assert code == 1 and out == "" and err.count("\n") == 1 and what in err, err
    file = vectors / "000001.parquet"
    data = bytearray(file.read_bytes())
    vector = pyarrow.parquet.read_table(file)["vector"].to_pylist()[0]
    data[data.find(np.float32(vector[0]).tobytes() + np.float32(vector[1]).tobytes())] ^= 1
    file.write_bytes(data)
    code, out, err = run("rank", QUERY, vectors)
    assert code == 1 and f"{file} is damaged" in err
