"""Small saved models for the tests of the page, with the vocabulary of examples/roformer-mini-zh."""

import torch
from helpers.paths import REPOSITORY

from modeling_roformer import RoFormerConfig, RoFormerTokenizer

VOCABULARY = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)


def save(folder, model_class, **settings):
    """A model of this class with random weights, and its tokenizer; gives the folder."""
    tokenizer = RoFormerTokenizer(str(VOCABULARY))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(RoFormerConfig(vocab_size=len(tokenizer), **SIZES, **settings))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
