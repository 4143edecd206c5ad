"""Causal and prefix language models: against transformers, the masks written out, and with and without cache."""

from collections import Counter

import pytest
import torch
import transformers.models.roformer.modeling_roformer as theirs
from cases import DECODER, NO_DROPOUT
from helpers.messages import refused
from helpers.small_models import small_model
from test_cache import greedy
from test_operations import CountOperations
from transformers import DynamicCache, StaticCache

KINDS = {"causal": {}, "prefix": {"prefix_lm": True}}


def make_model(seed=2, **fields):
    model = small_model("RoFormerForCausalLM", seed, **{"vocab_size": 120, **DECODER, **fields}).double()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def prompt(b=2, s=9):
    return torch.randint(5, 120, (b, s), generator=torch.Generator().manual_seed(5))


def make_cross_pair():
    their_model = small_model(theirs.RoFormerForCausalLM, vocab_size=120, **DECODER, add_cross_attention=True).double()
    our_model = small_model("RoFormerForCausalLM", vocab_size=120, **DECODER, add_cross_attention=True).double()
    our_model.load_state_dict(their_model.state_dict())
    return our_model, their_model


def test_cross_attention_equals_transformers():
    our_model, their_model = make_cross_pair()
    encoded, padding = torch.randn(2, 7, 32, dtype=torch.float64), torch.ones(2, 7, dtype=torch.long)
    padding[1, 4:] = 0
    batch = dict(
        input_ids=prompt(), encoder_hidden_states=encoded, encoder_attention_mask=padding, output_attentions=True
    )
    with torch.no_grad():
        one, other = our_model(**batch), their_model(**batch)
    torch.testing.assert_close(one.logits, other.logits, atol=1e-9, rtol=0)
    for a, b in zip(one.cross_attentions, other.cross_attentions, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=0)


def test_cross_attention_that_the_model_lacks_is_refused():
    with refused(ValueError, "encoder_hidden_states", "add_cross_attention=True"):
        make_model()(prompt(), encoder_hidden_states=torch.zeros(2, 3, 32))


def test_an_encoder_generates_nothing():
    """Only the last word of a text would reach it."""
    with refused(ValueError, "is_decoder=True"):
        make_model(is_decoder=False).generate(prompt(), max_new_tokens=2)


def test_a_prefix_goes_on_from_a_cache_that_has_all_of_it():
    model, ids = make_model(prefix_lm=True), prompt(s=8)
    segments = torch.tensor([[0] * 5 + [1] * 3] * 2)

    def cache(length):
        with torch.no_grad():
            return model(ids[:, :length], token_type_ids=segments[:, :length], use_cache=True).past_key_values

    expected = model.generate(ids, token_type_ids=segments, max_new_tokens=5, do_sample=False, use_cache=False)
    for length in (5, 6, 7):
        found = model.generate(
            ids, token_type_ids=segments, past_key_values=cache(length), max_new_tokens=5, do_sample=False
        )
        assert found.equal(expected)
    for options in ({"token_type_ids": segments, "past_key_values": cache(4)}, {"past_key_values": cache(5)}):
        with refused(ValueError, "past_key_values", "prefix_lm", "token_type_ids"):
            model.generate(ids, max_new_tokens=5, **options)


