"""`roformer rank`: the order is that of all cosines computed at once."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from helpers.command_line import ROFORMER
from helpers.messages import assert_states, refused
from helpers.small_texts import TEXTS
from helpers.vector_folders import read_settings, with_a_word_of_nan, write_settings

from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.vectors import Match, TextEncoder, embed, rank
from modeling_roformer.serving.vectors.ranking import _BestMatches

QUERY = "今天去看明月"


@pytest.fixture
def vectors(saved, tmp_path, monkeypatch):
    """Vectors of eleven texts in files of four; the last text equals the first. The model is beside them."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved("word"), tmp_path / "word")
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
    ranking = rank(tmp_path / "queries.txt", tmp_path / "vectors", top_k=2, model=saved("word"))
    assert ranking.queries == queries and ranking.finished
    expected = cosines(naive, saved("word"), queries, TEXTS)
    for matches, row in zip(ranking.matches, expected, strict=True):
        assert [match.text for match in matches] == [None, None]
        np.testing.assert_allclose([match.cosine for match in matches], np.sort(row)[:-3:-1], atol=1e-3)
        np.testing.assert_allclose([row[int(match.id)] for match in matches], np.sort(row)[:-3:-1], atol=1e-3)
    assert ranking.matches[2][0].id == "3"
    os.mkfifo(tmp_path / "pipe")
    Thread(target=(tmp_path / "pipe").write_bytes, args=[(tmp_path / "queries.txt").read_bytes()], daemon=True).start()
    assert rank(tmp_path / "pipe", tmp_path / "vectors", top_k=2, model=saved("word")).queries == queries


def test_the_best_of_many_in_any_number_of_files():
    """The result equals that of sorting all of them, with ties."""
    numbers = np.random.default_rng(0).integers(0, 50, 1000).astype(np.float32)
    for top_k in (1, 7, 400):
        best = _BestMatches(top_k)
        for start in range(0, 1000, 130):
            some = numbers[start : start + 130]
            best.add(some, pyarrow.table({"id": [str(start + i) for i in range(len(some))]}))
        order = np.argsort(-numbers, kind="stable")[:top_k]
        assert best.matches == [Match(float(numbers[i]), str(i)) for i in order]


def test_the_table_of_the_command(run, vectors):
    code, out, err = run("rank", QUERY, vectors, "--top-k", 2)
    assert code == 0 and err == ""
    rows = re.findall(r"│ (0\.\d{3}) +│ texts\.txt:\d+ +│ (\S[^│]*\S) +│", out)
    assert len(rows) == 2 and rows[0][0] >= rows[1][0] and {text for _, text in rows} <= set(TEXTS)
    assert "query" not in out


def test_unfinished_vectors_are_ranked_with_a_note(run, vectors):
    begun = read_settings(vectors)
    del begun["done"], begun["shards"]["000001.parquet"], begun["shards"]["000002.parquet"]  # nor is it listed yet
    write_settings(vectors, begun)
    (vectors / "000002.parquet").unlink()
    code, out, err = run("rank", QUERY, vectors, "--top-k", 100)
    assert code == 0 and out.count("texts.txt:") == 4
    assert_states(err, vectors, "not finished")
    (vectors / "000000.parquet").unlink()  # this one is listed
    error_of(run, vectors, states=["000000.parquet is missing"])


def error_of(run, vectors, query=QUERY, *options, states) -> None:
    """Assert that the command fails with one line that states these facts."""
    code, out, err = run("rank", query, vectors, *options)
    assert code == 1 and out == "" and err.count("\n") == 1, (code, out, err)
    assert_states(err, *states)


def swap(a, b):
    data = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda folder: (folder / "000002.parquet").unlink(), "000002.parquet is missing"),
        (lambda folder: swap(folder / "000000.parquet", folder / "000001.parquet"), "000000.parquet is damaged"),
    ],
    ids=["lost", "swapped"],
)
def test_damaged_and_missing_files_are_named(run, vectors, harm, named):
    harm(vectors)
    error_of(run, vectors, states=[named])


