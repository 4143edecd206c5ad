"""Task heads over the encoder: masked language model, classification of texts and of tokens, question answering.

Dimensions in the shapes: b batch, s sequence length.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from .configuration import RoFormerConfig
from .model import RoFormerModel, RoFormerPreTrainedModel


class RoFormerPredictionHeadTransform(nn.Module):
    """From hidden states to vectors that are compared with word embeddings."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.transform_act_fn = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))


class RoFormerLMPredictionHead(nn.Module):
    """Logits over the vocabulary; the decoder shares the word embeddings and has a bias of its own."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.transform = RoFormerPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.embedding_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied with decoder.bias

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.transform(hidden_states))


class RoFormerOnlyMLMHead(nn.Module):
    """The name under which checkpoints keep the head: `cls.predictions`."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.predictions = RoFormerLMPredictionHead(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.predictions(hidden_states)


class RoFormerForMaskedLM(RoFormerPreTrainedModel):
    """Predicts masked words.

    ```python
    >>> from transformers import pipeline
    >>> pipeline("fill-mask", model=DIR)("北京是中国的[MASK]。")[0]["token_str"]
    '城市'
    ```
    """

    _tied_weights_keys = {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
    }

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        self.roformer = RoFormerModel(config)
        self.cls = RoFormerOnlyMLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        """Inputs as in `RoFormerModel.forward`.

        Args:
            labels: ids of the words that were masked, shape (b, s), and -100 elsewhere.

        Returns:
            `logits` of shape (b, s, vocab_size), and `loss`, the mean cross-entropy over the labels.
        """
        outputs = self.roformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds, **{**kwargs, "return_dict": True}
        )
        logits = self.cls(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.view(-1, self.config.vocab_size), labels.view(-1).to(logits.device))
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class RoFormerClassificationHead(nn.Module):
    """Two layers over the first token."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        first_token = self.dropout(hidden_states[:, 0])
        return self.out_proj(self.dropout(self.activation(self.dense(first_token))))


class RoFormerForSequenceClassification(RoFormerPreTrainedModel):
    """One label, several, or a number for each text."""

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.roformer = RoFormerModel(config)
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
        **kwargs,
    ) -> SequenceClassifierOutput:
        """Inputs as in `RoFormerModel.forward`.

        Args:
            labels: shape (b,) of class ids; shape (b,) or (b, num_labels) of numbers for regression; shape
                (b, num_labels) of 0.0 and 1.0 for several labels a text. Where `config.problem_type` is None, it is
                taken from the labels and `num_labels`, as in transformers, and kept in the config.

        Returns:
            `logits` of shape (b, num_labels), and `loss`.
        """
        outputs = self.roformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds, **{**kwargs, "return_dict": True}
        )
        logits = self.classifier(outputs.last_hidden_state)
        loss = None if labels is None else self.classification_loss(logits, labels.to(logits.device))
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def classification_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.config.problem_type is None:
            if self.num_labels == 1:
                self.config.problem_type = "regression"
            elif labels.dtype in (torch.long, torch.int):
                self.config.problem_type = "single_label_classification"
            else:
                self.config.problem_type = "multi_label_classification"
        if self.config.problem_type == "regression":
            return F.mse_loss(logits.squeeze(-1), labels.view_as(logits.squeeze(-1)).to(logits.dtype))
        if self.config.problem_type == "single_label_classification":
            return F.cross_entropy(logits.view(-1, self.num_labels), labels.view(-1))
        return F.binary_cross_entropy_with_logits(logits, labels)


class RoFormerForTokenClassification(RoFormerPreTrainedModel):
    """A label for each token."""

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.roformer = RoFormerModel(config)
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
        **kwargs,
    ) -> TokenClassifierOutput:
        """Inputs as in `RoFormerModel.forward`.

        Args:
            labels: class ids, shape (b, s), and -100 for tokens that don't count.

        Returns:
            `logits` of shape (b, s, num_labels), and `loss`, the mean cross-entropy over the labels.
        """
        outputs = self.roformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds, **{**kwargs, "return_dict": True}
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.view(-1, self.num_labels), labels.view(-1).to(logits.device))
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class RoFormerForQuestionAnswering(RoFormerPreTrainedModel):
    """Where in the text an answer starts and ends."""

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        config.num_labels = 2
        self.num_labels = config.num_labels
        self.roformer = RoFormerModel(config)
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
        **kwargs,
    ) -> QuestionAnsweringModelOutput:
        """Inputs as in `RoFormerModel.forward`.

        Args:
            start_positions, end_positions: index of the answer's first and last token, shape (b,); answers beyond
                the input don't count.

        Returns:
            `start_logits` and `end_logits`, each of shape (b, s), and `loss`, the mean of both cross-entropies.
        """
        outputs = self.roformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds, **{**kwargs, "return_dict": True}
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            s = start_logits.shape[1]
            start, end = (p.view(-1).to(start_logits.device).clamp(0, s) for p in (start_positions, end_positions))
            loss = (
                F.cross_entropy(start_logits, start, ignore_index=s) + F.cross_entropy(end_logits, end, ignore_index=s)
            ) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
