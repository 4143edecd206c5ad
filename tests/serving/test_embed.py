"""`roformer embed`: the vectors equal the naive formula's, for every kind of source and after any interruption."""

import json
import os
import re
import shutil
import sys
from threading import Thread

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import transformers
from helpers.messages import assert_states, refused
from helpers.small_texts import TEXTS
from helpers.vector_folders import (
    SETTINGS,
    contents,
    killed_after,
    read_settings,
    read_vectors,
    shards_of,
    with_a_word_of_nan,
)
from safetensors.numpy import load_file, save_file

from modeling_roformer.data import DataError
from modeling_roformer.files.lock import only_writer
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.serving.vectors import TextEncoder, embed
from modeling_roformer.serving.vectors.encoder import model_identity


@pytest.fixture
def texts(tmp_path):
    """Write a file of ten texts with a blank line among them."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*TEXTS[:4], "", *TEXTS[4:]]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "pooling"), [("word", "mean"), ("bi", "bi"), ("sim", "pooler"), ("wobert", "mean"), ("v2", "mean")]
)
def test_vectors_are_the_formulas(saved, naive, texts, tmp_path, kind, pooling):
    report = embed(saved(kind), texts, tmp_path / "out", shard_size=4, batch_tokens=40)
    ids, vectors, _ = read_vectors(tmp_path / "out")
    assert ids == [f"texts.txt:{line}" for line in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11)]
    longest = 16 if kind == "wobert" else None  # where its positions end
    np.testing.assert_allclose(vectors, naive(saved(kind), TEXTS, pooling, longest), atol=2e-6)
    assert (report.texts, report.shards, report.kept, report.width) == (10, 3, 0, vectors.shape[1])
    schema = pyarrow.parquet.read_schema(tmp_path / "out" / "000000.parquet")
    assert schema.field("vector").type == pyarrow.list_(pyarrow.float32(), report.width)


@pytest.mark.parametrize("kind", ["word", "sim"])
def test_vectors_are_those_of_sentence_transformers(saved, kind):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(saved(kind)), device="cpu")
    long = "今天天气非常好，" * 500  # more tokens than "word" states positions
    encoder = TextEncoder(saved(kind), device="cpu")
    np.testing.assert_allclose(encoder([*TEXTS, long]), model.encode([*TEXTS, long]), atol=2e-6)
    assert len(encoder.rows("x", [long]).tokens[0]) == (1536 if kind == "word" else 4002)


def test_texts_are_cut_and_stored_in_half_precision_with_themselves(saved, naive, texts, tmp_path):
    embed(saved("word"), texts, tmp_path / "out", max_length=5, vector_dtype="float16", keep_text=True)
    _, vectors, kept = read_vectors(tmp_path / "out")
    assert kept == TEXTS
    np.testing.assert_allclose(vectors, naive(saved("word"), TEXTS, "mean", max_length=5), rtol=2e-3, atol=2e-3)
    schema = pyarrow.parquet.read_schema(tmp_path / "out" / "000000.parquet")
    assert schema.field("vector").type.value_type == pyarrow.float16()


def test_bfloat16_is_near(saved, naive):
    vectors = TextEncoder(saved("word"), dtype="bfloat16", device="cpu")(TEXTS)
    assert vectors.dtype == np.float32
    expected = naive(saved("word"), TEXTS, "mean")
    assert 0 < np.abs(vectors - expected).max() < 0.1


def test_a_data_set(saved, naive, tmp_path, monkeypatch):
    names = []

    def load_dataset(path, config, **options):
        names.append((path, config, options["split"]))
        return datasets.Dataset.from_dict({"body": TEXTS, "key": [f"k{i}" for i in range(10)]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    embed(saved("word"), "some-set:zh", tmp_path / "out", field="body", id_field="key")
    ids, vectors, _ = read_vectors(tmp_path / "out")
    assert set(names) == {("some-set", "zh", "train")} and ids == [f"k{i}" for i in range(10)]
    np.testing.assert_allclose(vectors, naive(saved("word"), TEXTS, "mean"), atol=2e-6)


def test_only_shards_that_are_lost_or_damaged_are_computed_again(saved, texts, tmp_path, monkeypatch):
    out, arguments = tmp_path / "out", {"shard_size": 2, "keep_text": True}
    embed(saved("word"), texts, out, **arguments)
    whole = contents(out)
    (out / "000003.parquet").unlink()
    damaged = out / "000000.parquet"
    data = bytearray(damaged.read_bytes())
    data[data.find(first_numbers(out))] ^= 1  # a bit of a vector
    damaged.write_bytes(data)
    (out / ".000004.parquet.unfinished").write_bytes(b"what a killed process left")
    report = embed(saved("word"), texts, out, **arguments)
    assert (report.kept, report.texts, report.shards) == (3, 10, 5)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
    # Nothing is left to do, and no model is loaded for it.
    monkeypatch.setattr(sys.modules[embed.__module__], "TextEncoder", lambda *_, **__: pytest.fail("a model is loaded"))
    assert embed(saved("word"), texts, out, **arguments).kept == 5


def test_a_folder_that_other_code_began_is_kept_with_a_note(saved, texts, tmp_path, monkeypatch):
    out, notes = tmp_path / "out", []
    embed(saved("word"), texts, out, shard_size=3, tell=notes.append)
    embed(saved("word"), texts, out, shard_size=3, tell=notes.append)
    assert not notes
    monkeypatch.setattr(sys.modules[embed.__module__], "code_digest", lambda: "other")
    assert embed(saved("word"), texts, out, shard_size=3, tell=notes.append).kept == 4
    assert len(notes) == 1 and str(out) in notes[0]


def first_numbers(folder):
    """Return the bytes of the first two values of the first vector."""
    vector = pyarrow.parquet.read_table(folder / "000000.parquet")["vector"].to_pylist()[0]
    return np.float32(vector[0]).tobytes() + np.float32(vector[1]).tobytes()


def test_only_texts_that_changed_are_embedded_again(saved, naive, texts, tmp_path):
    embed(saved("word"), texts, tmp_path / "out", shard_size=3)
    lines = texts.read_text(encoding="utf-8").split("\n")
    lines[1] = "旋转"
    texts.write_text("\n".join([*lines[:-1], "明月明月"]) + "\n", encoding="utf-8")
    report = embed(saved("word"), texts, tmp_path / "out", shard_size=3)
    assert (report.kept, report.texts) == (2, 11)
    expected = naive(saved("word"), [TEXTS[0], "旋转", *TEXTS[2:], "明月明月"], "mean")
    np.testing.assert_allclose(read_vectors(tmp_path / "out")[1], expected, atol=2e-6)
    texts.write_text("今天\n", encoding="utf-8")
    with refused(ServingError, tmp_path / "out", "3 shards", "000001.parquet"):
        embed(saved("word"), texts, tmp_path / "out", shard_size=3)


def test_texts_of_a_pipe_are_embedded_whole_or_refused(saved, texts, tmp_path):
    """A pipe cannot be read again, which a run that resumes does."""

    def embed_pipe():
        end, start = os.pipe()
        os.write(start, texts.read_bytes())
        os.close(start)
        (tmp_path / "pipe").unlink(missing_ok=True)
        (tmp_path / "pipe").symlink_to(f"/dev/fd/{end}")
        try:
            return embed(saved("word"), tmp_path / "pipe", tmp_path / "out", shard_size=3)
        finally:
            os.close(end)

    assert embed_pipe().texts == len(TEXTS)
    shards_of(tmp_path / "out")[-1].unlink()
    with refused(ServingError, tmp_path / "pipe", tmp_path / "out"):
        embed_pipe()


@pytest.mark.parametrize("keep_text", [False, True])
def test_readers_take_the_folder_for_one_table(saved, texts, tmp_path, keep_text):
    out = tmp_path / "out"
    embed(saved("word"), texts, out, shard_size=4, keep_text=keep_text)
    ids, vectors, _ = read_vectors(out)
    table = pyarrow.parquet.read_table(out)
    loaded = datasets.load_dataset("parquet", data_dir=str(out), cache_dir=str(tmp_path / "cache"), split="train")
    for found in (table, loaded.with_format("arrow")[:]):
        assert found.column_names == ["id", "vector", *["text"] * keep_text]
        assert found["id"].to_pylist() == ids
        np.testing.assert_array_equal(np.array(found["vector"].to_pylist(), dtype=np.float32), vectors)
    assert loaded.features["vector"].length == vectors.shape[1]
    assert not [path.name for path in out.iterdir() if path.suffix != ".parquet"]


@pytest.mark.parametrize("version", ["run.json", "chunks in ids"])
def test_a_folder_of_an_earlier_version_is_refused(saved, run, texts, tmp_path, version):
    """It had its settings in run.json, or ids such as `texts.txt:1#2` and no column of chunks."""
    out = tmp_path / "out"
    embed(saved("word"), texts, out, chunk=8)
    settings = json.dumps(read_settings(out))
    if version == "run.json":
        (out / "_run.parquet").unlink()
        (out / "run.json").write_text(settings)
    else:
        schema = pyarrow.schema([("id", pyarrow.string()), ("vector", pyarrow.list_(pyarrow.float32(), 24))])
        schema = schema.with_metadata({SETTINGS: settings})
        pyarrow.parquet.ParquetWriter(out / "_run.parquet", schema).close()
    before = contents(out)
    error_of(run, saved("word"), texts, out, "--chunk", 8, states=[out, "earlier versions", "new folder"])
    code, stdout, err = run("rank", "今天", out)
    assert (code, stdout, err.count("\n")) == (1, "", 1)
    assert_states(err, out, "earlier versions", "new folder")
    assert contents(out) == before


def test_two_commands_do_not_write_at_once_and_a_moved_model_is_the_same(saved, texts, tmp_path):
    out = tmp_path / "out"
    with only_writer(out, ServingError), refused(ServingError, out, "another process"):
        embed(saved("word"), texts, out)
    embed(saved("word"), texts, out, shard_size=4)
    (out / "000001.parquet").unlink()
    shutil.copytree(saved("word"), tmp_path / "moved")
    assert embed(tmp_path / "moved", texts, out, shard_size=4).kept == 2
    assert read_settings(out)["model_name"] == "moved"


def test_the_summary_of_the_command(saved, run, texts, tmp_path):
    code, out, err = run("embed", saved("word"), texts, tmp_path / "out", "--shard-size", 4)
    assert code == 0 and err == ""
    assert "× float32" in out and "│ texts    │ 10" in out and "│ shards   │ 3" in out and "│ left out │ 1 rows" in out
    code, out, err = run("embed", saved("word"), texts, tmp_path / "out", "--shard-size", 4)
    assert code == 0
    assert_states(out, "shards", "3, 3", "kept")


def error_of(run, *arguments, states=()) -> str:
    """Assert that the command fails with one line that states these facts, and return it."""
    code, out, err = run("embed", *arguments)
    assert code == 1 and out == "" and err.count("\n") == 1 and err.startswith("roformer: "), (code, out, err)
    assert_states(err, *states)
    return err


def test_a_command_with_other_settings_does_not_resume(saved, run, texts, tmp_path):
    out = tmp_path / "out"
    assert run("embed", saved("word"), texts, out)[0] == 0
    before = contents(out)
    other = tmp_path / "other.txt"
    other.write_text("今天", encoding="utf-8")
    for arguments, facts in [
        ((saved("bi"), texts, out), ["model's files"]),
        ((saved("word"), other, out), ["texts: texts.txt there, other.txt now"]),
        ((saved("word"), texts, out, "--max-length", 8), ["--max-length: none there, 8 now"]),
        ((saved("word"), texts, out, "--keep-text"), ["--keep-text: no there, yes now"]),
        ((saved("word"), texts, out, "--id-field", "key"), ["--id-field: none there, key now"]),
        ((saved("word"), texts, out, "--sample-by", "document"), ["--sample-by: line there, document now"]),
    ]:
        message = error_of(run, *arguments, states=[out, *facts])
        assert message.count(" now") == (facts[0] != "model's files")  # the only difference
        assert not re.search("[0-9a-f]{32}", message)  # such as a hash
    assert contents(out) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("of somebody")
    error_of(run, saved("word"), texts, tmp_path / "full", states=[tmp_path / "full", "_run.parquet"])
    error_of(run, saved("word"), texts, other, states=[other, "File exists"])
    error_of(run, saved("word"), tmp_path, tmp_path / "inside", states=[tmp_path / "inside", "in the folder", tmp_path])


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer_config.json"])
def test_a_file_of_a_model_that_cannot_be_read_is_named(file, saved, run, texts, tmp_path):
    folder = shutil.copytree(saved("word"), tmp_path / "damaged")
    (folder / file).write_text("")
    error_of(run, folder, texts, tmp_path / "out", states=[folder / file])
    with pytest.raises(ValueError, match=re.escape(str(folder / file))):
        ServedModel(folder)


def test_a_bert_whose_weights_are_another_models_has_no_vectors(saved, run, texts, tmp_path):
    """transformers would complete it at random, and only log that."""
    folder = shutil.copytree(saved("word"), tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    error_of(run, folder, texts, tmp_path / "out", states=[folder, "BertModel", "missing"])
    assert not (tmp_path / "out").exists()
    transformers.BertModel(transformers.BertConfig.from_pretrained(folder)).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name: weights[name] for name in weights if "pooler" not in name}, folder / "model.safetensors")
    assert TextEncoder(folder)(TEXTS).shape == (10, config["hidden_size"])  # it does not need the pooler


def test_texts_that_cannot_be_read(saved, run, tmp_path):
    out = tmp_path / "out"
    table = pyarrow.table({"body": TEXTS, "number": [[i] for i in range(10)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "id.jsonl").write_text('{"text": "今天", "id": [1]}\n', encoding="utf-8")
    (tmp_path / "half.jsonl").write_text(r'{"text": "1", "id": "a\ud83d"}' + "\n" + r'{"text": "1\udcff"}')
    for source, options, facts in [
        ("a.parquet", (), ["no column 'text'", "body, number", "--field"]),
        ("a.parquet", ("--field", "number"), ["row 1", "number", "list"]),
        ("a.parquet", ("--field", "body", "--id-field", "key"), ["no column 'key'", "body, number", "--id-field"]),
        ("b.parquet", ("--field", "body"), ["Parquet"]),
        ("empty.txt", (), ["no text"]),
        ("missing.txt", (), ["does not exist"]),
        ("id.jsonl", ("--field", "body"), ["line 1", "no column 'body'", "--field"]),
        ("id.jsonl", ("--id-field", "key"), ["line 1", "no column 'key'", "--id-field"]),
        ("id.jsonl", ("--id-field", "id"), ["line 1", "id", "[1]"]),
        ("half.jsonl", (), ["line 2", "text", "surrogate"]),
        ("half.jsonl", ("--id-field", "id"), ["line 1", "id", r"'a\ud83d'"]),
    ]:
        error_of(run, saved("word"), tmp_path / source, out, *options, states=[tmp_path / source, *facts])
        assert not out.exists()


def test_two_texts_with_one_id_are_refused_by_their_id(saved, tmp_path):
    """They are in one shard: none are sought across shards."""
    path = tmp_path / "texts.jsonl"
    rows = [json.dumps({"text": text, "id": id_}) for id_, text in zip("abcbdd", TEXTS, strict=False)]
    path.write_text("\n".join(rows), encoding="utf-8")
    for shard_size, id_ in ((2, "'d'"), (6, "'b'")):
        with refused(ServingError, id_, "--id-field"):
            embed(saved("word"), path, tmp_path / "out", shard_size=shard_size, id_field="id")
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    embed(saved("word"), path, tmp_path / "lines", shard_size=2)


def test_models_that_have_no_vectors(saved, run, texts, tmp_path):
    out = tmp_path / "out"
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((saved("word") / name).read_bytes())
    (tmp_path / "seq2seq").mkdir()
    (tmp_path / "seq2seq" / "config.json").write_text('{"model_type": "roformer_seq2seq", "is_encoder_decoder": true}')
    (tmp_path / "seq2seq" / "vocab.txt").write_text("[PAD]\n")
    for model, facts in [
        (saved("cross"), ['triplet_scorer="cross"']),
        (saved("gpt"), ["decoder", "is_decoder"]),
        (tmp_path / "seq2seq", ["encoder-decoder"]),
        (bare, ["no tokenizer", "vocab.txt"]),
        (tmp_path / "missing", ["does not exist"]),
        (tmp_path, ["config.json", "roformer convert", "roformer pull"]),
    ]:
        error_of(run, model, texts, out, states=[model, *facts])
        assert not out.exists()


def test_options_that_do_not_fit(saved, run, texts, tmp_path):
    for options, facts in [
        (("--dtype", "int8"), ["dtype", "torch.int8"]),
        (("--vector-dtype", "int8"), ["vector_dtype", "'int8'"]),
        (("--device", "nonsense"), ["device", "nonsense"]),
        (("--max-length", 2), ["max_length", 2, 3]),
    ]:
        error_of(run, saved("word"), texts, tmp_path / "out", *options, states=facts)
    code, _, err = run("embed", saved("word"), texts, tmp_path / "out", "--shard-size", 0)
    assert code == 2
    assert_states(err, "--shard-size", 1)
    states = ["max_length", 9999, saved("wobert"), 16]
    error_of(run, saved("wobert"), texts, tmp_path / "out2", "--max-length", 9999, states=states)


@pytest.mark.parametrize(
    ("options", "named"), [({}, "texts.txt:2 "), ({"chunk": 12}, "texts.txt:2, chunk 5 ")], ids=["whole", "in chunks"]
)
def test_a_vector_that_is_not_finite_is_named(saved, tmp_path, options, named):
    model = with_a_word_of_nan(saved("word"), tmp_path / "model", "旋转")
    (tmp_path / "texts.txt").write_text("今天\n" + "今天" * 20 + "旋转\n", encoding="utf-8")
    with refused(ServingError, named, "not finite", "float32"):
        embed(model, tmp_path / "texts.txt", tmp_path / "out", **options)


def test_a_vector_that_float16_does_not_hold_is_named(saved, texts, tmp_path):
    model = shutil.copytree(saved("word"), tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    *_, last = sorted(name for name in weights if name.endswith("output.LayerNorm.weight"))
    weights[last] *= 1e6
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with refused(ServingError, "texts.txt:1 ", "not finite", "float16", "--vector-dtype"):
        embed(model, texts, tmp_path / "out", vector_dtype="float16")
    embed(model, texts, tmp_path / "out")


def test_without_the_extra_one_sentence_says_what_to_install(saved, texts, tmp_path, monkeypatch, run):
    for name in [name for name in sys.modules if name.startswith("modeling_roformer.serving.vectors.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert_states(error_of(run, saved("word"), texts, tmp_path / "out"), "pyarrow", "pip install '.[embed]'")


def everything(folder) -> str:
    """Return all text of a folder of vectors: the settings, the tables and their metadata."""
    found = []
    for path in folder.iterdir():
        table = pyarrow.parquet.read_table(path)
        found.append(f"{table.select(['id', 'text']).to_pylist()} {table.schema.metadata}")
    return "\n".join(found)


def test_nothing_that_is_saved_holds_the_folders_of_the_caller(saved, tmp_path, monkeypatch):
    model = shutil.copytree(saved("word"), tmp_path / "secret-place" / "models" / "word")
    corpus = tmp_path / "secret-place" / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("今天\n", encoding="utf-8")
    other = tmp_path / "secret-place" / "more" / "a.txt"
    other.parent.mkdir()
    other.write_text("明月\n", encoding="utf-8")
    out = tmp_path / "out"
    embed(model, [corpus, other], out, keep_text=True)
    assert read_vectors(out)[0] == ["corpus/a.txt:1", "a.txt:1"]
    run_ = read_settings(out)
    assert (run_["model"], run_["model_name"]) == (model_identity(model), "word")
    monkeypatch.chdir(corpus)
    embed("../models/word", ["."], tmp_path / "typed", keep_text=True)
    assert read_vectors(tmp_path / "typed")[0] == ["a.txt:1"]
    with refused(DataError, "a.txt", "../more/a.txt", "both"):
        embed("../models/word", ["../more/a.txt", "."], tmp_path / "both")
    for folder in (out, tmp_path / "typed"):
        assert "secret-place" not in everything(folder) and str(tmp_path) not in everything(folder)


def test_texts_of_the_same_names_elsewhere(saved, tmp_path):
    """The same texts were moved; vectors of other texts do not overwrite the first ones."""
    for name, content in (("a", TEXTS), ("b", TEXTS), ("c", TEXTS[::-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "texts.txt").write_text("\n".join(content), encoding="utf-8")
    out = tmp_path / "out"
    embed(saved("word"), tmp_path / "a" / "texts.txt", out, shard_size=4)
    assert embed(saved("word"), tmp_path / "b" / "texts.txt", out, shard_size=4).kept == 3
    before = contents(out)
    with refused(ServingError, out, "other texts", out / "000000.parquet"):
        embed(saved("word"), tmp_path / "c" / "texts.txt", out, shard_size=4)
    assert contents(out) == before


def test_a_model_that_is_replaced_before_it_is_loaded_is_noticed(saved, tmp_path):
    model, pipe = shutil.copytree(saved("word"), tmp_path / "model"), tmp_path / "pipe"
    os.mkfifo(pipe)

    def replace_and_write():
        with open(pipe, "w", encoding="utf-8") as file:  # opened when texts are read, after the model's files
            shutil.copytree(saved("bi"), model, dirs_exist_ok=True)
            file.write("今天\n")

    (writer := Thread(target=replace_and_write)).start()
    with refused(ServingError, model, "changed"):
        embed(model, pipe, tmp_path / "out")
    writer.join()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("pause", "renamed"), [*((0, n) for n in range(9)), *((60, n) for n in range(6))])
def test_a_run_that_is_killed_before_or_after_any_file_appears_ends_as_one_that_was_not(
    saved, texts, tmp_path, monkeypatch, pause, renamed
):
    """The number of truncated texts is kept as well, and a folder without any file is not refused."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert embed(saved("word"), texts, whole, shard_size=4, max_length=6).truncated > 2
    with killed_after(renamed, monkeypatch) as patch:
        patch.setattr(
            sys.modules[embed.__module__], "_SECONDS_BETWEEN_WRITES", pause
        )  # between two notes of what is done
        embed(saved("word"), texts, out, shard_size=4, max_length=6)
    embed(saved("word"), texts, out, shard_size=4, max_length=6)
    assert contents(out) == contents(whole)


