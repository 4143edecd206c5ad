"""RoFormer: a post-norm transformer encoder whose attention is rotary (arXiv:2104.09864).

Dimensions in the shapes: b batch, s sequence length.
"""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils.output_capturing import capture_outputs

from .attention import (
    RoFormerAttention,
    RoFormerSelfAttention,
    check_implementation,
    encoder_mask,
    implementation_for,
)
from .configuration import RoFormerConfig
from .rotary import rotary_position_embeddings


class RoFormerEmbeddings(nn.Module):
    """Word and segment embeddings. No position is put in here: that is attention's part."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.embedding_size)
        self.LayerNorm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        if token_type_ids is None:
            # All in segment 0: the same row for every token.
            segments = self.token_type_embeddings.weight[0]
        else:
            segments = self.token_type_embeddings(token_type_ids)
        return self.dropout(self.LayerNorm(inputs_embeds + segments))


class RoFormerIntermediate(nn.Module):
    """The widening half of the feed-forward sub-layer."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.intermediate_act_fn(self.dense(hidden_states))


class RoFormerOutput(nn.Module):
    """The narrowing half of the feed-forward sub-layer, residual and norm."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.dense = nn.Linear(config.intermediate_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)


class RoFormerLayer(GradientCheckpointingLayer):
    """Attention, then feed-forward."""

    def __init__(self, config: RoFormerConfig, layer_idx: int):
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = RoFormerAttention(config, layer_idx)
        self.intermediate = RoFormerIntermediate(config)
        self.output = RoFormerOutput(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        **kwargs,
    ) -> torch.Tensor:
        hidden_states = self.attention(hidden_states, attention_mask, position_embeddings, **kwargs)
        return apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, hidden_states)

    def feed_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.output(self.intermediate(hidden_states), hidden_states)


class RoFormerEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: RoFormerConfig):
        super().__init__()
        self.layer = nn.ModuleList([RoFormerLayer(config, layer_idx) for layer_idx in range(config.num_hidden_layers)])
        self.register_load_state_dict_pre_hook(drop_position_table)

    def forward(self, hidden_states: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        for layer in self.layer:
            hidden_states = layer(hidden_states, *args, **kwargs)
        return hidden_states


def drop_position_table(module: nn.Module, state_dict: dict, prefix: str, *args) -> None:
    """Published PyTorch checkpoints carry a table of sinusoids, up to some longest length; angles are computed here."""
    state_dict.pop(prefix + "embed_positions.weight", None)


class RoFormerPreTrainedModel(PreTrainedModel):
    """What all RoFormer models share: loading, initialisation, what they support."""

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
    _can_record_outputs = {"hidden_states": RoFormerLayer, "attentions": RoFormerSelfAttention}

    def __init__(self, config: RoFormerConfig, *args, **kwargs):
        refuse_unbuilt(config)
        config.check()
        super().__init__(config, *args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if type(module).__name__ == "RoFormerLMPredictionHead":
            init.zeros_(module.bias)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers, but that a backbone is loaded whole or not at all.

        transformers fills missing weights with fresh random ones and lists them in a report; a backbone loaded so
        answers garbage. Weights of a head that the checkpoint does not have are fresh, as everywhere. Callers that
        ask for the report (`output_loading_info=True`, `ignore_mismatched_sizes=True`) or bring their own
        `state_dict` get transformers' behaviour.

        Raises:
            ValueError: naming the weights of the backbone that are missing, of another shape, or that have no place.
        """
        report_is_asked_for = (
            kwargs.get("output_loading_info")
            or kwargs.get("ignore_mismatched_sizes")
            or kwargs.get("state_dict") is not None
        )
        if report_is_asked_for:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        kwargs.update(output_loading_info=True, ignore_mismatched_sizes=True)
        model, report = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model.check_loaded(report, pretrained_model_name_or_path)
        return model

    def check_loaded(self, report: dict, source: str) -> None:
        """Raises a ValueError that names what transformers' load report holds against the backbone."""
        prefix = f"{self.base_model_prefix}."
        backbone = prefix if hasattr(self, self.base_model_prefix) else ""
        missing = sorted(name for name in report["missing_keys"] if name.startswith(backbone))
        without_place = sorted(
            name
            for name in report["unexpected_keys"]
            if name.removeprefix(prefix).startswith(("embeddings", "encoder."))
        )
        if missing:
            raise ValueError(f"{source} has no weight for {_some(missing)}: {_not_whole(self)}")
        if report["mismatched_keys"]:
            name, found, expected = min(report["mismatched_keys"])
            raise ValueError(
                f"{source} holds {name} of shape {tuple(found)} where the config asks for {tuple(expected)}: "
                "correct the config, or pass ignore_mismatched_sizes=True to start such weights afresh"
            )
        if without_place:
            raise ValueError(f"{source} holds {_some(without_place)}, which the config has no place for")


