"""Weights, gradients and the optimizer's state shared out to all processes (FSDP2), where `accelerate launch` asks for it."""

import torch.distributed
from accelerate import Accelerator
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel

from ..errors import TrainingError


def shard(model: PreTrainedModel, accelerator: Accelerator) -> None:
    """Shard each layer of a model, and with the model itself what is outside them.

    accelerate, which leaves a model alone that is sharded already, would put the decoder into a group of its own, and so a
    bias that is tied with that of the MLM head into two, which torch refuses.

    Args:
        model: `model.base_model.encoder.layer` are its layers. It gets the weights of the main process.
        accelerator: its plugin says how.

    Raises:
        TrainingError: it asks for FSDP's first version.
    """
    plugin = accelerator.state.fsdp_plugin
    if plugin.fsdp_version != 2:
        raise TrainingError("the first version of FSDP is not supported: give accelerate launch --fsdp_version 2")
    plugin.auto_wrap_policy = None  # nothing is left to wrap
    # Checkpoints have whole weights, as they have without sharding.
    plugin.state_dict_config = plugin.optim_state_dict_config = None
    plugin.set_state_dict_type("FULL_STATE_DICT")
    model.to(accelerator.device)
    for tensor in [*model.parameters(), *model.buffers()]:  # as DDP does
        torch.distributed.broadcast(tensor.data, 0)
    options = {
        "mp_policy": plugin.mixed_precision_policy or MixedPrecisionPolicy(),
        "offload_policy": plugin.cpu_offload,
    }
    for layer in model.base_model.encoder.layer:
        fully_shard(layer, reshard_after_forward=plugin.reshard_after_forward, **options)
    fully_shard(model, **options)