def test_a_query_without_a_finite_vector_is_refused(saved, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with_a_word_of_nan(saved("word"), tmp_path / "word", "旋转")
    Path("texts.txt").write_text("今天\n明月\n", encoding="utf-8")
    embed("word", "texts.txt", "vectors")
    Path("queries.txt").write_text("今天\n旋转\n", encoding="utf-8")
    for query in ("旋转", "queries.txt"):
        error_of(run, "vectors", query, states=["query '旋转'", "not finite", "float32"])


@pytest.mark.parametrize("n", [2, 7, 9, 100])
def test_equal_vectors_are_in_the_order_of_the_texts(saved, tmp_path, monkeypatch, n):
    """A product in float32 depends on the position of a row."""
    path = tmp_path / "texts.txt"
    path.write_text("今天\n" * n, encoding="utf-8")
    row = np.random.default_rng(n).normal(size=24).astype(np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(TextEncoder, "vectors", lambda self, rows: np.tile(row, (len(rows.ids), 1)))
        embed(saved("word"), path, tmp_path / "vectors", shard_size=7)
    for query in TEXTS[:5]:
        (matches,) = rank(query, tmp_path / "vectors", top_k=n, model=saved("word")).matches
        assert [match.id for match in matches] == [f"texts.txt:{i + 1}" for i in range(n)]


def test_a_model_that_was_moved_or_is_another(saved, vectors, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert isinstance(rank(QUERY, vectors, top_k=1).matches[0][0], Match)  # it lies beside the vectors
    shutil.move(tmp_path / "word", tmp_path / "moved")
    with refused(ServingError, vectors, "'word'", "--model"):
        rank(QUERY, vectors)
    shutil.copytree(saved("bi"), tmp_path / "word")  # of the same name
    with refused(ServingError, Path("..", "word").resolve(), vectors, "changed", "--model"):
        rank(QUERY, vectors)
    assert isinstance(rank(QUERY, vectors, model=tmp_path / "moved", top_k=1).matches[0][0], Match)
    with refused(ServingError, saved("bi"), vectors, "--model"):
        rank(QUERY, vectors, model=saved("bi"))


def test_queries_and_folders_that_are_refused(run, vectors, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_text("\n")
    for arguments, facts in [
        ((tmp_path / "missing", QUERY), [tmp_path / "missing", "no vectors", "roformer embed"]),
        ((tmp_path / "blank.txt", QUERY), [tmp_path / "blank.txt", "not a folder", "roformer embed"]),
        ((tmp_path / "empty", QUERY), [tmp_path / "empty", "no vectors", "roformer embed"]),
        ((vectors, " "), ["query", "empty"]),
        ((vectors, "\udcff\udcfe"), [r"'\udcff\udcfe'", "encoding"]),  # bytes of another encoding than the terminal's
        ((vectors, tmp_path / "blank.txt"), ["query", "empty"]),
        ((vectors, "queries.tsv"), ["queries.tsv", "does not exist"]),
    ]:
        error_of(run, *arguments, states=facts)


def test_json_of_the_installed_command(saved, vectors, tmp_path):
    """Texts are whole, whatever the terminal's encoding; notes are on stderr, so that stdout is JSON."""
    long = "旋转，" * 60
    Path("long.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in [long, *TEXTS]))
    embed(saved("word"), "long.jsonl", "long", chunk=100, keep_text=True)
    embed(saved("word"), "texts.txt", "without")
    begun = read_settings(vectors)
    del begun["done"]
    write_settings(vectors, begun)
    Path("queries.txt").write_text(f"{QUERY}\n{long}\n", encoding="utf-8")

    def printed_by(query, folder, *options, encoding="utf-8", err="") -> str:
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        command = [ROFORMER, "rank", query, folder, "--top-k", "3", *options]
        done = subprocess.run(command, env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert_states(done.stderr.decode(), err)
        return done.stdout.decode("utf-8")

    def expected(query, folder):
        ranking = rank(query, folder, top_k=3)
        return [
            {"query": query, "results": [as_fields(match) for match in matches]}
            for query, matches in zip(ranking.queries, ranking.matches, strict=True)
        ]

    def as_fields(match):
        fields = {"id": match.id, "score": match.cosine}
        fields |= {} if match.chunk is None else {"chunk": match.chunk}
        return fields | ({} if match.text is None else {"text": match.text})

    for query, folder, encoding, err in [
        (QUERY, vectors, "ascii", "not finished"),
        ("queries.txt", "without", "latin-1", ""),
        ("queries.txt", "long", "utf-8", ""),
    ]:
        printed = printed_by(query, folder, "--json", encoding=encoding, err=err)
        lines = printed.split("\n")
        assert lines.pop() == "" and list(map(json.loads, lines)) == expected(query, folder)
        assert printed_by(query, folder, "--output", "new/results.jsonl", "--force", err=err) == "new/results.jsonl\n"
        assert Path("new/results.jsonl").read_text(encoding="utf-8") == printed
    best = json.loads(lines[1])["results"][0]
    assert best["id"] == "long.jsonl:1" and len(best["text"]) > 60 and best["text"] in long


def test_an_output_that_would_replace_something_is_refused(run, vectors, tmp_path):
    Path("queries.txt").write_text(QUERY, encoding="utf-8")
    Path("results.jsonl").write_text("of yesterday")
    os.mkfifo("pipe")
    model = tmp_path / "word"
    before = {path: path.read_bytes() for folder in (vectors, model) for path in folder.iterdir()}
    for query, output, *force in [
        (QUERY, "results.jsonl"),
        (QUERY, tmp_path, "--force"),
        (QUERY, "pipe", "--force"),
        ("queries.txt", tmp_path / "queries.txt", "--force"),
        (QUERY, vectors / "000000.parquet", "--force"),
        (QUERY, vectors / "new.jsonl"),
        (QUERY, model / "config.json", "--force"),
    ]:
        error_of(run, vectors, query, "--output", output, *force, states=[output])
    assert Path("results.jsonl").read_text() == "of yesterday"
    assert before == {path: path.read_bytes() for folder in (vectors, model) for path in folder.iterdir()}


def test_standard_output_is_not_replaced(tmp_path):
    """The system would lose its link, if root runs the command. The missing vectors keep a failing test from that."""
    with open(tmp_path / "out.txt", "w") as out:
        command = [ROFORMER, "rank", QUERY, tmp_path / "missing", "--output", "/dev/stdout", "--force"]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert_states(done.stderr, "/dev/stdout")


@pytest.mark.parametrize("top_k", [0, -1])
def test_no_result_is_refused(vectors, top_k):
    with refused(ServingError, "top_k", top_k):
        rank(QUERY, vectors, top_k=top_k)
