"""`roformer rank --words` and `--both`: BM25, fusion and scores equal the formulas written out."""

import json
import math
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from threading import Thread

import jieba
import numpy as np
import pytest
from helpers.command_line import ROFORMER
from helpers.messages import assert_states, refused
from helpers.vector_folders import killed_after, read_vectors

from modeling_roformer.data import DataError
from modeling_roformer.files.lock import only_writer
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.vectors import Match, embed, evaluate, rank, read_qrels, tune
from modeling_roformer.serving.vectors import terms as terms_module
from modeling_roformer.serving.vectors.fusion import fuse, stored_weight, tune_weight
from modeling_roformer.serving.vectors.matches import Ranking
from modeling_roformer.serving.vectors.terms import TermSplitter

QUERY = "房东不退押金，RoFormer 怎么办？"
TEXTS = [
    "租客退房后，房东拒绝退还押金。押金两千元！",
    "借款到期，没有归还。",
    "用RoFormer读长文本，比BERT好。",
    "房东把房子卖了。",
    "……！？",
    "租客退房后，房东拒绝退还押金。押金两千元！",
]


def words_of(text: str) -> list[str]:
    return [word for word in jieba.cut(text.lower(), HMM=False) if any(map(str.isalnum, word))]


def bigrams_of(text: str) -> list[str]:
    """Return the bigrams of a text, whose letters and digits are ASCII."""
    found, run = [], ""
    for before, character in zip(" " + text.lower(), text.lower() + " ", strict=False):
        if run and (not character.isalnum() or character.isascii() != before.isascii()):
            found += [run] if run.isascii() or len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
            run = ""
        run += character if character.isalnum() else ""
    return found


def bm25(query: str, texts: list[str], split) -> list[float]:
    """Return BM25 of Lucene: k1 1.5, b 0.75."""
    counts = [Counter(split(text)) for text in texts]
    lengths = [count.total() for count in counts]
    mean, scores = np.mean(lengths), [0.0] * len(texts)
    for word in split(query):
        n = sum(word in count for count in counts)
        for i, count in enumerate(counts):
            if tf := count[word]:
                idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
                scores[i] += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * lengths[i] / mean))
    return scores


