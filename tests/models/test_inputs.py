"""Inputs of models are checked before anything is computed; the error names the argument."""

import copy

import pytest
import torch
from helpers.messages import refused
from helpers.small_models import small_config

import modeling_roformer as ours
from modeling_roformer.inputs import nonzero

IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])

FIELDS = {"vocab_size": 50, "num_labels": 3}


def make_model(head, **fields):
    config_class = ours.NezhaConfig if head.startswith("Nezha") else ours.RoFormerConfig
    model = getattr(ours, head)(small_config(config_class, **{**FIELDS, **fields})).eval()

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
        make_model(head, **fields)(IDS, attention_mask=MASK, labels=labels)


def test_choices_out_of_range():
    model = make_model("RoFormerForMultipleChoice")
    with refused(ValueError, "input_ids", (2, 4), "(batch, choices, length)"):
        model(IDS)
    with refused(ValueError, "labels", 2, 1):
        model(IDS[None].expand(2, 2, 4), labels=torch.tensor([0, 2]))


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


FAMILIES = [("RoFormerForSequenceClassification", "RoFormerConfig"), ("NezhaForSequenceClassification", "NezhaConfig")]


@pytest.mark.parametrize("name", [name for name in ours.__all__ if name.startswith(("RoFormerFor", "RoFormerModel"))])
def test_an_argument_that_no_constructor_has(name, tmp_path):
    config = small_config(**FIELDS)
    with refused(TypeError, "add_poolin_layer"):
        getattr(ours, name)(config, add_poolin_layer=True)
    ours.RoFormerModel(config).save_pretrained(tmp_path)
    with refused(TypeError, "add_poolin_layer"):
        getattr(ours, name).from_pretrained(tmp_path, add_poolin_layer=True)


@pytest.mark.parametrize("name", [name for name in ours.__all__ if name.startswith(("NezhaFor", "NezhaModel"))])
def test_an_argument_that_no_constructor_of_nezha_has(name):
    with refused(TypeError, "add_poolin_layer"):
        getattr(ours, name)(small_config(ours.NezhaConfig, **FIELDS), add_poolin_layer=True)


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
