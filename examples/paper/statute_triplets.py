"""Make triplets of long cases from statutes: which of two texts is the other half of the statute of A?

    python examples/paper/statute_triplets.py laws.jsonl.gz tokenizer --output statutes

LAWS has a statute per line, the title in its first line and then articles that begin with 第…条. A is the first half of
a statute's articles, B the second half, and C the second half of another statute of the same split, on another matter
by its title, but of the same level (nation, province or other place). Each second half is B of one triplet and C of
another; of all such choices, the one is taken whose C are closest to A by TF-IDF. B and C are cut at the same length.
The label is random. Titles, preambles, headings, numbers of articles, dates, references, closing articles, and the
names of places and governments are taken out, and punctuation is made alike. The halves have --least to --most tokens
of TOKENIZER, a folder of a saved tokenizer, before they are cut.

Of near-duplicates and of statutes with the same title only one is used. Tables say how often the answer is known from
lengths, from numbers, from the order of the texts, and from classifiers of words that were trained on the same
triplets; and how often it is known from style and from TF-IDF, when only the beginnings of the texts are read. Rate a
model triplet by triplet: since each second half is right once and wrong once, one answer tells others. For the same
reason, a bootstrap draws the blocks of test triplets in blocks.json.
"""

import argparse
import json
import random
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import datasets
import jieba
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from modeling_roformer.data import read_texts
from modeling_roformer.files import output_folder
from modeling_roformer.output.progress import tracked
from modeling_roformer.tokenization.segmentation import JiebaSegmenter
from modeling_roformer.training import (
    ScriptParser,
    TrainingError,
    exit_on_error,
    load_tokenizer,
    near_duplicates,
    random_seed,
    tf_idf,
)

