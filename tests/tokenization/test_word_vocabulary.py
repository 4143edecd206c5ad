"""`roformer vocab`: the words of a corpus, against counting by hand, and everything that a corpus can have wrong."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
import unicodedata
from collections import Counter

import jieba
import pytest
from helpers import command_line
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from helpers.small_texts import LEGACY
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.data import DataError, reader
from modeling_roformer.vocabulary_maker.word_vocabulary import make_word_vocabulary

SPECIAL = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = list(dict.fromkeys("今天天气非常好，我们去公园玩。中国人民法院判决本合同无效研究生命起源的是在了有和不这"))
LATIN = ["a", "b", "##b", "##c", "the", "##ing", "5", "##0", ",", "."]
REDUNDANT = ["##今", "##国", "##。", "...", "<S>"]
BASE = [*SPECIAL, *CHARACTERS, *REDUNDANT, *LATIN]
KEPT = [*SPECIAL, *CHARACTERS, *LATIN]

DOCUMENTS = [
    "今天天气非常好，我们去公园玩。The 50 abb.",
    "中国人民法院判决本合同无效",
    "研究生命起源的研究生，在公园研究天气",
    "人民法院的判决, 判决, 判决和合同",
    "天氣很好 非常 非常 À la carte",
]


@pytest.fixture
def base(tmp_path):
    path = tmp_path / "base.txt"
    path.write_text("".join(entry + "\n" for entry in BASE), encoding="utf-8")
    return path


@pytest.fixture
def make(base, tmp_path):
    """Make a vocabulary of files; gives its entries and the report."""

    def make(*files, **options):
        output = tmp_path / "made.txt"
        options = {"min_count": 1, "num_proc": 1, "force": True} | options
        report = make_word_vocabulary(files, base, output, **options)
        return output.read_text(encoding="utf-8").removesuffix("\n").split("\n"), report

    return make


def written(path, documents):
    """Write documents into a file, in the format of its name."""
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    if stem.suffix == ".jsonl":
        data = "".join(json.dumps({"text": text}, ensure_ascii=len(text) % 2 == 0) + "\n" for text in documents)
    else:
        data = "".join(text + "\n" for text in documents)
    data = data.encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def is_han(character):
    return unicodedata.name(character, "").startswith("CJK UNIFIED IDEOGRAPH")


def naive_words(documents):
    """Words of Han characters and how often jieba gives them, with nothing of this package."""
    counts = Counter()
    for text in documents:
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        counts.update(word for word in jieba.cut(text, HMM=False) if len(word) > 1 and all(map(is_han, word)))
    return counts


def naive_entries(documents, size=50_000, min_count=1, max_length=16):
    counts = naive_words(documents)
    words = [word for word in counts if counts[word] >= min_count and len(word) <= max_length]
    return (KEPT + sorted(words, key=lambda word: (-counts[word], [ord(c) for c in word])))[:size]


@pytest.mark.parametrize("options", [{}, {"min_count": 2}, {"size": len(KEPT) + 3}, {"max_length": 2}])
def test_equals_counting_by_hand(make, tmp_path, options):
    entries, report = make(written(tmp_path / "corpus.txt", DOCUMENTS), **options)
    assert entries == naive_entries(DOCUMENTS, **options)
    assert (report.kept, report.dropped, report.added) == (len(KEPT), len(REDUNDANT), len(entries) - len(KEPT))
    assert report.rarest == naive_words(DOCUMENTS)[entries[-1]]


@given(
    st.lists(
        st.text(alphabet=st.sampled_from([*"".join(DOCUMENTS), " ", "\t", "é", "𠀀", "\u2028", "\x01"])), min_size=1
    )
)
@max_examples(10)
def test_any_text_in_any_form(make, tmp_path, documents):
    """Text and JSON Lines, compressed or not, give the same vocabulary in one process as counting by hand."""
    documents = [*documents, "天气天气"]
    expected = naive_entries(documents)
    for name in ("a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz"):
        entries, report = make(written(tmp_path / name, documents))
        assert entries == expected
        assert report.documents == sum(bool(text.strip()) for text in documents)


def test_the_same_for_any_number_of_processes_and_any_chunks(make, tmp_path, monkeypatch):
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    for number, name in enumerate(["a.txt", "b.jsonl", "c.jsonl.gz", "deep/d.txt.gz", "deep/e.json"]):
        written(folder / name.replace("e.json", "e.jsonl"), DOCUMENTS[number:] * 40)
    (folder / "README.md").write_text("公园 " * 1000)
    documents = [text for number in range(5) for text in DOCUMENTS[number:] * 40]
    expected = naive_entries(documents)
    reports = []
    for chunk in (1, 100, 1 << 20):
        monkeypatch.setattr(reader, "CHUNK", chunk)
        for num_proc in (1, 3) if chunk == 100 else (1, 2):
            entries, report = make(folder, num_proc=num_proc)
            assert entries == expected
            reports.append(report.documents)
    assert set(reports) == {len(documents)}


def test_hidden_files_of_a_folder_are_skipped(make, tmp_path):
    for name in ("a.txt", ".a.txt", ".git/b.txt", ".ipynb_checkpoints/a-checkpoint.jsonl"):
        path = tmp_path / ".corpora" / "corpus" / name  # the folder itself may be hidden
        path.parent.mkdir(parents=True, exist_ok=True)
        written(path, ["天气天气公园"])
    _, report = make(tmp_path / ".corpora" / "corpus")
    assert report.documents == 1


def test_a_word_vocabulary_can_be_extended(make, base, tmp_path):
    """The words of the base keep their ids."""
    base.write_text(base.read_text(encoding="utf-8") + "公园\n判决\n", encoding="utf-8")
    entries, _ = make(written(tmp_path / "corpus.txt", DOCUMENTS))
    assert entries[: len(KEPT) + 2] == [*KEPT, "公园", "判决"]
    assert set(entries) == set(naive_entries(DOCUMENTS)) and len(entries) == len(set(entries))


def test_the_command(run, base, tmp_path):
    written(tmp_path / "corpus.jsonl", DOCUMENTS)
    renamed = (tmp_path / "corpus.jsonl").read_text().replace('"text"', '"body"')
    (tmp_path / "corpus.jsonl").write_text(renamed)
    options = ("--base", base, "--field", "body", "--min-count", 2, "--num-proc", 1)
    code, out, err = run("vocab", tmp_path / "corpus.jsonl", "--output", tmp_path / "new" / "vocab.txt", *options)
    assert code == 0, err
    made = (tmp_path / "new" / "vocab.txt").read_text(encoding="utf-8")
    assert made.split("\n")[:-1] == naive_entries(DOCUMENTS, min_count=2)
    for row in ("kept from the base", "dropped as redundant", "words added"):
        assert row in out
    assert os.listdir(tmp_path / "new") == ["vocab.txt"]

    again = run("vocab", tmp_path / "corpus.jsonl", "--output", tmp_path / "new" / "vocab.txt", *options)
    assert again[0] == 1 and "--force" in again[2]
    (tmp_path / "new" / "vocab.txt").write_text("old")
    again = run("vocab", tmp_path / "corpus.jsonl", "--output", tmp_path / "new" / "vocab.txt", *options, "--force")
    assert again[0] == 0 and (tmp_path / "new" / "vocab.txt").read_text(encoding="utf-8") == made


def test_a_source_is_not_replaced(run, base, tmp_path):
    """Not even with --force, which is given by habit."""
    (tmp_path / "folder").mkdir()
    corpus = written(tmp_path / "folder" / "corpus.txt", DOCUMENTS)
    (tmp_path / "link.txt").symlink_to(corpus)
    before = corpus.read_bytes(), base.read_bytes()
    for source in (corpus, corpus.parent, tmp_path / "link.txt"):
        for output in (corpus, base, tmp_path / "link.txt"):
            code, _, err = run("vocab", source, "--base", base, "--output", output, "--force", "--num-proc", 1)
            assert code == 1 and err.count("\n") == 1
            assert_states(err, output, "input")
    assert (corpus.read_bytes(), base.read_bytes()) == before and (tmp_path / "link.txt").is_symlink()


def test_the_vocabulary_of_a_model_is_not_replaced(run, tmp_path):
    """Its ids are those of the embeddings. `vocab-init` gives a model another vocabulary."""
    corpus = written(tmp_path / "corpus.txt", DOCUMENTS)
    model = shutil.copytree(LEGACY / "word", tmp_path / "model")
    before = (model / "vocab.txt").read_bytes()
    code, _, err = run("vocab", corpus, "--output", model / "vocab.txt", "--force", "--num-proc", 1)
    assert code == 1 and (model / "vocab.txt").read_bytes() == before
    assert_states(err, model / "vocab.txt", "model")


def test_a_pipe_is_not_replaced(run, tmp_path):
    """Nor is a device: as root, `--output /dev/null --force` would replace it for the whole system."""
    corpus = written(tmp_path / "corpus.txt", DOCUMENTS)
    os.mkfifo(tmp_path / "pipe")
    code, _, err = run("vocab", corpus, "--output", tmp_path / "pipe", "--force", "--num-proc", 1)
    assert code == 1 and (tmp_path / "pipe").is_fifo()
    assert_states(err, tmp_path / "pipe")


GOOD = b'{"text": "\xe5\xa4\xa9\xe6\xb0\x94"}\n'
BROKEN = {
    "utf8.txt": ("天气\n公园\n".encode() + b"\xff\xfe\n", ["utf8.txt, line 3", "UTF-8"]),
    "utf8.jsonl": (GOOD + b'{"text": "\xe5\xa4"}\n', ["utf8.jsonl, line 2", "UTF-8"]),
    "cut.jsonl": (GOOD * 2 + b'{"text": "half', ["cut.jsonl, line 3", "JSON"]),
    "deep.jsonl": (GOOD + b"[" * 100_000, ["deep.jsonl, line 2", "JSON"]),
    "list.jsonl": (GOOD + b'["text"]\n', ["list.jsonl, line 2", "object"]),
    "field.jsonl": (b'{"content": "x"}\n', ["field.jsonl, line 1", "'text'", "--field"]),
    "number.jsonl": (GOOD + b"\n" + b'{"text": [1]}\n', ["number.jsonl, line 3", "text", "list"]),
    "plain.txt.gz": (b"not compressed", ["plain.txt.gz", "gzipped"]),
    "cut.txt.gz": (gzip.compress("天气公园\n".encode() * 3000)[:-9], ["cut.txt.gz", "ended before"]),
    "flipped.txt.gz": (gzip.compress(os.urandom(3000))[:1500] + b"\0" * 1600, ["flipped.txt.gz"]),
    "empty.txt": (b"", ["corpus", "no text"]),
    "blank.txt": (b"\n \n\r\n", ["corpus", "no text"]),
    "latin.txt": (b"no word of Han characters, " * 20, ["--min-count", "--size"]),
    "rare.txt": ("天气 公园 天气".encode(), ["--min-count", "--size"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_corpus_gets_one_sentence(run, base, tmp_path, name):
    data, words = BROKEN[name]
    (tmp_path / name).write_bytes(data)
    refuse(run, tmp_path, [tmp_path / name, "--base", base, "--num-proc", 2], words)


def refuse(run, folder, arguments, words):
    """Assert that the command fails with one line that states these words, and writes nothing."""
    before = sorted(os.listdir(folder))
    code, out, err = run("vocab", *arguments, "--output", folder / "new.txt")
    assert (code, out) == (1, "")
    assert err.startswith("roformer: ") and err.count("\n") == 1 and "Traceback" not in err
    assert_states(err, *words)
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--size", len(KEPT) - 1], ["size", len(KEPT) - 1, len(KEPT)]),
        (["--size", len(KEPT)], ["--min-count", f"{len(KEPT)} entries", "--size"]),
        (["--num-proc", 0], ["num_proc", 0, 1]),
        (["--min-count", -1], ["min_count", -1, 1]),
        (["--base", "nowhere.txt"], ["nowhere.txt"]),
        (["--base", "twice.txt"], ["twice.txt", "'a'"]),
        (["--base", "unknown.txt"], ["unknown.txt", "[UNK]"]),
        (["gone.txt"], ["gone.txt", "not exist"]),
        (["folder"], ["folder", ".jsonl"]),
    ],
)
def test_options_and_files_that_cannot_be(run, base, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.txt").write_text("[UNK]\na\na\n")
    (tmp_path / "unknown.txt").write_text("a\nb\n")
    (tmp_path / "folder").mkdir()
    refuse(run, tmp_path, [written(tmp_path / "corpus.txt", DOCUMENTS), "--base", base, *arguments], words)


def test_the_first_broken_line_is_named_whatever_process_meets_it(make, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "CHUNK", 64)
    lines = ["天气公园天气公园"] * 300
    data = [line.encode() for line in lines]
    data[150], data[290] = b"\xff", b"\xff"
    (tmp_path / "corpus.txt").write_bytes(b"\n".join(data))
    for num_proc in (1, 2):
        with refused(DataError, "corpus.txt", "line 151", "UTF-8"):
            make(tmp_path / "corpus.txt", num_proc=num_proc)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_it_leaves_no_file_and_no_process(base, tmp_path, stop, default_signals):
    fifo = tmp_path / "corpus.txt"
    os.mkfifo(fifo)
    command = [command_line.ROFORMER, "vocab", fifo, "--base", base]
    command += ["--output", tmp_path / "new.txt", "--num-proc", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    with open(fifo, "wb", buffering=0) as corpus:  # waits until the command reads
        for _ in range(4):
            corpus.write("天气公园\n".encode() * 400_000)
        if stop == signal.SIGINT:
            os.killpg(process.pid, stop)  # as a terminal does
        else:
            process.send_signal(stop)
    _, err = process.communicate(timeout=900)
    assert process.returncode != 0 and b"Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == ["base.txt", "corpus.txt"]
    deadline = time.monotonic() + 30
    while _group_lives(process.pid):
        assert time.monotonic() < deadline, "a process of it goes on"
        time.sleep(0.05)


def _group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
