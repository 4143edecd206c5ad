"""RoFormer for sequence to sequence, as in machine translation (section 4.1 and Table 1 of arXiv:2104.09864).

Two RoFormers, an encoder and a decoder with cross-attention, on shared embeddings. All but the embeddings is RoFormer's: with
sinusoidal positions in place of rotation, this is the transformer of arXiv:1706.03762, as transformers' Marian computes it.

Dimensions in the shapes: b batch, s length of the source, t length of the target, d d_model.
"""

from math import sqrt

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils.generic import can_return_tuple

from .absolute_positions import SinusoidalPositionEmbeddings
from .fast_dropout import Dropout
from .input_checks import can_be_read, check_same_shape, is_wrapped
from .model import RoFormerModel, RoFormerPreTrainedModel
from .seq2seq_configuration import RoFormerSeq2SeqConfig
from .task_head import check_token_labels, mean_cross_entropy
from .unpadding import up_to_last_label


class RoFormerSeq2SeqEmbeddings(nn.Module):
    """Word embeddings, scaled, without a norm; with sinusoidal positions, these are added."""

    def __init__(self, config: RoFormerSeq2SeqConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_token_id)
        self.scale = sqrt(config.d_model) if config.scale_embedding else 1.0
        self.position_embeddings = None
        if config.position_encoding == "sinusoidal":
            self.position_embeddings = SinusoidalPositionEmbeddings(config.d_model, in_halves=True)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        embeddings = inputs_embeds * self.scale
        if self.position_embeddings is not None:
            embeddings = embeddings + self.position_embeddings(position_ids).to(embeddings.dtype)
        return self.dropout(embeddings)