NUMBER = "[一二三四五六七八九十百千零〇两0-9０-９]+"
ARTICLE = re.compile(rf"^第{NUMBER}条(之{NUMBER})?[\s　]*")
HEADING = re.compile(rf"^第{NUMBER}[编章节][\s　]*\S{{0,30}}$|^附\s*则$|^总\s*则$")
# Articles on entry into force, interpretation and repeal close a statute, so they would tell a second half.
CLOSING = re.compile(r"施行|废止|负责解释|解释权")
KIND_OF_PLACE = "(?:维吾尔自治区|回族自治区|壮族自治区|自治区|自治州|自治县|自治旗|经济特区|省|市|县|地区|盟)"
PLACE = re.compile(rf"^([一-鿿]{{2,12}}?{KIND_OF_PLACE})")
GOVERNMENT = re.compile(
    r"(?:各级|上级|下级|本级|同级|县级以上|地方|设区的|乡镇|[省市县区州旗乡镇、（）和或者])*"
    r"(?:人民代表大会(?:常务委员会)?|人大常委会|人民政府|国务院)"
)
ONE_TO_31 = "[0-9一二三四五六七八九十]{1,3}"
# In this order. They name a statute or a part of it, a time, a place or an agency.
REMOVED = (
    (re.compile(r"《[^》]*》"), ""),
    (re.compile(rf"第{NUMBER}条(?:第{NUMBER}款)?(?:第?{NUMBER}项)?"), ""),
    (re.compile(rf"第{NUMBER}[款项]|前[一二三四五两]?[款条项]|本(?:条(?!例)|款(?!项)|项(?!目))"), ""),
    (re.compile(rf"[0-9一二三四五六七八九〇零]{{2,4}}\s*年\s*{ONE_TO_31}\s*月(?:\s*{ONE_TO_31}\s*日)?"), ""),
    (re.compile(r"[本全](?:行政区域|区域|自治区|自治州|自治县|特区|地区|省|市(?!场)|县|区|州|旗|盟)"), "本地"),
    (re.compile(r"本(?:条例|办法|规定|法(?![院人律])|细则|规则|决定|规程|章程|准则|通则|解释|决议|意见|方案)"), ""),
    (GOVERNMENT, "政府"),
    (re.compile(r"设区的市|[省市县区州旗乡镇]级(?:以[上下])?|自治[区州县旗]|直辖市"), ""),
    (re.compile(r"(?<!城)[省市县区州旗](?=[、（及和或]|[一-鿿]{0,8}?(?:部门|机关|机构|委员会))"), ""),
    (re.compile(r"政府(?:[、及和或]*政府)+"), "政府"),
)
# Punctuation that NFKC makes half-width, back to full width; quotation marks are left out.
FULL_WIDTH = str.maketrans(",;:?!()", "，；：？！（）", "\"'“”‘’")
PROVINCES = re.compile(
    "北京|天津|上海|重庆|河北|山西|辽宁|吉林|黑龙江|江苏|浙江|安徽|福建|江西|山东|河南|湖北|湖南|广东|海南"
    "|四川|贵州|云南|陕西|甘肃|青海|内蒙古|广西|西藏|宁夏|新疆"
)
# Words of a title that do not tell its matter.
TITLE_WORDS = re.compile(
    r"[（(].*?[)）]|中华人民共和国|最高人民(?:法院|检察院)|国务院|关于|实施|若干|暂行|试行|管理|保护|促进|工作|条例|办法|规定|"
    r"法|细则|规则|决定|解释|问题|的|[《》、\s　]"
)
# Both texts are cut at this share of the shorter one. Both end inside a sentence: were the shorter one left whole
# and the other cut at the end of a sentence, its being the longer one would tell which of the two it is, given the
# length of A.
CUT = 0.9
MARKS = "，。；：、（）"
TERMS = """
应当 不得 可以 必须 禁止 严禁 依照 按照 根据 依据 或者 以及 其他 有关 相关 下列 以下 以上 由于 但是 未经 经批准 予以
给予 处以 并处 责令 改正 逾期 罚款 没收 情形 违反 构成犯罪 追究 任何 单位和个人 单位或者个人 公民、法人和其他组织 鼓励
支持 加强 建立 健全 组织 制定 会同 负责 同意 擅自 方可 一律 政府 本地 地方 所在地 部门 主管部门 行政主管部门 行政部门
行政管理部门 委员会 机关 机构 单位
"""
# What the style of a text is: marks, digits, function words, and terms of drafting, whatever the matter.
STYLE = (
    *MARKS,
    *(first + second for first in MARKS for second in MARKS),
    *"0123456789一二三四五六七八九十零〇百千万%",
    *"的之其由应须当不得可以或及并与和对在从自向按依将被者所本该各有无为是未已等除外内上下前后时凡均必每即但如若因至于",
    *"省市县区州旗乡镇级",
    *TERMS.split(),
)
BEGINNINGS = (256, 512, 1024, 2048)  # tokens
SPACE = re.compile(r"[\s　]+")
BLOCK = 20  # triplets
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Statute:
    """Halves of a statute, without words that reveal it."""

    first: str
    second: str
    matter: str  # the title without its place and kind
    level: str  # of the lawmaker


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    parser.add_argument("laws", type=Path, help="JSON Lines or text, also as .gz")
    parser.add_argument("tokenizer", help="folder of a saved tokenizer, which counts the tokens")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--field", default="text", help="field of JSON Lines with the statute")
    parser.add_argument("--articles", type=int, default=10, help="minimum number of articles of a statute")
    parser.add_argument("--least", type=int, default=800, help="minimum number of tokens of a text")
    parser.add_argument("--most", type=int, default=3000, help="maximum number of tokens of a text")
    parser.add_argument("--test", type=int, default=1000, help="test triplets")
    parser.add_argument("--validation", type=int, default=150, help="validation triplets")
    parser.add_argument("--train", type=int, default=1500, help="training triplets, at most; the rest of the statutes")
    parser.add_argument("--seed", type=random_seed, default=0, help="seed of the splits and of the labels")
    return parser.parse_args()


