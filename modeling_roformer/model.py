"""RoFormer: a post-norm transformer whose attention is rotary (arXiv:2104.09864), as encoder and as decoder.

Dimensions in the shapes: b batch, s sequence length.
"""

import inspect
from difflib import get_close_matches

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPoolingAndCrossAttentions,
)
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils.output_capturing import capture_outputs

from .absolute_positions import check_length, longest_text, make_position_embeddings
from .attention import MultiHeadAttention, RoFormerAttention, RoFormerCrossAttention, RoFormerSelfAttention
from .configuration import RoFormerConfig
from .fast_dropout import Dropout
from .input_checks import (
    can_be_read,
    check_is_tensor,
    check_ranges,
    check_same_shape,
    check_tokens,
    is_transformed,
    warn_of_unread,
)
from .linear_attention import RoFormerLinearSelfAttention
from .linear_cache import LinearAttentionCache
from .linear_feature_maps import FavorMap
from .masks import (
    attends_to_all,
    check_has_softmax,
    check_implementation,
    cross_attention_mask,
    implementation_for,
    self_attention_mask,
)
from .norm import make_norm
from .prefix_cache import PrefixCache
from .rope_scaling import depends_on_length, scaled_inverse_frequencies
from .rotary import inverse_frequencies, rotary_position_embeddings
from .saving import SavedOver
from .strict_loading import LoadedWhole
from .unpadding import Packing, can_be_unpadded


class RoFormerEmbeddings(nn.Module):
    """Word and segment embeddings, and for baselines those of positions, which otherwise are attention's part."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.embedding_size)
        self.position_embeddings = make_position_embeddings(config)
        self.LayerNorm = make_norm(config, config.embedding_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        if token_type_ids is None:
            # All in segment 0: the same row for every token.
            segments = self.token_type_embeddings.weight[0]
        else:
            segments = self.token_type_embeddings(token_type_ids)
        embeddings = inputs_embeds + segments
        if self.position_embeddings is not None:
            embeddings = embeddings + self.position_embeddings(position_ids).to(embeddings.dtype)
        return self.dropout(self.LayerNorm(embeddings))


class RoFormerIntermediate(nn.Module):
    """The widening half of the feed-forward sub-layer, and its activation."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.use_bias)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.intermediate_act_fn(self.dense(hidden_states))


class RoFormerOutput(nn.Module):
    """The narrowing half of the feed-forward sub-layer, residual and norm."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.use_bias)
        self.LayerNorm = make_norm(config, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, wide: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(wide)) + residual)


class RoFormerLayer(GradientCheckpointingLayer):
    """Self-attention, cross-attention where the model is such a decoder, then feed-forward."""

    # `RoFormerModel.make_cache` gives no cache that is written to where layers are computed twice.
    _can_checkpoint_with_cache = True

    def __init__(self, config: RoFormerConfig, layer_idx: int, self_attention: type[MultiHeadAttention]):
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = RoFormerAttention(config, layer_idx, self_attention)
        if config.add_cross_attention:
            self.crossattention = RoFormerAttention(config, layer_idx, RoFormerCrossAttention)
        self.intermediate = RoFormerIntermediate(config)
        self.output = RoFormerOutput(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, ...],
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> torch.Tensor:
        hidden_states = self.attention(hidden_states, attention_mask, position_embeddings, **kwargs)
        if encoder_hidden_states is not None:
            packing = attention_mask if isinstance(attention_mask, Packing) else None
            hidden_states = self.crossattention(
                hidden_states, encoder_attention_mask, encoder_hidden_states, packing=packing, **kwargs
            )
        return apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, hidden_states)

    def feed_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.output(self.intermediate(hidden_states), hidden_states)


class RoFormerEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: RoFormerConfig, self_attention: type[MultiHeadAttention]):
        super().__init__()
        self.layer = nn.ModuleList(
            [RoFormerLayer(config, layer_idx, self_attention) for layer_idx in range(config.num_hidden_layers)]
        )
        if config.trainable_rope:
            self.inv_freq = nn.Parameter(torch.empty(config.rotary_dim // 2))
        if config.attention_type == "linear" and config.linear_feature_map == "favor":
            self.register_buffer("training_steps", torch.zeros((), dtype=torch.long))
        self.register_load_state_dict_pre_hook(drop_position_table)

    def forward(self, hidden_states: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        for layer in self.layer:
            hidden_states = layer(hidden_states, *args, **kwargs)
        return hidden_states


class RoFormerPooler(nn.Module):
    """A layer over the first token."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.pooler_activation]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.activation(self.dense(hidden_states[:, 0]))


