"""One call of the transformer: its arguments are checked, and read into a `Call`, before anything is computed.

Without the checks a result would be wrong, or torch would raise "index out of range in self" on a CPU, and on a GPU the
whole process would stop.

Dimensions in the shapes: b batch, s sequence length, k length of the keys or of the source.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from .configuration import RoFormerConfig
from .inputs import (
    can_be_read,
    check_mask_values,
    check_ranges,
    check_shape,
    check_tokens,
    count_in_mask,
    given_cache,
    is_flash,
    warn_of_unread,
)
from .rotary import depends_on_length, longest_text
from .unpadding import FlatPacking, Packing, is_faster_packed, texts_in_rows


@dataclass(frozen=True)
class Call:
    """Arguments of a call that layers and heads read, besides token ids or embeddings.

    Args:
        config: the model's, with eager attention if the call returns attention probabilities.
        token_type_ids: segments, shape (b, s); all 0 if None.
        cache: keys and values of the preceding tokens, which the layers read and extend; None for no cache.
        attention_mask: as `RoFormerModel.forward` takes it; None if it masks nothing.
        position_ids: integers, shape (b, s) or (1, s).
        lengths: see `frequency_lengths`.
        flat_packing: the packing of rows that hold several texts, also if the layers separate these by a mask; None if
            each row is one text.
        packing: the packing that the layers use to compute the texts without padding; None if they compute the rows
            as they are.
        encoder_hidden_states: the source of cross-attention, shape (b, k, hidden_size), or None.
        encoder_attention_mask: 0 for padding of the source, shape (b, k); None if it masks nothing.
    """

    config: RoFormerConfig
    token_type_ids: torch.Tensor | None = None
    cache: Cache | None = None
    attention_mask: Any = None
    position_ids: Any = None
    lengths: Any = None
    flat_packing: FlatPacking | None = None
    packing: Packing | None = None
    encoder_hidden_states: torch.Tensor | None = None
    encoder_attention_mask: torch.Tensor | None = None


class ReadOnlyCache(Cache):
    """Cache that is read and never extended: gradient checkpointing computes each layer twice."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs):
        """Return the keys and the values of the cached tokens and of the given ones, each of shape (b, h, k, d)."""
        layer: Any = copy.copy(self.layers[layer_idx])
        return layer.update(key_states, value_states)


