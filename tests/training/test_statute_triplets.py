"""examples/paper/statute_triplets.py: halves of statutes, without what gives them away, in splits that share none."""

import gzip
import json
import random
import re

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from statute_triplets import blocks_of

from modeling_roformer import RoFormerTokenizer

SCRIPT = REPOSITORY / "examples" / "paper" / "statute_triplets.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
MATTERS = "水土林草矿路桥船车电气火药食盐糖茶酒布纸书报信学医老幼残军警税费地房物业商农渔牧猎种肥虫鸟兽"
SIZES = ["--least", 30, "--most", 400, "--test", 10, "--validation", 4]
NUMERALS = ["一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"]


def make_statute(matter, place="杭州市"):
    """Return a statute on a matter: twelve articles that each name it, and a closing one."""
    some = random.Random(matter + place)
    lines = [f"{place}{matter}管理条例", f"2010年4月21日 {place}第十一届人民代表大会常务委员会通过", "第一章  总则"]
    for numeral in NUMERALS:
        words = "".join(some.sample(MATTERS, 12))
        lines.append(
            f"第{numeral}条　{matter}的{words}，由{place}人民政府依照本条例第三条和《中华人民共和国{matter}法》"
            f"在本市管理{matter}，违反本条例规定的按照本条和本项目处罚。"
        )
        lines.append(f"{matter}的管理机关自2011年5月1日起保护{matter}和{''.join(some.sample(MATTERS, 6))}。")
    return "\n".join([*lines, "第十三条 本条例自2012年1月1日起施行。"])


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    RoFormerTokenizer(str(VOCAB)).save_pretrained("tokenizer")

    def run(texts, *arguments, tokenizer="tokenizer"):
        with gzip.open("laws.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        words = ["laws.jsonl.gz", tokenizer, "--output", "statutes", *(arguments or SIZES)]
        return run_script(SCRIPT, words, monkeypatch, capfd)

    return run


def read(folder, part):
    return [
        json.loads(line) for line in (folder / "statutes" / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def matter_of(text):
    """Return the matter of a text of `make_statute`: it begins each article."""
    return text[0]


def test_halves_of_one_statute_are_closer(run, tmp_path):
    code, out, err = run([make_statute(matter) for matter in MATTERS])
    assert code == 0, err
    parts = {part: read(tmp_path, part) for part in ("train", "validation", "test")}
    assert len(parts["test"]) == 10 and len(parts["validation"]) == 4 and len(parts["train"]) >= 15
    assert json.loads((tmp_path / "statutes" / "blocks.json").read_text()) == {"test": [0] * 10}
    used = []
    for triplets in parts.values():
        matters = set()
        for triplet in triplets:
            other = "C" if triplet["label"] == "B" else "B"
            assert matter_of(triplet["A"]) == matter_of(triplet[triplet["label"]]) != matter_of(triplet[other])
            matters |= {matter_of(triplet[name]) for name in "ABC"}
            # As many articles, none of which is in both halves; B and C are cut.
            counts = {name: triplet[name].count("管理机关") for name in "ABC"}
            assert counts == {"A": 6, "B": 5, "C": 5}
            assert triplet["A"] != triplet["B"] != triplet["C"]
        used.append(matters)
    assert sum(map(len, used)) == len(set().union(*used))  # no statute is in two splits
    labels = [triplet["label"] for triplets in parts.values() for triplet in triplets]
    assert 0.2 < labels.count("B") / len(labels) < 0.8
    for triplet in parts["train"]:
        for name in "ABC":
            assert not re.search("杭州|[0-9]|条|例|第|《|市|人民|施行|总则|　| ", triplet[name]), triplet[name]
            assert triplet[name].count("违反规定的按照和本项目处罚") in (5, 6)
    for row in "bag of words, without A", "length in characters, one rule", "lengths of A, B and C":
        assert re.search(rf"│ {row} +│ +\d+\.\d% +│", out), out
    for row in "style", "TF-IDF, words":
        assert re.search(rf"│ {row} +│( +\d+\.\d% +│){{5}}", out), out


def test_style_is_told_from_style_alone(monkeypatch):
    """Whatever the texts say: halves in one style are closer than halves in two, and equal styles tell nothing."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from statute_triplets import beginning, known_from_style

    some = random.Random(0)
    styles = ("应当{}，{}；", "可以{}、{}。", "不得{}或者{}，由有关部门责令改正。")

    def text(form, articles=20):
        return "".join(form.format(*("".join(some.sample(MATTERS, 4)) for _ in range(2))) for _ in range(articles))

    def triplets(number, alike):
        made = []
        for _ in range(number):
            own, other = some.sample(styles, 2)
            label = some.choice("BC")
            texts = {"A": text(own), label: text(own), "BC".replace(label, ""): text(own if alike else other)}
            made.append(beginning({**texts, "label": label}, None, len))
        return made

    assert known_from_style(triplets(60, False), triplets(60, False)) == 1
    assert 0.3 < known_from_style(triplets(60, True), triplets(60, True)) < 0.7


def test_the_beginning_of_a_text_has_so_many_tokens(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from statute_triplets import beginning

    texts = {"A": "abcdefgh", "B": "abcd", "C": "", "label": "C"}
    for tokens, expected in (None, "abcdefgh"), (2, "abcd"), (3, "abcdef"), (100, "abcdefgh"):
        cut = beginning(texts, tokens, lambda text: len(text) // 2)
        assert (cut["A"], cut["C"], cut["label"]) == (expected, "", 1)
    assert beginning(texts, 1, len) == {"A": "a", "B": "a", "C": "", "label": 1}


def test_triplets_that_share_a_text_are_in_one_block_but_for_its_last():
    numbers = [*range(100)]
    random.Random(0).shuffle(numbers)
    others = dict(sorted(zip(numbers, [*numbers[1:], numbers[0]], strict=True)))  # one ring
    block = dict(zip(others, blocks_of(others), strict=True))
    assert sorted(block.values()) == [number // 20 for number in range(100)]
    assert sum(block[number] == block[other] for number, other in others.items()) == 95
    rings = {number: number ^ 1 for number in range(8)}
    assert set(blocks_of(rings)) == {0}
    del rings[5]  # a statute without a triplet
    assert len(blocks_of(rings)) == 7


@pytest.mark.parametrize(
    ("matter", "other", "one"),
    [
        ("市容和环境卫生", "城市市容和环境卫生", True),
        ("养犬", "城市养犬", True),
        ("出租汽车客运", "客运出租汽车", True),
        ("慈善", "慈善事业", True),
        ("", "", True),
        ("道路运输", "道路交通安全", False),
        ("水", "土", False),
    ],
)
def test_titles_of_one_matter_are_told(matter, other, one, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from statute_triplets import of_one_matter

    assert of_one_matter(matter, other) == of_one_matter(other, matter) == one


@pytest.mark.slow
def test_of_near_duplicates_one_is_used(run, tmp_path):
    texts = [make_statute(matter) for matter in MATTERS]
    copies = [text.replace("杭州市", "宁波市") for text in texts]
    code, _, err = run([*texts, *copies])
    assert code == 0, err
    begun = [triplet["A"] for part in ("train", "validation", "test") for triplet in read(tmp_path, part)]
    assert len(begun) == len(set(begun)) <= len(MATTERS)


@pytest.mark.slow
def test_the_other_statute_is_on_another_matter_and_written_alike(run, tmp_path):
    """The same matter in another place, and the punctuation of another source, would tell nothing but style."""
    other = str.maketrans("，。", ",。")
    texts = [make_statute(matter, place) for matter in MATTERS[:20] for place in ("杭州市", "宁波市")]
    code, _, err = run([text.translate(other) if i % 3 else text for i, text in enumerate(texts)])
    assert code == 0, err
    for part in ("train", "validation", "test"):
        for triplet in read(tmp_path, part):
            assert matter_of(triplet["B"]) != matter_of(triplet["C"])
            assert not any("," in triplet[name] for name in "ABC")


def test_bad_input_is_named_and_nothing_is_written(run, tmp_path):
    def refusal(texts, *arguments, **options):
        code, _, err = run(texts, *arguments, **options)
        assert code == 1 and not (tmp_path / "statutes").exists()
        return err

    assert_states(refusal(["没有条文的文章"]), "laws.jsonl.gz", 10)
    few = [make_statute(matter) for matter in MATTERS[:8]]
    assert_states(refusal(few), 8, 10, 4, "--test")
    assert_states(refusal(few, *SIZES, "--least", 100_000), "--least")
    assert_states(refusal([make_statute(matter) for matter in MATTERS], *SIZES, "--train", 1), "--train", "two")