def test_rows_without_a_text_are_left_out_and_counted(saved, run, tmp_path):
    texts = ["今天", None, "", "明月", " ", "旋转", None, None]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "texts.jsonl").write_text(lines + "\n", encoding="utf-8")
    for _ in range(2):  # the second time all are kept
        code, stdout, err = run("embed", saved("word"), tmp_path / "texts.jsonl", tmp_path / "out", "--shard-size", 2)
        assert code == 0 and "│ left out │ 5 rows" in stdout, (stdout, err)
    assert read_vectors(tmp_path / "out")[0] == [f"texts.jsonl:{i}" for i in (1, 4, 6)]
    report = embed(saved("word"), tmp_path / "texts.jsonl", tmp_path / "one", shard_size=3)
    assert (report.texts, report.shards, report.left_out) == (3, 1, 5)


@pytest.mark.parametrize("content", [b"", b'{"model": ', b"\xff\xfe"])
def test_a_damaged_run_is_named(saved, run, texts, tmp_path, content):
    out, name = tmp_path / "out", "_run.parquet"
    embed(saved("word"), texts, out)
    (out / name).write_bytes(content)
    before = contents(out)
    error_of(run, saved("word"), texts, out, states=[out / name, "damaged"])
    code, stdout, err = run("rank", "今天", out)
    assert code == 1 and stdout == "" and err.count("\n") == 1
    assert_states(err, out / name, "damaged")
    assert contents(out) == before


def test_long_texts_are_truncated_and_counted(saved, naive, run, tmp_path):
    path = tmp_path / "texts.txt"
    long = "天" * 9000
    path.write_text(f"今天\n{long}\n", encoding="utf-8")
    for _ in range(2):  # the second time all are kept
        code, out, err = run("embed", saved("sim"), path, tmp_path / "out")
        assert code == 0, err
        assert_states(out.partition("│ truncated ")[2].partition("\n")[0], "1 texts", "--max-length")
    expected = naive(saved("sim"), ["今天", long], "pooler", 8192)
    np.testing.assert_allclose(read_vectors(tmp_path / "out")[1], expected, atol=2e-6)
    encoder = TextEncoder(saved("sim"), device="cpu")
    assert encoder.rows("abcd", ["明" * 8189, "明" * 8190, long, "今天"]).truncated == 2
    assert TextEncoder(saved("sim"), max_length=10_000, device="cpu").max_length == 10_000
