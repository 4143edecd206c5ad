"""Triplets are read, shared out and encoded; the baselines say what the formulas say."""

import gzip
import json
from collections import Counter

import numpy as np
import pandas
import pytest
import rjieba
import torch
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY

from modeling_roformer import RoFormerConfig, RoFormerForTripletMatching, RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary_maker.corpus import CorpusError
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.triplets.baselines import decide, mean_vectors, nearest, text_blind, tf_idf
from modeling_roformer.training.triplets.reading import (
    Split,
    Triplet,
    digest_of_triplets,
    encode_triplets,
    read_triplets,
    split_triplets,
)
from modeling_roformer.training.triplets.results import Run

EXAMPLE = REPOSITORY / "examples" / "triplets.jsonl"
VOCAB = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"


@pytest.fixture(scope="module")
def triplets():
    return read_triplets(EXAMPLE)


@pytest.fixture(scope="module")
def tokenizer():
    return RoFormerTokenizer(str(VOCAB))


def test_the_example_is_read_with_its_lines(triplets, tmp_path):
    lines = [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()]
    assert [(triplet.texts, "BC"[triplet.label]) for triplet in triplets] == [
        ({name: line[name] for name in "ABC"}, line["label"]) for line in lines
    ]
    assert triplets[2].place == f"{EXAMPLE}, line 3"
    assert Counter(triplet.label for triplet in triplets) == {0: 12, 1: 12}
    with gzip.open(tmp_path / "triplets.jsonl.gz", "wb") as file:
        file.write(EXAMPLE.read_bytes().replace(b"\n", b"\n\n"))  # empty lines say nothing
    again = read_triplets(tmp_path / "triplets.jsonl.gz")
    assert [triplet.texts for triplet in again] == [triplet.texts for triplet in triplets]
    assert again[1].place.endswith("line 3")


def test_results_name_the_file_without_its_folder():
    triplets = read_triplets(EXAMPLE)[:3]
    run = Run.from_decisions(0, 0.5, triplets, np.array([0, 1, -1]))
    assert list(run.answers) == [f"{EXAMPLE.name}, line {number}" for number in (1, 2, 3)]


def test_parts_are_drawn_by_the_seed_and_share_nothing(triplets):
    parts = split_triplets(triplets, (0.6, 0.2, 0.2), seed=0)
    assert [len(part) for part in parts] == [14, 5, 5]
    assert sorted(triplet.place for part in parts for triplet in part) == sorted(triplet.place for triplet in triplets)
    assert (
        split_triplets(triplets, (0.6, 0.2, 0.2), seed=0) == parts != split_triplets(triplets, (0.6, 0.2, 0.2), seed=1)
    )
    assert [len(part) for part in split_triplets(triplets[:10], (0.6, 0.2, 0.2), 0)] == [6, 2, 2]
    assert Split(*parts).test_overlap() == (0, 15)
    assert Split(parts[0], parts[1], parts[2] + parts[1]).test_overlap() == (15, 30)


def triplet(a, b, c, label="B"):
    return Triplet(a, b, c, "BC".index(label), f"{a}{b}{c}")


def test_text_blind_counts_wins_less_losses():
    known = [triplet("x", "p", "q"), triplet("y", "q", "p", "C"), triplet("x", "r", "s"), triplet("y", "s", "t", "B")]
    # p has won twice, q lost twice, r won once, s lost and won, t lost; x and y count for nothing.
    asked = [triplet("?", "p", "r"), triplet("?", "t", "q"), triplet("?", "s", "r"), triplet("?", "s", "new")]
    assert text_blind(known, asked).tolist() == [0, 0, 1, -1]
    assert text_blind([], asked).tolist() == [-1] * 4
    relabelled = [Triplet(t.a, t.b, t.c, 1 - t.label, t.place) for t in asked]
    assert text_blind(known, relabelled).tolist() == [0, 0, 1, -1]  # it does not look


