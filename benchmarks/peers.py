"""Models of equal size with random weights: ours, transformers' RoFormer, BERT and ModernBERT."""

import logging
import warnings
from dataclasses import dataclass

import torch
import transformers

import modeling_roformer as ours

BERT, THEIRS, MODERN, OURS = "BERT, SDPA", "transformers' RoFormer", "ModernBERT, SDPA", "RoFormer"


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

    def fields(self) -> dict[str, int]:
        """Return the fields of a configuration that all models share."""
        return {
            "vocab_size": self.words,
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.width // 64,
            "intermediate_size": 4 * self.width,
            "max_position_embeddings": self.longest,
            "pad_token_id": 0,
        }


def make_encoder(name: str, size: Size) -> transformers.PreTrainedModel:
    """Return an encoder without a head, for inference."""
    torch.manual_seed(0)
    if name == MODERN:
        return transformers.ModernBertModel(_modern(size)).eval()
    if name == BERT:
        return transformers.BertModel(_bert(size), add_pooling_layer=False).eval()
    if name == THEIRS:
        return transformers.RoFormerModel(transformers.RoFormerConfig(**size.fields())).eval()
    return ours.RoFormerModel(ours.RoFormerConfig(**size.fields())).eval()


def make_masked(name: str, size: Size, attention: float, hidden: float) -> transformers.PreTrainedModel:
    """Return a masked language model for training, with logits only at labels where the model has this option.

    Args:
        attention, hidden: dropout of attention, and of what the layers add.
    """
    torch.manual_seed(0)
    if name == MODERN:
        dropout = {"attention_dropout": attention, "mlp_dropout": hidden, "embedding_dropout": hidden}
        return transformers.ModernBertForMaskedLM(_modern(size, sparse_prediction=True, **dropout)).train()
    dropout = {"attention_probs_dropout_prob": attention, "hidden_dropout_prob": hidden}
    if name == BERT:
        return transformers.BertForMaskedLM(_bert(size, **dropout)).train()
    if name == THEIRS:
        return transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**size.fields(), **dropout)).train()
    return ours.RoFormerForMaskedLM(ours.RoFormerConfig(**size.fields(), **dropout, sparse_prediction=True)).train()


def _bert(size: Size, **fields) -> transformers.BertConfig:
    return transformers.BertConfig(**size.fields(), **fields, attn_implementation="sdpa")


def _modern(size: Size, **fields) -> transformers.ModernBertConfig:
    # A gated feed-forward layer has three matrices: with two thirds of the others' width, it has as many parameters.
    gated = {"intermediate_size": 8 * size.width // 3}
    return transformers.ModernBertConfig(**size.fields() | gated, **fields, attn_implementation="sdpa")
