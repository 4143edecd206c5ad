"""One call of a model: its arguments are checked before anything is computed, and read into one object."""

from functools import partial

import pytest
import torch
from helpers.messages import refused
from helpers.small_models import small_model
from test_inputs import IDS, MASK, make_refusing_model

from modeling_roformer.call import read_call

make_model = partial(small_model, vocab_size=50)


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
    with refused(ValueError, *facts):
        make_refusing_model(name)(**inputs)


@pytest.mark.parametrize(
    ("inputs", "facts"),
    [
        ({"input_ids": IDS + 47}, ("input_ids", 56, 49)),
        ({"input_ids": IDS - 1}, ("input_ids", -1, 49)),
        ({"input_ids": IDS, "token_type_ids": MASK * 2}, ("token_type_ids", 2, 1)),
        ({"input_ids": IDS, "token_type_ids": MASK[:, :3]}, ("token_type_ids", (2, 3), (2, 4))),
        ({"input_ids": IDS, "position_ids": MASK - 1}, ("position_ids", -1)),
        ({"input_ids": IDS, "position_ids": MASK[:1, :3]}, ("position_ids", (1, 3), (2, 4))),
        *(
            ({"input_ids": IDS, "attention_mask": torch.zeros(shape)}, ("attention_mask", shape, (2, 4)))
            for shape in ((2, 3), (2, 5), (1, 4), (4,), (2, 4, 4))
        ),
        *(
            ({"input_ids": IDS, "position_ids": torch.zeros(shape, dtype=torch.long)}, ("position_ids", shape, (2, 4)))
            for shape in ((2, 3), (3, 4), (4,), (2, 4, 1))
        ),
    ],
)
@pytest.mark.parametrize("name", ["RoFormerModel", "NezhaModel"])
def test_values_out_of_range(name, inputs, facts):
    with refused(ValueError, *facts):
        make_refusing_model(name)(**{"attention_mask": MASK, **inputs})


@pytest.mark.parametrize(
    ("mask", "options", "is_masked", "is_packed"),
    [
        (MASK, {}, True, True),
        (MASK.flip(1), {}, True, False),  # a text begins with padding, which heads read
        (MASK, {"unpad_inputs": False}, True, False),
        (torch.ones_like(MASK), {}, False, False),
    ],
)
def test_padding_is_left_out_where_nothing_reads_it(mask, options, is_masked, is_packed, packs_any_padding):
    model = make_model("RoFormerModel")
    call = read_call(model, input_ids=IDS, attention_mask=mask, options={}, **options)
    assert (call.attention_mask is not None, call.packing is not None) == (is_masked, is_packed)
    model.encoder.layer[0]._orig_mod = True  # as in what torch.compile returns: new lengths would compile it again
    assert read_call(model, input_ids=IDS, attention_mask=mask, options={}, **options).packing is None


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


@pytest.mark.parametrize("shape", [(2, 1, 4, 1), (2, 1, 4, 3), (3, 1, 4, 4), (2, 3, 4, 4)])
def test_a_mask_of_pairs_is_as_wide_as_the_keys(shape):
    with refused(ValueError, "attention_mask", shape, (2, 1, 4, 4)):
        make_model("RoFormerModel")(IDS, attention_mask=torch.ones(shape))


@torch.no_grad()
def test_a_mask_covers_the_cached_tokens():
    model = make_model("RoFormerModel", is_decoder=True)
    cache = model(IDS, use_cache=True).past_key_values
    with refused(ValueError, "attention_mask", (2, 2), (2, 6)):
        model(IDS[:, :2], attention_mask=MASK[:, :2], past_key_values=cache)
    assert cache.get_seq_length() == 4
