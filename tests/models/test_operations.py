"""Number of operations that a call starts: on a GPU, a call with few tokens waits for nothing else."""

from collections import Counter

import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import modeling_roformer as ours

LAYERS = 12
SIZES = dict(vocab_size=500, hidden_size=64, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=128)


class CountOperations(TorchDispatchMode):
    """Counts the operations of a block, without views, which start nothing on a device."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not function.is_view and function is not torch.ops.aten._unsafe_view.default:
            self.counts[str(function)] += 1
        return function(*args, **(kwargs or {}))


def count(function) -> Counter:
    with torch.no_grad():
        function()  # what is computed once
        with CountOperations() as operations:
            function()
    return operations.counts


@pytest.mark.parametrize(
    ("dtype", "tokens", "most"),
    [
        (torch.float32, 128, 188),  # a rotation is one product
        (torch.bfloat16, 4096, 236),  # to float32, product, and back, for query and for key
        (torch.bfloat16, 128, 212),  # query and key are rotated together
    ],
)
def test_operations_of_a_forward_pass(dtype, tokens, most):
    model = ours.RoFormerModel(ours.RoFormerConfig(**SIZES)).eval().to(dtype)
    ids = torch.randint(5, 500, (1, tokens))
    counts = count(lambda: model(ids))
    assert counts.total() <= most, counts
    assert counts["aten.complex.default"] == 0 and counts["aten.pow.Scalar"] == 0


def test_a_step_of_decoding_starts_as_many_operations_as_one_of_gpt2():
    torch.manual_seed(0)
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=500, n_layer=LAYERS, n_embd=64, n_head=4))
    mine = ours.RoFormerForCausalLM(ours.RoFormerConfig(**SIZES, is_decoder=True))
    ids = torch.randint(5, 500, (2, 16))
    counts = []
    for model in (gpt2, mine):
        model = model.eval().to(torch.bfloat16)
        with torch.no_grad():
            cache = model(ids, use_cache=True).past_key_values
        counts.append(count(lambda model=model, cache=cache: model(ids[:, :1], past_key_values=cache)))
    assert counts[1].total() <= counts[0].total(), counts[1]


@torch.no_grad()
@pytest.mark.parametrize("is_fake_first", [True, False])
def test_a_call_on_fake_tensors_keeps_nothing_and_reads_nothing_kept(is_fake_first):
    theta = 123.0 + is_fake_first  # of which no frequencies are kept yet
    config = ours.RoFormerConfig(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": theta})
    model, ids = ours.RoFormerModel(config).eval(), torch.randint(5, 500, (2, 40))
    if not is_fake_first:
        model(ids)
    with FakeTensorMode():
        assert ours.RoFormerModel(config)(torch.ones(2, 40, dtype=torch.long))[0].shape == (2, 40, 64)
    assert model(ids)[0].isfinite().all()
