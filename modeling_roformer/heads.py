"""Task heads: masked and causal language models, classification of texts and of tokens, question answering, multiple
choice. They share the code at the top: losses, checks of labels, and the call of the bare model.

Each head takes the arguments of `RoFormerModel.forward`, which describes those that a head's docstring does not.

Dimensions in the shapes: b batch, s sequence length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import get_activation
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import (
    CausalLMOutputWithCrossAttentions,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from .call import Call
from .configuration import RoFormerConfig
from .inputs import CACHE_NAME, Range, can_be_read, check_ranges, check_shape, check_tokens, given_cache, is_transformed
from .model import LM_HEAD_KEYS, RoFormerModel, RoFormerPreTrainedModel, can_return_tuple
from .rotary import depends_on_length
from .unpadding import first_tokens


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
    >>> mean_loss(F.cross_entropy, None, logits, labels)
    >>> sum(mean_loss(F.cross_entropy, len(labels), logits[i::2], labels[i::2]) for i in (0, 1))  # the same
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
    """Return the mean cross-entropy of logits (…, classes) over labels (…) that are not -100; see `mean_loss`.

    It is computed in float32 at least, as in transformers.
    """
    logits = logits.flatten(0, -2).to(torch.promote_types(logits.dtype, torch.float32))
    return mean_loss(F.cross_entropy, num_items_in_batch, logits, labels.flatten().to(logits.device))


def check_token_labels(
    labels: torch.Tensor | None,
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    classes: int,
    *others: Range,
    next_labels: torch.Tensor | None = None,
) -> tuple[int | None, bool]:
    """Raise a ValueError unless each token has a label from 0 to `classes` - 1 or -100.

    `others` are further ranges to check in the same device sync (see `check_ranges`). `next_labels` are the labels that
    the hidden states are compared with, if they are not `labels`: in a causal model, the labels of the next words.

    Returns:
        The number of labels that are not -100; None without labels, or if they cannot be read (in a compiled model).
        And whether labels may lie on padding, which then has to be computed.
    """
    if labels is not None and labels.is_floating_point():
        raise ValueError(f"labels are {labels.dtype}, but must be integers")
    tokens = input_ids if inputs_embeds is None else inputs_embeds
    if tokens is not None:
        check_shape("labels", labels, tokens.shape[:2])
    count = on_padding = None
    if labels is not None and can_be_read(labels):
        count = (labels != -100).sum()
        if isinstance(attention_mask, torch.Tensor) and attention_mask.shape == labels.shape:
            has_label = (labels if next_labels is None else next_labels) != -100
            on_padding = ((attention_mask == 0) & has_label.to(attention_mask.device)).any()
            on_padding = on_padding if can_be_read(attention_mask) else None
    values = check_ranges(("labels", labels, classes, -100), *others, count=count, on_padding=on_padding)
    return values["count"], labels is not None and values["on_padding"] != 0


def check_class_labels(labels: torch.Tensor | None, examples: int, classes: int) -> None:
    """Raise a ValueError unless each example has a label from 0 to `classes` - 1 or -100, shape (b,) or (b, 1)."""
    check_shape("labels", labels, (examples,), (examples, 1))
    check_ranges(("labels", labels, classes, -100))


def select_labelled(
    hidden_states: torch.Tensor, labels: torch.Tensor | None, count: int | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the hidden states and labels of the tokens that have a label, shape (n, hidden_size) and (n,), for
    `sparse_prediction`; all without labels, and in torch.func. `count` is the result of `check_token_labels`."""
    if labels is None or is_transformed():
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
    """Return the mean of hidden states (b, s, hidden_size) over each text's tokens, no padding: (b, hidden_size).
    It is 0 for a row of padding alone."""
    if attention_mask is None:
        return hidden_states.mean(dim=1)
    is_token = (attention_mask != 0).to(hidden_states.device, torch.promote_types(hidden_states.dtype, torch.float32))
    weights = is_token / is_token.sum(dim=-1, keepdim=True).clamp(min=1)
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

    def base_outputs(self, *inputs, reads_padding: bool = False, **kwargs) -> Any:
        """Return the bare model's outputs for the arguments of a head.

        With `reads_padding` the head reads outputs at padding, so padding is not left out.
        """
        if reads_padding:
            kwargs["unpad_inputs"] = False
        kwargs.setdefault("one_text_per_row", self.one_text_per_row)
        return self.base_model(*inputs, **{**kwargs, "return_dict": True})


