"""Keys and values in front of a text, as prefix tuning (arXiv:2101.00190) trains them.

Dimensions in the shapes: b batch, p length of the prefix, s length of the text, h heads, d head_dim.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

from .configuration import RoFormerConfig


class PrefixLayer(DynamicLayer):
    """The prefix of one layer, which is read and never extended."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, keys: torch.Tensor, values: torch.Tensor):
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Return the keys and the values of prefix and text, each of shape (b, h, p + s, d)."""
        return (
            torch.cat([self.keys.to(key_states), key_states], dim=-2),
            torch.cat([self.values.to(value_states), value_states], dim=-2),
        )


class PrefixCache(Cache):
    """Cache that is read and never extended, so that layers can be recomputed (gradient checkpointing).

    Args:
        past_key_values: a `DynamicCache`, alone or in an `EncoderDecoderCache`, with keys and values of shape
            (b, h, p, d) in every layer.

    Raises:
        ValueError: for another kind of cache, or other shapes.
    """

    def __init__(self, past_key_values: Cache, config: RoFormerConfig, b: int):
        cache = past_key_values
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        if not isinstance(cache, DynamicCache):
            raise ValueError(
                f"past_key_values is a {type(cache).__name__}; expected a DynamicCache, as from "
                "DynamicCache([(keys, values), …]) with the keys and values of every layer"
            )
        layers: list[Any] = cache.layers
        if len(layers) != config.num_hidden_layers:
            raise ValueError(
                f"past_key_values has {len(layers)} layers; expected {config.num_hidden_layers}, as in the model"
            )
        p = cache.get_seq_length()
        shape = (b, config.num_attention_heads, p, config.head_dim)
        for i, layer in enumerate(layers):
            for name, x in (("keys", layer.keys), ("values", layer.values)):
                if x is None or x.shape != shape:
                    found = None if x is None else tuple(x.shape)
                    raise ValueError(
                        f"past_key_values has {name} of shape {found} in layer {i}; expected {shape}: (batch, heads, "
                        "length of the prefix, head_dim)"
                    )
        super().__init__(layers=[PrefixLayer(layer.keys, layer.values) for layer in layers])