@pytest.mark.parametrize("unit", ["word", "bigram"])
def test_tf_idf_is_the_formula(triplets, unit):
    known, asked = triplets[:16], triplets[16:]

    def units(text):
        return rjieba.cut(text, False) if unit == "word" else [text[i : i + 2] for i in range(len(text) - 1)]

    texts = {text for t in known for text in t.texts.values()}
    frequency = Counter(word for text in texts for word in set(units(text)))

    def weights(text):
        counts = Counter(word for word in units(text) if word in frequency)
        vector = {word: n * (np.log((1 + len(texts)) / (1 + frequency[word])) + 1) for word, n in counts.items()}
        length = np.sqrt(sum(weight**2 for weight in vector.values())) or 1
        return {word: weight / length for word, weight in vector.items()}

    def cosine(one, other):
        one, other = weights(one), weights(other)
        return sum(weight * other.get(word, 0) for word, weight in one.items())

    expected = [np.sign(round(cosine(t.a, t.c) - cosine(t.a, t.b), 12)) for t in asked]
    decisions = tf_idf(known, asked, unit)
    assert decisions.tolist() == [{-1: 0, 1: 1, 0: -1}[sign] for sign in expected]
    assert len(set(expected)) > 1


def test_vectors_are_means_over_tokens(triplets, tokenizer):
    torch.manual_seed(0)
    config = RoFormerConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        triplet_scorer="bi",
    )
    model = RoFormerForTripletMatching(config).eval()
    vectors = mean_vectors(model, tokenizer, triplets, 16)
    assert len(vectors) == len({text for t in triplets for text in t.texts.values()})
    decisions = nearest(vectors, triplets)
    for t, decision in zip(triplets, decisions, strict=True):
        inputs = tokenizer(list(t.texts.values()), truncation=True, max_length=16, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**{name: value[None] for name, value in inputs.items()}).logits[0]
        assert logits.argmax() == decision
    same = [triplet("有人借钱", "还钱", "还钱")]
    assert nearest(mean_vectors(model, tokenizer, same, 16), same).tolist() == [-1]
    assert decide([[1.0, 0.5], [0.5, 1.0], [0.5, 0.5]]).tolist() == [0, 1, -1]


def test_a_text_without_a_token_is_named(tokenizer):
    with refused(TrainingError, "file, line 7", 'text "C"', "token"):
        encode_triplets([Triplet("甲", "乙", "\u0001", 0, "file, line 7")], tokenizer, "cross", 16)


GOOD = EXAMPLE.read_text(encoding="utf-8").splitlines()
FIELDS = json.loads(GOOD[0])


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("{'A': 1}", ["JSON"]),
        ("[1, 2]", ["not an object"]),
        (json.dumps({name: FIELDS[name] for name in ("A", "B", "label")}), ["'C'", "empty"]),
        (json.dumps({name: FIELDS[name] for name in "ABC"}), ["'label'", "empty"]),
        (json.dumps({**FIELDS, "B": ["5"]}), ["'B'", "list", "string"]),
        (json.dumps({**FIELDS, "B": " "}), ["'B'", "empty"]),
        (json.dumps({**FIELDS, "label": "A"}), ["label", '"A"', '"B"', '"C"']),
        (json.dumps({**FIELDS, "label": 0}), ["label", 0, '"B"', '"C"']),
        (json.dumps({**FIELDS, "label": None}), ["'label'", "empty"]),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, facts):
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join([*GOOD[:2], line, *GOOD[2:]]), encoding="utf-8")
    with pytest.raises((TrainingError, CorpusError)) as raised:
        read_triplets(path)
    assert str(raised.value).startswith(f"{path}, line 3") and "\n" not in str(raised.value)
    assert_states(raised.value, *facts)


