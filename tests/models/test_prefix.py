"""Encoders that read keys and values in front of their text: against transformers' models, and trained by PEFT."""

import copy
from functools import partial

import pytest
import torch
import transformers.models.roformer.modeling_roformer as theirs
from helpers.messages import refused
from helpers.seq2seq_models import marian_and_ours
from helpers.small_models import small_config, small_model
from helpers.versions import reference_from
from peft import PeftModel, PrefixTuningConfig, get_peft_model
from torch.nn import functional as F
from transformers import BertConfig, BertModel, DynamicCache, EncoderDecoderCache, StaticCache

NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
P, S = 5, 8
HEADS = {
    "ForSequenceClassification": ("SEQ_CLS", {"labels": torch.tensor([0, 1])}),
    "ForTokenClassification": ("TOKEN_CLS", {"labels": torch.arange(2 * S).view(2, S) % 2}),
    "ForQuestionAnswering": (
        "QUESTION_ANS",
        {"start_positions": torch.tensor([0, 1]), "end_positions": torch.tensor([2, 3])},
    ),
    "Model": ("FEATURE_EXTRACTION", {}),
}
make_model = partial(small_model, num_attention_heads=4)


def make_ids(*shape):
    return torch.randint(5, 90, shape or (2, S), generator=torch.Generator().manual_seed(1))


def make_prefix(b=2, p=P, layers=2, heads=4, requires_grad=False):
    generator = torch.Generator().manual_seed(2)
    pairs = [
        tuple(torch.randn(b, heads, p, 8, generator=generator).requires_grad_(requires_grad) for _ in range(2))
        for _ in range(layers)
    ]
    return DynamicCache(pairs)


def make_mask(past=P):
    mask = torch.ones(2, past + S, dtype=torch.long)
    mask[1, -3:] = 0
    return mask


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("fields", [{}, {"rotary_value": True}, {"embedding_size": 16}])
def test_a_prefix_is_read_as_by_transformers_roformer(fields, padded, implementation):
    torch.manual_seed(0)
    other = make_model(theirs.RoFormerModel, **fields, max_position_embeddings=64)
    model = make_model(**fields, attn_implementation=implementation)
    model.load_state_dict(other.state_dict())
    mask, prefix = make_mask() if padded else None, make_prefix()
    with torch.no_grad():
        found = model(make_ids(), mask, past_key_values=prefix)
        expected = other(make_ids(), mask, past_key_values=copy.deepcopy(prefix)).last_hidden_state
        alone = model(make_ids(), mask if mask is None else mask[:, P:]).last_hidden_state
    keep = make_mask(0).bool() if padded else torch.ones(2, S, dtype=torch.bool)
    torch.testing.assert_close(found.last_hidden_state[keep], expected[keep], atol=5e-5, rtol=0)
    assert (found.last_hidden_state - alone)[keep].abs().amax(-1).min() > 0.05
    assert found.past_key_values is None
    assert prefix.get_seq_length() == P  # read, not written


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_prefix_shifts_learned_positions_as_berts_does(wrapped):
    torch.manual_seed(0)
    fields = {"initializer_range": 0.3, "max_position_embeddings": P + S}
    bert = BertModel(small_config(BertConfig, num_attention_heads=4, **fields), add_pooling_layer=False).eval()
    model = make_model(**fields, position_encoding="learned")
    model.load_state_dict(bert.state_dict())
    prefix = make_prefix()
    given = EncoderDecoderCache(prefix, DynamicCache()) if wrapped else prefix
    with torch.no_grad():
        found = model(make_ids(), make_mask(), past_key_values=given).last_hidden_state
        expected = bert(make_ids(), make_mask(), past_key_values=copy.deepcopy(prefix)).last_hidden_state
    keep = make_mask(0).bool()
    torch.testing.assert_close(found[keep], expected[keep], atol=5e-5, rtol=0)
    with refused(ValueError, P + S + 1, "max_position_embeddings", P + S):
        model(make_ids(2, S + 1), past_key_values=prefix)


def test_a_prefix_in_nezha_has_the_distances_of_tokens_before_the_text():
    """Tokens that do not see the text have the same keys and values whatever it is, so they can be a prefix."""
    model = make_model("NezhaModel", max_relative_position=6)
    kept = {}
    for i, layer in enumerate(model.encoder.layer):
        for name in ("key", "value"):
            module = getattr(layer.attention.self, name)
            module.register_forward_hook(lambda module, args, x, at=(i, name): kept.__setitem__(at, x))
    ids, mask = make_ids(2, P + S), torch.ones(2, 1, P + S, P + S, dtype=torch.bool)
    mask[:, :, :P, P:] = False
    with torch.no_grad():
        expected = model(ids, mask).last_hidden_state[:, P:]
        by_head = {at: x[:, :P].unflatten(-1, (4, 8)).transpose(1, 2) for at, x in kept.items()}
        prefix = DynamicCache([(by_head[i, "key"], by_head[i, "value"]) for i in range(2)])
        found = model(ids[:, P:], past_key_values=prefix).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["RoFormerModel", "NezhaModel"])
