"""NEZHA (arXiv:1909.00204): a BERT with relative positions, and the heads that transformers 4 has for it.

Layers and heads are RoFormer's; only the positions differ: self-attention has a vector for each distance (equations 1
to 3). With p the position vector of the distance j − i, clipped to ±K (K is `max_relative_position`),

    e_ij = q_i · (k_j + p_ij) / √d,   α_i = softmax(e_i),   o_i = Σ_j α_ij (v_j + p_ij),

    p_ij = a[clip(j − i, −K, K) + K],   a[t]_2n = sin(t / 10000^(2n / d)),   a[t]_2n+1 = cos(t / 10000^(2n / d)).

The p_ij of all pairs are never materialised: there are only 2K + 1 vectors. Each query is multiplied by these, and the
products are gathered by distance; the probabilities are summed by distance before they weight the vectors.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim, K max_relative_position.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import nn
from transformers.modeling_outputs import ModelOutput, NextSentencePredictorOutput

from .attention import RoFormerSelfAttention
from .configuration import RoFormerConfig
from .heads import (
    RoFormerForMaskedLM,
    RoFormerForMultipleChoice,
    RoFormerForQuestionAnswering,
    RoFormerForSequenceClassification,
    RoFormerForTokenClassification,
    RoFormerHead,
    RoFormerOnlyMLMHead,
    check_class_labels,
    check_token_labels,
    mean_cross_entropy,
    select_labelled,
)
from .inputs import check_shape, check_tokens
from .model import LM_HEAD_KEYS, RoFormerLayer, RoFormerModel, RoFormerPreTrainedModel, can_return_tuple
from .nezha_configuration import NezhaConfig
from .rotary import inverse_frequencies


def relative_position_embeddings(
    position_ids: torch.Tensor, head_dim: int, max_relative_position: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vectors of all distances, and the index of each pair of positions among them.

    Args:
        position_ids: integer positions i, shape (b, s), or (1, s) if all texts share them.

    Returns:
        The vectors a, shape (2K + 1, d), float32, computed in float64 in each call, as rotary positions are; and the
        index of each pair, clip(j − i, −K, K) + K, shape (b or 1, 1, s, s).

    ```python
    >>> vectors, indices = relative_position_embeddings(torch.arange(4)[None], head_dim=2, max_relative_position=2)
    >>> indices[0, 0]
    tensor([[2, 3, 4, 4],
            [1, 2, 3, 4],
            [0, 1, 2, 3],
            [0, 0, 1, 2]])
    ```
    """
    distances = position_ids[:, None, :] - position_ids[:, :, None]
    indices = distances.clamp(-max_relative_position, max_relative_position) + max_relative_position
    inv_freq = inverse_frequencies(head_dim, device=position_ids.device)
    t = torch.arange(2 * max_relative_position + 1, dtype=inv_freq.dtype, device=inv_freq.device)
    angles = t[:, None] * inv_freq
    vectors = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    return vectors.to(device=position_ids.device, dtype=torch.float32), indices[:, None]


