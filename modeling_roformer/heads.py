"""Task heads: language models, classification of texts and of tokens, question answering, multiple choice.

Dimensions in the shapes: b batch, s sequence length.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import (
    CausalLMOutputWithCrossAttentions,
    MaskedLMOutput,
    ModelOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from .configuration import RoFormerConfig
from .input_checks import can_be_read, check_range, check_ranges, check_same_shape, check_tokens, is_wrapped
from .linear_cache import LinearAttentionCache
from .masks import self_attention_mask
from .rope_scaling import depends_on_length
from .task_head import RoFormerHead, describes_inputs, describes_inputs_and_parts, mean_loss, one_by_one


def check_token_labels(
    labels: torch.Tensor | None,
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    classes: int,
    *others: tuple[str, torch.Tensor | None, int | None, int | None],
) -> int | None:
    """Raises a ValueError unless there is a label, from 0 to `classes` - 1 or -100, for each token.

    `others` are further ranges to check by the same read (see `check_ranges`).

    Returns:
        How many labels are not -100; None where there are none, or where a compiler does not let them be read.
    """
    inputs = input_ids if inputs_embeds is None else inputs_embeds
    if inputs is not None:
        check_same_shape("labels", labels, inputs.shape[:2])
    is_known = labels is not None and can_be_read(labels)
    count = (labels != -100).sum() if is_known else None
    return check_ranges(("labels", labels, classes, -100), *others, questions=(count,))[0]


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


class RoFormerV2LMPredictionHead(nn.Module):
    """RoFormer-V2's: the product with the word embeddings, and nothing else."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        if config.embedding_size != config.hidden_size:
            self.mapping = nn.Linear(config.hidden_size, config.embedding_size, bias=False)
        self.decoder = nn.Linear(config.embedding_size, config.vocab_size, bias=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.mapping(hidden_states) if hasattr(self, "mapping") else hidden_states)


class RoFormerOnlyMLMHead(nn.Module):
    """The name under which checkpoints keep the head: `cls.predictions`."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        head = RoFormerV2LMPredictionHead if config.norm_type == "rms_norm" else RoFormerLMPredictionHead
        self.predictions = head(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.predictions(hidden_states)


class _LanguageModel(RoFormerHead):
    """What masked and causal language models share: the head, and its ties to the word embeddings."""

    _tied_weights_keys = {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
    }

    def __init__(self, config: RoFormerConfig):
        if config.norm_type == "rms_norm":  # that head has no bias to tie
            self._tied_weights_keys = {
                name: source for name, source in self._tied_weights_keys.items() if name.endswith("weight")
            }
        super().__init__(config)
        self.cls = RoFormerOnlyMLMHead(config)
        self.register_state_dict_post_hook(both_biases)
        self.post_init()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """As in transformers, but a decoder with weights of its own has one bias, too, not another that nothing reads."""
        keys = super().get_expanded_tied_weights_keys(all_submodels)
        return keys | {name: source for name, source in self._tied_weights_keys.items() if name.endswith("bias")}

    def tie_weights(self, missing_keys: set[str] | None = None, recompute_mapping: bool = True) -> None:
        """As in transformers; of two biases in a checkpoint the decoder's counts, which transformers computes with."""
        head = self.cls.predictions
        names = {"cls.predictions.bias", "cls.predictions.decoder.bias"}
        if hasattr(head, "bias") and missing_keys is not None and not names & missing_keys:
            head.bias = head.decoder.bias
        super().tie_weights(missing_keys, recompute_mapping)

    def get_output_embeddings(self) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.cls.predictions.decoder = new_embeddings
        if new_embeddings.bias is not None:
            self.cls.predictions.bias = new_embeddings.bias


def both_biases(model: _LanguageModel, state_dict: dict, prefix: str, *args) -> None:
    """Has a decoder of its own saved with both names of its bias: transformers reads one, and misses the other."""
    name = f"{prefix}cls.predictions.bias"
    if not model.config.tie_word_embeddings and name in state_dict:
        state_dict[name] = state_dict[name].clone()


