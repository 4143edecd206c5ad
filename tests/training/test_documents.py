"""Documents for pre-training: read from whatever holds them, tokenized once, cut at sentence ends."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version

import datasets
import jieba
import pytest
from helpers.messages import refused
from helpers.paths import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.data import data_sets, values
from modeling_roformer.data import texts as texts_module
from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.training import TrainingError, load_data
from modeling_roformer.training.pretraining import documents
from modeling_roformer.training.pretraining.documents import (
    Corpus,
    checksum_of,
    piece_bounds,
    read_documents,
    split_documents,
    tokenize_documents,
)

VOCAB = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"
TEXTS = [
    "今天天气非常好。我们去公园玩",
    "人民法院认为，合同无效。\n判决如下。",
    "The RoFormer is a transformer",
    "[MASK]不是词",
]


@pytest.fixture(scope="module")
def words():
    return RoFormerTokenizer(str(VOCAB))


@pytest.fixture(scope="module")
def characters():
    return RoFormerTokenizer(str(VOCAB), word_segmentation=None)


@pytest.fixture
def write(tmp_path):
    def write(name, texts, field="text", encoding="utf-8"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(exist_ok=True)
        lines = [json.dumps({field: text}) if ".jsonl" in name else text for text in texts]
        data = "".join(line + "\n" for line in lines).encode(encoding)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture
def corpus(tmp_path):
    """Return a function that writes a corpus of given texts."""

    def corpus(texts):
        return datasets.Dataset.from_dict({"text": texts}, features=datasets.Features(text=datasets.Value("string")))

    return corpus


def test_every_form_of_a_corpus(write, tmp_path):
    """Files in the order given, those of a folder in the order of their names."""
    b = write("b.jsonl", TEXTS[:2])
    a = write("a.txt.gz", ["第一行", "", "第二行"])
    (a.parent / ".hidden").write_text("no")
    datasets.Dataset.from_dict({"text": ["数据集", None], "more": [1, 2]}).to_parquet(tmp_path / "c.parquet")
    found = read_documents([b, tmp_path / "c.parquet", a.parent], cache=tmp_path / "cache")
    assert found["text"][:] == [*TEXTS[:2], "数据集", "第一行", "第二行", *TEXTS[:2]]


def test_tables_and_files_that_are_one_document(write, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text('id,body\n1,"第一行，\n第二行"\n2,NA\n', encoding="utf-8")
    (tmp_path / "table.tsv.gz").write_bytes(gzip.compress("body\tid\n一，二\t3\n".encode()))
    sources = [table, write("a.txt", ["第一行", "", "第二行"]), tmp_path / "table.tsv.gz"]
    found = read_documents(sources, "body", "document", tmp_path / "cache")
    assert found["text"][:] == ["第一行，\n第二行", "NA", "第一行\n\n第二行\n", "一，二"]


def test_tokens_are_the_tokenizers_and_words_are_tokens(words, corpus):
    rows = tokenize_documents(corpus(TEXTS), words)
    for row, text in zip(rows, TEXTS, strict=True):
        encoding = words(text, add_special_tokens=False, split_special_tokens=True)
        assert row["input_ids"] == encoding["input_ids"] and words.mask_token_id not in row["input_ids"]
        numbers = encoding.word_ids()
        assert row["word_starts"] == [i == 0 or n != numbers[i - 1] for i, n in enumerate(numbers)]
    assert rows["character_ends"][1] == [12, 13, 18]
    first, second = (words(text, add_special_tokens=False)["input_ids"] for text in TEXTS[1].split("\n"))
    assert rows["token_ends"][1] == [len(first), len(first), len(first) + len(second)]


def test_words_of_a_character_vocabulary_are_jiebas(characters, corpus):
    text = "人民法院判决本合同无效，RoFormer的 c++ 很好"
    (row,) = tokenize_documents(corpus([text]), characters)
    tokens = characters.convert_ids_to_tokens(row["input_ids"])
    assert row["input_ids"] == characters(text, add_special_tokens=False)["input_ids"]
    found = []
    for token, start in zip(tokens, row["word_starts"], strict=True):
        if start:
            found.append("")
        found[-1] += token.removeprefix("##")
    assert found == [word for word in jieba.cut(text.lower(), HMM=False) if word.strip()]


def test_documents_are_tokenized_once(words, write, tmp_path, monkeypatch):
    file = write("a.txt", TEXTS)
    made = [tokenize_documents(read_documents([file], cache=tmp_path / "cache"), words)]
    calls = []
    work = documents.DocumentTokenizer.__call__
    monkeypatch.setattr(
        documents.DocumentTokenizer, "__call__", lambda self, batch: calls.append(batch) or work(self, batch)
    )
    again = RoFormerTokenizer(str(VOCAB))
    again("已用过")
    made.append(tokenize_documents(read_documents([file], cache=tmp_path / "cache"), again))
    assert not calls and made[0][:] == made[1][:]
    assert made[1].cache_files and all(str(tmp_path) in file["filename"] for file in made[1].cache_files)
    tokenize_documents(
        read_documents([file], cache=tmp_path / "cache"), RoFormerTokenizer(str(VOCAB), do_lower_case=False)
    )
    assert calls


def test_files_that_other_code_made_are_not_used(words, write, tmp_path, monkeypatch):
    """Each step alone: the reader of `datasets`' tables, that of documents, the tokenizer, and the split."""
    file, cache = write("a.jsonl", ["abc。def", "ghi"]), tmp_path / "cache"

    def rows_of_every_step():
        texts = read_documents([file], cache=cache)
        pieces = split_documents(tokenize_documents(texts, words), 8)
        ids = [row.tolist() for row in pieces["input_ids"]]
        return [load_data(file, cache=cache)["text"][:], texts["text"][:], ids]

    before = rows_of_every_step()
    upper = lambda value, *where: values.text_of(value, *where).upper()  # noqa: E731
    monkeypatch.setattr(data_sets, "text_of", upper)
    monkeypatch.setattr(texts_module, "text_of", upper)
    monkeypatch.setattr(documents, "piece_bounds", lambda tokens, *_: [(0, 1)])
    call = documents.DocumentTokenizer.__call__
    monkeypatch.setattr(
        documents.DocumentTokenizer, "__call__", lambda self, batch: call(self, {"text": ["今天"] * len(batch["text"])})
    )
    assert rows_of_every_step() == before
    monkeypatch.setattr(documents, "code_digest", lambda: "of other code")
    today = words("今天", add_special_tokens=False)["input_ids"][:1]
    assert rows_of_every_step() == [*before[:2], [today, today]]
    monkeypatch.setattr(data_sets, "code_digest", lambda: "of other code")
    table, texts, *_ = rows_of_every_step()
    assert table == texts == ["ABC。DEF", "GHI"]


