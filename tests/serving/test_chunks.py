"""`roformer embed --chunk` and `--sample-by`: documents in overlapping chunks, and `roformer rank` among them."""

import json
import shutil
import signal
import subprocess
import time

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from helpers import command_line
from helpers.messages import assert_states, refused
from helpers.small_texts import TEXTS
from helpers.vector_folders import contents, read_vectors, shards_of
from transformers import AutoModel, AutoTokenizer

from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.vectors import embed, rank
from modeling_roformer.serving.vectors.encoder import TextEncoder

LONG = [
    "今天天气非常好，我们去看明月。\n" * 9,
    "旋转",
    "明月旋转，我们慢慢旋转。今天天气很好。" * 3,
    "The moon 50 今天",
]


@pytest.fixture
def articles(tmp_path):
    """Write a folder of four files, one text each, and a blank one."""
    folder = tmp_path / "articles"
    (folder / "more").mkdir(parents=True)
    for name, text in zip(("a.txt", "b.txt", "more/c.txt", "more/d.txt"), LONG, strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "blank.txt").write_text("\n \n", encoding="utf-8")
    return folder


NAMES = ["articles/a.txt", "articles/b.txt", "articles/more/c.txt", "articles/more/d.txt"]


def windows(n: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """Return the first token and the end of each chunk of `room` tokens of n, by walking from chunk to chunk."""
    found = [(0, min(room, n))]
    while found[-1][1] < n:
        first = found[-1][1] - overlap
        found.append((first, min(first + room, n)))
    return found


@torch.no_grad()
def naive(folder, names, texts, pooling, chunk, overlap):
    """Return the ids, vectors, texts and numbers of all chunks, computed one at a time."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids, vectors, kept, numbers = [], [], [], []
    for name, text in zip(names, texts, strict=True):
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        tokens, offsets = encoding["input_ids"], encoding["offset_mapping"]
        for number, (first, end) in enumerate(windows(len(tokens), chunk - 2, overlap), 1):
            row = [tokenizer.cls_token_id, *tokens[first:end], tokenizer.sep_token_id]
            outputs = model(torch.tensor([row]))
            vector = outputs.pooler_output[0] if pooling == "pooler" else outputs.last_hidden_state[0].mean(dim=0)
            vectors.append(vector / vector.norm() if pooling == "bi" else vector)
            ids.append(name)
            numbers.append(number)
            kept.append(text[offsets[first][0] : offsets[end - 1][1]])
    return ids, torch.stack(vectors).numpy(), kept, numbers


def numbers_of(folder):
    """Return the column of the chunks' numbers."""
    return pyarrow.parquet.read_table(folder)["chunk"].to_pylist()


@pytest.mark.parametrize(("kind", "pooling"), [("word", "mean"), ("bi", "bi"), ("sim", "pooler")])
@pytest.mark.parametrize("overlap", [None, 5])
def test_the_chunks_of_whole_files_are_the_formulas(saved, articles, tmp_path, kind, pooling, overlap):
    report = embed(
        saved(kind),
        articles,
        tmp_path / "out",
        sample_by="document",
        chunk=16,
        overlap=overlap,
        keep_text=True,
        shard_size=2,
    )
    expected = naive(saved(kind), NAMES, LONG, pooling, 16, overlap or 0)
    ids, vectors, texts = read_vectors(tmp_path / "out")
    assert (ids, texts, numbers_of(tmp_path / "out")) == (expected[0], expected[2], expected[3])
    columns = pyarrow.parquet.read_schema(tmp_path / "out" / "000000.parquet")
    assert columns.names == ["id", "chunk", "vector", "text"] and columns.field("chunk").type == pyarrow.int32()
    np.testing.assert_allclose(vectors, expected[1], atol=2e-6)
    assert (report.texts, report.shards, report.left_out, report.truncated, report.chunks) == (4, 2, 1, 0, len(ids))


def test_whole_files_without_chunks_are_truncated_once(saved, articles, tmp_path):
    (articles / "e.jsonl").write_text('{"text": "今天"}\n{"text": "明月"}\n', encoding="utf-8")
    report = embed(saved("word"), articles, tmp_path / "out", sample_by="document", max_length=16, keep_text=True)
    ids, vectors, texts = read_vectors(tmp_path / "out")
    names = [*NAMES[:2], "articles/e.jsonl:1", "articles/e.jsonl:2", *NAMES[2:]]
    assert ids == names and texts == [*LONG[:2], "今天", "明月", *LONG[2:]]
    assert (report.texts, report.truncated, report.chunks) == (6, 2, None)
    first = naive(saved("word"), ["x"], LONG[:1], "mean", 16, 0)[1][0]
    np.testing.assert_allclose(vectors[0], first, atol=2e-6)


def test_a_tokenizer_that_truncates_on_the_left_does_not_turn_the_chunks_around(saved, articles, tmp_path):
    folder = shutil.copytree(saved("word"), tmp_path / "left")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "truncation_side": "left"}))
    embed(folder, articles, tmp_path / "out", sample_by="document", chunk=16, overlap=3, keep_text=True)
    ids, vectors, texts = read_vectors(tmp_path / "out")
    expected = naive(folder, NAMES, LONG, "mean", 16, 3)
    assert (ids, texts, numbers_of(tmp_path / "out")) == (expected[0], expected[2], expected[3])
    np.testing.assert_allclose(vectors, expected[1], atol=2e-6)


