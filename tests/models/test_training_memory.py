"""Memory that a training step keeps until its backward pass: no more than BERT's, whatever is checkpointed."""

from functools import partial

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel

from modeling_roformer import RoFormerConfig, RoFormerModel

SIZES = dict(vocab_size=90, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=128)
B, S = 4, 64


class Storages(TorchDispatchMode):
    """The storages that operations make, without holding them."""

    def __init__(self):
        super().__init__()
        self.made = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        for x in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(x, torch.Tensor):
                storage = x.untyped_storage()
                self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return output

    def alive(self) -> int:
        """Bytes that something still holds."""
        return sum(size for storage, size in self.made.values() if not storage.expired())


def each_layer(model, wrap):
    for i, layer in enumerate(model.encoder.layer):
        model.encoder.layer[i] = wrap(layer)


class InACheckpoint(torch.nn.Module):
    def __init__(self, layer, use_reentrant):
        super().__init__()
        self.layer, self.use_reentrant = layer, use_reentrant

    def forward(self, hidden_states, *args, **kwargs):
        layer = partial(self.layer, **kwargs)
        return checkpoint(layer, hidden_states, *args, use_reentrant=self.use_reentrant)


def wrap_as_fsdp_does(model, implementation):
    kind = type(model.encoder.layer[0])
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=partial(checkpoint_wrapper, checkpoint_impl=implementation),
        check_fn=lambda module: isinstance(module, kind),
    )


WAYS = {
    "none": lambda model: None,
    "checkpoint": lambda model: each_layer(model, partial(InACheckpoint, use_reentrant=False)),
    "reentrant checkpoint": lambda model: each_layer(model, partial(InACheckpoint, use_reentrant=True)),
    "checkpoint_wrapper": lambda model: wrap_as_fsdp_does(model, CheckpointImpl.NO_REENTRANT),
    "reentrant checkpoint_wrapper": lambda model: wrap_as_fsdp_does(model, CheckpointImpl.REENTRANT),
    "gradient_checkpointing_enable": lambda model: model.gradient_checkpointing_enable(),
    "save_on_cpu": lambda model: None,
}


def away(tensor: torch.Tensor):
    """Move a tensor as `save_on_cpu` does, with memory of which torch does not know in place of a CPU's."""
    return tensor if tensor.requires_grad and tensor.is_leaf else (tensor.detach().numpy().copy(),)


def back(packed) -> torch.Tensor:
    return torch.from_numpy(packed[0]) if isinstance(packed, tuple) else packed


def train(model_class, config_class, way, **fields):
    """Bytes that are kept after the forward pass, and the gradients."""
    torch.manual_seed(0)
    sizes = {**SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **fields}
    model = model_class(config_class(**sizes), add_pooling_layer=False).train()
    WAYS[way](model)
    names = {parameter: name.replace("_checkpoint_wrapped_module.", "") for name, parameter in model.named_parameters()}
    ids = torch.randint(5, 90, (B, S), generator=torch.Generator().manual_seed(1))
    storages = Storages()
    pack, unpack = (away, back) if way == "save_on_cpu" else (lambda x: x, lambda x: x)
    torch.manual_seed(2)
    with storages, torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = model(ids).last_hidden_state.pow(3).mean()  # not the square: its mean is that of any normalised vector
    kept = storages.alive()
    loss.backward()
    return kept, {name.replace("layer.layer.", "layer."): p.grad for p, name in names.items() if p.grad is not None}


@pytest.mark.parametrize("fields", [{}, {"hidden_dropout_prob": 0.1}], ids=["", "dropout"])
@pytest.mark.parametrize("way", WAYS)
def test_a_step_keeps_no_more_than_berts(way, fields):
    theirs, _ = train(BertModel, BertConfig, way, **fields)
    ours, gradients = train(RoFormerModel, RoFormerConfig, way, **fields)
    positions = 2 * 4 * S * SIZES["hidden_size"] // SIZES["num_attention_heads"]  # cosines and sines, and their angles
    assert ours <= theirs + 8 * positions
    _, expected = train(RoFormerModel, RoFormerConfig, "none", **fields)
    if way == "save_on_cpu" or "checkpoint" in way:
        assert len(gradients) == len(expected)
        for found, right in zip(gradients.values(), expected.values(), strict=True):
            torch.testing.assert_close(found, right, atol=1e-5 * right.abs().max().item(), rtol=1e-5)