def place_names(titles: list[str]) -> re.Pattern:
    """Return a pattern of the places that titles begin with, with and without 省, 市 and so on, longest first."""
    with jieba.get_dict_file() as file:
        entries = (line.decode("utf-8").split() for line in file)
        known, names = {entry[0] for entry in entries if entry[-1] == "ns"}, set()
    for title in titles:
        if found := PLACE.match(title):
            whole = found[1]
            short = re.sub(f"{KIND_OF_PLACE}$", "", whole)
            if whole in known or short in known or "自治" in whole:
                names |= {whole} | ({short} if len(short) > 1 else set())
    return re.compile("|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name)))) or r"(?!)")


def articles_of(text: str, places: re.Pattern) -> list[str]:
    """Return the articles of a statute, cleaned; those that close it are left out."""
    articles: list[list[str]] = []
    for line in text.split("\n")[1:]:
        line = line.strip()
        if HEADING.match(line):
            continue
        if found := ARTICLE.match(line):
            articles.append([line[found.end() :]])
        elif articles:  # lines above the first article are the preamble
            articles[-1].append(line)
    return [cleaned for lines in articles if (cleaned := clean("".join(lines), places))]


def clean(article: str, places: re.Pattern) -> str:
    """Return an article without words that reveal its statute, or "" if it closes a statute."""
    if CLOSING.search(article):
        return ""
    article = unicodedata.normalize("NFKC", article).translate(FULL_WIDTH)
    for pattern, text in (*REMOVED[:1], (places, ""), *REMOVED[1:]):
        article = pattern.sub(text, article)
    return SPACE.sub("", article)


def read_laws(source: Path, field: str, least: int) -> list[tuple[str, str, list[str]]]:
    """Return title, place and cleaned articles of the statutes with enough articles, one of each group of
    near-duplicates."""
    found = (text for _, text in read_texts([source], field))
    texts = [text.encode("utf-8", "replace").decode("utf-8") for text in found]  # half a surrogate pair becomes "?"
    titles = [text.split("\n", 1)[0].strip() for text in texts]
    places = place_names(titles)
    laws, seen = [], set()
    for title, text in zip(titles, texts, strict=True):
        name = re.sub(r"[（(].*?[)）]", "", title)
        if name and name in seen:  # another version, or another part
            continue
        articles = articles_of(text, places)
        if len(articles) >= least:
            seen.add(name)
            place = places.match(name)
            laws.append((name, place[0] if place else "", articles))
    if not laws:
        raise TrainingError(f"{source} has no statute with at least {least} articles (第一条 …)")
    groups = near_duplicates(["\n".join(articles) for *_, articles in laws], 0.5, progress=True)
    first = {group: number for number, group in reversed([*enumerate(groups)])}
    return [laws[number] for number in sorted(first.values())]


def halves_of(name: str, place: str, articles: list[str]) -> Statute:
    """Return the halves of a statute's articles."""
    middle = len(articles) // 2
    level = "province" if PROVINCES.match(place) else "place" if place else "nation"
    matter = TITLE_WORDS.sub("", name[len(place) :])
    return Statute("".join(articles[:middle]), "".join(articles[middle:]), matter, level)


def make_triplets(statutes: list[Statute], some: random.Random) -> tuple[list[dict], list[int]]:
    """Return the triplets of a split, one per statute that has another one of its level on another matter, and their
    blocks.

    Each second half is B of one triplet and C of another, so a text alone does not tell whether it is B. Of all such
    ways to choose C, this one has the largest sum of similarities to A by TF-IDF.
    """
    vectorizer = TfidfVectorizer(analyzer=JiebaSegmenter(), min_df=2, sublinear_tf=True)
    vectorizer.fit(statute.first + statute.second for statute in statutes)
    firsts, seconds = (
        vectorizer.transform(getattr(statute, half) for statute in statutes) for half in ("first", "second")
    )
    similarity = (firsts @ seconds.T).toarray()
    levels = np.array([statute.level for statute in statutes])
    refused = (levels != levels[:, None]) | np.array(
        [[of_one_matter(statute.matter, other.matter) for other in statutes] for statute in statutes]
    )
    similarity[refused] = -len(statutes)  # worse than any other choice
    triplets, others = [], {}
    for number, other in zip(*linear_sum_assignment(similarity, maximize=True), strict=True):
        if refused[number, other]:
            continue
        others[number] = other
        b, c = of_equal_length(statutes[number].second, statutes[other].second)
        label = some.choice("BC")
        pair = (b, c) if label == "B" else (c, b)
        triplets.append({"A": statutes[number].first, "B": pair[0], "C": pair[1], "label": label})
    return triplets, blocks_of(others)


def blocks_of(others: dict[int, int]) -> list[int]:
    """Return the blocks of triplets, given the statutes of their texts B and C. A bootstrap draws blocks, since C is B
    of another triplet: in a block of 20, each but the last one has the next one's B.

    >>> blocks_of({0: 2, 1: 0, 2: 1})
    [0, 0, 0]
    """
    left, places = dict(others), {}
    while left:
        number = next(iter(left))
        while number in left:
            places[number] = len(places)
            number = left.pop(number)
    return [places[number] // BLOCK for number in others]


def of_one_matter(matter: str, other: str) -> bool:
    """Return whether titles may have one matter: they share more than half of the characters of the shorter one, or are
    equal.

    >>> of_one_matter("养犬", "城市养犬"), of_one_matter("道路运输", "道路交通安全")
    (True, False)
    """
    shared, fewest = len({*matter} & {*other}), min(len({*matter}), len({*other}))
    return matter == other or 2 * shared > fewest


def of_equal_length(*texts: str) -> list[str]:
    """Truncate texts at the last end of a sentence within a share of the length of the shortest, so that lengths tell
    nothing."""
    longest = int(CUT * min(map(len, texts)))
    return [text[: text.rfind("。", 0, longest) + 1] or text[:longest] for text in texts]


def known_without_reading(train: list[dict], test: list[dict]) -> dict[str, float]:
    """Return how often each simple rule gives the label of the test triplets."""
    parts = {"train": train, "test": test}
    labels = {part: np.array([triplet["label"] == "B" for triplet in rows]) for part, rows in parts.items()}

    def by(number_of: Callable[[str], float]) -> float:
        """Return the accuracy of the best rule: the text whose number is closer to A's, the larger or the smaller
        number."""
        a, b, c = (np.array([number_of(triplet[name]) for triplet in test]) for name in "ABC")
        rules = (abs(a - b) < abs(a - c), abs(a - b) <= abs(a - c), b > c, b < c)
        return max(float(np.mean(rule == labels["test"])) for rule in rules)

    def numbers_shared(triplet: dict, name: str) -> int:
        numbers = [set(re.findall(NUMBER, triplet[of])) for of in ("A", name)]
        return len(numbers[0] & numbers[1])

    shared = np.array([[numbers_shared(triplet, name) for name in "BC"] for triplet in test])
    vectorizer = TfidfVectorizer(analyzer=JiebaSegmenter(), min_df=2, sublinear_tf=True)
    vectorizer.fit(triplet[name] for triplet in train for name in "ABC")
    vectors = {
        part: {name: vectorizer.transform(triplet[name] for triplet in rows) for name in "ABC"}
        for part, rows in parts.items()
    }
    words_alone = {part: (found["B"] - found["C"]).tocsr() for part, found in vectors.items()}
    words_in_common = {part: (found["A"].multiply(found["B"] - found["C"])).tocsr() for part, found in vectors.items()}

    lengths = {}
    for part, rows in parts.items():
        logs = np.log([[len(triplet[name]) for name in "ABC"] for triplet in rows])
        lengths[part] = np.c_[logs, logs[:, 1] - logs[:, 2], logs[:, 0] - logs[:, 1:].max(axis=1)]

    found = {
        "the first of the two": float(labels["test"].mean()),
        "length in characters, one rule": by(len),
        "digits and numerals": by(lambda text: len(re.findall(NUMBER, text))),
        "shared numbers": float(np.mean((shared[:, 0] >= shared[:, 1]) == labels["test"])),
        "TF-IDF that chose C": float(np.mean(labels["test"] == np.ravel(words_in_common["test"].sum(axis=1) > 0))),
    }
    for name, features, classifier in (
        ("lengths of A, B and C", lengths, GradientBoostingClassifier(random_state=0)),
        ("bag of words, without A", words_alone, LogisticRegression(C=100, max_iter=1000)),
        ("bag of words, shared with A", words_in_common, LogisticRegression(C=100, max_iter=1000)),
    ):
        classifier.fit(features["train"], labels["train"])
        found[name] = float(classifier.score(features["test"], labels["test"]))
    return found


def style(text: str) -> np.ndarray:
    """Return the frequencies of `STYLE`, and the mean, deviation and median of the lengths of sentences and of
    clauses."""
    parts = ([len(part) for part in re.split(ends, text) if part] or [0] for ends in ("。", f"[{MARKS}]"))
    frequencies = np.sqrt([text.count(word) / max(1, len(text)) for word in STYLE])
    return np.concatenate([frequencies, *([np.mean(part), np.std(part), np.median(part)] for part in parts)])


def known_from_style(train: list[dict], test: list[dict]) -> float:
    """Return the accuracy of a classifier of style: is B or C closer to A in each of its counts? Cross-validation on
    the training triplets chooses how much it is regularised."""

    def features(triplets: list[dict]) -> np.ndarray:
        a, b, c = (np.array([style(triplet[name]) for triplet in triplets]) for name in "ABC")
        return abs(a - b) - abs(a - c)

    # Without means and an intercept, it does not depend on which text is B.
    model = make_pipeline(StandardScaler(with_mean=False), LogisticRegression(max_iter=1000, fit_intercept=False))
    classifier = GridSearchCV(model, {"logisticregression__C": np.logspace(-4, 1, 11)})
    classifier.fit(features(train), [triplet["label"] for triplet in train])
    return float(classifier.score(features(test), [triplet["label"] for triplet in test]))


def beginning(triplet: dict, tokens: int | None, count: Callable[[str], int]) -> dict:
    """Truncate the texts of a triplet at about `tokens` tokens; None keeps them whole. The label becomes 0 for B, 1 for
    C."""
    truncated = {"label": "BC".index(triplet["label"])}
    for name in "ABC":
        text = triplet[name]
        truncated[name] = text if tokens is None else text[: len(text) * tokens // max(tokens, count(text))]
    return truncated


def main() -> None:
    chosen = read_arguments()
    some = random.Random(chosen.seed)
    tokenizer = load_tokenizer(chosen.tokenizer)

    @cache
    def count(text: str) -> int:
        return len(tokenizer(text, truncation=False, verbose=False)["input_ids"])

    def fits(text: str) -> bool:
        return chosen.least <= count(text) <= chosen.most

    with output_folder(chosen.output) as folder:
        statutes = [halves_of(*law) for law in read_laws(chosen.laws, chosen.field, chosen.articles)]
        statutes = [statute for statute in statutes if fits(statute.first) and fits(statute.second)]
        if len(statutes) < chosen.test + chosen.validation + 2:
            raise TrainingError(
                f"{chosen.laws}: {len(statutes):,} statutes have halves of the right length, too few for "
                f"{chosen.test:,} test triplets and {chosen.validation:,} for validation: lower --test, --least "
                "or --articles"
            )
        some.shuffle(statutes)
        ends = np.cumsum([chosen.test, chosen.validation, chosen.train])
        parts = [statutes[start:end] for start, end in zip((0, *ends[:-1]), ends, strict=True)]
        if min(map(len, parts)) < 2:
            raise TrainingError("each split needs two statutes at least: give a larger --train, --validation or --test")
        splits = zip(("test", "validation", "train"), parts, strict=True)
        made = {split: make_triplets(statutes, some) for split, statutes in splits}
        triplets = {split: rows for split, (rows, _) in made.items()}
        if empty := [split for split, rows in triplets.items() if not rows]:
            raise TrainingError(
                f"no triplet for {' and '.join(empty)}: no two of its statutes have one level and different matters: "
                f"lower --least or --articles, or give a larger --{empty[0]}"
            )
        known = known_without_reading(triplets["train"], triplets["test"])
        by_length: dict[str, list[float]] = {"style": [], "TF-IDF, words": []}
        for tokens in tracked((*BEGINNINGS, None), "reading the beginnings"):
            train, test = ([beginning(row, tokens, count) for row in triplets[split]] for split in ("train", "test"))
            by_length["style"].append(known_from_style(train, test))
            decisions = tf_idf(*map(datasets.Dataset.from_list, (train, test)))  # as of finetune_triplet.py --baselines
            by_length["TF-IDF, words"].append(np.mean(decisions == [triplet["label"] for triplet in test]))
        for part in SPLITS:
            lines = (json.dumps(triplet, ensure_ascii=False) + "\n" for triplet in triplets[part])
            (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
        (folder / "blocks.json").write_text(json.dumps({"test": made["test"][1]}) + "\n")

    console = Console(markup=False)
    table = Table("", "triplets", "tokens of A", "of B", "of C")
    for part in SPLITS:
        means = (np.mean([count(triplet[name]) for triplet in triplets[part]]) for name in "ABC")
        table.add_row(part, f"{len(triplets[part]):,}", *(f"{mean:,.0f}" for mean in means))
    console.print(table)
    table = Table("known from", "test accuracy")
    for name, accuracy in known.items():
        table.add_row(name, f"{accuracy:.1%}")
    console.print(table)
    table = Table("known from the first tokens", *(f"{tokens:,}" for tokens in BEGINNINGS), "all")
    for name, accuracies in by_length.items():
        table.add_row(name, *(f"{accuracy:.1%}" for accuracy in accuracies))
    console.print(table)


if __name__ == "__main__":
    with exit_on_error("statute_triplets"):
        main()
