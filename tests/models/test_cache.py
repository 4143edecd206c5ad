"""Decoders with a cache: words computed one by one or several at a time are those of the whole text at once."""

import pytest
import torch
from cases import CACHED, close, make_ids, make_variant, source_of
from helpers.messages import refused
from transformers import StaticCache

SOFTMAX = [name for name in CACHED if "linear" not in name]
STATIC = {"cache_implementation": "static", "disable_compile": True}
GREEDY = {"max_new_tokens": 7, "do_sample": False}


def make_decoder(variant, **fields):
    model = make_variant(variant, "ForCausalLM", **fields)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def greedy(model, ids, steps=7, segments=None):
    """Decode greedily, and compute the whole text anew for each word."""
    segments = torch.zeros_like(ids) if segments is None else segments
    source = source_of(model, len(ids))
    for _ in range(steps):
        with torch.no_grad():
            logits = model(ids, token_type_ids=segments, use_cache=False, **source).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        new = torch.ones_like(ids[:, :1]) if model.config.prefix_lm else segments[:, -1:]
        segments = torch.cat([segments, new], dim=1)
    return ids


@torch.no_grad()
@pytest.mark.parametrize("variant", CACHED)
def test_parts_of_a_text_have_the_logits_of_the_whole(variant):
    """The first part has all of a UniLM's prefix. Linear attention computes a long text in chunks."""
    model, s = make_decoder(variant), 140 if "linear" in variant else 16
    ids, mask, source = make_ids(2, s), torch.ones(2, s, dtype=torch.long), source_of(model, 2)
    mask[0, :3] = 0
    segments = (torch.arange(s) >= 5).long().expand(2, s)
    expected = model(ids, mask, segments, use_cache=False, **source).logits
    for parts in ([5, 1, s - 12, *[1] * 6], [s // 2, 1, 1, s - s // 2 - 2]):
        cache, done, logits = None, 0, []
        for part in parts:
            place = slice(done, done + part)
            inputs = {"token_type_ids": segments[:, place], "past_key_values": cache, "use_cache": True, **source}
            outputs = model(ids[:, place], mask[:, : place.stop], **inputs)
            cache, done = outputs.past_key_values, place.stop
            logits.append(outputs.logits)
            assert cache.get_seq_length() == done
        close(torch.cat(logits, dim=1)[mask != 0], expected[mask != 0], 1e-9)


@torch.no_grad()
@pytest.mark.parametrize("variant", [name for name in SOFTMAX if "cross" not in name])
def test_parts_in_a_cache_of_fixed_size_have_the_logits_of_the_whole(variant):
    model, ids, segments = make_decoder(variant), make_ids(2, 12), (torch.arange(12) >= 5).long().expand(2, 12)
    cache, logits = StaticCache(config=model.config, max_cache_len=16), []
    for part in (slice(7), slice(7, 8), slice(8, 12)):
        logits.append(model(ids[:, part], token_type_ids=segments[:, part], past_key_values=cache).logits)
    expected = model(ids, token_type_ids=segments, use_cache=False).logits
    close(torch.cat(logits, dim=1), expected, 1e-9)


def test_a_mask_of_three_dimensions_is_refused_with_a_cache_of_fixed_size():
    """A kernel on a GPU would read beyond the mask, and stop the process."""
    model = make_decoder(SOFTMAX[0])
    cache = StaticCache(config=model.config, max_cache_len=16)
    with refused(ValueError, "attention_mask", (2, 12, 12), (2, 12)):
        model(make_ids(2, 12), torch.ones(2, 12, 12), past_key_values=cache)


@pytest.mark.parametrize("variant", [*CACHED, "dynamic decoder"])
def test_generation_is_greedy_decoding(variant):
    """Dynamic NTK rotates all keys again with each word, and has no cache."""
    model, ids = make_decoder(variant), make_ids(2, 6)
    source, expected = source_of(model, 2), greedy(model, ids).tolist()
    for cache in ({}, {"use_cache": False}, STATIC if variant in SOFTMAX and not source else {}):
        assert model.generate(ids, **GREEDY, **cache, **source).tolist() == expected
    embeddings = model.get_input_embeddings()(ids)
    found = model.generate(inputs_embeds=embeddings, **GREEDY, **source)
    assert found.tolist() == [row[6:] for row in expected]


@pytest.mark.parametrize("options", [{"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True}], ids=str)
@pytest.mark.parametrize("variant", CACHED)
def test_beams_and_sampling_are_the_same_without_a_cache(variant, options):
    model, ids, found = make_decoder(variant), make_ids(2, 6), []
    for use_cache in (True, False):
        torch.manual_seed(11)
        options = {"max_new_tokens": 7, **options, **source_of(model, 2)}
        found.append(model.generate(ids, use_cache=use_cache, **options).tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("variant", [name for name in [*CACHED, "dynamic decoder"] if "cross" not in name])
def test_texts_padded_on_the_left_are_continued_as_alone(variant):
    model, ids, mask = make_decoder(variant), make_ids(2, 9), torch.ones(2, 9, dtype=torch.long)
    ids[0, :4], mask[0, :4] = 0, 0
    found = model.generate(ids, attention_mask=mask, **GREEDY)
    assert found[0, 4:].tolist() == greedy(model, ids[:1, 4:])[0].tolist()
    assert found[1].tolist() == greedy(model, ids[1:])[0].tolist()


@pytest.mark.parametrize("segments", [None, [[0] * 6 + [1] * 3]])
@pytest.mark.parametrize("variant", [name for name in SOFTMAX if "cross" not in name])
def test_assisted_decoding_is_greedy_decoding(variant, segments):
    """Candidates are tried several at once; they see what they would see one by one."""
    model, other = make_decoder(variant), make_decoder(variant, seed=3)
    segments = None if segments is None else torch.tensor(segments)
    ids = torch.randint(5, 20, (1, 9), generator=torch.Generator().manual_seed(0))  # few words, which recur
    expected = greedy(model, ids, 7, segments).tolist()
    for how in ({"prompt_lookup_num_tokens": 3}, {"assistant_model": other}):
        assert model.generate(ids, token_type_ids=segments, **GREEDY, **how).tolist() == expected
