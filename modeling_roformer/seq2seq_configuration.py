"""Configuration of RoFormer for sequence to sequence."""

import copy
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .configuration import ConfigurationMixin, check_pad_token
from .saved_fields import MODEL_TYPE_SEQ2SEQ, ROPE_FIELDS

# Fields of MarianConfig and RoFormerConfig that may only have this value here.
ONLY_VALUES = {
    "activation_dropout": 0,
    "encoder_layerdrop": 0,
    "decoder_layerdrop": 0,
    "share_encoder_decoder_embeddings": True,
    "attention_type": "softmax",
    **dict.fromkeys(ROPE_FIELDS),
}


@strict
class RoFormerSeq2SeqConfig(ConfigurationMixin, PreTrainedConfig):
    r"""Configuration of a RoFormer for sequence to sequence (section 4.1 of arXiv:2104.09864).

    Field names are those of transformers' `MarianConfig`; `position_encoding`, `layer_norm_eps`, `unpad_inputs` and
    `sparse_prediction` are this package's own. The default sizes are those of the baseline in Table 1 of the paper, the
    base transformer of arXiv:1706.03762; the default special tokens are those of fairseq, which trained both.

    Args:
        vocab_size: number of entries in the vocabulary, which both languages share.
        d_model: width of the hidden states, a multiple of both numbers of heads.
        encoder_layers, decoder_layers: number of transformer layers.
        encoder_attention_heads, decoder_attention_heads: heads per layer; `d_model` divided by them is even, since RoPE
            rotates pairs of dimensions.
        encoder_ffn_dim, decoder_ffn_dim: width of the feed-forward layers.
        activation_function: activation of the feed-forward layers, a name in `transformers.activations.ACT2FN`.
        dropout: dropout probability of the embeddings and of each sub-layer's output.
        attention_dropout: dropout probability of the attention probabilities.
        max_position_embeddings: written for other software; this model has no length limit.
        init_std: standard deviation of newly initialised weights.
        layer_norm_eps: epsilon of the layer norms.
        scale_embedding: multiply embeddings by √d_model.
        position_encoding: `"rotary"`, in the self-attention of encoder and decoder; or for a baseline `"sinusoidal"`:
            vectors added to the embeddings, all sines before all cosines, as in Marian.
        use_cache: return the key-value cache.
        tie_word_embeddings: tie the output layer's weights to the embeddings, which encoder and decoder always share.
        unpad_inputs: leave padding, and target tokens after the last label, out of the computation where that is faster
            (see `RoFormerConfig`).
        sparse_prediction: in training, compute logits only where there are labels.
        pad_token_id: replaces labels of -100 in the decoder's input.
        bos_token_id, eos_token_id: first and last token of a text.
        decoder_start_token_id: first token of the decoder's input.

    Raises:
        ValueError: a field contradicts another.
        StrictDataclassError (of huggingface_hub): a field has a value of another type, or none of its choices.

    ```python
    >>> from modeling_roformer import RoFormerSeq2SeqConfig
    >>> RoFormerSeq2SeqConfig(vocab_size=8000, d_model=256, encoder_attention_heads=4).head_dim
    64
    ```
    """

    model_type = MODEL_TYPE_SEQ2SEQ
    keys_to_ignore_at_inference = ["past_key_values", "cache"]
    # Names of these fields in the modules shared with RoFormer.
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
    position_encoding: Literal["rotary", "sinusoidal"] = "rotary"
    use_cache: bool = True
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    unpad_inputs: bool | None = True
    sparse_prediction: bool = False
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2

    # Other fields that those modules read, with the one value that this model has.
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

    def __post_init__(self, **kwargs):
        for name, value in {**ONLY_VALUES, "decoder_vocab_size": self.vocab_size}.items():
            if (given := kwargs.pop(name, None)) not in (None, value):
                raise ValueError(f"{name} is {given!r}, but RoFormerSeq2SeqConfig supports only {value!r}")
        for name in ("is_decoder", "add_cross_attention"):
            kwargs.pop(name, None)  # fields of a MarianConfig
        self.unpad_inputs = self.unpad_inputs is not False
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Raise a ValueError that names the first field which contradicts another."""
        check_pad_token(self)
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            heads = getattr(self, name)
            if self.d_model % (2 * heads if self.position_encoding == "rotary" else heads):
                raise ValueError(
                    f"d_model ({self.d_model}) must be a multiple of {name} ({heads}), and an even one for "
                    'position_encoding="rotary", which rotates pairs of dimensions'
                )

    def decoder_config(self) -> "RoFormerSeq2SeqConfig":
        """Return a configuration for the decoder alone, whose fields the shared modules then read."""
        config: Any = copy.deepcopy(self)
        config.is_encoder_decoder, config.is_decoder, config.add_cross_attention = False, True, True
        config.encoder_layers = self.decoder_layers
        config.encoder_attention_heads = self.decoder_attention_heads
        config.encoder_ffn_dim = self.decoder_ffn_dim
        return config

    @property
    def rotary_dim(self) -> int:
        """Number of rotated dimensions: those of a head."""
        return self.head_dim
