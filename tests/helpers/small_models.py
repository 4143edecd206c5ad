"""Small configurations and models."""

import torch

import modeling_roformer
from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
VOCAB_SIZE = 100


def small_config(config_class=RoFormerConfig, **changes):
    """Return a configuration, ours or transformers', of `SMALL` sizes but for the changes."""
    return config_class(**{"vocab_size": VOCAB_SIZE, **SMALL, **changes})


def small_model(model_class="RoFormerModel", seed=0, **changes):
    """Return a model, by its class or the name of one of ours, in evaluation mode.

    Its weights are large enough for a wrong position or mask to show.
    """
    if isinstance(model_class, str):
        model_class = getattr(modeling_roformer, model_class)
    config = small_config(model_class.config_class, **{"initializer_range": 0.3, **changes})
    torch.manual_seed(seed)
    return model_class(config).eval()


def save_masked_lm(folder, vocabulary, **fields):
    """Save a masked language model with random weights, and a tokenizer with the entries of a vocab.txt."""
    tokenizer = RoFormerTokenizer(str(vocabulary))
    torch.manual_seed(0)
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=len(tokenizer), **fields)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