def read_call(
    model: Any,
    *,
    input_ids: torch.Tensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
    token_type_ids: torch.Tensor | None = None,
    encoder_hidden_states: torch.Tensor | None = None,
    encoder_attention_mask: torch.Tensor | None = None,
    past_key_values: Cache | None = None,
    use_cache: bool | None = None,
    attention_mask: Any = None,
    position_ids: torch.Tensor | None = None,
    one_text_per_row: bool | None = False,
    unpad_inputs: bool | None = None,
    output_attentions: bool | None = None,
    options: dict[str, Any],
) -> Call:
    """Check the arguments of `RoFormerModel.forward`, and return them as a `Call`.

    The values that the checks need are read in one device sync.

    Args:
        options: the keyword arguments that `forward` does not name. A cache is removed from them.

    Raises:
        ValueError: an argument does not fit; the message names it.
    """
    config = model.config
    if output_attentions or not config._attn_implementation:
        config = as_eager(config)
    tokens = check_tokens(input_ids, inputs_embeds)
    if inputs_embeds is not None:
        check_shape("inputs_embeds", inputs_embeds, (*tokens.shape[:2], config.embedding_size or config.hidden_size))
    check_shape("token_type_ids", token_type_ids, tokens.shape[:2])
    check_shape("position_ids", position_ids, tokens.shape[:2], (1, tokens.shape[1]))
    warn_of_unread(options, type(model).forward, config._attn_implementation)
    if config.prefix_lm and (is_flash(config._attn_implementation) or not model.self_attention.computes_pairs):
        raise ValueError(f"{describe_attention(config)} does not support prefix_lm=True: leave one of them out")
    if encoder_hidden_states is None or not config.is_decoder:  # an encoder ignores a source, as in transformers
        encoder_hidden_states = encoder_attention_mask = None
    elif not config.add_cross_attention:
        raise ValueError("encoder_hidden_states needs a model with cross-attention: set add_cross_attention=True")
    elif encoder_attention_mask is not None and encoder_attention_mask.ndim != 4:
        check_shape("encoder_attention_mask", encoder_attention_mask, encoder_hidden_states.shape[:2])
    has_source = encoder_hidden_states is not None

    cache = given = given_cache(past_key_values, options)
    if given is not None or config.is_decoder:
        cache = choose_cache(model, given, use_cache, has_source)
    if attention_mask is not None and (cache is not None or attention_mask.shape != tokens.shape[:2]):
        check_mask(model, config, attention_mask, tokens, cache)
    can_separate = one_text_per_row is not None
    flat_packing = texts_in_rows(tokens, given, attention_mask, position_ids, can_separate, options)
    if flat_packing is not None and position_ids is None:
        position_ids = flat_packing.places()

    values = read_values(
        model, tokens, token_type_ids, encoder_attention_mask, cache, attention_mask, position_ids, flat_packing
    )
    if values["source_padding"] == 0:
        encoder_attention_mask = None
    if values["padding"] == 0:
        attention_mask = None
    if flat_packing is not None:
        flat_packing = flat_packing.check(
            values["number_of_texts"], values["ends_are_valid"], one_text_per_row or has_source
        )
    if flat_packing is not None and flat_packing.cu_seqlens is not None and cache is not None:
        if use_cache or given is not None:
            raise ValueError(
                f"a cache continues one text per row, but {flat_packing.source} puts several into a row: pass "
                "use_cache=False, and no past_key_values"
            )
        cache = None

    lengths = tokens.shape[1]
    if depends_on_length(config):
        lengths = frequency_lengths(tokens, attention_mask, position_ids, flat_packing)
    if position_ids is None:
        if config.position_encoding == "learned":
            check_length(config, tokens, cache)
        begins_with_padding = values["begins_with_padding"] != 0
        position_ids = model.positions(tokens, attention_mask if begins_with_padding else None, cache)

    output_hidden_states = options.get("output_hidden_states")
    if output_hidden_states is None:
        output_hidden_states = config.output_hidden_states
    packing = None
    if flat_packing is not None:
        packing = pack_flattened(model, config, flat_packing, output_attentions, output_hidden_states)
    elif values["padding"] and not (values["begins_with_padding"] or output_attentions or output_hidden_states):
        packing = pack_padded(model, config, attention_mask, values["padding"], cache, unpad_inputs)
    return Call(
        config=config,
        token_type_ids=token_type_ids,
        cache=cache,
        attention_mask=attention_mask,
        position_ids=position_ids,
        lengths=lengths,
        flat_packing=flat_packing,
        packing=packing,
        encoder_hidden_states=encoder_hidden_states,
        encoder_attention_mask=encoder_attention_mask,
    )


def as_eager(config: RoFormerConfig) -> RoFormerConfig:
    """Return the config of a call that returns attention probabilities, which only eager attention does."""
    if config._attn_implementation != "eager":
        config = copy.copy(config)
        config._attn_implementation = "eager"
    return config


def choose_cache(model: Any, cache: Cache | None, use_cache: bool | None, has_source: bool) -> Cache | None:
    """Return the cache that a call reads and extends: the given one, a new one, or None for no cache.

    Under gradient checkpointing, which computes each layer twice, a given cache is only read.
    """
    config, attention = model.config, model.self_attention
    if not config.is_decoder:
        if isinstance(cache, Cache) and cache.get_seq_length() == 0:
            return None
        raise ValueError(
            "an encoder takes no past_key_values, and so no prefix tuning: leave them out, and train LoRA adapters in "
            "place of a prefix"
        )
    recomputes = model.training and torch.is_grad_enabled()
    recomputes = recomputes and any(layer.gradient_checkpointing for layer in model.encoder.layer)
    if cache is None:
        uses_cache = config.use_cache if use_cache is None else use_cache
        if recomputes or depends_on_length(config) or not uses_cache:
            return None
        cache = attention.make_cache(config)
        return EncoderDecoderCache(cache, DynamicCache(config=config)) if has_source else cache
    if depends_on_length(config):
        raise ValueError(
            'rope_type "dynamic" rotates all keys again as a text grows: leave out past_key_values and pass '
            "use_cache=False; for fine-tuning, use another adapter than a prefix"
        )
    own: Any = getattr(cache, "self_attention_cache", cache)
    if recomputes and own.get_seq_length() == 0:
        return None
    if not isinstance(own, attention.cache_class):
        raise ValueError(
            f'past_key_values is a {type(own).__name__}; attention_type="{config.attention_type}" needs a '
            f"{attention.cache_class.__name__}: leave it out, or use another adapter than a prefix"
        )
    if len(own.layers) not in (0, config.num_hidden_layers):  # transformers adds layers at their first tokens
        raise ValueError(f"past_key_values has {len(own.layers)} layers; the model has {config.num_hidden_layers}")
    if not recomputes:
        return cache
    if not isinstance(own, DynamicCache):
        raise ValueError(
            f"past_key_values is a {type(own).__name__}, but gradient checkpointing needs a DynamicCache: leave it "
            "out, or turn gradient checkpointing off"
        )
    return ReadOnlyCache(layers=own.layers)


