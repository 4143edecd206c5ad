"""Named entities: every form of labelled text, labels of tokens, and scores of spans."""

import csv
import gzip
import json
import random
import unicodedata

import datasets
import pytest
import torch
from helpers.messages import assert_states, refused
from helpers.page_models import save
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, pipeline

from modeling_roformer import RoFormerForTokenClassification, RoFormerTokenizer
from modeling_roformer.serving.page.served_model import ServedModel
from modeling_roformer.serving.page.tasks import entities as entities_of_page
from modeling_roformer.training import (
    SpanPredictions,
    TrainingError,
    bio_tags,
    find_spans,
    label_tokens,
    load_entities,
    print_lost,
    tag_spans,
)

TEXTS = {
    "王明住在北京。": [(0, 2, "PER"), (4, 6, "LOC")],
    "今天下雨。": [],
    "李华去ABC公司": [(0, 2, "PER"), (3, 8, "ORG")],
}


def tags(text, spans, inside="I", last="I", single="B"):
    """Return the tag of each character."""
    found = ["O"] * len(text)
    for start, end, kind in spans:
        found[start:end] = [f"{inside}-{kind}"] * (end - start)
        found[start], found[end - 1] = f"B-{kind}", f"{last}-{kind}"
        if end - start == 1:
            found[start] = f"{single}-{kind}"
    return found


SCHEMES = {
    "BIO": {},
    "BIOES": {"last": "E", "single": "S"},
    "BMES": {"inside": "M", "last": "E", "single": "S"},
    "BMEWO": {"inside": "M", "last": "E", "single": "W"},
    "BILOU": {"last": "L", "single": "U"},
}


def conll(texts, separator=" ", **scheme):
    blocks = (
        "".join(
            f"{character}{separator}{tag}\n" for character, tag in zip(text, tags(text, spans, **scheme), strict=True)
        )
        for text, spans in texts
    )
    return "\n".join(blocks)


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def cluener(text, spans):
    label = {}
    for start, end, kind in spans:
        label.setdefault(kind, {}).setdefault(text[start:end], []).append([start, end - 1])
    return {"text": text, "label": label}


FILES = {
    **{f"{name}.conll": conll(TEXTS.items(), **scheme) for name, scheme in SCHEMES.items()},
    "tabs.txt": conll(TEXTS.items(), "\t"),
    "more columns.bio": conll(TEXTS.items(), " NN\tB-NP "),
    "windows.conll": "-DOCSTART- -X- O\n\n" + conll(TEXTS.items()).replace("\n", "\r\n") + "\r\n \r\n\r\n",
    "cluener.jsonl": lines(*(cluener(*row) for row in TEXTS.items())),
    "tokens.json": json.dumps([{"tokens": [*text], "ner_tags": tags(text, spans)} for text, spans in TEXTS.items()]),
    "tags.jsonl": lines(*({"tokens": [*text], "tags": tags(text, spans)} for text, spans in TEXTS.items())),
    "lists.jsonl": lines(*({"text": text, "label": spans} for text, spans in TEXTS.items())),
    "spans.jsonl": lines(
        *(
            {
                "text": text,
                "entities": [{"start": a, "end": b, "type": kind, "text": text[a:b]} for a, b, kind in spans],
            }
            for text, spans in TEXTS.items()
        )
    ),
}


def write(place, content):
    opened = gzip.open if place.suffix == ".gz" else open
    with opened(place, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return place


def read(place):
    rows = load_entities(place)
    return {row["text"]: [tuple(entity.values()) for entity in row["entities"]] for row in rows}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_form_is_the_same_text_with_spans(name, suffix, tmp_path):
    assert read(write(tmp_path / f"{name}{suffix}", FILES[name])) == TEXTS


def test_class_ids_of_parquet_are_named(tmp_path):
    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
    rows = {"tokens": [[*text] for text in TEXTS], "ner_tags": [tags(*row) for row in TEXTS.items()]}
    classes = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(datasets.ClassLabel(names=names))}
    )
    datasets.Dataset.from_dict(rows, classes).to_parquet(tmp_path / "train.parquet")
    assert read(tmp_path / "train.parquet") == TEXTS


def test_words_are_joined_as_their_scripts_write_them(tmp_path):
    file = write(
        tmp_path / "a.conll",
        "I O\nsaw O\nJohn B-PER\nSmith I-PER\n, O\n2 B-T\n0 I-T\nB I-T\n年 O\n  O\n\u3000 O\n北京 B-LOC\n",
    )
    text = "I saw John Smith,20B年 \u3000北京"
    assert read(file) == {text: [(6, 16, "PER"), (17, 20, "T"), (23, 25, "LOC")]}
    assert load_entities(file)["place"] == [f"{file}, line 1"]


