"""`roformer embed`: the vectors are those of the naive formula, whatever holds the texts and however often it was stopped."""

import gzip
import json
import shutil
import sys

import command_line
import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from small_texts import TEXTS

from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.vectors import TextEncoder, embed
from modeling_roformer.serving.vectors import texts as texts_module
from modeling_roformer.serving.vectors.repeated_ids import repeated_ids
from modeling_roformer.serving.vectors.vector_folder import VectorFolder

run = command_line.run  # the fixture


@pytest.fixture
def texts(tmp_path):
    """A file of ten texts, with a blank line among them."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*TEXTS[:4], "", *TEXTS[4:]]) + "\n", encoding="utf-8")
    return path


def read(folder):
    """Ids, vectors, and texts or None, of all shards."""
    tables = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    table = pyarrow.concat_tables(tables)
    vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    return table["id"].to_pylist(), vectors, table["text"].to_pylist() if "text" in table.column_names else None


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("word", "mean"), ("bi", "bi"), ("sim", "pooler"), ("wobert", "mean"), ("v2", "mean")],
)
def test_vectors_are_the_formulas(saved, naive, texts, tmp_path, kind, pooling):
    report = embed(saved(kind), texts, tmp_path / "out", shard_size=4, batch_tokens=40)
    ids, vectors, _ = read(tmp_path / "out")
    assert ids == [f"{texts}:{line}" for line in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11)]
    longest = 16 if kind == "wobert" else None  # where its positions end
    np.testing.assert_allclose(vectors, naive(saved(kind), TEXTS, pooling, longest), atol=2e-6)
    assert (report.texts, report.shards, report.kept, report.width) == (10, 3, 0, vectors.shape[1])
    schema = pyarrow.parquet.read_schema(tmp_path / "out" / "000000.parquet")
    assert schema.field("vector").type == pyarrow.list_(pyarrow.float32(), report.width)


def test_a_bi_encoders_vectors_are_those_of_encode(saved, texts, tmp_path):
    from transformers import AutoTokenizer

    from modeling_roformer import RoFormerForTripletMatching

    embed(saved("bi"), texts, tmp_path / "out")
    model = RoFormerForTripletMatching.from_pretrained(saved("bi"))
    expected = model.encode(TEXTS, AutoTokenizer.from_pretrained(saved("bi")))
    np.testing.assert_allclose(read(tmp_path / "out")[1], expected.numpy(), atol=2e-6)


@pytest.mark.parametrize("kind", ["word", "sim"])
def test_vectors_are_those_of_sentence_transformers(saved, kind):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(saved(kind)), device="cpu")
    long = "今天天气非常好，" * 500  # more tokens than "word" states positions
    encoder = TextEncoder(saved(kind), device="cpu")
    np.testing.assert_allclose(encoder([*TEXTS, long]), model.encode([*TEXTS, long]), atol=2e-6)
    assert len(encoder.tokenize([long])[0]) == (1536 if kind == "word" else 4002)


def test_texts_are_cut_and_stored_in_half_precision_with_themselves(saved, naive, texts, tmp_path):
    embed(saved("word"), texts, tmp_path / "out", max_length=5, vector_dtype="float16", keep_text=True)
    _, vectors, kept = read(tmp_path / "out")
    assert kept == TEXTS
    np.testing.assert_allclose(vectors, naive(saved("word"), TEXTS, "mean", max_length=5), rtol=2e-3, atol=2e-3)
    schema = pyarrow.parquet.read_schema(tmp_path / "out" / "000000.parquet")
    assert schema.field("vector").type.value_type == pyarrow.float16()


def test_bfloat16_is_near(saved, naive):
    vectors = TextEncoder(saved("word"), dtype="bfloat16", device="cpu")(TEXTS)
    assert vectors.dtype == np.float32
    expected = naive(saved("word"), TEXTS, "mean")
    assert 0 < np.abs(vectors - expected).max() < 0.1


def write_all(folder):
    """The same ten texts in every form that is read, two of each; gives the sources and the ids."""
    folder.mkdir()
    rows = [{"body": text, "key": i} for i, text in enumerate(TEXTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows[:2])
    (folder / "a.jsonl").write_text(lines)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows[2:4]).encode()))
    (folder / "more").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[4:6]), folder / "more" / "c.parquet")
    (folder / "more" / "readme.md").write_text("no text of the corpus")
    table = pyarrow.Table.from_pylist([*rows[6:8], {"body": " ", "key": 99}, {"body": None, "key": 98}])
    table = table.set_column(0, "body", table["body"].dictionary_encode())
    pyarrow.parquet.write_table(table, folder.parent / "d.parquet")
    return [folder, folder.parent / "d.parquet"]


def test_whatever_holds_the_texts(saved, naive, tmp_path, monkeypatch):
    monkeypatch.setattr(texts_module, "_PIECE", 16)  # bytes, so that a file has several
    sources = write_all(tmp_path / "corpus")
    embed(saved("word"), sources, tmp_path / "out", field="body", id_field="key", shard_size=3)
    ids, vectors, _ = read(tmp_path / "out")
    assert ids == [str(i) for i in range(8)]
    np.testing.assert_allclose(vectors, naive(saved("word"), TEXTS[:8], "mean"), atol=2e-6)
    embed(saved("word"), sources, tmp_path / "unnamed", field="body")
    corpus = tmp_path / "corpus"
    assert read(tmp_path / "unnamed")[0] == [
        *(f"{corpus}/a.jsonl:{i}" for i in (1, 2)), *(f"{corpus}/b.jsonl.gz:{i}" for i in (1, 2)),
        *(f"{corpus}/more/c.parquet:{i}" for i in (1, 2)), *(f"{tmp_path}/d.parquet:{i}" for i in (1, 2)),
    ]  # fmt: skip


def test_a_data_set(saved, naive, tmp_path, monkeypatch):
    names = []

    def load_dataset(path, config, **options):
        names.append((path, config, options["split"]))
        return datasets.Dataset.from_dict({"body": TEXTS, "key": [f"k{i}" for i in range(10)]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    embed(saved("word"), "some-set:zh", tmp_path / "out", field="body", id_field="key")
    ids, vectors, _ = read(tmp_path / "out")
    assert set(names) == {("some-set", "zh", "train")} and ids == [f"k{i}" for i in range(10)]
    np.testing.assert_allclose(vectors, naive(saved("word"), TEXTS, "mean"), atol=2e-6)


def test_a_stopped_run_goes_on_and_ends_as_one_that_was_not(saved, texts, tmp_path, monkeypatch):
    arguments = {"shard_size": 2, "keep_text": True}
    embed(saved("word"), texts, tmp_path / "whole", **arguments)
    out, computed = tmp_path / "out", []
    vectors = TextEncoder.vectors

    def until_the_third(self, ids):
        if len(computed) == 3:
            raise KeyboardInterrupt
        computed.append(len(ids))
        return vectors(self, ids)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TextEncoder, "vectors", until_the_third)
        embed(saved("word"), texts, out, **arguments)
    assert 1 <= len(list(out.glob("*.parquet"))) <= 3 and "done" not in json.loads((out / "run.json").read_text())
    # One of those there is damaged: a bit of a vector.
    damaged = out / "000000.parquet"
    data = bytearray(damaged.read_bytes())
    place = data.find(first_numbers(tmp_path / "whole"))
    data[place] ^= 1
    damaged.write_bytes(data)
    (out / ".000004.parquet.unfinished").write_bytes(b"what a killed process left")
    kept = len(list(out.glob("*.parquet"))) - 1
    report = embed(saved("word"), texts, out, **arguments)
    assert (report.kept, report.again, report.texts, report.shards) == (kept, 1, 10, 5)
    assert contents(out) == contents(tmp_path / "whole")
    # Nothing is left to do, and no model is loaded for it.
    monkeypatch.setattr(sys.modules[embed.__module__], "TextEncoder", lambda *_, **__: pytest.fail("a model is loaded"))
    assert embed(saved("word"), texts, out, **arguments).kept == 5


def first_numbers(folder):
    """The bytes of the first two of the first vector."""
    vector = pyarrow.parquet.read_table(folder / "000000.parquet")["vector"].to_pylist()[0]
    return np.float32(vector[0]).tobytes() + np.float32(vector[1]).tobytes()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_text_that_changed_is_embedded_anew_and_no_other(saved, naive, texts, tmp_path):
    embed(saved("word"), texts, tmp_path / "out", shard_size=3)
    lines = texts.read_text(encoding="utf-8").split("\n")
    lines[1] = "旋转"
    texts.write_text("\n".join([*lines[:-1], "明月明月"]) + "\n", encoding="utf-8")
    report = embed(saved("word"), texts, tmp_path / "out", shard_size=3)
    assert (report.kept, report.again, report.texts) == (2, 2, 11)
    expected = naive(saved("word"), [TEXTS[0], "旋转", *TEXTS[2:], "明月明月"], "mean")
    np.testing.assert_allclose(read(tmp_path / "out")[1], expected, atol=2e-6)
    texts.write_text("今天\n", encoding="utf-8")
    with pytest.raises(ServingError, match=r"holds 3 shards beyond the end of the texts, 000001\.parquet the first"):
        embed(saved("word"), texts, tmp_path / "out", shard_size=3)


@pytest.mark.parametrize("at_once", [2, 100])
def test_ids_that_stand_more_than_once_are_kept_and_named(saved, run, tmp_path, at_once):
    path = tmp_path / "texts.jsonl"
    ids = ["a", "b", "a", "c", "b", "a", "d", "e"]
    path.write_text("".join(json.dumps({"text": "今天", "id": id_}) + "\n" for id_ in ids))
    code, out, err = run("embed", saved("word"), path, tmp_path / "out", "--id-field", "id", "--shard-size", 3)
    assert code == 0, err
    assert "2 ids stand more than once, such as" in out and read(tmp_path / "out")[0] == ids
    count, example = repeated_ids(VectorFolder(tmp_path / "out"), at_once)
    assert count == 2 and example in "ab"


def test_two_commands_do_not_write_at_once_and_a_moved_model_is_the_same(saved, texts, tmp_path):
    out = tmp_path / "out"
    with VectorFolder(out).writing(), pytest.raises(ServingError, match="is being written by another process"):
        embed(saved("word"), texts, out)
    embed(saved("word"), texts, out, shard_size=4)
    (out / "000001.parquet").unlink()
    shutil.copytree(saved("word"), tmp_path / "moved")
    assert embed(tmp_path / "moved", texts, out, shard_size=4).kept == 2
    assert json.loads((out / "run.json").read_text())["model_path"] == str(tmp_path / "moved")


def test_what_the_command_says(saved, run, texts, tmp_path):
    code, out, err = run("embed", saved("word"), texts, tmp_path / "out", "--shard-size", 4)
    assert code == 0 and err == ""
    assert "10" in out and "× float32" in out and "│ shards  │ 3" in out
    code, out, err = run("embed", saved("word"), texts, tmp_path / "out", "--shard-size", 4)
    assert code == 0 and "3, 3 of them kept" in out


def refused(run, *arguments) -> str:
    """The one sentence of a refusal."""
    code, out, err = run("embed", *arguments)
    assert code == 1 and out == "" and err.count("\n") == 1 and err.startswith("roformer: "), (code, out, err)
    return err


def test_another_command_does_not_go_on(saved, run, texts, tmp_path):
    out = tmp_path / "out"
    assert run("embed", saved("word"), texts, out)[0] == 0
    before = contents(out)
    other = tmp_path / "other.txt"
    other.write_text("今天", encoding="utf-8")
    for arguments, what in [
        ((saved("bi"), texts, out), "holds vectors with model"),
        ((saved("word"), other, out), "holds vectors with texts"),
        ((saved("word"), texts, out, "--max-length", 8), "holds vectors with max_length null and not 8"),
        ((saved("word"), texts, out, "--keep-text"), "keep_text false and not true"),
    ]:
        assert what in refused(run, *arguments)
    assert contents(out) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("of somebody")
    assert "is not empty and holds no vectors" in refused(run, saved("word"), texts, tmp_path / "full")
    assert "is not a folder" in refused(run, saved("word"), texts, other)
    assert "in the folder of the texts" in refused(run, saved("word"), tmp_path, tmp_path / "inside")


def test_texts_that_cannot_be_read(saved, run, tmp_path):
    out = tmp_path / "out"
    table = pyarrow.table({"body": TEXTS, "number": range(10)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "id.jsonl").write_text('{"text": "今天", "id": [1]}\n', encoding="utf-8")
    for source, options, what in [
        ("a.parquet", (), "has no column 'text', but body, number (--field names"),
        ("a.parquet", ("--field", "number"), "the column 'number' holds no text, but int64"),
        ("a.parquet", ("--field", "body", "--id-field", "key"), "has no column 'key', but body, number (--id-field"),
        ("b.parquet", ("--field", "body"), "is not a Parquet file, or damaged"),
        ("empty.txt", (), "there is no text in"),
        ("missing.txt", (), "missing.txt does not exist"),
        ("id.jsonl", ("--field", "body"), "line 1: no field 'body' (--field"),
        ("id.jsonl", ("--id-field", "key"), "line 1: no field 'key' (--id-field"),
        ("id.jsonl", ("--id-field", "id"), "the field 'id' is [1], but an id is a string or a whole number"),
    ]:
        assert what in refused(run, saved("word"), tmp_path / source, out, *options)
        assert not out.exists()


def test_models_that_have_no_vectors(saved, run, texts, tmp_path):
    out = tmp_path / "out"
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((saved("word") / name).read_bytes())
    (tmp_path / "seq2seq").mkdir()
    (tmp_path / "seq2seq" / "config.json").write_text('{"model_type": "roformer_seq2seq", "is_encoder_decoder": true}')
    (tmp_path / "seq2seq" / "vocab.txt").write_text("[PAD]\n")
    for model, what in [
        (saved("cross"), 'triplet_scorer="cross"'),
        (saved("gpt"), "generates text (is_decoder)"),
        (tmp_path / "seq2seq", "makes one text from another"),
        (bare, "has no tokenizer: copy the vocab.txt"),
        (tmp_path / "missing", "is not a folder (`roformer pull`"),
        (tmp_path, "is not a saved model"),
    ]:
        assert what in refused(run, model, texts, out)
        assert not out.exists()


def test_options_that_do_not_fit(saved, run, texts, tmp_path):
    for options, what in [
        (("--dtype", "int8"), "dtype is 'int8', but must be one of float32, bfloat16, float16"),
        (("--vector-dtype", "int8"), "vector_dtype is 'int8'"),
        (("--shard-size", 0), "shard_size is 0"),
        (("--device", "nonsense"), "there is no device 'nonsense'"),
        (("--max-length", 2), "the longest text has 2 tokens, but must have at least 3"),
    ]:
        assert what in refused(run, saved("word"), texts, tmp_path / "out", *options)
    assert "has positions for" in refused(run, saved("wobert"), texts, tmp_path / "out2", "--max-length", 9999)


def test_a_vector_that_is_not_finite_is_named(saved, texts, tmp_path, monkeypatch):
    vectors = TextEncoder.vectors

    def damaged(self, ids):
        found = vectors(self, ids)
        found[3, 1] = 1e6  # more than float16 holds
        return found

    monkeypatch.setattr(TextEncoder, "vectors", damaged)
    with pytest.raises(ServingError, match=r"the vector of .*texts\.txt:4 is not finite"):
        embed(saved("word"), texts, tmp_path / "out", vector_dtype="float16")


def test_without_the_extra_one_sentence_says_what_to_install(saved, texts, tmp_path, monkeypatch, run):
    for name in [name for name in sys.modules if name.startswith("modeling_roformer.serving.vectors.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delattr(sys.modules["modeling_roformer.serving.vectors"], "embed", raising=False)
    assert "pyarrow is not installed: `pip install '.[embed]'`" in refused(run, saved("word"), texts, tmp_path / "out")