class RoFormerForMaskedLM(_LanguageModel):
    """Predicts masked words.

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
        """Scores every word of the vocabulary at each position.

        Args:
            labels: ids of the words that were masked, shape (b, s), and -100 elsewhere.

        Returns:
            `logits` of shape (b, s, vocab_size), and `loss`, the mean cross-entropy over the labels. In training
            with `config.sparse_prediction`, `logits` has shape (n, vocab_size), a row for each of the n labels.
        """
        count = check_token_labels(labels, input_ids, inputs_embeds, self.config.vocab_size)
        outputs = self.base_outputs(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            token_labels=labels,
            **kwargs,
        )
        logits, labels = self.predict(outputs.last_hidden_state, labels, count)
        return self.answer(MaskedLMOutput, outputs, logits, labels, **kwargs)

    def predict(
        self, hidden_states: torch.Tensor, labels: torch.Tensor | None, count: int | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits of `forward`, and their labels, of which `count` are not -100, where that is known."""
        if labels is not None and self.config.sparse_prediction and self.training and not is_wrapped(labels):
            # The vocabulary is the widest layer by far, and a sixth of the words have a label.
            labels = labels.flatten().to(hidden_states.device)
            has_label = labels != -100
            if count is None:
                where = has_label.nonzero().squeeze(-1)
            else:  # `nonzero` would wait for the device to say how many they are
                where = has_label.byte().argsort(descending=True, stable=True)[:count]
            hidden_states, labels = hidden_states.flatten(0, 1)[where], labels[where]
        return self.cls(hidden_states), labels


@dataclass
class RoFormerCausalLMOutput(CausalLMOutputWithCrossAttentions):
    """transformers' output, and `pooler_output` of shape (b, hidden_size) where the model has a pooler."""

    pooler_output: torch.FloatTensor | None = None


