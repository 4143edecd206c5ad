"""Inputs of models are checked before anything is computed; the error names the argument."""

import copy
import re

import pytest
import torch
from helpers.messages import refused
from helpers.small_models import small_config, small_model

import modeling_roformer as ours
from modeling_roformer.inputs import nonzero

IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])

FIELDS = {"vocab_size": 50, "num_labels": 3}


def make_refusing_model(head, **fields):
    model = small_model(head, **FIELDS, **fields)

    def refuse(*args):
        raise AssertionError("something was computed")

    # Bad input is refused before the first layer is reached.
    model.base_model.embeddings.register_forward_pre_hook(refuse)
    return model


@pytest.mark.parametrize(("head", "labels", "facts"), [
    ("RoFormerForMaskedLM", IDS.T, ((4, 2), (2, 4))), ("RoFormerForCausalLM", IDS[:, :3], ((2, 3), (2, 4))),
    ("RoFormerForMaskedLM", IDS + 47, (56, 49, -100)), 
    ("RoFormerForCausalLM", IDS - 3, (-3, 49, -100)), ("RoFormerForTokenClassification", MASK * 3, (3, 2, -100)),
    ("RoFormerForSequenceClassification", torch.tensor([0, 3]), (3, 2, -100)),
    ("RoFormerForSequenceClassification", torch.tensor([0, -1]), (-1, 2, -100)),
    ("NezhaForMaskedLM", IDS + 47, (56, 49, -100)),
    ("NezhaForNextSentencePrediction", torch.tensor([3, 0]), (3, 1, -100)),
])  # fmt: skip
def test_labels_out_of_range(head, labels, facts):
    with refused(ValueError, "labels", *facts):
        fields = {"is_decoder": True} if head == "RoFormerForCausalLM" else {}
        make_refusing_model(head, **fields)(IDS, attention_mask=MASK, labels=labels)


@pytest.mark.parametrize(("head", "num_labels", "problem", "shape"), [
    ("RoFormerForSequenceClassification", 3, "regression", (3, 2)), 
    ("RoFormerForSequenceClassification", 2, "regression", (2,)),
    ("RoFormerForSequenceClassification", 1, None, (1, 2)),
    ("RoFormerForSequenceClassification", 3, "single_label_classification", (1, 2)),
    ("NezhaForSequenceClassification", 3, "regression", (3, 2)),
    ("NezhaForNextSentencePrediction", 2, None, (1, 2)), ("RoFormerForMultipleChoice", 1, None, (1, 2)),
])  # fmt: skip
def test_labels_of_another_shape_than_the_logits(head, num_labels, problem, shape):
    """torch would compute a loss of other pairs, or of a transposed matrix."""
    config = small_config(getattr(ours, head).config_class, vocab_size=50, num_labels=num_labels, problem_type=problem)
    labels = torch.zeros(shape, dtype=torch.float if problem == "regression" or num_labels == 1 else torch.long)
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    if head.endswith("Choice"):
        labels, inputs = labels.long(), {name: x[:, None] for name, x in inputs.items()}
    with refused(ValueError, "labels", shape):
        getattr(ours, head)(config)(**inputs, labels=labels)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_number_per_text_may_have_either_shape(shape):
    torch.manual_seed(0)
    model = ours.RoFormerForSequenceClassification(small_config(vocab_size=50, num_labels=1)).eval()
    labels = torch.tensor([0.5, 2.0])
    outputs = model(IDS, attention_mask=MASK, labels=labels.view(shape))
    torch.testing.assert_close(outputs.loss, ((outputs.logits[:, 0] - labels) ** 2).mean())


@pytest.mark.parametrize("head", ["RoFormerForMaskedLM", "RoFormerForTokenClassification", "NezhaForPreTraining"])
def test_labels_of_tokens_are_integers(head):
    with refused(ValueError, "labels", "torch.float32"):
        make_refusing_model(head)(IDS, attention_mask=MASK, labels=torch.zeros(2, 4))


@pytest.mark.parametrize("head", ["RoFormerForQuestionAnswering", "NezhaForQuestionAnswering"])
def test_positions_of_answers(head):
    model = make_refusing_model(head)
    for name in ("start_positions", "end_positions"):
        positions = {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([2, 2])}
        with refused(ValueError, name, -1, -100):
            model(IDS, attention_mask=MASK, **positions | {name: torch.tensor([1, -1])})


def test_an_answer_that_does_not_count():
    """-100 is ignored as in other heads, and so is a position beyond the input, as in transformers."""
    model = ours.RoFormerForQuestionAnswering(small_config(vocab_size=50)).eval()
    first = model(IDS[:1], attention_mask=MASK[:1], start_positions=torch.tensor([1]), end_positions=torch.tensor([2]))
    for ignored in (-100, 4, 100):
        answers = {"start_positions": torch.tensor([1, ignored]), "end_positions": torch.tensor([2, ignored])}
        torch.testing.assert_close(model(IDS, attention_mask=MASK, **answers).loss, first.loss)


INFINITE = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, -torch.inf]])


