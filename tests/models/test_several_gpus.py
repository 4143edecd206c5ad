"""Layers on another GPU than the embeddings, as `device_map="auto"` puts them, with accelerate's own hooks.

The CPU stands for the first GPU, and meta for the second: no operation may have tensors of both, in either direction.
"""

from types import SimpleNamespace

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from cases import NO_DROPOUT, VARIANTS, make_variant, source_of
from helpers.flattened import ENDS, flatten
from helpers.small_models import small_model
from helpers.training_steps import CASES, MASKS, make_step
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from modeling_roformer.rotary import scaled_inverse_frequencies
from modeling_roformer.unpadding import FlatPacking, Packing

pytestmark = pytest.mark.usefixtures("packs_any_padding")

SECOND = torch.device("meta")
IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])


class OneDevice(TorchDispatchMode):
    """A block in which the tensors of an operation must be on one device, but for single numbers and copies."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.ndim]
        if len({x.device for x in tensors}) > 1 and func.overloadpacket.__name__ != "copy_":
            raise RuntimeError(f"{func}: tensors are on {[(x.device.type, tuple(x.shape)) for x in tensors]}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "wrong",
    [lambda x, i: x[i], lambda x, i: x.index_put((i,), x[:2]), lambda x, i: x[:2] + i],
    ids=["index", "put", "+"],
)
def test_tensors_of_two_devices_are_refused(wrong):
    with OneDevice(), pytest.raises(RuntimeError, match="cpu.*meta|meta.*cpu"):
        wrong(torch.ones(3, device=SECOND), torch.zeros(2, dtype=torch.long))


def spread(model):
    """Put all but the embeddings on the second device: what is called there gets its inputs there.

    What stays on the CPU is frozen, since gradients without values cannot be copied there.
    """
    embeddings = [x for x in model.modules() if type(x).__name__.endswith("Embeddings")]
    first = {id(x) for part in embeddings for x in part.modules()}
    for module in model.modules():
        if id(module) not in first and not [*module.children()]:
            add_hook_to_module(module.to(SECOND), AlignDevicesHook(SECOND))
        elif type(module).__name__ in ("RoFormerLayer", "NezhaLayer"):
            add_hook_to_module(module, AlignDevicesHook(SECOND))
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.requires_grad and parameter.device == SECOND)
    return model


def run(model, inputs):
    """Call a model and its backward pass, and return the output that is not the loss."""
    with OneDevice():
        outputs = model(**inputs)
        (outputs[0] if outputs[0].ndim == 0 else outputs[0][..., ::3].sum()).backward()
    return outputs[1] if outputs[0].ndim == 0 else outputs[0]


@pytest.mark.parametrize("case", CASES)
def test_every_head(case):
    model, inputs = make_step(case, dropout=0.0)
    assert run(spread(model), inputs).device == SECOND


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant(variant):
    model = make_variant(variant, **NO_DROPOUT).train()
    inputs = {"input_ids": IDS, "attention_mask": MASKS["with padding"], **source_of(model, 2)}
    assert run(spread(model), inputs).device == SECOND


@pytest.mark.parametrize("fields", [{}, {"add_pooling_layer": True, "pooler_activation": "tanh"}])
@pytest.mark.parametrize("names", [("position_ids",), ENDS, ("seq_idx",)], ids=["positions", "ends", "numbers"])
def test_texts_in_a_row(names, fields):
    model = spread(small_model(**fields))
    with OneDevice():
        outputs = model(**flatten(names=names))
    assert {x.device for x in outputs.values()} == {SECOND}


@pytest.mark.parametrize("implementation", ["sdpa", "flash_attention_2"])
@pytest.mark.parametrize("make", [
    lambda: Packing(MASKS["with padding"]),
    lambda: FlatPacking("cu_seq_lens_q", torch.ones(1, 7), torch.tensor([0, 4, 7], dtype=torch.int32), 4),
], ids=["padded", "in a row"])  # fmt: skip
def test_the_ends_of_texts_are_where_attention_is_computed(make, implementation, monkeypatch):
    """They are read by torch's kernel for packed texts, and by flash attention."""
    packing, ends = make(), []

    def kernel(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
        ends.extend([cu_seq_q, cu_seq_k])
        return query

    def flash(module, query, key, value, attention_mask, cu_seq_lens_q, cu_seq_lens_k, **kwargs):
        ends.extend([cu_seq_lens_q, cu_seq_lens_k])
        return query.transpose(1, 2), None

    monkeypatch.setattr("modeling_roformer.unpadding.packed_kernel", lambda device: kernel)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # which meta does not have
    config = small_model().config
    config._attn_implementation = implementation
    query = torch.ones(1, 2, 7, 16, device=SECOND, dtype=torch.bfloat16)
    module = SimpleNamespace(config=config, is_causal=False)
    packing.attend(flash, module, query, query, query, scaling=0.25, dropout=0.0)
    assert [x.device for x in ends] == [SECOND, SECOND]


def test_trained_frequencies_are_where_the_positions_are():
    config = small_model(trainable_rope=True).config
    offset = torch.zeros(config.rotary_dim // 2)
    with OneDevice():
        assert scaled_inverse_frequencies(config, 4, SECOND, offset=offset).device == SECOND
