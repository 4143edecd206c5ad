"""What all task heads share: the bare model below, what they return, their losses, what `help` tells of their arguments.

Dimensions in the shapes: b batch, s sequence length.
"""

from collections.abc import Callable

import torch
from transformers.modeling_outputs import ModelOutput

from .configuration import RoFormerConfig
from .docstrings import described_as_in
from .fast_cross_entropy import cross_entropy
from .model import RoFormerModel, RoFormerPreTrainedModel
from .unpadding import reads_padding

# What heads take beside the bare model's arguments; the second those whose loss is over `labels` alone.
_RETURN_DICT = """
    return_dict: False for a tuple in place of the output; the config's where None.
"""
_NUM_ITEMS_IN_BATCH = """
    num_items_in_batch: number of labels in the whole batch of which this is a part: the losses of the parts then
        add up to its mean. Trainer passes it, so that accumulated steps learn what one step would.
"""
_DIMENSIONS = "b batch, s sequence length, k length of the keys, h heads"
describes_inputs = described_as_in(RoFormerModel.forward, _RETURN_DICT, _DIMENSIONS)
describes_inputs_and_parts = described_as_in(RoFormerModel.forward, _RETURN_DICT + _NUM_ITEMS_IN_BATCH, _DIMENSIONS)


def one_by_one(*inputs: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Inputs of shape (b, n, …), n sequences an example, as (b·n, …)."""
    return [None if x is None else x.flatten(0, 1) for x in inputs]


def mean_loss(function: Callable, num_items_in_batch: torch.Tensor | int | None, *arguments, **options) -> torch.Tensor:
    """The mean of a loss, or this part's share in the mean of a batch that comes in parts.

    transformers' Trainer accumulates gradients so: parts differ in their numbers of labels, therefore it counts those
    of the whole batch, and adds the parts' losses up.

    Args:
        function: one of `torch.nn.functional`, or that takes `reduction` as they do; with its `arguments` and `options`.
        num_items_in_batch: how many terms the mean of the whole batch has; None where this is the whole.

    ```python
    >>> mean_loss(cross_entropy, None, logits, labels)
    >>> sum(mean_loss(cross_entropy, len(labels), logits[i::2], labels[i::2]) for i in (0, 1))  # the same
    ```
    """
    if num_items_in_batch is None:
        return function(*arguments, **options)
    losses = function(*arguments, reduction="none", **options)
    # The sum over thousands of labels leaves float16's range.
    total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    return total / torch.as_tensor(num_items_in_batch, device=total.device)


def mean_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """The mean cross-entropy of logits (…, classes) over labels (…) that are not -100; see `mean_loss`."""
    return mean_loss(cross_entropy, num_items_in_batch, logits.flatten(0, -2), labels.flatten().to(logits.device))


class RoFormerHead(RoFormerPreTrainedModel):
    """A model with something on top of the bare one, which lies under `base_model_prefix`, its name in checkpoints."""

    base_model_class = RoFormerModel

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        setattr(self, self.base_model_prefix, self.base_model_class(config))

    def base_outputs(self, *inputs, token_labels=None, num_items_in_batch=None, **kwargs) -> ModelOutput:
        """The bare model's outputs, from the arguments of a head.

        Args:
            token_labels: what each hidden state is to predict, shape (b, s), -100 for nothing. Padding that is to
                predict something is not left out.
        """
        unpad_inputs = kwargs.pop("unpad_inputs", None)
        if unpad_inputs is None:
            unpad_inputs = self.config.unpad_inputs
        if unpad_inputs and token_labels is not None:
            unpad_inputs = not reads_padding(inputs[1], token_labels)
        return self.base_model(*inputs, **{**kwargs, "unpad_inputs": unpad_inputs, "return_dict": True})

    def answer(self, output_class, outputs, logits, labels, num_items_in_batch=None, **kwargs) -> ModelOutput:
        """What a head returns whose one loss is over `labels`, from the bare model's outputs and its own logits."""
        loss = None if labels is None else self.loss_of(logits, labels, num_items_in_batch)
        return output_class(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def loss_of(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
        """`mean_cross_entropy`, unless a head has another loss."""
        return mean_cross_entropy(logits, labels, num_items_in_batch)