@pytest.mark.parametrize(
    "mask",
    [INFINITE, torch.where(MASK == 1, 1.0, torch.nan), MASK * 2, MASK - 1, MASK * 0.5],
    ids=["added to the scores", "nan", "numbers of texts", "negative", "half"],
)
def test_a_mask_of_other_values_than_0_and_1(mask):
    with refused(ValueError, "attention_mask", 0, 1):
        make_refusing_model("RoFormerForMaskedLM")(IDS, attention_mask=mask)
    decoder = make_refusing_model("RoFormerForCausalLM", is_decoder=True, add_cross_attention=True)
    source = {"encoder_hidden_states": torch.zeros(2, 4, 32), "encoder_attention_mask": mask}
    with refused(ValueError, "encoder_attention_mask", 0, 1):
        decoder(IDS, attention_mask=MASK, **source)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.float64])
def test_a_mask_of_0_and_1_has_any_dtype(dtype):
    torch.manual_seed(0)
    model = ours.RoFormerForMaskedLM(small_config(**FIELDS)).eval()
    found = model(IDS, attention_mask=MASK.to(dtype)).logits
    torch.testing.assert_close(found, model(IDS, attention_mask=MASK).logits, rtol=0, atol=0)


@pytest.mark.parametrize("width", [1, 16, 33])
def test_embeddings_of_another_width(width):
    with refused(ValueError, "inputs_embeds", (2, 4, width), (2, 4, 32)):
        make_refusing_model("RoFormerForMaskedLM")(inputs_embeds=torch.zeros(2, 4, width), attention_mask=MASK)


def test_choices_out_of_range():
    model = make_refusing_model("RoFormerForMultipleChoice")
    with refused(ValueError, "input_ids", (2, 4), "(batch, choices, length)"):
        model(IDS)
    with refused(ValueError, "labels", 2, 1):
        model(IDS[None].expand(2, 2, 4), labels=torch.tensor([0, 2]))


@pytest.mark.parametrize("name", ["attention_mask", "token_type_ids", "position_ids"])
@pytest.mark.parametrize("shape", [(3, 2, 4), (6, 1, 4), (6, 4)])
def test_arguments_of_choices_are_in_the_order_of_the_ids(name, shape):
    """Each of these has as many rows as the ids."""
    with refused(ValueError, name, shape):
        make_refusing_model("RoFormerForMultipleChoice")(torch.ones(2, 3, 4).long(), **{name: torch.ones(shape).long()})


def test_labels_that_do_not_fit_decide_no_problem_type():
    model = ours.RoFormerForSequenceClassification(small_config(num_labels=3))
    for labels in (torch.tensor([0.0, 2.0]), torch.tensor([[0, 1, 1], [1, 0, 0]])):
        with refused(ValueError, "labels", tuple(labels.shape)):
            model(IDS, labels=labels)
    model(IDS, labels=torch.tensor([0, 2]))
    assert model.config.problem_type == "single_label_classification"


def test_labels_that_do_not_count_are_no_error():
    config = small_config(**FIELDS)
    labels = torch.full_like(IDS, -100)
    labels[0, 1] = 7
    assert ours.RoFormerForMaskedLM(config)(IDS, attention_mask=MASK, labels=labels).loss.isfinite()
    assert ours.RoFormerForSequenceClassification(config)(IDS, attention_mask=MASK, labels=torch.tensor([0, 2])).loss


def test_a_grown_vocabulary_has_more_ids():
    model = ours.RoFormerForMaskedLM(small_config(**FIELDS))
    model.resize_token_embeddings(60)
    assert model(IDS + 47, attention_mask=MASK).logits.shape == (2, 4, 60)


@pytest.mark.parametrize("name", [x for x in ours.__all__ if re.match("(RoFormer|Nezha)(Model|For)", x)])
def test_an_argument_that_no_constructor_has(name, tmp_path):
    bare = ours.NezhaModel if name.startswith("Nezha") else ours.RoFormerModel
    model = bare(small_config(bare.config_class, **FIELDS))
    with refused(TypeError, "add_poolin_layer"):
        getattr(ours, name)(model.config, add_poolin_layer=True)
    model.save_pretrained(tmp_path)
    with refused(TypeError, "add_poolin_layer"):
        getattr(ours, name).from_pretrained(tmp_path, add_poolin_layer=True)


def test_a_class_of_ones_own_takes_what_its_constructor_takes():
    class Mine(ours.RoFormerPreTrainedModel):
        def __init__(self, config, width=3, **others):
            super().__init__(config)
            self.width, self.others = width, others

    mine = copy.deepcopy(Mine(small_config(**FIELDS), width=5, depth=2))
    assert (mine.width, mine.others) == (5, {"depth": 2})


def test_indices_on_an_apple_gpu_are_found_without_a_kernel_that_older_versions_of_torch_lack(monkeypatch):
    mask, indices = torch.tensor([[True, False], [True, True]]), [[0, 0], [1, 0], [1, 1]]
    assert nonzero(mask, 3).tolist() == indices

    class OnAppleGPU(torch.Tensor):
        device = torch.device("mps")

    monkeypatch.delattr(torch, "nonzero_static")
    assert nonzero(mask.as_subclass(OnAppleGPU), 3).tolist() == indices