def check_mask(
    model: Any, config: RoFormerConfig, attention_mask: Any, tokens: torch.Tensor, cache: Cache | None
) -> None:
    """Raise a ValueError unless the layers take a mask of this shape.

    They take a mask for each token, of shape (b, k). If they compute pairs of tokens, they also take a mask for each
    pair, broadcastable to (b, h, s, k).
    """
    implementation = config._attn_implementation
    if "flex" in implementation and type(attention_mask).__name__ == "BlockMask":
        return
    (b, s), is_for_pairs = tokens.shape[:2], attention_mask.ndim == 4
    if is_for_pairs and not (model.self_attention.computes_pairs and implementation in ("eager", "sdpa")):
        raise ValueError(
            f"attention_mask has four dimensions, but {describe_attention(config)} only takes one of shape (batch, "
            "length), 0 for padding"
        )
    if attention_mask.ndim in (2, 4) and getattr(cache, "is_compileable", False):  # its mask is as long as the cache
        return
    k = s if cache is None else s + cache.get_seq_length()
    full = (b, config.num_attention_heads, s, k)
    fits = attention_mask.shape == (b, k)
    if is_for_pairs:
        sizes = zip(attention_mask.shape, full, strict=True)
        fits = attention_mask.shape[-1] == k and all(size in (1, whole) for size, whole in sizes)
    if not fits:
        pairs = f" or ({b}, 1, {s}, {k})" if model.self_attention.computes_pairs else ""
        raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}; expected ({b}, {k}){pairs}")


def read_values(
    model: Any,
    tokens: torch.Tensor,
    token_type_ids: torch.Tensor | None,
    encoder_attention_mask: torch.Tensor | None,
    cache: Cache | None,
    attention_mask: Any,
    position_ids: torch.Tensor | None,
    flat_packing: FlatPacking | None,
) -> dict[str, Any]:
    """Read the values that the host needs for a call; raise a ValueError if an id is out of range, or if a mask of two
    dimensions has values other than 0 and 1.

    Warn of padding without a mask, and redraw random features if they are due.

    Returns:
        `padding` and `source_padding`, the number of tokens that each mask excludes; `begins_with_padding`, the number
        of texts that begin with padding; `number_of_texts` and `ends_are_valid` of the `FlatPacking`. A value is None
        if it cannot be read.
    """
    config = model.config
    is_fixed = getattr(cache, "is_compileable", False)
    values = check_ranges(
        (model.main_input_name, tokens, config.vocab_size, None),
        ("token_type_ids", token_type_ids, config.type_vocab_size, None),
        ("position_ids", position_ids, None if position_ids is None else longest_text(config), None),
        padding=None if is_fixed else count_in_mask(attention_mask, 0),
        kept=None if is_fixed else count_in_mask(attention_mask, 1),
        begins_with_padding=None if is_fixed else count_in_mask(attention_mask, 0, first=True),
        source_padding=count_in_mask(encoder_attention_mask, 0),
        source_kept=count_in_mask(encoder_attention_mask, 1),
        unmasked_padding=model.has_padding_at_an_end(tokens) if attention_mask is None else None,
        counted_steps=model.self_attention.counted_steps(model) if model.training else None,
        number_of_texts=None if flat_packing is None else flat_packing.number_of_texts,
        ends_are_valid=None if flat_packing is None else flat_packing.ends_are_valid,
    )
    check_mask_values("attention_mask", attention_mask, values["padding"], values["kept"])
    check_mask_values("encoder_attention_mask", encoder_attention_mask, values["source_padding"], values["source_kept"])
    if values["unmasked_padding"]:
        # Pass one pad token: padding was detected above, so this avoids a second sync.
        model.warn_if_padding_and_no_attention_mask(torch.tensor([[config.pad_token_id]]), None)
    if values["counted_steps"] is not None:
        model.self_attention.redraw(model, values["counted_steps"])
    return values


