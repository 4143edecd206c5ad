"""Near-duplicates against the Jaccard similarity computed outright, and examples/hold_out.py, which splits by them."""

import gzip
import json
import random
import runpy
import sys

import numpy as np
import pytest
from paths import REPOSITORY

from modeling_roformer.training.near_duplicates import SHINGLE, MinHash, near_duplicates

SCRIPT = REPOSITORY / "examples" / "hold_out.py"


def text_of(draw, length=200):
    return "".join(chr(draw.randrange(0x4E00, 0x9FA5)) for _ in range(length))


def changed(draw, text, places):
    characters = list(text)
    for place in draw.sample(range(len(text)), places):
        characters[place] = chr(draw.randrange(0x4E00, 0x9FA5))
    return "".join(characters)


def jaccard(a, b):
    sets = [{text[i : i + SHINGLE] for i in range(len(text) - SHINGLE + 1)} for text in (a, b)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


@pytest.mark.parametrize("places", [0, 2, 5, 15, 60])
def test_signatures_estimate_the_similarity(places):
    draw = random.Random(places)
    signature, errors = MinHash(), []
    for _ in range(10):
        text = text_of(draw)
        other = changed(draw, text, places)
        errors.append((signature(text) == signature(other)).mean() - jaccard(text, other))
    # The standard error of the mean of 10 estimates from 128 entries is 0.014 at most.
    assert abs(np.mean(errors)) < 0.05


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


@pytest.mark.parametrize("texts", [[], ["一"], ["", "", "二"], ["短", "短", "短短"], ["\udcff" * 3] * 2])
def test_short_texts_and_none(texts):
    groups = near_duplicates(texts)
    assert groups.shape == (len(texts),)
    for i, text in enumerate(texts):
        assert [text == other for other in texts] == (groups == groups[i]).tolist()


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def test_no_document_has_a_near_duplicate_in_the_other_half(monkeypatch, capsys, tmp_path):
    draw = random.Random(1)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    first = [text_of(draw) for _ in range(60)]
    second = [text_of(draw) for _ in range(30)] + [changed(draw, text, 4) for text in first[:20]]
    first += [changed(draw, text, 2) for text in first[20:40]]
    (corpus / "first.txt").write_text("\n".join(first), encoding="utf-8")
    (corpus / "second.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in second))
    code, out, _ = run(monkeypatch, capsys, corpus, tmp_path / "split", "--share", "0.3", "--most", "2_200")
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
    again = run(monkeypatch, capsys, corpus, tmp_path / "again", "--share", "0.3", "--most", "2_200")
    assert again[0] == 0 and read(tmp_path / "again" / "held_out" / "first.jsonl.gz") == held_out["first"]
    assert run(monkeypatch, capsys, corpus, tmp_path / "other", "--share", "0.3", "--seed", "1")[0] == 0
    assert read(tmp_path / "other" / "held_out" / "first.jsonl.gz") != held_out["first"]


def test_what_cannot_be_split_is_said_in_a_sentence(monkeypatch, capsys, tmp_path):
    (tmp_path / "a.txt").write_text("明月几时有", encoding="utf-8")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.jsonl").write_text('{"text": "把酒问青天"}', encoding="utf-8")
    refusals = {
        (tmp_path / "missing", tmp_path / "out"): "missing does not exist",
        (tmp_path / "a.txt", tmp_path / "b", tmp_path / "out"): "two files of the corpus are both called a:",
        (tmp_path / "a.txt", tmp_path / "b"): "b is not empty",
    }
    for arguments, sentence in refusals.items():
        code, _, err = run(monkeypatch, capsys, *arguments)
        assert code == 1 and err.startswith("hold_out: ") and sentence in err and err.count("\n") == 1, err
    assert not (tmp_path / "out").exists()
