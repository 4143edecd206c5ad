"""Configuration of RoFormer for sequence to sequence."""

import copy
from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .model_types import MODEL_TYPE_SEQ2SEQ
from .rope_parameters import ROPE_FIELDS

SIZES = (
    "vocab_size",
    "d_model",
    "encoder_layers",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_layers",
    "decoder_attention_heads",
    "decoder_ffn_dim",
)
# Fields of a MarianConfig that this model has in one way only, and what they say of it.
ONE_WAY = {
    "activation_dropout": 0,
    "encoder_layerdrop": 0,
    "decoder_layerdrop": 0,
    "share_encoder_decoder_embeddings": True,
}


@strict
class RoFormerSeq2SeqConfig(PreTrainedConfig):
    r"""Configuration of a RoFormer for sequence to sequence (section 4.1 of arXiv:2104.09864).

    Fields are named as those of transformers' `MarianConfig`; `position_encoding`, `layer_norm_eps`, `unpad_inputs` and
    `sparse_prediction` are this package's own. The defaults describe the transformer that Table 1 of the paper compares
    with, the base one of arXiv:1706.03762, and the special tokens of fairseq, in which both were trained.

    Args:
        vocab_size: number of entries in the vocabulary, which both languages share.
        d_model: width of the hidden states, a multiple of both numbers of heads.
        encoder_layers, decoder_layers: number of transformer layers.
        encoder_attention_heads, decoder_attention_heads: heads a layer; `d_model` divided by them is even, since RoPE
            turns dimensions in pairs.
        encoder_ffn_dim, decoder_ffn_dim: width of the feed-forward layers.
        activation_function: activation of the feed-forward layers, a name in `transformers.activations.ACT2FN`.
        dropout: dropout on embeddings and on what each sub-layer adds.
        attention_dropout: dropout on the attention probabilities.
        max_position_embeddings: told to others, and no limit here, since positions are computed, not looked up.
        init_std: standard deviation of fresh weights.
        layer_norm_eps: epsilon of the layer norms.
        scale_embedding: multiply embeddings by √d_model.
        position_encoding: how the model knows where a token stands: `"rotary"`, in the self-attention of encoder and
            decoder; or for a baseline that is equal in all else, `"sinusoidal"`: vectors added to the embeddings, all sines
            before all cosines, as Marian has them.
        use_cache: return the key-value cache.
        tie_word_embeddings: the output layer shares the embeddings, as encoder and decoder do in any case.
        unpad_inputs: leave the padding of mixed batches out of the computation (see `RoFormerConfig`), and of a target what
            follows its last label.
        sparse_prediction: in training, logits are computed only where there are labels.
        pad_token_id: what labels of -100 are replaced by, where the decoder reads them.
        bos_token_id, eos_token_id: first token of a text, and last.
        decoder_start_token_id: what the decoder reads first.

    Raises:
        ValueError: naming the field that describes no model.

    ```python
    >>> from modeling_roformer import RoFormerSeq2SeqConfig
    >>> RoFormerSeq2SeqConfig(vocab_size=8000, d_model=256, encoder_attention_heads=4).head_dim
    64
    ```
    """

    model_type = MODEL_TYPE_SEQ2SEQ
    keys_to_ignore_at_inference = ["past_key_values"]
    # The names under which the modules that are shared with RoFormer ask.
    attribute_map = {
        "hidden_size": "d_model",
        "embedding_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_dim",
        "hidden_act": "activation_function",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "initializer_range": "init_std",
    }

    vocab_size: int = 37000
    d_model: int = 512
    encoder_layers: int = 6
    encoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_layers: int = 6
    decoder_attention_heads: int = 8
    decoder_ffn_dim: int = 2048
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    max_position_embeddings: int = 1024
    init_std: float = 0.02
    layer_norm_eps: float = 1e-5
    scale_embedding: bool = True
    position_encoding: str = "rotary"
    use_cache: bool = True
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    unpad_inputs: bool = False
    sparse_prediction: bool = False
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2

    # What else those modules ask, and this model has in one way only.
    norm_type: ClassVar[str] = "layer_norm"
    use_bias: ClassVar[bool] = True
    add_pooling_layer: ClassVar[bool] = False
    pooler_activation: ClassVar[str | None] = None
    rotary_value: ClassVar[bool] = False
    prefix_lm: ClassVar[bool] = False
    attention_type: ClassVar[str] = "softmax"
    trainable_rope: ClassVar[bool] = False
    type_vocab_size: ClassVar[int] = 1
    is_decoder: ClassVar[bool] = False  # True in what `decoder_config` gives
    add_cross_attention: ClassVar[bool] = False

    # Pipelines that the installed package brings; a copy of this file beside a checkpoint has none.
    installed_pipelines: ClassVar[set[str]] = set()

    def __post_init__(self, **kwargs):
        for name, value in {**ONE_WAY, "decoder_vocab_size": self.vocab_size, "attention_type": "softmax"}.items():
            if (given := kwargs.pop(name, None)) not in (None, value):
                raise ValueError(
                    f"{name} is {given!r}, but a RoFormer for sequence to sequence is made for {value!r} alone"
                )
        if given := [name for name in ROPE_FIELDS if kwargs.pop(name, None)]:
            raise ValueError(f"{given[0]} is a field of RoFormerConfig: positions here are those of the paper")
        for name in ("is_decoder", "add_cross_attention"):
            kwargs.pop(name, None)  # a MarianConfig says so
        # Code beside a checkpoint is not asked for where the package has the pipeline itself.
        custom_pipelines = kwargs.pop("custom_pipelines", None) or {}
        if custom_pipelines := {
            task: info for task, info in custom_pipelines.items() if task not in self.installed_pipelines
        }:
            kwargs["custom_pipelines"] = custom_pipelines
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Raises a ValueError that names the field where the sizes describe no model."""
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.position_encoding not in ("rotary", "sinusoidal"):
            raise ValueError(f"position_encoding is {self.position_encoding!r}, but must be one of rotary, sinusoidal")
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            heads = getattr(self, name)
            if self.d_model % heads:
                raise ValueError(f"d_model ({self.d_model}) is not a multiple of {name} ({heads})")
            if self.position_encoding == "rotary" and self.d_model // heads % 2:
                raise ValueError(
                    f"d_model / {name} is {self.d_model // heads}, an odd number, but rotary position embedding turns "
                    "dimensions in pairs"
                )
        if self.d_model % 2:
            raise ValueError(
                f"d_model is {self.d_model}, an odd number, but sinusoidal positions are pairs of a sine and a cosine"
            )

    def decoder_config(self) -> "RoFormerSeq2SeqConfig":
        """A configuration for the decoder alone: what the shared modules ask is answered from the decoder's fields."""
        config = copy.deepcopy(self)
        config.is_encoder_decoder, config.is_decoder, config.add_cross_attention = False, True, True
        config.encoder_layers = self.decoder_layers
        config.encoder_attention_heads = self.decoder_attention_heads
        config.encoder_ffn_dim = self.decoder_ffn_dim
        return config

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.encoder_attention_heads

    @property
    def rotary_dim(self) -> int:
        """How many dimensions are rotated: those of a head."""
        return self.head_dim

    @property
    def output_attentions(self) -> bool | None:
        """Whether models return the attention matrices; allowed under any attention implementation."""
        return self._output_attentions

    @output_attentions.setter
    def output_attentions(self, value: bool | None) -> None:
        self._output_attentions = value  # see `RoFormerConfig`

    def validate_output_attentions(self) -> None:
        """Nothing to refuse: see `output_attentions`."""
