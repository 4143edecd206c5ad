"""The layers of a RoFormer: norms, embeddings, post-norm transformer layers and the pooler."""

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import apply_chunking_to_forward

from .attention import MultiHeadAttention, RoFormerCrossAttention, RoFormerSelfAttention
from .configuration import RoFormerConfig
from .rotary import make_position_embeddings, read_frequencies, write_frequencies
from .unpadding import Packing


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
