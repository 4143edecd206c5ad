"""RoFormer (arXiv:2104.09864), a post-norm transformer with rotary attention: its layers, then the encoder or decoder.

Dimensions in the shapes: b batch, s sequence length.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions
from transformers.pytorch_utils import apply_chunking_to_forward

from .attention import (
    MultiHeadAttention,
    ReadOnlyCache,
    RoFormerCrossAttention,
    RoFormerSelfAttention,
    as_eager,
    make_source_mask,
)
from .configuration import RoFormerConfig, check_activations
from .inputs import (
    CACHE_NAME,
    can_be_read,
    check_ranges,
    check_shape,
    check_tokens,
    count_padding,
    given_cache,
    is_flash,
    warn_of_unread,
)
from .loading import LoadedWhole
from .rotary import (
    check_length,
    depends_on_length,
    kept_frequencies,
    longest_text,
    make_position_embeddings,
    read_frequencies,
    rotary_position_embeddings,
    write_frequencies,
)
from .unpadding import FlatPacking, Packing, first_tokens, is_faster_packed, texts_in_rows

if TYPE_CHECKING:  # the originals hide the type of what they decorate
    Function = TypeVar("Function", bound=Callable)

    def can_return_tuple(function: Function) -> Function: ...
    def capture_outputs(function: Function) -> Function: ...
else:
    from transformers.utils.generic import can_return_tuple  # noqa: F401
    from transformers.utils.output_capturing import capture_outputs

LM_HEAD_KEYS = r"^cls\.predictions\."  # left out on purpose by models without this head


class RMSNorm(nn.Module):
    """RoFormer-V2's norm, as in bert4keras: x / √(mean(x²) + ε), without parameters."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        wide = hidden_states.float() if hidden_states.dtype in (torch.float16, torch.bfloat16) else hidden_states
        return nn.functional.rms_norm(wide, (wide.shape[-1],), eps=self.eps).to(hidden_states.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


def make_norm(config: RoFormerConfig, size: int) -> nn.Module:
    """Return the norm of the config over a last dimension of `size`."""
    eps = config.layer_norm_eps
    return RMSNorm(eps) if config.norm_type == "rms_norm" else nn.LayerNorm(size, eps)


class RoFormerEmbeddings(nn.Module):
    """Word and segment embeddings; for the baselines of rotary.py also position embeddings."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.position_embeddings = make_position_embeddings(config)
        self.LayerNorm = make_norm(config, width)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        embeddings = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        segments = self.token_type_embeddings
        embeddings = embeddings + (segments.weight[0] if token_type_ids is None else segments(token_type_ids))
        if self.position_embeddings is not None:
            embeddings = embeddings + self.position_embeddings(position_ids).to(embeddings.dtype)
        return self.dropout(self.LayerNorm(embeddings))


class RoFormerOutput(nn.Module):
    """End of the attention and of the feed-forward sub-layer: a projection from `width`, with residual and norm."""

    def __init__(self, config: RoFormerConfig, width: int):
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size, bias=config.use_bias)
        self.LayerNorm = make_norm(config, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)


class RoFormerAttention(nn.Module):
    """Attention sub-layer: self-attention or cross-attention, then projection, residual and norm."""

    def __init__(self, config: RoFormerConfig, layer_idx: int, attention: type[MultiHeadAttention]):
        super().__init__()
        self.self = attention(config, layer_idx)
        self.output = RoFormerOutput(config, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        context, _ = self.self(hidden_states, *args, **kwargs)
        return self.output(context, hidden_states)


class RoFormerIntermediate(nn.Sequential):
    """First linear layer of the feed-forward sub-layer, with its activation."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.use_bias)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]


class RoFormerLayer(GradientCheckpointingLayer):
    """Self-attention, cross-attention (with `add_cross_attention`), then the feed-forward sub-layer."""

    # A recomputed layer only reads the cache; see `choose_cache`.
    _can_checkpoint_with_cache = True

    def __init__(self, config: RoFormerConfig, layer_idx: int, self_attention: type[RoFormerSelfAttention]):
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = RoFormerAttention(config, layer_idx, self_attention)
        if config.add_cross_attention:
            self.crossattention = RoFormerAttention(config, layer_idx, RoFormerCrossAttention)
        self.intermediate = RoFormerIntermediate(config)
        self.output = RoFormerOutput(config, config.intermediate_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        *position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> torch.Tensor:
        # What may need gradients is positional: reentrant checkpointing loses the gradients of keyword arguments.
        hidden_states = self.attention(hidden_states, *position_embeddings, attention_mask=attention_mask, **kwargs)
        if encoder_hidden_states is not None:
            hidden_states = self.crossattention(
                hidden_states, encoder_hidden_states, attention_mask=encoder_attention_mask, **kwargs
            )
        if self.chunk_size_feed_forward == 0:  # `apply_chunking_to_forward` inspects a signature, which takes longer
            return self.feed_forward(hidden_states)
        return apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, hidden_states)

    def feed_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.output(self.intermediate(hidden_states), hidden_states)


class RoFormerEncoder(nn.Module):
    """Stack of layers."""

    def __init__(self, config: RoFormerConfig, self_attention: type[RoFormerSelfAttention]):
        super().__init__()
        self.layer = nn.ModuleList(
            [RoFormerLayer(config, layer_idx, self_attention) for layer_idx in range(config.num_hidden_layers)]
        )
        self.config = config
        if config.trainable_rope:
            self.log_inv_freq_offset = nn.Parameter(torch.zeros(config.rotary_dim // 2, dtype=torch.float32))
            # Only for files. accelerate's device maps miss buffers of modules that they split.
            self.inv_freq = nn.Parameter(torch.zeros_like(self.log_inv_freq_offset), requires_grad=False)
            self.register_state_dict_post_hook(write_frequencies)
            self.register_load_state_dict_pre_hook(read_frequencies)
        for name, buffer in self_attention.shared_buffers(config).items():
            self.register_buffer(name, buffer)
        self.register_load_state_dict_pre_hook(drop_position_table)

    def initialize(self) -> None:
        """Set the own tensors to 0: frequencies begin as those of the config, and no step of training is counted."""
        for own in (*self.parameters(recurse=False), *self.buffers(recurse=False)):
            init.zeros_(own)

    def _apply(self, fn, recurse=True):
        """Move and cast as other modules do, but keep the dtype of the own tensors: rounded frequencies drift."""

        def move(x: torch.Tensor) -> torch.Tensor:
            moved = fn(x)
            return moved if moved.dtype == x.dtype else x.to(moved.device)

        super()._apply(move, recurse=False)
        for child in self.children() if recurse else ():
            child._apply(fn)
        return self

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        *position_embeddings: torch.Tensor,
        packing: Packing | None = None,
        **kwargs,
    ) -> torch.Tensor:
        if packing is not None:
            hidden_states = packing.pack(hidden_states)
            position_embeddings = tuple(map(packing.pack, position_embeddings))
        for layer in self.layer:
            hidden_states = layer(hidden_states, encoder_hidden_states, *position_embeddings, packing=packing, **kwargs)
        return hidden_states if packing is None else packing.unpack(hidden_states)


class RoFormerPooler(nn.Module):
    """Linear layer and activation over the first token."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.pooler_activation]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.activation(self.dense(hidden_states[:, 0]))


def drop_position_table(module: nn.Module, state_dict: dict, prefix: str, *args) -> None:
    """Drop the table of sinusoids that published PyTorch checkpoints carry: angles are computed here."""
    state_dict.pop(prefix + "embed_positions.weight", None)


class RoFormerPreTrainedModel(LoadedWhole, PreTrainedModel):
    """Base of all RoFormer models, with strict loading (loading.py)."""

    config: RoFormerConfig
    config_class = RoFormerConfig
    attention_classes: dict[str, Any] = {"softmax": RoFormerSelfAttention}  # other kinds add themselves
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
        "attentions": RoFormerSelfAttention,
        "cross_attentions": RoFormerCrossAttention,
    }

    def __init__(self, config: RoFormerConfig, *args, **kwargs):
        config.check()
        check_activations(config)
        super().__init__(config, *args, **kwargs)

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        """Return True; transformers guesses it from the text of the file, and guesses wrong here."""
        return True

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Return the implementation as transformers does; raise a ValueError if this model's attention has none."""
        self.attention_class().check_implementation(self.config, requested_attention)
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    def attention_class(self) -> type[RoFormerSelfAttention]:
        """Return the self-attention of the config's kind; raise a ValueError if its file was not imported."""
        kind = self.config.attention_type
        if kind not in self.attention_classes:
            raise ValueError(f'attention_type="{kind}" is not in the code of this model: install modeling_roformer')
        return self.attention_classes[kind]

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        super()._init_weights(module)
        if self.config.norm_type == "rms_norm" and isinstance(module, (nn.Linear, nn.Embedding)):
            # bert4keras' RoFormerV2: smaller with depth; 1.1368 compensates the truncation at two standard deviations.
            std = 1.13684723 / (module.weight.shape[1] * self.config.num_hidden_layers) ** 0.5
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif initialize := getattr(module, "initialize", None):  # of modules of this package
            initialize()


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

    def __init__(self, config: RoFormerConfig, add_pooling_layer: bool | None = None):
        if add_pooling_layer is not None:
            config.add_pooling_layer = add_pooling_layer
        super().__init__(config)
        self.gradient_checkpointing = False
        self.embeddings: Any = self.embeddings_class(config)
        self.embeddings_project = nn.Identity()
        if config.embedding_size != config.hidden_size:
            self.embeddings_project = nn.Linear(config.embedding_size or config.hidden_size, config.hidden_size)
        self.self_attention = self.attention_class()
        self.encoder = RoFormerEncoder(config, self.self_attention)
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
        one_text_per_row: bool | None = False,
        **kwargs,
    ) -> BaseModelOutputWithPoolingAndCrossAttentions:
        """Encode token ids, or embeddings in their place.

        Args:
            input_ids: shape (b, s).
            attention_mask: 0 for padding, shape (b, s), or (b, p + s) after p cached tokens; or (b, 1, s, s) or
                (b, 1, 1, s), boolean or added to the scores, as the complete mask.
            token_type_ids: segments, shape (b, s); all 0 if None.
            inputs_embeds: shape (b, s, embedding_size), instead of `input_ids`.
            encoder_hidden_states: the source that a decoder with cross-attention reads, shape (b, k, hidden_size).
            encoder_attention_mask: padding mask of the source, shape (b, k), 0 for padding.
            past_key_values: keys and values of the preceding tokens. A decoder appends those of its input; an encoder
                takes none.
            use_cache: return `past_key_values`, and create them if they are None. The default is the config's. An
                encoder returns none.
            position_ids: integers, shape (b, s) or (1, s); if None, 0, 1, 2, …, continued after cached tokens. Only
                their differences matter (equation 16), unless `rotary_value` or another `position_encoding` is set.
                Without an `attention_mask` and cached tokens, a text of its own begins where they return to 0, as in
                batches of `DataCollatorWithFlattening`; its `cu_seq_lens_q` and `seq_idx` are read, too.
            output_attentions: return the attention probabilities, one tensor of shape (b, h, s, k) per layer. The call
                is then computed eagerly, whatever the attention implementation.
            unpad_inputs: leave padding out of the computation (see `RoFormerConfig`); the config's if None.
            one_text_per_row: raise an error for several texts in a row, for which a head has no result of their own; if
                None, each row is one text, whatever its positions.
            output_hidden_states: return the embeddings and every layer's output, each of shape (b, s, hidden_size).

        Returns:
            `last_hidden_state` of shape (b, s, hidden_size), and if the model or the call has them `pooler_output` of
            shape (b, hidden_size), `past_key_values`, `hidden_states`, `attentions` and `cross_attentions`.

        Raises:
            ValueError: for an argument that does not fit, named in the message, before anything is computed.
        """
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        config = as_eager(self.config) if output_attentions or not self.config._attn_implementation else self.config
        encoder_hidden_states = encoder_hidden_states if config.is_decoder else None  # as in transformers
        tokens = self.check_shapes(input_ids, inputs_embeds, token_type_ids, position_ids, encoder_hidden_states)
        cache, texts = past_key_values, None
        if position_ids is not None or kwargs:
            cache = given_cache(cache, kwargs)
            texts = texts_in_rows(tokens, attention_mask, position_ids, cache, one_text_per_row, kwargs)
            position_ids = texts.places() if texts is not None and position_ids is None else position_ids
            warn_of_unread(kwargs, type(self).forward, config._attn_implementation)
        if cache is not None or config.is_decoder:
            cache = self.choose_cache(cache, use_cache, tokens.shape[0], encoder_hidden_states)
        mask, source_mask, padding = self.read_inputs(
            tokens, token_type_ids, position_ids, attention_mask, encoder_attention_mask, cache, texts
        )
        if texts is not None:
            texts, cache = texts.check(one_text_per_row or encoder_hidden_states is not None, cache, use_cache)
        position_ids, lengths = self.positions(tokens, mask, position_ids, cache, texts)
        hidden_states = self.embeddings_project(self.embeddings(input_ids, token_type_ids, inputs_embeds, position_ids))
        kwargs |= {"past_key_values": cache, "output_attentions": output_attentions}
        packing = self.choose_packing(config, hidden_states, mask, padding, texts, unpad_inputs, **kwargs)
        mask = self.self_attention.make_mask(config, hidden_states, mask, token_type_ids, cache, texts, packing)
        if encoder_hidden_states is not None and source_mask is not None:
            source_mask = make_source_mask(config, hidden_states, source_mask, encoder_hidden_states)
        kwargs |= {"attention_mask": mask, "encoder_attention_mask": source_mask, "packing": packing}
        positions = self.position_embeddings(position_ids, lengths)
        hidden_states = self.encoder(hidden_states, encoder_hidden_states, *positions, **kwargs)
        pooled = self.pooler(first_tokens(hidden_states, texts)) if hasattr(self, "pooler") else None
        extended: dict[str, Any] = {CACHE_NAME: None if isinstance(cache, ReadOnlyCache) else cache}
        return BaseModelOutputWithPoolingAndCrossAttentions(hidden_states, pooled, **extended)

    def check_shapes(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return `input_ids` or `inputs_embeds`, the one that is given; raise a ValueError that names an argument of
        `forward` whose shape or type does not fit."""
        tokens = check_tokens(input_ids, inputs_embeds)
        b, s = tokens.shape[:2]
        if encoder_hidden_states is not None and not self.config.add_cross_attention:
            raise ValueError("encoder_hidden_states needs a model with cross-attention: set add_cross_attention=True")
        check_shape("token_type_ids", token_type_ids, (b, s))
        check_shape("inputs_embeds", inputs_embeds, (b, s, self.config.embedding_size))
        check_shape("position_ids", position_ids, (b, s), (1, s))
        if position_ids is not None and position_ids.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"position_ids are {position_ids.dtype}; expected integers of 32 or 64 bits")
        return tokens

    def choose_cache(
        self,
        cache: Cache | None,
        use_cache: bool | None,
        b: int,
        encoder_hidden_states: torch.Tensor | None,
    ) -> Cache | None:
        """Return the cache that one call of a decoder reads and extends; None for no cache.

        Args:
            cache: the given one. Under gradient checkpointing, which computes each layer twice, it is only read.

        Raises:
            ValueError: for a cache that the model cannot use; an encoder uses none.
        """
        config, kind = self.config, self.self_attention
        if not config.is_decoder:
            if isinstance(cache, Cache) and cache.get_seq_length() == 0:
                return None
            raise ValueError(
                "an encoder takes no past_key_values, and so no prefix tuning: leave them out, and train LoRA adapters "
                "in place of a prefix"
            )
        if cache is not None and not isinstance(cache, Cache):
            raise ValueError(
                f"past_key_values is a {type(cache).__name__}; expected a Cache of transformers. "
                "DynamicCache(past_key_values) makes one from a tuple of each layer's keys and values."
            )
        if cache is not None and depends_on_length(config):
            raise ValueError(
                'rope_type "dynamic" rotates all keys again as a text grows: leave out past_key_values and pass '
                "use_cache=False; for fine-tuning, use another adapter than a prefix"
            )
        recomputes = self.training and torch.is_grad_enabled()
        recomputes = recomputes and any(layer.gradient_checkpointing for layer in self.encoder.layer)
        if cache is None:
            if recomputes or depends_on_length(config) or not (config.use_cache if use_cache is None else use_cache):
                return None
            cache = kind.make_cache(config)
            has_source = encoder_hidden_states is not None
            return EncoderDecoderCache(cache, DynamicCache(config=config)) if has_source else cache
        own: Any = getattr(cache, "self_attention_cache", cache)
        if recomputes:
            cache = kind.read_only(own) if own.get_seq_length() else None
        if cache is not None:
            kind.check_cache(own, config, b)
        return cache

    def positions(
        self,
        tokens: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        cache: Cache | None,
        texts: FlatPacking | None,
    ) -> tuple[torch.Tensor, int | torch.Tensor]:
        """Return the given positions, or those of the tokens in their texts, continued after cached tokens, shape
        (b or 1, s); and the length of the texts, or if frequencies depend on it, that of each (see `lengths`)."""
        s, past = tokens.shape[1], 0 if cache is None else cache.get_seq_length()
        lengths = self.lengths(tokens, attention_mask, position_ids, texts) if depends_on_length(self.config) else s
        if position_ids is None:
            if self.config.position_encoding == "learned":
                check_length(self.config, past, s)
            if isinstance(past, int):
                position_ids = torch.arange(past, past + s, device=tokens.device)[None]
            else:  # of a cache of fixed size
                position_ids = torch.arange(s, device=tokens.device)[None] + past
        return position_ids, lengths

    def lengths(
        self,
        tokens: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        texts: FlatPacking | None,
    ) -> int | torch.Tensor:
        """Return the lengths of which frequencies depend: one number for all texts, shape (b,) for each text, or (b, s)
        for each token's text if rows hold several. A text with `position_ids` is as long as its last position says."""
        is_token = attention_mask != 0 if attention_mask is not None and attention_mask.ndim == 2 else None
        if position_ids is not None and texts is not None:
            return texts.largest(position_ids + 1)
        if position_ids is not None:
            of_tokens = position_ids if is_token is None else torch.where(is_token, position_ids, 0)
            return of_tokens.amax(dim=-1) + 1
        return tokens.shape[1] if is_token is None else is_token.sum(dim=-1)

    def read_inputs(
        self,
        tokens: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        encoder_attention_mask: torch.Tensor | None,
        cache: Cache | None,
        texts: FlatPacking | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, int]:
        """Check the mask's shape and the values of the inputs, and read what else must be known on the host, in one
        device sync. The number of `texts`, and whether their ends fit, are put into them.

        Returns:
            `attention_mask` and `encoder_attention_mask`, None if they mask nothing, and the number of tokens of
            padding that may be left out: 0 if a text begins with padding, which heads and poolers read, or if it is not
            known.
        """
        self.self_attention.check_mask(self.config, attention_mask, tokens, cache)
        is_fixed = getattr(cache, "is_compileable", False)
        padding, begins, source_padding, has_padding, training_steps, number, fit = check_ranges(
            (self.main_input_name, tokens, self.config.vocab_size, None),
            ("token_type_ids", token_type_ids, self.config.type_vocab_size, None),
            ("position_ids", position_ids, None if position_ids is None else longest_text(self.config), None),
            questions=(
                None if is_fixed else count_padding(attention_mask),
                None if is_fixed else count_padding(attention_mask, first=True),
                None if encoder_attention_mask is None else count_padding(encoder_attention_mask),
                self.has_padding_at_an_end(tokens) if attention_mask is None else None,
                self.self_attention.training_steps(self) if self.training else None,
                None if texts is None else texts.number,
                None if texts is None or texts.number is None else texts.fit,
            ),
        )
        if has_padding:
            # Pass one pad token: padding was detected above, so this avoids a second sync.
            self.warn_if_padding_and_no_attention_mask(torch.tensor([[self.config.pad_token_id]]), None)
        if texts is not None:
            texts.number, texts.fit = number, fit
        if training_steps is not None:
            self.self_attention.redraw(self, training_steps)
        attention_mask = None if padding == 0 else attention_mask
        encoder_attention_mask = None if source_padding == 0 else encoder_attention_mask
        return attention_mask, encoder_attention_mask, 0 if begins else padding or 0

    def has_padding_at_an_end(self, tokens: torch.Tensor) -> torch.Tensor | None:
        """Return whether a text starts or ends with padding, as a 0-d tensor; None if the ids cannot be read."""
        if tokens.is_floating_point() or self.config.pad_token_id is None or not can_be_read(tokens):
            return None
        return (tokens[:, :: max(tokens.shape[1] - 1, 1)] == self.config.pad_token_id).any()

    def choose_packing(
        self,
        config: RoFormerConfig,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        padding: int,
        texts: FlatPacking | None,
        unpad_inputs: bool | None,
        past_key_values: Cache | None,
        output_attentions: bool | None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> Packing | None:
        """Return how the layers compute the texts without padding, one by one; None if they compute padded rows.

        Args:
            hidden_states: those that the first layer takes, shape (b, s, hidden_size).
            padding: number of tokens that may be left out (see `read_inputs`).
            texts: see `texts_in_rows`.
        """
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        if texts is not None:
            return texts if self.packs_texts(config, texts, output_attentions, output_hidden_states) else None
        # Outputs of each layer keep the padded shape, as a cache does, and chunks must divide the number of tokens.
        needs_rows = output_attentions or output_hidden_states or past_key_values is not None
        if padding == 0 or attention_mask is None or needs_rows or config.chunk_size_feed_forward:
            return None
        unpads = config.unpad_inputs if unpad_inputs is None else unpad_inputs
        dropout = config.attention_probs_dropout_prob if self.training else 0.0
        is_faster = unpads and is_faster_packed(config, attention_mask, padding, hidden_states, dropout)
        if not (is_faster and self.self_attention.can_pack(config)):
            return None
        return None if self._has_compiled_layers() else Packing(attention_mask)

    def packs_texts(
        self,
        config: RoFormerConfig,
        texts: FlatPacking,
        output_attentions: bool | None,
        output_hidden_states: bool | None,
    ) -> bool:
        """Return whether the layers compute several texts in a row one by one, not all with a mask."""
        if output_attentions or texts.cu_seqlens is None or (output_hidden_states and texts.batch_shape[0] > 1):
            return False
        takes_all = is_flash(config._attn_implementation)
        if not (self.self_attention.can_pack(config) and (takes_all or can_be_read(texts.starts))):
            return False
        return takes_all or not (self.self_attention.masks_texts and self._has_compiled_layers())

    def _has_compiled_layers(self) -> bool:
        """Return whether layers are compiled one by one: each new set of lengths would compile them again."""
        layers: Any = self.encoder.layer
        parts = (x for layer in layers for x in (layer, layer.attention, layer.attention.self))
        return any(x._compiled_call_impl is not None or hasattr(x, "_orig_mod") for x in (self.encoder, *parts))

    def position_embeddings(self, position_ids: torch.Tensor, lengths: int | torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what every layer's self-attention takes of positions: the rotation of queries and keys if the encoding
        is rotary, then that of values if their width is another; otherwise nothing. Arguments are the results of
        `positions`."""
        config, embeddings = self.config, ()
        if config.position_encoding != "rotary":
            return embeddings
        offset = self.encoder.log_inv_freq_offset if config.trainable_rope else None
        widths = [config.rotary_dim]
        if config.rotary_value and config.head_dim != config.rotary_dim:
            widths.append(config.head_dim)
        for width in widths:
            frequencies = kept_frequencies(config, lengths, position_ids, width, offset)
            embeddings += (rotary_position_embeddings(position_ids, frequencies),)
        return embeddings
