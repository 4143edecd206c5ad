"""Heads: the causal loss, a decoder with weights of its own, and accumulated steps, compared with transformers."""

import pytest
import torch
from helpers.small_models import TINY, small_model
from safetensors.torch import load_file, save_file
from transformers import Trainer, TrainingArguments, default_data_collator
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.roformer import modeling_roformer as theirs

import modeling_roformer as ours

# The loss of the causal language model is transformers', in value and gradient.

IDS = torch.randint(5, 100, (3, 12), generator=torch.Generator().manual_seed(1))
LABELS = IDS.masked_fill(torch.arange(12) < torch.tensor([[2], [0], [9]]), -100)


def causal_model(**fields):
    return small_model("RoFormerForCausalLM", is_decoder=True, **fields)


def gradient_of(loss, model):
    weight = model.roformer.encoder.layer[0].output.dense.weight
    return torch.autograd.grad(loss, weight, retain_graph=True)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"num_items_in_batch": 40},
        {"num_items_in_batch": torch.tensor(40)},
        {"shift_labels": LABELS.roll(-2, 1)},
        {"shift_labels": None},
        {"ignore_index": -100},
    ],
    ids=str,
)
def test_the_causal_loss_is_that_of_transformers(arguments, dtype):
    model = causal_model().to(dtype)
    outputs = model(IDS, labels=LABELS, **arguments)
    expected = ForCausalLMLoss(outputs.logits, LABELS, 100, **arguments)
    assert outputs.loss.dtype == torch.float32
    torch.testing.assert_close(outputs.loss, expected)
    torch.testing.assert_close(gradient_of(outputs.loss, model), gradient_of(expected, model))


def test_a_loss_function_of_ones_own_gets_what_transformers_gives_it():
    model, seen = causal_model(), []

    def loss_function(logits, labels, vocab_size, **kwargs):
        seen.append((labels, vocab_size, set(kwargs)))
        return logits.sum()

    model.loss_function = loss_function
    outputs = model(IDS, labels=LABELS, shift_labels=LABELS)
    assert outputs.loss == outputs.logits.sum()
    assert seen == [(LABELS, 100, {"shift_labels"})]


def test_another_loss_type_is_used():
    model = causal_model()
    model.loss_type = "ForMaskedLM"
    outputs = model(IDS, labels=LABELS)
    expected = torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), LABELS.flatten())
    torch.testing.assert_close(outputs.loss, expected)


# A language model whose decoder has weights of its own (`tie_word_embeddings=False`): its bias is one, under two names.

LANGUAGE_MODELS = ["RoFormerForMaskedLM", "RoFormerForCausalLM", "NezhaForMaskedLM", "NezhaForPreTraining"]
OURS_AND_THEIRS = LANGUAGE_MODELS[:2]
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
TWO_TEXTS = torch.tensor([[2, 7, 8, 3], [2, 9, 11, 3]])


def language_model(head, library=ours, tied=False, seed=0):
    decoder = {"is_decoder": True} if head.endswith("CausalLM") else {}
    fields = {"tie_word_embeddings": tied, "initializer_range": 0.1, **decoder}
    model = small_model(getattr(library, head), seed, **fields)
    with torch.no_grad():
        for parameter in model.parameters():  # the two biases of transformers come to differ
            if parameter.requires_grad and parameter.ndim == 1:
                parameter.normal_()
    return model


def logits(model):
    with torch.no_grad():
        outputs = model(TWO_TEXTS)
    return outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]


@pytest.mark.parametrize("head", LANGUAGE_MODELS)
def test_every_parameter_gets_a_gradient(head, tmp_path):
    """DistributedDataParallel stops at a parameter that gets none."""
    language_model(head).save_pretrained(tmp_path)
    for model in (language_model(head), type(language_model(head)).from_pretrained(tmp_path).train()):
        labels = {"labels": TWO_TEXTS}
        if head == "NezhaForPreTraining":
            labels["next_sentence_label"] = torch.tensor([0, 1])
        model(TWO_TEXTS, **labels).loss.backward()
        assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]


@pytest.mark.parametrize("head", LANGUAGE_MODELS)
@pytest.mark.parametrize("kept", [BIAS, DECODER_BIAS])
def test_either_name_of_the_bias_is_enough(head, kept, tmp_path):
    model = language_model(head)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert torch.equal(weights[BIAS], weights[DECODER_BIAS])
    assert weights[BIAS].any()
    del weights[BIAS if kept == DECODER_BIAS else DECODER_BIAS]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(logits(loaded), logits(model))
    assert loaded.cls.predictions.bias is loaded.cls.predictions.decoder.bias
    assert loaded.cls.predictions.decoder.weight is not loaded.get_input_embeddings().weight


