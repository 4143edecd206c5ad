"""The card of a trained model: the facts are where the Hub looks for them and where people do, and no path is in it."""

import pytest
import torch
import yaml
from helpers.messages import refused
from helpers.small_models import small_config
from huggingface_hub import EvalResult, ModelCard

from modeling_roformer import RoFormerForMaskedLM, RoFormerForSequenceClassification, RoFormerTokenizer
from modeling_roformer.model_cards import card_of_folder, write_card
from modeling_roformer.model_cards.facts import read_facts
from modeling_roformer.model_cards.trained_card import published_name, write_trained_card
from modeling_roformer.training import Run


@pytest.fixture
def folder(tmp_path):
    RoFormerForSequenceClassification(small_config()).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def score(metric, value, split=None):
    return EvalResult("text-classification", "reviews", "reviews", metric, value, dataset_split=split)


def test_all_facts(folder, tmp_path):
    (tmp_path / "reviews.csv").touch()
    (tmp_path / "mini").mkdir()
    write_trained_card(
        folder,
        "classifier",
        "Fine-tuned on texts.",
        base=tmp_path / "mini",
        data=[tmp_path / "reviews.csv", "somebody/reviews:zh"],
        hyperparameters={
            "learning_rate": 1e-3,
            "epochs": 4,
            "bf16": False,
            "seed": None,
            "data": tmp_path / "reviews.csv",
        },
        scores=[score("macro_f1", 1 / 3), score("accuracy", 0.75, "test")],
        language="zh",
    )
    text = (folder / "README.md").read_text(encoding="utf-8")
    metadata = yaml.safe_load(text.split("---\n")[1])
    facts = "library_name", "pipeline_tag", "datasets", "language", "metrics"
    assert [metadata[name] for name in facts] == [
        "transformers",
        "text-classification",
        ["somebody/reviews"],
        "zh",
        ["accuracy", "macro_f1"],
    ]
    assert "base_model" not in metadata and metadata["model-index"][0]["name"] == "classifier"
    results = ModelCard(text).data.eval_results
    assert {(r.task_type, r.dataset_name, r.dataset_split, r.metric_type, r.metric_value) for r in results} == {
        ("text-classification", "reviews", "test", "accuracy", 0.75),
        ("text-classification", "reviews", None, "macro_f1", 1 / 3),
    }
    assert "# classifier\n" in text and "| base model | mini |" in text
    settings = "- learning rate: 0.001\n- epochs: 4\n- bf16: no\n- data: reviews.csv\n"
    assert f"## How it was trained\n\nFine-tuned on texts.\n\n{settings}\n" in text
    assert "## Results\n\n- macro_f1 on reviews: 0.3333\n- accuracy on reviews (test): 0.75\n\n## How to use it" in text
    assert "not published" not in text.partition("## Limitations")[0].lower() and str(tmp_path) not in text
    assert str(write_card(folder)).endswith("up to date")


def test_base_of_a_base(folder, tmp_path):
    """The nearest base on the Hub is in the metadata; the table has the folder's own name."""
    base = tmp_path / "laws" / "model"
    RoFormerForMaskedLM(small_config()).save_pretrained(base)
    write_trained_card(base, "laws", "Pre-trained.", base="somebody/roformer")
    write_trained_card(folder, "classifier", "Fine-tuned.", base=base)
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "somebody/roformer" and "| base model | laws |" in card.text
    assert card.data.eval_results is None and "Not published." in card.text
    write_trained_card(folder, "classifier", "Trained from random weights.")
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model is None and "base model" not in card.text


@pytest.mark.parametrize(
    ("base", "card", "expected"),
    [
        ("somebody/roformer", None, "somebody/roformer"),
        ("bert-base-chinese", None, "bert-base-chinese"),  # an old name on the Hub, without an owner
        ("mini", "", None),
        ("模型", "", None),
        ("runs/mini", "", None),
        ("mini", "somebody/roformer", "somebody/roformer"),
        ("mini", "[somebody/roformer, b]", "somebody/roformer"),
        ("mini", "/home/me/start", None),
        ("mini", "../start", None),
        ("gone/of/mine", None, None),
        ("/gone", None, None),
    ],
)
def test_only_a_repository_is_the_base_model_on_the_hub(folder, tmp_path, monkeypatch, base, card, expected):
    monkeypatch.chdir(tmp_path)
    if card is not None:
        (tmp_path / base).mkdir(parents=True)
        (tmp_path / base / "README.md").write_text(f"---\nbase_model: {card}\n---\n" if card else "# Mine\n")
    write_trained_card(folder, "classifier", "Fine-tuned.", base=base)
    written = ModelCard.load(folder / "README.md")
    assert written.data.base_model == expected
    assert f"| base model | {published_name(base)} |" in written.text


