"""Task heads: masked language model, classification of texts and of tokens, question answering, multiple choice.

Dimensions in the shapes: b batch, s sequence length.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from .configuration import RoFormerConfig
from .docstrings import can_return_tuple
from .inputs import check_ranges, check_tokens
from .model import LM_HEAD_KEYS
from .task_head import (
    RoFormerHead,
    check_token_labels,
    describes_inputs,
    describes_inputs_and_parts,
    flatten_examples,
    mean_loss,
    select_labelled,
)


class RoFormerPredictionHeadTransform(nn.Module):
    """Map from hidden states to vectors of the word embeddings' width."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.dense = nn.Linear(config.hidden_size, width)
        self.transform_act_fn = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))


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


class RoFormerOnlyMLMHead(nn.Module):
    """Wrapper that gives the head its name in checkpoints: `cls.predictions`."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        head = RoFormerV2LMPredictionHead if config.norm_type == "rms_norm" else RoFormerLMPredictionHead
        self.predictions = head(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.predictions(hidden_states)


class LanguageModel(RoFormerHead):
    """Base of masked and causal language models: the head and its tied weights."""

    one_text_per_row = False
    _tied_weights_keys = {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
    }

    def __init__(self, config: RoFormerConfig):
        if config.norm_type == "rms_norm":  # its head has no bias
            keys = self._tied_weights_keys
            self._tied_weights_keys = {name: source for name, source in keys.items() if name.endswith("weight")}
        super().__init__(config)
        self.cls = RoFormerOnlyMLMHead(config)
        self.register_state_dict_post_hook(save_both_biases)
        self.post_init()
        # The bare model in it ignores them.
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
    @describes_inputs_and_parts
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
        **kwargs,
    ) -> MaskedLMOutput:
        """Score every word of the vocabulary at each position.

        Args:
            labels: ids of the words that were masked, shape (b, s), and -100 elsewhere.

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
        hidden_states, labels = select_labelled(self, outputs.last_hidden_state, labels, count)
        return self._make_output(MaskedLMOutput, outputs, self.cls(hidden_states), labels, **kwargs)


class RoFormerClassificationHead(nn.Module):
    """Two layers over the first token, or one if `config.classifier_layers` is 1."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.has_hidden_layer = config.classifier_layers == 2
        if self.has_hidden_layer:
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)
            self.activation = ACT2FN[config.classifier_activation or config.hidden_act]
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
    @describes_inputs_and_parts
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> SequenceClassifierOutput:
        """Score the classes of each text.

        Args:
            labels: shape (b,) of class ids; shape (b,) or (b, num_labels) of numbers for regression; shape
                (b, num_labels) of 0.0 and 1.0 for several labels per text. A class id of -100 is ignored. Do not use
                -100 as a number to predict: Trainer does not count it. If `config.problem_type` is None, it is detected
                from the labels and `num_labels`, as in transformers, and kept in the config.

        Returns:
            `logits` of shape (b, num_labels), and `loss`.
        """
        if self.num_labels > 1 and self.config.problem_type in (None, "single_label_classification"):
            check_ranges(("labels", labels, self.num_labels, -100))
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, past_key_values=past_key_values, **kwargs)
        return self._make_output(SequenceClassifierOutput, outputs, self.logits_of(outputs), labels, **kwargs)

    def logits_of(self, outputs: Any) -> torch.Tensor:
        """Return the logits from the bare model's outputs."""
        return self.classifier(outputs.last_hidden_state)

    def loss_of(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
        """Return the loss of `config.problem_type`, a mean over texts, and over a text's labels if it has several."""
        labels = labels.to(logits.device)
        if self.config.problem_type is None:
            if self.num_labels == 1:
                self.config.problem_type = "regression"
            elif labels.dtype in (torch.long, torch.int):
                self.config.problem_type = "single_label_classification"
            else:
                self.config.problem_type = "multi_label_classification"
        if self.config.problem_type == "single_label_classification":
            return super().loss_of(logits, labels, num_items_in_batch)
        function = F.binary_cross_entropy_with_logits
        if self.config.problem_type == "regression":
            function, labels = F.mse_loss, labels.view_as(logits).to(logits.dtype)
        return mean_loss(function, num_items_in_batch, logits, labels)


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
    @describes_inputs_and_parts
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> TokenClassifierOutput:
        """Score the classes of each token.

        Args:
            labels: class ids, shape (b, s), and -100 for tokens to ignore.

        Returns:
            `logits` of shape (b, s, num_labels), and `loss`, the mean cross-entropy over the labels.
        """
        _, on_padding = check_token_labels(labels, input_ids, inputs_embeds, attention_mask, self.num_labels)
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, past_key_values=past_key_values, reads_padding=on_padding, **kwargs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        return self._make_output(TokenClassifierOutput, outputs, logits, labels, **kwargs)


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
    @describes_inputs
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
            start_positions, end_positions: index of the answer's first and last token, shape (b,); answers beyond
                the input are ignored.
            unpad_inputs: has no effect, since padding is scored too.

        Returns:
            `start_logits` and `end_logits`, each of shape (b, s), and `loss`, the mean of both cross-entropies.
            Accumulated steps equal one step if each has the same number of answers.
        """
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, past_key_values=past_key_values, reads_padding=True, **kwargs)
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            s = start_logits.shape[1]
            start, end = (p.view(-1).to(start_logits.device).clamp(0, s) for p in (start_positions, end_positions))
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
        self.activation = ACT2FN[activation] if activation else nn.Identity()
        self.first_dropout = nn.Dropout(getattr(config, "summary_first_dropout", 0.0))
        self.last_dropout = nn.Dropout(getattr(config, "summary_last_dropout", 0.0))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.summary_type == "first":
            vector = hidden_states[:, 0]
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
    @describes_inputs_and_parts
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
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

        Returns:
            `logits` of shape (b, choices), and `loss`, the mean cross-entropy over the choices.
        """
        choices = check_tokens(input_ids, inputs_embeds, ("batch", "choices")).shape[1]
        check_ranges(("labels", labels, choices, -100))
        reads_padding = getattr(self.config, "summary_type", "last") != "first"  # as in transformers
        *inputs, position_ids = flatten_examples(input_ids, attention_mask, token_type_ids, inputs_embeds, position_ids)
        outputs = self.base_outputs(*inputs, position_ids=position_ids, reads_padding=reads_padding, **kwargs)
        logits = self.logits_of(outputs).view(-1, choices)
        return self._make_output(MultipleChoiceModelOutput, outputs, logits, labels, **kwargs)

    def logits_of(self, outputs: Any) -> torch.Tensor:
        """Return a score for each choice from the bare model's outputs."""
        return self.classifier(self.sequence_summary(outputs.last_hidden_state))
