"""Predictions of a classifier: the file, the table per class, the picture, and the warning of a single class."""

import csv
import json
import math
import os

import matplotlib
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from helpers.messages import assert_states, refused
from matplotlib import font_manager

from modeling_roformer.training import ClassPredictions, TrainingError, check_predictions_file
from modeling_roformer.training.finetuning.confusion import draw_confusion, font_with

NAMES = ["差评", "中评", "好评"]
LABELS = np.array([0, 0, 0, 1, 2, 2])
LOGITS = np.array([[2.0, 0, 0], [3, 1, 0], [0, 0, 1], [0, 0, 4], [0, 1, 2], [1, 0, 5]])
TEXTS = ['差\r\n"退"了,', "太差", "不好\n说", "一般", "好", "=很好"]


@pytest.fixture
def found():
    return ClassPredictions(NAMES, LABELS, LOGITS)


def test_a_file_has_every_text_with_its_class_and_its_probability(found, tmp_path):
    pairs = {"text": TEXTS, "text_pair": TEXTS[::-1]}
    found.write(tmp_path / "new" / "found.csv", pairs)
    found.write(tmp_path / "found.jsonl", pairs)
    # Excel takes a CSV for UTF-8 only if it begins with a byte order mark.
    assert (tmp_path / "new" / "found.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    with open(tmp_path / "new" / "found.csv", encoding="utf-8-sig", newline="") as file:
        table = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert len(table) == len(lines) == 6
    for number, (row, line) in enumerate(zip(table, lines, strict=True)):
        assert (
            line["text"] == row["text"] == TEXTS[number] and line["text_pair"] == row["text_pair"] == TEXTS[5 - number]
        )
        best = max(range(3), key=lambda of: LOGITS[number][of])
        assert line["label"] == row["label"] == NAMES[LABELS[number]]
        assert line["predicted"] == row["predicted"] == NAMES[best]
        probability = math.exp(LOGITS[number][best]) / sum(math.exp(value) for value in LOGITS[number])
        assert line["score"] == float(row["score"]) == pytest.approx(probability, abs=1e-6)


def test_one_class_for_all_is_told(found, capsys):
    found.warn_of_one_class("the model", "try more epochs")
    assert not capsys.readouterr().err
    same = np.tile([0.0, 0, 1], (6, 1))
    ClassPredictions(NAMES, LABELS, same).warn_of_one_class("the model", "try more epochs")
    err = capsys.readouterr().err
    assert_states(err, "the model", "好评", 6, "try more epochs")
    assert err.count("\n") == 1
    # Where all texts are of one class, this is no fault.
    ClassPredictions(NAMES, np.full(6, 2), same).warn_of_one_class("the model", "try more epochs")
    assert not capsys.readouterr().err


@pytest.fixture
def chinese_font(tmp_path, monkeypatch):
    """Install a font that has the characters of the names, as squares, beside matplotlib's own, and return its family.

    The fonts of the machine, which may have them too, are hidden.
    """
    characters = sorted({*"".join(NAMES)})
    glyphs = [".notdef", *(f"uni{ord(character):X}" for character in characters)]
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0)), pen.lineTo((0, 900)), pen.lineTo((900, 900)), pen.lineTo((900, 0)), pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(glyphs)
    builder.setupCharacterMap({ord(character): name for character, name in zip(characters, glyphs[1:], strict=True)})
    builder.setupGlyf(dict.fromkeys(glyphs, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 0)))
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.save(tmp_path / "squares.ttf")
    own = [font for font in font_manager.fontManager.ttflist if matplotlib.get_data_path() in font.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    font_manager.fontManager.addfont(tmp_path / "squares.ttf")
    return "Squares"


def test_a_font_that_has_every_character_is_found(chinese_font):
    assert font_with("差评") == chinese_font
    assert font_with("ab 1") == font_manager.FontProperties().get_name()  # matplotlib's own
    assert font_with("差评\U00103fff") is None  # for private use: in no font


@pytest.mark.filterwarnings("error:Glyph")
def test_names_are_drawn_in_a_font_that_has_them_or_as_numbers(chinese_font, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.axes.Axes.set_yticks", lambda self, at, names: drawn.append(list(names)))
    counts = np.array([[2, 0, 1], [0, 0, 1], [0, 0, 2]])
    for names, expected in (
        (NAMES, NAMES),
        (["差评\U00103fff", "中评", "好评"], ["1", "2", "3"]),
        (["$a", "b$", "c"],) * 2,
    ):
        picture = draw_confusion(tmp_path / "picture.png", names, counts)
        assert picture.read_bytes().startswith(b"\x89PNG") and drawn.pop() == expected


def test_the_picture_counts_each_class(found, tmp_path, monkeypatch):
    drawn = {}
    text = "matplotlib.axes.Axes.text"
    monkeypatch.setattr(text, lambda self, x, y, count, **_: drawn.update({(y, x): int(count)}))
    found.draw_confusion(tmp_path / "picture.png")
    predicted = LOGITS.argmax(-1)
    for row in range(3):
        for column in range(3):
            assert drawn[row, column] == np.count_nonzero((row == LABELS) & (column == predicted))


def test_a_file_that_would_be_replaced_is_named_before_the_training(tmp_path):
    data = tmp_path / "reviews.csv"
    data.write_text("text,label\n", encoding="utf-8")
    check_predictions_file(tmp_path / "new" / "folder" / "found.csv")
    assert [*tmp_path.iterdir()] == [data]
    with refused(TrainingError, data):
        check_predictions_file(data)
    check_predictions_file(data, replace=True)
    with refused(TrainingError, data):
        check_predictions_file(data, [None, "name/on-the-hub", data], replace=True)
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors", "found.csv"):
        (tmp_path / "model" / name).touch()
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path, tmp_path / "pipe", tmp_path / "model" / "found.csv", os.devnull):
        with refused(TrainingError, file):
            check_predictions_file(file, replace=True)