@pytest.mark.parametrize(
    "card",
    [
        b"---\nfoo\n---\n",
        b"---\nbase_model: [\n---\n",
        b"---\nbase_model: []\n---\n",
        b"---\nbase_model: {a: b}\n---\n",
        b"\x81",
    ],
)
def test_a_damaged_card_of_the_base_costs_no_training(folder, tmp_path, card):
    (tmp_path / "laws").mkdir()
    (tmp_path / "laws" / "README.md").write_bytes(card)
    write_trained_card(folder, "classifier", "Fine-tuned.", base=tmp_path / "laws")
    assert "| base model | laws |" in (folder / "README.md").read_text(encoding="utf-8")


def test_a_model_with_the_name_of_a_release_gets_its_own_card(tmp_path):
    name = "chinese_roformer-char_L-6_H-384_A-6"
    sizes = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 6, "vocab_size": 12000}
    RoFormerForMaskedLM(small_config(**sizes)).save_pretrained(tmp_path / name)
    write_trained_card(tmp_path / name, name, "Pre-trained on laws.")
    assert "Pre-trained on laws." in (tmp_path / name / "README.md").read_text(encoding="utf-8")


def test_a_card_is_written_anew(folder):
    write_trained_card(folder, "classifier", "Once.", scores=[score("macro_f1", 0.5)])
    write_trained_card(folder, "classifier", "Twice.", scores=[score("accuracy", 0.5)], results="As a table.")
    card = ModelCard.load(folder / "README.md")
    assert [result.metric_type for result in card.data.eval_results] == ["accuracy"] == card.data.metrics
    assert "## Results\n\nAs a table.\n\n## How to use it" in card.text and "Once" not in card.text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_failed_run_gets_no_card(folder, value):
    with refused(ValueError, "macro_f1", "reviews", value):
        write_trained_card(folder, "run", "Failed.", scores=[score("accuracy", 0.5), score("macro_f1", value)])
    assert not (folder / "README.md").exists()


def test_names_without_paths(tmp_path, monkeypatch):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "texts.csv").touch()
    monkeypatch.chdir(tmp_path)
    places = "texts.csv", tmp_path / "texts.csv", "run/model", "run", tmp_path / "gone.csv", "nyu-mll/glue:sst2"
    assert [published_name(place) for place in places] == [
        "texts.csv",
        "texts.csv",
        "run",
        "run",
        "gone.csv",
        "nyu-mll/glue:sst2",
    ]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(("name", "title"), [("model", "tickets"), ("bert-mrpc", "bert-mrpc")])
def test_the_example_of_a_run_loads_the_folder_of_its_model(tmp_path, monkeypatch, pairs, name, title):
    """It runs beside the run's folder; a classifier of pairs gets a pair, which its segments show."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    tokenizer = RoFormerTokenizer({entry: number for number, entry in enumerate(["[PAD]", "[UNK]", *SPECIAL, *"今天"])})
    model = RoFormerForSequenceClassification(small_config(vocab_size=len(tokenizer)))
    Run(tmp_path / "runs" / "tickets").save(model, tokenizer, "Fine-tuned.", name=name, pairs=pairs)
    card = ModelCard.load(tmp_path / "runs" / "tickets" / name / "README.md")
    assert f"\n# {title}\n" in card.text and str(tmp_path) not in str(card)
    code = card.text.partition("```python\n")[2].partition("```")[0]
    assert f'"tickets/{name}"' in code
    monkeypatch.chdir(tmp_path / "runs")
    segments, forward = [], RoFormerForSequenceClassification.forward

    def record(self, *args, **kwargs):
        segments.append(kwargs["token_type_ids"].unique().tolist())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(RoFormerForSequenceClassification, "forward", record)
    exec(code, {})
    assert segments == [[0, 1] if pairs else [0]]


SPECIAL = ["[CLS]", "[SEP]", "[MASK]"]


def test_the_card_says_what_segments_words(tmp_path):
    words = {entry: number for number, entry in enumerate(["[PAD]", "[UNK]", *SPECIAL, "天气", "今"])}
    RoFormerForMaskedLM(small_config(vocab_size=len(words))).save_pretrained(tmp_path)
    cards = {}
    for name, options in {
        "jieba": {},
        "more": {"user_dict": ["天气"]},
        "characters": {"word_segmentation": None},
        "custom": {"word_segmentation": list},
    }.items():
        RoFormerTokenizer(words, **options).save_pretrained(tmp_path)
        cards[name] = card_of_folder(tmp_path, "mine")
    assert ["user_dict" in card for card in cards.values()] == [False, True, False, False]
    assert ["jieba" in card for card in cards.values()] == [True, True, False, False]
    assert ["`word_segmentation`" in card for card in cards.values()] == [False, False, False, True]
    units = [read_facts(card)["vocabulary's unit"] for card in cards.values()]
    assert units == ["word", "word", "character", "word"]
    assert [f"{unit}-level" in ModelCard(card).data.tags for unit, card in zip(units, cards.values(), strict=True)] == (
        [True] * 4
    )
