"""The installed `roformer vocab` and `roformer embed`, outside the clone: files of every format, and what was made."""

import os
import subprocess

import pyarrow.parquet
import pytest
from data.test_values import ALL, FIRST, LAST
from helpers import command_line
from helpers.messages import assert_states
from helpers.paths import REPOSITORY

WORD = "退还押金。"


def roformer(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [command_line.ROFORMER, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a folder with a file of every format, of three texts each, and what a pattern would find beside them."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "corpus[1]").mkdir()
    (folder / "corpus1").mkdir()
    (folder / "corpus1" / "a.txt").write_text("别的\n", encoding="utf-8")
    for number, (write, suffix) in enumerate(ALL):
        compressed = ".gz" if number % 2 and suffix != ".parquet" else ""
        write(folder / "corpus[1]" / f"{number:02}[{number}]{suffix}{compressed}", WORD)
    (folder / "corpus[1]" / "README.md").write_text("读我\n", encoding="utf-8")
    (folder / "corpus[1]" / "notes.md").write_text("笔记\n", encoding="utf-8")
    return folder


def test_vocab_counts_the_texts_of_every_format(corpus):
    done = roformer(corpus, "vocab", "corpus[1]", "--output", "vocab.txt", "--min-count", 1)
    assert done.returncode == 0, done.stderr
    assert_states(done.stderr, "corpus[1]", "1", "notes.md")
    assert_states(done.stdout, f"{3 * len(ALL)}")
    entries = (corpus / "vocab.txt").read_text(encoding="utf-8").split()
    assert {"退还", "押金"} <= {*entries} and not {"别", "读", "笔", "text", "id"} & {*entries}
    done = roformer(corpus, "vocab", "corpus[1]", "--output", "again.txt", "--min-count", 2 * len(ALL))
    assert done.returncode == 0 and "押金" not in (corpus / "again.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", ["corpus[2]", "laws*.csv", "laws.xlsx", "laws.csv.zip"])
def test_vocab_refuses_what_it_does_not_read(corpus, name):
    if "laws." in name:
        (corpus / name).write_bytes(b"PK\x03\x04[Content_Types].xml")
    done = roformer(corpus, "vocab", name, "--output", "none.txt")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and done.stderr.startswith("roformer: ")
    assert_states(done.stderr, name)
    assert not (corpus / "none.txt").exists()


@pytest.mark.slow
def test_embed_stores_the_texts_of_every_format(corpus):
    done = roformer(corpus, "convert", REPOSITORY / "tests" / "fixtures" / "legacy" / "word", "word")
    assert done.returncode == 0, done.stderr
    done = roformer(corpus, "embed", "word", "corpus[1]", "vectors", "--keep-text")
    assert done.returncode == 0, done.stderr
    assert_states(done.stderr, "corpus[1]", "1", "notes.md")
    table = pyarrow.parquet.read_table(corpus / "vectors" / "000000.parquet")
    names = sorted(path.name for path in (corpus / "corpus[1]").iterdir() if path.suffix != ".md")
    assert table["text"].to_pylist() == [FIRST, WORD, LAST] * len(ALL)
    assert [id_.rpartition(":")[0] for id_ in table["id"].to_pylist()] == [
        f"corpus[1]/{n}" for n in names for _ in range(3)
    ]
    done = roformer(corpus, "embed", "word", "corpus[2]", "others")
    assert done.returncode == 1 and not (corpus / "others").exists()
    assert_states(done.stderr, "corpus[2]", "pattern")
