"""Kinds of labels: weights of classes, the loss of a step in parts, the scale of numbers, and what a saved model is."""

import datasets
import numpy as np
import pytest
import torch
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from helpers.small_models import TINY
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.utils.class_weight import compute_class_weight
from transformers import EvalPrediction, Trainer, TrainingArguments, pipeline

from modeling_roformer import RoFormerConfig, RoFormerForSequenceClassification, RoFormerTokenizer
from modeling_roformer.model_cards import write_trained_card
from modeling_roformer.training import LabelCollator, TrainingError, WeightedLoss, balanced_weights, label_kind
from modeling_roformer.training.finetuning.predictions import NumberPredictions, SeveralPredictions

TOKENS = [[2, 5, 6, 3], [2, 7, 3], [2, 8, 9, 10, 3], [2, 5, 3]]
CLASSES = datasets.ClassLabel(names=["甲", "乙", "丙"])
KINDS = {
    "classes": (CLASSES, [0, 1, 1, 2]),
    "several": (datasets.List(CLASSES), [[0, 2], [], [1], [0, 1, 2]]),
    "numbers": (datasets.Value("float64"), [100.0, 2000.0, -100.0, 0.5]),
}


def rows_of(kind):
    feature, labels = KINDS[kind]
    features = datasets.Features({"input_ids": datasets.List(datasets.Value("int64")), "label": feature})
    return datasets.Dataset.from_dict({"input_ids": TOKENS, "label": labels}, features)


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"天地玄黄宇宙"]))
    return RoFormerTokenizer(str(tmp_path / "vocab.txt"), word_segmentation=None)


@pytest.fixture
def start(tokenizer, tmp_path):
    """Save a model without dropout, and return its folder."""
    torch.manual_seed(0)
    config = RoFormerConfig(**{**TINY, "vocab_size": len(tokenizer)}, hidden_dropout_prob=0.0)
    config.attention_probs_dropout_prob = 0.0
    RoFormerForSequenceClassification(config).save_pretrained(tmp_path / "start")
    return str(tmp_path / "start")


@max_examples(50)
@given(st.lists(st.integers(0, 3), min_size=1).map(lambda labels: [*labels, 0, 1, 2, 3]))
def test_balanced_weights_are_those_of_scikit_learn(labels):
    expected = compute_class_weight("balanced", classes=np.arange(4), y=labels)
    assert balanced_weights(labels, 4).numpy() == pytest.approx(expected)
    assert torch.isfinite(balanced_weights(labels, 5)).all()  # the last class is in another part


@max_examples(50)
@given(arrays(np.float32, (6, 3), elements=st.floats(-9, 9, width=32)), st.lists(st.integers(1, 5), max_size=2))
def test_the_weighted_loss_of_parts_is_that_of_the_whole(logits, cuts):
    logits, labels, weights = torch.tensor(logits), torch.tensor([0, 1, 1, 2, 1, 0]), torch.tensor([1.5, 0.5, 3.0])
    loss = WeightedLoss(weights)
    chances = logits.double().log_softmax(-1)
    expected = -sum(weights[label] * chances[row, label] for row, label in enumerate(labels.tolist())) / 6
    assert loss({"logits": logits}, labels).item() == pytest.approx(expected.item(), abs=1e-5)
    parts = zip(torch.tensor_split(logits, sorted(cuts)), torch.tensor_split(labels, sorted(cuts)), strict=True)
    for count in (6, torch.tensor(6), torch.tensor([[3], [3]])):  # the last is what nn.DataParallel passes
        parts = [*parts]
        total = sum(loss({"logits": of}, labels_of, count) for of, labels_of in parts)
        assert total.item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("kind", ["weighted", *KINDS])