def test_a_prefix_under_gradient_checkpointing_gets_the_same_gradients(name):
    gradients = []
    for checkpointing in (False, True):
        model, prefix = make_model(name, **NO_DROPOUT).train(), make_prefix(requires_grad=True)
        leaves = [x for layer in prefix.layers for x in (layer.keys, layer.values)]
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        out = model(make_ids(), make_mask(), past_key_values=prefix).last_hidden_state
        gradients.append(torch.autograd.grad(out[:, 0].sin().sum(), leaves))
    for one, other in zip(*gradients, strict=True):
        assert other.abs().max() > 1e-4
        torch.testing.assert_close(one, other)


def test_a_prefix_is_cast_to_the_models_type():
    model, prefix = make_model().to(torch.bfloat16), make_prefix()
    with torch.no_grad():
        found = model(make_ids(), past_key_values=prefix).last_hidden_state
        expected = model.float()(make_ids(), past_key_values=prefix).last_hidden_state
        alone = model(make_ids()).last_hidden_state
    assert (expected - alone).abs().max() > 0.5
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0)


def test_unpadding_leaves_a_prefix_alone():
    model = make_model()
    with torch.no_grad():
        padded, unpadded = (
            model(make_ids(), make_mask(), past_key_values=make_prefix(), unpad_inputs=unpad).last_hidden_state
            for unpad in (False, True)
        )
    keep = make_mask(0).bool()
    torch.testing.assert_close(padded[keep], unpadded[keep])


@pytest.mark.parametrize("name", ["RoFormerForMultipleChoice", "NezhaForMultipleChoice", "RoFormerForTripletMatching"])
def test_a_prefix_of_several_sequences_an_example(name):
    """The head's vectors are those of the bare model, sequence by sequence."""
    model = make_model(name, **({"summary_type": "first"} if name == "RoFormerForMultipleChoice" else {}))
    ids, mask = make_ids(2, 2, S), torch.stack([make_mask(), make_mask().flip(0)], dim=1)
    with torch.no_grad():
        found = model(ids, mask, past_key_values=make_prefix(4)).logits
        outputs = model.base_model(ids.flatten(0, 1), mask.flatten(0, 1), past_key_values=make_prefix(4))
        if name == "RoFormerForTripletMatching":
            states = outputs.last_hidden_state.double()
            keep = mask.flatten(0, 1)[:, P:]
            means = torch.stack([x[k.bool()].mean(0) for x, k in zip(states, keep, strict=True)])
            expected = model.scorer(means.float())
        elif name == "NezhaForMultipleChoice":
            expected = model.classifier(outputs.pooler_output)
        else:
            expected = model.classifier(outputs.last_hidden_state[:, 0])
    torch.testing.assert_close(found, expected.view(2, 2), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("past_key_values", "fields", "facts"),
    [
        (make_prefix(), {"attention_type": "linear"}, ["attention_type", "past_key_values"]),
        (
            make_prefix(),
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4}},
            ["dynamic", "past_key_values"],
        ),
        (((torch.zeros(2, 4, P, 8),) * 2,) * 2, {}, ["past_key_values", "tuple", "DynamicCache"]),
        (make_prefix(layers=3), {}, ["past_key_values", "3 layers"]),
        (make_prefix(b=1), {}, ["past_key_values", "(1, 4, 5, 8)", "(2, 4, 5, 8)"]),
        (make_prefix(heads=2), {}, ["past_key_values", "(2, 2, 5, 8)", "(2, 4, 5, 8)"]),
    ],
)
def test_a_prefix_that_cannot_be_read_is_refused_by_name(past_key_values, fields, facts):
    model = make_model(**fields)
    with refused(ValueError, *facts):
        model(make_ids(), past_key_values=past_key_values)


def test_a_cache_of_fixed_size_is_no_prefix():
    model = make_model()
    cache = StaticCache(config=model.config, max_cache_len=20)
    for i in range(2):
        cache.update(torch.ones(2, 4, P, 8), torch.ones(2, 4, P, 8), i)
    with refused(ValueError, "past_key_values", "StaticCache", "DynamicCache"):
        model(make_ids(), past_key_values=cache)


def loss_of(outputs):
    return outputs.loss if "loss" in outputs else (outputs.last_hidden_state[:, 0, :4] - 1).square().mean()


