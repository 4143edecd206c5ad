"""Which token sees which: bidirectional, causal, and UniLM's prefix mask.

The masks are made by transformers, in the form that each attention implementation takes.

Dimensions in the shapes: b batch, s sequence length, k length of the keys (those in the cache included).
"""

import copy
from typing import NamedTuple

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from .configuration import RoFormerConfig
from .input_checks import can_be_read, check_is_tensor


def implementation_for(config: RoFormerConfig, output_attentions: bool | None) -> str:
    """The attention implementation of one call: eager where the matrices are asked for, since no other has them."""
    return "eager" if output_attentions else config._attn_implementation


def check_has_softmax(config: RoFormerConfig, implementation: str | None) -> None:
    """Raises a ValueError where a kernel for softmax attention is asked for by name, and nothing in the model has it."""
    has_softmax = config.attention_type == "softmax" or config.add_cross_attention
    if not has_softmax and implementation is not None and ("flash" in implementation or "flex" in implementation):
        raise ValueError(
            f'attn_implementation="{implementation}" is for softmax attention, and this model has attention_type="linear", '
            "which needs none: leave it out"
        )


def check_implementation(
    config: RoFormerConfig, implementation: str, hidden_states: torch.Tensor, training: bool
) -> None:
    """Refuses, in one sentence, what an implementation cannot compute, before anything is computed."""
    if implementation == "flex_attention":
        if hidden_states.device.type == "cpu":
            # torch 2.13, narrow heads: NaN in one call, 2e-2 off in the next, right in most.
            raise ValueError(
                'attn_implementation="flex_attention" gives wrong results on a CPU, and no gradients: use "sdpa" there'
            )
        if training and config.attention_probs_dropout_prob > 0:
            raise ValueError(
                'attn_implementation="flex_attention" has no dropout: set attention_probs_dropout_prob to 0 for '
                'training, or use "sdpa"'
            )
    if "flash" in implementation:
        if config.prefix_lm:
            raise ValueError(f'attn_implementation="{implementation}" has no prefix mask (prefix_lm): use "sdpa"')
        if hidden_states.dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(
                f'attn_implementation="{implementation}" computes in float16 or bfloat16, but the model is in '
                f'{str(hidden_states.dtype).removeprefix("torch.")}: load it with dtype="bfloat16", or use "sdpa"'
            )


class VisibleKeys(NamedTuple):
    """The mask of linear attention, which has no pairs of a query and a key to mask.

    keep: which of the keys are not padding, boolean, shape (b, s), or None for all.
    groups: for `prefix_lm`, integers that never fall along a text, shape (b, s): a token sees those whose number is not
        above its own. None where a token sees those up to itself, or all.
    """

    keep: torch.Tensor | None
    groups: torch.Tensor | None


def self_attention_mask(
    config: RoFormerConfig,
    implementation: str,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None = None,
    past_key_values: Cache | None = None,
    whole: bool | None = None,
) -> "torch.Tensor | VisibleKeys | None":
    """The mask of self-attention in the form that an implementation takes; None where all see all that they may.

    Args:
        hidden_states: shape (b, s, hidden_size).
        attention_mask: None; or shape (b, k), not 0 for tokens that are attended to; or shape (b or 1, h or 1, s or 1, k),
            boolean (True for what is attended to) or floating (added to the scores), which replaces the mask.
        token_type_ids: segments, shape (b, s); read by `prefix_lm` only, all 0 where None.
        whole: whether `attention_mask` attends to all (see `attends_to_all`); None where that is not known.

    Raises:
        ValueError: for any other shape.
    """
    if implementation != "flex_attention":  # which takes a BlockMask, too
        check_is_tensor("attention_mask", attention_mask)
    b, s = hidden_states.shape[:2]
    past = 0 if past_key_values is None else past_key_values.get_seq_length()
    if config.attention_type == "linear" and attention_mask is not None and getattr(attention_mask, "ndim", 0) != 2:
        raise ValueError(
            f'attention_type="linear" has no pairs of tokens to mask, and takes an attention_mask of shape ({b}, {s + past}) '
            "alone: 0 for padding"
        )
    if isinstance(attention_mask, torch.Tensor):
        # A cache of fixed size has a mask of its own length, and counts its tokens in a tensor.
        fixed = getattr(past_key_values, "is_compileable", False)
        if attention_mask.ndim == 4 and (
            fixed or _broadcasts(attention_mask, (b, config.num_attention_heads, s, s + past))
        ):
            return _ready_made(implementation, hidden_states, attention_mask)
        if attention_mask.ndim != 2 or (not fixed and attention_mask.shape != (b, s + past)):
            raise ValueError(
                f"attention_mask has shape {tuple(attention_mask.shape)}, but the input needs ({b}, {s + past}) "
                f"or ({b}, 1, {s}, {s + past})"
            )
    elif attention_mask is not None:  # a flex BlockMask
        return attention_mask
    if config.attention_type == "linear":
        return _visible_keys(config, attention_mask, token_type_ids, (b, s), hidden_states.device, whole)
    config = _with_implementation(config, implementation)
    attention_mask = None if whole else attention_mask
    # Not left to transformers, which would read the mask to find out: under vmap and on the meta device it cannot.
    can_be_skipped = attention_mask is None
    if config.prefix_lm:
        return create_causal_mask(
            config, hidden_states, attention_mask, past_key_values, or_mask_function=_prefix(token_type_ids, b, s, past)
        )
    if config.is_decoder:
        return create_causal_mask(
            config, hidden_states, attention_mask, past_key_values, allow_is_causal_skip=can_be_skipped
        )
    if attention_mask is None:
        return None
    return create_bidirectional_mask(config, hidden_states, attention_mask, allow_is_bidirectional_skip=can_be_skipped)