@torch.no_grad()
def test_a_cache_continues_with_another_run_of_segment_0():
    """Its tokens see each other, too."""
    model, ids = make_model(prefix_lm=True), prompt(s=8)
    segments = torch.tensor([[0, 0, 0, 1, 0, 0, 1, 0]] * 2)
    expected = model(ids, token_type_ids=segments, use_cache=False).logits
    cache, logits = None, []
    for part in (slice(3), slice(3, 6), slice(6, 8)):
        outputs = model(ids[:, part], token_type_ids=segments[:, part], past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        logits.append(outputs.logits)
    torch.testing.assert_close(torch.cat(logits, 1), expected, atol=1e-9, rtol=0)


def test_a_prefix_is_not_guided():
    """Without a prompt, transformers computes the words as a prompt, and says nothing of their segments."""
    model = make_model(prefix_lm=True)
    with refused(ValueError, "guidance_scale", "prefix_lm"):
        model.generate(prompt(), max_new_tokens=2, guidance_scale=1.5)
    expected = model.generate(prompt(), max_new_tokens=4, do_sample=False)
    assert model.generate(prompt(), max_new_tokens=4, do_sample=False, guidance_scale=1).equal(expected)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("segments", ["all 0", "0 then 1", "0 1 0 1"])
def test_prefix_mask_written_out(implementation, segments):
    """bert4keras' UniLM_Mask: i sees j where the sum of segments up to j is not greater than that up to i."""
    s = 9
    rows = {"all 0": [0] * s, "0 then 1": [0] * 4 + [1] * 5, "0 1 0 1": [0, 0, 1, 1, 0, 0, 0, 1, 1]}[segments]
    token_type_ids = torch.tensor([rows, [0] * s])
    allowed = torch.zeros(2, s, s, dtype=torch.bool)
    for b in range(2):
        for i in range(s):
            for j in range(s):
                sums = [sum(token_type_ids[b, : n + 1].tolist()) for n in (j, i)]
                allowed[b, i, j] = sums[0] <= sums[1]
    model = make_model(prefix_lm=True)
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        found = model(prompt(s=s), token_type_ids=token_type_ids, output_attentions=True)
        assert ((found.attentions[0] > 0) == allowed[:, None]).all()
        fast = model(prompt(s=s), token_type_ids=token_type_ids).logits
        explicit = model(prompt(s=s), token_type_ids=token_type_ids, attention_mask=allowed[:, None]).logits
    torch.testing.assert_close(fast, found.logits, atol=1e-9, rtol=0)
    torch.testing.assert_close(explicit, found.logits, atol=1e-9, rtol=0)


def test_prefix_generation_goes_on_from_given_segments():
    """The first words of the answer may be given: they are segment 1 of the prompt."""
    model = make_model(prefix_lm=True)
    segments = torch.tensor([[0] * 6 + [1] * 3] * 2)
    expected = greedy(model, prompt(), 8, segments).tolist()
    for given in (segments, segments[:, :6]):
        found = model.generate(prompt(), token_type_ids=given, max_new_tokens=8, do_sample=False)
        assert found.tolist() == expected


def test_an_assistant_knows_the_segments():
    """One with the same weights proposes what is then accepted, so that a call of the model gives several words."""
    calls = {}
    for kind in ("causal", "prefix"):
        model, assistant = make_model(**KINDS[kind]), make_model(**KINDS[kind])
        calls[kind] = 0

        def count(*args, kind=kind):
            calls[kind] += 1

        model.register_forward_hook(count)
        model.generate(prompt(b=1), max_new_tokens=12, do_sample=False, assistant_model=assistant)
    assert calls["prefix"] == calls["causal"] < 12


def test_a_prefix_is_not_read_in_chunks():
    """Its first words would not see the last ones."""
    model = make_model(prefix_lm=True)
    with refused(ValueError, "prefill_chunk_size", "prefix_lm"):
        model.generate(prompt(), max_new_tokens=2, prefill_chunk_size=4)
    model = make_model()
    found = model.generate(prompt(), max_new_tokens=8, do_sample=False, prefill_chunk_size=4)
    assert found.tolist() == greedy(model, prompt(), 8).tolist()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"attention_type": "linear"},
        {"attention_type": "linear", "linear_feature_map": "favor"},
        {"prefix_lm": True},
    ],
)
@pytest.mark.parametrize("length", [1, 4])
@torch.no_grad()
def test_a_cache_that_does_not_fit_is_refused_and_kept(fields, length):
    model, ids = make_model(**fields), prompt(b=3)

    def cache(b=3, **others):
        return make_model(**{**fields, **others})(ids[:b, :4], use_cache=True).past_key_values

    for layers in (1, 4):
        unfit = cache(num_hidden_layers=layers)
        with refused(ValueError, "past_key_values", f"{layers} layers", "the model has 2"):
            model(ids[:, 4 : 4 + length], past_key_values=unfit)
        assert unfit.get_seq_length() == 4
    for unfit, texts in ((cache(b=1), 3), (cache(b=3), 1), (cache(num_attention_heads=4), 3)):
        with pytest.raises((ValueError, RuntimeError)):  # torch's, for keys and values
            model(ids[:texts, 4 : 4 + length], past_key_values=unfit)
        assert unfit.get_seq_length() == 4
    repeated, segments = cache(b=1), torch.tensor([[0] * 4 + [1] * length] * 3)
    repeated.batch_repeat_interleave(3)
    whole = torch.cat([ids[:1, :4].expand(3, 4), ids[:, 4 : 4 + length]], 1)
    expected = model(whole, token_type_ids=segments, use_cache=False).logits[:, 4:]
    found = model(whole[:, 4:], token_type_ids=segments[:, 4:], past_key_values=repeated).logits
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("fields", [{}, {"attention_type": "linear"}])
@torch.no_grad()
def test_the_cache_has_two_names(fields):
    """transformers 5.24 calls it `cache`; both names are those of any version."""
    model, ids = make_model(**fields), prompt(s=8)
    expected = model(ids, use_cache=False).logits[:, 4:]
    generated = model.generate(ids, max_new_tokens=4, do_sample=False, use_cache=False)
    for name in ("cache", "past_key_values"):
        cache = model(ids[:, :4], use_cache=True).past_key_values
        torch.testing.assert_close(model(ids[:, 4:], **{name: cache}).logits, expected, atol=1e-9, rtol=0)
        cache = model(ids[:, :4], use_cache=True).past_key_values
        assert model.generate(ids, max_new_tokens=4, do_sample=False, **{name: cache}).equal(generated)
        assert cache.get_seq_length() == 11
    for call in (model, model.generate):
        with refused(ValueError, "cache", "past_key_values", "PEFT 0.22"):  # PEFT 0.21 gives both to transformers 5.24
            call(ids, cache=cache, past_key_values=cache)