class RoFormerForCausalLM(_LanguageModel, GenerationMixin):
    """Predicts the next word: RoFormer-GPT, and with `prefix_lm` RoFormer-Sim, which rewrites its prompt.

    In a prefix language model the prompt is segment 0, which sees itself whole, and what is generated is segment 1.

    ```python
    >>> from transformers import pipeline
    >>> pipeline("text-generation", model=DIR)("北京", max_new_tokens=20)[0]["generated_text"]
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
        past_key_values: Cache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.Tensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs,
    ) -> RoFormerCausalLMOutput:
        """Scores every word of the vocabulary as the next one.

        Args:
            labels: the ids themselves, shape (b, s), and -100 for words that don't count; they are shifted here.
            logits_to_keep: compute the last so many logits (0: all), or those at the given positions.

        Returns:
            `logits` of shape (b, s, vocab_size), and `loss`, the mean cross-entropy over the next words.
        """
        check_token_labels(labels, input_ids, inputs_embeds, self.config.vocab_size)
        next_words = None
        if labels is not None:
            next_words = kwargs.get("shift_labels", F.pad(labels, (0, 1), value=-100)[:, 1:])
        outputs = self.base_outputs(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            use_cache,
            position_ids,
            token_labels=next_words,
            **kwargs,
        )
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.cls(outputs.last_hidden_state[:, keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return RoFormerCausalLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
            pooler_output=outputs.pooler_output if self.config.add_pooling_layer else None,
        )

    def generate(self, inputs=None, generation_config=None, *args, **kwargs):
        """As in transformers; where frequencies depend on the length (dynamic NTK), without a cache.

        Raises:
            ValueError: the checkpoint is an encoder, which has not learned to continue a text; or a prefix language
                model is to read its prompt in chunks.
        """
        if not self.config.is_decoder:
            raise ValueError(
                "this checkpoint is an encoder (is_decoder is false) and cannot generate text: load a RoFormer-GPT or "
                "RoFormer-Sim, or to train this one on generation, pass is_decoder=True to from_pretrained"
            )
        if depends_on_length(self.config):
            kwargs.setdefault("use_cache", False)
        if self.config.prefix_lm:
            settings = generation_config or self.generation_config
            if kwargs.get("prefill_chunk_size", getattr(settings, "prefill_chunk_size", None)) is not None:
                raise ValueError(
                    "prefill_chunk_size would hide the later chunks of a prompt from the earlier ones, but a prefix "
                    "language model (prefix_lm) sees its prompt whole: leave it out"
                )
            if getattr(settings, "is_assistant", False) and "token_type_ids" in kwargs:
                # The main model's segments, and that of its next token (see `_get_candidate_generator`).
                kwargs["token_type_ids"] = kwargs["token_type_ids"][:, : kwargs["input_ids"].shape[1]]
        return super().generate(inputs, generation_config, *args, **kwargs)

    def prepare_inputs_for_generation(
        self, input_ids, *args, inputs_embeds=None, is_first_iteration=False, prompt_length=None, **kwargs
    ):
        if inputs_embeds is not None and depends_on_length(self.config) and not is_first_iteration:
            # Without a cache, all of the text is read with each word: the prompt as it was embedded, and what follows.
            new = self.get_input_embeddings()(input_ids[:, prompt_length:])
            inputs_embeds, is_first_iteration = torch.cat([inputs_embeds, new.to(inputs_embeds)], dim=1), True
        return super().prepare_inputs_for_generation(
            input_ids, *args, inputs_embeds=inputs_embeds, is_first_iteration=is_first_iteration, **kwargs
        )

    @property
    def _is_stateful(self) -> bool:
        """Whether no token can be taken back, so that `generate` refuses assisted decoding; read by transformers."""
        return self.config.attention_type == "linear"

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        if depends_on_length(self.config) and "inputs_embeds" in model_kwargs:
            generation_config.use_cache = False  # which transformers has set, to know the first step by it
            return
        if self.config.attention_type == "linear" and model_kwargs.get("past_key_values") is None:
            kind = generation_config.cache_implementation
            if kind not in (None, "dynamic"):
                raise ValueError(
                    f'cache_implementation="{kind}" is for keys and values, of which linear attention keeps none: leave it '
                    "out, its state has a constant size anyway"
                )
            if generation_config.use_cache is not False:
                model_kwargs["past_key_values"] = LinearAttentionCache(self.config)
            return
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, is_encoder_decoder=False, num_new_tokens=1):
        # transformers repeats the last segments; what a prefix language model has generated is segment 1.
        token_type_ids = model_kwargs.pop("token_type_ids", None) if self.config.prefix_lm else None
        model_kwargs = super()._update_model_kwargs_for_generation(
            outputs, model_kwargs, is_encoder_decoder, num_new_tokens
        )
        if token_type_ids is not None:
            model_kwargs["token_type_ids"] = F.pad(token_type_ids, (0, num_new_tokens), value=1)
        return model_kwargs

    def _get_candidate_generator(self, *args, model_kwargs, **kwargs):
        # Assisted decoding cuts the segments to the length of prompt and candidates, or repeats the last one, which
        # must be the answer's then, not the prompt's.
        if self.config.prefix_lm:
            model_kwargs["token_type_ids"] = F.pad(model_kwargs["token_type_ids"], (0, 1), value=1)
        return super()._get_candidate_generator(*args, model_kwargs=model_kwargs, **kwargs)

    def _prepare_model_inputs(self, inputs=None, bos_token_id=None, model_kwargs=None):
        inputs, name, model_kwargs = super()._prepare_model_inputs(inputs, bos_token_id, model_kwargs)
        if self.config.prefix_lm:
            token_type_ids = model_kwargs.get("token_type_ids")
            if token_type_ids is None:
                token_type_ids = torch.zeros(inputs.shape[:2], dtype=torch.long, device=inputs.device)
            new = max(inputs.shape[1] - token_type_ids.shape[1], 0)  # the answer's first words, where they are given
            model_kwargs["token_type_ids"] = F.pad(token_type_ids, (0, new), value=1)
        if name == "inputs_embeds" and depends_on_length(self.config):
            model_kwargs["prompt_length"] = model_kwargs["input_ids"].shape[1]
        return inputs, name, model_kwargs

    def create_masks_for_generate(
        self, config, inputs_embeds, attention_mask, past_key_values, token_type_ids=None, **kwargs
    ):
        """The mask of a step whose cache has a fixed size, which `generate` makes ahead for the sake of compilation."""
        return self_attention_mask(
            config, config._attn_implementation, inputs_embeds, attention_mask, token_type_ids, past_key_values
        )


class RoFormerClassificationHead(nn.Module):
    """Two layers over the first token; with `config.classifier_layers` = 1 the second alone."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        if config.classifier_layers == 2:
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)
            self.activation = ACT2FN[config.classifier_activation or config.hidden_act]
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        vectors = self.dropout(hidden_states[:, 0])
        if hasattr(self, "dense"):
            vectors = self.dropout(self.activation(self.dense(vectors)))
        return self.out_proj(vectors)


