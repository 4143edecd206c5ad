"""`roformer predict`: results equal those of the pipelines, for every head and after any interruption."""

import csv
import json
import os
import subprocess
import time
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
import torch
from helpers.command_line import ROFORMER
from helpers.messages import assert_states, refused
from helpers.page_models import save
from helpers.small_texts import TEXTS
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer, pipeline

import modeling_roformer as package
from modeling_roformer.data import DataError
from modeling_roformer.data.records import Records
from modeling_roformer.files.lock import only_writer
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.model_identity import digest_of_files, model_files
from modeling_roformer.serving.page.question_answering import answer_question
from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.serving.prediction import predict, prediction, rows
from modeling_roformer.serving.prediction.evaluation import label_of
from modeling_roformer.serving.prediction.predictor import Predictor

NAMES = {0: "好评", 1: "差评", 2: "[一般]"}
TAGS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
LONG = "今天天气非常好，我想去公园玩。" * 40
LABELS = {"id2label": NAMES, "label2id": {name: number for number, name in NAMES.items()}, "initializer_range": 0.3}
KINDS = {
    "one": ("RoFormerForSequenceClassification", LABELS),
    "several": ("RoFormerForSequenceClassification", {**LABELS, "problem_type": "multi_label_classification"}),
    "number": ("RoFormerForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
    "entities": ("RoFormerForTokenClassification", {"id2label": TAGS, "initializer_range": 0.3}),
    "answers": ("RoFormerForQuestionAnswering", {"initializer_range": 0.3}),
    "cross": ("RoFormerForTripletMatching", {"initializer_range": 0.3}),
    "bi": ("RoFormerForTripletMatching", {"triplet_scorer": "bi", "initializer_range": 0.3}),
    "masks": ("RoFormerForMaskedLM", {"initializer_range": 0.3}),
    "decoder": ("RoFormerForCausalLM", {"is_decoder": True}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a function from a kind to the folder of a small model."""
    folder = tmp_path_factory.mktemp("models")

    def model(kind):
        name, settings = KINDS[kind]
        return folder / kind if (folder / kind).exists() else save(folder / kind, getattr(package, name), **settings)

    return model


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(rows, "PART_ROWS", 4)


def json_rows(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_rows(path, values):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in values), encoding="utf-8")
    return path


def with_ends(tokenizer, ids):
    return [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]


@pytest.fixture
def texts(tmp_path):
    """Write ten texts of mixed lengths, with a number in each row."""
    return write_rows(tmp_path / "texts.jsonl", [{"text": text, "n": n} for n, text in enumerate([*TEXTS[:9], LONG])])


def run(folder, file, out, **options):
    predict(folder, file, out, device="cpu", **options)
    return json_rows(out)


@pytest.mark.parametrize("kind", ["one", "several", "number"])
@pytest.mark.parametrize("batch_tokens", [16, 4096])
def test_classes_are_those_of_the_pipeline(model, texts, tmp_path, kind, batch_tokens):
    found = run(model(kind), texts, tmp_path / "out.jsonl", all_scores=kind != "number", batch_tokens=batch_tokens)
    classify = pipeline("text-classification", model=str(model(kind)), device="cpu")
    read = [row["text"] for row in json_rows(texts)]
    for number, (row, expected) in enumerate(zip(found, classify(read, top_k=None), strict=True)):
        assert (row["id"], row["n"], row["text"]) == (f"texts.jsonl:{number + 1}", number, read[number])
        scores = {one["label"]: one["score"] for one in expected}
        if kind == "number":
            assert row["predicted"] == pytest.approx(scores["LABEL_0"], abs=2e-5)
            continue
        assert row["scores"] == pytest.approx(scores, abs=2e-5)
        if kind == "one":
            assert (row["predicted"], row["score"]) == (expected[0]["label"], max(row["scores"].values()))
        else:
            assert row["predicted"] == [one["label"] for one in expected if one["score"] >= 0.5]
            assert row["score"] == [row["scores"][name] for name in row["predicted"]]


def test_pairs_are_those_of_the_pipeline(model, tmp_path):
    pairs = [{"a": first, "b": second} for first, second in zip(TEXTS, reversed(TEXTS), strict=True)]
    file = write_rows(tmp_path / "pairs.jsonl", pairs)
    found = run(model("one"), file, tmp_path / "out.jsonl", columns={"field": "a", "text_pair": "b"})
    classify = pipeline("text-classification", model=str(model("one")), device="cpu")
    expected = classify([{"text": pair["a"], "text_pair": pair["b"]} for pair in pairs])
    assert [row["predicted"] for row in found] == [one["label"] for one in expected]
    np.testing.assert_allclose([row["score"] for row in found], [one["score"] for one in expected], atol=2e-5)


def test_entities_are_those_of_the_pipeline(model, texts, tmp_path):
    found = run(model("entities"), texts, tmp_path / "out.jsonl", batch_tokens=64)
    tag = pipeline("token-classification", model=str(model("entities")), aggregation_strategy="simple", device="cpu")
    assert sum(len(row["predicted"]) for row in found) > 10
    for row in found:
        expected = tag(row["text"])
        names = ("label", "start", "end", "text")
        assert [tuple(span[name] for name in names) for span in row["predicted"]] == [
            (span["entity_group"], span["start"], span["end"], row["text"][span["start"] : span["end"]])
            for span in expected
        ]
        np.testing.assert_allclose(
            [span["score"] for span in row["predicted"]], [span["score"] for span in expected], atol=2e-5
        )


@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_triplets_are_those_of_the_pipeline(model, tmp_path, scorer):
    triplets = [dict(zip("ABC", TEXTS[start : start + 3], strict=True)) for start in range(8)]
    found = run(model(scorer), write_rows(tmp_path / "in.jsonl", triplets), tmp_path / "out.jsonl", batch_tokens=60)
    expected = pipeline("triplet-matching", model=str(model(scorer)), device="cpu")(triplets)
    assert [row["predicted"] for row in found] == [one["label"] for one in expected]
    np.testing.assert_allclose([row["score"] for row in found], [one["score"] for one in expected], atol=2e-5)


def test_each_mask_has_a_row_with_the_words_of_the_pipeline(model, tmp_path):
    texts = ["今天[MASK]很好。", "我想[MASK][MASK]玩，[MASK]。", "没有"]
    file = write_rows(tmp_path / "in.jsonl", [{"text": text} for text in texts])
    *found, refusal = run(model("masks"), file, tmp_path / "out.jsonl", top_k=3)
    assert [(row["id"], row["mask"]) for row in found] == [
        ("in.jsonl:1", 1),
        ("in.jsonl:2", 1),
        ("in.jsonl:2", 2),
        ("in.jsonl:2", 3),
    ]
    fill = pipeline("fill-mask", model=str(model("masks")), device="cpu", top_k=3)
    for row, words in zip(found, [fill(texts[0]), *fill(texts[1])], strict=True):
        assert [one["word"] for one in row["scores"]] == [word["token_str"] for word in words]
        assert [one["score"] for one in row["scores"]] == pytest.approx([word["score"] for word in words], abs=2e-5)
        assert (row["predicted"], row["score"]) == (words[0]["token_str"], row["scores"][0]["score"])
    assert refusal["predicted"] is None
    assert_states(refusal["error"], "line 3", "[MASK]")


def test_answers_are_those_of_the_page(model, tmp_path):
    asked = [
        {"q": "去哪里？", "doc": LONG},
        {"q": "天气如何？", "doc": "今天天气很好。"},
        {"q": "为何？", "doc": TEXTS[0]},
    ]
    columns = {"question": "q", "context": "doc"}
    found = run(model("answers"), write_rows(tmp_path / "in.jsonl", asked), tmp_path / "out.jsonl", columns=columns)
    served = ServedModel(model("answers"))
    for row, one in zip(found, asked, strict=True):
        best = answer_question(served, one["q"], one["doc"])[0][0]
        assert (row["predicted"], row["start"], row["end"]) == (best["answer"], best["start"], best["end"])
        assert row["score"] == pytest.approx(best["score"], abs=2e-6)


@pytest.mark.parametrize("kind", ["one", "number"])
def test_classes_of_chunks_are_weighted_by_their_new_tokens(model, texts, tmp_path, kind):
    found = run(model(kind), texts, tmp_path / "out.jsonl", chunk=20, overlap=5, all_scores=kind == "one")
    tokenizer = AutoTokenizer.from_pretrained(model(kind))
    classifier = AutoModelForSequenceClassification.from_pretrained(model(kind)).eval()
    for row in found:
        ids = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        starts = range(0, max(1, len(ids) - 5), 13)  # 18 tokens beside [CLS] and [SEP], of which 5 are shared
        chunks = [ids[start : start + 18] for start in starts]
        weights = [len(chunk) - (5 if number else 0) for number, chunk in enumerate(chunks)]
        with torch.no_grad():
            inputs = [torch.tensor([with_ends(tokenizer, chunk)]) for chunk in chunks]
            logits = [classifier(one).logits[0] for one in inputs]
        scores = [logit if kind == "number" else logit.softmax(-1) for logit in logits]
        expected = sum(weight * score for weight, score in zip(weights, scores, strict=True)) / sum(weights)
        values = [row["predicted"]] if kind == "number" else list(row["scores"].values())
        assert values == pytest.approx(expected.tolist(), abs=2e-5)


@pytest.mark.parametrize("overlap", [0, 1, 5, 12])
def test_tags_of_chunks_are_those_farthest_from_an_edge(model, tmp_path, overlap):
    file = write_rows(tmp_path / "in.jsonl", [{"text": LONG[:300]}, {"text": "好"}])
    found = run(model("entities"), file, tmp_path / "out.jsonl", chunk=20, overlap=overlap)[0]["predicted"]
    tokenizer = AutoTokenizer.from_pretrained(model("entities"))
    tagger = AutoModelForTokenClassification.from_pretrained(model("entities")).eval()
    encoded = tokenizer(LONG[:300], add_special_tokens=False, return_offsets_mapping=True)
    ids, best = encoded["input_ids"], {}  # place -> distance to the nearest edge, and tag
    for start in range(0, max(1, len(ids) - overlap), 18 - overlap):
        chunk = ids[start : start + 18]
        with torch.no_grad():
            tags = tagger(torch.tensor([with_ends(tokenizer, chunk)])).logits[0, 1:-1].argmax(-1)
        for place, tag in enumerate(tags.tolist()):
            # The ends of the text are no edges.
            left = place if start else len(ids)
            right = len(chunk) - 1 - place if start + len(chunk) < len(ids) else len(ids)
            distance = min(left, right)
            if start + place not in best or distance > best[start + place][0]:
                best[start + place] = distance, TAGS[tag]
    spans = []
    for place in range(len(ids)):
        (start, end), (prefix, _, kind) = encoded["offset_mapping"][place], best[place][1].partition("-")
        if prefix == "I" and place and best[place - 1][1][2:] == kind:
            spans[-1][1] = end
        elif prefix != "O":
            spans.append([start, end, kind])
    assert [[span["start"], span["end"], span["label"]] for span in found] == spans


def test_every_format_has_the_same_values(model, texts, tmp_path):
    lines = run(model("one"), texts, tmp_path / "out.jsonl", all_scores=True)
    for suffix in ("csv", "parquet"):
        predict(model("one"), texts, tmp_path / f"out.{suffix}", all_scores=True, device="cpu")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.to_pylist() == lines and str(table.schema.field("n").type) == "int64"
    with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as file:
        cells = [*csv.DictReader(file)]
    for row, cell in zip(lines, cells, strict=True):
        scores = row.pop("scores")
        expected = row | {f"scores.{name}": score for name, score in scores.items()}
        assert cell == {name: str(value) for name, value in expected.items()}


def test_every_source_gives_the_same_rows(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "day": [1] * len(TEXTS)}), "texts.parquet")
    with open("texts.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["day", "text"], *([1, text] for text in TEXTS)])
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    found = {name: run(model("one"), name, tmp_path / f"{name}.jsonl") for name in os.listdir() if "texts" in name}
    for name, predicted in found.items():
        assert [row["id"] for row in predicted] == [f"{name}:{n}" for n in range(1, len(TEXTS) + 1)]
        assert [row["text"] for row in predicted] == TEXTS
        assert [row["score"] for row in predicted] == [row["score"] for row in found["texts.csv"]]
    assert found["texts.parquet"][0]["day"] == 1 and found["texts.csv"][0]["day"] == "1"
    both = run(model("one"), ["texts.csv", "texts.txt"], tmp_path / "both.jsonl")
    assert [row["id"] for row in both] == [row["id"] for name in ("csv", "txt") for row in found[f"texts.{name}"]]


def test_ids_of_a_column(model, tmp_path):
    file = write_rows(tmp_path / "in.jsonl", [{"id": 7, "text": "好"}, {"id": "a", "text": "坏"}])
    assert [row["id"] for row in run(model("one"), file, tmp_path / "a.jsonl", id_field="id")] == ["7", "a"]
    with refused(ServingError, "line 1", "'id'", "--id-field"):
        run(model("one"), file, tmp_path / "b.jsonl")
    file = write_rows(tmp_path / "in.jsonl", [{"key": 7, "text": "好", "score": 1}])
    with refused(ServingError, "'score'"):
        run(model("one"), file, tmp_path / "b.jsonl", id_field="key")
    assert not (tmp_path / "b.jsonl").exists()


def test_a_row_without_a_text_has_an_error_or_stops(model, tmp_path):
    values = [{"text": "好"}, {"text": ""}, {"other": 1}, {"text": ["x"]}, {"text": "\ud800"}, {"text": None}]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in values))
    report = predict(model("one"), file, tmp_path / "out.jsonl", device="cpu")
    found = json_rows(tmp_path / "out.jsonl")
    assert (report.rows, report.errors) == (6, 5)
    assert "error" not in found[0] and found[0]["predicted"] in NAMES.values()
    for number, row in enumerate(found[1:], 2):
        assert row["predicted"] is None and row["id"] == f"in.jsonl:{number}"
        assert_states(row["error"], f"line {number}", "text")
    for suffix in ("csv", "parquet"):
        predict(model("one"), file, tmp_path / f"out.{suffix}", device="cpu")
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet")["error"].to_pylist()[0] is None
    with refused(ServingError, "line 2", "--strict"):
        predict(model("one"), file, tmp_path / "strict.jsonl", strict=True, device="cpu")
    assert not (tmp_path / "strict.jsonl").exists()


def test_a_stopped_command_resumes_with_the_same_bytes(model, texts, tmp_path, monkeypatch):
    expected = tmp_path / "expected.jsonl"
    run(model("one"), texts, expected)
    out, parts = tmp_path / "out.jsonl", tmp_path / ".out.jsonl.parts"
    real, done = Predictor.predict, []

    def stops(self, part, *options):
        if part.number == 2:
            raise KeyboardInterrupt
        done.append(part.number)
        return real(self, part, *options)

    monkeypatch.setattr(Predictor, "predict", stops)
    with pytest.raises(KeyboardInterrupt):
        run(model("one"), texts, out)
    assert not out.exists() and (parts / "000001.jsonl").exists()
    with refused(ServingError, parts, "all-scores", "--force"):
        run(model("one"), texts, out, all_scores=True)
    with open(parts / "000000.jsonl", "ab") as file:  # damaged
        file.write(b"x")
    monkeypatch.setattr(Predictor, "predict", real)
    report = predict(model("one"), texts, out, device="cpu")
    assert (report.rows, report.kept, done) == (10, 4, [0, 1])
    assert out.read_bytes() == expected.read_bytes() and not parts.exists()


def test_rows_that_changed_are_predicted_again(model, texts, tmp_path, monkeypatch):
    real = Predictor.predict

    def stops(self, part, *options):
        if part.number == 2:
            raise KeyboardInterrupt
        return real(self, part, *options)

    monkeypatch.setattr(Predictor, "predict", stops)
    with pytest.raises(KeyboardInterrupt):
        run(model("one"), texts, tmp_path / "out.jsonl")
    monkeypatch.setattr(Predictor, "predict", real)
    changed = json_rows(texts)
    changed[1]["n"] = "other"
    write_rows(texts, changed[:6])
    report = predict(model("one"), texts, tmp_path / "out.jsonl", device="cpu")
    assert (report.rows, report.kept) == (6, 0)
    assert [row["n"] for row in json_rows(tmp_path / "out.jsonl")] == [0, "other", 2, 3, 4, 5]


def test_refusals_leave_no_file(model, texts, tmp_path):
    out = tmp_path / "out.jsonl"
    for error, facts, changes in [
        (ServingError, ["--top-k", "classifier"], {"top_k": 2}),
        (ServingError, ["--question", "classifier"], {"columns": {"question": "text"}}),
        (ServingError, ["overlap", 3, "--chunk"], {"overlap": 3}),
        (ServingError, ["overlap", 18, 17], {"overlap": 18, "chunk": 20}),
        (ServingError, ["chunk", 2, 3], {"chunk": 2}),
        (ServingError, ["max_length", 2, 3], {"max_length": 2}),
        (ServingError, ["max_length", 4, 5], {"max_length": 4, "columns": {"text_pair": "text"}}),
        (ServingError, ["chunk", "max_length"], {"chunk": 9, "max_length": 9}),
        (ServingError, ["--chunk", "pairs"], {"chunk": 9, "columns": {"text_pair": "text"}}),
        (ServingError, ["dtype", "int8"], {"dtype": "int8"}),
        (DataError, ["line 1", "'body'", "--field"], {"columns": {"field": "body"}}),
        (DataError, ["'key'", "--id-field"], {"id_field": "key"}),
    ]:
        with refused(error, *facts):
            predict(model("one"), texts, out, device="cpu", **changes)
    with refused(ServingError, model("decoder"), "text-generation"):
        predict(model("decoder"), texts, out)
    with refused(ServingError, "out.txt", ".csv"):
        predict(model("one"), texts, tmp_path / "out.txt")
    with refused(FileExistsError, texts):
        predict(model("one"), texts, texts, force=True)
    (tmp_path / "empty.jsonl").touch()
    with refused(ServingError, "empty.jsonl"):
        predict(model("one"), tmp_path / "empty.jsonl", out)
    with only_writer(tmp_path / ".out.jsonl.parts", ServingError), refused(ServingError, ".out.jsonl.parts"):
        predict(model("one"), texts, out, device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.jsonl", "texts.jsonl"]
    out.write_text("mine")
    with refused(FileExistsError, out, "--force"):
        predict(model("one"), texts, out)
    assert out.read_text() == "mine"


def test_an_output_that_is_not_finite_is_refused(model, texts, tmp_path):
    folder = tmp_path / "model"
    save(folder, package.RoFormerForSequenceClassification, **LABELS)
    weights = load_file(folder / "model.safetensors")
    weights["classifier.out_proj.bias"][1] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with refused(ServingError, "finite"):
        predict(folder, texts, tmp_path / "out.jsonl", device="cpu")
    assert not (tmp_path / "out.jsonl").exists()


def labelled(tmp_path, predicted, column, wrong, values):
    """Write predicted rows with their predictions as labels, but for the rows `wrong`, which have `values`."""
    return write_rows(
        tmp_path / "labelled.jsonl",
        [
            {"text": row["text"], column: values if number in wrong else row["predicted"]}
            for number, row in enumerate(predicted)
        ],
    )


def test_classes_are_compared_with_labels(model, texts, tmp_path):
    folder = model("one")
    found = run(folder, texts, tmp_path / "out.jsonl")
    names = [row["predicted"] for row in found]
    other = next(name for name in NAMES.values() if name != names[0])
    file = labelled(tmp_path, found, "y", {0}, other)
    picture = tmp_path / "confusion.png"
    report = predict(folder, file, tmp_path / "a.jsonl", label="y", confusion=picture, device="cpu")
    compared = report.evaluation
    assert (compared.rows, compared.left_out) == (10, 0) and picture.read_bytes().startswith(b"\x89PNG")
    assert compared.scores["accuracy"] == pytest.approx(0.9)
    counts = np.zeros((3, 3), dtype=int)
    for row, name in zip(json_rows(file), names, strict=True):
        counts[list(NAMES.values()).index(row["y"]), list(NAMES.values()).index(name)] += 1
    assert (compared.counts == counts).all() and compared.names == [*NAMES.values()]
    # A label that the model does not have is a class too, and a row without a label is left out.
    file = labelled(tmp_path, found, "y", {0, 1}, "new")
    rows_ = json_rows(file)
    rows_[2]["y"] = None
    report = predict(folder, write_rows(file, rows_), tmp_path / "b.jsonl", label="y", device="cpu")
    assert (report.evaluation.rows, report.evaluation.left_out) == (9, 1)
    assert report.evaluation.names == [*NAMES.values(), "new"]
    with refused(DataError, "'z'", "--label"):
        predict(folder, file, tmp_path / "c.jsonl", label="z", device="cpu")


def test_names_in_lists_are_compared_as_they_are():
    """A model may have a name with a space, as its training texts had it."""
    head = SimpleNamespace(labels="several")
    assert label_of(head, [" 好", "好"], None, "row") == {" 好", "好"}
    assert label_of(head, '[" 好"]', None, "row") == {" 好"}
    assert label_of(head, " 好, 差,", ",", "row") == {"好", "差"}


def test_several_classes_numbers_and_entities_are_compared_with_labels(model, texts, tmp_path):
    found = run(model("several"), texts, tmp_path / "out.jsonl")
    for change, separator in ((lambda names: names, None), (",".join, ",")):
        file = write_rows(
            tmp_path / "in.jsonl",
            [{"text": row["text"], "y": change(row["predicted"]) or ["好评"]} for row in found],
        )
        report = predict(
            model("several"), file, tmp_path / "a.jsonl", label="y", label_separator=separator, device="cpu", force=True
        )
        exact = sum(bool(row["predicted"]) for row in found) / len(found)
        assert report.evaluation.scores["exact_match"] == pytest.approx(exact)
    found = run(model("number"), texts, tmp_path / "number.jsonl")
    file = write_rows(tmp_path / "in.jsonl", [{"text": row["text"], "y": row["predicted"] + 0.5} for row in found])
    report = predict(model("number"), file, tmp_path / "b.jsonl", label="y", device="cpu")
    assert report.evaluation.scores["mean_absolute_error"] == pytest.approx(0.5)
    write_rows(tmp_path / "in.jsonl", [{"text": "好", "y": "viel"}])
    with refused(ServingError, "in.jsonl:1", "'viel'"):
        predict(model("number"), tmp_path / "in.jsonl", tmp_path / "c.jsonl", label="y", device="cpu")
    found = run(model("entities"), texts, tmp_path / "entities.jsonl")
    spans = sum(len(row["predicted"]) for row in found)
    file = labelled(tmp_path, found, "y", {9}, [[0, 1, "ORG"]])
    report = predict(model("entities"), file, tmp_path / "d.jsonl", label="y", device="cpu")
    missed = len(found[9]["predicted"])
    precision, recall = (spans - missed) / spans, (spans - missed) / (spans - missed + 1)
    assert report.evaluation.scores["f1"] == pytest.approx(2 * precision * recall / (precision + recall))


def test_triplets_and_answers_are_compared_with_labels(model, tmp_path):
    triplets = [dict(zip("ABC", TEXTS[start : start + 3], strict=True)) for start in range(4)]
    found = run(model("bi"), write_rows(tmp_path / "in.jsonl", triplets), tmp_path / "out.jsonl")
    labels = [row["predicted"] for row in found[:3]] + ["B" if found[3]["predicted"] == "C" else "C"]
    rows_ = [triplet | {"y": label} for triplet, label in zip(triplets, labels, strict=True)]
    report = predict(
        model("bi"), write_rows(tmp_path / "in.jsonl", rows_), tmp_path / "a.jsonl", label="y", device="cpu"
    )
    assert report.evaluation.scores["accuracy"] == 0.75
    asked = [{"question": "去哪里？", "context": "我想去公园玩。"}, {"question": "如何？", "context": "今天天气很好。"}]
    found = run(model("answers"), write_rows(tmp_path / "in.jsonl", asked), tmp_path / "b.jsonl")
    rows_ = [one | {"y": ["无", row["predicted"]]} for one, row in zip(asked, found, strict=True)]
    write_rows(tmp_path / "in.jsonl", [rows_[0], rows_[1] | {"y": "ＸＹ"}])
    report = predict(model("answers"), tmp_path / "in.jsonl", tmp_path / "c.jsonl", label="y", device="cpu")
    assert report.evaluation.scores["exact_match"] == 0.5
    file = write_rows(tmp_path / "in.jsonl", [{"text": "[MASK]", "y": "a"}])
    with refused(ServingError, "--label", "masked"):
        predict(model("masks"), file, tmp_path / "d.csv", label="y", device="cpu")


@pytest.mark.parametrize("kind", ["one", "several"])
def test_a_threshold_is_chosen_by_the_largest_f1(model, texts, tmp_path, kind):
    folder, names = model(kind), [*NAMES.values()]
    found = run(folder, texts, tmp_path / "out.jsonl", all_scores=True)
    labels = [[names[number % 3]] if number % 4 else [] for number in range(10)]
    value = (lambda row: row) if kind == "several" else (lambda row: row[0] if row else "")
    dev = write_rows(
        tmp_path / "dev.jsonl",
        [{"text": row["text"], "y": value(known)} for row, known in zip(found, labels, strict=True)],
    )

    def f1(threshold):
        chosen = [
            {name for name, score in row["scores"].items() if score >= threshold}
            & ({*names} if kind == "several" else {max(row["scores"], key=row["scores"].get)})
            for row in found
        ]
        right = sum(len(some & {*known}) for some, known in zip(chosen, labels, strict=True))
        return 2 * right / (sum(map(len, chosen)) + sum(map(len, labels)))

    file = tmp_path / "threshold.json"
    options = {"label": "y", "tune": dev, "threshold": file, "device": "cpu"}
    report = predict(folder, texts, tmp_path / "a.jsonl", **options)
    best = max(f1(score) for row in found for score in row["scores"].values())
    stored = json.loads(file.read_text())
    assert (f1(stored["threshold"]), stored["f1"]) == pytest.approx((best, best), abs=1e-6)
    assert report.threshold == stored["threshold"] and report.evaluation is None
    predict(folder, texts, tmp_path / "b.jsonl", threshold=file, device="cpu")
    predict(folder, texts, tmp_path / "c.jsonl", threshold=stored["threshold"], device="cpu")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()
    for row, before in zip(json_rows(tmp_path / "c.jsonl"), found, strict=True):
        kept = {name for name, score in before["scores"].items() if score >= stored["threshold"]}
        predicted = {*row["predicted"]} if kind == "several" else {row["predicted"]} - {None}
        assert predicted == (kept if kind == "several" else kept & {before["predicted"]})
    with refused(FileExistsError, file):
        predict(folder, texts, tmp_path / "d.jsonl", **options)
    with refused(ServingError, dev):
        predict(folder, dev, tmp_path / "d.jsonl", **options | {"threshold": tmp_path / "new.json"})
    with refused(ServingError, file, "model"):
        predict(model("several" if kind == "one" else "one"), texts, tmp_path / "d.jsonl", threshold=file, device="cpu")
    with refused(ServingError, "'x'", "--tune"):
        predict(folder, texts, tmp_path / "d.jsonl", threshold="x", device="cpu")
    with refused(ServingError, "--label"):
        predict(folder, texts, tmp_path / "d.jsonl", tune=dev, threshold=tmp_path / "new.json")


def test_a_stopped_command_that_chooses_a_threshold_resumes(model, texts, tmp_path, monkeypatch):
    dev = write_rows(tmp_path / "dev.jsonl", [{"text": text, "y": NAMES[n % 3]} for n, text in enumerate(TEXTS)])
    labels = write_rows(texts, [row | {"y": NAMES[0]} for row in json_rows(texts)])
    options = {"label": "y", "tune": dev, "device": "cpu"}
    expected = {"threshold": tmp_path / "expected.json", "confusion": tmp_path / "expected.png"}
    predict(model("one"), labels, tmp_path / "expected.csv", **options, **expected)
    chosen = {"threshold": tmp_path / "new.json", "confusion": tmp_path / "new" / "confusion.png"}

    def stops(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(prediction, "write_output", stops)
    with pytest.raises(KeyboardInterrupt):
        predict(model("one"), labels, tmp_path / "out.csv", **options, **chosen)
    monkeypatch.undo()
    mine = tmp_path / "mine.json"
    mine.write_text("mine")
    for name in ("threshold", "confusion"):  # a file that the stopped command did not write
        with refused(FileExistsError, mine, "--force"):
            predict(model("one"), labels, tmp_path / "out.csv", **options, **chosen | {name: mine})
    monkeypatch.setattr(rows, "PART_ROWS", 4)
    report = predict(model("one"), labels, tmp_path / "out.csv", **options, **chosen)
    assert report.kept == report.rows and mine.read_text() == "mine"
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()
    assert chosen["threshold"].read_bytes() == expected["threshold"].read_bytes()


def test_a_file_that_appears_while_rows_wait_is_not_replaced(model, texts, tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"

    def appears(*_):
        out.write_text("mine")
        return True

    monkeypatch.setattr(prediction, "digest_of_files", appears)
    with refused(FileExistsError, out, "--force"):
        predict(model("one"), texts, out, device="cpu")
    assert out.read_text() == "mine"


@pytest.mark.parametrize("names", [("output", "confusion"), ("output", "threshold"), ("confusion", "threshold")])
def test_two_results_in_one_file_are_refused(model, texts, tmp_path, names):
    one = tmp_path / "one.csv"
    options = {"output": tmp_path / "out.csv", "confusion": None, "threshold": tmp_path / "new.json", "tune": "dev.csv"}
    with refused(ServingError, one):
        predict(model("one"), texts, label="y", **options | dict.fromkeys(names, one))


@pytest.mark.parametrize("threshold", ["nan", "inf", "-0.1", "1.5", 80, pytest.param(10**400, id="huge")])
def test_a_threshold_that_is_no_probability_is_refused(model, texts, tmp_path, threshold):
    with refused(ServingError, "threshold", "0 to 1"):
        predict(model("one"), texts, tmp_path / "out.csv", threshold=threshold, device="cpu")
    stored = {"threshold": float(threshold) if isinstance(threshold, str) else threshold}
    stored["model"] = digest_of_files(model("one"), model_files(model("one")))
    (tmp_path / "threshold.json").write_text(json.dumps(stored))
    with refused(ServingError, "threshold.json", "0 to 1"):
        predict(model("one"), texts, tmp_path / "out.csv", threshold=tmp_path / "threshold.json", device="cpu")


def test_csv_quotes_a_carriage_return(model, tmp_path):
    values = ["a\rb", "\r", "end\r", "\r\nc", 'd"\n', "e,"]
    file = write_rows(tmp_path / "in.jsonl", [{"text": "好", "k": value} for value in values])
    predict(model("one"), file, tmp_path / "out.csv", device="cpu")
    with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as content:
        assert [row["k"] for row in csv.DictReader(content)] == values
    assert [record.columns["k"] for record in Records([str(tmp_path / "out.csv")])] == values
    assert (tmp_path / "out.csv").read_bytes().count(b"\r\n") == 1


def test_parquet_has_exact_integers_beside_floats(model, tmp_path):
    large = 2**53 + 1
    file = write_rows(
        tmp_path / "in.jsonl",
        [{"text": "好", "a": value, "b": [value], "c": n} for n, value in enumerate([large] * 4 + [0.5])],
    )
    predict(model("one"), file, tmp_path / "out.parquet", device="cpu")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table["a"].to_pylist() == [str(large)] * 4 + ["0.5"]
    assert table["b"].to_pylist() == [f"[{large}]"] * 4 + ["[0.5]"] and table["c"].to_pylist() == [*range(5)]


def test_binary_columns_are_texts(model, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": ["好".encode()]}), tmp_path / "in.parquet")
    assert run(model("one"), tmp_path / "in.parquet", tmp_path / "out.jsonl")[0]["text"] == "好"


def test_a_column_with_the_name_of_a_class_score_is_refused(model, tmp_path):
    file = write_rows(tmp_path / "in.jsonl", [{"text": "好", "scores": {"好评": 5}}])
    with refused(ServingError, "'scores.好评'"):
        predict(model("one"), file, tmp_path / "out.csv", all_scores=True, device="cpu")
    predict(model("one"), file, tmp_path / "out.csv", device="cpu")


def test_classes_of_one_name_have_no_scores_by_name(texts, tmp_path):
    folder = save(tmp_path / "model", package.RoFormerForSequenceClassification, num_labels=3)
    config = json.loads((folder / "config.json").read_text())
    config |= {"id2label": {"0": "x", "1": "x", "2": 3}, "label2id": {"x": 0}}
    (folder / "config.json").write_text(json.dumps(config))
    with refused(ServingError, "config.json", "id2label"):
        predict(folder, texts, tmp_path / "out.jsonl", all_scores=True, device="cpu")
    assert {row["predicted"] for row in run(folder, texts, tmp_path / "out.jsonl")} <= {"x", "3"}


def test_odd_labels_are_left_out_or_refused(model, tmp_path):
    row = {"text": "好", "question": "谁？", "context": "我。"}
    for kind, label, fact in [
        ("number", 10**400, "a number"),
        ("entities", [{"start": 0, "end": 1}], "label"),
        ("entities", [[False, True, "PER"]], "label"),
        ("answers", [], "'y'"),
        ("one", " ", "'y'"),
    ]:
        file = write_rows(tmp_path / "in.jsonl", [row | {"y": label}])
        with refused(ServingError, fact):
            predict(model(kind), file, tmp_path / f"{kind}.jsonl", label="y", device="cpu", force=True)
    file = write_rows(tmp_path / "in.jsonl", [row | {"y": []}, row | {"y": ["我"]}])
    report = predict(model("answers"), file, tmp_path / "out.jsonl", label="y", device="cpu")
    assert (report.evaluation.rows, report.evaluation.left_out) == (1, 1)


def test_a_part_has_few_rows_if_their_columns_are_long(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_MAX_CHARACTERS", 100)
    file = write_rows(tmp_path / "in.jsonl", [{"text": "好", "body": "x" * 60}] * 5)
    parts = rows.read_parts(Records([str(file)]), {"field": "text"}, ["predicted"])
    assert [len(part.rows) for part in parts] == [2, 2, 1]


@pytest.mark.slow
def test_the_installed_command_is_killed_and_resumes(model, tmp_path):
    """From a folder outside the clone, with rows of three parts; the file is that of a run without a stop."""
    write_rows(tmp_path / "in.jsonl", [{"text": f"{TEXTS[n % 10]}{n}", "y": NAMES[n % 3]} for n in range(10_000)])
    command = [ROFORMER, "predict", str(model("one")), "in.jsonl", "--label", "y", "--output"]
    options = {"cwd": tmp_path, "env": os.environ | {"COLUMNS": "120"}}
    whole = subprocess.run([*command, "whole.csv"], capture_output=True, text=True, check=True, **options)
    assert_states(whole.stdout, "10,000", "[一般]", "accuracy")
    parts = tmp_path / ".out.csv.parts"
    started = subprocess.Popen([*command, "out.csv"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    while not (parts / "000001.jsonl").exists():
        assert started.poll() is None
        time.sleep(0.01)
    started.kill()
    started.wait()
    assert not (tmp_path / "out.csv").exists()
    resumed = subprocess.run([*command, "out.csv"], capture_output=True, text=True, check=True, **options)
    assert "of them kept" in resumed.stdout and "Traceback" not in resumed.stderr
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes() and not parts.exists()
    refusal = subprocess.run([*command, "out.csv"], capture_output=True, text=True, **options)
    assert refusal.returncode == 1 and "Traceback" not in refusal.stderr
    assert_states(refusal.stderr, "out.csv", "--force")


def test_a_tokenizer_with_more_entries_than_the_model_is_refused(tmp_path, texts):
    save(tmp_path / "model", package.RoFormerForSequenceClassification, **LABELS)
    with open(tmp_path / "model" / "vocab.txt", "a", encoding="utf-8") as file:
        file.write("某个新词\n")
    (tmp_path / "model" / "tokenizer.json").unlink()
    with refused(ServingError, tmp_path / "model", "12,001", "12,000"):
        predict(tmp_path / "model", texts, tmp_path / "out.jsonl", device="cpu")


def test_labels_that_are_no_classes_at_all_are_refused(model, texts, tmp_path):
    with refused(ServingError, "--label", "'0'", "好评"):
        predict(model("one"), texts, tmp_path / "out.jsonl", label="n", device="cpu")
    assert predict(model("one"), texts, tmp_path / "out.jsonl", device="cpu").kept == 10
