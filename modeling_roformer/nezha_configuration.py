"""Configuration of NEZHA models."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .configuration import check_sizes


@strict
class NezhaConfig(PreTrainedConfig):
    r"""Configuration of a NEZHA (arXiv:1909.00204), which is a BERT with relative positions; WoNEZHA is a word-level one.

    Fields and defaults are those of transformers 4's `NezhaConfig`, whose checkpoints load unchanged (transformers 5 has
    no NEZHA any more); `add_pooling_layer` and `sparse_prediction` are this package's own. The defaults describe
    [sijunhe/nezha-cn-base](https://huggingface.co/sijunhe/nezha-cn-base).

    Args:
        vocab_size: number of entries in the vocabulary.
        hidden_size: width of the hidden states, a multiple of `num_attention_heads`.
        num_hidden_layers: number of transformer layers.
        num_attention_heads: heads a layer; `hidden_size / num_attention_heads` is even, since positions are pairs of a
            sine and a cosine.
        intermediate_size: width of the feed-forward layer.
        hidden_act: activation of the feed-forward layer, a name in `transformers.activations.ACT2FN`.
        hidden_dropout_prob: dropout on embeddings and on what each sub-layer adds.
        attention_probs_dropout_prob: dropout on the attention probabilities.
        max_position_embeddings: told to others, never a limit here: positions are computed, not looked up. transformers 4
            stops at this length.
        max_relative_position: distances beyond this many tokens are all treated as this one.
        type_vocab_size: number of segments (`token_type_ids`).
        initializer_range: standard deviation of fresh weights.
        layer_norm_eps: epsilon of the layer norms.
        classifier_dropout: dropout before the classifiers of the task heads; `hidden_dropout_prob` where None.
        tie_word_embeddings: the MLM head's decoder shares the word embeddings.
        add_pooling_layer: a pooler (tanh) over the first token. Models with a head set it to whether the head reads it.
        sparse_prediction: in training, the MLM head computes logits only where there are labels.

    Raises:
        ValueError: naming the field that describes no model.

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

    # What the modules that are shared with RoFormer ask, and a NEZHA has in one way only.
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
        # Published configs say 128, a number that transformers 4 never read.
        kwargs.pop("embedding_size", None)
        for name in ("is_decoder", "add_cross_attention"):
            if kwargs.pop(name, False):
                raise ValueError(f"{name}=True does not work for NEZHA, which is an encoder here")
        if "position_encoding" in kwargs:
            raise ValueError("position_encoding is a field of RoFormer: positions of a NEZHA are relative")
        if kwargs.pop("attention_type", "softmax") != "softmax":
            raise ValueError(
                'attention_type="linear" is for RoFormer: the positions of a NEZHA need the probabilities of softmax attention'
            )
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Raises a ValueError that names the field where the sizes describe no model."""
        check_sizes(self, "a position is made of pairs of a sine and a cosine")
        if self.max_relative_position < 1:
            raise ValueError(f"max_relative_position is {self.max_relative_position}, but must be at least 1")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_size(self) -> int:
        """Width of the embeddings: that of the hidden states."""
        return self.hidden_size
