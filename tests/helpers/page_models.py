"""Small saved models for the tests of the page, with the vocabulary of examples/roformer-mini-zh."""

import torch
from helpers.paths import REPOSITORY
from helpers.small_models import small_config

from modeling_roformer import RoFormerTokenizer

VOCABULARY = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"


def save(folder, model_class, **settings):
    """Save a model of this class with random weights and its tokenizer, and return the folder."""
    tokenizer = RoFormerTokenizer(str(VOCABULARY))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(small_config(vocab_size=len(tokenizer), **settings))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
