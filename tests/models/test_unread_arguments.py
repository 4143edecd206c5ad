"""A keyword argument that nothing reads is named, once; what transformers and its users pass on is not."""

import inspect
import logging
from typing import Any

import pytest
import torch
from helpers.messages import assert_states
from helpers.small_models import small_model
from transformers import Trainer, TrainingArguments
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import TransformersKwargs

import modeling_roformer as ours

IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 1]])
MASK = torch.ones_like(IDS)
SEQUENCES = {"RoFormerForMultipleChoice": 3, "NezhaForMultipleChoice": 3, "RoFormerForTripletMatching": 2}
MODELS = [name for name in ours.__all__ if name.endswith("Model") or "For" in name[5:]]
MODELS = [name for name in MODELS if "PreTrainedModel" not in name and not name.startswith("Auto")]
MODELS = [name for name in MODELS if "Seq2Seq" not in name and "Conditional" not in name]  # see test_seq2seq.py


def make_model(name, **fields):
    decoder = {"is_decoder": True} if name == "RoFormerForCausalLM" else {}
    return small_model(name, num_labels=3, num_hidden_layers=1, **{**decoder, **fields})


@pytest.fixture
def warnings(monkeypatch):
    """Warnings from here on, by the models and all that run them."""
    texts = []
    logger: Any = logging.getLogger("transformers.roformer")
    monkeypatch.setattr(logger, "warning", texts.append)
    logger.warning_once.cache_clear()
    yield texts
    logger.warning_once.cache_clear()


def call(name, model, **arguments):
    n = SEQUENCES.get(name)
    ids = torch.stack([IDS] * n, dim=1) if n else IDS
    return model(ids, attention_mask=torch.ones_like(ids), **arguments)


@pytest.mark.parametrize("name", MODELS)
def test_an_argument_that_nothing_reads_is_named_once(name, warnings):
    model = make_model(name)
    with torch.no_grad():
        for _ in range(3):
            call(name, model, attn_mask=MASK, zzz=1, nothing=None)
    assert len(warnings) == 2
    assert_states(warnings[0], "attn_mask", "attention_mask")
    assert_states(warnings[1], "zzz")
    assert "attention_mask" not in warnings[1] and "nothing" not in "".join(warnings)


@pytest.mark.parametrize("name", MODELS)
def test_arguments_that_every_model_gets_are_not_warned_of(name, warnings):
    known = dict.fromkeys([*TransformersKwargs.__annotations__, *FlashAttentionKwargs.__annotations__], 1)
    for taken in ("position_ids", "is_causal", "output_attentions", "cu_seq_lens_q", "seq_idx"):  # which are read
        del known[taken]
    with torch.no_grad():
        call(name, make_model(name), **known, return_dict=True, cache_position=MASK[0])
    assert not warnings


def test_arguments_of_attention_functions_are_not_warned_of(warnings):
    ours_already = {"module", "query", "key", "value", "attention_mask", "dropout", "scaling", "kwargs", "is_causal"}
    model = make_model("NezhaModel")  # whose attention reads none of it
    for name in ("sdpa", "flex_attention", "flash_attention_2"):
        parameters = set(inspect.signature(ALL_ATTENTION_FUNCTIONS[name]).parameters) - ours_already
        with torch.no_grad():
            model(IDS, attention_mask=MASK, **dict.fromkeys(parameters, 1))
    assert not warnings


def test_an_attention_function_of_ones_own_may_read_what_it_likes(warnings):
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    seen = []

    def attention(*args, temperature=1.0, **kwargs):
        seen.append(temperature)
        return sdpa_attention_forward(*args, **kwargs)

    AttentionInterface.register("tempered", attention)
    model = make_model("RoFormerModel")
    with torch.no_grad():
        expected = model(IDS).last_hidden_state
        model.set_attn_implementation("tempered")
        torch.testing.assert_close(model(IDS, temperature=2.0).last_hidden_state, expected)
    assert seen == [2.0]
    assert not warnings


@pytest.mark.parametrize("prefix_lm", [True, False])
@pytest.mark.parametrize(
    "how",
    [{}, {"num_beams": 2}, {"use_cache": False}, {"cache_implementation": "static"}, {"prompt_lookup_num_tokens": 2}],
)
def test_generation_is_not_warned_of(how, prefix_lm, warnings):
    model = make_model("RoFormerForCausalLM", prefix_lm=prefix_lm)
    model.generation_config.pad_token_id = 0
    model.generate(IDS[:1], attention_mask=MASK[:1], max_new_tokens=3, disable_compile=True, **how)
    assert not warnings


@pytest.mark.parametrize(
    ("name", "labels"), [("RoFormerForMaskedLM", IDS), ("RoFormerForCausalLM", IDS), ("NezhaForMaskedLM", IDS)]
)
def test_training_is_not_warned_of(name, labels, warnings, tmp_path):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(make_model(name), peft.LoraConfig(target_modules=["query"]))
    samples = [{"input_ids": IDS[i], "attention_mask": MASK[i], "labels": labels[i]} for i in range(2)]
    arguments = TrainingArguments(
        tmp_path, max_steps=1, per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    Trainer(model, arguments, train_dataset=samples).train()
    assert not warnings


def test_it_does_not_stand_in_the_way_of_compilers(warnings):
    model = make_model("RoFormerForMaskedLM")
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        found = compiled(IDS, attention_mask=MASK, attn_mask=MASK).logits
        torch.testing.assert_close(found, model(IDS, attention_mask=MASK).logits)
        torch.export.export(model, (), {"input_ids": IDS, "attention_mask": MASK, "attn_mask": MASK}, strict=False)
    assert not warnings
