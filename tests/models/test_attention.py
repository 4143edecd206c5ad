"""Attention implementations: equal where they are offered, one sentence where they are not."""

import pytest
import torch
from helpers.messages import refused
from helpers.small_models import small_config, small_model

from modeling_roformer import RoFormerModel
from modeling_roformer.attention import RoFormerSelfAttention, check_kernel


def make_model(implementation="sdpa", **changes):
    model = small_model(**{"hidden_size": 64, "initializer_range": 0.1, **changes})
    model.config._attn_implementation = implementation
    return model


@pytest.fixture
def batch():
    ids = torch.randint(5, 100, (2, 24), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, 15:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("implementation", ["sdpa", "flex_attention", "flash_attention_2"])
def test_matrices_under_every_implementation(implementation, batch):
    """No kernel is called for them, so this runs where flash attention is not installed."""
    eager, model = make_model("eager"), make_model(implementation)
    with torch.no_grad():
        expected, found = eager(**batch, output_attentions=True), model(**batch, output_attentions=True)
    for one, other in zip(found.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(one, other)
        assert (one[1, :, :, 15:] == 0).all()  # nobody looks at padding
        torch.testing.assert_close(one.sum(-1), torch.ones(2, 2, 24))
    assert model.config._attn_implementation == implementation


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("form", ["boolean", "integer", "added"])
def test_masks_of_four_dimensions(implementation, form, batch):
    """Each sample sees its first 9 tokens and its last 15 as two texts."""
    block = torch.zeros(24, 24, dtype=torch.bool)
    block[:9, :9] = block[9:, 9:] = True
    mask = block.expand(2, 1, 24, 24)
    if form == "integer":
        mask = mask.long()
    elif form == "added":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    model = make_model(implementation)
    with torch.no_grad():
        found = model(batch["input_ids"], attention_mask=mask).last_hidden_state
        model.config._attn_implementation = "sdpa"
        first = model(batch["input_ids"][:, :9]).last_hidden_state
        second = model(batch["input_ids"][:, 9:]).last_hidden_state
    torch.testing.assert_close(found, torch.cat([first, second], dim=1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("excluded", [-torch.inf, torch.finfo(torch.float32).min, -1e9])
def test_an_added_mask_may_leave_a_token_nothing_to_see(excluded, dtype, implementation, batch):
    """Padding on the left sees no token before it, and each token after it what the boolean mask lets it see."""
    keep = torch.ones(24, 24, dtype=torch.bool).tril()
    keep[:, :4] = False
    keep = keep.expand(2, 1, 24, 24)
    model = make_model(implementation).to(dtype)
    with torch.no_grad():
        added = torch.zeros(keep.shape).masked_fill(~keep, excluded)
        found = model(batch["input_ids"], attention_mask=added).last_hidden_state
        expected = model(batch["input_ids"], attention_mask=keep).last_hidden_state
    assert found.isfinite().all()
    torch.testing.assert_close(found[:, 4:], expected[:, 4:])


SOURCE = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("form", [torch.bool, torch.long, torch.float32])
def test_masks_of_four_dimensions_for_a_source(form, implementation, batch):
    model = small_model(attn_implementation=implementation, is_decoder=True, add_cross_attention=True)
    ids, states = batch["input_ids"], torch.randn(2, 5, 32)
    mask = SOURCE[:, None, None].expand(2, 1, 24, 5)
    mask = torch.zeros(mask.shape).masked_fill(mask == 0, -torch.inf) if form == torch.float32 else mask.to(form)
    with torch.no_grad():
        expected = model(ids, encoder_hidden_states=states, encoder_attention_mask=SOURCE).last_hidden_state
        found = model(ids, encoder_hidden_states=states, encoder_attention_mask=mask).last_hidden_state
    torch.testing.assert_close(found, expected)


def test_texts_may_share_one_source(batch):
    model = small_model(is_decoder=True, add_cross_attention=True)
    ids, states = batch["input_ids"], torch.randn(1, 5, 32)
    with torch.no_grad():
        found = model(ids, encoder_hidden_states=states, encoder_attention_mask=SOURCE[:1]).last_hidden_state
        expected = model(ids, encoder_hidden_states=states[:, :3]).last_hidden_state
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(1, 5), (2, 4), (2, 6), (5,), (2, 24, 5)])
def test_the_mask_of_a_source_has_its_shape(shape, batch):
    model = small_model(is_decoder=True, add_cross_attention=True)
    source = {"encoder_hidden_states": torch.randn(2, 5, 32), "encoder_attention_mask": torch.zeros(shape)}
    with refused(ValueError, "encoder_attention_mask", shape, (2, 5)):
        model(batch["input_ids"], **source)


@pytest.mark.parametrize("padding", [False, pytest.param(True, marks=pytest.mark.slow)])  # its mask is compiled
@pytest.mark.parametrize("gradients", [True, False])
def test_flex_is_refused_on_a_cpu(gradients, padding, batch, tmp_path):
    """There it gives NaN now and then. The model may be loaded there, on its way to a GPU."""
    make_model().save_pretrained(tmp_path)
    model = RoFormerModel.from_pretrained(tmp_path, attn_implementation="flex_attention")
    with refused(ValueError, '"flex_attention"', "CPU", '"sdpa"'), torch.set_grad_enabled(gradients):
        model(**(batch if padding else {"input_ids": batch["input_ids"]}))
    model.set_attn_implementation("sdpa")
    assert model(**batch).last_hidden_state.isfinite().all()


def test_flex_refuses_dropout_in_training():
    """On any other device than a CPU, where it is refused anyway."""
    attention = make_model("flex_attention").train().encoder.layer[0].attention.self
    with refused(ValueError, '"flex_attention"', "attention_probs_dropout_prob", '"sdpa"'):
        check_kernel(attention, "flex_attention", torch.ones(1, 2, 3, 4, device="meta"))


@pytest.mark.parametrize("implementation", ["flash_attention_2", "flex_attention"])
def test_some_refuse_masks_of_four_dimensions(implementation, batch):
    model = make_model(implementation).to("meta", torch.bfloat16)  # flex attention is refused on a CPU anyway
    with refused(ValueError, f'"{implementation}"', "attention_mask", "(batch, length)"), torch.no_grad():
        model(batch["input_ids"].to("meta"), attention_mask=torch.ones(2, 1, 24, 24, device="meta"))


def test_dropout_is_off_in_evaluation_and_on_in_training(batch):
    model = make_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    assert torch.equal(model(**batch).last_hidden_state, model(**batch).last_hidden_state)
    model.train()
    assert not torch.equal(model(**batch).last_hidden_state, model(**batch).last_hidden_state)


def test_a_config_without_an_implementation_is_eager(batch):
    """It is one that was not made by a model, as a new one for a layer alone or in place of the model's."""
    models = [small_model(is_decoder=is_decoder, attn_implementation="eager") for is_decoder in (False, True)]
    for model in models:
        expected = model(**batch).last_hidden_state
        model.config._attn_implementation = None
        assert torch.equal(model(**batch).last_hidden_state, expected)
    attention, hidden_states = RoFormerSelfAttention(small_config(), layer_idx=0), torch.randn(2, 5, 32)
    assert attention(hidden_states)[1].shape == (2, 2, 5, 5)
