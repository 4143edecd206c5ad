"""RoFormer: a post-norm transformer with rotary attention (arXiv:2104.09864), as encoder and as decoder.

Dimensions in the shapes: b batch, s sequence length.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPoolingAndCrossAttentions,
)

from .absolute_positions import check_length, longest_text
from .attention import MultiHeadAttention, RoFormerCrossAttention, RoFormerSelfAttention
from .cache import CACHE_NAME, ReadOnlyCache, choose_cache, given_cache
from .configuration import RoFormerConfig, check_activations
from .docstrings import capture_outputs
from .input_checks import can_be_read, check_is_tensor, check_ranges, check_same_shape, check_tokens, warn_of_unread
from .layers import RoFormerEmbeddings, RoFormerEncoder, RoFormerLayer, RoFormerPooler
from .linear_attention import RoFormerLinearSelfAttention, check_matrix
from .linear_feature_maps import FavorMap, is_redrawing, redraw_features
from .loading import LoadedWhole
from .masks import (
    check_has_softmax,
    check_implementation,
    count_padding,
    cross_attention_mask,
    implementation_for,
    self_attention_mask,
)
from .rope_scaling import depends_on_length, scaled_inverse_frequencies
from .rotary import rotary_position_embeddings
from .unpadding import (
    FlatPacking,
    Packing,
    can_pack,
    is_faster_packed,
    padding_is_read,
    texts_in_rows,
    zero_padding,
)

LM_HEAD_KEYS = r"^cls\.predictions\."  # left out on purpose by models without this head


class RoFormerPreTrainedModel(LoadedWhole, PreTrainedModel):
    """Base of all RoFormer models, with strict loading (loading.py)."""

    config: RoFormerConfig
    config_class = RoFormerConfig
    base_model_prefix = "roformer"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _no_split_modules = ["RoFormerEmbeddings", "RoFormerLayer"]
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)encoder\.embed_positions\.weight$", LM_HEAD_KEYS]
    _can_record_outputs = {
        "hidden_states": RoFormerLayer,
        "attentions": [RoFormerSelfAttention, RoFormerLinearSelfAttention],
        "cross_attentions": RoFormerCrossAttention,
    }

    def __init__(self, config: RoFormerConfig, *args, **kwargs):
        config.check()
        check_activations(config)
        super().__init__(config, *args, **kwargs)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Return the implementation as transformers does; raise a ValueError if this model's attention has none."""
        check_has_softmax(self.config, requested_attention)
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if self.config.norm_type == "rms_norm" and isinstance(module, (nn.Linear, nn.Embedding)):
            # bert4keras' RoFormerV2: smaller with depth; 1.1368 compensates the truncation at two standard deviations.
            std = 1.13684723 / (module.weight.shape[1] * self.config.num_hidden_layers) ** 0.5
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, RoFormerEncoder) and self.config.trainable_rope:
            init.zeros_(module.log_inv_freq_offset)
        elif type(module).__name__ == "RoFormerLMPredictionHead":
            init.zeros_(module.get_parameter("bias"))
        elif isinstance(module, FavorMap):
            init.copy_(module.projection, module.draw())
        if isinstance(module, RoFormerEncoder) and hasattr(module, "training_steps"):
            init.zeros_(module.training_steps)


class CheckedInputs(NamedTuple):
    """Inputs of one call of the model, checked, with what was read from the device.

    padding, encoder_padding: see `count_padding`; None if it was not read.
    padding_is_read: 1 if hidden states of padding are read, 0 if not; None if that was not read, as with a cache.
    past_key_values, past: the cache to read and extend, and its number of tokens, a tensor if its size is fixed.
    training_steps: number of earlier training steps, if random features may be redrawn in this call.
    has_positions: whether the caller gave the position_ids.
    texts: the packing of several texts in a row; None if each row is one text.
    """

    attention_mask: torch.Tensor | None
    padding: int | None
    padding_is_read: int | None
    token_type_ids: torch.Tensor | None
    position_ids: torch.Tensor
    encoder_hidden_states: torch.Tensor | None
    encoder_attention_mask: torch.Tensor | None
    encoder_padding: int | None
    past_key_values: Cache | None
    past: int | torch.Tensor
    training_steps: int | None
    has_positions: bool
    texts: FlatPacking | None