def cross_attention_mask(
    config: RoFormerConfig,
    implementation: str,
    hidden_states: torch.Tensor,
    encoder_attention_mask: torch.Tensor | None,
    encoder_hidden_states: torch.Tensor,
    whole: bool | None = None,
) -> torch.Tensor | None:
    """The mask of cross-attention, from an `encoder_attention_mask` of shape (b, k); `whole` as in self-attention's."""
    if encoder_attention_mask is None or whole:
        return None
    return create_bidirectional_mask(
        _with_implementation(config, implementation),
        hidden_states,
        encoder_attention_mask,
        encoder_hidden_states=encoder_hidden_states,
        allow_is_bidirectional_skip=False,
    )


def attends_to_all(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """Whether a mask of shape (b, k) leaves nothing out, as a scalar yet to be read; None for other masks."""
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.ndim != 2 or not can_be_read(attention_mask):
        return None
    return (attention_mask != 0).all()


def _visible_keys(
    config: RoFormerConfig,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    shape: tuple[int, int],
    device: torch.device,
    whole: bool | None,
) -> VisibleKeys | None:
    """The mask of linear attention; what is in the cache has been added up without its padding."""
    keep = None if attention_mask is None or whole else attention_mask[:, -shape[1] :] != 0
    groups = None
    if config.prefix_lm:
        segments = torch.zeros(shape, dtype=torch.long, device=device) if token_type_ids is None else token_type_ids
        groups = segments.cumsum(dim=1)  # see `_prefix`
    return None if keep is None and groups is None else VisibleKeys(keep, groups)


def _with_implementation(config: RoFormerConfig, implementation: str) -> RoFormerConfig:
    if config._attn_implementation == implementation:
        return config
    config = copy.copy(config)
    config._attn_implementation = implementation
    return config


def _prefix(token_type_ids: torch.Tensor | None, b: int, s: int, past: int):
    """What UniLM's mask adds to the causal one: i sees j where Σ_{t≤j} segment_t ≤ Σ_{t≤i} segment_t, so that a run of
    segment 0 sees itself whole. What is in the cache lies before i, and is seen anyway."""
    if token_type_ids is None:
        return lambda batch_idx, head_idx, q_idx, kv_idx: (kv_idx >= past) & (kv_idx < past + s)
    group = token_type_ids.cumsum(dim=1)

    def prefix(batch_idx, head_idx, q_idx, kv_idx):
        q, k = q_idx - past, kv_idx - past
        inside = (k >= 0) & (k < s)
        return inside & (group[batch_idx, k.clamp(0, s - 1)] <= group[batch_idx, q.clamp(0, s - 1)])

    return prefix


def _broadcasts(attention_mask: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a mask of four dimensions is one for scores of that shape, (b, h, s, k)."""
    *leading, k = attention_mask.shape
    return k == shape[-1] and all(n in (1, full) for n, full in zip(leading, shape, strict=False))


def _ready_made(implementation: str, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    if implementation not in ("sdpa", "eager"):
        raise ValueError(
            f'attn_implementation="{implementation}" only takes an attention_mask of shape (batch, length); '
            'use "sdpa" for one of four dimensions'
        )
    dtype = hidden_states.dtype
    if attention_mask.is_floating_point():
        return attention_mask.to(dtype)
    keep = attention_mask.bool()
    return keep if implementation == "sdpa" else torch.where(keep, 0.0, torch.finfo(dtype).min).to(dtype)
