"""examples/train_retriever.py and its parts: search by words and vectors, true ranks, and the model it keeps."""

import json
import random

import datasets
import numpy as np
import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.script_process import kill_at, run
from helpers.small_models import save_masked_lm
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from modeling_roformer import RoFormerTokenizer
from modeling_roformer.training import RETRIEVAL_METRICS, NotFinite, PassageSearch, bm25

SCRIPT = "train_retriever.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
FIELDS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
# Characters that the vocabulary has: others would give equal vectors.
WORDS = [entry for entry in VOCAB.read_text(encoding="utf-8").split("\n") if len(entry) == 1 and "一" <= entry <= "鿿"]


def make_rows(count, seed):
    """Return questions of three characters of their passage of six, two for each passage."""
    some, rows = random.Random(seed), []
    for _ in range(count):
        passage = "".join(some.sample(WORDS, 6))
        rows += [{"question": "".join(some.sample(passage, 3)), "passage": passage} for _ in range(2)]
    return rows


def scores_of(ranks):
    """Return the metrics of questions with one correct passage each, by their formulas."""
    ranks = np.array(ranks, dtype=float)
    first = ranks <= 10
    return {
        "mrr@10": np.mean(np.where(first, 1 / ranks, 0)),
        "ndcg@10": np.mean(np.where(first, 1 / np.log2(1 + ranks), 0)),
        "recall@10": np.mean(first),
        "recall@100": np.mean(ranks <= 100),
    }


def test_words_and_vectors_are_searched():
    passages = [f"第{n}段" for n in range(150)]
    questions = datasets.Dataset.from_dict(
        {"question": ["甲", "乙", "丙"], "passage": [passages[n] for n in (3, 7, 9)]}
    )
    search = PassageSearch(questions, [*passages, *passages], "test")
    ranks = [1, 12, 101]

    def similarities(asked, searched):
        assert asked == ["甲", "乙", "丙"] and searched == passages
        rows = []
        for answer, rank in zip((3, 7, 9), ranks, strict=True):
            others = iter(range(len(passages) - 1))
            order = [answer if place == rank else None for place in range(1, len(passages) + 1)]
            rest = [number for number in range(len(passages)) if number != answer]
            order = [rest[next(others)] if number is None else number for number in order]
            rows.append([-float(order.index(number)) for number in range(len(passages))])
        return np.array(rows)

    assert search.scores_of(similarities) == pytest.approx(scores_of(ranks))
    assert search.ranks == [1, 12, 0]
    two = datasets.Dataset.from_dict({"question": ["甲", "甲"], "passage": ["一", "二"]})  # both are right
    both = PassageSearch(two, ["一", "二", "三"], "test")
    scores = both.scores_of(lambda asked, searched: np.array([[0.1, 0.9, 0.5]]))
    assert both.ranks == [1] and scores["recall@10"] == 1
    assert scores["ndcg@10"] == pytest.approx((1 + 1 / np.log2(4)) / (1 + 1 / np.log2(3)))

    with pytest.raises(NotFinite, match="NaN"):  # which topk takes for the highest
        both.scores_of(lambda asked, searched: np.array([[np.nan] * 3]))


