"""Configuration of NEZHA models."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .configuration import ConfigurationMixin, check_sizes


@strict
class NezhaConfig(ConfigurationMixin, PreTrainedConfig):
    r"""Configuration of a NEZHA (arXiv:1909.00204), a BERT with relative positions; WoNEZHA has a word vocabulary.

    Fields and defaults are those of transformers 4's `NezhaConfig`, whose checkpoints load unchanged (transformers 5
    removed NEZHA); `add_pooling_layer` and `sparse_prediction` are this package's own. The defaults describe
    [sijunhe/nezha-cn-base](https://huggingface.co/sijunhe/nezha-cn-base).

    Args:
        vocab_size: number of entries in the vocabulary.
        hidden_size: width of the hidden states, a multiple of `num_attention_heads`.
        num_hidden_layers: number of transformer layers.
        num_attention_heads: heads per layer; `hidden_size / num_attention_heads` is even, since positions are pairs of
            a sine and a cosine.
        intermediate_size: width of the feed-forward layer.
        hidden_act: activation of the feed-forward layer, a name in `transformers.activations.ACT2FN`.
        hidden_dropout_prob: dropout probability of the embeddings and of each sub-layer's output.
        attention_probs_dropout_prob: dropout probability of the attention probabilities.
        max_position_embeddings: written for other software; this model has no length limit. transformers 4 stops at
            this length.
        max_relative_position: largest distance, in tokens; larger ones are treated as this one.
        type_vocab_size: number of segments (`token_type_ids`).
        initializer_range: standard deviation of newly initialised weights.
        layer_norm_eps: epsilon of the layer norms.
        classifier_dropout: dropout probability before the classifiers of the task heads; `hidden_dropout_prob` if None.
        tie_word_embeddings: tie the weights of the MLM head's decoder to the word embeddings.
        add_pooling_layer: a pooler (tanh) over the first token. Models with a head set it: True if the head reads it.
        sparse_prediction: in training, the MLM head computes logits only where there are labels.

    Raises:
        ValueError: a field contradicts another.
        StrictDataclassError (of huggingface_hub): a field has a value of another type, or none of its choices.

    ```python
    >>> from modeling_roformer import NezhaConfig
    >>> NezhaConfig(max_relative_position=32).to_dict()["model_type"]
    'nezha'
    ```
    """

    model_type = "nezha"

    vocab_size: int = 21128
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    max_relative_position: int = 64
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    classifier_dropout: float | int | None = 0.1
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = 3
    tie_word_embeddings: bool = True
    add_pooling_layer: bool = True
    sparse_prediction: bool = False

    # Fields of RoFormer's that its modules read, with the one value that NEZHA has.
    norm_type: ClassVar[str] = "layer_norm"
    use_bias: ClassVar[bool] = True
    pooler_activation: ClassVar[str] = "tanh"
    is_decoder: ClassVar[bool] = False
    add_cross_attention: ClassVar[bool] = False
    prefix_lm: ClassVar[bool] = False
    position_encoding: ClassVar[str] = "relative"
    attention_type: ClassVar[str] = "softmax"
    trainable_rope: ClassVar[bool] = False
    unpad_inputs: ClassVar[bool] = False
    classifier_layers: ClassVar[int] = 2
    classifier_activation: ClassVar[str | None] = None

    def __post_init__(self, **kwargs):
        kwargs.pop("embedding_size", None)  # published configs have 128, which transformers 4 never read
        for name in ("is_decoder", "add_cross_attention", "position_encoding", "attention_type"):
            only_value = getattr(type(self), name)
            if (given := kwargs.pop(name, only_value)) != only_value:
                raise ValueError(f"{name} is {given!r}, but NEZHA has only {only_value!r}: leave it out")
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Raise a ValueError that names the first field which contradicts another."""
        check_sizes(self, "positions are pairs of a sine and a cosine")

    @property
    def embedding_size(self) -> int:
        """Width of the embeddings: that of the hidden states."""
        return self.hidden_size
