"""The choice of a model's cache."""

import copy
from dataclasses import fields
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPast

from .configuration import RoFormerConfig
from .linear_attention import LinearAttentionCache
from .rope_scaling import depends_on_length

# transformers' name of the cache in outputs and in `generate`. From 5.24 on it is "cache".
CACHE_NAME = next(x.name for x in fields(BaseModelOutputWithPast) if x.name in ("cache", "past_key_values"))


class ReadOnlyCache(Cache):
    """Cache that is read and never extended: gradient checkpointing computes each layer twice."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs):
        layer: Any = copy.copy(self.layers[layer_idx])
        return layer.update(key_states, value_states)


def given_cache(past_key_values: Cache | None, kwargs: dict[str, Any]) -> Cache | None:
    """Return the cache that a call was given under either name, and remove `cache` from its keyword arguments."""
    # Before 5.24, `cache` was an argument of attention functions: the pages of continuous batching, no Cache.
    cache = kwargs.pop("cache") if isinstance(kwargs.get("cache"), Cache) else None
    if cache is not None and past_key_values is not None:
        raise ValueError(
            "cache and past_key_values are two names of one argument: pass one of them. A prefix of PEFT needs PEFT 0.22 "
            "or newer, or transformers below 5.24"
        )
    return past_key_values if cache is None else cache


def choose_cache(
    config: RoFormerConfig,
    past_key_values: Cache | None,
    use_cache: bool | None,
    b: int,
    has_encoder: bool,
    extends: bool,
) -> Cache | None:
    """Return the cache that one call of a decoder reads and extends; None for no cache.

    Args:
        past_key_values, use_cache: arguments of the call.
        b: batch size.
        has_encoder: whether the call has cross-attention.
        extends: whether the call may extend a cache; otherwise it reads the one that is given.

    Raises:
        ValueError: for a cache that the model cannot use; an encoder uses none.
    """
    if not config.is_decoder:
        is_empty = isinstance(past_key_values, Cache) and past_key_values.get_seq_length() == 0
        if past_key_values is not None and not is_empty:
            raise ValueError(
                "an encoder takes no past_key_values, and so no prefix tuning: leave them out, and train LoRA adapters "
                "in place of a prefix"
            )
        return None
    if past_key_values is not None and not isinstance(past_key_values, Cache):
        raise ValueError(
            f"past_key_values is a {type(past_key_values).__name__}; expected a Cache of transformers. "
            "DynamicCache(past_key_values) makes one from a tuple of each layer's keys and values."
        )
    if past_key_values is not None and depends_on_length(config):
        raise ValueError(
            'rope_type "dynamic" rotates all keys again as a text grows: leave out past_key_values and pass '
            "use_cache=False; for fine-tuning, use another adapter than a prefix"
        )
    is_linear = config.attention_type == "linear"
    if not extends:
        if past_key_values is None or past_key_values.get_seq_length() == 0:
            return None
        if is_linear:
            raise ValueError(
                'attention_type="linear" takes no past_key_values under gradient checkpointing: leave them out; for '
                "fine-tuning, use another adapter than a prefix"
            )
        own = getattr(past_key_values, "self_attention_cache", past_key_values)
        if not isinstance(own, DynamicCache):
            raise ValueError(
                f"past_key_values is a {type(own).__name__}, but gradient checkpointing needs a DynamicCache: pass one, "
                "or turn gradient checkpointing off"
            )
        check_fits(own, config, b)
        return ReadOnlyCache(layers=own.layers)
    if depends_on_length(config):
        return None
    if past_key_values is None and (config.use_cache if use_cache is None else use_cache):
        past_key_values = (LinearAttentionCache if is_linear else DynamicCache)(config=config)
        if has_encoder:
            past_key_values = EncoderDecoderCache(past_key_values, DynamicCache(config=config))
    own = getattr(past_key_values, "self_attention_cache", past_key_values)
    if past_key_values is not None and isinstance(own, LinearAttentionCache) != is_linear:
        raise ValueError(
            f'past_key_values is a {type(own).__name__}; attention_type="{config.attention_type}" needs '
            f"{'a' if is_linear else 'another cache than a'} LinearAttentionCache: leave it out, or "
            f"{'use another adapter than a prefix' if is_linear else 'use linear attention'}"
        )
    if own is not None:
        check_fits(own, config, b)
    return past_key_values


def check_fits(cache: Cache, config: RoFormerConfig, b: int) -> None:
    """Raise a ValueError if a decoder's cache is one of another model, or of another number of texts than b."""
    if len(cache.layers) not in (0, config.num_hidden_layers):  # transformers adds layers at their first tokens
        raise ValueError(
            f"past_key_values has {len(cache.layers)} layers; expected {config.num_hidden_layers}, as in the model"
        )
    layers: list[Any] = cache.layers
    if not layers or not layers[0].is_initialized:
        return
    first = layers[0]
    state = first.sums.numerator if config.attention_type == "linear" else first.keys
    # Quantized keys have no shape to compare.
    if not isinstance(state, torch.Tensor) or state.ndim != 4:
        return
    if state.shape[0] != b:
        raise ValueError(
            f"past_key_values is of {state.shape[0]} texts, but the input has {b}: "
            "cache.batch_repeat_interleave(n) repeats those of a cache"
        )
    heads, head_dim = config.num_attention_heads, config.head_dim
    if state.shape[1] != heads or (config.attention_type != "linear" and state.shape[3] != head_dim):
        raise ValueError(
            f"past_key_values has states of shape {tuple(state.shape)}; expected {heads} heads of width {head_dim}, "
            "as in the model"
        )