def test_the_digest_of_code_depends_on_each_library(monkeypatch):
    code_digest = data_sets.code_digest.__wrapped__  # without its cache
    digests = [code_digest(), code_digest()]
    for library in ("rjieba", "jieba", "tokenizers", "transformers", "pandas", "pyarrow"):
        with monkeypatch.context() as patch:
            patch.setattr(
                "modeling_roformer.data.code_digest.version",
                lambda name, of=library: "9" if name == of else version(name),
            )
            digests.append(code_digest())
    assert digests[0] == digests[1] and len({*digests}) == 7


# What a process prints that imports a copy of the package.
COPIED = """
import json, sys
from modeling_roformer.training import Corpus, load_data
from modeling_roformer import RoFormerTokenizer
file, vocab, cache = sys.argv[1:]
pieces = Corpus([file], cache=cache).pieces(RoFormerTokenizer(vocab), 16)
rows = [load_data(file, cache=cache)["text"][:], Corpus([file], cache=cache).documents()["text"][:]]
print(json.dumps([*rows, [ids.tolist() for ids in pieces["input_ids"]]]))
"""


@pytest.mark.slow
def test_a_changed_reader_and_a_changed_tokenizer_have_an_effect(write, tmp_path):
    """In copies of the package, with the cache of the package before."""
    shutil.copytree(REPOSITORY / "modeling_roformer", tmp_path / "modeling_roformer")
    for room in ("tokenization", "training", "model_cards", "conversion", "serving"):
        shutil.copytree(REPOSITORY / room, tmp_path / "modeling_roformer" / room)
    file = write("a.jsonl", ["人民法院应当a"])

    def read():
        done = subprocess.run(
            [sys.executable, "-c", COPIED, file, VOCAB, tmp_path / "cache"],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def change(name, old, new):
        path = tmp_path / "modeling_roformer" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), encoding="utf-8")

    table, texts, ids = read()
    assert table == texts == ["人民法院应当a"]
    change("data/values.py", "        return value\n", "        return value.replace('a', '天')\n")
    table, texts, other_ids = read()
    assert table == texts == ["人民法院应当天"] and other_ids != ids
    change(
        "tokenization/segmentation.py", "return chain.from_iterable(map(self._cut, _PART.findall(text)))", "return text"
    )
    assert read()[:2] == [table, texts] and read()[2] != other_ids
    before = read()[2]
    change("training/pretraining/documents.py", "room = length - SPECIAL_TOKENS", "room = 1")
    assert [len(piece) for piece in read()[2]] == [1] * sum(map(len, before))


