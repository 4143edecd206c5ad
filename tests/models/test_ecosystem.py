"""Tools made for transformers' models: PEFT, accelerate, Trainer, half precision."""

import copy

import pytest
import torch
import torch.distributed as dist
import transformers
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from cases import DECODERS, NO_DROPOUT, make_ids, make_variant
from helpers.seq2seq_models import marian_and_ours
from helpers.small_models import small_config
from helpers.versions import reference_from
from peft import LoraConfig, PeftModel, PrefixTuningConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from modeling_roformer import (
    RoFormerForSequenceClassification,
    RoFormerForTokenClassification,
    RoFormerForTripletMatching,
    RoFormerModel,
)

VARIANTS = ["plain", "rotary values", "factorised", "V2", "YaRN", "trainable", "plain decoder", "RoFormer-Sim", "NEZHA"]
TARGETS = ["query", "key", "value"]


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


def make_model(variant, **fields):
    head = "ForCausalLM" if variant in DECODERS else "ForMaskedLM"
    return make_variant(variant, head, num_hidden_layers=3, initializer_range=0.2, **fields).float()


def auto_class(variant):
    return AutoModelForCausalLM if variant in DECODERS else AutoModelForMaskedLM


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


# Low-rank adapters (PEFT).


def train_adapters(model, steps=3):
    """Train some steps, so that the adapters are no longer the identity."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    ids = make_ids(2, 12)
    for _ in range(steps):
        model.train()(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def test_adapters_are_saved_loaded_and_merged(variant, tmp_path):
    model = make_model(variant, **NO_DROPOUT)
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(r=4, target_modules=TARGETS))
    train_adapters(adapted)
    expected = logits(adapted, make_ids(2, 12))
    assert (expected - logits(model, make_ids(2, 12))).abs().max() > 1e-3
    adapted.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(copy.deepcopy(model), tmp_path)
    assert torch.equal(logits(loaded, make_ids(2, 12)), expected)
    merged = loaded.merge_and_unload()
    assert type(merged) is type(model)
    assert merged.state_dict().keys() == model.state_dict().keys()
    torch.testing.assert_close(logits(merged, make_ids(2, 12)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("head", "task", "trained_too"),
    [
        (RoFormerForSequenceClassification, "SEQ_CLS", {"classifier"}),
        (RoFormerForTokenClassification, "TOKEN_CLS", {"classifier"}),
        (RoFormerModel, "FEATURE_EXTRACTION", set()),
        (RoFormerForTripletMatching, None, set()),
    ],
)
def test_a_task_trains_its_head_too(head, task, trained_too):
    adapted = get_peft_model(head(small_config()), LoraConfig(r=4, target_modules=TARGETS, task_type=task))
    rest = {n for n, p in adapted.named_parameters() if p.requires_grad and "lora_" not in n}
    assert {name.split(".")[2] for name in rest} == trained_too


# Prefixes (PEFT).


@pytest.mark.parametrize("variant", ["plain decoder", "RoFormer-Sim"])
def test_a_prefix_of_a_decoder_is_trained_and_nothing_else(variant, tmp_path):
    torch.manual_seed(3)
    base = make_model(variant, **NO_DROPOUT)
    before = logits(base, make_ids(2, 12))
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5)
    model = get_peft_model(copy.deepcopy(base), config)
    start = {name: x.detach().clone() for name, x in model.named_parameters()}
    optimizer = torch.optim.AdamW([x for x in model.parameters() if x.requires_grad], lr=0.05)
    ids, losses = make_ids(2, 12), []
    for _ in range(15):
        loss = model.train()(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert {name for name, x in model.named_parameters() if not x.equal(start[name])} == {
        "prompt_encoder.default.embedding.weight"
    }
    expected = logits(model, make_ids(2, 12))
    assert (expected - before).abs().max() > 0.1
    model.save_pretrained(tmp_path)
    assert logits(PeftModel.from_pretrained(copy.deepcopy(base), tmp_path), make_ids(2, 12)).equal(expected)


@reference_from("transformers", "5.23", "PEFT cannot generate with its Marian")
def test_prefixes_of_translation_models_are_marians():
    """A prefix for the decoder's self-attention; the encoder and cross-attention have none."""
    outputs = []
    for model in marian_and_ours():
        config = PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=5, num_attention_heads=2, num_layers=3)
        torch.manual_seed(0)
        adapted = get_peft_model(model, config).eval()
        ids = make_ids(2, 8) % 40 + 5
        mask = torch.ones_like(ids)
        mask[1, -3:] = 0
        with torch.no_grad():
            logits = adapted(input_ids=ids, attention_mask=mask, labels=ids).logits
            text = adapted.generate(input_ids=ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
            assert (logits - model(ids, mask, labels=ids).logits).abs().max() > 0.1
        outputs.append((logits, text.tolist()))
    torch.testing.assert_close(*(logits for logits, _ in outputs), atol=1e-5, rtol=0)
    assert outputs[0][1] == outputs[1][1]


# Where weights lie (accelerate).


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each variant as a folder, with the logits that it gives, written once."""
    made = {}

    def save(variant):
        if variant not in made:
            model = make_model(variant)
            folder = tmp_path_factory.mktemp(variant)
            model.save_pretrained(folder)
            made[variant] = folder, logits(model, make_ids(2, 12))
        return made[variant]

    return save


def test_device_map_auto_offloads_what_does_not_fit(variant, saved, tmp_path):
    folder, expected = saved(variant)
    loaded = auto_class(variant).from_pretrained(
        folder, device_map="auto", max_memory={"cpu": 70_000}, offload_folder=tmp_path
    )
    assert "disk" in loaded.hf_device_map.values() and "cpu" in loaded.hf_device_map.values()
    torch.testing.assert_close(logits(loaded, make_ids(2, 12)), expected, rtol=0, atol=1e-5)


def wrapping_policy(model):
    """accelerate's, by the class of the layers."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["RoFormerLayer"]
    )
    return fsdp2_prepare_auto_wrap_policy(plugin, model)