class AttentionInputs(NamedTuple):
    """Arguments of every layer after its `hidden_states`, in the order of `RoFormerLayer.forward`."""

    attention_mask: torch.Tensor | None
    encoder_hidden_states: torch.Tensor | None
    encoder_attention_mask: torch.Tensor | None
    packing: Packing | None
    position_embeddings: tuple[torch.Tensor, ...]


class RoFormerModel(RoFormerPreTrainedModel):
    """Bare transformer from token ids to hidden states: an encoder, or with `is_decoder` a decoder.

    Args:
        config: configuration of the model.
        add_pooling_layer: sets `config.add_pooling_layer` unless None.

    ```python
    >>> from modeling_roformer import RoFormerConfig, RoFormerModel
    >>> model = RoFormerModel(RoFormerConfig(num_hidden_layers=2))
    >>> model(torch.tensor([[2, 45, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 768])
    ```
    """

    embeddings_class: type[nn.Module] = RoFormerEmbeddings
    # Self-attention class; receives the output of `position_embeddings`.
    self_attention: type[MultiHeadAttention] = RoFormerSelfAttention

    def __init__(self, config: RoFormerConfig, add_pooling_layer: bool | None = None):
        if add_pooling_layer is not None:
            config.add_pooling_layer = add_pooling_layer
        super().__init__(config)
        self.gradient_checkpointing = False
        self.weights_before_redrawing: torch.Tensor | None = None  # see `redraw_features`
        self.embeddings: Any = self.embeddings_class(config)
        if config.embedding_size != config.hidden_size:
            self.embeddings_project = nn.Linear(config.embedding_size or config.hidden_size, config.hidden_size)
        is_linear = config.attention_type == "linear"
        self.encoder = RoFormerEncoder(config, RoFormerLinearSelfAttention if is_linear else self.self_attention)
        if config.add_pooling_layer:
            self.pooler = RoFormerPooler(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.word_embeddings = value

    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        position_ids: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        unpad_inputs: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions | BaseModelOutputWithPoolingAndCrossAttentions:
        """Encode token ids, or embeddings in their place.

        Args:
            input_ids: shape (b, s).
            attention_mask: 0 for padding, shape (b, s), or (b, p + s) after p cached tokens; or (b, 1, s, s) or
                (b, 1, 1, s), boolean or added to the scores, as the complete mask.
            token_type_ids: segments, shape (b, s); all 0 if None.
            inputs_embeds: shape (b, s, embedding_size), instead of `input_ids`.
            encoder_hidden_states: the source that a decoder with cross-attention reads, shape (b, k, hidden_size).
            encoder_attention_mask: padding mask of the source, shape (b, k), 0 for padding.
            past_key_values: keys and values of the preceding tokens, in a decoder, which appends those of its input.
            use_cache: return `past_key_values`, and create them if they are None. The default is the config's. An
                encoder returns none.
            position_ids: integers, shape (b, s) or (1, s); if None, 0, 1, 2, …, continued after cached tokens. Only
                their differences matter (equation 16), unless `rotary_value` or another `position_encoding` is set.
                Without an `attention_mask` and cached tokens, a text of its own begins where they return to 0, as in
                batches of `DataCollatorWithFlattening`; its `cu_seq_lens_q` and `seq_idx` are read, too.
            output_attentions: return the attention probabilities, one tensor of shape (b, h, s, k) per layer. The call
                is then computed eagerly, whatever the attention implementation.
            unpad_inputs: leave padding out of the computation (see `RoFormerConfig`); the config's if None.
            output_hidden_states: return the embeddings and every layer's output, each of shape (b, s, hidden_size).

        Returns:
            `last_hidden_state` of shape (b, s, hidden_size), and if the model or the call has them `pooler_output` of
            shape (b, hidden_size), `past_key_values`, `hidden_states`, `attentions` and `cross_attentions`.

        Raises:
            ValueError: for an argument that does not fit, named in the message, before anything is computed.
        """
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if unpad_inputs is None:
            unpad_inputs = self.config.unpad_inputs
        past_key_values = given_cache(past_key_values, kwargs)
        token_labels = kwargs.pop("token_labels", None)  # see `RoFormerHead.base_outputs`
        one_text_per_row = kwargs.pop("one_text_per_row", False)
        inputs = self._check_inputs(
            input_ids,
            inputs_embeds,
            attention_mask,
            token_type_ids,
            position_ids,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            use_cache,
            token_labels,
            one_text_per_row,
            kwargs,
        )
        warn_of_unread(kwargs, type(self).forward, implementation_for(self.config, output_attentions))
        cache = inputs.past_key_values
        if inputs.training_steps is not None:
            redraw_features(self, inputs.training_steps)

        hidden_states = self.embeddings(input_ids, token_type_ids, inputs_embeds, inputs.position_ids)
        if hasattr(self, "embeddings_project"):
            hidden_states = self.embeddings_project(hidden_states)
        hides_padding = self._hides_padding(unpad_inputs, inputs, hidden_states.shape[:2])
        # The outputs of each layer keep the padded shape.
        returns_layers = output_attentions or kwargs.get("output_hidden_states", self.config.output_hidden_states)
        packing = self._packing(unpad_inputs, inputs) if hides_padding and not returns_layers else None
        if inputs.texts is not None and self._packs_texts(inputs.texts, output_attentions, returns_layers):
            packing = inputs.texts
        *attention, positions = self._prepare_attention(hidden_states, inputs, output_attentions, packing)
        if packing is not None:
            hidden_states = packing.pack(hidden_states)
        hidden_states = self.encoder(
            hidden_states, *attention, *positions, past_key_values=cache, output_attentions=output_attentions, **kwargs
        )
        if packing is not None:
            hidden_states = packing.unpack(hidden_states)
        elif hides_padding and attention_mask is not None:
            hidden_states = zero_padding(hidden_states, attention_mask, token_labels)
        if isinstance(cache, ReadOnlyCache):
            cache = None  # it lacks the keys and values of the input
        outputs: dict[str, Any] = {"last_hidden_state": hidden_states, CACHE_NAME: cache}
        if hasattr(self, "pooler"):
            if inputs.texts is not None and inputs.texts.cu_seqlens is not None:
                hidden_states = inputs.texts.first_tokens(hidden_states)
            return BaseModelOutputWithPoolingAndCrossAttentions(**outputs, pooler_output=self.pooler(hidden_states))
        return BaseModelOutputWithPastAndCrossAttentions(**outputs)

    def _check_inputs(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor | None,
        encoder_attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
        use_cache: bool | None,
        token_labels: torch.Tensor | None,
        one_text_per_row: bool | None,
        others: dict[str, Any],
    ) -> CheckedInputs:
        """Check the arguments of `forward` and fill in defaults.

        Args:
            one_text_per_row: whether rows of several texts are refused; see `RoFormerHead.base_outputs`. If None, each
                row is one text, whatever its positions.
            others: the keyword arguments that `forward` does not name.
        """
        tokens = check_tokens(input_ids, inputs_embeds)
        if not self.config.is_decoder:
            encoder_hidden_states = None  # as in transformers
        elif encoder_hidden_states is not None and not self.config.add_cross_attention:
            raise ValueError("encoder_hidden_states needs a model with cross-attention: set add_cross_attention=True")
        b, s = tokens.shape[:2]
        check_is_tensor("position_ids", position_ids)
        if position_ids is not None and position_ids.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"position_ids are {position_ids.dtype}; expected integers of 32 or 64 bits")
        check_same_shape("token_type_ids", token_type_ids, (b, s))
        check_same_shape("inputs_embeds", inputs_embeds, (b, s, self.config.embedding_size))
        is_given = past_key_values is not None
        past_key_values = choose_cache(
            self.config, past_key_values, use_cache, b, encoder_hidden_states is not None, self._extends_cache()
        )
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        if position_ids is not None and (
            position_ids.ndim != 2 or position_ids.shape[0] not in (1, b) or position_ids.shape[1] != s
        ):
            raise ValueError(f"position_ids has shape {tuple(position_ids.shape)}; expected ({b}, {s}) or (1, {s})")
        has_others = attention_mask is not None or isinstance(past, torch.Tensor) or past > 0
        texts = texts_in_rows((b, s), position_ids, has_others or one_text_per_row is None, others)
        checked, has_positions = position_ids, position_ids is not None
        if position_ids is None:
            position_ids = self.default_position_ids(attention_mask, s, past, tokens.device)
            if texts is not None:
                checked = position_ids = texts.places()
            elif isinstance(past, torch.Tensor):  # a cache of fixed size counts its tokens on the device
                checked = position_ids
            else:
                check_length(self.config, past + s)
        # Read every value needed on the host in one device sync.
        padding, is_read, encoder_padding, has_padding, training_steps, number, fit = check_ranges(
            (self.main_input_name, input_ids, self.config.vocab_size, None),
            ("token_type_ids", token_type_ids, self.config.type_vocab_size, None),
            ("position_ids", checked, longest_text(self.config), None),
            questions=(
                None if getattr(past_key_values, "is_compileable", False) else count_padding(attention_mask),
                padding_is_read(attention_mask, token_labels) if past_key_values is None else None,
                None if encoder_hidden_states is None else count_padding(encoder_attention_mask),
                self.has_padding_at_an_end(input_ids) if attention_mask is None else None,
                self.encoder.training_steps if is_redrawing(self) else None,
                None if texts is None else texts.number,
                None if texts is None or texts.number is None else texts.fit,
            ),
        )
        if has_padding:
            # Pass one pad token: padding was detected above, so this avoids a second sync.
            self.warn_if_padding_and_no_attention_mask(torch.tensor([[self.config.pad_token_id]]), None)
        if texts is not None:
            texts = texts.check(number, fit, one_text_per_row or encoder_hidden_states is not None)
        if texts is not None and texts.cu_seqlens is not None and past_key_values is not None:
            if use_cache or is_given:
                raise ValueError(
                    f"a cache continues one text per row, but {texts.source} puts several into a row: pass "
                    "use_cache=False, and no past_key_values"
                )
            past_key_values = None
        own = attention_mask, padding, is_read, token_type_ids, position_ids
        source = encoder_hidden_states, encoder_attention_mask, encoder_padding
        return CheckedInputs(*own, *source, past_key_values, past, training_steps, has_positions, texts)

    def _prepare_attention(
        self,
        hidden_states: torch.Tensor,
        inputs: CheckedInputs,
        output_attentions: bool | None,
        packing: Packing | None,
    ) -> AttentionInputs:
        """Return the masks and position embeddings for every layer; `hidden_states` are not packed."""
        config = self.config
        if config.attention_type == "linear":
            config.check_linear_attention()  # fields may have been set since the model was made
            if output_attentions:
                check_matrix(hidden_states.shape[1], inputs.past)
        implementation = implementation_for(config, output_attentions)
        check_implementation(config, implementation, hidden_states, self.training)
        positions = self.position_embeddings(
            inputs.position_ids, inputs.attention_mask, inputs.has_positions, inputs.texts
        )
        source = inputs.encoder_attention_mask, inputs.encoder_hidden_states, inputs.encoder_padding
        encoder = inputs.encoder_hidden_states, cross_attention_mask(config, implementation, hidden_states, *source)
        if packing is not None:
            return AttentionInputs(None, *encoder, packing, tuple(packing.pack(x) for x in positions))
        own = inputs.attention_mask, inputs.token_type_ids, inputs.past_key_values, inputs.padding
        starts = None if inputs.texts is None else inputs.texts.starts
        mask = self_attention_mask(config, implementation, hidden_states, *own, starts)
        return AttentionInputs(mask, *encoder, None, positions)

    def _hides_padding(self, unpad_inputs: bool | None, inputs: CheckedInputs, shape: torch.Size) -> bool:
        """Return whether a call for tokens of that shape returns 0 at padding (see `RoFormerConfig.unpad_inputs`)."""
        if unpad_inputs is None:
            unpad_inputs = not (self.config.is_decoder or self.config.prefix_lm)
        mask = inputs.attention_mask
        if not unpad_inputs or inputs.padding == 0 or not isinstance(mask, torch.Tensor) or mask.shape != shape:
            return False
        return inputs.past_key_values is None and self.self_attention.supports_unpadding

    def _packing(self, unpad_inputs: bool | None, inputs: CheckedInputs) -> Packing | None:
        """Return the packing for a call that leaves its padding out of the computation, otherwise None."""
        mask, implementation = inputs.attention_mask, implementation_for(self.config, False)
        if mask is None or not inputs.padding or inputs.padding_is_read != 0:
            return None
        if not can_pack(self.config, implementation) or self._has_compiled_layers():
            return None
        if self.config.chunk_size_feed_forward:  # the chunks must divide the number of tokens
            return None
        if unpad_inputs or is_faster_packed(self.config, implementation, mask.device, inputs.padding, len(mask)):
            return Packing(mask)
        return None

    def _packs_texts(self, texts: FlatPacking, output_attentions: bool | None, returns_layers: bool) -> bool:
        """Return whether the layers compute several texts in a row one by one, not all with a mask."""
        implementation = implementation_for(self.config, output_attentions)
        if output_attentions or texts.cu_seqlens is None or (returns_layers and texts.batch_shape[0] > 1):
            return False
        if "flash" in implementation:
            return True
        if not (self.self_attention.supports_unpadding and can_pack(self.config, implementation)):
            return False
        is_linear = self.config.attention_type == "linear"
        return can_be_read(texts.starts) and (is_linear or not self._has_compiled_layers())

    def _has_compiled_layers(self) -> bool:
        """Return whether layers are compiled one by one: each new set of lengths would compile them again."""
        layers: Any = self.encoder.layer
        parts = (x for layer in layers for x in (layer, layer.attention, layer.attention.self))
        return any(x._compiled_call_impl is not None or hasattr(x, "_orig_mod") for x in (self.encoder, *parts))

    def default_position_ids(
        self, attention_mask: torch.Tensor | None, s: int, past: int | torch.Tensor, device: torch.device
    ) -> torch.Tensor:
        """Return the positions of a call without `position_ids`, shape (b or 1, s), continued after cached tokens."""
        return torch.arange(s, device=device)[None] + past

    def has_padding_at_an_end(self, input_ids: torch.Tensor | None) -> torch.Tensor | None:
        """Return whether a text starts or ends with padding, as a 0-d tensor; None if the values cannot be read."""
        if input_ids is None or self.config.pad_token_id is None or not can_be_read(input_ids):
            return None
        return (input_ids[:, :: max(input_ids.shape[1] - 1, 1)] == self.config.pad_token_id).any()

    def position_embeddings(
        self,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        has_positions: bool = False,
        texts: FlatPacking | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Return the position arguments of every layer's self-attention: cosines and sines of the angles if the
        encoding is rotary, otherwise nothing."""
        if self.config.position_encoding != "rotary":
            return ()
        config, s, device = self.config, position_ids.shape[1], position_ids.device
        given = position_ids if has_positions or texts is not None else None
        frequencies = self.frequencies(attention_mask, s, device, None, given, texts)
        embeddings = rotary_position_embeddings(position_ids, frequencies)
        if config.rotary_value and config.rotary_dim != config.head_dim:  # values are narrower than rotated features
            frequencies = self.frequencies(attention_mask, s, device, config.head_dim, given, texts)
            embeddings += rotary_position_embeddings(position_ids, frequencies)
        return embeddings

    def frequencies(
        self,
        attention_mask: torch.Tensor | None,
        s: int,
        device: torch.device,
        width: int | None = None,
        position_ids: torch.Tensor | None = None,
        texts: FlatPacking | None = None,
    ) -> torch.Tensor:
        """Return θ_i of equation 15, shape (width / 2,), or if they depend on each sequence's length (b, width / 2), or with
        several `texts` in a row (b, s, width / 2).

        `width` defaults to `config.rotary_dim`. A sequence with `position_ids` is as long as its last position says.
        """
        lengths: int | torch.Tensor = s
        if depends_on_length(self.config):
            is_token = None if attention_mask is None or attention_mask.ndim != 2 else attention_mask != 0
            if texts is not None and position_ids is not None:
                lengths = texts.largest(position_ids + 1)
            elif position_ids is not None:
                of_tokens = position_ids if is_token is None else torch.where(is_token, position_ids, 0)
                lengths = of_tokens.amax(dim=-1) + 1
            elif is_token is not None:
                lengths = is_token.sum(dim=-1)
        frequencies = scaled_inverse_frequencies(self.config, lengths, device, width)
        if self.config.trainable_rope:
            frequencies = frequencies * self.encoder.log_inv_freq_offset.to(frequencies).exp()
        return frequencies

    def _extends_cache(self) -> bool:
        """Return whether layers may extend a cache: in decoders, unless gradient checkpointing recomputes layers."""
        if not self.config.is_decoder or not self.training or not torch.is_grad_enabled():
            return self.config.is_decoder
        return not any(layer.gradient_checkpointing for layer in self.encoder.layer)
