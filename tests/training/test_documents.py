"""Documents for pre-training: read from whatever holds them, tokenized once, cut at sentence ends."""

import gzip
import json

import datasets
import jieba
import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary_maker.corpus import CorpusError
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.pretraining import documents
from modeling_roformer.training.pretraining.documents import cut, cut_documents, read_documents, tokenize_documents

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
    def write(name, texts, field="text"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(exist_ok=True)
        lines = [json.dumps({field: text}) if ".jsonl" in name else text for text in texts]
        data = "".join(line + "\n" for line in lines).encode("utf-8")
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
    """Files in the order given, those of a folder in the order of their names, then a data set."""
    b = write("b.jsonl", TEXTS[:2])
    a = write("a.txt.gz", ["第一行", "", "第二行"])
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    datasets.Dataset.from_dict({"text": ["数据集"], "more": [1]}).to_parquet(parquet / "train.parquet")
    found = read_documents([b, parquet, a.parent], tmp_path / "cache")
    # The folder's files are b, which was read, and a; each data set in between keeps its place.
    assert found["text"][:] == [*TEXTS[:2], "数据集", "第一行", "第二行", *TEXTS[:2]]
    found = read_documents([b, write("z.txt", []), a.parent], tmp_path / "cache", num_proc=2)
    assert found["text"][:] == [*TEXTS[:2], "第一行", "第二行"]


def test_tables_and_files_that_are_one_document(write, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text('id,body\n1,"第一行，\n第二行"\n2,NA\n', encoding="utf-8")
    (tmp_path / "table.tsv.gz").write_bytes(gzip.compress("body\tid\n一，二\t3\n".encode()))
    datasets.Dataset.from_dict({"body": ["数据", None]}).to_parquet(tmp_path / "table.parquet")
    lines = write("a.txt", ["第一行", "", "第二行"])
    sources = [table, lines, tmp_path / "table.tsv.gz", tmp_path / "table.parquet"]
    texts = ["第一行，\n第二行", "NA", "第一行\n\n第二行\n", "一，二", "数据"]
    found = read_documents(sources, tmp_path / "cache", field="body", sample_by="document")
    assert found["text"][:] == texts
    found = read_documents(sources, tmp_path / "cache", field="body")
    assert found["text"][:] == [*texts[:2], "第一行", "第二行", *texts[3:]]
    blank = write("blank.txt", ["", " "])
    with refused(CorpusError, "table.csv", "'text'", "body"):
        read_documents([table], tmp_path / "cache")
    with refused(TrainingError, "no text", blank):
        read_documents([blank], tmp_path / "cache", sample_by="document")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with refused(TrainingError, "bad.parquet", "table"):
        read_documents([tmp_path / "bad.parquet"], tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("a.csv", "text\n你好,世界\n再见\n", ["line 2", "2 fields"]),  # pandas makes an index of the first field
        ("a.csv", "id,text\n1,你好,世界\n2,再见\n", ["line 2", "3 fields"]),
        ("a.tsv", "text\tid\n好\t1\t2\n", ["line 2", "3 fields", "TAB"]),
        ("a.csv", 'text\n好\n"再见\n', ["line 3", "quote"]),
        ("a.csv", "text,text\n好,1\n", ["several", "'text'"]),
        ("a.csv", "text\n好\n".encode("gb18030"), ["UTF-8", "iconv"]),
    ],
)
def test_tables_whose_texts_would_be_lost(tmp_path, name, content, facts):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(CorpusError, name, *facts):
        read_documents([tmp_path / name], tmp_path / "cache")


def test_tables_of_a_folder(tmp_path):
    """They are read beside text files; alone, they are a data set, of which the split for training is read."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "b.csv").write_text("text\nNA\n01\n", encoding="utf-8")
    (folder / "c.tsv").write_text('text\tid\n"一\t1\n二"\t2\n', encoding="utf-8")
    texts = ["NA", "01", '"一', '二"']
    assert read_documents([folder], tmp_path / "cache")["text"][:] == texts
    (folder / "a.txt").write_text("文\n", encoding="utf-8")
    datasets.Dataset.from_dict({"text": ["数据"]}).to_parquet(folder / "d.parquet")
    assert read_documents([folder], tmp_path / "cache")["text"][:] == ["文", *texts, "数据"]
    parts = tmp_path / "parts"
    parts.mkdir()
    for part in ("train", "test"):
        (parts / f"{part}.csv").write_text(f"text\n{part}\n", encoding="utf-8")
    assert read_documents([parts], tmp_path / "cache")["text"][:] == ["train"]


def test_a_field_of_another_name_and_half_a_surrogate_pair(write, tmp_path):
    file = write("a.jsonl", ["好\ud800"], field="content")
    assert read_documents([file], tmp_path / "cache", field="content")["text"][:] == ["好?"]


def test_a_file_that_has_changed_is_read_again(write, tmp_path):
    assert read_documents([write("a.txt", ["一"])], tmp_path / "cache")["text"][:] == ["一"]
    assert read_documents([write("a.txt", ["二二"])], tmp_path / "cache")["text"][:] == ["二二"]


def test_what_cannot_be_read(write, tmp_path):
    def refusal(*sources, error=TrainingError, **options):
        with refused(error) as caught:
            read_documents(sources, tmp_path / "cache", **options)
        return caught.value

    assert_states(refusal(), "corpus")
    empty = write("empty.txt", ["", " "])
    assert_states(refusal(empty), "no text", empty)
    assert_states(refusal(tmp_path / "missing.txt", error=CorpusError), "missing.txt", "does not exist")
    bad = write("bad.jsonl", TEXTS)
    bad.write_bytes(bad.read_bytes() + b"{\n")
    assert_states(refusal(bad, error=CorpusError), bad, "line 5", "JSON")
    assert_states(refusal(write("a.jsonl", TEXTS), field="body", error=CorpusError), "a.jsonl", "'body'")
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    datasets.Dataset.from_dict({"number": [1]}).to_parquet(parquet / "train.parquet")
    assert_states(refusal(parquet), parquet, "'text'", "number", "--field")
    assert_states(refusal(parquet, field="number"), parquet, "'number'", "text")
    (parquet / "train.parquet").write_bytes(b"PAR1")
    assert_states(refusal(parquet), parquet, "data set")


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
    made = [tokenize_documents(read_documents([file], tmp_path / "cache"), words)]
    calls = []
    work = documents.DocumentTokenizer.__call__
    monkeypatch.setattr(
        documents.DocumentTokenizer, "__call__", lambda self, batch: calls.append(batch) or work(self, batch)
    )
    again = RoFormerTokenizer(str(VOCAB))
    again("已用过")
    made.append(tokenize_documents(read_documents([file], tmp_path / "cache"), again))
    assert not calls and made[0][:] == made[1][:]
    assert made[1].cache_files and all(str(tmp_path) in file["filename"] for file in made[1].cache_files)
    tokenize_documents(read_documents([file], tmp_path / "cache"), RoFormerTokenizer(str(VOCAB), do_lower_case=False))
    assert calls


def test_pieces_are_numbered_within_documents_and_never_joined(words, corpus):
    texts = ["一二。" * 40, "三", "四五。" * 10]
    tokens = tokenize_documents(corpus(texts), words)
    pieces = cut_documents(tokens, 16)
    assert (pieces["document"][:] == sorted(pieces["document"][:])).all()
    for number, text in enumerate(texts):
        mine = [row for row in pieces if row["document"] == number]
        assert [row["piece"] for row in mine] == list(range(len(mine)))
        ids = [token for row in mine for token in row["input_ids"]]
        assert ids == words(text, add_special_tokens=False)["input_ids"]
        assert all(len(row["input_ids"]) <= 14 for row in mine)
    assert cut_documents(tokens, 16, num_proc=2).with_format(None)[:] == pieces.with_format(None)[:]


def cut_sentences(sentences, length):
    """`cut`, of sentences given as (tokens, characters), every token a word; the pieces as such tuples."""
    tokens = [sum(t for t, _ in sentences[: i + 1]) for i in range(len(sentences))]
    characters = [sum(c for _, c in sentences[: i + 1]) for i in range(len(sentences))]
    return cut(tokens, characters, [True] * sum(t for t, _ in sentences), length)


def test_where_documents_are_cut():
    # One and a half times 12 is 18 characters; 10 tokens beside [CLS] and [SEP].
    assert cut_sentences([(3, 9), (3, 9), (3, 9)], 12) == [(0, 6), (6, 9)]
    assert cut_sentences([(3, 9), (3, 10), (3, 8)], 12) == [(0, 3), (3, 9)]
    assert cut_sentences([(6, 6), (4, 4), (1, 1)], 12) == [(0, 10), (10, 11)]  # a piece ends where tokens would be lost
    assert cut_sentences([(25, 50)], 12) == [(0, 10), (10, 20), (20, 25)]  # no sentence end
    assert cut_sentences([(2, 2), (25, 25), (3, 3)], 12) == [(0, 2), (2, 12), (12, 22), (22, 30)]
    assert cut_sentences([(4, 12), (4, 12)], 12) == [(0, 4), (4, 8)]
    assert cut_sentences([(4, 13), (4, 12), (3, 9)], 12) == [(0, 8), (8, 11)]  # no Chinese, in which tokens alone count
    assert cut_sentences([(0, 1), (0, 1)], 12) == []
    assert cut([12], [12], [True, *[False] * 3, True, *[False] * 7], 8) == [(0, 4), (4, 10), (10, 12)]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), max_size=30),
    st.integers(3, 40),
    st.randoms(use_true_random=False),
)
def test_no_token_is_lost_and_sentences_stay_whole(sentences, length, random):
    ends = [sum(t for t, _ in sentences[: i + 1]) for i in range(len(sentences))]
    places = [sum(c for _, c in sentences[: i + 1]) for i in range(len(sentences))]
    starts = [random.random() < 0.7 for _ in range(ends[-1] if ends else 0)]
    pieces = cut(ends, places, starts, length)
    assert [i for piece in pieces for i in range(*piece)] == list(range(len(starts)))
    assert all(last - first <= length - 2 for first, last in pieces)
    within = {i for i, (t, _) in enumerate(sentences) if t > length - 2}
    for _, last in pieces:
        sentence = next(i for i, end in enumerate(ends) if end >= last)
        assert last == ends[sentence] or sentence in within