@pytest.fixture
def corpus(saved, tmp_path, monkeypatch):
    """Write texts with ids, and the model beside them."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved("word"), tmp_path / "word")
    rows = [{"id": f"t{i}", "text": text} for i, text in enumerate(TEXTS)]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path / "texts.jsonl"


def make(corpus, out="vectors", **options):
    return embed("word", corpus, out, **{"id_field": "id", "shard_size": 4, **options})


def index_of(folder="vectors") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder, ".words").glob("[!.]*")}


@pytest.mark.parametrize(("unit", "split"), [("word", words_of), ("bigram", bigrams_of)])
@pytest.mark.parametrize("when", ["embed", "rank"])
def test_scores_are_the_formulas(corpus, unit, split, when):
    now = when == "embed"
    report = make(corpus, words=now, word_unit=unit, keep_text=not now)
    assert report.words == (len({term for text in TEXTS for term in split(text)}) if now else None)
    shutil.move("word", "moved") if now else None  # a search by words needs no model
    expected = np.array(bm25(QUERY, TEXTS, split))
    order = [i for i in np.argsort(-expected, kind="stable") if expected[i] > 0]
    assert len(order) == 4
    for top_k in (1, 2, 3, 20):
        (matches,) = rank(QUERY, "vectors", by="words", word_unit=unit, top_k=top_k).matches
        assert [match.id for match in matches] == [f"t{i}" for i in order[:top_k]]
        assert [match.text for match in matches] == [None if now else TEXTS[i] for i in order[:top_k]]
        np.testing.assert_allclose([match.score for match in matches], expected[order[:top_k]], rtol=1e-6)
    assert rank(["，", "绝无仅有"], "vectors", by="words").matches == [[], []]


def test_a_pipe_is_indexed_while_it_is_read(corpus):
    make(corpus, "expected", words=True)
    data = corpus.read_bytes()
    os.mkfifo("pipe")
    (writer := Thread(target=Path("pipe").write_bytes, args=[data])).start()
    embed("word", "pipe", "piped", field="text", words=True)
    writer.join()
    found, expected = (rank(QUERY, folder, by="words", top_k=9).matches[0] for folder in ("piped", "expected"))
    assert [match.score for match in found] == [match.score for match in expected]


@pytest.mark.parametrize("overlap", [0, 3])
def test_a_text_in_chunks_is_one_text(corpus, overlap):
    options = {"chunk": 8, "overlap": overlap, "keep_text": True, "words": True}
    make(corpus, **options)
    ids, _, texts = read_vectors(Path("vectors"))
    assert ids.count("t0") > 1
    expected = bm25(QUERY, TEXTS, words_of)
    (matches,) = rank(QUERY, "vectors", by="words").matches
    np.testing.assert_allclose([match.score for match in matches], sorted(expected, reverse=True)[:4], rtol=1e-6)
    assert len({match.id for match in matches}) == 4
    best = next(match for match in matches if match.id == "t2")
    assert (
        best.text in texts
        and best.chunk == [text for id_, text in zip(ids, texts, strict=True) if id_ == "t2"].index(best.text) + 1
    )
    assert "RoFormer" in best.text


def test_no_index_is_made_of_chunks_which_lose_the_white_space_between_them(corpus):
    corpus.write_text(json.dumps({"id": "t", "text": "租客 hello world café people"}), encoding="utf-8")
    make(corpus, chunk=4, keep_text=True)
    with refused(ServingError, "vectors", "roformer embed", "--words"):
        rank("hello", "vectors", by="words")
    make(corpus, chunk=4, keep_text=True, words=True)
    for query in ("hello", "world", "Café", "people"):
        ((match,),) = rank(query, "vectors", by="words").matches
        assert query.lower() in match.text


def test_two_texts_with_one_id_in_two_shards_are_not_scored_as_one(corpus):
    corpus.write_text("".join(json.dumps({"id": "x", "text": f"房东 {i}"}) + "\n" for i in range(3)), encoding="utf-8")
    make(corpus, shard_size=1, words=True)
    ranking = rank("房东", "vectors", by="words", top_k=100)
    assert len(ranking.matches[0]) == 3
    for use in (
        lambda: evaluate(ranking, {"1": {"x": 1}}),
        ranking.trec_run,
        lambda: rank("房东", "vectors", by="both"),
    ):
        with refused(ServingError, "'x'", "--id-field"):
            use()


def test_without_texts_one_sentence_says_what_to_do(corpus, run):
    make(corpus)
    for option in ("--words", "--both"):
        code, out, err = run("rank", QUERY, "vectors", option)
        assert code == 1 and not out and err.count("\n") == 1
        assert_states(err, "vectors", "no index", "roformer embed", "--words")
    report = make(corpus, words=True)  # the vectors are kept
    assert report.kept == 2 and report.words
    assert rank(QUERY, "vectors", by="words", top_k=1).matches[0][0].id == "t0"


@pytest.mark.parametrize("keep_text", [False, True])
@pytest.mark.parametrize("harm", ["flipped", "lost", "settings", "texts", "code"])
def test_a_damaged_or_stale_index_is_refused_or_made_again(corpus, monkeypatch, keep_text, harm):
    make(corpus, words=True, keep_text=keep_text)
    place, expected = Path("vectors/.words"), rank(QUERY, "vectors", by="words").matches
    if harm == "flipped":
        data = bytearray((place / "data.csc.index.npy").read_bytes())
        data[-1] ^= 1
        (place / "data.csc.index.npy").write_bytes(data)
    elif harm == "lost":
        (place / "vocab.index.json").unlink()
    elif harm == "settings":
        (place / "index.json").write_text("{")
    elif harm == "texts":
        corpus.write_text(corpus.read_text(encoding="utf-8") + json.dumps({"id": "new", "text": "房东" * 9}) + "\n")
        make(corpus, keep_text=keep_text)
    else:
        monkeypatch.setattr("modeling_roformer.serving.vectors.word_index.segmenter_digest", lambda: "another")
    said = []
    if not keep_text:
        with refused(ServingError, place, "roformer embed", "--words"):
            rank(QUERY, "vectors", by="words")
        make(corpus, words=True, keep_text=keep_text)
    found = rank(QUERY, "vectors", by="words", tell=said.append).matches
    assert len(said) == keep_text
    if said:
        assert_states(said[0], place, "again")
    ids = [match.id for match in found[0]]
    assert ("new" in ids) == (harm == "texts") and (harm == "texts" or found == expected)
    assert rank(QUERY, "vectors", by="words", tell=said.append).matches == found and len(said) == keep_text


def test_an_index_of_another_unit_is_made_again_and_a_good_one_is_kept(corpus):
    make(corpus, words=True)
    before, time = index_of(), Path("vectors/.words").stat().st_mtime_ns
    make(corpus, words=True)
    assert Path("vectors/.words").stat().st_mtime_ns == time
    with refused(ServingError, "vectors/.words", "words", "bigrams"):
        rank(QUERY, "vectors", by="words", word_unit="bigram")
    make(corpus, words=True, word_unit="bigram")
    assert index_of().keys() == before.keys() and index_of() != before
    with refused(ServingError, "word_unit", "'letter'", "word, bigram"):
        make(corpus, words=True, word_unit="letter")
    with refused(ServingError, "word_unit", "'letter'"):
        rank(QUERY, "vectors", by="words", word_unit="letter")


@pytest.mark.parametrize("renamed", range(8))
def test_a_run_that_is_killed_at_any_rename_ends_as_one_that_was_not(corpus, monkeypatch, renamed):
    make(corpus, "whole", words=True)
    with killed_after(renamed, monkeypatch) as patch:
        patch.setattr("shutil.rmtree", lambda *args, **options: None)
        make(corpus, words=True)
        os.replace(corpus, corpus)  # after the last rename
    make(corpus, words=True)
    assert index_of() == index_of("whole")
    names = {path.name for path in Path("vectors").iterdir()}
    assert names == {".words", "_run.parquet", "000000.parquet", "000001.parquet"}


def test_two_processes_do_not_index_at_once(corpus):
    make(corpus, keep_text=True)
    with only_writer("vectors", ServingError), refused(ServingError, "vectors", "another process"):
        rank(QUERY, "vectors", by="words")
    assert rank(QUERY, "vectors", by="words").matches[0]
    with only_writer("vectors", ServingError):
        assert rank(QUERY, "vectors", by="words").matches[0]  # reading needs no lock


def test_texts_without_a_word_are_refused(corpus):
    corpus.write_text(json.dumps({"id": "a", "text": "……！"}) + "\n", encoding="utf-8")
    with refused(ServingError, "vectors", "no text"):
        make(corpus, words=True)


def test_words_of_the_users_dictionary(tmp_path):
    assert "绝味鸭脖店" in [*TermSplitter("word", user_words=("绝味鸭脖店 100000",))("在绝味鸭脖店吃饭")]
    assert [*TermSplitter("word", lowercase=False)("BERT，好")] == ["BERT", "好"]
    assert [*TermSplitter("bigram")("𠀀𠀁一 café\n")] == ["𠀀𠀁", "𠀁一", "cafe"]


def lists(*ids: str) -> list[Match]:
    return [Match(1.0 - place / 100, id_) for place, id_ in enumerate(ids)]


def test_fusion_is_the_formula():
    vectors, words = lists("a", "b", "c"), lists("c", "d", "a")
    for weight in (0, 0.3, 0.5, 1):
        expected = Counter()
        for share, ids in ((weight, "abc"), (1 - weight, "cda")):
            for place, id_ in enumerate(ids, 1):
                expected[id_] += share / (60 + place)
        found = {match.id: match.score / 61 for match in fuse(vectors, words, weight)}
        assert found == pytest.approx({id_: score for id_, score in expected.items() if score})
        assert list(found) == sorted(found, key=found.get, reverse=True)
    assert [match.id for match in fuse(vectors, words, 0)] == ["c", "d", "a"]
    assert [match.id for match in fuse(vectors, words, 1)] == ["a", "b", "c"]


def test_the_weight_is_the_best_and_of_equal_ones_the_nearest_to_a_half():
    right, wrong = lists("a", "b"), lists("b", "a")
    relevant = {"1": {"a": 1}, "2": {"a": 1}}
    tuned = tune_weight([right, right], [wrong, wrong], ["1", "2"], relevant, "word")
    assert (tuned.weight, tuned.both, tuned.vectors, tuned.words, tuned.queries) == (0.5, 1, 1, 0.5, 2)
    assert tune_weight([wrong], [right], ["1"], relevant, "word").weight == 0.49  # at 0.5, "b" is first
    assert tune_weight([right], [right], ["1"], relevant, "word").weight == 0.5
    with refused(ServingError, "--id-field"):
        tune_weight([right], [right], ["1"], {"1": {"x": 1}}, "word")


def test_both_joins_the_two_lists_with_the_tuned_weight(corpus, run):
    make(corpus, words=True, keep_text=True)
    alone = [rank(QUERY, "vectors", by=by, top_k=100).matches[0] for by in ("vectors", "words")]
    for weight in (None, 0, 0.2, 1):
        (found,) = rank(QUERY, "vectors", by="both", weight=weight, top_k=3).matches
        assert found == fuse(*alone, 0.5 if weight is None else weight)[:3]
    rows = [{"id": "q", "text": TEXTS[1], "answers": ["t1"]}, {"id": "r", "text": QUERY, "answers": ["t3", "t9"]}]
    Path("tuning.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arguments = ["rank", QUERY, "vectors", "--both", "--id-field", "id", "--tune", "tuning.jsonl"]
    code, _, err = run(*arguments, "--relevant", "answers")
    tuned = stored_weight(Path("vectors"), "word")
    assert code == 0 and stored_weight(Path("vectors"), "bigram") == 0.5
    assert_states(err, f"--weight {tuned:g}", "2 queries")
    Path("some.qrels").write_text("q 0 t1 1\nr 0 t3 1\nr 0 t9 2\nr 0 t0 0\n")
    assert tune("tuning.jsonl", "vectors", read_qrels("some.qrels"), id_field="id").weight == tuned
    (found,) = rank(QUERY, "vectors", by="both", top_k=3).matches
    assert found == fuse(*alone, tuned)[:3]
    good = json.loads(Path("vectors/.weight.json").read_text())
    for damaged in ({}, good | {"weight": "high"}, good | {"weight": 7}, good | {"weight": math.nan}):
        Path("vectors/.weight.json").write_text(json.dumps(damaged))
        with refused(ServingError, "vectors/.weight.json", "--tune"):
            rank(QUERY, "vectors", by="both")


def test_results_below_a_score_are_left_out(corpus):
    make(corpus, keep_text=True)
    for by in ("vectors", "words", "both"):
        (matches,) = rank(QUERY, "vectors", by=by).matches
        assert rank(QUERY, "vectors", by=by, min_score=matches[1].score).matches == [
            [match for match in matches if match.score >= matches[1].score]
        ]


def naive_scores(found: list[str], grades: dict[str, int]) -> dict[str, float]:
    gains = sorted(grades.values(), reverse=True)[:10]
    ideal = sum(gain / math.log2(place) for place, gain in enumerate(gains, 2))
    places = [place for place, id_ in enumerate(found, 1) if id_ in grades]
    return {
        "mrr@10": max([1 / place for place in places if place <= 10], default=0),
        "ndcg@10": sum(grades[found[place - 1]] / math.log2(place + 1) for place in places if place <= 10) / ideal,
        "recall@10": sum(place <= 10 for place in places) / len(grades),
        "recall@100": sum(place <= 100 for place in places) / len(grades),
    }


def test_scores_are_the_formulas_and_those_of_training():
    from datasets import Dataset

    from modeling_roformer.training.retrieval.search import RETRIEVAL_METRICS, PassageSearch

    draw, n = np.random.default_rng(0), 150
    ids = [f"d{i}" for i in range(n)]
    orders = [draw.permutation(n) for _ in range(40)]
    grades = [{ids[i]: int(draw.integers(1, 4)) for i in draw.choice(n, 3, replace=False)} for _ in orders]
    ranking = Ranking(
        [""] * 40, [lists(*(ids[i] for i in order[:100])) for order in orders], True, "", [f"q{i}" for i in range(40)]
    )
    relevant = {f"q{i}": of_query for i, of_query in enumerate(grades) if i % 4}
    report = evaluate(ranking, relevant)
    expected = [naive_scores([ids[i] for i in orders[q]], grades[q]) for q in range(40) if q % 4]
    assert (report.queries, report.left_out) == (30, 10)
    for name, values in report.scores.items():
        np.testing.assert_allclose(values, [of_query[name] for of_query in expected])
        mean, low, high = report.intervals()[name]
        assert low < mean < high and mean == pytest.approx(np.mean(values))

    one = {f"q{i}": {ids[draw.integers(n)]: 1} for i in range(40)}
    questions = Dataset.from_list([{"question": q, "passage": next(iter(one[q]))} for q in one])
    scores = np.array([np.argsort(order) for order in orders])
    theirs = PassageSearch(questions, ids, "x").scores_of(lambda queries, passages: -scores.astype(np.float32))
    ours = {name: np.mean(values) for name, values in evaluate(ranking, one).scores.items()}
    assert ours == pytest.approx(theirs) and ours.keys() == RETRIEVAL_METRICS.keys()
    with refused(ServingError, "'q0'", "'other'"):
        evaluate(ranking, {"other": {"d1": 1}})


def test_judgements_of_another_form_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.qrels").write_text("1 0 d1 1\n\n1 Q0 d2 0\n2\t0\td1\t-1\n2 0 d3 2\n")
    assert read_qrels("a.qrels") == {"1": {"d1": 1}, "2": {"d3": 2}}
    for line in ("1 d1 1", "1 0 d1 yes", "query-id corpus-id score"):
        Path("a.qrels").write_text(f"1 0 d1 1\n{line}\n")
        with refused(DataError, "a.qrels:2", repr(line)):
            read_qrels("a.qrels")


def test_options_of_a_search_that_do_not_fit(corpus, run):
    make(corpus)
    Path("queries.jsonl").write_text(json.dumps({"text": QUERY}) + "\n")
    for options, facts in [
        (["--words", "--both"], ["--words", "--both"]),
        (["--word-unit", "bigram"], ["--word-unit", "bigram"]),
        (["--words", "--weight", "0.5"], ["--weight", "--both"]),
        (["--tune", "queries.jsonl", "--relevant", "x"], ["--tune", "--both"]),
        (["--both", "--tune", "other.jsonl"], ["other.jsonl", "--relevant", "--qrels"]),
        (["--both", "--tune", "other.jsonl", "--relevant", "x", "--weight", "1"], ["--weight", "--tune"]),
        (["--both", "--relevant", "x"], ["--relevant", "--tune"]),
        (["--both", "--tune", "queries.jsonl", "--relevant", "x"], ["queries.jsonl", "--tune"]),
    ]:
        code, out, err = run("rank", "queries.jsonl", "vectors", *options)
        assert code == 1 and not out and err.count("\n") == 1, err
        assert_states(err, *facts)
    for options, fact in [({"by": "letters"}, "'letters'"), ({"weight": 0.5}, 0.5), ({"by": "both", "weight": 2}, 2)]:
        with refused(ServingError, fact):
            rank(QUERY, "vectors", **options)


@pytest.mark.slow
@pytest.mark.usefixtures("corpus")
def test_three_files_in_a_run_and_scores_out():
    rows = [{"id": f"q{i}", "text": text} for i, text in enumerate([*TEXTS[:4], QUERY])]
    Path("queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Path("some.qrels").write_text("".join(f"q{i} 0 t{i} 1\n" for i in range(4)) + "other 0 t1 1\n")

    def command(*options) -> subprocess.CompletedProcess:
        return subprocess.run([ROFORMER, *options], capture_output=True, text=True)

    assert command("embed", "word", "texts.jsonl", "vectors", "--id-field", "id", "--words").returncode == 0
    search = ["rank", "queries.jsonl", "vectors", "--id-field", "id", "--words", "--qrels", "some.qrels", "--json"]
    done = command(*search, "--output", "out.trec")
    assert done.returncode == 0, done.stderr
    assert_states(done.stderr, 1, "some.qrels")
    found = json.loads(done.stdout)
    assert found["queries"] == 4 and found["mrr@10"]["mean"] == found["recall@100"]["mean"] == 1
    ranking = rank("queries.jsonl", "vectors", id_field="id", by="words", top_k=100)
    lines = [line.split() for line in Path("out.trec").read_text().splitlines()]
    assert [(line[0], line[2]) for line in lines] == [
        (id_, match.id) for id_, matches in zip(ranking.ids, ranking.matches, strict=True) for match in matches
    ]
    assert {(line[1], line[5]) for line in lines} == {("Q0", "roformer")}
    assert [float(line[4]) for line in lines] == pytest.approx([m.score for of in ranking.matches for m in of])
    done = command("rank", "queries.jsonl", "vectors", "--id-field", "id", "--words", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [f"q{i}" for i in range(5)]


def test_ids_that_a_run_cannot_hold_are_refused():
    for ids, text, facts in [
        (["a b"], "d", ["'a b'"]),
        (["a"], "d\te", [r"'d\te'"]),
        (["a", "a"], "d", ["--id-field"]),
    ]:
        with refused(ServingError, *facts):
            Ranking([""] * len(ids), [[Match(1.0, text)]] * len(ids), True, "BM25", ids).trec_run()


def test_the_digest_of_the_segmenter_has_its_code_and_libraries(monkeypatch):
    before = terms_module.segmenter_digest()
    terms_module.segmenter_digest.cache_clear()
    monkeypatch.setattr(terms_module, "version", lambda library: "another")
    assert terms_module.segmenter_digest() != before
    terms_module.segmenter_digest.cache_clear()