def make_prefix(p=5):
    generator = torch.Generator().manual_seed(2)
    return DynamicCache(
        [tuple(torch.randn(2, 2, p, 16, generator=generator, dtype=torch.float64) for _ in range(2)) for _ in range(2)]
    )


def test_a_decoder_reads_a_prefix_under_gradient_checkpointing():
    """It writes no cache there, for layers are computed twice, but what it was given counts."""
    outputs, mask = [], torch.ones(2, 5 + 9, dtype=torch.long)
    mask[1, -3:] = 0
    for checkpointing in (False, True):
        model, prefix = make_model(**NO_DROPOUT).train(), make_prefix()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        out = model(prompt(), mask, past_key_values=prefix, labels=prompt())
        out.loss.backward()
        outputs.append((out.logits, model.roformer.encoder.layer[0].attention.self.query.weight.grad))
        assert (out.past_key_values is None) == checkpointing
        assert prefix.get_seq_length() == (5 if checkpointing else 5 + 9)
    torch.testing.assert_close(*outputs)
    with torch.no_grad():
        alone = model(prompt(), mask[:, 5:]).logits
    assert (outputs[1][0] - alone)[mask[:, 5:].bool()].abs().amax(-1).min() > 0.05


def test_caches_that_gradient_checkpointing_cannot_read_are_refused():
    model = make_model().train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    cache = StaticCache(config=model.config, max_cache_len=20)
    assert model(prompt(), past_key_values=cache).past_key_values is None  # an empty one has nothing to read
    for i in range(2):
        cache.update(torch.ones(2, 2, 5, 16), torch.ones(2, 2, 5, 16), i)
    with refused(ValueError, "past_key_values", "StaticCache", "DynamicCache", "gradient checkpointing"):
        model(prompt(), past_key_values=cache)
    linear = make_model(attention_type="linear")
    cache = linear(prompt(), use_cache=True).past_key_values
    linear.train().gradient_checkpointing_enable({"use_reentrant": False})
    with refused(ValueError, "past_key_values", "LinearAttentionCache", "gradient checkpointing"):
        linear(prompt(), past_key_values=cache)


