"""examples/paper/order_triplets.py: two texts of the same sentences, one of which follows A in its statute."""

import gzip
import json
import random
import re
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.small_models import small_model
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_roformer import RoFormerForTripletMatching, RoFormerTokenizer
from modeling_roformer.training import TripletCollator

SCRIPT = REPOSITORY / "examples" / "paper" / "order_triplets.py"
MATTERS = "水土林草矿路桥船车电气火药食盐糖茶酒布纸书报信学医老幼残军警税费地房物业商农渔牧猎种肥虫鸟兽"
NUMERALS = ["一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"]
SIZES = {"train": 40, "validation": 6, "test": 20}
LENGTHS = (160, 256)
SENTENCE = re.compile("[^。]+。")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *MATTERS, *"的按照规定由部门管理禁止保护违反处罚。；，（）"]


def make_statute(matter):
    """Return a statute with headings, references and enumerations, and its sentences without them."""
    some, kept = random.Random(matter), []
    lines = [f"{matter}管理条例", "第一章  总则"]
    for numeral in NUMERALS:
        one, two, three = ("".join(some.sample(MATTERS, number)) for number in (4, 6, 8))
        kept += [f"{matter}的{one}按照规定由部门管理。", f"禁止{two}；保护{three}。", f"违反规定的处罚{three}。"]
        lines += [
            f"第{numeral}条　{matter}的{one}（以下简称{two}）按照本条例第三条规定由部门管理。",
            f"一、禁止{two}；（二）保护{three}。",
            f"其次，违反前款规定的处罚{three}。",
            "第二章 附 则",
        ]
    return "\n".join([*lines, "第十三条 本条例自2012年1月1日起施行。"]), "".join(kept)


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    RoFormerTokenizer("vocab.txt").save_pretrained("tokenizer")

    def run(laws, held_out, *more, tokenizer="tokenizer", **sizes):
        for name, texts in (("laws", laws), ("held_out", held_out)):
            with gzip.open(f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        words = ["laws.jsonl.gz", "held_out.jsonl.gz", tokenizer, "--output", "order", "--length", *LENGTHS]
        options = [word for name, value in (SIZES | sizes).items() for word in (f"--{name}", value)]
        return run_script(SCRIPT, [*words, *options, *more], monkeypatch, capfd)

    return run


def read(folder, length, part):
    lines = (folder / "order" / str(length) / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_only_the_order_of_sentences_tells_what_follows(run, tmp_path):
    made = {matter: make_statute(matter) for matter in MATTERS}
    code, out, err = run([made[matter][0] for matter in MATTERS[:36]], [made[matter][0] for matter in MATTERS[34:]])
    assert code == 0, err
    tokenizer = RoFormerTokenizer("vocab.txt")
    used = {}
    for part, size in SIZES.items():
        rows = [read(tmp_path, length, part) for length in LENGTHS]
        for length, triplets in zip(LENGTHS, rows, strict=True):
            assert len(triplets) == size and sum(triplet["label"] == "B" for triplet in triplets) == size // 2
            for triplet in triplets:
                assert [*triplet] == ["A", "B", "C", "label", "statute"]
                right, wrong = triplet[triplet["label"]], triplet["C" if triplet["label"] == "B" else "B"]
                matter = triplet["statute"][0]
                assert triplet["A"] + right in made[matter][1] and triplet["A"] + wrong not in made[matter][1]
                sentences, others = SENTENCE.findall(right), SENTENCE.findall(wrong)
                assert "".join(sentences) == right and len({*sentences}) == len(sentences) >= 4
                assert sorted(sentences) == sorted(others) and sentences != others
                ids = [tokenizer(right)["input_ids"], tokenizer(wrong)["input_ids"]]
                assert sorted(ids[0]) == sorted(ids[1]) and ids[0] != ids[1]
                assert length * 0.6 < len(tokenizer(triplet["A"], right)["input_ids"]) <= length
        for short, long in zip(*rows, strict=True):
            label = short["label"]
            assert (label, short["statute"]) == (long["label"], long["statute"])
            assert long["A"].endswith(short["A"]) and long[label].startswith(short[label])
        used[part] = {triplet["statute"] for triplet in rows[0]}
    assert not used["train"] & used["validation"] and not used["test"] & (used["train"] | used["validation"])
    assert {*MATTERS[34:36]} <= {statute[0] for statute in used["test"]}  # they are in both files
    assert len(used["train"]) > 20
    assert re.search(r"bag of words +│ 50\.0% │ 50\.0% │", out), out
    numbers = json.loads((tmp_path / "order" / "statutes.json").read_text())["test"]
    triplets = read(tmp_path, LENGTHS[0], "test")
    assert len(numbers) == len(triplets)
    for (number, triplet), (other, another) in pairwise(zip(numbers, triplets, strict=True)):
        assert (number == other) == (triplet["statute"] == another["statute"])


def test_a_model_without_positions_tells_nothing(run, tmp_path):
    texts = [make_statute(matter)[0] for matter in MATTERS]
    assert run(texts[:36], texts[36:])[0] == 0
    triplets = [triplet | {"label": 0} for triplet in read(tmp_path, LENGTHS[0], "test")]
    batch = TripletCollator(RoFormerTokenizer("vocab.txt"), "cross", LENGTHS[0])(triplets)
    for positions in ("none", "rotary"):
        model = small_model(
            RoFormerForTripletMatching, vocab_size=len(VOCABULARY), position_encoding=positions, triplet_scorer="cross"
        )
        with torch.no_grad():
            for parameter in model.parameters():  # of the size that training leaves, so that differences show
                parameter.normal_(std=0.3)
            scores = model(**batch).logits
        difference, spread = (scores[:, 0] - scores[:, 1]).abs().max(), scores.std()
        assert (difference < 1e-4 * spread) == (positions == "none"), (difference, spread)


@settings(deadline=None)
@given(number=st.integers(3, 12), seed=st.integers(0, 999))
def test_neighbours_of_another_order_are_about_as_similar(number, seed):
    sys.path.insert(0, str(SCRIPT.parent))
    from order_triplets import another_order

    vectors = np.random.default_rng(seed).random((number + 1, 4))
    similar = vectors @ vectors.T
    right, first = [*range(number + 1)], [0, *random.Random(seed).sample(range(1, number + 1), number)]
    order = another_order(similar, random.Random(seed))

    def distance(order):
        neighbours = [[similar[pair] for pair in pairwise(of)] for of in (order, right)]
        return sum(abs(np.subtract(*(cue(of) for of in neighbours))) for cue in (sum, lambda of: of[0]))

    assert order[0] == 0 and sorted(order) == right != order
    assert first == right or distance(order) <= distance(first) + 1e-9  # the order that it begins with


def test_bad_input_is_named_and_nothing_is_written(run, tmp_path):
    texts = [make_statute(matter)[0] for matter in MATTERS]

    def refusal(laws, held_out, *more, **options):
        code, _, err = run(laws, held_out, *more, **options)
        assert code == 1 and not (tmp_path / "order").exists()
        return err

    assert_states(refusal(texts, texts), "laws.jsonl.gz", "held_out.jsonl.gz", "--validation")
    assert_states(refusal(texts[:30], texts[30:32], test=500), "--test", 500, 2)
    assert_states(refusal(texts[:30], texts[30:], "--length", 8), "--train", "--length")
