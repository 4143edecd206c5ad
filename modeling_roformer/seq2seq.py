"""RoFormer for sequence to sequence, such as machine translation (section 4.1 and Table 1 of arXiv:2104.09864).

Two RoFormers, an encoder and a decoder with cross-attention, share their embeddings. With sinusoidal positions instead
of rotation, this is the transformer of arXiv:1706.03762, as transformers' Marian computes it.

Dimensions in the shapes: b batch, s length of the source, t length of the target, d d_model.
"""

from math import sqrt
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput

from .heads import check_token_labels, mean_cross_entropy, select_labelled
from .inputs import CACHE_NAME, can_be_read, check_shape, given_cache
from .model import RoFormerModel, RoFormerPreTrainedModel, can_return_tuple
from .rotary import SinusoidalPositionEmbeddings
from .seq2seq_configuration import RoFormerSeq2SeqConfig


class RoFormerSeq2SeqEmbeddings(nn.Module):
    """Scaled word embeddings without a norm; sinusoidal positions are added if the config has them."""

    def __init__(self, config: RoFormerSeq2SeqConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_token_id)
        self.scale = sqrt(config.d_model) if config.scale_embedding else 1.0
        self.position_embeddings = None
        if config.position_encoding == "sinusoidal":
            self.position_embeddings = SinusoidalPositionEmbeddings(config.d_model, in_halves=True)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        embeddings = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        embeddings = embeddings * self.scale
        if self.position_embeddings is not None:
            embeddings = embeddings + self.position_embeddings(position_ids).to(embeddings.dtype)
        return self.dropout(embeddings)


class RoFormerSeq2SeqPreTrainedModel(RoFormerPreTrainedModel):
    """Base of all RoFormer models for sequence to sequence."""

    if TYPE_CHECKING:

        def __init__(self, config: RoFormerSeq2SeqConfig): ...

    config: RoFormerSeq2SeqConfig
    config_class = RoFormerSeq2SeqConfig
    base_model_prefix = "model"
    _no_split_modules = ["RoFormerSeq2SeqEmbeddings", "RoFormerLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RoFormerForConditionalGeneration):
            init.zeros_(module.final_logits_bias)
        elif isinstance(module, nn.Embedding) and self.config.scale_embedding:
            # As in arXiv:1706.03762: scaled word vectors have variance 1, twice that of sinusoids.
            init.normal_(module.weight, std=self.config.d_model**-0.5)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])


class RoFormerSeq2SeqStack(RoFormerSeq2SeqPreTrainedModel, RoFormerModel):
    """Encoder, or with the configuration of `decoder_config`, decoder.

    Inputs and outputs are those of `RoFormerModel.forward`; segments are all 0.
    """

    embeddings_class = RoFormerSeq2SeqEmbeddings

    def __init__(self, config: RoFormerSeq2SeqConfig):
        super().__init__(config)
        if config.is_decoder:
            self.main_input_name = "decoder_input_ids"  # so that errors name the argument that the user passed

    def has_padding_at_an_end(self, tokens: torch.Tensor) -> torch.Tensor | None:
        """Return None for a decoder: it may start with the pad token, and does not see padding at a text's end."""
        return None if self.config.is_decoder else super().has_padding_at_an_end(tokens)


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

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.set_input_embeddings(value)
        self.decoder.set_input_embeddings(value)
        self.decoder.config.vocab_size = value.num_embeddings

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return transformers' keys, and the embeddings': encoder and decoder share them in any case."""
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
        """Encode a source, and decode a target from it.

        Args:
            input_ids: the source, shape (b, s).
            attention_mask: shape (b, s), 0 for padding, on either side.
            decoder_input_ids: the target, which starts with `config.decoder_start_token_id`, shape (b, t).
            decoder_attention_mask: shape (b, t), 0 for padding, including the tokens in the cache; or (b, 1, t, t).
            encoder_outputs: the encoder's output for this source, if it was computed before.
            past_key_values: keys and values of source and target so far, an `EncoderDecoderCache`.
            inputs_embeds: shape (b, s, d), instead of `input_ids`; scaled as word embeddings are.
            decoder_inputs_embeds: shape (b, t, d), instead of `decoder_input_ids`; scaled likewise.
            use_cache: return `past_key_values`; the config's if None.
            token_type_ids: segments of the source, as some tokenizers return them; all 0.
            position_ids: integer positions of the source, shape (b, s) or (1, s); 0, 1, 2, … if None.
            decoder_position_ids: those of the target, shape (b, t) or (1, t).
            **kwargs: by name:
                output_attentions, output_hidden_states: return those of encoder and decoder.
                unpad_inputs: leave padding and target tokens after the last label out of the computation; the config's
                if None.
                return_dict: False for a tuple in place of the output; the config's if None.

        Returns:
            `last_hidden_state` of the decoder, shape (b, t, d), `encoder_last_hidden_state` of shape (b, s, d), and if
            requested `past_key_values`, `encoder_hidden_states`, `decoder_attentions`, `cross_attentions`, …

        Raises:
            ValueError: naming the argument that does not fit.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError("the decoder has no input: pass decoder_input_ids, decoder_inputs_embeds or labels")
        past_key_values = given_cache(past_key_values, kwargs)
        kwargs |= {"return_dict": True, "one_text_per_row": True}
        kwargs.setdefault("output_hidden_states", self.config.output_hidden_states)
        kwargs.setdefault("output_attentions", self.config.output_attentions)
        encoded: Any = encoder_outputs
        if encoded is None:
            encoded = self.encoder(
                input_ids,
                attention_mask,
                token_type_ids=token_type_ids,
                inputs_embeds=inputs_embeds,
                position_ids=position_ids,
                **kwargs,
            )
        elif isinstance(encoded, tuple):
            encoded = BaseModelOutput(*encoded)
        check_shape("attention_mask", attention_mask, encoded.last_hidden_state.shape[:2])
        decoder_outputs = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            inputs_embeds=decoder_inputs_embeds,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            position_ids=decoder_position_ids,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            **{CACHE_NAME: getattr(decoder_outputs, CACHE_NAME)},
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


