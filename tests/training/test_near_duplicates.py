"""Near-duplicates against the Jaccard similarity of every pair, and examples/hold_out.py, which splits by them."""

import gzip
import json
import random
from itertools import combinations

import pytest
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.pretraining import near_duplicates as module
from modeling_roformer.training.pretraining.near_duplicates import SHINGLE, near_duplicates

SCRIPT = "hold_out.py"


def text_of(draw, length=200):
    return "".join(chr(draw.randrange(0x4E00, 0x9FA5)) for _ in range(length))


def changed(draw, text, places):
    characters = list(text)
    for place in draw.sample(range(len(text)), places):
        characters[place] = chr(draw.randrange(0x4E00, 0x9FA5))
    return "".join(characters)


def shingles(text):
    return {text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))}


def jaccard(a, b):
    a, b = shingles(a), shingles(b)
    return len(a & b) / len(a | b)


def groups_by_hand(texts, similarity):
    """Return the same numbers: groups in the order of their first texts."""
    groups = list(range(len(texts)))
    for i, j in combinations(range(len(texts)), 2):
        if jaccard(texts[i], texts[j]) >= similarity:
            groups = [groups[i] if group == groups[j] else group for group in groups]
    return [sorted(set(groups), key=groups.index).index(group) for group in groups]


SIMILARITIES = st.sampled_from([0.05, 0.1, 0.2, 0.3, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.8, 0.9, 1.0]) | st.floats(
    0.01, 1
)
SMALL = st.lists(
    st.text(st.sampled_from("ab"), max_size=20) | st.text(st.sampled_from("abcde"), max_size=12), max_size=25
)


@max_examples(150)
@given(
    texts=SMALL, similarity=SIMILARITIES, many=st.integers(1, 4), cheap=st.integers(1, 500), at_once=st.integers(1, 99)
)
def test_groups_are_those_of_all_pairs(monkeypatch, texts, similarity, many, cheap, at_once):
    """However much is done in one step, and whichever way a pair is found."""
    for name, value in (("_LARGE_GROUP", many), ("_EXTRA_COMPARISONS", cheap), ("_COST_PER_STEP", at_once)):
        monkeypatch.setattr(module, name, value)
    assert near_duplicates(texts, similarity).tolist() == groups_by_hand(texts, similarity)


def test_groups():
    draw = random.Random(0)
    texts = [text_of(draw) for _ in range(30)]
    chain = [texts[0]]
    for _ in range(4):
        chain.append(changed(draw, chain[-1], 3))
    groups = near_duplicates([*texts, *chain[1:], texts[5], changed(draw, texts[6], 100)])
    assert len(set(groups[:30])) == 30
    assert (groups[30:34] == groups[0]).all()
    assert groups[34] == groups[5] and groups[35] not in groups[:35]


def test_many_copies_of_two_forms_need_few_comparisons(monkeypatch):
    """Letters that differ in a name: 2,000 each of two forms, in any order, of which all pairs would be two million."""
    draw = random.Random(0)
    forms = [text_of(draw), text_of(draw)]
    order = draw.choices(range(2), k=4_000)
    texts = [forms[form] + text_of(draw, 8) for form in order]
    monkeypatch.setattr(module, "MAX_COMPARISONS", 100_000)
    groups = near_duplicates(texts, 0.5)
    assert [(group != groups[0]) == (form != order[0]) for group, form in zip(groups.tolist(), order, strict=True)] == [
        True
    ] * 4_000


@pytest.mark.parametrize(
    "texts", [[], ["一"], ["", "", "二"], ["短", "短", "短短"], ["\udcff" * 3] * 2, ["短", "短\0"]]
)
def test_short_texts_and_none(texts):
    groups = near_duplicates(texts)
    assert groups.shape == (len(texts),)
    for i, text in enumerate(texts):
        assert [text == other for other in texts] == (groups == groups[i]).tolist()


