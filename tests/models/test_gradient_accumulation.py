"""Accumulated steps of transformers' Trainer equal one step over the whole batch, for every head that has a loss."""

import pytest
import torch
from helpers.small_models import TINY, small_model
from transformers import Trainer, TrainingArguments, default_data_collator

SIZES = {**TINY, "vocab_size": 30, "initializer_range": 0.3}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
TEXTS, LENGTH = 6, 8
SPARSE = {"sparse_prediction": True}
SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification"}
NUMBERS = {"num_labels": 3, "problem_type": "regression"}
HEADS = [
    ("RoFormerForMaskedLM", {}),
    ("RoFormerForMaskedLM", SPARSE),
    ("RoFormerForCausalLM", {"is_decoder": True}),
    ("RoFormerForTokenClassification", {"num_labels": 3}),
    ("RoFormerForSequenceClassification", {"num_labels": 3}),
    ("RoFormerForSequenceClassification", SEVERAL),
    ("RoFormerForSequenceClassification", {"num_labels": 1}),
    ("RoFormerForSequenceClassification", NUMBERS),
    ("RoFormerForMultipleChoice", {}),
    ("RoFormerForTripletMatching", {"triplet_loss": "binary_cross_entropy"}),
    ("RoFormerForTripletMatching", {"triplet_loss": "softmax"}),
    ("RoFormerForTripletMatching", {"triplet_loss": "softmax", "triplet_scorer": "bi", "triplet_temperature": 0.5}),
    ("RoFormerForTripletMatching", {"triplet_loss": "margin", "triplet_scorer": "bi", "triplet_margin": 3.0}),
    ("NezhaForMaskedLM", {}),
    ("NezhaForTokenClassification", {"num_labels": 3}),
    ("NezhaForSequenceClassification", {"num_labels": 3}),
    ("NezhaForMultipleChoice", {}),
    ("NezhaForNextSentencePrediction", {}),
]
# Trainer counts `labels` only, so these heads need parts with equal numbers of labels.
EQUAL_PARTS = [
    ("RoFormerForQuestionAnswering", {}),
    ("NezhaForQuestionAnswering", {}),
    ("NezhaForPreTraining", {}),
    ("NezhaForPreTraining", SPARSE),
]


def make_model(head, fields):
    return small_model(head, **SIZES, **NO_DROPOUT, **fields).train()


def make_labels(head, fields, ids, equal):
    """Return the labels of one text; the first texts have more labels than the last, unless `equal`."""
    row = int(ids.flatten()[0])  # texts begin with their number
    if head.endswith(("MaskedLM", "CausalLM", "TokenClassification", "PreTraining")):
        labels = ids % fields.get("num_labels", SIZES["vocab_size"])
        labels[2 if equal else LENGTH - row :] = -100
        return (
            {"labels": labels, "next_sentence_label": row % 2} if head.endswith("PreTraining") else {"labels": labels}
        )
    if head.endswith("QuestionAnswering"):
        return {"start_positions": row, "end_positions": LENGTH - 1 - row % 3}
    if fields.get("num_labels") == 1:
        return {"labels": row / 2}
    if "problem_type" in fields:
        return {"labels": torch.tensor([row % 2, 1.0, row % 3 == 0])}
    if head.endswith("SequenceClassification"):
        return {"labels": -100 if row == 0 else row % fields["num_labels"]}
    return {"labels": row % 2}


def make_examples(head, fields, equal=False):
    generator = torch.Generator().manual_seed(1)
    shape = {"MultipleChoice": (2,), "TripletMatching": (2 + (fields.get("triplet_scorer") == "bi"),)}
    examples = []
    for row in range(TEXTS):
        ids = torch.randint(TEXTS, 30, (*shape.get(head.rpartition("For")[2], ()), LENGTH), generator=generator)
        ids[..., 0] = row
        examples.append({"input_ids": ids, **make_labels(head, fields, ids, equal)})
    return examples


def one_update(head, fields, examples, folder, batch_size):
    """Return the logged loss and the weights after one step over all examples."""
    model = make_model(head, fields)
    arguments = TrainingArguments(
        str(folder), max_steps=1, per_device_train_batch_size=batch_size, logging_steps=1, optim="sgd",
        gradient_accumulation_steps=-(-TEXTS // batch_size), learning_rate=1.0, max_grad_norm=0.0, save_strategy="no",
        use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=examples)
    trainer.train()
    return trainer.state.log_history[0]["loss"], model.state_dict()


def assert_learns_the_same(head, fields, examples, folder, batch_size):
    loss, weights = one_update(head, fields, examples, folder, TEXTS)
    start = make_model(head, fields)
    expected = start(**default_data_collator(examples)).loss
    assert loss == pytest.approx(expected.item(), abs=1e-3)
    assert any(not torch.equal(weights[name], tensor) for name, tensor in start.state_dict().items())
    found_loss, found = one_update(head, fields, examples, folder, batch_size)
    assert found_loss == pytest.approx(loss, abs=1e-3)
    for name, tensor in weights.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(("head", "fields"), HEADS)
def test_any_split_learns_the_same(head, fields, tmp_path):
    assert_learns_the_same(head, fields, make_examples(head, fields), tmp_path, batch_size=4)


@pytest.mark.parametrize(("head", "fields"), EQUAL_PARTS)
def test_equal_parts_learn_the_same(head, fields, tmp_path):
    assert_learns_the_same(head, fields, make_examples(head, fields, equal=True), tmp_path, batch_size=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_part_in_half_precision_is_summed_in_float32(dtype):
    labels = torch.randint(0, 30, (40, 400))
    model = make_model("RoFormerForTokenClassification", {"num_labels": 30}).to(dtype)
    torch.nn.init.normal_(model.classifier.weight, std=10)
    with torch.no_grad():
        outputs = model(labels, labels=labels, num_items_in_batch=labels.numel())
        expected = torch.nn.functional.cross_entropy(outputs.logits.double().flatten(0, 1), labels.flatten())
    assert expected * labels.numel() > torch.finfo(torch.float16).max
    torch.testing.assert_close(outputs.loss.double(), expected, rtol=5e-3, atol=0)