def test_the_classes_that_are_not_split_are_there(variant):
    """Both FSDP and device maps look for these names where nobody gives others."""
    model = make_model(variant)
    classes = {type(module).__name__ for module in model.modules()}
    assert set(model._no_split_modules) <= classes
    assert type(model.base_model.encoder.layer[0]).__name__ in model._no_split_modules


@pytest.fixture
def mesh():
    """Make a process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_a_sharded_model_trains_alike(variant, mesh):
    plain = make_model(variant, **NO_DROPOUT)
    sharded = copy.deepcopy(plain)
    policy = wrapping_policy(sharded)
    for module in [module for module in sharded.modules() if policy(module)]:
        fully_shard(module, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    assert all(isinstance(layer, FSDPModule) for layer in sharded.base_model.encoder.layer)
    assert all(isinstance(parameter, DTensor) for parameter in sharded.parameters())
    ids, losses = make_ids(2, 12), []
    for model in (plain, sharded):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses.append([])
        for _ in range(3):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.item())
    assert losses[0][2] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


# Half precision.


@pytest.mark.parametrize("length", [16, 1000])
@pytest.mark.parametrize("convert", [torch.nn.Module.half, torch.nn.Module.bfloat16], ids=["half", "bfloat16"])
def test_half_precision_is_as_close_as_berts(convert, length):
    """The same weights in BERT, whose positions are switched off: what is left of the difference is the rotation."""
    config = small_config(initializer_range=0.1, layer_norm_eps=1e-5)
    torch.manual_seed(0)
    ours = RoFormerModel(config).eval()
    bert = transformers.BertModel(
        small_config(transformers.BertConfig, max_position_embeddings=length, layer_norm_eps=1e-5),
        add_pooling_layer=False,
    ).eval()
    report = bert.load_state_dict(ours.state_dict(), strict=False)
    assert report.missing_keys == ["embeddings.position_embeddings.weight"] and not report.unexpected_keys
    torch.nn.init.zeros_(bert.embeddings.position_embeddings.weight)
    errors = []
    for model in (ours, bert):
        with torch.no_grad():
            exact = model(make_ids(4, length)).last_hidden_state
            rounded = convert(copy.deepcopy(model))(make_ids(4, length)).last_hidden_state
        errors.append((rounded.float() - exact).abs().mean().item())
    assert 0 < errors[0] < errors[1] * 1.15