class NezhaSelfAttention(RoFormerSelfAttention):
    """Self-attention with relative positions in the scores and in the values."""

    def __init__(self, config: NezhaConfig, layer_idx: int):
        super().__init__(cast(RoFormerConfig, config), layer_idx)
        self.register_load_state_dict_pre_hook(drop_positions_encoding)

    @staticmethod
    def can_pack(config: RoFormerConfig) -> bool:
        """Return False: the indices of `position_embeddings` are of padded texts."""
        return False

    def forward(
        self,
        hidden_states: torch.Tensor,
        vectors: torch.Tensor,
        indices: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        query, key, value = (x.transpose(1, 2) for x in self.project(hidden_states))
        vectors = vectors.to(query.dtype)
        indices = indices.expand(*query.shape[:3], -1)  # (b, h, s, s), without a copy

        by_distance = torch.matmul(query, vectors.T)  # (b, h, s, 2K + 1)
        scores = (torch.matmul(query, key.transpose(-1, -2)) + by_distance.gather(-1, indices)) * self.head_dim**-0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        probabilities = self.dropout(nn.functional.softmax(scores, dim=-1))

        # A sum over a long text needs float32.
        wide = torch.promote_types(probabilities.dtype, torch.float32)
        weights = torch.zeros_like(by_distance, dtype=wide).scatter_add(-1, indices, probabilities.to(wide))
        context = torch.matmul(probabilities, value) + torch.matmul(weights.to(vectors.dtype), vectors)
        return context.transpose(1, 2).flatten(-2), probabilities


def drop_positions_encoding(module: nn.Module, state_dict: dict, prefix: str, *args) -> None:
    """Remove the p_ij that transformers 4 saved in each layer; they are computed here."""
    state_dict.pop(f"{prefix}relative_positions_encoding.positions_encoding", None)


POOLER = {"pooler.dense.weight", "pooler.dense.bias"}


class NezhaPreTrainedModel(RoFormerPreTrainedModel):
    """Base of all NEZHA models. Their positions need the attention probabilities, which fused kernels do not return."""

    if TYPE_CHECKING:

        def __init__(self, config: NezhaConfig): ...

    config: NezhaConfig
    config_class = NezhaConfig
    attention_classes = {"softmax": NezhaSelfAttention}
    base_model_prefix = "nezha"
    _supports_sdpa = False
    _supports_flash_attn = False
    _supports_flex_attn = False
    _supports_attention_backend = False
    # Positions are computed; a pooler and heads that the model does not use are ignored.
    _keys_to_ignore_on_load_unexpected = [
        r"\.relative_positions_encoding\.positions_encoding$",
        r"(^|\.)pooler\.",
        LM_HEAD_KEYS,
        r"^cls\.seq_relationship\.(weight|bias)$",
    ]
    _can_record_outputs = {"hidden_states": RoFormerLayer, "attentions": NezhaSelfAttention}

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Return "eager"; raise a ValueError if another implementation is requested."""
        if requested_attention not in (None, "eager"):
            raise ValueError(
                f'attn_implementation="{requested_attention}" does not work for NEZHA, whose positions need the '
                'attention probabilities: use "eager", or leave it out'
            )
        return "eager"

    def check_loaded(self, report: dict, source: str) -> None:
        """Check as in `RoFormerPreTrainedModel`, but allow a missing pooler: language models are saved without one.

        The bare model then has no pooler; a head that reads it initialises it newly.
        """
        missing = set(report["missing_keys"])
        pooler = {name for name in missing if name.removeprefix("nezha.") in POOLER}
        if len(pooler) == len(POOLER):  # with only one of the two, the checkpoint is damaged
            missing -= pooler
            if self.base_model is self:
                del self.pooler
                self.config.add_pooling_layer = False
        super().check_loaded({**report, "missing_keys": missing}, source)


class NezhaModel(NezhaPreTrainedModel, RoFormerModel):
    """Bare transformer: token ids in, hidden states out. Inputs and outputs are those of `RoFormerModel.forward`.

    It returns `pooler_output` if `config.add_pooling_layer` is set; `from_pretrained` unsets it for a checkpoint
    without a pooler.

    ```python
    >>> from modeling_roformer import NezhaConfig, NezhaModel
    >>> model = NezhaModel(NezhaConfig(num_hidden_layers=2))
    >>> model(torch.tensor([[101, 4500, 102]])).pooler_output.shape
    torch.Size([1, 768])
    ```
    """

    def position_embeddings(
        self,
        position_ids: torch.Tensor,
        lengths: int | torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vector of each distance, and the row of each pair of tokens, for every layer's self-attention."""
        return relative_position_embeddings(position_ids, self.config.head_dim, self.config.max_relative_position)


class NezhaHead(NezhaPreTrainedModel, RoFormerHead):
    """Base of NEZHA models with a head; the bare model has a pooler only if the head reads it."""

    base_model_class = NezhaModel
    reads_pooler: ClassVar[bool] = False

    def __init__(self, config: NezhaConfig):
        config.add_pooling_layer = self.reads_pooler
        super().__init__(config)

    def classifier_dropout(self) -> nn.Dropout:
        p = self.config.classifier_dropout
        return nn.Dropout(self.config.hidden_dropout_prob if p is None else p)


class NezhaForMaskedLM(NezhaHead, RoFormerForMaskedLM):
    """Masked language model: predicts masked words.

    ```python
    >>> from transformers import pipeline
    >>> pipeline("fill-mask", model=DIR)("北京是中国的[MASK]。")[0]["token_str"]
    ```
    """

    _tied_weights_keys = {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "nezha.embeddings.word_embeddings.weight",
    }


@dataclass
class NezhaForPreTrainingOutput(ModelOutput):
    """Output of `NezhaForPreTraining`."""

    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


class NezhaPreTrainingHeads(RoFormerOnlyMLMHead):
    """The head of masked words, and the one of next sentences over the pooler's output."""

    def __init__(self, config: NezhaConfig):
        super().__init__(cast(RoFormerConfig, config))
        self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, hidden_states: torch.Tensor, pooler_output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.predictions(hidden_states), self.seq_relationship(pooler_output)


class NezhaForPreTraining(NezhaForMaskedLM):
    """Masked language model and next sentence prediction, as in pre-training."""

    one_text_per_row = True
    # There are two losses, and Trainer counts the labels of the first only: each accumulated step has the same weight.
    accepts_loss_kwargs = False
    reads_pooler = True
    head_class = NezhaPreTrainingHeads

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        **kwargs,
    ) -> NezhaForPreTrainingOutput:
        """Score every word of the vocabulary at each position, and whether the second sentence follows the first.

        Args:
            labels: ids of the words that were masked, shape (b, s), and -100 elsewhere.
            next_sentence_label: 0 if the second sentence follows the first, 1 if not, shape (b,).
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `prediction_logits` of shape (b, s, vocab_size), as from `RoFormerForMaskedLM`, `seq_relationship_logits` of
            shape (b, 2), and with both labels `loss`, the sum of both mean cross-entropies. Accumulated steps equal one
            step if each has the same numbers of both labels.
        """
        next_sentence_range = ("next_sentence_label", next_sentence_label, 2, -100)
        vocab_size = self.config.vocab_size
        examples = check_tokens(input_ids, inputs_embeds).shape[0]
        check_shape("next_sentence_label", next_sentence_label, (examples,), (examples, 1))
        count, _ = check_token_labels(labels, input_ids, inputs_embeds, attention_mask, vocab_size, next_sentence_range)
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, **kwargs)
        hidden_states = outputs.last_hidden_state
        if self.training and self.config.sparse_prediction:
            hidden_states, labels = select_labelled(hidden_states, labels, count)
        prediction_logits, seq_relationship_logits = self.cls(hidden_states, outputs.pooler_output)
        loss = None
        if labels is not None and next_sentence_label is not None:
            loss = mean_cross_entropy(prediction_logits, labels)
            loss = loss + mean_cross_entropy(seq_relationship_logits, next_sentence_label)
        return NezhaForPreTrainingOutput(
            loss=loss,
            prediction_logits=prediction_logits,
            seq_relationship_logits=seq_relationship_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class NezhaOnlyNSPHead(nn.Sequential):
    """Wrapper that gives the head its name in checkpoints: `cls.seq_relationship`."""

    def __init__(self, config: NezhaConfig):
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class NezhaForNextSentencePrediction(NezhaHead):
    """Next sentence prediction: does the second sentence follow the first?"""

    reads_pooler = True

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.cls = NezhaOnlyNSPHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> NextSentencePredictorOutput:
        """Score whether the second sentence follows the first.

        Args:
            labels: 0 if the second sentence follows the first, 1 if not, shape (b,).
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it; see `mean_loss`.
            **kwargs: the other arguments of `RoFormerModel.forward`, and `return_dict`.

        Returns:
            `logits` of shape (b, 2), and `loss`, the mean cross-entropy.
        """
        check_class_labels(labels, check_tokens(input_ids, inputs_embeds).shape[0], 2)
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.base_outputs(*inputs, **kwargs)
        logits = self.cls(outputs.pooler_output)
        loss = None if labels is None else mean_cross_entropy(logits, labels, num_items_in_batch)
        return NextSentencePredictorOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class NezhaForSequenceClassification(NezhaHead, RoFormerForSequenceClassification):
    """Text classification with one or several labels per text, or regression."""

    reads_pooler = True

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.dropout = self.classifier_dropout()
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def logits_of(self, outputs: Any, attention_mask: torch.Tensor | None) -> torch.Tensor:
        return self.classifier(self.dropout(outputs.pooler_output))


class NezhaForMultipleChoice(NezhaHead, RoFormerForMultipleChoice):
    """Multiple choice: which of several continuations fits."""

    reads_pooler = True

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        del self.sequence_summary  # the pooler replaces it
        self.dropout = self.classifier_dropout()

    def logits_of(self, outputs: Any, attention_mask: torch.Tensor | None) -> torch.Tensor:
        return self.classifier(self.dropout(outputs.pooler_output))


class NezhaForTokenClassification(NezhaHead, RoFormerForTokenClassification):
    """Token classification: a label for each token."""

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.dropout = self.classifier_dropout()


class NezhaForQuestionAnswering(NezhaHead, RoFormerForQuestionAnswering):
    """Extractive question answering: the start and end of the answer in the text."""
