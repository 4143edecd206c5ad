"""Generation with linear attention: a state of constant size in place of keys and values."""

import copy

import pytest
import torch
from helpers.messages import refused
from helpers.small_models import small_config
from test_linear_attention import MAPS, fields_of, make_ids, make_model
from transformers import DynamicCache, StaticCache

from modeling_roformer import RoFormerForCausalLM
from modeling_roformer.linear_cache import LinearAttentionCache


def make_decoder(name, **more):
    model = make_model(name, RoFormerForCausalLM, num_hidden_layers=2, is_decoder=True, **more)
    model.generation_config.pad_token_id = 0
    return model


@pytest.mark.parametrize("name", MAPS)
def test_generation_with_the_state_is_generation_without_it(name):
    """Token for token, greedy and by beams, and texts with padding on their left as by themselves."""
    model = make_decoder(name)
    ids, new = make_ids(3, 80), dict(max_new_tokens=12, min_new_tokens=12)
    mask = torch.ones_like(ids)
    ids[0, :30], mask[0, :30] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    expected = model.generate(**inputs, **new, use_cache=False)
    assert torch.equal(model.generate(**inputs, **new), expected)
    assert torch.equal(model.generate(ids[:1, 30:], **new)[:, -12:], expected[:1, -12:])
    beams = dict(**new, num_beams=3, num_return_sequences=2)
    assert torch.equal(model.generate(**inputs, **beams), model.generate(**inputs, **beams, use_cache=False))


@pytest.mark.parametrize("name", MAPS)
def test_logits_step_by_step(name):
    """One token at a time, or some of them, give what all at once do."""
    model, ids = make_decoder(name).double(), make_ids(2, 140)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    with torch.no_grad():
        expected = model(ids, attention_mask=mask, use_cache=False).logits
        for parts in ([1] * 140, [70, 1, 1, 68], [3, 137]):
            cache, done, logits = None, 0, []
            for part in parts:
                outputs = model(
                    ids[:, done : done + part],
                    attention_mask=mask[:, : done + part],
                    past_key_values=cache,
                    use_cache=True,
                )
                cache, done = outputs.past_key_values, done + part
                logits.append(outputs.logits)
                assert cache.get_seq_length() == done
            assert (torch.cat(logits, dim=1) - expected)[mask.bool()].abs().max() < 1e-9


def size_of(cache):
    return [x.shape for layer in cache.layers for x in layer.sums if x is not None]


def test_the_state_has_a_constant_size():
    model = make_decoder("softmax")
    with torch.no_grad():
        short, long = (model(make_ids(2, s), use_cache=True).past_key_values for s in (1, 300))
    assert size_of(short) == size_of(long) == [(2, 2, 16, 16), (2, 2, 16), (2, 2)] * 2
    assert isinstance(long, LinearAttentionCache) and long.get_seq_length() == 300


def test_texts_of_a_batch_are_picked_reordered_and_repeated():
    model, ids = make_decoder("favor").double(), make_ids(3, 20)
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
        expected = model(torch.cat([ids, ids[:, :1]], dim=1)).logits[:, -1]

        def next_logits(cache, rows):
            return model(ids[rows, :1], past_key_values=copy.deepcopy(cache), use_cache=True).logits[:, -1]

        changed = copy.deepcopy(cache)
        changed.reorder_cache(torch.tensor([2, 0, 0]))
        torch.testing.assert_close(next_logits(changed, [2, 0, 0]), expected[[2, 0, 0]], atol=1e-9, rtol=0)
        changed = copy.deepcopy(cache)
        changed.batch_select_indices(torch.tensor([1]))
        torch.testing.assert_close(next_logits(changed, [1]), expected[[1]], atol=1e-9, rtol=0)
        changed = copy.deepcopy(cache)
        changed.batch_repeat_interleave(2)
        rows = [0, 0, 1, 1, 2, 2]
        torch.testing.assert_close(next_logits(changed, rows), expected[rows], atol=1e-9, rtol=0)
        changed.reset()
        assert changed.get_seq_length() == 0
        torch.testing.assert_close(
            model(ids, past_key_values=changed, use_cache=True).logits, model(ids).logits, atol=1e-9, rtol=0
        )


def test_a_key_larger_than_all_before_it():
    """The state is scaled down, and what was said before it does not change."""
    model = make_decoder("softmax")
    with torch.no_grad():
        embeddings = model.get_input_embeddings()(make_ids(1, 90))
        key = model.roformer.encoder.layer[0].attention.self.key
        key.weight.mul_(200)  # exponents of up to some hundreds
        together = model(inputs_embeds=embeddings, use_cache=False).logits
        cache, logits = None, []
        for i in range(90):
            outputs = model(inputs_embeds=embeddings[:, i : i + 1], past_key_values=cache, use_cache=True)
            cache = outputs.past_key_values
            logits.append(outputs.logits)
    assert together.isfinite().all()
    torch.testing.assert_close(torch.cat(logits, 1), together, atol=5e-3, rtol=1e-3)


def test_cross_attention_stays_softmax():
    model = make_decoder("elu", add_cross_attention=True).double()
    ids, encoder = make_ids(2, 9), torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(4)).double()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        expected = model(ids, encoder_hidden_states=encoder, encoder_attention_mask=mask).logits
        cache, logits = None, []
        for i in range(9):
            outputs = model(
                ids[:, i : i + 1],
                encoder_hidden_states=encoder,
                encoder_attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
            )
            cache = outputs.past_key_values
            logits.append(outputs.logits)
    torch.testing.assert_close(torch.cat(logits, 1), expected, atol=1e-9, rtol=0)


def test_what_cannot_be_taken_back_is_said():
    model, ids = make_decoder("elu"), make_ids(1, 6)
    cache = model(ids, use_cache=True).past_key_values
    with refused(ValueError, "cache", "prompt_lookup_num_tokens"):
        cache.crop(-1)
    assert not cache.is_croppable
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, prompt_lookup_num_tokens=2, max_new_tokens=3)
    with refused(ValueError, 'cache_implementation="static"'):
        model.generate(ids, cache_implementation="static", max_new_tokens=3)
    assert model.generate(ids, cache_implementation="dynamic", max_new_tokens=3).shape == (1, 9)


def test_caches_of_the_other_attention_are_refused():
    linear, ids = make_decoder("elu"), make_ids(1, 6)
    softmax = RoFormerForCausalLM(small_config(num_hidden_layers=1, is_decoder=True)).eval()
    for cache in (DynamicCache(), StaticCache(config=softmax.config, max_cache_len=8)):
        facts = "past_key_values", type(cache).__name__, 'attention_type="linear"', "LinearAttentionCache"
        with refused(ValueError, *facts):
            linear(ids, past_key_values=cache)
    with refused(ValueError, "past_key_values", "LinearAttentionCache", 'attention_type="softmax"'):
        softmax(ids, past_key_values=LinearAttentionCache(linear.config))


def test_a_model_without_positions_generates():
    config = small_config(num_hidden_layers=1, **fields_of("elu"), is_decoder=True, position_encoding="none")
    model = RoFormerForCausalLM(config).eval()
    ids = make_ids(2, 7)
    new = dict(max_new_tokens=4, min_new_tokens=4, pad_token_id=0)
    assert torch.equal(model.generate(ids, **new), model.generate(ids, **new, use_cache=False))