def test_a_bad_file_is_named(tmp_path):
    def refusal(content, name="bad.jsonl"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises((TrainingError, CorpusError)) as raised:
            read_triplets(path)
        assert str(raised.value).startswith(str(path)) and "\n" not in str(raised.value)
        return raised.value

    assert_states(refusal("\n\n"), "no triplet")
    assert_states(refusal("\n".join(GOOD[:9])), 9, 10)
    assert_states(refusal("\n".join(GOOD[::2])), "every label", "B")
    assert_states(refusal("\n".join(GOOD).encode("gb18030")), "line 1", "UTF-8")
    assert_states(refusal("\n".join(GOOD), "bad.jsonl.gz"), "gzip")
    whole = gzip.compress("\n".join(GOOD).encode())
    assert_states(refusal(whole[: len(whole) // 2], "bad.jsonl.gz"), "gzip")
    assert_states(refusal("A,B,C\n一,二,三\n", "bad.csv"), "'label'", "A, B, C", "--label")
    with refused(TrainingError, "none.jsonl", "does not exist"):
        read_triplets(tmp_path / "none.jsonl")


@pytest.mark.parametrize("name", ["cail.jsonl", "input.txt", "cail.jsonl.gz", "cail.csv", "cail.tsv"])
def test_triplets_without_labels(tmp_path, triplets, name):
    """CAIL's original files, where B is the closer text: the error says how to make labels."""
    frame = pandas.DataFrame([(t.a, t.b, t.c) for t in triplets], columns=list("ABC"))
    if name.endswith("sv"):
        frame.to_csv(tmp_path / name, index=False, sep="\t" if name.endswith("tsv") else ",")
    else:
        text = frame.to_json(orient="records", lines=True, force_ascii=False)
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    with refused(TrainingError, name, "'label'", "A, B, C", "--label", "B is always the closer", "docs/triplets.md"):
        read_triplets(tmp_path / name)


@pytest.mark.parametrize("name", ["lcqmc.tsv", "lcqmc.csv", "lcqmc.jsonl", "plain.tsv"])
def test_sentence_pairs_are_named(tmp_path, name):
    columns = ["sentence1", "sentence2", "label"]
    frame = pandas.DataFrame([("今天", "明天", n % 2) for n in range(12)], columns=columns)
    if name.endswith("jsonl"):
        frame.to_json(tmp_path / name, orient="records", lines=True)
    else:
        separator = "\t" if name.endswith("tsv") else ","
        frame.to_csv(tmp_path / name, index=False, sep=separator, header=name.startswith("lcqmc"))
    one, other = columns[:2] if name.startswith("lcqmc") else ("column 1", "column 2")
    facts = ["sentence pairs", "examples/finetune_classification.py", f"--text {one!r} --text-pair {other!r}"]
    with refused(TrainingError, name, *facts):
        read_triplets(tmp_path / name)


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_triplets_without_labels_and_names(tmp_path, triplets, name, separator):
    """They ask for the names first, then for the labels."""
    rows = [separator.join((t.a, t.b, t.c)) for t in triplets]
    (tmp_path / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    with refused(TrainingError, name, "'A'", "--a", "put a line with the names"):
        read_triplets(tmp_path / name)
    (tmp_path / name).write_text("\n".join([separator.join("ABC"), *rows]) + "\n", encoding="utf-8")
    with refused(TrainingError, name, "'label'", "docs/triplets.md"):
        read_triplets(tmp_path / name)


def test_columns_of_triplets_with_other_names_are_no_pairs(tmp_path, triplets):
    columns = ["text1", "text2", "text3", "closer"]
    frame = pandas.DataFrame([(t.a, t.b, t.c, "BC"[t.label]) for t in triplets], columns=columns)
    for name, separator in (("a.csv", ","), ("a.tsv", "\t")):
        frame.to_csv(tmp_path / name, index=False, sep=separator)
        with refused(TrainingError, name, "'A'", *columns, "--a"):
            read_triplets(tmp_path / name)
        assert digest_of_triplets(read_triplets(tmp_path / name, columns)) == digest_of_triplets(triplets)


def test_spaces_around_a_label_are_no_part_of_it(tmp_path, triplets):
    rows = [{"A": t.a, "B": t.b, "C": t.c, "label": "BC"[t.label] + " "} for t in triplets]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert digest_of_triplets(read_triplets(tmp_path / "a.jsonl")) == digest_of_triplets(triplets)


@pytest.mark.parametrize("name", ["other.csv", "other.tsv", "no names.tsv", "other.parquet"])
def test_other_files_and_columns(tmp_path, triplets, name):
    columns = ["case", "first", "second", "closer"]
    frame = pandas.DataFrame([(t.a, t.b, t.c, "BC"[t.label]) for t in triplets], columns=columns)
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if name.endswith("tsv") else ",", header=name.startswith("other"))
    assert digest_of_triplets(read_triplets(path, columns)) == digest_of_triplets(triplets)
    if not name.endswith("tsv"):  # there, the first line could be a triplet
        with refused(TrainingError, path, "'A'", "case", "--a"):
            read_triplets(path)


def test_the_example_cannot_be_decided_unread(triplets):
    assert text_blind(triplets[:18], triplets[18:]).tolist() == [-1] * 6
