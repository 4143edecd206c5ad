"""Configuration of RoFormer models."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .saved_fields import (
    MODEL_TYPE,
    MODEL_TYPES,
    PAPER_ROPE,
    ROPE_FIELDS,
    checked_rope,
    is_paper_rope,
    read_rope,
    saved_model_type,
)

# Scorers of triplet matching and their losses; the first one is the default.
TRIPLET_LOSSES = {"cross": ("binary_cross_entropy", "softmax"), "bi": ("softmax", "margin")}
ACTIVATIONS = ("activation_function", "hidden_act", "pooler_activation", "classifier_activation", "summary_activation")


class ConfigurationMixin:
    """Members that the configurations of this package share."""

    if TYPE_CHECKING:
        hidden_size: int
        num_attention_heads: int
        num_labels: int
        _attn_implementation: str  # of a model's config

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def output_attentions(self) -> bool | None:
        """Default of `forward`'s argument of this name; allowed under any attention implementation."""
        return self._output_attentions

    @output_attentions.setter
    def output_attentions(self, value: bool | None) -> None:
        # transformers refuses this unless attention is eager. Here attention.py computes such a call eagerly, so both
        # are allowed together.
        self._output_attentions = value

    def validate_output_attentions(self) -> None:
        """Allow every value: see `output_attentions`."""


def check_pad_token(config: PreTrainedConfig) -> None:
    """Raise a ValueError unless the padding token is None or in the vocabulary, as its embedding must be."""
    if config.pad_token_id is not None and not 0 <= config.pad_token_id < config.vocab_size:
        raise ValueError(
            f"pad_token_id is {config.pad_token_id}, but must be None or an id of the {config.vocab_size} in the "
            "vocabulary (vocab_size)"
        )


def check_sizes(config: PreTrainedConfig, why_even: str) -> None:
    """Raise a ValueError if the padding token is not in the vocabulary, or the width of heads is not an even number."""
    check_pad_token(config)
    if config.hidden_size % (2 * config.num_attention_heads):
        raise ValueError(
            f"hidden_size ({config.hidden_size}) must be an even multiple of num_attention_heads "
            f"({config.num_attention_heads}): {why_even}"
        )