def test_bm25_reads_what_an_encoder_reads():
    tokenizer = RoFormerTokenizer(str(VOCAB))
    passages = [row["passage"] for row in make_rows(12, 1)]
    cut = ["".join(tokenizer.tokenize(passage)[:3]) for passage in passages]
    found = bm25(passages, passages, "character", tokenizer, 5)  # with [CLS] and [SEP]
    assert np.array_equal(found, bm25(passages, cut, "character"))
    assert not np.array_equal(found, bm25(passages, passages, "character"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a saved model and questions."""
    folder = tmp_path_factory.mktemp("retriever")
    save_masked_lm(folder / "start", VOCAB, **FIELDS)
    for name, rows in {"train": make_rows(40, 0), "test": make_rows(12, 1)}.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def arguments(output, *more):
    files = ["start", "--train", "train.jsonl", "--test", "test.jsonl", "--output", output]
    return [*files, "--batch-size", 8, "--learning-rate", 3e-3, "--epochs", 2, *more]


def results(folder):
    return json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
def test_it_learns_and_records_true_ranks(folder, run_here):
    options = ["--hard-negatives", 1, "--words", "--max-length", 9, "--bf16"]
    code, out, err = run(SCRIPT, folder, *arguments("runs", "--seeds", 3, 4, *options))
    assert code == 0, err
    saved = results(folder / "runs")
    assert list(saved) == [
        "before training",
        "BM25, words",
        "BM25, words, first 9 tokens",
        "BM25, characters",
        "BM25, characters, first 9 tokens",
        "trained",
    ]
    assert saved["BM25, characters"][""]["test"]["mrr@10"] > 0.9  # all characters of a question are in its passage
    scores = {seed: of["validation"]["ndcg@10"] for seed, of in saved["trained"].items()}
    assert scores.keys() == {"3", "4"} and max(scores.values()) > saved["before training"][""]["validation"]["ndcg@10"]
    best = max(scores, key=scores.get)

    # The saved model gives the recorded ranks, and these the recorded scores.
    passages = list(dict.fromkeys(row["passage"] for row in [*make_rows(40, 0), *make_rows(12, 1)]))
    asked = {row["question"]: row["passage"] for row in make_rows(12, 1)}
    model = SentenceTransformer(str(folder / "runs" / "model"), device="cpu")
    cosines = model.similarity(model.encode(list(asked)), model.encode(passages))
    orders = [[passages[i] for i in row.argsort(descending=True)] for row in cosines]
    ranks = [order.index(passage) + 1 for order, passage in zip(orders, asked.values(), strict=True)]
    of_best = saved["trained"][best]
    assert of_best["ranks"] == ranks and of_best["test"] == pytest.approx(scores_of(ranks))
    assert list(of_best["test"]) == list(RETRIEVAL_METRICS)
    assert_states(out, "questions have hard negatives", "±", "runs/model")
    card = ModelCard.load(folder / "runs" / "model" / "README.md")
    assert {score.metric_type: score.metric_value for score in card.data.eval_results} == pytest.approx(of_best["test"])
    assert "test.jsonl" in card.content and f"seed: {best}" in card.content and str(folder) not in card.content
    assert (folder / "runs" / "curves.png").read_bytes().startswith(b"\x89PNG")

    # A trained retriever is only evaluated.
    given = ["runs/model", *arguments("again", "--epochs", 0)[1:]]
    code, _, err = run_here(SCRIPT, folder, *given)
    assert code == 0, err
    again = results(folder / "again")
    assert list(again) == ["before training"] and not (folder / "again" / "model").exists()
    assert again["before training"][""]["ranks"] == ranks


@pytest.mark.slow
def test_a_killed_run_goes_on(folder):
    assert run(SCRIPT, folder, *arguments("whole"))[0] == 0
    kill_at(SCRIPT, folder, "parts/seed-0/checkpoint-*/trainer_state.json", *arguments("parts"))
    code, _, err = run(SCRIPT, folder, *arguments("parts", "--resume"))
    assert code == 0, err
    assert results(folder / "parts")["trained"]["0"]["ranks"] == results(folder / "whole")["trained"]["0"]["ranks"]
    code, _, err = run(SCRIPT, folder, *arguments("parts", "--resume", "--batch-size", 4))
    assert code == 1
    assert_states(err, "train_retriever: ", "parts", "different batch_size")


def test_lists_of_passages_and_of_negatives_are_trained_on(folder, run_here):
    rows = [
        {"query": row["question"], "pos": [row["passage"], row["passage"][::-1]], "neg": [other["passage"]]}
        for row, other in zip(make_rows(20, 2), make_rows(20, 3), strict=True)
    ]
    (folder / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--train", "lists.jsonl", "--columns", "query", "pos", "--negatives", "neg", "--epochs", 1]
    (folder / "lists test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:6]))
    code, _, err = run_here(SCRIPT, folder, *arguments("lists", *options, "--test", "lists test.jsonl"))
    assert code == 0, err
    assert len(results(folder / "lists")["trained"]["0"]["ranks"]) == len({row["query"] for row in rows[:6]})


def test_unusable_input_is_named_on_one_line(folder, run_here):
    code, _, err = run_here(SCRIPT, folder, *arguments("bad", "--columns", "question", "text"))
    assert code == 1
    assert_states(err, "train_retriever: ", "train.jsonl", "text", "question, passage")
