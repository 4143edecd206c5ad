"""Code that all task heads share: the call of the bare model, outputs, losses, label checks and docstrings.

Dimensions in the shapes: b batch, s sequence length.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .configuration import RoFormerConfig
from .docstrings import described_as_in
from .fast_cross_entropy import cross_entropy
from .inputs import can_be_read, check_ranges, check_same_shape, is_wrapped
from .model import RoFormerModel, RoFormerPreTrainedModel

# Arguments of heads besides the bare model's; the second is for heads whose loss is over `labels` alone.
_RETURN_DICT = """
    return_dict: False for a tuple in place of the output; the config's if None.
"""
_NUM_ITEMS_IN_BATCH = """
    num_items_in_batch: number of labels in the whole batch, if this call gets a part of it: the losses of the parts
        then add up to the mean over the batch. Trainer passes it, so that accumulated steps equal one step.
"""
Output = TypeVar("Output")
_DIMENSIONS = "b batch, s sequence length, k length of the keys, h heads"
describes_inputs = described_as_in(RoFormerModel.forward, _RETURN_DICT, _DIMENSIONS)
describes_inputs_and_parts = described_as_in(RoFormerModel.forward, _RETURN_DICT + _NUM_ITEMS_IN_BATCH, _DIMENSIONS)


def flatten_examples(*inputs: torch.Tensor | None) -> list[Any]:
    """Reshape inputs of n sequences per example from (b, n, …) to (b·n, …)."""
    return [None if x is None else x.flatten(0, 1) for x in inputs]


def mean_loss(function: Callable, num_items_in_batch: torch.Tensor | int | None, *arguments, **options) -> torch.Tensor:
    """Return the mean of a loss, or one part's share of the mean over a batch that comes in parts.

    transformers' Trainer accumulates gradients this way: it counts the labels of the whole batch and adds up the losses
    of its parts, which may have different numbers of labels.

    Args:
        function: a loss with a `reduction` argument, as in `torch.nn.functional`; it gets `arguments` and `options`.
        num_items_in_batch: number of terms of the mean over the whole batch; None if this call has the whole batch.

    ```python
    >>> mean_loss(cross_entropy, None, logits, labels)
    >>> sum(mean_loss(cross_entropy, len(labels), logits[i::2], labels[i::2]) for i in (0, 1))  # the same
    ```
    """
    if num_items_in_batch is None:
        return function(*arguments, **options)
    losses = function(*arguments, reduction="none", **options)
    # The sum over thousands of labels overflows float16.
    total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    return total / torch.as_tensor(num_items_in_batch, device=total.device)


def mean_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Return the mean cross-entropy of logits (…, classes) over labels (…) that are not -100; see `mean_loss`."""
    return mean_loss(cross_entropy, num_items_in_batch, logits.flatten(0, -2), labels.flatten().to(logits.device))


def check_token_labels(
    labels: torch.Tensor | None,
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    classes: int,
    *others: tuple[str, torch.Tensor | None, int | None, int | None],
    next_labels: torch.Tensor | None = None,
) -> tuple[int | None, bool]:
    """Raise a ValueError unless each token has a label from 0 to `classes` - 1, or -100.

    `others` are further ranges to check in the same device sync (see `check_ranges`); `next_labels` are the labels of the
    hidden states, if they are not `labels`.

    Returns:
        The number of labels that are not -100; None without labels, or if they cannot be read (in a compiled model). And
        whether labels may lie on padding, which then has to be computed.
    """
    inputs = input_ids if inputs_embeds is None else inputs_embeds
    if inputs is not None:
        check_same_shape("labels", labels, inputs.shape[:2])
    count = on_padding = None
    if labels is not None and can_be_read(labels):
        count = (labels != -100).sum()
        if isinstance(attention_mask, torch.Tensor) and attention_mask.shape == labels.shape:
            has_label = (labels if next_labels is None else next_labels) != -100
            on_padding = ((attention_mask == 0) & has_label.to(attention_mask.device)).any()
            on_padding = on_padding if can_be_read(attention_mask) else None
    count, on_padding = check_ranges(("labels", labels, classes, -100), *others, questions=(count, on_padding))
    return count, labels is not None and on_padding != 0


def select_labelled(
    model: RoFormerPreTrainedModel, hidden_states: torch.Tensor, labels: torch.Tensor | None, count: int | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the hidden states and labels of a language model: in training with `sparse_prediction` only the tokens
    that have a label, shape (n, hidden_size) and (n,), else all. `count` is the result of `check_token_labels`."""
    if labels is None or not (model.config.sparse_prediction and model.training) or is_wrapped(labels):
        return hidden_states, labels
    # The vocabulary is by far the widest layer, and about a sixth of the words have a label.
    labels = labels.flatten().to(hidden_states.device)
    has_label = labels != -100
    if count is None:
        where = has_label.nonzero().squeeze(-1)
    else:  # `nonzero` would need a device sync for the number of labels
        where = has_label.byte().argsort(descending=True, stable=True)[:count]
    return hidden_states.flatten(0, 1)[where], labels[where]


def mean_over_tokens(hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Return the mean of hidden states (b, s, hidden_size) over each text's tokens, no padding: (b, hidden_size)."""
    if attention_mask is None:
        return hidden_states.mean(dim=1)
    is_token = (attention_mask != 0).to(torch.promote_types(hidden_states.dtype, torch.float32))
    weights = is_token / is_token.sum(dim=-1, keepdim=True)
    # As a product, which accumulates in float32: the sum over thousands of tokens could leave float16's range.
    return (weights[:, None].to(hidden_states.dtype) @ hidden_states).squeeze(1)


class RoFormerHead(RoFormerPreTrainedModel):
    """Base of models with a head; the bare model is the attribute `base_model_prefix`, as in checkpoints."""

    base_model_class = RoFormerModel
    one_text_per_row = True  # False in heads with an output for each token
    if TYPE_CHECKING:
        roformer: RoFormerModel

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        setattr(self, self.base_model_prefix, self.base_model_class(config))

    @property
    def self_attention(self) -> Any:
        """Class of the bare model's self-attention."""
        model: Any = self.base_model
        return model.self_attention

    def base_outputs(self, *inputs, num_items_in_batch=None, reads_padding: bool = False, **kwargs) -> Any:
        """Return the bare model's outputs for the arguments of a head; those at padding are computed if it reads them."""
        if reads_padding:
            kwargs["unpad_inputs"] = False
        kwargs.setdefault("one_text_per_row", self.one_text_per_row)
        return self.base_model(*inputs, **{**kwargs, "return_dict": True})

    def _make_output(
        self, output_class: Callable[..., Output], outputs, logits, labels, num_items_in_batch=None, **kwargs
    ) -> Output:
        """Return the output of a head with one loss, over `labels`, from its logits and the bare model's outputs."""
        loss = None if labels is None else self.loss_of(logits, labels, num_items_in_batch)
        return output_class(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def loss_of(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
        """Return `mean_cross_entropy`; heads with another loss override this."""
        return mean_cross_entropy(logits, labels, num_items_in_batch)