class RoFormerSeq2SeqPreTrainedModel(RoFormerPreTrainedModel):
    """What all RoFormer models for sequence to sequence share."""

    config: RoFormerSeq2SeqConfig
    config_class = RoFormerSeq2SeqConfig
    base_model_prefix = "model"
    _no_split_modules = ["RoFormerSeq2SeqEmbeddings", "RoFormerLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RoFormerForConditionalGeneration):
            init.zeros_(module.final_logits_bias)


class RoFormerSeq2SeqStack(RoFormerSeq2SeqPreTrainedModel, RoFormerModel):
    """The encoder, or by the configuration that `decoder_config` gives, the decoder. Inputs and outputs as in
    `RoFormerModel.forward`; segments are all 0."""

    embeddings_class = RoFormerSeq2SeqEmbeddings

    def __init__(self, config: RoFormerSeq2SeqConfig):
        super().__init__(config)
        if config.is_decoder:
            self.main_input_name = "decoder_input_ids"  # as whoever gave them knows them

    def default_position_ids(
        self, attention_mask: torch.Tensor | None, s: int, past: int | torch.Tensor, device: torch.device
    ) -> torch.Tensor:
        """As in `RoFormerModel`, but counted from a text's first token, after any padding."""
        position_ids = super().default_position_ids(attention_mask, s, past, device)
        if not isinstance(attention_mask, torch.Tensor):
            return position_ids
        if attention_mask.ndim == 4 and attention_mask.shape[-1] != s:
            # Of a cache of fixed size, made by `generate()`: the last token sees all that is no padding.
            attention_mask = attention_mask[:, 0, -1]
            if attention_mask.is_floating_point():
                attention_mask = attention_mask == 0
        if attention_mask.ndim != 2:
            return position_ids
        start = (attention_mask != 0).int().argmax(dim=1, keepdim=True)
        return (position_ids - start).clamp(min=0)

    def has_padding_at_an_end(self, input_ids: torch.Tensor | None) -> torch.Tensor | None:
        """None for a decoder, which may start with what is padding elsewhere, and sees none at a text's end."""
        return None if self.config.is_decoder else super().has_padding_at_an_end(input_ids)


class RoFormerSeq2SeqModel(RoFormerSeq2SeqPreTrainedModel):
    """Encoder and decoder without the output layer.

    ```python
    >>> from modeling_roformer import RoFormerSeq2SeqConfig, RoFormerSeq2SeqModel
    >>> model = RoFormerSeq2SeqModel(RoFormerSeq2SeqConfig(encoder_layers=2, decoder_layers=2))
    >>> source, target = torch.tensor([[45, 46, 2]]), torch.tensor([[2, 81]])
    >>> model(source, decoder_input_ids=target).last_hidden_state.shape
    torch.Size([1, 2, 512])
    ```
    """

    _tied_weights_keys = {
        "decoder.embeddings.word_embeddings.weight": "encoder.embeddings.word_embeddings.weight",
    }

    def __init__(self, config: RoFormerSeq2SeqConfig):
        super().__init__(config)
        self.encoder = RoFormerSeq2SeqStack(config)
        self.decoder = RoFormerSeq2SeqStack(config.decoder_config())
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)
        self.decoder.set_input_embeddings(value)
        self.decoder.config.vocab_size = value.num_embeddings

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """As in transformers, but encoder and decoder share the embeddings even where the output layer does not."""
        return super().get_expanded_tied_weights_keys(all_submodels) | self._tied_weights_keys

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        **kwargs,
    ) -> Seq2SeqModelOutput:
        """Encodes a source, and decodes a target from it.

        Args:
            input_ids: the source, shape (b, s).
            attention_mask: shape (b, s), 0 for padding, on either side.
            decoder_input_ids: the target, which starts with `config.decoder_start_token_id`, shape (b, t).
            decoder_attention_mask: shape (b, t), 0 for padding, the tokens in the cache included; or (b, 1, t, t).
            encoder_outputs: what the encoder gave for this source, in its place.
            past_key_values: keys and values of source and target so far, an `EncoderDecoderCache`.
            inputs_embeds: shape (b, s, d), instead of `input_ids`; they are scaled as those of ids are.
            decoder_inputs_embeds: shape (b, t, d), instead of `decoder_input_ids`, likewise.
            use_cache: return `past_key_values`; the config's where None.
            token_type_ids: segments of the source, as some tokenizers give them: there is but one, 0.
            position_ids: integers of the source, shape (b, s) or (1, s); counted where None.
            decoder_position_ids: those of the target, shape (b, t) or (1, t).
            **kwargs: by name:
                output_attentions, output_hidden_states: return those of encoder and decoder.
                unpad_inputs: leave padding out of the computation, and of the target what follows the last label; the
                config's where None.
                return_dict: False for a tuple in place of the output; the config's where None.

        Returns:
            `last_hidden_state` of the decoder, shape (b, t, d), `encoder_last_hidden_state` of shape (b, s, d), and what is
            asked for: `past_key_values`, `encoder_hidden_states`, `decoder_attentions`, `cross_attentions`, …

        Raises:
            ValueError: naming the argument that does not fit.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError(
                "the decoder has nothing to read: give decoder_input_ids, or labels, from which they are made"
            )
        kwargs["return_dict"] = True
        kwargs.setdefault("output_hidden_states", self.config.output_hidden_states)
        kwargs.setdefault("output_attentions", self.config.output_attentions)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids,
                attention_mask,
                token_type_ids=token_type_ids,
                inputs_embeds=inputs_embeds,
                position_ids=position_ids,
                **kwargs,
            )
        elif isinstance(encoder_outputs, tuple):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        texts = encoder_outputs.last_hidden_state.shape[:2]
        check_same_shape("attention_mask", attention_mask, texts)
        for name, target in (("_input_ids", decoder_input_ids), ("_inputs_embeds", decoder_inputs_embeds)):
            if target is not None and (target.ndim < 2 or target.shape[0] != texts[0]):
                raise ValueError(
                    f"decoder{name} has shape {tuple(target.shape)}, but to a source of {texts[0]} texts belong as many targets"
                )
        decoder_outputs = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            inputs_embeds=decoder_inputs_embeds,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            position_ids=decoder_position_ids,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class RoFormerForConditionalGeneration(RoFormerSeq2SeqPreTrainedModel, GenerationMixin):
    """Writes one text from another: translation, summaries.

    ```python
    >>> from transformers import pipeline
    >>> pipeline("translation", model=DIR)("A dog runs.", num_beams=4)
    [{'translation_text': 'Ein Hund rennt.'}]
    ```
    """

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embeddings.word_embeddings.weight"}

    def __init__(self, config: RoFormerSeq2SeqConfig):
        super().__init__(config)
        self.model = RoFormerSeq2SeqModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Module:
        """As in transformers; the bias of the logits gets as many entries, new ones being 0."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        new = embeddings.num_embeddings - self.final_logits_bias.shape[1]
        self.final_logits_bias = F.pad(self.final_logits_bias, (0, new))  # or cut, where it is negative
        return embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """Scores every word of the vocabulary as the next one of the target.

        Args:
            input_ids, attention_mask: the source, shape (b, s), and its padding; see `RoFormerSeq2SeqModel.forward` for
                these and all others that are not named here.
            labels: the target's ids, shape (b, t), -100 for what does not count. Where there are no `decoder_input_ids`,
                these are the labels, shifted right by one.
            num_items_in_batch: number of labels in the whole batch of which this is a part: the losses of the parts then
                add up to its mean. Trainer passes it, so that accumulated steps learn what one step would.

        Returns:
            `logits` of shape (b, t, vocab_size), `loss`, the mean cross-entropy over the labels, and what the bare model
            gives. In training with `config.sparse_prediction`, `logits` has shape (n, vocab_size), a row for each of the n
            labels.
        """
        check_token_labels(labels, decoder_input_ids, decoder_inputs_embeds, self.config.vocab_size)
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            unpad_inputs = kwargs.get("unpad_inputs")
            unpad_inputs = self.config.unpad_inputs if unpad_inputs is None else unpad_inputs
            if unpad_inputs and decoder_attention_mask is None and can_be_read(labels):
                decoder_attention_mask = up_to_last_label(labels)
        kwargs["return_dict"] = True
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            past_key_values,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache,
            token_type_ids,
            position_ids,
            decoder_position_ids,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        if labels is not None:
            labels = labels.to(hidden_states.device)
            if self.config.sparse_prediction and self.training and not is_wrapped(labels):
                hidden_states, labels = hidden_states[labels != -100], labels[labels != -100]
        logits = self.logits_of(hidden_states)
        loss = None
        if labels is not None:
            loss = mean_cross_entropy(logits, labels, num_items_in_batch)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    def logits_of(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Logits, shape (…, vocab_size), from the decoder's hidden states, shape (…, d)."""
        logits, bias = self.lm_head(hidden_states), self.final_logits_bias
        # The bias is not trained, and 0 but in weights from elsewhere: a CPU would copy its widest tensor for nothing.
        if bias.device.type == "cpu" and can_be_read(bias) and not bias.any():
            return logits
        return logits + bias.to(logits.dtype)

    def _reorder_cache(self, past_key_values: Cache, beam_idx: torch.Tensor) -> Cache:
        """What `generate()` calls when beams have changed places. Those of a text share its source: keys and values of that
        are the same for all, and stay where they are."""
        getattr(past_key_values, "self_attention_cache", past_key_values).reorder_cache(beam_idx)
        return past_key_values

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """What the decoder reads to predict labels of shape (b, t): `decoder_start_token_id`, then all but the last."""
        for name in ("decoder_start_token_id", "pad_token_id"):
            if getattr(self.config, name) is None:
                raise ValueError(
                    f"labels become decoder_input_ids by {name}, which the config leaves open: set it there"
                )
        shifted = F.pad(labels, (1, 0), value=self.config.decoder_start_token_id)[:, :-1]
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id)
