"""One call of a model: what it is given is checked before anything is computed, and one object says what was read."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from helpers.messages import refused
from helpers.small_models import small_config

import modeling_roformer as ours
from modeling_roformer.call import Call

IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def make_model(name, **fields):
    config_class = ours.NezhaConfig if name.startswith("Nezha") else ours.RoFormerConfig
    return getattr(ours, name)(small_config(config_class, vocab_size=50, **fields)).eval()


def refuse_to_compute(*args):
    raise AssertionError("something was computed")


@pytest.mark.parametrize(
    ("inputs", "facts"),
    [
        ({"input_ids": IDS[0]}, ("input_ids", (4,), "(batch, length)")),
        ({"input_ids": IDS[None]}, ("input_ids", (1, 2, 4), "(batch, length)")),
        ({"inputs_embeds": torch.zeros(4, 16)}, ("inputs_embeds", (4, 16), "(batch, length, embedding_size)")),
        ({}, ("input_ids", "inputs_embeds")),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(2, 4, 16)}, ("input_ids", "inputs_embeds")),
    ],
)
@pytest.mark.parametrize("name", ["RoFormerModel", "NezhaModel"])
def test_no_batch_of_tokens(name, inputs, facts):
    model = make_model(name)
    model.embeddings.register_forward_pre_hook(refuse_to_compute)
    with refused(ValueError, *facts):
        model(**inputs)


@pytest.mark.parametrize(
    ("inputs", "facts"),
    [
        ({"input_ids": IDS + 47}, ("input_ids", 56, 49)),
        ({"input_ids": IDS - 1}, ("input_ids", -1, 49)),
        ({"input_ids": IDS, "token_type_ids": MASK * 2}, ("token_type_ids", 2, 1)),
        ({"input_ids": IDS, "token_type_ids": MASK[:, :3]}, ("token_type_ids", (2, 3), (2, 4))),
        ({"input_ids": IDS, "position_ids": MASK - 1}, ("position_ids", -1)),
        ({"input_ids": IDS, "position_ids": MASK[:1, :3]}, ("position_ids", (1, 3), (2, 4))),
        ({"input_ids": IDS, "attention_mask": MASK[:, :3]}, ("attention_mask", (2, 3), (2, 4))),
    ],
)
@pytest.mark.parametrize("name", ["RoFormerModel", "NezhaModel"])
def test_values_out_of_range(name, inputs, facts):
    model = make_model(name)
    model.embeddings.register_forward_pre_hook(refuse_to_compute)
    with refused(ValueError, *facts):
        model(**{"attention_mask": MASK, **inputs})


@pytest.fixture
def calls(monkeypatch):
    """The calls that models read, in order."""
    read, calls = ours.model.read_call, []

    def keep(*arguments, **options):
        calls.append(read(*arguments, **options))
        return calls[-1]

    monkeypatch.setattr("modeling_roformer.model.read_call", keep)
    return calls


@torch.no_grad()
def test_a_mask_that_masks_nothing_is_left_out(calls):
    model = make_model("RoFormerModel")
    model(IDS, attention_mask=torch.ones_like(IDS))
    model(IDS, attention_mask=MASK)
    assert [call.attention_mask is None for call in calls] == [True, False]


@pytest.mark.parametrize(
    ("mask", "options", "is_packed"),
    [
        (MASK, {}, True),
        (MASK.flip(1), {}, False),  # a text begins with padding, which heads read
        (MASK, {"unpad_inputs": False}, False),
        (MASK, {"output_hidden_states": True}, False),
        (MASK, {"output_attentions": True}, False),
        (torch.ones_like(MASK), {}, False),
    ],
)
@torch.no_grad()
def test_padding_is_left_out_where_nothing_reads_it(mask, options, is_packed, calls, monkeypatch):
    monkeypatch.setattr("modeling_roformer.call.is_faster_packed", lambda *arguments: True)
    make_model("RoFormerModel")(IDS, attention_mask=mask, **options)
    assert (calls[0].packing is not None) == is_packed


@torch.no_grad()
def test_positions_continue_after_cached_tokens(calls):
    model = make_model("RoFormerModel", is_decoder=True)
    cache = model(IDS, use_cache=True).past_key_values
    model(IDS[:, :2], past_key_values=cache)
    assert [call.position_ids.tolist() for call in calls] == [[[0, 1, 2, 3]], [[4, 5]]]
    assert calls[1].cache is cache


@torch.no_grad()
def test_a_call_for_attentions_is_eager_and_leaves_the_config_alone(calls):
    model = make_model("RoFormerModel")
    model(IDS, output_attentions=True)
    assert calls[0].config._attn_implementation == "eager" and model.config._attn_implementation == "sdpa"


def test_a_call_is_not_changed_after_it_was_read():
    call = Call(small_config())
    with pytest.raises(FrozenInstanceError):
        call.attention_mask = MASK


@torch.no_grad()
def test_an_encoder_ignores_a_source():
    model = make_model("RoFormerModel")
    source = {"encoder_hidden_states": torch.zeros(2, 3, 32), "encoder_attention_mask": torch.ones(2, 3)}
    assert model(IDS, **source)[0].equal(model(IDS)[0])


def test_input_embeddings_of_another_class_compute_padded_texts():
    model = make_model("RoFormerModel")
    expected = model(IDS, attention_mask=MASK).last_hidden_state
    model.set_input_embeddings(torch.nn.Sequential(model.get_input_embeddings()))
    assert torch.equal(model(IDS, attention_mask=MASK).last_hidden_state, expected)


@torch.no_grad()
def test_a_mask_covers_the_cached_tokens():
    model = make_model("RoFormerModel", is_decoder=True)
    cache = model(IDS, use_cache=True).past_key_values
    with refused(ValueError, "attention_mask", (2, 2), (2, 6)):
        model(IDS[:, :2], attention_mask=MASK[:, :2], past_key_values=cache)
    assert cache.get_seq_length() == 4


def test_a_mask_of_pairs_is_as_wide_as_the_keys():
    with refused(ValueError, "attention_mask", (2, 1, 4, 1), (2, 1, 4, 4)):
        make_model("RoFormerModel")(IDS, attention_mask=torch.ones(2, 1, 4, 1))


@torch.no_grad()
def test_padding_is_kept_where_layers_are_compiled_one_by_one(calls, monkeypatch):
    """Each new set of lengths would compile them again."""
    monkeypatch.setattr("modeling_roformer.call.is_faster_packed", lambda *arguments: True)
    model = make_model("RoFormerModel")
    model.encoder.layer[0]._orig_mod = True  # as in what torch.compile returns
    model(IDS, attention_mask=MASK)
    assert calls[0].packing is None