def test_a_checksum_depends_on_every_value_and_not_on_batches(words, corpus):
    texts = ["一二。" * 40, "三", "四五。" * 10]
    pieces = split_documents(tokenize_documents(corpus(texts), words), 16)
    first = checksum_of(pieces)
    assert checksum_of(split_documents(tokenize_documents(corpus(texts), words), 16, num_proc=2)) == first
    divided = [pieces.select(range(5)), pieces.select(range(5, len(pieces)))]
    assert checksum_of(datasets.concatenate_datasets(divided)) == first
    others = [
        pieces.select(range(len(pieces) - 1)),
        pieces.select([1, 0, *range(2, len(pieces))]),
        split_documents(tokenize_documents(corpus(texts), words), 17),
    ]
    for name in pieces.column_names:
        *column, last = pieces.with_format(None)[name][:]
        last = last + 1 if isinstance(last, int) else [*last[:-1], type(last[-1])(not last[-1])]
        changed = pieces.remove_columns(name).add_column(name, [*column, last], feature=pieces.features[name])
        others.append(changed.select_columns(pieces.column_names))
    assert len({first, *map(checksum_of, others)}) == 1 + len(others)


def test_pieces_are_numbered_within_documents_and_never_joined(words, corpus):
    texts = ["一二。" * 40, "三", "四五。" * 10]
    tokens = tokenize_documents(corpus(texts), words)
    pieces = split_documents(tokens, 16)
    assert (pieces["document"][:] == sorted(pieces["document"][:])).all()
    for number, text in enumerate(texts):
        mine = [row for row in pieces if row["document"] == number]
        assert [row["piece"] for row in mine] == list(range(len(mine)))
        ids = [token for row in mine for token in row["input_ids"]]
        assert ids == words(text, add_special_tokens=False)["input_ids"]
        assert all(len(row["input_ids"]) <= 14 for row in mine)
    assert split_documents(tokens, 16, num_proc=2).with_format(None)[:] == pieces.with_format(None)[:]


def bounds(sentences, length):
    """`piece_bounds`, of sentences given as (tokens, characters), every token a word; the pieces as such tuples."""
    tokens = [sum(t for t, _ in sentences[: i + 1]) for i in range(len(sentences))]
    characters = [sum(c for _, c in sentences[: i + 1]) for i in range(len(sentences))]
    return piece_bounds(tokens, characters, [True] * sum(t for t, _ in sentences), length)


def test_documents_are_cut_at_the_ends_of_sentences():
    # One and a half times 12 is 18 characters; 10 tokens beside [CLS] and [SEP].
    assert bounds([(3, 9), (3, 9), (3, 9)], 12) == [(0, 6), (6, 9)]
    assert bounds([(3, 9), (3, 10), (3, 8)], 12) == [(0, 3), (3, 9)]
    assert bounds([(6, 6), (4, 4), (1, 1)], 12) == [
        (0, 10),
        (10, 11),
    ]  # by tokens
    assert bounds([(25, 50)], 12) == [(0, 10), (10, 20), (20, 25)]  # no sentence end
    assert bounds([(2, 2), (25, 25), (3, 3)], 12) == [(0, 2), (2, 12), (12, 22), (22, 30)]
    assert bounds([(4, 12), (4, 12)], 12) == [(0, 4), (4, 8)]
    assert bounds([(4, 13), (4, 12), (3, 9)], 12) == [
        (0, 8),
        (8, 11),
    ]  # no Chinese, in which tokens alone count
    assert bounds([(0, 1), (0, 1)], 12) == []
    assert piece_bounds([12], [12], [True, *[False] * 3, True, *[False] * 7], 8) == [(0, 4), (4, 10), (10, 12)]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), max_size=30),
    st.integers(3, 40),
    st.randoms(use_true_random=False),
)
def test_no_token_is_lost_and_sentences_stay_whole(sentences, length, random):
    ends = [sum(t for t, _ in sentences[: i + 1]) for i in range(len(sentences))]
    places = [sum(c for _, c in sentences[: i + 1]) for i in range(len(sentences))]
    starts = [random.random() < 0.7 for _ in range(ends[-1] if ends else 0)]
    pieces = piece_bounds(ends, places, starts, length)
    assert [i for piece in pieces for i in range(*piece)] == list(range(len(starts)))
    assert all(last - first <= length - 2 for first, last in pieces)
    within = {i for i, (t, _) in enumerate(sentences) if t > length - 2}
    for _, last in pieces:
        sentence = next(i for i, end in enumerate(ends) if end >= last)
        assert last == ends[sentence] or sentence in within


def damage(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    "change",
    [damage, lambda file: file.write_bytes(b""), lambda file: file.write_bytes(b"{}"), lambda file: file.unlink()],
)
def test_a_damaged_cache_is_named(words, write, tmp_path, change):
    corpus = Corpus([write("texts.txt", TEXTS)], cache=tmp_path / "cache")
    whole = corpus.pieces(words, 32).to_list()
    folder = tmp_path / "cache" / "generator"
    for file in [*folder.rglob("*.arrow"), *folder.rglob("*.json")]:
        content = file.read_bytes()
        change(file)
        if file.exists() or file.name.startswith("generator"):
            with refused(TrainingError, folder):
                corpus.pieces(words, 32)
            file.write_bytes(content)
        else:  # it is made again
            assert corpus.pieces(words, 32).to_list() == whole
    shutil.rmtree(folder)
    assert corpus.pieces(words, 32).to_list() == whole
