"""Attention masks: bidirectional, causal, and UniLM's prefix mask.

transformers makes the masks, in the form that each attention implementation takes.

Dimensions in the shapes: b batch, s sequence length, k length of the keys (those in the cache included).
"""

import copy

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask, packed_sequence_mask_function

from .configuration import RoFormerConfig
from .input_checks import can_be_read, check_is_tensor


def implementation_for(config: RoFormerConfig, output_attentions: bool | None) -> str:
    """Return the attention implementation of one call: only eager attention returns the probabilities."""
    return "eager" if output_attentions else config._attn_implementation or "eager"


def check_has_softmax(config: RoFormerConfig, implementation: str | None) -> None:
    """Raise a ValueError if a kernel for softmax attention is requested and the model has no softmax attention."""
    has_softmax = config.attention_type == "softmax" or config.add_cross_attention
    if not has_softmax and implementation is not None and ("flash" in implementation or "flex" in implementation):
        raise ValueError(
            f'attn_implementation="{implementation}" is for softmax attention, but the model has '
            'attention_type="linear": leave it out'
        )


def check_implementation(
    config: RoFormerConfig, implementation: str, hidden_states: torch.Tensor, training: bool
) -> None:
    """Raise a ValueError if the implementation cannot compute what the model needs."""
    if implementation == "flex_attention":
        if hidden_states.device.type == "cpu":
            # torch 2.13, narrow heads: NaN in one call, 2e-2 off in the next, right in most.
            raise ValueError(
                'attn_implementation="flex_attention" gives wrong results and no gradients on a CPU: use "sdpa" there'
            )
        if training and config.attention_probs_dropout_prob > 0:
            raise ValueError(
                'attn_implementation="flex_attention" has no dropout: set attention_probs_dropout_prob to 0 for '
                'training, or use "sdpa"'
            )
    if "flash" in implementation:
        if config.prefix_lm:
            raise ValueError(f'attn_implementation="{implementation}" does not support prefix_lm: use "sdpa"')
        if hidden_states.dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(
                f'attn_implementation="{implementation}" needs float16 or bfloat16, but the model is in '
                f'{str(hidden_states.dtype).removeprefix("torch.")}: load it with dtype="bfloat16", or use "sdpa"'
            )


