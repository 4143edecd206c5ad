"""Batches of texts of different lengths without padding: all tokens in one row, and attention within each text.

Linear layers and norms treat each token on its own, so they need no padding. If a quarter of a batch is tokens and the
rest padding, the work shrinks to about a quarter.

Dimensions in the shapes: b batch, s sequence length, n tokens of all texts together, h heads, d head_dim.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import groupby
from typing import Any

import torch
from torch.nn import functional as F
from transformers.cache_utils import Cache

from .inputs import can_be_read, check_shape, is_flash, is_transformed, nonzero

# Least padding per text, times hidden_size², that makes packed texts faster on a CPU: 8 tokens at width 256, 1 at 768.
LEAST_SAVED = 2**19
# Least share of padding in a batch that makes torch's kernel for packed texts faster on a GPU. The bound itself has not
# been measured: `benchmarks/padding.py --device cuda` does so. On an H200 in bfloat16, the kernel took 2 to 10 % longer
# than SDPA where there was no padding, and the whole model 0.41 times as long at 77 % of padding.
LEAST_SHARE = 0.1
signature = cache(inspect.signature)  # every layer calls it


class Packing:
    """The place of each token of a padded batch in the packed batch.

    Texts are sorted by length, so that texts of equal length are adjacent and go through attention together.

    Args:
        attention_mask: shape (b, s), 0 for padding, which may be anywhere; each row has at least one token.

    ```python
    >>> packing = Packing(torch.tensor([[1, 1, 1], [1, 0, 0]]))
    >>> packing.pack(torch.tensor([[5, 6, 7], [8, 0, 0]]))
    tensor([[8, 5, 6, 7]])
    ```
    """

    def __init__(self, attention_mask: torch.Tensor):
        keep = attention_mask != 0
        self.batch_shape = keep.shape
        lengths, order = keep.sum(dim=1).sort(stable=True)
        host_lengths = lengths.tolist()  # the only device sync
        rows, self.columns = nonzero(keep[order], sum(host_lengths)).unbind(1)
        self.rows = order[rows]
        self.cu_seqlens = F.pad(lengths.cumsum(dim=0), (1, 0)).to(torch.int32)
        self.buckets = _buckets(host_lengths)
        self.max_length = host_lengths[-1]

    def pack(self, padded: torch.Tensor) -> torch.Tensor:
        """Pack shape (b or 1, s, …) to (1, n, …)."""
        return padded.expand(self.batch_shape[0], *padded.shape[1:])[self.places_on(padded.device)][None]

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """Unpack shape (1, n, …) to (b, s, …), with zeros for the padding."""
        padded = packed.new_zeros(*self.batch_shape, *packed.shape[2:])
        return padded.index_put(self.places_on(packed.device), packed[0])

    def places_on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the row and the column of each token; a device map may put layers on another GPU than the mask, whose
        indices the backward pass of `index_put` refuses."""
        return self.rows.to(device), self.columns.to(device)

    def by_length(self, *tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
        """Yield tensors of shape (1, n, …) in groups of texts of equal length: shape (texts, length, …)."""
        sizes = [count * length for count, length in self.buckets]
        for shape, *parts in zip(self.buckets, *(x.split(sizes, dim=1) for x in tensors), strict=True):
            yield [part.reshape(*shape, *part.shape[2:]) for part in parts]

    def attend(self, attention, module, query, key, value, **kwargs) -> torch.Tensor:
        """Compute attention within each text by one of transformers' functions.

        Args:
            attention: the function; flash attention takes all texts in one call, others those of one length per call.
                In place of "sdpa", torch's kernel for packed texts takes all of them, where it can.
            query, key, value: shape (1, h, n, d).

        Returns:
            Shape (1, n, h, d).
        """
        dtype = packed_dtype(module.config, query, kwargs["dropout"])
        ends = self.cu_seqlens.to(query.device)
        # These arguments are SDPA's alone.
        if dtype is not None and all(kwargs.get(name) is None for name in ("is_causal", "position_bias", "softcap")):
            query, key, value = (x.transpose(1, 2)[0].to(dtype) for x in (query, key, value))
            longest = int(self.max_length)
            return attend_packed(query, key, value, ends, longest, kwargs["scaling"], module.is_causal)[None]
        if is_flash(module.config._attn_implementation):
            kwargs |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
            kwargs |= {"max_length_q": self.max_length, "max_length_k": self.max_length}
            return attention(module, query, key, value, None, **kwargs)[0]
        outputs = []
        for group in self.by_length(*(x.transpose(1, 2) for x in (query, key, value))):
            by_head = (x.transpose(1, 2) for x in group)
            outputs.append(attention(module, *by_head, None, **kwargs)[0].flatten(0, 1))
        return torch.cat(outputs)[None]


class FlatPacking(Packing):
    """Several texts in a row, without padding, as `DataCollatorWithFlattening` makes them; they keep their order.

    Args:
        source: name of the argument that separates the texts.
        starts: True where a text begins, shape (b, s).
        ends: 0 and the end of each text, shape (texts + 1,), if known.
        max_length: length of the longest text; read from the device if None.
        ends_are_valid: whether `ends` and `max_length` are those of texts in a row of this length, as a 0-d tensor.

    Attributes:
        number_of_texts: in all rows, as a 0-d tensor; None, as `ends_are_valid`, if it cannot be read.
    """

    def __init__(
        self,
        source: str,
        starts: torch.Tensor,
        ends: Any = None,
        max_length: Any = None,
        ends_are_valid: torch.Tensor | None = None,
    ):
        self.source, self.starts, self.cu_seqlens = source, starts, ends
        self.batch_shape = starts.shape
        self.number_of_texts = self.ends_are_valid = None
        if can_be_read(starts):
            self.number_of_texts, self.ends_are_valid = starts.sum(), ends_are_valid
        if max_length is not None:
            self.max_length = max_length

    def check(
        self, number_of_texts: int | None, ends_are_valid: int | None, one_text_per_row: bool | None
    ) -> "FlatPacking | None":
        """Return this packing, or None if each row is one text.

        Args:
            number_of_texts, ends_are_valid: the values of the attributes.

        Raises:
            ValueError: `cu_seq_lens_q` is not valid; or a row has several texts, but only one is allowed.
        """
        b, s = self.batch_shape
        if ends_are_valid == 0:
            raise ValueError(
                f"cu_seq_lens_q must rise from 0 to {s}, the number of tokens, and agree with cu_seq_lens_k and "
                "max_length_q"
            )
        is_unknown = number_of_texts is None and self.source == "position_ids"
        if number_of_texts == b or (one_text_per_row and is_unknown):
            return None
        if one_text_per_row:
            raise ValueError(
                f"{self.source} puts several texts into a row, but this model computes one result per row: pass padded "
                "texts with an attention_mask, of ones if each row is one text"
            )
        if self.cu_seqlens is None and number_of_texts is not None:
            places = nonzero(self.starts.flatten(), number_of_texts).squeeze(1)
            self.cu_seqlens = F.pad(places, (0, 1), value=b * s).to(torch.int32)
        return self

    @cached_property
    def buckets(self) -> list[tuple[int, int]]:
        return _buckets(self.cu_seqlens.diff().tolist())  # the only device sync

    @cached_property
    def max_length(self) -> int:
        return max(length for _, length in self.buckets)

    def pack(self, padded: torch.Tensor) -> torch.Tensor:
        return padded.expand(self.batch_shape[0], *padded.shape[1:]).flatten(0, 1)[None]

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        return packed[0].unflatten(0, self.batch_shape)

    def places(self) -> torch.Tensor:
        """Return the place of each token in its text, shape (b, s)."""
        places = torch.arange(self.starts.shape[1], device=self.starts.device).expand_as(self.starts)
        return places - places.where(self.starts, 0).cummax(dim=1).values

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """Return the largest value in each token's text, shape (b, s), of values of shape (b or 1, s), at least 0."""
        (b, s), text_of_token = self.starts.shape, self.starts.cumsum(dim=1)
        largest = values.new_zeros(b, s + 1).scatter_reduce(1, text_of_token, values.expand(b, s), "amax")
        return largest.gather(1, text_of_token)


def first_kept(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the place of the first token that a mask of shape (b, s) keeps in each row, shape (b,); 0 if it keeps
    none."""
    return (attention_mask != 0).int().argmax(dim=1)


def first_tokens(
    hidden_states: torch.Tensor, attention_mask: Any, flat_packing: FlatPacking | None = None
) -> torch.Tensor:
    """Return the first token of each text, shape (texts, 1, …), of a tensor of shape (b, s, …).

    If rows hold one text each, or the ends of their texts are not known, it is the first token that a mask of shape
    (b, s) keeps in each row. With any other mask, and in a row of padding alone, it is the row's first token.
    """
    if flat_packing is not None and flat_packing.cu_seqlens is not None:
        return hidden_states.flatten(0, 1)[flat_packing.cu_seqlens[:-1].to(hidden_states.device), None]
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.shape != hidden_states.shape[:2]:
        return hidden_states[:, :1]
    first = first_kept(attention_mask).to(hidden_states.device)
    return hidden_states[torch.arange(first.shape[0], device=first.device), first, None]


def texts_in_rows(
    tokens: torch.Tensor,
    cache: Cache | None,
    attention_mask: Any,
    position_ids: torch.Tensor | None,
    can_separate: bool,
    arguments: dict[str, Any],
) -> FlatPacking | None:
    """Return the packing of a call whose rows may hold several texts, unchecked; None if each row is one text.

    `cu_seq_lens_q` or `seq_idx` separates the texts. Otherwise a text begins where a position is 0, if the call has no
    attention mask and no cached tokens.

    Args:
        tokens: shape (b, s, …).
        position_ids: shape (b, s) or (1, s), or None.
        can_separate: False if each row is one text, whatever its positions.
        arguments: the keyword arguments of `DataCollatorWithFlattening`, among others.

    ```python
    >>> ids = torch.tensor([[2, 7, 2, 8, 9]])
    >>> texts_in_rows(ids, None, None, torch.tensor([[0, 1, 0, 1, 2]]), True, {}).starts
    tensor([[ True, False,  True, False, False]])
    ```
    """
    source = next((name for name in ("cu_seq_lens_q", "seq_idx") if arguments.get(name) is not None), "position_ids")
    if arguments.get("cache") is not None:  # pages of continuous batching
        return None
    past = cache.get_seq_length() if isinstance(cache, Cache) else 0
    has_mask_or_cache = attention_mask is not None or isinstance(past, torch.Tensor) or past > 0
    if source == "position_ids" and (has_mask_or_cache or position_ids is None or not can_separate):
        return None
    if has_mask_or_cache or not can_separate:
        raise ValueError(
            f"{source} separates texts without padding and without cached tokens: leave out attention_mask and "
            "past_key_values"
        )
    if source == "cu_seq_lens_q":
        return _texts_by_ends(tokens.shape[:2], arguments)
    if source == "seq_idx":
        check_shape("seq_idx", arguments["seq_idx"], tuple(tokens.shape[:2]))
        return FlatPacking(source, F.pad(arguments["seq_idx"].diff() != 0, (1, 0), value=True))
    assert position_ids is not None
    starts = position_ids[:, 1:] == 0
    return FlatPacking(source, F.pad(starts, (1, 0), value=True).expand(tokens.shape[:2]))


def _texts_by_ends(shape: torch.Size, arguments: dict[str, Any]) -> FlatPacking:
    ends, max_length = arguments["cu_seq_lens_q"], arguments.get("max_length_q")
    if ends.ndim != 1 or len(ends) < 2 or shape[0] != 1:
        raise ValueError(
            f"cu_seq_lens_q has shape {tuple(ends.shape)} for {shape[0]} rows; expected (texts + 1,) for one row, "
            "which holds all texts"
        )
    lengths = ends.diff()
    are_valid = (lengths > 0).all() & (ends[0] == 0) & (ends[-1] == shape[1])
    if arguments.get("cu_seq_lens_k") is not None:
        are_valid = are_valid & (ends == arguments["cu_seq_lens_k"]).all()
    if max_length is not None:
        are_valid = are_valid & (lengths <= max_length).all()
    # `are_valid` is read later, so an end may still lie outside. `torch.isin` would sort from some 40 texts on, and
    # wait.
    is_end = torch.zeros(shape[1] + 1, dtype=torch.bool, device=ends.device)
    starts = is_end.index_fill(0, ends.long().clamp(0, shape[1]), True)[None, :-1]
    return FlatPacking("cu_seq_lens_q", starts, ends.to(torch.int32).contiguous(), max_length, are_valid)


def _buckets(lengths: list[int]) -> list[tuple[int, int]]:
    """Return the number of texts and the length of each run of texts of equal length."""
    return [(len(list(run)), length) for length, run in groupby(lengths)]


@cache
def packed_kernel(device: torch.device) -> Callable | None:
    """Return `torch.nn.attention.varlen.varlen_attn`, attention within packed texts in one call; None on a device other
    than an NVIDIA GPU of compute capability 8.0 or more, and before torch 2.10."""
    has_flash = device.type == "cuda" and not torch.version.hip and torch.backends.cuda.is_flash_attention_available()
    if not has_flash or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


def _lacks_wide_gradients(device: torch.device) -> bool:
    """Return whether FlashAttention has no backward pass for heads of 193 to 224 on a GPU, by the condition of torch's
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: compute capability 8.6 to 8.9, or 12."""
    capability = torch.cuda.get_device_capability(device)
    return (8, 6) <= capability <= (8, 9) or capability[0] == 12


def packed_dtype(config: Any, x: torch.Tensor, dropout: float) -> torch.dtype | None:
    """Return the dtype that `packed_kernel` computes attention in, in place of SDPA; None where it does not.

    Args:
        x: queries, or another tensor with their dtype and device.
        dropout: probability of attention dropout, which the kernel does not have.
    """
    if dropout or packed_kernel(x.device) is None or is_transformed():
        return None
    # Not `x.requires_grad`: the choice is made before the layers too, and perhaps only some of them are trained.
    if 192 < config.head_dim <= 224 and torch.is_grad_enabled() and _lacks_wide_gradients(x.device):
        return None
    has_autocast = torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64  # which autocast leaves alone
    dtype = torch.get_autocast_dtype(x.device.type) if has_autocast else x.dtype
    is_sdpa = config._attn_implementation == "sdpa" and torch.backends.cuda.flash_sdp_enabled()
    takes_heads = config.attention_type == "softmax" and config.head_dim % 8 == 0 and config.head_dim <= 256
    return dtype if is_sdpa and takes_heads and dtype in (torch.float16, torch.bfloat16) else None


def attend_packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_length: int,
    scaling: float,
    is_causal: bool,
) -> torch.Tensor:
    """Compute softmax(q·kᵀ · scaling)·v within each text by `packed_kernel`.

    Args:
        query, key, value: shape (n, h, d), in half precision.
        cu_seqlens: 0 and the end of each text, int32, shape (texts + 1,).
        max_length: length of the longest text.

    Returns:
        Shape (n, h, d).
    """
    kernel: Any = packed_kernel(query.device)
    names = signature(kernel).parameters
    options: dict[str, Any] = {"scale": scaling}
    if "scale" not in names:  # torch 2.10, which divides by √d only
        query, options = query * (scaling * query.shape[-1] ** 0.5), {}
    if "window_size" in names:
        # A window as long as the longest text excludes nothing, and FlashAttention's C++ takes it for none. Without a
        # window, torch from 2.14 on calls cuDNN on compute capability 9 and 10 (torch/nn/attention/varlen.py): it makes
        # a plan, which takes 55 to 70 ms, for each number of tokens, and keeps it.
        options["window_size"] = max_length, 0 if is_causal else max_length
    else:  # torch 2.10
        options["is_causal"] = is_causal
    return kernel(query, key, value, cu_seqlens, cu_seqlens, max_length, max_length, **options)


def is_faster_packed(config: Any, attention_mask: torch.Tensor, padding: int, x: torch.Tensor, dropout: float) -> bool:
    """Return whether leaving out `padding` tokens saves more time than packed attention costs.

    On a GPU, this is sure only with a kernel that takes all texts in one call.

    Args:
        x, dropout: see `packed_dtype`.
    """
    if attention_mask.device.type == "cpu":
        # A token costs a multiple of the square of the width. The bound is measured by benchmarks/padding.py.
        return padding * config.hidden_size**2 >= LEAST_SAVED * len(attention_mask)
    return is_flash(config._attn_implementation) or (
        padding >= LEAST_SHARE * attention_mask.numel() and packed_dtype(config, x, dropout) is not None
    )