@pytest.mark.parametrize("similarity", [0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_similarity_that_is_none(similarity):
    with refused(TrainingError, "similarity", similarity):
        near_duplicates(["一"], similarity)


def test_a_similarity_that_is_too_low_for_the_texts(monkeypatch):
    draw = random.Random(0)
    common = text_of(draw, 20)
    texts = [common + text_of(draw, 60) for _ in range(60)]
    monkeypatch.setattr(module, "MAX_COMPARISONS", 5_000)
    monkeypatch.setattr(module, "_EXTRA_COMPARISONS", 1)
    assert len(set(near_duplicates(texts, 0.5))) == 60
    with refused(TrainingError, "similarity", 0.15, "5,000"):
        near_duplicates(texts, 0.15)


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def test_no_document_has_a_near_duplicate_in_the_other_half(run_here, tmp_path):
    draw = random.Random(1)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    first = [text_of(draw) for _ in range(60)]
    second = [text_of(draw) for _ in range(30)] + [changed(draw, text, 4) for text in first[:20]]
    first += [changed(draw, text, 2) for text in first[20:40]]
    (corpus / "first.txt").write_text("\n".join(first), encoding="utf-8")
    (corpus / "second.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in second))
    code, out, _ = run_here(SCRIPT, tmp_path, corpus, tmp_path / "split", "--share", "0.3", "--most", "2_200")
    assert code == 0 and "second" in out
    held_out, train = (
        {name: read(tmp_path / "split" / half / f"{name}.jsonl.gz") for name in ("first", "second")}
        for half in ("held_out", "train")
    )
    assert sorted(held_out["first"] + train["first"]) == sorted(first)
    assert sorted(held_out["second"] + train["second"]) == sorted(second)
    assert 5 <= len(held_out["first"]) <= 11  # 2,200 characters
    assert 10 <= len(held_out["second"]) <= 15  # 30 % of 50 documents
    alike = [jaccard(a, b) for half in held_out.values() for a in half for c in train.values() for b in c]
    assert max(alike) < 0.5
    again = run_here(SCRIPT, tmp_path, corpus, tmp_path / "again", "--share", "0.3", "--most", "2_200")
    assert again[0] == 0 and read(tmp_path / "again" / "held_out" / "first.jsonl.gz") == held_out["first"]
    assert run_here(SCRIPT, tmp_path, corpus, tmp_path / "other", "--share", "0.3", "--seed", "1")[0] == 0
    assert read(tmp_path / "other" / "held_out" / "first.jsonl.gz") != held_out["first"]


def test_files_keep_their_names(run_here, tmp_path):
    draw, corpus = random.Random(0), tmp_path / "corpus"
    corpus.mkdir()
    names = {"-x.jsonl": "-x", "a.b.JSONL": "a.b", "中文 名.txt": "中文 名", "c.json.gz": "c"}
    texts = {name: [text_of(draw, 20) for _ in range(10)] for name in names}
    for name, documents in texts.items():
        lines = [json.dumps({"text": text}) if "json" in name.lower() else text for text in documents]
        content = "\n".join(lines).encode()
        (corpus / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    for name in (".DS_Store", ".git/index"):
        (corpus / name).parent.mkdir(exist_ok=True)
        (corpus / name).write_bytes(b"\xff\xfe")
    code, _, err = run_here(SCRIPT, tmp_path, corpus, tmp_path / "split", "--share", "0.3")
    assert code == 0, err
    for name, kept in names.items():
        documents = [read(tmp_path / "split" / half / f"{kept}.jsonl.gz") for half in ("train", "held_out")]
        assert [len(of_half) for of_half in documents] in ([7, 3], [8, 2])
        assert sorted(documents[0] + documents[1]) == sorted(texts[name])


@pytest.mark.parametrize(
    ("named", "place"), [("cases", "cases"), ("cases", ".cases"), ("laws.2020", "laws.2020/2020/..")]
)
def test_a_file_is_a_document(run_here, tmp_path, named, place):
    draw, corpus = random.Random(1), tmp_path / place.partition("/")[0]
    (corpus / "2020").mkdir(parents=True)
    texts = [f"{text_of(draw)}\n{text_of(draw)}" for _ in range(20)]
    for number, text in enumerate(texts):
        (corpus / ("2020" if number % 2 else "") / f"{number}.txt").write_text(text, encoding="utf-8")
    options = "--sample-by", "document", "--share", "0.2"
    assert run_here(SCRIPT, tmp_path, tmp_path / place, tmp_path / "split", *options)[0] == 0
    train, held_out = (read(tmp_path / "split" / half / f"{named}.jsonl.gz") for half in ("train", "held_out"))
    assert len(held_out) == 4 and sorted(train + held_out) == sorted(texts)


def test_documents_that_cannot_be_split_are_named(run_here, tmp_path):
    a, blank, output = tmp_path / "a.txt", tmp_path / "blank.txt", tmp_path / "out"
    a.write_text("明月几时有\n" * 2, encoding="utf-8")
    blank.write_text("\n \n", encoding="utf-8")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.jsonl").write_text('{"text": "把酒问青天"}', encoding="utf-8")
    refusals = {
        (a, tmp_path / "b", output): [a, tmp_path / "b" / "a.jsonl"],
        (blank, output): ["blank.txt"],
        (a, output): ["nothing", "--share", "--most"],
        (a, output, "--share", "5"): ["everything", "--share"],
        (a, output, "--similarity", "0"): ["similarity", 0],
    }
    for arguments, facts in refusals.items():
        code, _, err = run_here(SCRIPT, tmp_path, *arguments)
        assert code == 1
        assert_states(err, "hold_out: ", *facts)
    assert not output.exists()
    assert run_here(SCRIPT, tmp_path, a, tmp_path / "b" / "a.jsonl", tmp_path / "b")[0] == 1
