"""Keys and values that stand in front of a text: what prefix tuning (arXiv:2101.00190) trains, and an encoder can be given.

Dimensions in the shapes: b batch, p length of the prefix, s length of the text, h heads, d head_dim.
"""

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

from .configuration import RoFormerConfig


class PrefixLayer(DynamicLayer):
    """The prefix of one layer, which reading a text leaves as it is."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor):
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Return keys and values of prefix and text, each of shape (b, h, p + s, d)."""
        return (
            torch.cat([self.keys.to(key_states), key_states], dim=-2),
            torch.cat([self.values.to(value_states), value_states], dim=-2),
        )


class PrefixCache(Cache):
    """A cache that is read and never extended, so that a layer can be computed twice (gradient checkpointing).

    Args:
        past_key_values: a `DynamicCache`, or an `EncoderDecoderCache` of such, with keys and values of shape (b, h, p, d)
            in every layer.
        config: of the model that reads it.
        b: number of texts.

    Raises:
        ValueError: it is another kind of cache, or its shapes do not fit.
    """

    def __init__(self, past_key_values: Cache, config: RoFormerConfig, b: int):
        cache = past_key_values
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        if not isinstance(cache, DynamicCache):
            raise ValueError(
                f"past_key_values is a {type(cache).__name__}, but must be a DynamicCache here: DynamicCache([(keys, values), …]) "
                "makes one from the keys and values of every layer"
            )
        if len(cache.layers) != config.num_hidden_layers:
            raise ValueError(
                f"past_key_values has {len(cache.layers)} layers, but the model has {config.num_hidden_layers}"
            )
        p = cache.get_seq_length()
        shape = (b, config.num_attention_heads, p, config.head_dim)
        for i, layer in enumerate(cache.layers):
            for name, x in (("keys", layer.keys), ("values", layer.values)):
                if x is None or x.shape != shape:
                    raise ValueError(
                        f"past_key_values has {name} of shape {None if x is None else tuple(x.shape)} in layer {i}, but the "
                        f"input needs {shape}: (batch, heads, length of the prefix, head_dim)"
                    )
        super().__init__(layers=[PrefixLayer(layer.keys, layer.values) for layer in cache.layers])