@pytest.mark.parametrize("head", OURS_AND_THEIRS)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("source", ["ours", "theirs"])
def test_a_checkpoint_means_the_same_in_transformers(head, tied, source, tmp_path):
    model = language_model(head, ours if source == "ours" else theirs, tied)
    other = getattr(theirs if source == "ours" else ours, head)
    assert torch.equal(model.cls.predictions.bias, model.cls.predictions.decoder.bias) == (tied or source == "ours")
    model.save_pretrained(tmp_path)
    loaded, report = other.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not {name for name in report["missing_keys"] if "embed_positions" not in name}
    torch.testing.assert_close(logits(loaded.eval()), logits(model), atol=1e-5, rtol=0)
    state_dict = model.state_dict()
    fresh = language_model(head, theirs if source == "ours" else ours, tied, seed=1)
    fresh.load_state_dict(state_dict, strict=source == "theirs")  # ours has no table of positions
    torch.testing.assert_close(logits(fresh), logits(model), atol=1e-5, rtol=0)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("head", LANGUAGE_MODELS)
def test_the_bias_stays_one_in_a_resized_vocabulary(head, tied):
    model = language_model(head, tied=tied)
    model.resize_token_embeddings(40)
    assert (model.cls.predictions.decoder.weight is model.get_input_embeddings().weight) == tied
    assert model.cls.predictions.bias is model.cls.predictions.decoder.bias
    assert len(model.cls.predictions.bias) == logits(model).shape[-1] == 40


@pytest.mark.parametrize("head", LANGUAGE_MODELS)
@pytest.mark.parametrize("tied", [False, True])
def test_a_fresh_head_starts_without_bias(head, tied, tmp_path):
    model = language_model(head, tied=tied)
    model.base_model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, tie_word_embeddings=tied)
    assert loaded.cls.predictions.bias is loaded.cls.predictions.decoder.bias
    assert torch.equal(loaded.cls.predictions.bias, torch.zeros_like(loaded.cls.predictions.bias))


# Accumulated steps of transformers' Trainer equal one step over the whole batch, for every head that has a loss.

SIZES = {**TINY, "vocab_size": 30, "initializer_range": 0.3}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
TEXTS, LENGTH = 6, 8
SPARSE = {"sparse_prediction": True}
SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification"}
NUMBERS = {"num_labels": 3, "problem_type": "regression"}
WITH_LOSS = [
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


def without_dropout(head, fields):
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
    model = without_dropout(head, fields)
    arguments = TrainingArguments(
        str(folder),
        max_steps=1,
        per_device_train_batch_size=batch_size,
        logging_steps=1,
        optim="sgd",
        gradient_accumulation_steps=-(-TEXTS // batch_size),
        learning_rate=1.0,
        max_grad_norm=0.0,
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=examples)
    trainer.train()
    return trainer.state.log_history[0]["loss"], model.state_dict()


def assert_learns_the_same(head, fields, examples, folder, batch_size):
    loss, weights = one_update(head, fields, examples, folder, TEXTS)
    start = without_dropout(head, fields)
    expected = start(**default_data_collator(examples)).loss
    assert loss == pytest.approx(expected.item(), abs=1e-3)
    assert any(not torch.equal(weights[name], tensor) for name, tensor in start.state_dict().items())
    found_loss, found = one_update(head, fields, examples, folder, batch_size)
    assert found_loss == pytest.approx(loss, abs=1e-3)
    for name, tensor in weights.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(("head", "fields"), WITH_LOSS)
def test_any_split_learns_the_same(head, fields, tmp_path):
    assert_learns_the_same(head, fields, make_examples(head, fields), tmp_path, batch_size=4)


@pytest.mark.parametrize(("head", "fields"), EQUAL_PARTS)
def test_equal_parts_learn_the_same(head, fields, tmp_path):
    assert_learns_the_same(head, fields, make_examples(head, fields, equal=True), tmp_path, batch_size=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_part_in_half_precision_is_summed_in_float32(dtype):
    labels = torch.randint(0, 30, (40, 400))
    model = without_dropout("RoFormerForTokenClassification", {"num_labels": 30}).to(dtype)
    torch.nn.init.normal_(model.classifier.weight, std=10)
    with torch.no_grad():
        outputs = model(labels, labels=labels, num_items_in_batch=labels.numel())
        expected = torch.nn.functional.cross_entropy(outputs.logits.double().flatten(0, 1), labels.flatten())
    assert expected * labels.numel() > torch.finfo(torch.float16).max
    torch.testing.assert_close(outputs.loss.double(), expected, rtol=5e-3, atol=0)