def drop_position_table(module: nn.Module, state_dict: dict, prefix: str, *args) -> None:
    """Published PyTorch checkpoints carry a table of sinusoids, up to some longest length; angles are computed here."""
    state_dict.pop(prefix + "embed_positions.weight", None)


def check_activations(config: RoFormerConfig) -> None:
    """Raises a ValueError that names the field whose activation is none of transformers'."""
    for field in (
        "activation_function",
        "hidden_act",
        "pooler_activation",
        "classifier_activation",
        "summary_activation",
    ):
        name = getattr(config, field, None)
        if name is not None and name not in ACT2FN:
            close = get_close_matches(name, ACT2FN, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it must be one of {', '.join(sorted(ACT2FN))}"
            raise ValueError(f"{field} is {name!r}, which is not an activation of transformers: {hint}")


class RoFormerPreTrainedModel(LoadedWhole, SavedOver, PreTrainedModel):
    """What all RoFormer models share: initialisation, what they support, loading (see strict_loading.py) and saving (see saving.py)."""

    config: RoFormerConfig
    config_class = RoFormerConfig
    base_model_prefix = "roformer"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _no_split_modules = ["RoFormerEmbeddings", "RoFormerLayer"]
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)encoder\.embed_positions\.weight$"]
    _can_record_outputs = {
        "hidden_states": RoFormerLayer,
        "attentions": [RoFormerSelfAttention, RoFormerLinearSelfAttention],
        "cross_attentions": RoFormerCrossAttention,
    }

    def __new__(cls, *args, **kwargs):
        # Python would name the class that the constructor is from, which may be none that a reader knows.
        _, *known = inspect.signature(cls.__init__).parameters.values()
        names = [parameter.name for parameter in known]
        unknown = [name for name in kwargs if name not in names]
        if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known):
            raise TypeError(
                f"{cls.__name__} has no argument {unknown[0]}: it takes {', '.join(names)}, and from_pretrained also the "
                f"fields of {cls.config_class.__name__}"
            )
        return super().__new__(cls)

    def __init__(self, config: RoFormerConfig, *args, **kwargs):
        config.check()
        check_activations(config)
        super().__init__(config, *args, **kwargs)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """As in transformers, which looks for its package first; a ValueError beside linear attention."""
        check_has_softmax(self.config, requested_attention)
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if self.config.norm_type == "rms_norm" and isinstance(module, (nn.Linear, nn.Embedding)):
            # bert4keras' RoFormerV2: truncated at two deviations, which 1.1368 makes up for, and smaller for deep ones
            std = 1.13684723 / (module.weight.shape[1] * self.config.num_hidden_layers) ** 0.5
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
            if getattr(module, "padding_idx", None) is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, RoFormerEncoder) and self.config.trainable_rope:
            init.copy_(module.inv_freq, self.initial_frequencies())
        elif type(module).__name__ == "RoFormerLMPredictionHead":
            init.zeros_(module.bias)
        elif isinstance(module, FavorMap):
            init.copy_(module.projection, module.draw())
        if isinstance(module, RoFormerEncoder) and hasattr(module, "training_steps"):
            init.zeros_(module.training_steps)

    def initial_frequencies(self) -> torch.Tensor:
        """Where trainable frequencies start: the paper's, or those of `rope_parameters`."""
        if depends_on_length(self.config):
            return inverse_frequencies(self.config.rotary_dim, self.config.rope_parameters["rope_theta"])
        return scaled_inverse_frequencies(self.config, 1, torch.device("cpu"))[0]


