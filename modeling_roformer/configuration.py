"""Configuration of RoFormer models."""

from difflib import get_close_matches
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .model_types import MODEL_TYPE, MODEL_TYPES, saved_model_type
from .rope_parameters import PAPER_ROPE, ROPE_FIELDS, check_rope, complete_rope, is_paper_rope, rope_of

NORM_TYPES = ("layer_norm", "rms_norm")
ATTENTION_TYPES = ("softmax", "linear")
FEATURE_MAPS = ("elu", "softmax", "cosine", "favor")
POSITION_ENCODINGS = ("rotary", "learned", "sinusoidal", "none")
# Scorers of triplet matching, and the losses of each, its default first.
TRIPLET_LOSSES = {"cross": ("binary_cross_entropy", "softmax"), "bi": ("softmax", "margin")}
ACTIVATIONS = ("activation_function", "hidden_act", "pooler_activation", "classifier_activation", "summary_activation")


def check_sizes(config: PreTrainedConfig, why_even: str) -> None:
    """Raises a ValueError that names the field where a config's sizes describe no model whose heads have even width."""
    for name in ("vocab_size", "embedding_size", "hidden_size", "num_attention_heads", "intermediate_size"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}, but must be at least 1")
    if config.hidden_size % config.num_attention_heads:
        raise ValueError(
            f"hidden_size ({config.hidden_size}) is not a multiple of num_attention_heads ({config.num_attention_heads})"
        )
    if config.head_dim % 2:
        raise ValueError(f"hidden_size / num_attention_heads is {config.head_dim}, an odd number, but {why_even}")


def check_activations(config: PreTrainedConfig) -> None:
    """Raise a ValueError that names the first field whose activation transformers does not have."""
    from transformers.activations import ACT2FN  # needs torch

    for field in ACTIVATIONS:
        name = getattr(config, field, None)
        if name is not None and name not in ACT2FN:
            close = get_close_matches(name, ACT2FN, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(sorted(ACT2FN))}"
            raise ValueError(f"{field} is {name!r}, which is not an activation of transformers: {hint}")