def test_a_sentence_may_begin_in_one_batch_and_end_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("modeling_roformer.data.reader.CHUNK", 10)
    assert read(write(tmp_path / "a.conll", FILES["BIOES.conll"])) == TEXTS


@pytest.mark.parametrize(
    ("labels", "spans"),
    [
        ("B-A I-B I-B", [(0, 1, "A"), (1, 3, "B")]),  # as conlleval
        ("O I-A I-A B-A", [(1, 3, "A"), (3, 4, "A")]),
        ("I-A O I-A", [(0, 1, "A"), (2, 3, "A")]),
        ("B-A-1 I-A-1", [(0, 2, "A-1")]),
    ],
)
def test_where_entities_begin(labels, spans):
    assert tag_spans(labels.split()) == spans


texts_with_spans = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(["PER", "LOC"])), max_size=6), min_size=1
)


@given(texts_with_spans, st.sampled_from([*SCHEMES.values()]))
@max_examples(60)
def test_spans_survive_every_scheme(tmp_path_factory, drawn, scheme):
    texts = []
    for gaps in drawn:
        at, spans = 0, []
        for gap, length, kind in gaps:
            spans.append((at + gap, at + gap + length, kind))
            at += gap + length
        texts.append(("字" * (at + 1), spans))
    file = write(tmp_path_factory.mktemp("a") / "a.conll", conll(texts, **scheme))
    assert [[tuple(entity.values()) for entity in row] for row in load_entities(file)["entities"]] == [
        spans for _, spans in texts
    ]