class RoFormerForSequenceClassification(RoFormerHead):
    """One label, several, or a number for each text."""

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
        """Scores the classes of each text.

        Args:
            labels: shape (b,) of class ids; shape (b,) or (b, num_labels) of numbers for regression; shape
                (b, num_labels) of 0.0 and 1.0 for several labels a text. A class id of -100 does not count; among
                numbers it would, but not for Trainer. Where `config.problem_type` is None, it is taken from the
                labels and `num_labels`, as in transformers, and kept in the config.

        Returns:
            `logits` of shape (b, num_labels), and `loss`.
        """
        if self.num_labels > 1 and self.config.problem_type in (None, "single_label_classification"):
            check_range("labels", labels, self.num_labels, ignored=-100)
        outputs = self.base_outputs(
            input_ids, attention_mask, token_type_ids, inputs_embeds, past_key_values=past_key_values, **kwargs
        )
        return self.answer(SequenceClassifierOutput, outputs, self.logits_of(outputs), labels, **kwargs)

    def logits_of(self, outputs: ModelOutput) -> torch.Tensor:
        """Logits from the bare model's outputs."""
        return self.classifier(outputs.last_hidden_state)

    def loss_of(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
        """The loss of `config.problem_type`, a mean over texts, and over their labels where they have several."""
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
    """A label for each token."""

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
        """Scores the classes of each token.

        Args:
            labels: class ids, shape (b, s), and -100 for tokens that don't count.

        Returns:
            `logits` of shape (b, s, num_labels), and `loss`, the mean cross-entropy over the labels.
        """
        check_token_labels(labels, input_ids, inputs_embeds, self.num_labels)
        outputs = self.base_outputs(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds,
            past_key_values=past_key_values,
            token_labels=labels,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        return self.answer(TokenClassifierOutput, outputs, logits, labels, **kwargs)


class RoFormerForQuestionAnswering(RoFormerHead):
    """Where in the text an answer starts and ends."""

    # Trainer counts `labels`, of which there are none here: accumulated steps weigh the same.
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
        """Scores each token as the first of the answer, and as its last.

        Args:
            start_positions, end_positions: index of the answer's first and last token, shape (b,); answers beyond
                the input don't count.
            unpad_inputs: has no effect, since padding is among the tokens that are scored.

        Returns:
            `start_logits` and `end_logits`, each of shape (b, s), and `loss`, the mean of both cross-entropies.
            Accumulated steps learn what one step would where they have the same number of answers.
        """
        kwargs["unpad_inputs"] = False
        outputs = self.base_outputs(
            input_ids, attention_mask, token_type_ids, inputs_embeds, past_key_values=past_key_values, **kwargs
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


class RoFormerSequenceSummary(nn.Module):
    """One vector for a text, as `config.summary_type` says: "last" (default), "first", "mean" or "cls_index".

    `summary_use_proj`, `summary_proj_to_labels`, `summary_activation`, `summary_first_dropout` and
    `summary_last_dropout` are read from the config where it has them, as in transformers' RoFormer.
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
        else:  # without a cls_index, that is the last token too
            vector = hidden_states[:, -1]
        return self.last_dropout(self.activation(self.summary(self.first_dropout(vector))))


class RoFormerForMultipleChoice(RoFormerHead):
    """Which of several continuations fits."""

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
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> MultipleChoiceModelOutput:
        """Scores the choices of each example.

        Args:
            input_ids: shape (b, choices, s).
            attention_mask: shape (b, choices, s), 0 for padding.
            token_type_ids: segments, shape (b, choices, s); all 0 where None.
            inputs_embeds: shape (b, choices, s, embedding_size), instead of `input_ids`.
            labels: index of the right choice, shape (b,), -100 for examples that don't count.
            position_ids: integers, shape (b, choices, s); 0, 1, 2, … where None.
            past_key_values: a prefix of b·choices texts; see `RoFormerModel.forward`.

        Returns:
            `logits` of shape (b, choices), and `loss`, the mean cross-entropy over the choices.
        """
        check_tokens(input_ids, inputs_embeds, ("batch", "choices"))
        choices = (input_ids if input_ids is not None else inputs_embeds).shape[1]
        check_range("labels", labels, choices, ignored=-100)
        if getattr(self.config, "summary_type", "last") != "first":
            kwargs["unpad_inputs"] = False  # as in transformers, the others read padding, too
        *inputs, position_ids = one_by_one(input_ids, attention_mask, token_type_ids, inputs_embeds, position_ids)
        outputs = self.base_outputs(*inputs, position_ids=position_ids, past_key_values=past_key_values, **kwargs)
        logits = self.logits_of(outputs).view(-1, choices)
        return self.answer(MultipleChoiceModelOutput, outputs, logits, labels, **kwargs)

    def logits_of(self, outputs: ModelOutput) -> torch.Tensor:
        """A number for each choice, from the bare model's outputs."""
        return self.classifier(self.sequence_summary(outputs.last_hidden_state))