@pytest.mark.parametrize("family", ["RoFormer", "Nezha"])
@pytest.mark.parametrize("head", HEADS)
def test_peft_trains_a_prefix_and_nothing_else(family, head, tmp_path):
    task, labels = HEADS[head]
    base = make_model(family + head, **NO_DROPOUT)
    torch.manual_seed(3)
    model = get_peft_model(copy.deepcopy(base), PrefixTuningConfig(task_type=task, num_virtual_tokens=P)).train()
    start = {name: x.detach().clone() for name, x in model.named_parameters()}
    optimizer = torch.optim.AdamW([x for x in model.parameters() if x.requires_grad], lr=0.05)
    batch = {"input_ids": make_ids(), "attention_mask": make_mask(0), "token_type_ids": make_ids() % 2}
    losses = []
    for _ in range(15):
        loss = loss_of(model(**batch, **labels))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    changed = {name for name, x in model.named_parameters() if not torch.equal(x, start[name])}
    assert any("prompt_encoder" in name for name in changed)
    assert all("prompt_encoder" in name or "modules_to_save" in name for name in changed)

    with torch.no_grad():
        expected = model.eval()(**batch, **labels)
        model.save_pretrained(tmp_path)
        found = PeftModel.from_pretrained(copy.deepcopy(base), tmp_path).eval()(**batch, **labels)
        without = base(**batch, **labels)
    for name, x in expected.items():
        if isinstance(x, torch.Tensor):
            assert torch.equal(found[name], x)
            assert not torch.equal(without[name], x)


@reference_from("transformers", "5.23", "PEFT cannot generate with its Marian")
def test_peft_prefixes_of_translation_models_are_marians():
    """A prefix for the decoder's self-attention; the encoder and cross-attention have none."""
    outputs = []
    for model in marian_and_ours():
        config = PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=P, num_attention_heads=2, num_layers=3)
        torch.manual_seed(0)
        adapted = get_peft_model(model, config).eval()
        ids, mask = make_ids() % 40 + 5, make_mask(0)
        with torch.no_grad():
            logits = adapted(input_ids=ids, attention_mask=mask, labels=ids).logits
            text = adapted.generate(input_ids=ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
            assert (logits - model(ids, mask, labels=ids).logits).abs().max() > 0.1
        outputs.append((logits, text.tolist()))
    torch.testing.assert_close(*(logits for logits, _ in outputs), atol=1e-5, rtol=0)
    assert outputs[0][1] == outputs[1][1]


@pytest.mark.parametrize(
    ("head", "task", "fields"),
    [
        ("RoFormerForSequenceClassification", "SEQ_CLS", {}),
        ("RoFormerForCausalLM", "CAUSAL_LM", {"is_decoder": True}),
    ],
)
def test_peft_is_told_which_models_read_no_prefix(head, task, fields):
    model = make_model(head, attention_type="linear", **fields)
    model = get_peft_model(model, PrefixTuningConfig(task_type=task, num_virtual_tokens=P))
    with refused(ValueError, 'attention_type="linear"', "prefix"):
        model(input_ids=make_ids(), attention_mask=make_mask(0))


def test_a_decoder_reads_a_prefix_under_gradient_checkpointing():
    """It writes no cache there, for layers are computed twice, but what it was given counts."""
    outputs = []
    for checkpointing in (False, True):
        model, prefix = make_model("RoFormerForCausalLM", is_decoder=True, **NO_DROPOUT).train(), make_prefix()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        out = model(make_ids(), make_mask(), past_key_values=prefix, labels=make_ids())
        out.loss.backward()
        outputs.append((out.logits, model.roformer.encoder.layer[0].attention.self.query.weight.grad))
        assert (out.past_key_values is None) == checkpointing
    torch.testing.assert_close(*outputs)
    with torch.no_grad():
        alone = model(make_ids(), make_mask(0)).logits
    assert (outputs[1][0] - alone)[make_mask(0).bool()].abs().amax(-1).min() > 0.05


def test_generation_in_training_mode_with_gradient_checkpointing_is_the_same():
    model = make_model("RoFormerForCausalLM", is_decoder=True, **NO_DROPOUT)
    settings = dict(max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
    expected = model.generate(make_ids(), **settings)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    found = model.train().generate(make_ids(), **settings)
    assert found.tolist() == expected.tolist()


def test_a_prefix_is_the_formula_written_out():
    """One layer: o_i = Σ_j softmax_j(R(p + i)q_i · k_j / √d) v_j, prefix keys as given, the text's rotated by p + i."""
    model, prefix = make_model(num_hidden_layers=1).double(), make_prefix(layers=1)
    with torch.no_grad():
        found = model(make_ids(), past_key_values=prefix, output_hidden_states=True, output_attentions=True)
        layer = model.encoder.layer[0].attention
        x = found.hidden_states[0]
        q, k, v = (
            getattr(layer.self, n)(x).view(2, S, 4, 8).transpose(1, 2).clone() for n in ("query", "key", "value")
        )
        for i in range(S):
            for t in range(4):
                angle = torch.tensor((P + i) * 10000.0 ** (-2 * t / 8), dtype=torch.float64)
                turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
                for y in (q, k):
                    y[:, :, i, 2 * t : 2 * t + 2] = y[:, :, i, 2 * t : 2 * t + 2] @ turn.T
        k, v = (torch.cat([a.double(), b], dim=2) for a, b in zip(next(iter(prefix)), (k, v), strict=False))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        context = layer.output.dense((weights @ v).transpose(1, 2).flatten(-2)) + x
        expected = F.layer_norm(context, (32,), eps=model.config.layer_norm_eps)
        expected = model.encoder.layer[0].feed_forward(expected)
    torch.testing.assert_close(found.attentions[0], weights, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.last_hidden_state, expected, atol=1e-6, rtol=0)