@pytest.mark.slow
def test_the_command_that_is_killed_resumes(run, saved, articles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(200):
        (articles / f"n{i:03d}.txt").write_text(LONG[i % 4] + str(i), encoding="utf-8")
    options = ["--sample-by", "document", "--chunk", 16, "--overlap", 4, "--shard-size", 1]
    command = [command_line.ROFORMER, *map(str, ["embed", saved("word"), "articles", "out", *options])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(shards_of(tmp_path / "out")) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    code, out, err = run("embed", saved("word"), "articles", "out", *options)
    assert code == 0, err
    names = sorted(path.relative_to(tmp_path).as_posix() for path in articles.rglob("*.txt"))
    names.remove("articles/blank.txt")
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in names]
    expected = naive(saved("word"), names, texts, "mean", 16, 4)
    ids, vectors, _ = read_vectors(tmp_path / "out")
    assert (ids, numbers_of(tmp_path / "out")) == (expected[0], expected[3])
    np.testing.assert_allclose(vectors, expected[1], atol=2e-6)
    assert_states(out, 204, f"{len(ids):,}", "kept")


def test_other_chunks_or_texts_do_not_resume(saved, articles, tmp_path):
    out = tmp_path / "out"
    embed(saved("word"), articles, out, sample_by="document", chunk=16, overlap=4)
    before = contents(out)
    for changed, facts in [
        ({"chunk": 12}, ["--chunk: 16 there, 12 now"]),
        ({"chunk": None, "overlap": None}, ["--chunk: 16 there, none now", "--overlap: 4 there, none now"]),
        ({"overlap": None}, ["--overlap: 4 there, none now"]),
        ({"sample_by": "line"}, ["--sample-by: document there, line now"]),
    ]:
        with refused(ServingError, out, *facts):
            embed(saved("word"), articles, out, **{"sample_by": "document", "chunk": 16, "overlap": 4} | changed)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"chunk": 2}, ["chunk", 2, 3]),
        ({"chunk": 16, "overlap": 14}, ["overlap", 14, 13, 16]),
        ({"chunk": 16, "overlap": -1}, ["overlap", -1, 0, 13]),
        ({"overlap": 4}, ["overlap", 4, "--chunk"]),
        ({"chunk": 16, "max_length": 16}, ["chunk", "max_length", 16]),
    ],
)
def test_options_that_do_not_fit(saved, articles, tmp_path, options, facts):
    with refused(ServingError, *facts):
        embed(saved("word"), articles, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shard_size", [1, 3, 100])
def test_a_document_is_ranked_once_by_its_best_chunk(saved, articles, tmp_path, shard_size):
    options = {"sample_by": "document", "chunk": 10, "overlap": 2, "keep_text": True, "shard_size": shard_size}
    embed(saved("word"), articles, tmp_path / "out", **options)
    ids, vectors, texts, numbers = naive(saved("word"), NAMES, LONG, "mean", 10, 2)
    queries = [TEXTS[0], "旋转", "The moon"]
    model = TextEncoder(saved("word"), device="cpu")
    asked = model(queries).astype(np.float64)
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    cosines = unit(asked) @ unit(vectors.astype(np.float64)).T
    assert len(ids) > 12
    for top_k in (1, 2, 10):
        ranking = rank(queries, tmp_path / "out", top_k=top_k, model=saved("word"))
        for matches, row in zip(ranking.matches, cosines, strict=True):
            best = {}
            for i in np.argsort(-row.astype(np.float32).round(6), kind="stable"):
                best.setdefault(ids[i], i)
            expected = list(best.values())[:top_k]
            found = [(match.id, match.chunk, match.text) for match in matches]
            assert found == [(ids[i], numbers[i], texts[i]) for i in expected]
            np.testing.assert_allclose([match.cosine for match in matches], row[expected], atol=1e-6)


def test_of_equal_chunks_the_first_is_shown(saved, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("今天" * 60 + "\n" + "今天" * 60 + "\n", encoding="utf-8")
    embed(saved("word"), path, tmp_path / "out", chunk=12)
    (matches,) = rank("今天" * 10, tmp_path / "out", model=saved("word")).matches
    assert [(match.id, match.chunk) for match in matches] == [("texts.txt:1", 1), ("texts.txt:2", 1)]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_an_id_may_end_like_that_of_a_chunk(saved, tmp_path):
    """Chunk 1 of the text `a` is not the text `a#1`."""
    rows = [{"id": "a", "text": LONG[2]}, {"id": "a#1", "text": LONG[0]}, {"id": "a#1#1", "text": "旋转"}]
    write_rows(tmp_path / "texts.jsonl", rows)
    embed(saved("word"), tmp_path / "texts.jsonl", tmp_path / "out", id_field="id", chunk=12, overlap=3)
    expected = naive(saved("word"), [row["id"] for row in rows], [LONG[2], LONG[0].strip(), "旋转"], "mean", 12, 3)
    assert (read_vectors(tmp_path / "out")[0], numbers_of(tmp_path / "out")) == (expected[0], expected[3])
    (matches,) = rank("旋转", tmp_path / "out", model=saved("word")).matches
    assert sorted(match.id for match in matches) == ["a", "a#1", "a#1#1"] and matches[0].id == "a#1#1"


def test_the_commands(run, saved, articles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--sample-by", "document", "--chunk", 16, "--overlap", 4, "--keep-text"]
    code, out, err = run("embed", saved("word"), "articles", "out", *options)
    assert code == 0, err
    chunks = len(naive(saved("word"), NAMES, LONG, "mean", 16, 4)[0])
    assert "│ texts    │ 4" in out and f"│ chunks   │ {chunks}" in out
    code, out, err = run("rank", "旋转", "out", "--model", saved("word"))
    assert code == 0, err
    assert [out.count(f" {name} ") for name in NAMES] == [1, 1, 1, 1] and "chunk" in out