@strict
class RoFormerConfig(PreTrainedConfig):
    r"""Configuration of a RoFormer (arXiv:2104.09864).

    Fields and defaults are those of transformers' `RoFormerConfig`; `norm_type`, `use_bias`, `pooler_activation` and
    `add_pooling_layer` are those of the `roformer` package 0.4.3; the rest is this package's own. Every checkpoint of
    either loads unchanged. The defaults describe
    [junnyu/roformer_chinese_base](https://huggingface.co/junnyu/roformer_chinese_base).

    Args:
        vocab_size: number of entries in the vocabulary.
        embedding_size: width of the embeddings; `hidden_size` where None. Another width adds a projection
            (`embeddings_project`), as ALBERT has.
        hidden_size: width of the hidden states, a multiple of `num_attention_heads`.
        num_hidden_layers: number of transformer layers.
        num_attention_heads: heads a layer; `hidden_size / num_attention_heads` is even, since RoPE turns dimensions
            in pairs.
        intermediate_size: width of the feed-forward layer.
        hidden_act: activation of the feed-forward layer, a name in `transformers.activations.ACT2FN`.
        hidden_dropout_prob: dropout on embeddings and on what each sub-layer adds.
        attention_probs_dropout_prob: dropout on the attention probabilities.
        max_position_embeddings: told to others, and no limit here, since positions are computed, not looked up (but
            for `position_encoding="learned"`). Plain transformers stops at this length.
        type_vocab_size: number of segments (`token_type_ids`).
        initializer_range: standard deviation of fresh weights.
        layer_norm_eps: epsilon of the layer norms.
        rotary_value: rotate the values too, not only queries and keys.
        use_cache: return the key-value cache, where the model is a decoder.
        is_decoder: causal attention.
        add_cross_attention: cross-attention in each layer of a decoder.
        tie_word_embeddings: the MLM head's decoder shares the word embeddings.
        norm_type: `"layer_norm"`, or `"rms_norm"` for RoFormer-V2.
        use_bias: biases in attention and feed-forward layers; False for RoFormer-V2.
        add_pooling_layer: a pooler over the first token, as RoFormer-Sim has.
        pooler_activation: activation of that pooler, a name in `ACT2FN` ("linear" for RoFormer-Sim); it has no
            default, since a wrong one answers wrongly.
        prefix_lm: UniLM's mask (arXiv:1905.03197): tokens of segment 0 see each other, tokens of segment 1 all
            before them.
        position_encoding: how the model knows where a token stands: `"rotary"`, as a RoFormer does, or, for baselines
            that are equal in all else, `"learned"`: BERT's table of `max_position_embeddings` vectors, added to the
            input embeddings, which no text may exceed; `"sinusoidal"`: those of equation 4, added in the same place, at
            any length; or `"none"`. The fields of RoPE are for `"rotary"` alone.
        attention_type: `"softmax"`, or `"linear"`: equation 19, whose cost grows with a text's length and not with its
            square. There is no dropout on attention probabilities then, since there are none. Cross-attention stays
            softmax.
        linear_feature_map: of linear attention (see linear_feature_maps.py): `"elu"`, `"softmax"`, `"cosine"`, or `"favor"`,
            Performer's random features.
        linear_num_features: how many random features a head of "favor" has, an even number.
        linear_rotation: where "favor" has its positions: `"after"` the map, as in equation 19, or `"before"` it, which
            approximates softmax attention with RoPE.
        linear_redraw_interval: number of training steps, which are calls of a model in training with gradients, after
            which "favor" draws other features, once the weights have changed; None for never. A compiled model does not
            count, and draws none.
        linear_seed: what the features of "favor" are drawn from; they are saved with the weights.
        rope_parameters: longer texts than were trained on: a dict with `rope_type` ("default", "linear", "dynamic" or
            "yarn"), `rope_theta`, `factor` and, for "dynamic" and "yarn", `original_max_position_embeddings`, the
            trained length. None is the paper's RoPE, and is read back as the dict for it, which every tool expects.
        trainable_rope: the frequencies are parameters, which start where the formula has them.
        sparse_prediction: in training, the MLM head computes logits only where there are labels.
        unpad_inputs: leave the padding of mixed batches out of the computation; its `last_hidden_state` is then 0. Not
            done, and not missed but for the time, where a text starts with padding, with a key-value cache, `prefix_lm`
            or flex attention, in compiled and exported models, where layers' own outputs are asked for, in question
            answering, and where labels lie on padding, which is then read.
        classifier_layers: layers of the classification head over the first token: 2 as transformers has them, or 1,
            without the hidden one, as bert4keras' scripts have it.
        classifier_activation: activation between the two, a name in `ACT2FN`; `hidden_act` where None.
        triplet_scorer: how triplet matching compares A with B and C: `"cross"` reads the pairs (A, B) and (A, C), as
            in the paper; `"bi"` encodes each text apart.
        triplet_loss: `"binary_cross_entropy"` on each pair (default of "cross", the paper's script),
            `"softmax"` over the two (default of "bi"), or `"margin"` ("bi" only).
        triplet_temperature: what the cosines of "bi" are divided by (0.05 as in arXiv:2104.08821).
        triplet_margin: how far the cosines of the loss "margin" are to be apart.

    Raises:
        ValueError: naming the field that describes no model.

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
    norm_type: str = "layer_norm"
    use_bias: bool = True
    add_pooling_layer: bool = False
    pooler_activation: str | None = None
    prefix_lm: bool = False
    position_encoding: str = "rotary"
    attention_type: str = "softmax"
    linear_feature_map: str = "elu"
    linear_num_features: int = 256
    linear_rotation: str = "after"
    linear_redraw_interval: int | None = 1000
    linear_seed: int = 0
    rope_parameters: dict | None = None
    trainable_rope: bool = False
    sparse_prediction: bool = False
    unpad_inputs: bool = False
    classifier_layers: int = 2
    classifier_activation: str | None = None
    triplet_scorer: str = "cross"
    triplet_loss: str | None = None
    triplet_temperature: float | int = 0.05
    triplet_margin: float | int = 0.2

    # Pipelines that the installed package brings; a copy of this file beside a checkpoint has none.
    installed_pipelines: ClassVar[set[str]] = set()

    def __post_init__(self, **kwargs):
        # The name on disk follows from the fields (see `to_dict`); what a file says of it is not kept.
        kwargs.pop("model_type", None)
        # Code beside a checkpoint is not asked for where the package has the pipeline itself.
        custom_pipelines = kwargs.pop("custom_pipelines", None) or {}
        if custom_pipelines := {
            task: info for task, info in custom_pipelines.items() if task not in self.installed_pipelines
        }:
            kwargs["custom_pipelines"] = custom_pipelines
        self.embedding_size = self.hidden_size if self.embedding_size is None else self.embedding_size
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Raises a ValueError that names the field where the sizes describe no model."""
        check_sizes(self, "rotary position embedding turns dimensions in pairs")
        if self.norm_type not in NORM_TYPES:
            raise ValueError(f"norm_type is {self.norm_type!r}, but must be one of {', '.join(NORM_TYPES)}")
        if self.add_pooling_layer and self.pooler_activation is None:
            raise ValueError(
                "add_pooling_layer=True needs pooler_activation, which the checkpoint does not name: "
                'pass "linear" for RoFormer-Sim, "tanh" for a pooler like BERT\'s'
            )
        if self.add_cross_attention and not self.is_decoder:
            raise ValueError("add_cross_attention=True needs is_decoder=True")
        if self.classifier_layers not in (1, 2):
            raise ValueError(f"classifier_layers is {self.classifier_layers}, but must be 1 or 2")
        check_rope(self.rope_parameters)
        self.check_position_encoding()
        self.check_linear_attention()
        self.check_triplets()

    def check_position_encoding(self) -> None:
        """Raises a ValueError where `position_encoding` is unknown, or does not go with another field."""
        encoding = self.position_encoding
        if encoding not in POSITION_ENCODINGS:
            raise ValueError(f"position_encoding is {encoding!r}, but must be one of {', '.join(POSITION_ENCODINGS)}")
        if encoding == "learned" and self.max_position_embeddings < 1:
            raise ValueError(f"max_position_embeddings is {self.max_position_embeddings}, but must be at least 1")
        if encoding == "sinusoidal" and self.embedding_size % 2:
            raise ValueError(
                f"embedding_size is {self.embedding_size}, an odd number, but sinusoidal positions are pairs of a sine "
                "and a cosine"
            )
        if encoding != "rotary":
            rotary_fields = {
                "rotary_value=True": self.rotary_value,
                "trainable_rope=True": self.trainable_rope,
                f"rope_parameters={self.rope_parameters}": not is_paper_rope(self.rope_parameters),
            }
            if given := [field for field, is_set in rotary_fields.items() if is_set]:
                raise ValueError(
                    f'{given[0]} does not go with position_encoding="{encoding}", which rotates nothing: leave it out, or '
                    'use position_encoding="rotary"'
                )

    def check_linear_attention(self) -> None:
        """Raises a ValueError that names what is wrong in the fields of linear attention."""
        for name, choices in {
            "attention_type": ATTENTION_TYPES,
            "linear_feature_map": FEATURE_MAPS,
            "linear_rotation": ("after", "before"),
        }.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be one of {', '.join(choices)}")
        m, interval = self.linear_num_features, self.linear_redraw_interval
        if m < 2 or m % 2:
            raise ValueError(
                f"linear_num_features is {m}, but must be an even number of at least 2: features are rotated in pairs"
            )
        if interval is not None and interval < 1:
            raise ValueError(f"linear_redraw_interval is {interval}, but must be at least 1, or None for never")
        if self.attention_type != "linear":
            return
        if self.linear_rotation == "before" and self.linear_feature_map != "favor":
            raise ValueError(
                f'linear_rotation="before" is for linear_feature_map="favor", not "{self.linear_feature_map}", whose features '
                "are rotated: leave it out"
            )
        if (self.rope_parameters or {}).get("rope_type") == "yarn" and self.rope_parameters.get(
            "attention_factor"
        ) != 1:
            raise ValueError(
                'rope_type "yarn" scales the scores of softmax attention, which attention_type="linear" has none of: set '
                "attention_factor to 1.0 in rope_parameters, or take another rope_type"
            )
        if self.trainable_rope and self.rotary_value and self.rotary_dim != self.head_dim:
            raise ValueError(
                "trainable_rope=True has one frequency for each pair of features, and rotary_value=True needs as many as "
                "values have pairs: leave one of them out"
            )

    def check_triplets(self) -> None:
        """Raises a ValueError that names what is wrong in the fields of triplet matching."""
        if self.triplet_scorer not in TRIPLET_LOSSES:
            raise ValueError(
                f"triplet_scorer is {self.triplet_scorer!r}, but must be one of {', '.join(TRIPLET_LOSSES)}"
            )
        losses = TRIPLET_LOSSES[self.triplet_scorer]
        if self.triplet_loss is not None and self.triplet_loss not in losses:
            raise ValueError(
                f"triplet_loss is {self.triplet_loss!r}, but with triplet_scorer={self.triplet_scorer!r} it must be "
                f"one of {', '.join(losses)}"
            )
        for name in ("triplet_temperature", "triplet_margin"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be greater than 0")

    def convert_rope_params_to_dict(self, **kwargs) -> dict[str, Any]:
        """Takes `rope_scaling` and `rope_theta`, as older configs have them, into `rope_parameters`.

        Called by transformers; its own would fill a missing trained length in from `max_position_embeddings`, which is
        only told to others here.
        """
        older = {name: kwargs.pop(name, None) for name in ROPE_FIELDS[1:]}
        self.rope_parameters = rope_of({"rope_parameters": self.rope_parameters, **older})
        return kwargs

    def __setattr__(self, name: str, value: Any) -> None:
        # The first assignment is the constructor's, which may have been given more under older names.
        if name == "rope_parameters" and name in self.__dict__:
            value = complete_rope(value)
        super().__setattr__(name, value)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """As in transformers, but RoPE's fields go to the constructor all together, under their older names too."""
        given = {name: kwargs.pop(name) for name in ROPE_FIELDS if name in kwargs}
        if given:
            read = {name: config_dict[name] for name in ROPE_FIELDS if name in config_dict}
            if list(given) == ["rope_theta"]:
                given = {
                    "rope_parameters": {**(read.get("rope_parameters") or read.get("rope_scaling") or {}), **given}
                }
            config_dict = {name: value for name, value in config_dict.items() if name not in read} | given
        return super().from_dict(config_dict, **kwargs)

    def standardize_rope_params(self) -> None:
        """Nothing left to do: see `convert_rope_params_to_dict`."""

    def validate_rope(self) -> None:
        """See `check_rope`."""

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def rotary_dim(self) -> int:
        """How many dimensions are rotated: those of a head, or the random features that stand for them."""
        rotates_features = self.attention_type == "linear" and self.linear_feature_map == "favor"
        return self.linear_num_features if rotates_features and self.linear_rotation == "after" else self.head_dim

    @property
    def output_attentions(self) -> bool | None:
        """Whether models return the attention matrices; allowed under any attention implementation."""
        return self._output_attentions

    @output_attentions.setter
    def output_attentions(self, value: bool | None) -> None:
        # transformers refuses this next to any implementation but eager; here a call that wants the matrices is
        # computed eagerly (see attention.py), so both may be asked for.
        self._output_attentions = value

    def validate_output_attentions(self) -> None:
        """Nothing to refuse: see `output_attentions`."""

    def saved_model_type(self) -> str:
        """The model_type that this configuration is written under, by what plain transformers would make of it."""
        return saved_model_type(vars(self))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data, `model_type` being `saved_model_type()`, and None for the paper's RoPE."""
        fields = {**super().to_dict(), "model_type": self.saved_model_type()}
        if fields["rope_parameters"] == PAPER_ROPE:
            fields["rope_parameters"] = None
        return fields

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs) -> tuple[dict[str, Any], dict[str, Any]]:
        """As in transformers; all three names on disk are this class's own, so none calls for a warning."""
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if config_dict.get("model_type") in MODEL_TYPES:
            config_dict["model_type"] = cls.model_type
        return config_dict, kwargs