class RoFormerPredictionHeadTransform(nn.Sequential):
    """Map from hidden states to vectors of the word embeddings' width."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.dense = nn.Linear(config.hidden_size, width)
        self.transform_act_fn = get_activation(config.hidden_act)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)


class RoFormerLMPredictionHead(nn.Module):
    """Logits over the vocabulary. The decoder has a bias; its weights are tied to the word embeddings."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.transform = RoFormerPredictionHeadTransform(config)
        self.decoder = nn.Linear(self.transform.dense.out_features, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied with decoder.bias

    def initialize(self) -> None:
        """Set the bias to 0."""
        init.zeros_(self.bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.transform(hidden_states))


class RoFormerV2LMPredictionHead(nn.Module):
    """Logits of RoFormer-V2: the product with the word embeddings, without a transform or a bias."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.mapping = nn.Identity()
        if width != config.hidden_size:
            self.mapping = nn.Linear(config.hidden_size, width, bias=False)
        self.decoder = nn.Linear(width, config.vocab_size, bias=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.mapping(hidden_states))


class RoFormerOnlyMLMHead(nn.Sequential):
    """Wrapper that gives the head its name in checkpoints: `cls.predictions`."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        head = RoFormerV2LMPredictionHead if config.norm_type == "rms_norm" else RoFormerLMPredictionHead
        self.predictions = head(config)


class LanguageModel(RoFormerHead):
    """Base of masked and causal language models: the head and its tied weights."""

    one_text_per_row = False
    head_class: Any = RoFormerOnlyMLMHead
    _tied_weights_keys = {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
    }

    def __init__(self, config: RoFormerConfig):
        if config.norm_type == "rms_norm":  # its head has no bias
            keys = self._tied_weights_keys
            self._tied_weights_keys = {name: source for name, source in keys.items() if name.endswith("weight")}
        super().__init__(config)
        self.cls = self.head_class(config)
        self.register_state_dict_post_hook(save_both_biases)
        self.post_init()
        # Only a model without this head ignores its weights in a file.
        self._keys_to_ignore_on_load_unexpected = set(self._keys_to_ignore_on_load_unexpected or ()) - {LM_HEAD_KEYS}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return transformers' keys, and the bias's: it is tied even where the weights are not."""
        keys = super().get_expanded_tied_weights_keys(all_submodels)
        return keys | {name: source for name, source in self._tied_weights_keys.items() if name.endswith("bias")}

    def tie_weights(self, missing_keys: set[str] | None = None, recompute_mapping: bool = True) -> None:
        """Tie as transformers does; if a checkpoint has both biases, keep the decoder's, which transformers uses."""
        head = self.cls.predictions
        names = {"cls.predictions.bias", "cls.predictions.decoder.bias"}
        if hasattr(head, "bias") and missing_keys is not None and not names & missing_keys:
            head.bias = head.decoder.bias
        super().tie_weights(missing_keys, recompute_mapping)

    def get_output_embeddings(self) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.cls.predictions.decoder = new_embeddings
        if new_embeddings.bias is not None:
            self.cls.predictions.bias = new_embeddings.bias


def save_both_biases(model: LanguageModel, state_dict: dict, prefix: str, *args) -> None:
    """Save the bias of an untied decoder under both names: transformers uses one, and reports the other as missing."""
    name = f"{prefix}cls.predictions.bias"
    if not model.config.tie_word_embeddings and name in state_dict:
        state_dict[name] = state_dict[name].clone()


class RoFormerForMaskedLM(LanguageModel):
    """Masked language model: predicts masked words.

    ```python
    >>> from transformers import pipeline
    >>> pipeline("fill-mask", model=DIR)("北京是中国的[MASK]。")[0]["token_str"]
    '城市'
    ```
    """

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        """Score every word of the vocabulary at each position.

        Args:
            labels: ids of the words that were masked, shape (b, s), and -100 elsewhere.
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it; see `mean_loss`.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `logits` of shape (b, s, vocab_size), and `loss`, the mean cross-entropy over the labels. In training
            with `config.sparse_prediction`, `logits` has shape (n, vocab_size), a row for each of the n labels.
        """
        vocab_size = self.config.vocab_size
        count, on_padding = check_token_labels(labels, input_ids, inputs_embeds, attention_mask, vocab_size)
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(
            *inputs, encoder_hidden_states, encoder_attention_mask, past_key_values, reads_padding=on_padding, **kwargs
        )
        hidden_states = outputs.last_hidden_state
        if self.training and self.config.sparse_prediction:
            hidden_states, labels = select_labelled(hidden_states, labels, count)
        logits = self.cls(hidden_states)
        loss = None if labels is None else mean_cross_entropy(logits, labels, num_items_in_batch)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class RoFormerClassificationHead(nn.Module):
    """Two layers over the first token, or one if `config.classifier_layers` is 1."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.has_hidden_layer = config.classifier_layers == 2
        if self.has_hidden_layer:
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)
            self.activation = get_activation(config.classifier_activation or config.hidden_act)
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        vectors = self.dropout(hidden_states[:, 0])
        if self.has_hidden_layer:
            vectors = self.dropout(self.activation(self.dense(vectors)))
        return self.out_proj(vectors)


class RoFormerForSequenceClassification(RoFormerHead):
    """Text classification with one or several labels per text, or regression."""

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.classifier = RoFormerClassificationHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> SequenceClassifierOutput:
        """Score the classes of each text.

        Args:
            labels: shape (b,) of class ids; shape (b,) or (b, num_labels) of numbers for regression; shape
                (b, num_labels) of 0.0 and 1.0 for several labels per text. A class id of -100 is ignored. Do not use
                -100 as a number to predict: Trainer does not count it. If `config.problem_type` is None, it is detected
                from the labels and `num_labels`, as in transformers, and kept in the config.
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it; see `mean_loss`.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `logits` of shape (b, num_labels), and `loss`.
        """
        if self.num_labels > 1 and self.config.problem_type in (None, "single_label_classification"):
            check_ranges(("labels", labels, self.num_labels, -100))
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, past_key_values=past_key_values, **kwargs)
        logits = self.logits_of(outputs, attention_mask)
        loss = None if labels is None else self.loss_of(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def logits_of(self, outputs: Any, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Return the logits from the bare model's outputs."""
        return self.classifier(first_tokens(outputs.last_hidden_state, attention_mask))

    def loss_of(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
        """Return the loss of `config.problem_type`, a mean over texts, and over a text's labels if it has several."""
        labels, problem_type = labels.to(logits.device), self.config.problem_type
        if problem_type is None:
            if self.num_labels == 1:
                problem_type = "regression"
            elif labels.dtype in (torch.long, torch.int):
                problem_type = "single_label_classification"
            else:
                problem_type = "multi_label_classification"
        if problem_type == "single_label_classification":
            check_shape("labels", labels, logits.shape[:1], (len(logits), 1))
            loss = mean_cross_entropy(logits, labels, num_items_in_batch)
        elif problem_type == "regression":
            check_shape("labels", labels, logits.shape, *([logits.shape[:1]] if self.num_labels == 1 else []))
            loss = mean_loss(F.mse_loss, num_items_in_batch, logits, labels.view_as(logits).to(logits.dtype))
        else:
            check_shape("labels", labels, logits.shape)
            loss = mean_loss(F.binary_cross_entropy_with_logits, num_items_in_batch, logits, labels)
        self.config.problem_type = problem_type  # labels that do not fit decide nothing
        return loss


class RoFormerForTokenClassification(RoFormerHead):
    """Token classification: a label for each token."""

    one_text_per_row = False

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> TokenClassifierOutput:
        """Score the classes of each token.

        Args:
            labels: class ids, shape (b, s), and -100 for tokens to ignore.
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it; see `mean_loss`.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `logits` of shape (b, s, num_labels), and `loss`, the mean cross-entropy over the labels.
        """
        _, on_padding = check_token_labels(labels, input_ids, inputs_embeds, attention_mask, self.num_labels)
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, past_key_values=past_key_values, reads_padding=on_padding, **kwargs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None if labels is None else mean_cross_entropy(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class RoFormerForQuestionAnswering(RoFormerHead):
    """Extractive question answering: the start and end of the answer in the text."""

    # Trainer counts `labels`, which this head does not have: each accumulated step has the same weight.
    accepts_loss_kwargs = False

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        config.num_labels = 2
        self.num_labels = config.num_labels
        self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> QuestionAnsweringModelOutput:
        """Score each token as the first of the answer, and as its last.

        Args:
            start_positions, end_positions: index of the answer's first and last token, shape (b,); -100 and answers
                beyond the input are ignored.
            unpad_inputs: has no effect, since padding is scored too.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `start_logits` and `end_logits`, each of shape (b, s), and `loss`, the mean of both cross-entropies.
            Accumulated steps equal one step if each has the same number of answers.
        """
        answers = {"start_positions": start_positions, "end_positions": end_positions}
        check_ranges(*((name, positions, None, -100) for name, positions in answers.items()))
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, past_key_values=past_key_values, reads_padding=True, **kwargs)
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            s = start_logits.shape[1]
            start, end = (p.view(-1).to(start_logits.device).clamp(max=s) for p in (start_positions, end_positions))
            start, end = (p.where(p >= 0, s) for p in (start, end))
            start_loss = F.cross_entropy(start_logits, start, ignore_index=s)
            loss = (start_loss + F.cross_entropy(end_logits, end, ignore_index=s)) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class RoFormerSequenceSummary(nn.Module):
    """One vector per text, chosen by `config.summary_type`: "last" (default), "first", "mean" or "cls_index".

    Optional fields of the config, as in transformers' RoFormer: `summary_use_proj`, `summary_proj_to_labels`,
    `summary_activation`, `summary_first_dropout`, `summary_last_dropout`.
    """

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.summary_type = getattr(config, "summary_type", "last")
        if self.summary_type not in ("last", "first", "mean", "cls_index"):
            raise ValueError(f"summary_type is {self.summary_type!r}, but must be one of last, first, mean, cls_index")
        self.summary = nn.Identity()
        if getattr(config, "summary_use_proj", False):
            to_labels = getattr(config, "summary_proj_to_labels", False) and config.num_labels > 0
            self.summary = nn.Linear(config.hidden_size, config.num_labels if to_labels else config.hidden_size)
        activation = getattr(config, "summary_activation", None)
        self.activation = get_activation(activation) if activation else nn.Identity()
        self.first_dropout = nn.Dropout(getattr(config, "summary_first_dropout", 0.0))
        self.last_dropout = nn.Dropout(getattr(config, "summary_last_dropout", 0.0))

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.summary_type == "first":
            vector = first_tokens(hidden_states, attention_mask)[:, 0]
        elif self.summary_type == "mean":
            vector = hidden_states.mean(dim=1)
        else:  # "cls_index" without an index is the last token too
            vector = hidden_states[:, -1]
        return self.last_dropout(self.activation(self.summary(self.first_dropout(vector))))


class RoFormerForMultipleChoice(RoFormerHead):
    """Multiple choice: which of several continuations fits."""

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        self.sequence_summary = RoFormerSequenceSummary(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> MultipleChoiceModelOutput:
        """Score the choices of each example.

        Args:
            input_ids: shape (b, choices, s).
            attention_mask: shape (b, choices, s), 0 for padding.
            token_type_ids: segments, shape (b, choices, s); all 0 if None.
            inputs_embeds: shape (b, choices, s, embedding_size), instead of `input_ids`.
            labels: index of the right choice, shape (b,), -100 for examples to ignore.
            position_ids: integers, shape (b, choices, s); 0, 1, 2, … if None.
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it; see `mean_loss`.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `logits` of shape (b, choices), and `loss`, the mean cross-entropy over the choices.
        """
        examples, choices = check_tokens(input_ids, inputs_embeds, ("batch", "choices")).shape[:2]
        check_class_labels(labels, examples, choices)
        reads_padding = getattr(self.config, "summary_type", "last") != "first"  # as in transformers
        others = {"attention_mask": attention_mask, "token_type_ids": token_type_ids, "position_ids": position_ids}
        for name, tensor in others.items():
            check_shape(name, tensor, (examples, choices, *(() if tensor is None else tensor.shape[2:])))
        *inputs, position_ids = flatten_examples(input_ids, attention_mask, token_type_ids, inputs_embeds, position_ids)
        outputs = self.base_outputs(*inputs, position_ids=position_ids, reads_padding=reads_padding, **kwargs)
        logits = self.logits_of(outputs, inputs[1]).view(-1, choices)
        loss = None if labels is None else mean_cross_entropy(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def logits_of(self, outputs: Any, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Return a score for each choice from the bare model's outputs."""
        return self.classifier(self.sequence_summary(outputs.last_hidden_state, attention_mask))


@dataclass
class RoFormerCausalLMOutput(CausalLMOutputWithCrossAttentions):
    """Output of transformers' causal language models; a pooler adds `pooler_output`, shape (b, hidden_size)."""

    pooler_output: torch.FloatTensor | None = None


class RoFormerForCausalLM(LanguageModel, GenerationMixin):
    """Causal language model: predicts the next word. RoFormer-GPT, and with `prefix_lm` RoFormer-Sim.

    In a prefix language model the tokens of the prompt, segment 0, see each other; the generated text is segment 1.

    ```python
    >>> from transformers import pipeline
    >>> pipeline("text-generation", model=DIR)("北京", max_new_tokens=20)[0]["generated_text"]
    ```
    """

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.Tensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs,
    ) -> RoFormerCausalLMOutput:
        """Score every word of the vocabulary as the next one.

        Args:
            labels: the input ids, shape (b, s), and -100 for words to ignore; `forward` shifts them.
            logits_to_keep: compute only the last N logits (0: all), or those at the given positions.
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it; see `mean_loss`.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `logits` of shape (b, s, vocab_size), and `loss`, the mean cross-entropy over the next words.
        """
        next_words: Any = kwargs.get("shift_labels")
        if labels is not None and next_words is None:
            next_words = F.pad(labels, (0, 1), value=-100)[:, 1:]
        vocab_size = self.config.vocab_size
        _, on_padding = check_token_labels(
            labels, input_ids, inputs_embeds, attention_mask, vocab_size, next_labels=next_words
        )
        if labels is not None and use_cache is None and self.training:
            use_cache = False  # a cache would hold padding, too, so that it could not be left out
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        inputs += (encoder_hidden_states, encoder_attention_mask, past_key_values, use_cache, position_ids)
        outputs = self.base_outputs(*inputs, reads_padding=on_padding, **kwargs)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.cls(outputs.last_hidden_state[:, keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return RoFormerCausalLMOutput(loss=loss, logits=logits, **others)

    def generate(self, inputs=None, generation_config=None, *args, **kwargs):
        """Generate as in transformers; without a cache if frequencies depend on the length (dynamic NTK).

        Raises:
            ValueError: the checkpoint is an encoder, which was not trained to continue a text; or a prefix language
                model was asked to read its prompt in parts or to guide its words (`guidance_scale`).
        """
        if not self.config.is_decoder:
            raise ValueError(
                "this checkpoint is an encoder (is_decoder=False) and cannot generate text: load a RoFormer-GPT or "
                "RoFormer-Sim; to train this one on generation, pass is_decoder=True to from_pretrained"
            )
        cache = given_cache(kwargs.pop("past_key_values", None), kwargs)
        if cache is not None:
            kwargs[CACHE_NAME] = cache
        if depends_on_length(self.config):
            kwargs.setdefault("use_cache", False)
        if self.config.prefix_lm:
            settings = generation_config or self.generation_config
            if getattr(settings, "is_assistant", False) and "token_type_ids" in kwargs:
                # These are the main model's segments and one more (see `_get_candidate_generator`).
                kwargs["token_type_ids"] = kwargs["token_type_ids"][:, : kwargs["input_ids"].shape[1]]
            self._check_prefix(settings, cache, kwargs)
        generate = super().generate  # pyright: ignore[reportAttributeAccessIssue]
        return generate(inputs, generation_config, *args, **kwargs)

    def _check_prefix(self, settings: Any, cache: Cache | None, kwargs: dict[str, Any]) -> None:
        """Raise a ValueError for arguments of `generate` that would hide the prompt from a prefix language model."""
        if kwargs.get("prefill_chunk_size", getattr(settings, "prefill_chunk_size", None)) is not None:
            raise ValueError(
                "prefill_chunk_size does not work with prefix_lm=True, where all tokens of the prompt see each "
                "other: leave it out"
            )
        if kwargs.get("guidance_scale", getattr(settings, "guidance_scale", None)) not in (None, 1):
            raise ValueError(
                "guidance_scale does not work with prefix_lm=True: transformers computes the words without the "
                "prompt as if they were a prompt: leave it out"
            )
        # An assistant's cache had the whole prompt, even if its last words were removed.
        is_assistant = getattr(settings, "is_assistant", False)
        past = 0 if cache is None or is_assistant else cache.get_seq_length()
        segments = kwargs.get("token_type_ids")
        if past and (segments is None or (segments[:, past:] == 0).any()):
            raise ValueError(
                "past_key_values of a part of the prompt do not work with prefix_lm=True, where all tokens of the "
                "prompt see each other: leave them out, or pass token_type_ids that are 1 after the cached tokens"
            )

    def prepare_inputs_for_generation(
        self, input_ids, *args, cache=None, inputs_embeds=None, is_first_iteration=False, prompt_length=None, **kwargs
    ):
        if cache is not None:
            kwargs[CACHE_NAME] = cache
        if inputs_embeds is not None and depends_on_length(self.config) and not is_first_iteration:
            # Without a cache, each step reads the whole text: the embedded prompt and the words generated so far.
            new = self.get_input_embeddings()(input_ids[:, prompt_length:])
            inputs_embeds, is_first_iteration = torch.cat([inputs_embeds, new.to(inputs_embeds)], dim=1), True
        # `generate` continues one text per row, and leaves out a mask of ones, which would say so.
        kwargs["one_text_per_row"] = None
        return super().prepare_inputs_for_generation(  # pyright: ignore[reportAttributeAccessIssue]
            input_ids, *args, inputs_embeds=inputs_embeds, is_first_iteration=is_first_iteration, **kwargs
        )

    @property
    def _is_stateful(self) -> bool:
        """True if the cache cannot be cropped: `generate` then refuses assisted decoding."""
        return not self.roformer.self_attention.computes_pairs

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        if depends_on_length(self.config) and "inputs_embeds" in model_kwargs:
            generation_config.use_cache = False  # transformers set it, to detect the first step
            return
        attention, requested = self.roformer.self_attention, generation_config.cache_implementation
        if not attention.computes_pairs and model_kwargs.get(CACHE_NAME) is None and requested in (None, "dynamic"):
            if generation_config.use_cache is not False:
                model_kwargs[CACHE_NAME] = attention.make_cache(self.config)
            return
        super()._prepare_cache_for_generation(  # pyright: ignore[reportAttributeAccessIssue]
            generation_config, model_kwargs, *args, **kwargs
        )

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, is_encoder_decoder=False, num_new_tokens=1):
        # transformers repeats the last segment; generated tokens of a prefix language model are segment 1.
        token_type_ids = model_kwargs.pop("token_type_ids", None) if self.config.prefix_lm else None
        model_kwargs = super()._update_model_kwargs_for_generation(
            outputs, model_kwargs, is_encoder_decoder, num_new_tokens
        )
        if token_type_ids is not None:
            model_kwargs["token_type_ids"] = F.pad(token_type_ids, (0, num_new_tokens), value=1)
        return model_kwargs

    def _get_candidate_generator(self, *args, model_kwargs, **kwargs):
        # Assisted decoding truncates the segments to prompt and candidates, or repeats the last one: append a 1, so
        # that it repeats the segment of the generated text.
        if self.config.prefix_lm:
            model_kwargs["token_type_ids"] = F.pad(model_kwargs["token_type_ids"], (0, 1), value=1)
        return super()._get_candidate_generator(  # pyright: ignore[reportAttributeAccessIssue]
            *args, model_kwargs=model_kwargs, **kwargs
        )

    def _prepare_model_inputs(self, inputs=None, bos_token_id=None, model_kwargs=None):
        inputs, name, model_kwargs = super()._prepare_model_inputs(  # pyright: ignore[reportAttributeAccessIssue]
            inputs, bos_token_id, model_kwargs
        )
        if self.config.prefix_lm:
            token_type_ids = model_kwargs.get("token_type_ids")
            if token_type_ids is None:
                token_type_ids = torch.zeros(inputs.shape[:2], dtype=torch.long, device=inputs.device)
            new = max(inputs.shape[1] - token_type_ids.shape[1], 0)  # first words of the generated text, if given
            model_kwargs["token_type_ids"] = F.pad(token_type_ids, (0, new), value=1)
        if name == "inputs_embeds" and depends_on_length(self.config):
            model_kwargs["prompt_length"] = model_kwargs["input_ids"].shape[1]
        return inputs, name, model_kwargs

    def create_masks_for_generate(
        self, config, inputs_embeds, attention_mask, past_key_values=None, token_type_ids=None, **kwargs
    ):
        """Return the mask of a step with a static cache; `generate` makes it ahead of the compiled call."""
        past_key_values = given_cache(past_key_values, kwargs)
        call = Call(config, token_type_ids, attention_mask=attention_mask, cache=past_key_values)
        return self.roformer.self_attention.make_mask(call, inputs_embeds)