def _not_whole(model: PreTrainedModel) -> str:
    return f"a {type(model).__name__} without it would answer at random (output_loading_info=True loads it regardless)"


def _some(names: list[str]) -> str:
    """The first of the names, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def refuse_unbuilt(config: RoFormerConfig) -> None:
    """Raises a ValueError for a config that asks for what these models would otherwise ignore in silence."""
    asked_for = {
        'norm_type="rms_norm" (RoFormer-V2)': config.norm_type != "layer_norm",
        "use_bias=False (RoFormer-V2)": not config.use_bias,
        "is_decoder=True": config.is_decoder,
        "add_cross_attention=True": config.add_cross_attention,
        "prefix_lm=True": config.prefix_lm,
        "add_pooling_layer=True": config.add_pooling_layer,
        "rope_parameters": bool(getattr(config, "rope_parameters", None)),
    }
    for feature, is_asked_for in asked_for.items():
        if is_asked_for:
            raise ValueError(
                f"the config asks for {feature}, which this version of modeling_roformer does not compute yet; "
                "nothing was loaded, since ignoring it would give wrong answers"
            )


class RoFormerModel(RoFormerPreTrainedModel):
    """The bare encoder: token ids in, hidden states out.

    ```python
    >>> from modeling_roformer import RoFormerConfig, RoFormerModel
    >>> model = RoFormerModel(RoFormerConfig(num_hidden_layers=2))
    >>> model(torch.tensor([[2, 45, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 768])
    ```
    """

    def __init__(self, config: RoFormerConfig):
        super().__init__(config)
        self.embeddings = RoFormerEmbeddings(config)
        if config.embedding_size != config.hidden_size:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = RoFormerEncoder(config)
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
        position_ids: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Encodes token ids, or embeddings in their place.

        Args:
            input_ids: shape (b, s).
            attention_mask: shape (b, s), 0 for padding; or (b, 1, s, s), boolean or added to the scores.
            token_type_ids: segments, shape (b, s); all 0 where None.
            inputs_embeds: shape (b, s, embedding_size), instead of `input_ids`.
            position_ids: integers, shape (b, s) or (1, s); 0, 1, 2, … where None. Only their differences matter
                (equation 16), unless `rotary_value` is set.
            output_attentions: return the attention probabilities, one tensor of shape (b, h, s, s) a layer. That
                call is computed eagerly, whatever the attention implementation.
            use_cache: accepted, as everywhere; an encoder has none.
            output_hidden_states: return the embeddings and every layer's output, each of shape (b, s, hidden_size).

        Returns:
            `last_hidden_state` of shape (b, s, hidden_size), `hidden_states` and `attentions`.

        Raises:
            ValueError: where both or neither of `input_ids` and `inputs_embeds` are given, where a mask or positions
                have another shape, or where the attention implementation cannot compute the call.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds, and not both")
        if input_ids is not None:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)

        hidden_states = self.embeddings(input_ids, token_type_ids, inputs_embeds)
        if hasattr(self, "embeddings_project"):
            hidden_states = self.embeddings_project(hidden_states)

        b, s = hidden_states.shape[:2]
        if position_ids is None:
            position_ids = torch.arange(s, device=hidden_states.device)[None]
        elif position_ids.ndim != 2 or position_ids.shape[0] not in (1, b) or position_ids.shape[1] != s:
            raise ValueError(
                f"position_ids has shape {tuple(position_ids.shape)}, but the input needs ({b}, {s}) or (1, {s})"
            )

        if output_attentions is None:
            output_attentions = self.config.output_attentions
        implementation = implementation_for(self.config, output_attentions)
        check_implementation(self.config, implementation, hidden_states, self.training)
        hidden_states = self.encoder(
            hidden_states,
            encoder_mask(self.config, implementation, hidden_states, attention_mask),
            rotary_position_embeddings(position_ids, self.config.head_dim),
            output_attentions=output_attentions,
            **kwargs,
        )
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states)
