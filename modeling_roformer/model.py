"""RoFormer (arXiv:2104.09864), a post-norm transformer with rotary attention: its layers, then the encoder or decoder.

Dimensions in the shapes: b batch, s sequence length.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import get_activation
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions
from transformers.pytorch_utils import apply_chunking_to_forward

from .attention import (
    MultiHeadAttention,
    RoFormerCrossAttention,
    RoFormerSelfAttention,
    make_source_mask,
)
from .call import ReadOnlyCache, read_call
from .configuration import RoFormerConfig
from .inputs import CACHE_NAME, can_be_read
from .loading import LoadedWhole
from .rotary import (
    depends_on_positions,
    kept_frequencies,
    make_position_embeddings,
    read_frequencies,
    rotary_position_embeddings,
    write_frequencies,
)
from .unpadding import Packing, first_kept, first_tokens

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
        self.intermediate_act_fn = get_activation(config.hidden_act)


class RoFormerLayer(GradientCheckpointingLayer):
    """Self-attention, cross-attention (with `add_cross_attention`), then the feed-forward sub-layer."""

    # A recomputed layer only reads the cache; see `choose_cache` in call.py.
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
        """Set the encoder's own tensors to 0: frequencies begin as those of the config, and training steps at 0."""
        for own in (*self.parameters(recurse=False), *self.buffers(recurse=False)):
            init.zeros_(own)

    def _apply(self, fn, recurse=True):
        """Move and cast as other modules do, but keep the dtype of the encoder's own tensors: rounded frequencies
        drift."""

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
        self.activation = get_activation(config.pooler_activation)

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
        super().__init__(config, *args, **kwargs)

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        """Return True; transformers guesses it from the text of the file, and guesses wrong here."""
        return True

    def attention_class(self) -> type[RoFormerSelfAttention]:
        """Return the class for the config's `attention_type`; raise a ValueError if its file was not imported."""
        name = self.config.attention_type
        if name not in self.attention_classes:
            raise ValueError(f'attention_type="{name}" is not in the code of this model: install modeling_roformer')
        return self.attention_classes[name]

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
                their differences matter (equation 16), unless `rotary_value` or another `position_encoding` is set:
                then they are counted from a text's first token after padding.
                Without an `attention_mask` and cached tokens, a text of its own begins where they return to 0, as in
                batches of `DataCollatorWithFlattening`; its `cu_seq_lens_q` and `seq_idx` are read, too.
            output_attentions: return the attention probabilities, one tensor of shape (b, h, s, k) per layer. The call
                is then computed eagerly, whatever the attention implementation.
            unpad_inputs: leave padding out of the computation (see `RoFormerConfig`); the config's if None.
            one_text_per_row: raise an error for several texts in a row, since a head has one result for each row; if
                None, each row is one text, whatever its positions.
            output_hidden_states: return the embeddings and every layer's output, each of shape (b, s, hidden_size).

        Returns:
            `last_hidden_state` of shape (b, s, hidden_size), and if the model or the call has them `pooler_output` of
            shape (b, hidden_size), `past_key_values`, `hidden_states`, `attentions` and `cross_attentions`.

        Raises:
            ValueError: for an argument that does not fit, named in the message, before anything is computed.
        """
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        call = read_call(
            self,
            input_ids=input_ids,
            inputs_embeds=inputs_embeds,
            token_type_ids=token_type_ids,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache,
            attention_mask=attention_mask,
            position_ids=position_ids,
            one_text_per_row=one_text_per_row,
            unpad_inputs=unpad_inputs,
            output_attentions=output_attentions,
            options=kwargs,
        )
        hidden_states = self.embeddings(input_ids, token_type_ids, inputs_embeds, call.position_ids)
        hidden_states = self.embeddings_project(hidden_states)
        hidden_states = self.encoder(
            hidden_states,
            call.encoder_hidden_states,
            *self.position_embeddings(call.position_ids, call.lengths),
            attention_mask=self.self_attention.make_mask(call, hidden_states),
            encoder_attention_mask=make_source_mask(call, hidden_states),
            past_key_values=call.cache,
            packing=call.packing,
            output_attentions=output_attentions,
            **kwargs,
        )
        pooled = None
        if hasattr(self, "pooler"):
            pooled = self.pooler(first_tokens(hidden_states, call.attention_mask, call.flat_packing))
        cache: dict[str, Any] = {CACHE_NAME: None if isinstance(call.cache, ReadOnlyCache) else call.cache}
        return BaseModelOutputWithPoolingAndCrossAttentions(hidden_states, pooled, **cache)

    def positions(self, tokens: torch.Tensor, attention_mask: Any, cache: Cache | None) -> torch.Tensor:
        """Return the position of each token in its text, continued after cached tokens, shape (b or 1, s).

        Where more than the differences of positions matters, they are counted from the first token after padding. With
        a 4-D mask they are not, except with the one that `generate()` makes for a static cache.
        """
        s, past = tokens.shape[1], 0 if cache is None else cache.get_seq_length()
        if isinstance(past, int):
            position_ids = torch.arange(past, past + s, device=tokens.device)[None]
        else:  # of a cache of fixed size
            position_ids = torch.arange(s, device=tokens.device)[None] + past
        if not depends_on_positions(self.config) or not isinstance(attention_mask, torch.Tensor):
            return position_ids
        if attention_mask.ndim == 4 and attention_mask.shape[-1] != s:
            # `generate()` makes this mask for a static cache; its last token sees all tokens but padding.
            attention_mask = attention_mask[:, 0, -1]
            if attention_mask.is_floating_point():
                attention_mask = attention_mask == 0
        if attention_mask.ndim != 2:
            return position_ids
        return (position_ids - first_kept(attention_mask)[:, None]).clamp(min=0)

    def has_padding_at_an_end(self, tokens: torch.Tensor) -> torch.Tensor | None:
        """Return whether a text starts or ends with padding, as a 0-d tensor; None if the ids cannot be read."""
        if tokens.is_floating_point() or self.config.pad_token_id is None or not can_be_read(tokens):
            return None
        return (tokens[:, :: max(tokens.shape[1] - 1, 1)] == self.config.pad_token_id).any()

    def position_embeddings(self, position_ids: torch.Tensor, lengths: int | torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the rotations that every layer's self-attention takes; none if the position encoding is not rotary.

        The first one rotates queries and keys. A second one rotates values, if they have another width. The arguments
        are fields of the `Call`.
        """
        config = self.config
        if config.position_encoding != "rotary":
            return ()
        offset = self.encoder.log_inv_freq_offset if config.trainable_rope else None
        widths = [config.rotary_dim]
        if config.rotary_value and config.head_dim != config.rotary_dim:
            widths.append(config.head_dim)
        frequencies = [kept_frequencies(config, lengths, position_ids, width, offset) for width in widths]
        return tuple(rotary_position_embeddings(position_ids, x) for x in frequencies)