GOOD = conll(TEXTS.items())
WRONG = {
    "tag.conll": (GOOD + "\n王 X-PER\n", "line 24", "'X-PER'"),
    "dash.conll": (GOOD + "\n王 B-\n", "line 24", "'B-'"),
    "alone.conll": (GOOD + "\n王\n", "line 24", "'王'"),
    "gbk.conll": (GOOD.encode("gbk"), "line 1", "GB18030"),
    "utf16.conll": (GOOD.encode("utf-16"), "UTF-16"),
    "blank.conll": ("\n\n",),
    "tagged.tsv": (conll(TEXTS.items(), "\t"), ".conll"),
    "beyond.jsonl": (lines({"text": "北京", "entities": [{"start": 0, "end": 3, "type": "LOC"}]}), "line 1", 3, 2),
    "empty.jsonl": (lines({"text": "北京", "entities": [{"start": 1, "end": 1, "type": "LOC"}]}), "line 1"),
    "overlap.jsonl": (
        lines({"text": "北京大学", "label": [[0, 2, "LOC"], [0, 4, "ORG"]]}),
        "line 1",
        "'北京'",
        "'北京大学'",
    ),
    "exclusive.jsonl": (
        lines({"text": "在北京。", "label": {"LOC": {"北京": [[1, 3]]}}}),
        "line 1",
        "'北京'",
        "'北京。'",
    ),
    "inclusive.jsonl": (
        lines({"text": "在北京", "entities": [{"start": 1, "end": 2, "label": "LOC", "text": "北京"}]}),
        "'北'",
    ),
    "o.jsonl": (lines({"text": "北京", "label": [[0, 2, "O"]]}), "line 1", "'O'"),
    "null.jsonl": (
        lines({"text": "北京", "entities": [{"start": 0, "end": 2, "label": None, "type": None}]}),
        "line 1",
    ),
    "surrogate.jsonl": (
        json.dumps({"text": "北京", "label": [[0, 2, "\ud800"]]}) + "\n",
        "line 1",
        "lone surrogate",
    ),
    "list.jsonl": (lines({"text": "北京", "label": [[0, 2, ["LOC"]]]}), "line 1", "label"),
    "classes.jsonl": (lines({"text": "好", "label": "好评"}), "line 1", "label"),
    "fields.jsonl": (lines({"text": "好", "sentiment": "好评"}), "line 1", "text, sentiment"),
    "long.jsonl": (lines({"tokens": ["北", "京"], "tags": ["O"]}), "line 1", 2, 1),
    "ids.jsonl": (lines({"tokens": ["北"], "tags": [1]}), "line 1", "'1'"),
    "none.jsonl": (lines({"text": " ", "entities": []}), "line 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_data_is_refused_with_its_place(name, tmp_path):
    content, *facts = WRONG[name]
    with refused(TrainingError, name, *facts):
        load_entities(write(tmp_path / name, content))


def test_types_may_be_numbers(tmp_path):
    file = write(tmp_path / "a.jsonl", lines({"text": "北京", "entities": [{"start": 0, "end": 2, "label": 0}]}))
    assert read(file) == {"北京": [(0, 2, "0")]}


def parts_of(tmp_path, **parts):
    return {
        part: load_entities(
            write(tmp_path / f"{part}.jsonl", lines(*({"text": t, "label": s} for t, s in rows.items())))
        )
        for part, rows in parts.items()
    }


def test_tags_are_those_of_the_training_texts(tmp_path):
    first = {"王明住在北京。": TEXTS["王明住在北京。"]}
    parts = parts_of(tmp_path, train=first, test=TEXTS)
    assert bio_tags({"train": parts["train"]}) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    order = ["B-PER", "I-PER", "O", "B-LOC", "I-LOC"]  # of the checkpoint
    assert bio_tags({"train": parts["train"]}, order) == order
    with refused(TrainingError, "test.jsonl, line 3", "'ORG'"):
        bio_tags(parts)
    with refused(TrainingError, "train.jsonl, line 1"):
        bio_tags(parts_of(tmp_path, train={"今天下雨。": []}))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Save a model of random weights, which finds entities everywhere, with a tokenizer of characters."""
    names = ["O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"]
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    folder = save(tmp_path_factory.mktemp("model"), RoFormerForTokenClassification, initializer_range=0.5, **labels)
    AutoTokenizer.from_pretrained(folder, word_segmentation=None, model_max_length=16).save_pretrained(folder)
    return folder


def test_entities_that_no_label_can_say_are_counted(model, tmp_path, capsys):
    """In a word, which is one token, or after the last token."""
    tokenizer, long = AutoTokenizer.from_pretrained(model), "他" * 20
    texts = {
        "去app公司": [(1, 6, "ORG")],
        "去app公司。": [(1, 3, "ORG"), (4, 6, "LOC")],
        f"王明{long}": [(0, 2, "PER"), (12, 18, "LOC"), (20, 22, "PER")],
    }
    assert tokenizer.tokenize("app") == ["app"]
    names = ["O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"]
    rows = label_tokens(parts_of(tmp_path, train=texts)["train"], tokenizer, names, 16)
    assert rows["labels"] == [
        [-100, 0, 3, 4, 4, -100],
        [-100, 0, -100, 1, 2, 0, -100],
        [-100, 5, 6, *[0] * 10, *[-100] * 3],
    ]
    assert (rows["inside"], rows["beyond"]) == ([0, 1, 0], [0, 0, 2])
    print_lost("test", rows, 16)
    assert [line.split()[:5] for line in capsys.readouterr().out.splitlines()] == [
        ["test:", "1", "of", "6", "entities"],
        ["test:", "2", "of", "6", "entities"],
    ]
    # What is lost counts as not found, even if each token has its label.
    found = find_spans(rows, [[label if label > 0 else 0 for label in labels] for labels in rows["labels"]], names)
    assert [len(spans) for spans in found.predicted] == [1, 1, 1]
    assert found.report["micro avg"] == {"precision": 1, "recall": 0.5, "f1-score": pytest.approx(2 / 3), "support": 6}


def test_a_text_without_a_label_has_a_finite_loss(model, tmp_path):
    tokenizer, tagger = AutoTokenizer.from_pretrained(model), RoFormerForTokenClassification.from_pretrained(model)
    parts = parts_of(tmp_path, train={"app": [(0, 2, "ORG")], "\u200b": [(0, 1, "ORG")]})
    rows = label_tokens(parts["train"], tokenizer, [*tagger.config.label2id], 16)
    for row in rows:
        inputs = {name: torch.tensor([row[name]]) for name in ("input_ids", "labels")}
        assert torch.isfinite(tagger(**inputs).loss)
    assert rows["inside"] == [1, 1]


def test_a_character_of_two_tokens_is_one_entity(tmp_path):
    """A Korean syllable is decomposed."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    syllable = unicodedata.normalize("NFD", "가")
    tokenizer = RoFormerTokenizer({entry: i for i, entry in enumerate([*special, syllable[0], f"##{syllable[1]}"])})
    rows = label_tokens(
        parts_of(tmp_path, train={"가": [(0, 1, "PER")]})["train"], tokenizer, ["O", "B-PER", "I-PER"], 9
    )
    assert rows["labels"] == [[-100, 1, 2, -100]] and rows["inside"] == [0]
    assert find_spans(rows, [[0, 1, 2, 0]], ["O", "B-PER", "I-PER"]).predicted == [[(0, 1, "PER")]]


ODD = [
    "今天 2023年，Ａ朝阳区cafe\u0301和İstanbul",
    "a\u00a0b [MASK] [UNK]\u200b王明",
    "가나다\n각각 ﬁne ß",
    "王明" * 30,
]


def test_counted_entities_are_those_of_the_pipeline_and_of_the_page(model, tmp_path):
    tokenizer, served = AutoTokenizer.from_pretrained(model), ServedModel(model)
    drawn = random.Random(0)
    characters = "".join(ODD) + "".join(TEXTS)
    texts = [*ODD, *TEXTS, *("".join(drawn.choices(characters, k=12)).strip() + "。" for _ in range(20))]
    names = [name for _, name in sorted(served.model.config.id2label.items())]
    rows = label_tokens(parts_of(tmp_path, test={text: [] for text in texts})["test"], tokenizer, names, 16)
    find = pipeline("token-classification", model=str(model), aggregation_strategy="simple", device="cpu")
    with torch.no_grad():
        numbers = [served.model(torch.tensor([row])).logits[0].argmax(-1).tolist() for row in rows["input_ids"]]
    counted = find_spans(rows, numbers, names).predicted
    assert sum(map(len, counted)) > 100
    for text, spans in zip(rows["text"], counted, strict=True):
        assert spans == [(found["start"], found["end"], found["entity_group"]) for found in find(text)], text
        assert spans == [(of["start"], of["end"], of["entity"]) for of in entities_of_page(served, text)[0]], text


spans = st.sets(st.tuples(st.integers(0, 3), st.integers(4, 6), st.sampled_from("AB")), max_size=4)


@given(st.lists(st.tuples(spans, spans), min_size=1, max_size=4))
@max_examples(60)
def test_scores_are_those_of_sets(pairs):
    labels, predicted = map(list, zip(*pairs, strict=True))
    report = SpanPredictions(labels, predicted).report
    f1s = []
    for kind in sorted({span[2] for side in (*labels, *predicted) for span in side}):
        sides = [{(n, *s) for n, row in enumerate(side) for s in row if s[2] == kind} for side in (labels, predicted)]
        both, known, found = len(sides[0] & sides[1]), len(sides[0]), len(sides[1])
        precision, recall = both / found if found else 0, both / known if known else 0
        f1s.append(2 * both / (known + found))
        figures = {"precision": precision, "recall": recall, "f1-score": f1s[-1], "support": known}
        assert report[kind] == pytest.approx(figures)
    every = [sum(map(len, side)) for side in (labels, predicted)]
    both = sum(len(known & found) for known, found in pairs)
    assert report["micro avg"]["f1-score"] == pytest.approx(2 * both / sum(every) if sum(every) else 0)
    assert report["macro avg"]["f1-score"] == pytest.approx(sum(f1s) / len(f1s) if f1s else 0)
    assert len(report) == len(f1s) + 2


def test_the_table_and_the_file_of_predictions(tmp_path, capsys):
    found = SpanPredictions([*TEXTS.values()], [[(0, 2, "PER")], [], [(2, 8, "ORG")]])
    found.print_table()
    rows = [line.strip("│").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    table = {kind.strip(): [float(cell) for cell in cells] for kind, *cells in rows}
    assert table == {
        "LOC": [0, 0, 0, 1],
        "ORG": [0, 0, 0, 1],
        "PER": [1, 0.5, 0.667, 2],
        "micro": [0.5, 0.25, 0.333, 4],
        "macro": [0.333, 0.167, 0.222, 4],
    }
    found.warn_of_none("the model", "train")
    assert not capsys.readouterr().err
    SpanPredictions([*TEXTS.values()], [[], [(0, 2, "PER")], []]).warn_of_none("the model", "train")
    assert_states(capsys.readouterr().err, "warning", "the model", "4 entities", "train")
    found.write(tmp_path / "new" / "found.jsonl", [*TEXTS])
    assert read(tmp_path / "new" / "found.jsonl") == TEXTS
    found.write(tmp_path / "found.csv", [*TEXTS])
    with (tmp_path / "found.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [len(json.loads(row["predicted"])) for row in csv.DictReader(file)] == [1, 0, 1]
    last = json.loads((tmp_path / "new" / "found.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert last["predicted"] == [{"label": "ORG", "start": 2, "end": 8, "text": "去ABC公司"}]


def test_every_name_of_the_example_is_in_one_sentence():
    """So no name of a validation or test text is in a training text, however they are split."""
    rows = [*load_entities(REPOSITORY / "examples" / "names.jsonl")]
    names = [row["text"][entity["start"] : entity["end"]] for row in rows for entity in row["entities"]]
    assert len(names) > 150 and all(sum(name in row["text"] for row in rows) == 1 for name in names)