def self_attention_mask(
    config: RoFormerConfig,
    implementation: str,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None = None,
    past_key_values: Cache | None = None,
    padding: int | None = None,
    starts: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Return the mask of self-attention in the form that the implementation takes; None if nothing is masked.

    Linear attention masks no pairs: its mask is False for padding, boolean, shape (b, s).

    Args:
        hidden_states: shape (b, s, hidden_size).
        attention_mask: None; or shape (b, k), 0 for padding; or shape (b or 1, h or 1, s or 1, k), boolean (False for
            masked pairs) or floating (added to the scores), which replaces the mask; or a BlockMask for flex attention.
        token_type_ids: segments, shape (b, s), only read with `prefix_lm`; all 0 if None.
        padding: see `count_padding`; None if unknown.
        starts: True where a text begins, shape (b, s), if rows hold several texts without padding.

    Raises:
        ValueError: for any other shape, or if the attention has no mask that separates the texts of a row.
    """
    texts = None
    if starts is not None:
        is_linear = config.attention_type == "linear"
        if is_linear or "flash" in implementation:
            kind = 'attention_type="linear"' if is_linear else f'attn_implementation="{implementation}"'
            raise ValueError(
                f"{kind} does not separate several texts in a row in compiled or exported models, or where layers' "
                "outputs are requested: pass an attention_mask, of ones if each row is one text"
            )
        texts = packed_sequence_mask_function(starts.cumsum(dim=1))
    if implementation != "flex_attention":  # which also takes a BlockMask
        check_is_tensor("attention_mask", attention_mask)
    b, s = hidden_states.shape[:2]
    past = 0 if past_key_values is None else past_key_values.get_seq_length()
    if config.attention_type == "linear" and attention_mask is not None and getattr(attention_mask, "ndim", 0) != 2:
        raise ValueError(
            f'attention_type="linear" cannot mask pairs of tokens: expected an attention_mask of shape '
            f"({b}, {s + past}), 0 for padding"
        )
    if isinstance(attention_mask, torch.Tensor):
        # With a cache of fixed size, the mask is as long as the cache and `past` is a tensor.
        fixed = getattr(past_key_values, "is_compileable", False)
        if attention_mask.ndim == 4 and (
            fixed or _broadcasts(attention_mask, (b, config.num_attention_heads, s, s + past))
        ):
            return _ready_made(implementation, hidden_states, attention_mask)
        if attention_mask.ndim != 2 or (not fixed and attention_mask.shape != (b, s + past)):
            raise ValueError(
                f"attention_mask has shape {tuple(attention_mask.shape)}; expected ({b}, {s + past}) or "
                f"({b}, 1, {s}, {s + past})"
            )
    elif attention_mask is not None:  # a flex BlockMask
        return attention_mask
    if config.attention_type == "linear":
        # The sums in the cache leave padding out already.
        return None if attention_mask is None or padding == 0 else attention_mask[:, -s:] != 0
    config = _with_implementation(config, implementation)
    attention_mask = None if padding == 0 else attention_mask
    if s == 1 and not getattr(past_key_values, "is_compileable", False):
        # A step of generation: the token sees itself and all that is cached, so only padding is masked.
        if attention_mask is None:
            return None
        if implementation in ("sdpa", "eager"):
            return _ready_made(implementation, hidden_states, attention_mask[:, None, None] != 0)
    if config.prefix_lm and s > 1:
        prefix = _prefix(token_type_ids, b, s, past)
        masks = {"or_mask_function": prefix, "and_mask_function": texts}
        return create_causal_mask(config, hidden_states, attention_mask, past_key_values, **masks)
    # Where there is padding, the mask is never skipped: to find out whether it can be, transformers would read the
    # values, which fails under vmap and on the meta device.
    if config.is_decoder:
        is_skippable = attention_mask is None
        masks = {"and_mask_function": texts, "allow_is_causal_skip": is_skippable}
        return create_causal_mask(config, hidden_states, attention_mask, past_key_values, **masks)
    if attention_mask is None and texts is None:
        return None
    return create_bidirectional_mask(
        config, hidden_states, attention_mask, and_mask_function=texts, allow_is_bidirectional_skip=False
    )


def cross_attention_mask(
    config: RoFormerConfig,
    implementation: str,
    hidden_states: torch.Tensor,
    encoder_attention_mask: torch.Tensor | None,
    encoder_hidden_states: torch.Tensor | None,
    padding: int | None = None,
) -> torch.Tensor | None:
    """Return the mask of cross-attention for an `encoder_attention_mask` of shape (b, k); None if nothing is masked."""
    if encoder_hidden_states is None or encoder_attention_mask is None or padding == 0:
        return None
    return create_bidirectional_mask(
        _with_implementation(config, implementation),
        hidden_states,
        encoder_attention_mask,
        encoder_hidden_states=encoder_hidden_states,
        allow_is_bidirectional_skip=False,
    )


def count_padding(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return the number of tokens that a mask of shape (b, k) excludes, as a 0-d tensor, which the caller reads in its
    one device sync. None for other masks."""
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.ndim != 2 or not can_be_read(attention_mask):
        return None
    return (attention_mask == 0).sum()


def _with_implementation(config: RoFormerConfig, implementation: str) -> RoFormerConfig:
    if config._attn_implementation == implementation:
        return config
    config = copy.copy(config)
    config._attn_implementation = implementation
    return config


def _prefix(token_type_ids: torch.Tensor | None, b: int, s: int, past: int):
    """Return the pairs that UniLM's mask adds to the causal mask: i sees j if Σ_{t≤j} segment_t ≤ Σ_{t≤i} segment_t, so
    that all tokens of a run of segment 0 see each other. Cached tokens precede i, so the causal mask covers them."""
    if token_type_ids is None:
        return lambda batch_idx, head_idx, q_idx, kv_idx: (kv_idx >= past) & (kv_idx < past + s)
    group = token_type_ids.cumsum(dim=1)

    def prefix(batch_idx, head_idx, q_idx, kv_idx):
        q, k = q_idx - past, kv_idx - past
        inside = (k >= 0) & (k < s)
        return inside & (group[batch_idx, k.clamp(0, s - 1)] <= group[batch_idx, q.clamp(0, s - 1)])

    return prefix


def _broadcasts(attention_mask: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether a mask of four dimensions broadcasts to scores of that shape, (b, h, s, k)."""
    *leading, k = attention_mask.shape
    return k == shape[-1] and all(n in (1, full) for n, full in zip(leading, shape, strict=False))


def _ready_made(implementation: str, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    if implementation not in ("sdpa", "eager"):
        raise ValueError(
            f'attn_implementation="{implementation}" only takes an attention_mask of shape (batch, length): use '
            '"sdpa" for one with four dimensions'
        )
    dtype = hidden_states.dtype
    if attention_mask.is_floating_point():
        return attention_mask.to(dtype)
    keep = attention_mask.bool()
    return keep if implementation == "sdpa" else ~keep * torch.tensor(torch.finfo(dtype).min, dtype=dtype)