def frequency_lengths(
    tokens: torch.Tensor,
    attention_mask: Any,
    position_ids: torch.Tensor | None,
    flat_packing: FlatPacking | None,
) -> int | torch.Tensor:
    """Return the lengths of texts that frequencies depend on: one number for all, shape (b,) for each text, or (b, s)
    for each token's text if rows hold several. With `position_ids`, a length is the text's largest position + 1."""
    if position_ids is not None and flat_packing is not None:
        return flat_packing.largest(position_ids + 1)
    is_token = attention_mask != 0 if attention_mask is not None and attention_mask.ndim == 2 else None
    if position_ids is not None:
        if is_token is not None:
            position_ids = torch.where(is_token, position_ids, 0)
        return position_ids.amax(dim=-1) + 1
    return tokens.shape[1] if is_token is None else is_token.sum(dim=-1)


def check_length(config: RoFormerConfig, tokens: torch.Tensor, cache: Cache | None) -> None:
    """Raise a ValueError if a text, with its cached tokens, is longer than the table of learned positions."""
    length: Any = tokens.shape[1] + (0 if cache is None else cache.get_seq_length())
    is_known = not isinstance(length, torch.Tensor) or can_be_read(length)
    if is_known and length > config.max_position_embeddings:
        raise ValueError(
            f"the text has {int(length)} tokens, but max_position_embeddings is {config.max_position_embeddings} with "
            'position_encoding="learned": shorten the text'
        )


def pack_padded(
    model: Any,
    config: RoFormerConfig,
    attention_mask: Any,
    padding: int,
    cache: Cache | None,
    unpad_inputs: bool | None,
) -> Packing | None:
    """Return the packing that leaves out the `padding` tokens of a batch; None if the layers compute padded rows."""
    unpads = config.unpad_inputs if unpad_inputs is None else unpad_inputs
    # A cache keeps the padded shape, and chunks must divide the number of tokens.
    if not unpads or cache is not None or config.chunk_size_feed_forward:
        return None
    dropout = config.attention_probs_dropout_prob if model.training else 0.0
    # Replicas of nn.DataParallel have no `parameters()`, and input embeddings of another class may have no `weight`.
    words = model.embeddings.word_embeddings
    weight = getattr(words, "weight", next(words.parameters(), attention_mask))
    is_faster = is_faster_packed(config, attention_mask, padding, weight, dropout)
    if is_faster and model.self_attention.can_pack(config) and not has_compiled_layers(model):
        return Packing(attention_mask)
    return None


def pack_flattened(
    model: Any,
    config: RoFormerConfig,
    flat_packing: FlatPacking,
    output_attentions: bool | None,
    output_hidden_states: bool | None,
) -> FlatPacking | None:
    """Return the packing of several texts in a row; None if the layers separate them by a mask.

    Raises:
        ValueError: the layers can do neither.
    """
    attention, uses_flash = model.self_attention, is_flash(config._attn_implementation)
    can_mask_pairs = attention.computes_pairs and not uses_flash
    can_pack = attention.can_pack(config) and (uses_flash or can_be_read(flat_packing.starts))
    can_pack = can_pack and not (can_mask_pairs and has_compiled_layers(model))
    returns_rows = output_attentions or (output_hidden_states and flat_packing.batch_shape[0] > 1)
    if can_pack and flat_packing.cu_seqlens is not None and not returns_rows:
        return flat_packing
    if not can_mask_pairs:
        raise ValueError(
            f"{describe_attention(config)} does not separate several texts in a row in compiled or exported models, "
            "with prefix_lm, or where layers' outputs are requested: pass an attention_mask, of ones if each row is "
            "one text"
        )
    return None


def has_compiled_layers(model: Any) -> bool:
    """Return whether layers are compiled one by one. Packing would compile them again for each new set of lengths."""
    layers = model.encoder.layer
    parts = (x for layer in layers for x in (layer, layer.attention, layer.attention.self))
    return any(x._compiled_call_impl is not None or hasattr(x, "_orig_mod") for x in (model.encoder, *parts))


def describe_attention(config: RoFormerConfig) -> str:
    """Return the setting that chose the attention of a config, for errors."""
    if config.attention_type != "softmax":
        return f'attention_type="{config.attention_type}"'
    return f'attn_implementation="{config._attn_implementation}"'
