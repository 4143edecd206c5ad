"""The page without its layout: tabs, results, and refusals. These tests need no Gradio."""

import json
import re
import shutil
import socket
import sys

import numpy as np
import pytest
import torch
from helpers import page_models, seq2seq_models
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

import modeling_roformer as package
from modeling_roformer.conversion import convert
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.page import results
from modeling_roformer.serving.page.examples import CHINESE, ENGLISH
from modeling_roformer.serving.page.fill_mask import MAX_MASKS, fill, fill_document
from modeling_roformer.serving.page.model_info import TABS, model_info_of
from modeling_roformer.serving.page.question_answering import answer_question
from modeling_roformer.serving.page.served_model import MAX_LINES, ServedModel
from modeling_roformer.serving.page.similarity import compare, rank, triplet, vectors
from modeling_roformer.serving.page.tasks import classify, entities, segments, write

FIXTURES = REPOSITORY / "tests" / "fixtures"
WITH_VECTORS = ["segments", "triplet", "rank", "compare"]
MASKED = ["fill", "document", *WITH_VECTORS]
TEXT = "租客要求房东退还押金。"
LABELS = {0: "O", 1: "B-LOC", 2: "I-LOC"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function that saves a model once, by a class and its settings, or by a legacy fixture."""
    base, made = tmp_path_factory.mktemp("models"), {}

    def folder(kind, **settings):
        key = (kind, *settings)
        if key not in made:
            path = base / f"{kind}-{len(made)}"
            if hasattr(package, kind):
                page_models.save(path, getattr(package, kind), **settings)
            else:
                convert(FIXTURES / "legacy" / kind, path)
            made[key] = path
        return made[key]

    return folder


@pytest.fixture(scope="module")
def masked(folders):
    return ServedModel(folders("RoFormerForMaskedLM"))


@pytest.mark.parametrize(
    ("kind", "settings", "tabs"),
    [
        ("RoFormerForMaskedLM", {}, MASKED),
        ("RoFormerModel", {}, WITH_VECTORS),
        ("RoFormerForTripletMatching", {"triplet_scorer": "bi"}, WITH_VECTORS),
        ("RoFormerForTripletMatching", {}, ["segments", "triplet"]),
        ("RoFormerForSequenceClassification", {"num_labels": 3}, ["segments", "classify"]),
        ("RoFormerForTokenClassification", {"id2label": LABELS}, ["segments", "entities"]),
        ("RoFormerForQuestionAnswering", {}, ["segments", "answer"]),
        ("sim", {}, [*WITH_VECTORS, "write"]),
        ("gpt", {}, ["segments", "write"]),
        ("wobert", {}, MASKED),
        ("wonezha", {}, MASKED),
        ("v2", {}, MASKED),
    ],
)
def test_every_tab_of_a_model_answers_its_examples(folders, kind, settings, tabs):
    served = ServedModel(folders(kind, **settings))
    assert list(served.info.tabs) == tabs
    asked = {
        "fill": lambda *texts: results.filled(fill(*texts)),
        "document": lambda *texts: results.filled_document(*fill_document(*texts)),
        "segments": lambda *texts: results.segmented(*segments(*texts)),
        "triplet": lambda *texts: results.triplet(triplet(*texts)),
        "rank": lambda *texts: results.ranked(*rank(*texts)),
        "compare": lambda *texts: results.compared(*compare(*texts)),
        "classify": lambda *texts: results.classified(*classify(*texts)),
        "entities": lambda *texts: results.labelled(*entities(*texts)),
        "answer": lambda *texts: results.answered(*answer_question(*texts)),
        "write": lambda *texts: results.written(*write(*texts)),
    }
    for tab in tabs:
        if kind == "wobert" and tab == "document":
            continue  # its table of 16 positions is shorter than the document's sentences
        for texts in (CHINESE if served.is_chinese else ENGLISH)[tab]:
            *shown, said = asked[tab](served, *texts)
            assert shown and isinstance(said, str) and bool(said) == (tab != "answer"), tab


def test_a_translator_writes(tmp_path):
    seq2seq_models.make_model().save_pretrained(tmp_path)
    seq2seq_models.make_tokenizer().save_pretrained(tmp_path)
    served = ServedModel(tmp_path)
    assert served.info.tabs == ("segments", "write")
    texts, encoded = write(served, "a b c")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    expected = served.model.generate(**tokenizer("a b c", return_tensors="pt"), max_new_tokens=64, num_beams=4)
    assert texts == [tokenizer.decode(expected[0], skip_special_tokens=True)] and encoded.tokens == 3


def test_examples_of_both_languages_are_complete():
    for examples in (CHINESE, ENGLISH):
        assert list(examples) == list(TABS)
        for tab in TABS:
            assert len({len(texts) for texts in examples[tab]}) == 1
    assert len(CHINESE["triplet"][0]) == len(ENGLISH["triplet"][0]) == 3


def test_masks_are_filled_as_by_transformers(folders, masked):
    text = "酒店的位置很[MASK]，服务也很[MASK]。"
    theirs = pipeline("fill-mask", model=str(folders("RoFormerForMaskedLM")), top_k=5)(text)
    for ours, expected in zip(fill(masked, text).words, theirs, strict=True):
        assert [word for word, _ in ours] == [one["token_str"] for one in expected]
        assert [score for _, score in ours] == pytest.approx([one["score"] for one in expected], rel=1e-4)


def test_a_document_and_its_sentence_alone(masked):
    document = "房屋租赁合同到期。押金没有[MASK]。租金已付！利息为[MASK]元？"
    whole, alone = fill_document(masked, document)
    assert alone == fill(masked, "押金没有[MASK]。").words + fill(masked, "利息为[MASK]元？").words
    assert whole.words == fill(masked, document).words != alone
    _, english = fill_document(masked, "It cost 3.5 [MASK] in all. It is here.")
    assert english == fill(masked, "It cost 3.5 [MASK] in all.").words


def test_a_text_that_fits_is_read_as_the_tokenizer_does(masked):
    encoded = masked.encode(TEXT)
    assert encoded.ids == masked.tokenizer(TEXT)["input_ids"] and encoded.part == TEXT
    assert (encoded.tokens, encoded.before, encoded.after) == (len(encoded.ids) - 2, 0, 0)


@pytest.mark.parametrize("place", [0, 3, 40, 77, 99])
def test_a_long_text_is_truncated_around_its_mask(masked, monkeypatch, place):
    monkeypatch.setattr(masked, "longest", 22)
    parts = ["租金"] * 100
    parts[place] = "[MASK]"
    text, mask = "，".join(parts), masked.tokenizer.mask_token_id
    ids = masked.tokenizer(text)["input_ids"][1:-1]
    encoded = masked.encode(text, around=mask)
    assert len(encoded.ids) == 22 and mask in encoded.ids
    assert encoded.ids[1:-1] == ids[encoded.before : len(ids) - encoded.after]
    assert encoded.part in text and encoded.part.count("[MASK]") == 1
    assert encoded.before == 0 or abs(encoded.before + 10 - ids.index(mask)) <= 10
    first = masked.encode(text)
    assert (first.before, first.ids[1:-1]) == (0, ids[:20])


def numbers_of_the_last_note(shown: tuple, language: int) -> list[int]:
    """Return the numbers in the last note, in Chinese (0) or English (1)."""
    note = shown[-1].split("\n\n")[-1].split(" · ")[language]
    return list(map(int, re.findall(r"\d+", note)))


def test_truncated_tokens_are_counted_in_both_languages(masked, monkeypatch):
    whole = results.filled(fill(masked, "押金[MASK]。"))
    assert numbers_of_the_last_note(whole, 0) == numbers_of_the_last_note(whole, 1) == [3]
    monkeypatch.setattr(masked, "longest", 22)
    filled = results.filled(fill(masked, "租金，" * 100 + "[MASK]" + "，押金" * 100))
    assert numbers_of_the_last_note(filled, 0) == numbers_of_the_last_note(filled, 1) == [401, 190, 191]
    ranked = results.ranked(*rank(masked, "押金", "租金\n" + "押金，" * 20))
    assert "case 2: " in ranked[-1] and numbers_of_the_last_note(ranked, 1) == [40, 0, 20]


def test_offsets_are_those_of_the_text(masked):
    text = "今天 ABC天气很好。😀"
    found, encoded = segments(masked, text)
    assert [encoded.offsets[0], encoded.offsets[-1]] == [None, None]
    assert "".join(text[slice(*offsets)] for offsets in encoded.offsets[1:-1]) == text.replace(" ", "")
    assert [token for token, is_unknown in found if is_unknown] == ["[UNK]"]
    shown, _ = results.segmented(found, encoded)
    places = ["", *(f" · {start}–{end}" for start, end in encoded.offsets[1:-1]), ""]
    labels = [f"{number}{place}" for number, place in zip(encoded.ids, places, strict=True)]
    assert shown == list(zip(masked.tokenizer.convert_ids_to_tokens(encoded.ids), labels, strict=True))


def test_vectors_are_those_that_rank(folders):
    served = ServedModel(folders("RoFormerForTripletMatching", triplet_scorer="bi"))
    texts = [TEXT, "两车相撞，被告负主要责任。"]
    ours, _ = vectors(served, texts, ["one", "two"])
    assert torch.allclose(ours, served.model.encode(texts, served.tokenizer), atol=1e-5)
    cases, cosines, _ = rank(served, TEXT, "\n".join([texts[1], "", TEXT]))
    assert cases == [TEXT, texts[1]]
    assert cosines == pytest.approx([1.0, float(ours[0] @ ours[1])], abs=1e-5)


@pytest.mark.parametrize("scorer", ["bi", "cross"])
def test_triplets_are_matched_as_by_the_pipeline(folders, scorer):
    folder = folders("RoFormerForTripletMatching", **({} if scorer == "cross" else {"triplet_scorer": "bi"}))
    texts = {"A": TEXT, "B": "两车相撞，被告负主要责任。", "C": "房屋租赁合同到期，押金没有退还。"}
    expected = pipeline("triplet-matching", model=str(folder))(texts)
    found = triplet(ServedModel(folder), *texts.values())
    assert found.closer == expected["label"] and found.are_probabilities == (scorer == "cross")
    if found.are_probabilities:
        assert found.scores[found.closer] == pytest.approx(expected["score"]) and sum(found.scores.values()) == 1
    same = triplet(ServedModel(folder), TEXT, texts["B"], texts["B"])
    verdicts = [results.triplet(one)[0] for one in (found, same)]
    assert same.closer is None and f"{found.closer} is closer to A" in verdicts[0]
    assert_states(verdicts[1], "A", "B", "C")


@pytest.mark.parametrize("scorer", ["bi", "cross"])
def test_scores_that_are_not_finite_are_refused(folders, scorer):
    settings = {} if scorer == "cross" else {"triplet_scorer": "bi"}
    served = ServedModel(folders("RoFormerForTripletMatching", **settings))
    with torch.no_grad():
        served.model.roformer.embeddings.LayerNorm.weight.fill_(torch.nan)
    with refused(ServingError, "not finite"):
        triplet(served, TEXT, "押金。", "房屋。")


def test_labels_are_the_models(folders):
    served = ServedModel(folders("RoFormerForSequenceClassification", num_labels=3))
    encoded = served.tokenizer(TEXT, "押金。", return_tensors="pt")
    with torch.no_grad():
        expected = served.model(**encoded).logits[0].softmax(-1)
    scores, encoded_texts = classify(served, TEXT, "押金。")
    assert dict(scores) == pytest.approx({f"LABEL_{i}": float(value) for i, value in enumerate(expected)}, abs=1e-5)
    assert scores == sorted(scores, key=lambda pair: -pair[1]) and len(encoded_texts) == 2


def test_entities_are_grouped_as_by_the_pipeline_of_the_folder(folders):
    folder = folders("RoFormerForTokenClassification", id2label=LABELS)
    find = pipeline("token-classification", model=str(folder), aggregation_strategy="simple")
    text = "张伟在北京租房，房东拒绝退还押金。" * 3
    expected, (spans, _) = find(text), entities(ServedModel(folder), text)
    assert len(spans) < len(text) and any(span["end"] - span["start"] > 1 for span in spans)
    places = [(span["entity_group"], span["start"], span["end"]) for span in expected]
    assert [(span["entity"], span["start"], span["end"]) for span in spans] == places
    np.testing.assert_allclose([span["score"] for span in spans], [span["score"] for span in expected], atol=1e-5)


def test_a_long_text_is_shortened_to_the_parts_beside_its_labels():
    long = "".join(chr(0x4E00 + i) for i in range(1000))
    parts = [(long, None), ("好", "1"), (long, None), (long, "2"), ("短。", None)]
    first, _, middle, labelled, last = results.shortened(parts)
    n = results.CONTEXT
    assert first == (f" … {long[-n:]}", None) and middle == (f"{long[:n]} … {long[-n:]}", None)
    assert (labelled, last) == (parts[3], parts[4])


def test_scores_have_three_decimals_and_a_bar_from_0_to_1():
    html = results.table([["<b>", 0.25], ["好", -0.5]], [results.TEXT, results.SCORE]).to_html()
    assert re.findall(r"-?\d\.\d{3}", html) == ["0.250", "-0.500"]
    assert re.findall(r"([\d.]+)%, transparent [\d.]+%\)", html) == ["25.0"]


@pytest.mark.parametrize(
    ("ask", "texts", "facts"),
    [
        (fill, [""], ["the text", "empty"]),
        (fill, [None], ["the text", "empty"]),
        (fill, ["押金。"], ["no [MASK]"]),
        (fill, ["[MASK]" * (MAX_MASKS + 1)], ["17 [MASK]", 16]),
        (fill, ["押" * 32_769], ["the text", "32,768 characters"]),
        (fill, ["[MASK]" + "押 " * 5000 + "[MASK]"], ["mask", "4,094"]),
        (triplet, [TEXT, " ", TEXT], ["text B", "empty"]),
        (rank, ["", TEXT], ["the query", "empty"]),
        (rank, [TEXT, "\n \n"], ["the cases", "empty"]),
        (rank, [TEXT, "\n".join([TEXT] * (MAX_LINES + 1))], ["the cases", f"{MAX_LINES + 1} lines", MAX_LINES]),
        (compare, [TEXT], ["the sentences", "1 line", 2]),
    ],
)
def test_texts_that_the_page_refuses(masked, ask, texts, facts):
    with refused(ServingError, *facts):
        ask(masked, *texts)


def test_a_long_text_is_never_tokenized(masked, monkeypatch):
    monkeypatch.setattr(masked, "tokenizer", None)
    for ask in (segments, compare):
        with refused(ServingError, "32,768 characters"):
            ask(masked, "押" * 10_000_000)


@pytest.mark.parametrize("max_length", [None, 100])
def test_lengths_are_the_tables_and_the_tokenizers(folders, max_length, tmp_path):
    options = {} if max_length is None else {"max_length": max_length}
    assert ServedModel(folders("RoFormerForMaskedLM"), **options).longest == (max_length or 4096)
    assert ServedModel(folders("wobert"), **options).longest == 16
    folder = page_models.save(tmp_path / "model", package.RoFormerForMaskedLM)
    tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=64)
    tokenizer.save_pretrained(folder)
    served = ServedModel(folder, **options)
    assert served.longest == 64 and len(fill(served, "[MASK]" + "押" * 100).encoded.ids) == 64


def test_half_precision_answers_in_float32(folders, tmp_path):
    model = AutoModelForMaskedLM.from_pretrained(folders("RoFormerForMaskedLM"), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folders("RoFormerForMaskedLM")).save_pretrained(tmp_path)
    served = ServedModel(tmp_path)
    assert served.model.dtype == torch.bfloat16 and vectors(served, [TEXT], ["one"])[0].dtype == torch.float32
    assert sum(score for _, score in fill(served, "[MASK]", 20_000).words[0]) == pytest.approx(1, abs=1e-6)


# The command `roformer page`, as far as it refuses to serve.


def test_models_that_the_page_does_not_show(folders, tmp_path):
    with refused(ServingError, "RoFormerForMultipleChoice", "tab"):
        model_info_of(folders("RoFormerForMultipleChoice"))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    shutil.copy(page_models.VOCABULARY, tmp_path)
    with refused(ServingError, tmp_path, "model_type", "'gpt2'"):
        model_info_of(tmp_path)


def test_a_head_without_weights_is_not_shown(folders, tmp_path):
    """transformers would initialise it at random, and the page would show its labels."""
    folder = shutil.copytree(folders("RoFormerForMaskedLM"), tmp_path / "labels")
    config = json.loads((folder / "config.json").read_text())
    for name in ("RoFormerForTokenClassification", "RoFormerForSequenceClassification", "RoFormerForQuestionAnswering"):
        (folder / "config.json").write_text(json.dumps(config | {"architectures": [name]}))
        with refused(ServingError, folder, name, "missing"):
            ServedModel(folder)
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 2 * config["intermediate_size"]}))
    with refused(ServingError, folder, 2 * config["intermediate_size"]):
        ServedModel(folder)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--port", "{used}"], ["{used}", "127.0.0.1", "in use"]),
        (["--port", "0", "--host", "203.0.113.7"], ["203.0.113.7"]),
        (["--port", "0", "--host", "no such host"], ["no such host"]),
    ],
)
def test_addresses_that_cannot_be_used(run, folders, options, facts):
    with socket.create_server(("127.0.0.1", 0)) as used:
        number = used.getsockname()[1]
        code, out, err = run("page", folders("RoFormerModel"), *(option.format(used=number) for option in options))
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert_states(err, "roformer: ", *(fact.format(used=number) for fact in facts))


def test_without_the_extra(run, folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    code, _, err = run("page", folders("RoFormerForMaskedLM"), "--port", 0)
    assert code == 1 and err.count("\n") == 1
    assert_states(err, "roformer: ", "gradio", "pip install '.[page]'")


def test_the_folder_model_is_called_like_its_run(folders, tmp_path):
    folder = shutil.copytree(folders("RoFormerModel"), tmp_path / "reviews" / "model")
    assert model_info_of(folder).name == "reviews" and model_info_of(folders("RoFormerModel")).name != "reviews"
