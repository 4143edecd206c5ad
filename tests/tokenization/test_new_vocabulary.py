"""`roformer vocab` without a base: special tokens, characters and words of a corpus, of which none becomes [UNK]."""

import subprocess
import sys
import unicodedata
from collections import Counter

import jieba
import pytest
from helpers.messages import assert_states
from helpers.properties import max_examples
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.data import reader
from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.vocabulary_maker.word_vocabulary import make_word_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DOCUMENTS = [
    "今天天气非常好，我们去公园玩。The park is open in 2024, the park!",
    "人民法院的判决, 判决, 判决和合同：the iPhone 15 Pro 重 187 克",
    "À la carte 😀😀 天氣很好。 opening, opened, opens — カタカナ",
]


@pytest.fixture
def make(tmp_path):
    """Make a vocabulary of documents; gives its entries, a tokenizer with them, and the report."""

    def make(documents, **options):
        (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in documents), encoding="utf-8", newline="\n")
        output = tmp_path / "made.txt"
        options = {"min_count": 2, "num_proc": 1, "force": True} | options
        report = make_word_vocabulary([tmp_path / "corpus.txt"], None, output, **options)
        with open(output, encoding="utf-8", newline="\n") as file:
            entries = file.read().removesuffix("\n").split("\n")
        return entries, RoFormerTokenizer(str(output)), report

    return make


def test_the_order_of_the_entries(make):
    entries, _, report = make(DOCUMENTS)
    assert entries[:5] == SPECIAL and len(set(entries)) == len(entries) == report.kept + report.added
    text = "".join(DOCUMENTS).lower()
    shown = [entry for entry in entries[5 : report.kept] if not entry.startswith("##")]
    counts = [sum(c == entry for c in unicodedata.normalize("NFD", text)) for entry in shown]
    frequent = [entry for entry, n in zip(shown, counts, strict=True) if not entry.isascii() and n]
    assert {*frequent} >= {*"今天气，判决カタ😀"} and all(len(entry) == 1 for entry in shown)
    expected = sorted(frequent, key=lambda entry: (-counts[shown.index(entry)], entry))
    assert [entry for entry in expected if unicodedata.name(entry).startswith("CJK")] == [
        entry for entry in frequent if unicodedata.name(entry).startswith("CJK")
    ]
    words = Counter(word for document in DOCUMENTS for word in jieba.cut(document, HMM=False) if len(word) > 1)
    added = entries[report.kept :]
    assert {"判决", "park", "the", "open"} <= {*added} and report.rarest == 2
    assert {word for word in words if words[word] > 1 and word[0] >= "一"} <= {*added}


def test_words_and_numbers_that_the_corpus_lacks(make):
    _, tokenizer, _ = make(DOCUMENTS)
    for text in ("iPad mini 3.5克 http://a.com/x_y?z=1 100% C++", "the open park"):
        assert tokenizer.unk_token not in tokenizer.tokenize(text)
    assert tokenizer.tokenize("the park") == ["the", "park"]
    assert tokenizer.tokenize("判决 龘") == ["判决", "[UNK]"]
    assert [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id] == [0, 1, 4]


@given(
    st.lists(
        st.text(alphabet=st.sampled_from([*"".join(DOCUMENTS), " ", "\t", "é", "한", "ß", "𠀀", "\u2028", "\x01"])),
        min_size=1,
    )
)
@max_examples(30)
def test_no_text_of_the_corpus_is_unknown(make, documents):
    documents = [*documents, "天气天气"]
    entries, tokenizer, _ = make(documents)
    tokens = [token for text in documents if text.strip() for token in tokenizer.tokenize(text)]
    assert "[UNK]" not in tokens and "天气" in entries


def test_a_word_that_is_too_long_for_the_tokenizer_is_left_out(make):
    entries, tokenizer, _ = make(["x" * 201, "天气"])
    assert tokenizer.tokenize("x" * 201) == ["[UNK]"] and not any("xx" in entry for entry in entries)


@pytest.mark.slow
def test_the_same_in_any_process_and_in_any_chunks(make, tmp_path, monkeypatch):
    documents = [f"{DOCUMENTS[i % 3]} {a}{b}ing" for i, a in enumerate("bdfhjlp") for b in "aeou"]
    first, _, report = make(documents)
    assert any(entry.startswith("##") and len(entry) > 3 for entry in first[report.kept :])
    monkeypatch.setattr(reader, "CHUNK", 200)
    assert make(documents, num_proc=2)[0] == first
    script = (
        "from modeling_roformer.vocabulary_maker.word_vocabulary import make_word_vocabulary\n"
        "make_word_vocabulary(['corpus.txt'], None, 'again.txt', min_count=2, num_proc=1)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=900)
    assert (tmp_path / "again.txt").read_text(encoding="utf-8").split("\n")[:-1] == first


def test_the_command(run, tmp_path):
    corpus, output = tmp_path / "corpus.txt", tmp_path / "new.txt"
    corpus.write_text("".join(f"{text}\n" for text in DOCUMENTS), encoding="utf-8")
    code, out, err = run("vocab", corpus, "--output", output, "--min-count", 2, "--num-proc", 1)
    assert code == 0, err
    assert_states(out, "special tokens and characters", "words added")
    assert "base" not in out and "redundant" not in out


@pytest.mark.parametrize(
    ("text", "options", "facts"),
    [
        ("天气", ["--size", 5], ["size is 5", "109", "--size"]),
        ("天气", ["--size", 109], ["size is 109", "111", "--size"]),
        ("\n \n", [], ["corpus", "no text"]),
    ],
)
def test_impossible_sizes_are_refused(run, tmp_path, text, options, facts):
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    code, out, err = run("vocab", tmp_path / "corpus.txt", "--output", tmp_path / "new.txt", *options)
    assert code == 1 and out == "" and err.count("\n") == 1
    assert_states(err, *facts)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_characters_alone(make):
    _, tokenizer, report = make(DOCUMENTS, max_length=1)
    assert report.added == 0 and tokenizer.word_segmentation is None
    assert tokenizer.tokenize("天气 park") == ["天", "气", "p", "##a", "##r", "##k"]
