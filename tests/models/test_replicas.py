"""Models whose weights are no parameters during a forward pass: replicas of `nn.DataParallel`, which Trainer makes on
several GPUs, and FSDP1 with `use_orig_params=False`.

Replicas are made by torch's own `replicate`; only the copies to other GPUs are replaced.
"""

import copy
import sys

import pytest
import torch
import torch.distributed as dist
from cases import NO_DROPOUT, VARIANTS, make_variant, source_of
from helpers.training_steps import CASES, MASKS, make_step
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import replicate as replicate_function

from modeling_roformer.model import RoFormerLayer

pytestmark = pytest.mark.usefixtures("packs_any_padding")

replicate = sys.modules[replicate_function.__module__]  # the package has a function of this name
FAVOR = {"linear_redraw_interval": 2}


@pytest.fixture
def replica_of(monkeypatch):
    """Return a function that returns a replica of a model, as each forward pass of `nn.DataParallel` makes it."""

    def broadcast(tensors, devices, detach=False):
        return [[x.detach() if detach else x.view_as(x) for x in tensors] for _ in devices]

    monkeypatch.setattr(replicate, "_get_device_index", lambda device, optional: device)
    monkeypatch.setattr(replicate, "_broadcast_coalesced_reshape", broadcast)
    return lambda model: replicate.replicate(model, [0])[0]


def results_of(called, model, inputs):
    """Return the tensors that a call returns, and the gradients that reach the weights of `model`."""
    model.zero_grad()
    outputs = called(**inputs)
    (outputs[0] if outputs[0].ndim == 0 else outputs[0][..., ::3].sum()).backward()
    tensors = {name: x.detach() for name, x in outputs.items() if isinstance(x, torch.Tensor)}
    return tensors | {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_results(model, inputs, replica_of):
    expected = results_of(model, model, inputs)
    replica = replica_of(model)
    assert not [*replica.parameters()]
    found = results_of(replica, model, inputs)
    assert found.keys() == expected.keys() and any(name.endswith(".weight") for name in found)
    for name, x in expected.items():
        torch.testing.assert_close(found[name], x, msg=name)


@pytest.mark.parametrize("case", CASES)
def test_a_replica_of_every_head(case, replica_of):
    model, inputs = make_step(case, dropout=0.0)
    assert_same_results(model, inputs, replica_of)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replica_of_every_variant(variant, replica_of):
    model = make_variant(variant, **NO_DROPOUT).train()
    mask = MASKS["with padding"]
    inputs = {"input_ids": torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), "attention_mask": mask, **source_of(model, 2)}
    assert_same_results(model, inputs, replica_of)


def test_a_replica_with_input_embeddings_of_another_class(replica_of):
    """They have no `weight`."""
    model, inputs = make_step("RoFormerModel", dropout=0.0)
    model.set_input_embeddings(torch.nn.Sequential(model.get_input_embeddings()))
    assert_same_results(model, inputs, replica_of)


def projection(model):
    return model.encoder.layer[0].attention.self.feature_map.projection


def test_random_features_are_redrawn_in_replicas(replica_of):
    """Training steps are counted as without replicas, unless the model is frozen."""
    plain = make_variant("linear favor", **NO_DROPOUT, **FAVOR).train()
    replicated, frozen = copy.deepcopy(plain), copy.deepcopy(plain).requires_grad_(False)
    first = projection(plain).clone()
    inputs = {"input_ids": torch.tensor([[2, 7, 8, 3]])}
    for _ in range(3):
        for model, called in ((plain, plain), (replicated, replica_of(replicated)), (frozen, replica_of(frozen))):
            outputs = called(**inputs).last_hidden_state
            if model is not frozen:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                outputs[..., ::3].sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    assert not torch.equal(projection(plain), first)
    assert torch.equal(projection(replicated), projection(plain)) and torch.equal(projection(frozen), first)
    assert [int(x.encoder.training_steps) for x in (plain, replicated, frozen)] == [3, 3, 0]


@pytest.fixture
def one_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("wrapped", ["whole", "layers"])
@pytest.mark.parametrize("case", [
    "RoFormerForMaskedLM", "RoFormerForMaskedLM sparse", "RoFormerForCausalLM cross", "RoFormerModel linear",
    "RoFormerModel Performer", "RoFormerModel V2", "NezhaForMaskedLM",
    "RoFormerForConditionalGeneration",
])  # fmt: skip
def test_fully_sharded_without_the_original_parameters(case, wrapped, one_process):
    model, inputs = make_step(case, dropout=0.0)
    plain = copy.deepcopy(model)
    policy = ModuleWrapPolicy({RoFormerLayer}) if wrapped == "layers" else None
    options = {"use_orig_params": False, "auto_wrap_policy": policy, "device_id": torch.device("cpu")}
    sharded = FullyShardedDataParallel(model, **options)
    losses = []
    for model in (plain, sharded):
        optimizer, losses_of_model = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(3):
            outputs = model(**inputs)
            loss = outputs[0] if outputs[0].ndim == 0 else outputs[0][..., ::3].square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses_of_model.append(loss.item())
        losses.append(losses_of_model)
    assert losses[0][2] != losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
