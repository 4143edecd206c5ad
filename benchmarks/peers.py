"""Models of equal size with random weights: ours, transformers' RoFormer, BERT, ModernBERT and GPT-2."""

import logging
import warnings
from dataclasses import dataclass

import torch
import transformers

import modeling_roformer as ours

BERT, THEIRS, MODERN, OURS = "BERT, SDPA", "transformers' RoFormer", "ModernBERT, SDPA", "RoFormer"
GPT2 = "GPT-2"
# Where the classes are, and how their names begin.
CLASSES = {
    BERT: (transformers, "Bert"),
    THEIRS: (transformers, "RoFormer"),
    MODERN: (transformers, "ModernBert"),
    OURS: (ours, "RoFormer"),
    GPT2: (transformers, "GPT2"),
}


def quiet() -> None:
    """Hide the progress bars and warnings of saved and loaded models."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    warnings.simplefilter("ignore")


@dataclass(frozen=True)
class Size:
    """Size of a model. A head has 64 features, and a feed-forward layer four times the width.

    `longest`: the most tokens of a text, for models that have a table of positions.
    """

    layers: int = 12
    width: int = 768
    words: int = 50_000
    longest: int = 512


def make_model(name: str, head: str, size: Size, **fields) -> transformers.PreTrainedModel:
    """Return a model for inference.

    Args:
        head: end of the class's name, such as "Model" or "ForMaskedLM".
        fields: other fields of the configuration.
    """
    quiet()
    torch.manual_seed(0)
    library, family = CLASSES[name]
    # A gated feed-forward layer has three matrices: with two thirds of the others' width, it has as many parameters.
    inner = 8 * size.width // 3 if name == MODERN else 4 * size.width
    config = getattr(library, f"{family}Config")(
        vocab_size=size.words,
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        num_attention_heads=size.width // 64,
        intermediate_size=inner,
        max_position_embeddings=size.longest,
        pad_token_id=0,
        attn_implementation="eager" if name == THEIRS else "sdpa",  # which has no other
        **fields,
    )
    options = {"add_pooling_layer": False} if (name, head) == (BERT, "Model") else {}  # the others have none by default
    return getattr(library, family + head)(config, **options).eval()


def make_masked(name: str, size: Size, attention: float, hidden: float) -> transformers.PreTrainedModel:
    """Return a masked language model for training, with logits only at labels where the model has this option.

    Args:
        attention, hidden: dropout of attention, and of what the layers add.
    """
    if name == MODERN:
        fields = {"attention_dropout": attention, "mlp_dropout": hidden, "embedding_dropout": hidden}
    else:
        fields = {"attention_probs_dropout_prob": attention, "hidden_dropout_prob": hidden}
    if name in (MODERN, OURS):
        fields["sparse_prediction"] = True
    return make_model(name, "ForMaskedLM", size, **fields).train()
