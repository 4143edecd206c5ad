"""What models are given is checked before anything is computed: one sentence, which names the argument."""

import copy

import pytest
import torch

import modeling_roformer as ours
from modeling_roformer import RoFormerConfig

SIZES = dict(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
)
IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def make_model(head, **fields):
    model = getattr(ours, head)(RoFormerConfig(**{**SIZES, **fields})).eval()

    def refuse(*args):
        raise AssertionError("something was computed")

    # Bad input is refused before the first layer is reached.
    getattr(model, "roformer", model).embeddings.register_forward_pre_hook(refuse)
    return model


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"input_ids": IDS[0]}, r"input_ids has shape \(4,\), but must have \(batch, length\)"),
        ({"input_ids": IDS[None]}, r"input_ids has shape \(1, 2, 4\)"),
        ({"input_ids": IDS[:, :0]}, r"input_ids has shape \(2, 0\).*at least one text and token"),
        ({"input_ids": IDS[:0]}, r"input_ids has shape \(0, 4\).*at least one text and token"),
        ({"input_ids": IDS.tolist()}, "input_ids is a list, but must be a tensor.*return_tensors"),
        ({"input_ids": "北京"}, "input_ids is a str, but must be a tensor"),
        ({"input_ids": IDS.float()}, "input_ids are torch.float32, but must be integers"),
        ({"inputs_embeds": torch.zeros(4, 16)}, r"inputs_embeds has shape \(4, 16\).*embedding_size"),
        ({}, "give either input_ids or inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(2, 4, 16)}, "give either input_ids or inputs_embeds"),
    ],
)
def test_no_batch_of_tokens(inputs, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_model("RoFormerModel")(**inputs)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"input_ids": IDS + 47}, "input_ids has the value 56, but must lie from 0 to 49"),
        ({"input_ids": IDS - 1}, "input_ids has the value -1, but must lie from 0 to 49"),
        ({"input_ids": IDS, "token_type_ids": MASK * 2}, "token_type_ids has the value 2, but must lie from 0 to 1"),
        ({"input_ids": IDS, "token_type_ids": MASK[:, :3]}, r"token_type_ids has shape \(2, 3\).* \(2, 4\)"),
        ({"input_ids": IDS, "position_ids": MASK - 1}, "position_ids has the value -1, but must not be negative"),
    ],
)
def test_values_out_of_range(inputs, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_model("RoFormerModel")(attention_mask=MASK, **inputs)


@pytest.mark.parametrize(
    ("head", "labels", "sentence"),
    [
        ("RoFormerForMaskedLM", IDS + 47, "labels has the value 56, but must lie from 0 to 49, or be -100"),
        ("RoFormerForMaskedLM", IDS[:, :3], r"labels has shape \(2, 3\), but the input needs \(2, 4\)"),
        ("RoFormerForCausalLM", IDS - 3, "labels has the value -3"),
        ("RoFormerForTokenClassification", MASK * 3, "labels has the value 3, but must lie from 0 to 2"),
        ("RoFormerForSequenceClassification", torch.tensor([0, 3]), "labels has the value 3, but must lie from 0 to 2"),
        ("RoFormerForSequenceClassification", torch.tensor([0, -1]), "labels has the value -1"),
    ],
)
def test_labels_out_of_range(head, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_model(head, is_decoder=head == "RoFormerForCausalLM")(IDS, attention_mask=MASK, labels=labels)


def test_choices_out_of_range():
    model = make_model("RoFormerForMultipleChoice")
    with pytest.raises(ValueError, match=r"input_ids has shape \(2, 4\), but must have \(batch, choices, length\)"):
        model(IDS)
    with pytest.raises(ValueError, match="labels has the value 2, but must lie from 0 to 1"):
        model(IDS[None].expand(2, 2, 4), labels=torch.tensor([0, 2]))


def test_labels_that_do_not_count_are_no_error():
    config = RoFormerConfig(**SIZES)
    labels = torch.full_like(IDS, -100)
    labels[0, 1] = 7
    assert ours.RoFormerForMaskedLM(config)(IDS, attention_mask=MASK, labels=labels).loss.isfinite()
    assert ours.RoFormerForSequenceClassification(config)(IDS, attention_mask=MASK, labels=torch.tensor([0, 2])).loss


def test_a_grown_vocabulary_has_more_ids():
    model = ours.RoFormerForMaskedLM(RoFormerConfig(**SIZES))
    model.resize_token_embeddings(60)
    assert model(IDS + 47, attention_mask=MASK).logits.shape == (2, 4, 60)


FAMILIES = [("RoFormerForSequenceClassification", "RoFormerConfig"), ("NezhaForSequenceClassification", "NezhaConfig")]


@pytest.mark.parametrize(("head", "config"), FAMILIES)
def test_unknown_activations(head, config):
    def build(**fields):
        return getattr(ours, head)(getattr(ours, config)(**{**SIZES, **fields}))

    with pytest.raises(ValueError, match=r"hidden_act is 'gelo'.* did you mean 'gelu'\?"):
        build(hidden_act="gelo")
    with pytest.raises(ValueError, match="hidden_act is 'zzz'.* must be one of .*gelu, .*relu, .*tanh"):
        build(hidden_act="zzz")


@pytest.mark.parametrize("field", ["pooler_activation", "classifier_activation", "summary_activation"])
def test_unknown_activations_of_heads(field):
    with pytest.raises(ValueError, match=f"{field} is 'tahn'.* did you mean 'tanh'"):
        make_model("RoFormerForMultipleChoice", add_pooling_layer=True, **{"pooler_activation": "tanh", field: "tahn"})


@pytest.mark.parametrize("name", [name for name in ours.__all__ if name.startswith(("RoFormerFor", "RoFormerModel"))])
def test_an_argument_that_no_constructor_has(name, tmp_path):
    """The class that was called is named, not one that it inherits its constructor from."""
    sentence = f"^{name} has no argument add_poolin_layer: it takes config.* the fields of RoFormer(Seq2Seq)?Config$"
    config = RoFormerConfig(**SIZES)
    with pytest.raises(TypeError, match=sentence):
        getattr(ours, name)(config, add_poolin_layer=True)
    ours.RoFormerModel(config).save_pretrained(tmp_path)
    with pytest.raises(TypeError, match=sentence):
        getattr(ours, name).from_pretrained(tmp_path, add_poolin_layer=True)


@pytest.mark.parametrize("name", [name for name in ours.__all__ if name.startswith(("NezhaFor", "NezhaModel"))])
def test_an_argument_that_no_constructor_of_nezha_has(name):
    with pytest.raises(TypeError, match=f"^{name} has no argument add_poolin_layer: .* fields of NezhaConfig$"):
        getattr(ours, name)(ours.NezhaConfig(**SIZES), add_poolin_layer=True)


def test_a_class_of_ones_own_takes_what_its_constructor_takes():
    class Mine(ours.RoFormerPreTrainedModel):
        def __init__(self, config, width=3, **others):
            super().__init__(config)
            self.width, self.others = width, others

    mine = copy.deepcopy(Mine(RoFormerConfig(**SIZES), width=5, depth=2))
    assert (mine.width, mine.others) == (5, {"depth": 2})