@strict
class RoFormerConfig(ConfigurationMixin, PreTrainedConfig):
    r"""Configuration of a RoFormer (arXiv:2104.09864).

    Fields and defaults are those of transformers' `RoFormerConfig`; `norm_type`, `use_bias`, `pooler_activation` and
    `add_pooling_layer` are those of the `roformer` package 0.4.3; the rest is this package's own. Every checkpoint of
    either loads unchanged. The defaults describe
    [junnyu/roformer_chinese_base](https://huggingface.co/junnyu/roformer_chinese_base).

    Args:
        vocab_size: number of entries in the vocabulary.
        embedding_size: width of the embeddings; `hidden_size` if None. Another width adds a projection
            (`embeddings_project`), as ALBERT has.
        hidden_size: width of the hidden states, a multiple of `num_attention_heads`.
        num_hidden_layers: number of transformer layers.
        num_attention_heads: heads per layer; `hidden_size / num_attention_heads` is even, since RoPE rotates pairs of
            dimensions.
        intermediate_size: width of the feed-forward layer.
        hidden_act: activation of the feed-forward layer, a name in `transformers.activations.ACT2FN`.
        hidden_dropout_prob: dropout probability of the embeddings and of each sub-layer's output.
        attention_probs_dropout_prob: dropout probability of the attention probabilities.
        max_position_embeddings: written for other software; this model has no length limit, since positions are
            computed (except with `position_encoding="learned"`). Plain transformers stops at this length.
        type_vocab_size: number of segments (`token_type_ids`).
        initializer_range: standard deviation of newly initialised weights.
        layer_norm_eps: epsilon of the layer norms.
        rotary_value: rotate the values too, not only queries and keys.
        use_cache: return the key-value cache if the model is a decoder.
        is_decoder: causal attention.
        add_cross_attention: cross-attention in each layer of a decoder.
        tie_word_embeddings: tie the weights of the MLM head's decoder to the word embeddings.
        norm_type: `"layer_norm"`, or `"rms_norm"` for RoFormer-V2.
        use_bias: biases in attention and feed-forward layers; False for RoFormer-V2.
        add_pooling_layer: a pooler over the first token, as RoFormer-Sim has.
        pooler_activation: activation of that pooler, a name in `ACT2FN` ("linear" for RoFormer-Sim). It has no default,
            since checkpoints differ and a wrong one gives wrong results.
        prefix_lm: UniLM's mask (arXiv:1905.03197): tokens of segment 0 see each other, tokens of segment 1 see all
            tokens before them. For softmax attention alone.
        position_encoding: `"rotary"`, or a baseline: `"learned"` adds BERT's table of `max_position_embeddings` vectors
            to the input embeddings, and limits the length of texts; `"sinusoidal"` adds the vectors of equation 4, at
            any length; `"none"` has no positions. The fields of RoPE are for `"rotary"` alone.
        sinusoidal_scale: factor of the vectors of equation 4. Beside word vectors of standard deviation
            `initializer_range`, that number gives words their share in arXiv:1706.03762, two thirds of the variance;
            1 leaves them less than 1 %.
        attention_type: `"softmax"`, or `"linear"`: equation 19, whose cost is linear in the length of a text. Linear
            attention has no dropout on attention probabilities. Cross-attention is always softmax.
        linear_feature_map: feature map of linear attention (see linear_feature_maps.py): `"elu"`, `"softmax"`,
            `"cosine"`, or `"favor"`, Performer's random features.
        linear_num_features: number of random features of "favor" per head, an even number.
        linear_rotation: for "favor", rotate `"after"` the map, as in equation 19, or `"before"` it, which approximates
            softmax attention with RoPE.
        linear_redraw_interval: number of training steps (calls in training mode with gradients) after which "favor"
            draws new features, once the weights have changed; None for never. Compiled models neither count nor redraw.
        linear_seed: seed of the random features of "favor"; the features are saved with the weights.
        rope_parameters: settings for texts longer than in training: a dict with `rope_type` ("default", "linear",
            "dynamic" or "yarn"), `rope_theta`, `factor` and, for "dynamic" and "yarn",
            `original_max_position_embeddings`, the trained length. None sets the paper's dict.
        trainable_rope: train the frequencies, from those of `rope_parameters` on (see rotary.py). Loading keeps
            trained ones whatever `rope_parameters` are passed; set on `model.config` afterwards, these scale them.
        sparse_prediction: in training, the MLM head computes logits only where there are labels.
        unpad_inputs: leave padding out of the computation where every text begins with a token and that is faster: if
            there is much of it, on a CPU, and on a GPU in half precision without attention dropout; and with flash
            attention. Hidden states of padding are then 0, and otherwise as computed. Padding is computed where it has
            labels, in question answering, with a key-value cache, `prefix_lm` or flex attention, in compiled and
            exported models, and when layers' outputs are requested. False computes it always.
        classifier_layers: layers of the classification head over the first token: 2 as in transformers, or 1, without
            the hidden layer, as in bert4keras' scripts.
        classifier_activation: activation of the hidden layer of that head, a name in `ACT2FN`; `hidden_act` if None.
        triplet_scorer: how triplet matching compares A with B and C: `"cross"` reads the pairs (A, B) and (A, C), as
            in the paper; `"bi"` encodes each text separately.
        triplet_loss: `"binary_cross_entropy"` on each pair (default of "cross", the paper's script),
            `"softmax"` over the two (default of "bi"), or `"margin"` ("bi" only).
        triplet_temperature: divisor of the cosines of "bi" (0.05 as in arXiv:2104.08821).
        triplet_margin: difference that the loss "margin" requires between the two cosines.

    Raises:
        ValueError: a field contradicts another.
        StrictDataclassError (of huggingface_hub): a field has a value of another type, or none of its choices.

    ```python
    >>> from modeling_roformer import RoFormerConfig
    >>> RoFormerConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6).head_dim
    64
    ```
    """

    model_type = MODEL_TYPE

    vocab_size: int = 50000
    embedding_size: int | None = None
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 1536
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    rotary_value: bool = False
    use_cache: bool = True
    is_decoder: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True
    norm_type: Literal["layer_norm", "rms_norm"] = "layer_norm"
    use_bias: bool = True
    add_pooling_layer: bool = False
    pooler_activation: str | None = None
    prefix_lm: bool = False
    position_encoding: Literal["rotary", "learned", "sinusoidal", "none"] = "rotary"
    sinusoidal_scale: float | int = 1.0
    attention_type: Literal["softmax", "linear"] = "softmax"
    linear_feature_map: Literal["elu", "softmax", "cosine", "favor"] = "elu"
    linear_num_features: int = 256
    linear_rotation: Literal["after", "before"] = "after"
    linear_redraw_interval: int | None = 1000
    linear_seed: int = 0
    rope_parameters: dict | None = None
    trainable_rope: bool = False
    sparse_prediction: bool = False
    unpad_inputs: bool | None = True
    classifier_layers: Literal[1, 2] = 2
    classifier_activation: str | None = None
    triplet_scorer: Literal["cross", "bi"] = "cross"
    triplet_loss: str | None = None
    triplet_temperature: float | int = 0.05
    triplet_margin: float | int = 0.2

    # Tasks whose `custom_pipelines` are ignored, because the installed package has them; empty in a copy of this file
    # beside a checkpoint.
    installed_pipelines: ClassVar[set[str]] = set()

    def __post_init__(self, **kwargs):
        kwargs.pop("model_type", None)  # `to_dict` writes the one that follows from the fields
        custom_pipelines = kwargs.pop("custom_pipelines", None) or {}
        if kept := {task: info for task, info in custom_pipelines.items() if task not in self.installed_pipelines}:
            kwargs["custom_pipelines"] = kept
        self.embedding_size = self.hidden_size if self.embedding_size is None else self.embedding_size
        self.unpad_inputs = self.unpad_inputs is not False
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Raise a ValueError that names the first field which contradicts another."""
        check_sizes(self, "rotary position embedding rotates pairs of dimensions")
        if self.add_pooling_layer and self.pooler_activation is None:
            raise ValueError(
                "add_pooling_layer=True needs pooler_activation, which the config does not have: "
                'pass "linear" for RoFormer-Sim, "tanh" for a pooler like BERT\'s'
            )
        if self.add_cross_attention and not self.is_decoder:
            raise ValueError("add_cross_attention=True needs is_decoder=True")
        self.check_rope(checked_rope(self.rope_parameters))
        self.check_linear_attention()
        losses = TRIPLET_LOSSES[self.triplet_scorer]
        if self.triplet_loss not in (None, *losses):
            raise ValueError(
                f"triplet_loss is {self.triplet_loss!r}, but with triplet_scorer={self.triplet_scorer!r} it must be "
                f"one of {', '.join(losses)}"
            )

    def check_rope(self, rope: dict[str, Any]) -> None:
        """Raise a ValueError if a field of RoPE, such as complete `rope_parameters`, contradicts another field."""
        has_fields = self.rotary_value or self.trainable_rope or not is_paper_rope(rope)
        if self.position_encoding != "rotary" and has_fields:
            raise ValueError(
                f"position_encoding={self.position_encoding!r} has no rotation: leave out rotary_value, trainable_rope "
                "and rope_parameters"
            )
        if self.attention_type == "linear" and rope["rope_type"] == "yarn" and rope.get("attention_factor") != 1:
            raise ValueError(
                'rope_type "yarn" scales attention scores, which attention_type="linear" does not have: set '
                "attention_factor to 1.0 in rope_parameters, or use another rope_type"
            )

    def check_linear_attention(self) -> None:
        """Raise a ValueError that names a field which linear attention does not compute."""
        if self.attention_type != "linear":
            return
        if self.linear_rotation == "before" and self.linear_feature_map != "favor":
            raise ValueError(
                f'linear_rotation="before" needs linear_feature_map="favor", not {self.linear_feature_map!r}: leave '
                "it out"
            )
        if self.prefix_lm:
            raise ValueError(
                'prefix_lm=True masks pairs of tokens, which attention_type="linear" cannot do: leave one of them out'
            )

    def convert_rope_params_to_dict(self, **kwargs) -> dict[str, Any]:
        """Move `rope_scaling` and `rope_theta` of older configs into `rope_parameters`.

        transformers calls this. Its own version takes a missing trained length from `max_position_embeddings`, which
        has no meaning for this model.
        """
        older = {name: kwargs.pop(name, None) for name in ROPE_FIELDS[1:]}
        self.rope_parameters = read_rope({"rope_parameters": self.rope_parameters, **older})
        return kwargs

    def __setattr__(self, name: str, value: Any) -> None:
        # The constructor makes the first assignment, and may have more values under older names.
        if name in ("rope_parameters", "rope_theta") and "rope_parameters" in self.__dict__:
            old = read_rope({"rope_parameters": self.rope_parameters})
            new = {**old, name: value} if name == "rope_theta" else {"rope_theta": old["rope_theta"], **(value or {})}
            name, value = "rope_parameters", checked_rope(new)
            self.check_rope(value)
        super().__setattr__(name, value)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """Build as in transformers, but pass all fields of RoPE to the constructor together, older names included.

        A checkpoint keeps its `rope_theta` unless that is given.
        """
        given = {name: kwargs.pop(name) for name in ROPE_FIELDS if name in kwargs}
        if given:
            saved = read_rope(config_dict)
            if list(given) == ["rope_theta"]:
                given = {"rope_parameters": {**saved, **given}}
            given.setdefault("rope_theta", saved["rope_theta"])
            config_dict = {name: value for name, value in config_dict.items() if name not in ROPE_FIELDS} | given
        return super().from_dict(config_dict, **kwargs)

    def standardize_rope_params(self) -> None:
        """Do nothing: `convert_rope_params_to_dict` does it."""

    def validate_rope(self) -> None:
        """Do nothing: `checked_rope` does it."""

    @property
    def rotary_dim(self) -> int:
        """Number of rotated dimensions: those of a head, or its random features."""
        rotates_features = self.attention_type == "linear" and self.linear_feature_map == "favor"
        return self.linear_num_features if rotates_features and self.linear_rotation == "after" else self.head_dim

    def saved_model_type(self) -> str:
        """Return the `model_type` to save this configuration under; see saved_fields.py."""
        return saved_model_type(vars(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data, with `saved_model_type()`, and None for the paper's RoPE."""
        fields = {**super().to_dict(), "model_type": self.saved_model_type()}
        if fields["rope_parameters"] == PAPER_ROPE:
            fields["rope_parameters"] = None
        return fields

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read as in transformers, but without its warning: this class has three model types on disk."""
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if config_dict.get("model_type") in MODEL_TYPES:
            config_dict["model_type"] = cls.model_type
        return config_dict, kwargs