def test_a_step_in_parts_is_the_same_step(kind, start, tokenizer, tmp_path):
    rows = rows_of("classes" if kind == "weighted" else kind)
    labels = label_kind(rows, class_weights="balanced" if kind == "weighted" else None)

    def trained(batch, parts):
        options = {"learning_rate": 0.1, "optim": "sgd", "max_steps": 1, "report_to": [], "disable_tqdm": True}
        options |= {"per_device_train_batch_size": batch, "gradient_accumulation_steps": parts, "save_strategy": "no"}
        arguments = TrainingArguments(str(tmp_path / "run"), use_cpu=True, max_grad_norm=0, **options)
        collator = LabelCollator(tokenizer, labels)
        torch.manual_seed(0)  # of the head
        model = labels.model(start)
        trainer = Trainer(model, arguments, train_dataset=rows, data_collator=collator, compute_loss_func=labels.loss)
        trainer.train()
        return {name: value.detach().clone() for name, value in model.named_parameters()}

    torch.manual_seed(0)
    before = dict(labels.model(start).named_parameters())
    whole = trained(4, 1)
    assert any(not torch.equal(value, before[name]) for name, value in whole.items())
    for parts in (2, 4):
        for name, value in trained(4 // parts, parts).items():
            assert torch.allclose(value, whole[name], atol=1e-6), name


def test_rare_classes_count_more(start):
    """Also for the choice of the epoch. The loss of the model itself has no weights."""
    labels, weighted = label_kind(rows_of("classes")), label_kind(rows_of("classes"), class_weights="balanced")
    assert labels.loss is None and (labels.metrics[0], weighted.metrics[0]) == ("accuracy", "macro_f1")
    assert weighted.loss.weights.tolist() == pytest.approx([4 / 3, 2 / 3, 4 / 3])
    for kind in ("several", "numbers"):
        with refused(TrainingError, "--class-weights"):
            label_kind(rows_of(kind), class_weights="balanced")


def test_numbers_are_trained_on_a_scale_and_saved_in_their_unit(start):
    numbers = KINDS["numbers"][1]
    labels = label_kind(rows_of("numbers"), "price")
    scaled = labels.tensor(numbers)
    assert scaled.dtype == torch.float32 and scaled.mean().abs() < 1e-6 and scaled.std(correction=0) == pytest.approx(1)
    model = labels.model(start).eval()
    assert model.config.id2label == {0: "price"} and model.config.problem_type == "regression"
    ids = torch.tensor([TOKENS[0]])
    with torch.no_grad():
        before = model(ids).logits.item()
        labels.finish(model)
        assert model(ids).logits.item() == pytest.approx(before * np.std(numbers) + np.mean(numbers), rel=1e-5)
        model.save_pretrained(start)  # a training that starts from it begins where it ended
        assert labels.model(start).eval()(ids).logits.item() == pytest.approx(before, rel=1e-4)
    scores = labels.scores(EvalPrediction(scaled.numpy()[:, None] + 1, scaled.numpy()))
    assert scores["mean_absolute_error"] == pytest.approx(np.std(numbers))


@pytest.mark.parametrize("numbers", [[0.1] * 6, [1e308, -1e308], [1e39, -1e39], [1e-310, -1e-310]])
def test_numbers_without_a_scale_are_refused(numbers):
    """A random split may leave equal numbers in the training texts."""
    rows = datasets.Dataset.from_dict({"label": numbers})
    with refused(TrainingError, f"{min(numbers):g}", f"{max(numbers):g}"):
        label_kind(rows)


def test_several_labels_are_rows_of_zeros_and_ones():
    labels = label_kind(rows_of("several"))
    assert labels.tensor([[0, 2], [], [1]]).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    logits = np.array([[3.0, -1, 1], [-1, -2, -3]])
    scores = labels.scores(EvalPrediction(logits, labels.tensor([[0, 2], [1]]).numpy()))
    assert scores["exact_match"] == 0.5


def test_the_collator_pads_and_keeps_the_rows(tokenizer):
    rows = rows_of("several")
    batch = LabelCollator(tokenizer, label_kind(rows))([*rows])
    assert batch["input_ids"].shape == (4, 5) and batch["labels"].shape == (4, 3) and "label" in rows[0]


def test_a_file_of_several_labels_or_numbers(tmp_path):
    several = SeveralPredictions(["甲", "乙"], np.array([[1, 1], [0, 0]]), np.array([[0.5, 2.0], [-1, -2]]))
    assert several.columns() == {
        "label": [["甲", "乙"], []],
        "predicted": [["乙", "甲"], []],
        "score": [[pytest.approx(0.880797), pytest.approx(0.622459)], []],
    }
    several.write(tmp_path / "found.csv", {"text": ["a", "b"]})
    lines = (tmp_path / "found.csv").read_text(encoding="utf-8-sig").splitlines()
    assert lines[1] == 'a,"[""甲"", ""乙""]","[""乙"", ""甲""]","[0.880797, 0.622459]"'
    numbers = NumberPredictions(["stars"], np.array([1.0, 2]), np.array([[1.5], [2.25]], dtype=np.float32))
    assert numbers.columns() == {"label": [1, 2], "predicted": [1.5, 2.25]}
    assert several.draw_confusion(tmp_path / "a.png") is None and not (tmp_path / "a.png").exists()


def test_no_label_for_all_texts_is_told(capsys):
    several = SeveralPredictions(["甲", "乙"], np.array([[1, 1], [0, 0]]), np.full((2, 2), -1.0))
    several.warn_of_one_class("the model", "try more epochs")
    assert_states(capsys.readouterr().err, "the model", "[]", 2, "try more epochs")


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_serves_through_the_pipeline(kind, start, tokenizer, tmp_path):
    labels = label_kind(rows_of(kind), "price")
    model = labels.model(start).eval()
    labels.finish(model)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    write_trained_card(tmp_path / "model", "model", "Fine-tuned.", place=str(tmp_path / "model"))
    [answers] = pipeline("text-classification", model=str(tmp_path / "model"), top_k=None, device="cpu")(["天地"])
    with torch.no_grad():
        logits = model(**tokenizer("天地", return_tensors="pt")).logits[0]
    expected = {"classes": logits.softmax(-1), "several": logits.sigmoid(), "numbers": logits}[kind].tolist()
    assert {of["label"]: of["score"] for of in answers} == pytest.approx(dict(zip(labels.names, expected, strict=True)))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card
    assert ("top_k=None" in card) == (kind == "several")  # the example shows every label