class RoFormerForConditionalGeneration(RoFormerSeq2SeqPreTrainedModel, GenerationMixin):
    """Encoder and decoder with an output layer, for translation and summaries.

    ```python
    >>> tokenizer, model = AutoTokenizer.from_pretrained(DIR), AutoModelForSeq2SeqLM.from_pretrained(DIR)
    >>> generated = model.generate(**tokenizer("A dog runs.", return_tensors="pt"), num_beams=4, max_new_tokens=256)
    >>> tokenizer.decode(generated[0], skip_special_tokens=True)
    'Ein Hund rennt.'
    ```
    """

    if TYPE_CHECKING:
        final_logits_bias: torch.Tensor

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embeddings.word_embeddings.weight"}

    def __init__(self, config: RoFormerSeq2SeqConfig):
        super().__init__(config)
        self.model = RoFormerSeq2SeqModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Module:
        """Resize as in transformers, and the bias of the logits, whose new entries are 0."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        new = embeddings.num_embeddings - self.final_logits_bias.shape[1]
        self.final_logits_bias = F.pad(self.final_logits_bias, (0, new))  # truncates if negative
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
        """Score every word of the vocabulary as the next one of the target.

        Args:
            input_ids, attention_mask: the source, shape (b, s), and its padding; see `RoFormerSeq2SeqModel.forward` for
                these and all others that are not described here.
            labels: the target's ids, shape (b, t), -100 for tokens to ignore. Without `decoder_input_ids`, the decoder
                reads the labels shifted right by one.
            num_items_in_batch: number of labels in the whole batch, if this call gets a part of it: the losses of the
                parts then add up to the mean over the batch. Trainer passes it: accumulated steps equal one step.

        Returns:
            `logits` of shape (b, t, vocab_size), `loss`, the mean cross-entropy over the labels, and the bare model's
            other outputs. In training with `config.sparse_prediction`, `logits` has shape (n, vocab_size), a row for
            each of the n labels.
        """
        use_cache = use_cache if labels is None else False
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            if decoder_attention_mask is None and past_key_values is None and can_be_read(labels):
                decoder_attention_mask = (labels != -100).flip(1).cummax(dim=1).values.flip(1)  # up to the last label
        targets = decoder_input_ids, decoder_inputs_embeds, decoder_attention_mask
        count, on_padding = check_token_labels(labels, *targets, self.config.vocab_size)
        if on_padding:
            kwargs["unpad_inputs"] = False
        kwargs["return_dict"] = True
        inputs = (input_ids, attention_mask, decoder_input_ids, decoder_attention_mask, encoder_outputs)
        inputs += (past_key_values, inputs_embeds, decoder_inputs_embeds, use_cache)
        inputs += (token_type_ids, position_ids, decoder_position_ids)
        outputs = self.model(*inputs, **kwargs)
        hidden_states = outputs.last_hidden_state
        if self.training and self.config.sparse_prediction:
            hidden_states, labels = select_labelled(hidden_states, labels, count)
        logits = self.compute_logits(hidden_states)
        loss = None if labels is None else mean_cross_entropy(logits, labels, num_items_in_batch)
        others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss, logits=logits, **others)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return logits, shape (…, vocab_size), from the decoder's hidden states, shape (…, d)."""
        logits, bias = self.lm_head(hidden_states), self.final_logits_bias
        # The bias is not trained, and 0 unless it is Marian's. Skip the addition then: it would copy the logits.
        if bias.device.type == "cpu" and can_be_read(bias) and not bias.any():
            return logits
        return logits + bias.to(logits.dtype)

    def _reorder_cache(self, past_key_values: Cache, beam_idx: torch.LongTensor) -> Cache:
        """Reorder the beams of the target's cache; all beams of a text have the same source, whose cache stays."""
        getattr(past_key_values, "self_attention_cache", past_key_values).reorder_cache(beam_idx)
        return past_key_values

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the decoder's input for labels (b, t): `decoder_start_token_id`, then all labels but the last."""
        for name in ("decoder_start_token_id", "pad_token_id"):
            if getattr(self.config, name) is None:
                raise ValueError(
                    f"{name} is None, but is needed to make decoder_input_ids from labels: set it in the config"
                )
        shifted = F.pad(labels, (1, 0), value=self.config.decoder_start_token_id)[:, :-1]
        pad: Any = self.config.pad_token_id
        return shifted.masked_fill(shifted == -100, pad)