class RoFormerModel(RoFormerPreTrainedModel):
    """The bare transformer: token ids in, hidden states out. An encoder, or with `is_decoder` a decoder.

    Args:
        config: its configuration.
        add_pooling_layer: sets `config.add_pooling_layer`, where given.

    ```python
    >>> from modeling_roformer import RoFormerConfig, RoFormerModel
    >>> model = RoFormerModel(RoFormerConfig(num_hidden_layers=2))
    >>> model(torch.tensor([[2, 45, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 768])
    ```
    """

    embeddings_class: type[nn.Module] = RoFormerEmbeddings
    # What puts positions in, with what `position_embeddings` gives it.
    self_attention: type[MultiHeadAttention] = RoFormerSelfAttention

    def __init__(self, config: RoFormerConfig, add_pooling_layer: bool | None = None):
        if add_pooling_layer is not None:
            config.add_pooling_layer = add_pooling_layer
        super().__init__(config)
        self.gradient_checkpointing = False
        self.weights_before_redrawing: torch.Tensor | None = None  # see `redraw_features`
        self.embeddings = self.embeddings_class(config)
        if config.embedding_size != config.hidden_size:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
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
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Encodes token ids, or embeddings in their place.

        Args:
            input_ids: shape (b, s).
            attention_mask: shape (b, s), 0 for padding, the tokens in the cache included; or (b, 1, s, s) or
                (b, 1, 1, s), boolean or added to the scores, which then is the whole mask.
            token_type_ids: segments, shape (b, s); all 0 where None.
            inputs_embeds: shape (b, s, embedding_size), instead of `input_ids`.
            encoder_hidden_states: what a decoder with cross-attention attends to, shape (b, k, hidden_size).
            encoder_attention_mask: its padding, shape (b, k).
            past_key_values: keys and values of the tokens before these. A decoder makes it where `use_cache` is set, and
                appends those of its input. An encoder takes a `DynamicCache` with keys and values of shape (b, h, p, d)
                for a prefix that every token sees, as prefix tuning trains it, and does not change it. Keys are used as
                they are, without rotation; the input's positions start at p, and `attention_mask` is of p + s tokens.
            use_cache: return `past_key_values`; a decoder's default is the config's, an encoder returns none.
            position_ids: integers, shape (b, s) or (1, s); 0, 1, 2, … after the cache where None. Only their
                differences matter (equation 16), unless `rotary_value` or another `position_encoding` is set.
            output_attentions: return the attention probabilities, one tensor of shape (b, h, s, k) a layer. That
                call is computed eagerly, whatever the attention implementation.
            unpad_inputs: leave padding out of the computation (see `RoFormerConfig`); the config's where None.
            output_hidden_states: return the embeddings and every layer's output, each of shape (b, s, hidden_size).

        Returns:
            `last_hidden_state` of shape (b, s, hidden_size); where there are such, `pooler_output` of shape
            (b, hidden_size), `past_key_values`, `hidden_states`, `attentions` and `cross_attentions`.

        Raises:
            ValueError: naming the argument that does not fit, before anything is computed.
        """
        check_tokens(input_ids, inputs_embeds)
        if not self.config.is_decoder:
            encoder_hidden_states = None  # as in transformers
        elif encoder_hidden_states is not None and not self.config.add_cross_attention:
            raise ValueError("encoder_hidden_states need a model with add_cross_attention=True")
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        b, s = tokens.shape[:2]
        check_is_tensor("position_ids", position_ids)
        check_same_shape("token_type_ids", token_type_ids, (b, s))
        check_same_shape("inputs_embeds", inputs_embeds, (b, s, self.config.embedding_size))
        past_key_values = self.make_cache(past_key_values, use_cache, encoder_hidden_states is not None, b)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        # A cache of fixed size counts its tokens in a tensor, so that its positions are checked as those given are.
        checked = position_ids
        if position_ids is None:
            position_ids = self.default_position_ids(attention_mask, s, past, tokens.device)
            if isinstance(past, torch.Tensor):
                checked = position_ids
            else:
                check_length(self.config, past + s)
        elif position_ids.ndim != 2 or position_ids.shape[0] not in (1, b) or position_ids.shape[1] != s:
            raise ValueError(
                f"position_ids has shape {tuple(position_ids.shape)}, but the input needs ({b}, {s}) or (1, {s})"
            )
        # All that is decided by values is read from the device at once.
        whole, encoder_whole, padded, steps = check_ranges(
            (self.main_input_name, input_ids, self.config.vocab_size, None),
            ("token_type_ids", token_type_ids, self.config.type_vocab_size, None),
            ("position_ids", checked, longest_text(self.config), None),
            questions=(
                None if getattr(past_key_values, "is_compileable", False) else attends_to_all(attention_mask),
                None if encoder_hidden_states is None else attends_to_all(encoder_attention_mask),
                self.has_padding_at_an_end(input_ids) if attention_mask is None else None,
                self.encoder.training_steps if self.redraws_features() else None,
            ),
        )
        if steps is not None:
            self.redraw_features(steps)
        if padded:
            # It would look for padding by itself; this stands for the ids.
            self.warn_if_padding_and_no_attention_mask(torch.tensor([[self.config.pad_token_id]]), None)

        hidden_states = self.embeddings(input_ids, token_type_ids, inputs_embeds, position_ids)
        if hasattr(self, "embeddings_project"):
            hidden_states = self.embeddings_project(hidden_states)

        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_attentions and self.config.attention_type == "linear":
            check_matrix(s, past)
        implementation = implementation_for(self.config, output_attentions)
        check_implementation(self.config, implementation, hidden_states, self.training)
        if implementation in ("eager", "sdpa", "flex_attention") or "flash" in implementation:
            warn_of_unread(kwargs, type(self).forward)  # others may read arguments of their own
        position_embeddings = self.position_embeddings(position_ids, attention_mask, past)
        if encoder_hidden_states is not None:
            encoder_attention_mask = cross_attention_mask(
                self.config,
                implementation,
                hidden_states,
                encoder_attention_mask,
                encoder_hidden_states,
                encoder_whole,
            )
        packing = None
        if (
            (self.config.unpad_inputs if unpad_inputs is None else unpad_inputs)
            and not whole
            and past_key_values is None
            # what layers give by themselves is wanted in the shape of the input
            and not (output_attentions or kwargs.get("output_hidden_states", self.config.output_hidden_states))
            and can_be_unpadded(self.config, implementation, attention_mask, (b, s))
        ):
            packing = mask = Packing(attention_mask)
            hidden_states = packing.pack(hidden_states)
            position_embeddings = tuple(packing.pack(x) for x in position_embeddings)
        else:
            mask = self_attention_mask(
                self.config, implementation, hidden_states, attention_mask, token_type_ids, past_key_values, whole
            )
        hidden_states = self.encoder(
            hidden_states,
            mask,
            position_embeddings,
            encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=past_key_values,
            output_attentions=output_attentions,
            **kwargs,
        )
        if packing is not None:
            hidden_states = packing.unpack(hidden_states)
        if isinstance(past_key_values, PrefixCache):
            past_key_values = None  # the input's keys and values are not in it
        outputs = {"last_hidden_state": hidden_states, "past_key_values": past_key_values}
        if hasattr(self, "pooler"):
            return BaseModelOutputWithPoolingAndCrossAttentions(**outputs, pooler_output=self.pooler(hidden_states))
        return BaseModelOutputWithPastAndCrossAttentions(**outputs)

    def default_position_ids(
        self, attention_mask: torch.Tensor | None, s: int, past: int | torch.Tensor, device: torch.device
    ) -> torch.Tensor:
        """Positions of tokens that were given none, shape (b or 1, s): 0, 1, 2, …, or what follows those in the cache."""
        return torch.arange(s, device=device)[None] + past

    def has_padding_at_an_end(self, input_ids: torch.Tensor | None) -> torch.Tensor | None:
        """Whether a text starts or ends with padding, as a scalar yet to be read; None where that cannot be told."""
        if input_ids is None or self.config.pad_token_id is None or not can_be_read(input_ids):
            return None
        return (input_ids[:, :: max(input_ids.shape[1] - 1, 1)] == self.config.pad_token_id).any()

    def position_embeddings(
        self, position_ids: torch.Tensor, attention_mask: torch.Tensor | None, past: int | torch.Tensor = 0
    ) -> tuple[torch.Tensor, ...]:
        """What every layer's self-attention is told of positions: the cosines and sines of their angles; nothing where
        the encoding is another than rotary. The `past` tokens in a cache have theirs already."""
        if self.config.position_encoding != "rotary":
            return ()
        config, s, device = self.config, position_ids.shape[1], position_ids.device
        embeddings = rotary_position_embeddings(position_ids, self.frequencies(attention_mask, s, device))
        if config.rotary_value and config.rotary_dim != config.head_dim:  # values have no more dimensions for it
            frequencies = self.frequencies(attention_mask, s, device, config.head_dim)
            embeddings += rotary_position_embeddings(position_ids, frequencies)
        return embeddings

    def frequencies(
        self, attention_mask: torch.Tensor | None, s: int, device: torch.device, width: int | None = None
    ) -> torch.Tensor:
        """θ_i of equation 15, shape (width / 2,), or (b, width / 2) where they depend on each sequence's length; of
        `config.rotary_dim` dimensions where `width` is None."""
        if self.config.trainable_rope:
            return self.encoder.inv_freq
        lengths = s
        if depends_on_length(self.config) and attention_mask is not None and attention_mask.ndim == 2:
            lengths = (attention_mask != 0).sum(dim=-1)
        return scaled_inverse_frequencies(self.config, lengths, device, width)[0]

    def redraws_features(self) -> bool:
        """Whether Performer's random features may be redrawn in this call: in training, unless all weights are frozen."""
        return (
            hasattr(self.encoder, "training_steps")
            and self.config.linear_redraw_interval is not None
            and self.training
            and not is_transformed()
            and can_be_read(self.encoder.training_steps)
            and any(weight.requires_grad for weight in self.parameters())
        )

    def redraw_features(self, steps: int) -> None:
        """Redraw the random features if it is time, after so many training steps, and count this one.

        Features change only where the weights have changed since the call before. Until then a backward pass may compute
        earlier calls again, whoever asked for that and of whichever module, and they need the features that they had.
        """
        number, rest = divmod(steps, self.config.linear_redraw_interval)
        is_due = number > 0 and rest == 0
        if is_due:
            before, now = self.weights_before_redrawing, self.sums_of_weights()
            if before is not None and torch.equal(before, now):
                return
            for module in self.modules():
                if isinstance(module, FavorMap):
                    module.redraw(number)
        if is_due or torch.is_grad_enabled():
            self.encoder.training_steps += 1
            if (steps + 1) % self.config.linear_redraw_interval == 0:
                self.weights_before_redrawing = self.sums_of_weights()

    @torch.no_grad()
    def sums_of_weights(self) -> torch.Tensor:
        """Return the sum of each weight that is trained, by which to see that they have changed."""
        sums = []
        for weight in self.parameters():
            if weight.requires_grad:
                total = weight.sum(dtype=torch.float32 if weight.device.type == "mps" else torch.float64)
                sums.append(total.full_tensor() if hasattr(total, "full_tensor") else total)  # of a sharded weight
        return torch.stack([total.to(sums[0]) for total in sums])

    def make_cache(
        self, past_key_values: Cache | None, use_cache: bool | None, has_encoder: bool, b: int
    ) -> Cache | None:
        """Return the cache that this call of b texts reads, and a decoder writes; None where there is none."""
        if past_key_values is not None and not isinstance(past_key_values, Cache):
            raise ValueError(
                f"past_key_values is a {type(past_key_values).__name__}, but must be a Cache of transformers: "
                "DynamicCache(past_key_values) makes one from a tuple of keys and values of each layer"
            )
        if past_key_values is not None and depends_on_length(self.config):
            raise ValueError(
                'rope_type "dynamic" rotates every key anew as a text grows, so it cannot use past_key_values: leave them '
                "out, pass use_cache=False, and train another adapter than a prefix"
            )
        if not self.config.is_decoder or self.computes_layers_twice():
            return self.make_prefix(past_key_values, b)
        if depends_on_length(self.config):
            return None
        use_cache = self.config.use_cache if use_cache is None else use_cache
        is_linear = self.config.attention_type == "linear"
        if past_key_values is None and use_cache:
            past_key_values = (LinearAttentionCache if is_linear else DynamicCache)(config=self.config)
            if has_encoder:
                past_key_values = EncoderDecoderCache(past_key_values, DynamicCache(config=self.config))
        own = getattr(past_key_values, "self_attention_cache", past_key_values)
        if past_key_values is not None and isinstance(own, LinearAttentionCache) != is_linear:
            raise ValueError(
                f'past_key_values are a {type(own).__name__}, but with attention_type="{self.config.attention_type}" '
                f"they must {'' if is_linear else 'not '}be a LinearAttentionCache: leave them out, and the model makes its own"
                f"{'; prefix tuning is for softmax attention' if is_linear else ''}"
            )
        return past_key_values

    def make_prefix(self, past_key_values: Cache | None, b: int) -> PrefixCache | None:
        """Return what a call that writes no cache reads of one; None where that is nothing."""
        if past_key_values is None or past_key_values.get_seq_length() == 0:
            return None
        if self.config.attention_type == "linear":
            raise ValueError(
                'attention_type="linear" takes past_key_values in a decoder without gradient checkpointing alone: leave '
                "them out, and train another adapter than a prefix"
            )
        return PrefixCache(past_key_values, self.config, b)

    def computes_layers_twice(self) -> bool:
        """Whether gradient checkpointing will compute the layers of this call again, so that they must not write."""
        return (
            self.training
            and torch.is_grad_enabled()
            and any(layer.gradient_checkpointing for layer in self.encoder.layer)
        )


LONGEST_MATRIX = 4096


def check_matrix(s: int, past: int | torch.Tensor) -> None:
    """Raises a ValueError where the weights of all pairs of tokens are asked of linear attention, and it cannot give them."""
    if isinstance(past, torch.Tensor) or past:
        raise ValueError(
            "output_attentions=True asks for weights of all tokens, but linear attention has added those in the cache up: "
            "pass the text as a whole, with use_cache=False"
        )
    if s > LONGEST_MATRIX:
        raise ValueError(
            f"output_attentions=True makes a matrix of all pairs of tokens, which linear attention does without: ask for it "
            f"on texts of up to {LONGEST_MATRIX:,} tokens, not {s:,}"
        )