def test_generation_in_training_mode_with_gradient_checkpointing_is_the_same():
    model = make_model(**NO_DROPOUT)
    settings = dict(max_new_tokens=6, do_sample=False)
    expected = model.generate(prompt(), **settings)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    found = model.train().generate(prompt(), **settings)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "past", [{"past_key_values": make_prefix()}, {"cache": make_prefix()}, {"past_key_values": ()}]
)
@pytest.mark.parametrize("name", ["RoFormerModel", "RoFormerForTokenClassification", "NezhaForPreTraining"])
def test_an_encoder_refuses_a_prefix(name, past):
    with refused(ValueError, "encoder", "past_key_values", "prefix tuning", "LoRA"):
        small_model(name)(prompt() % 90, **past)


def test_an_encoder_reads_an_empty_cache_as_none():
    model, ids = small_model("RoFormerModel"), prompt() % 90
    with torch.no_grad():
        outputs = model(ids, past_key_values=DynamicCache(config=model.config))
        assert outputs.last_hidden_state.equal(model(ids).last_hidden_state)
    assert outputs.past_key_values is None


@pytest.mark.slow
def test_a_compiled_step_with_a_static_cache():
    model = make_model().float()
    cache = StaticCache(config=model.config, max_cache_len=16)
    with torch.no_grad():
        first = model(prompt(), past_key_values=cache, use_cache=True).logits
        step = torch.compile(model, fullgraph=True)
        mask = torch.ones(2, 16, dtype=torch.long)
        mask[:, 10:] = 0
        second = step(prompt(s=1), past_key_values=cache, position_ids=torch.tensor([[9]]), attention_mask=mask).logits
        expected = model(torch.cat([prompt(), prompt(s=1)], 1), use_cache=False).logits
    torch.testing.assert_close(torch.cat([first, second], 1), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("keep", [1, 3, torch.tensor([0, 4])])
def test_logits_of_some_positions_only(keep):
    model = make_model()
    with torch.no_grad():
        everything, some = model(prompt()).logits, model(prompt(), logits_to_keep=keep).logits
    expected = everything[:, keep] if isinstance(keep, torch.Tensor) else everything[:, -keep:]
    torch.testing.assert_close(some, expected)


def test_flash_refuses_the_prefix_mask():
    model = make_model(prefix_lm=True).to(torch.bfloat16)
    model.config._attn_implementation = "flash_attention_2"
    with refused(ValueError, '"flash_attention_2"', "prefix_lm"):
        model(prompt())


@pytest.mark.parametrize("is_padded", [False, True])
def test_a_step_with_the_prefix_mask_computes_what_a_causal_step_does(is_padded):
    counts = []
    for kind in ("prefix", "causal"):
        model, mask = make_model(**KINDS[kind]), torch.ones(2, 10, dtype=torch.long)
        mask[0, :3] = 0 if is_padded else 1
        with torch.no_grad():
            cache = model(prompt(), mask[:, :9], use_cache=True).past_key_values
            with CountOperations() as operations:
                model(prompt(s=1), mask, past_key_values=cache)
        counts.append(operations.counts)
    assert counts[0] == counts[1] != Counter()


@pytest.mark.parametrize("positions", [{}, {"position_ids": torch.arange(9)[None]}])
def test_a_tuple_is_no_cache(positions):
    keys_and_values = ((torch.zeros(2, 2, 3, 16), torch.zeros(2, 2, 3, 16)),) * 2
    with refused(ValueError, "past_key_values", "tuple", "needs a Cache"):
        make_model()(prompt(), past_key_values=keys_and_values, **positions)
