"""Batches of texts of different lengths without padding: all tokens in one row, and attention within each text.

Linear layers and norms treat each token on its own, so they need no padding. If a quarter of a batch is tokens and the
rest padding, the work shrinks to about a quarter.

Dimensions in the shapes: b batch, s sequence length, n tokens of all texts together, h heads, d head_dim.
"""

from collections.abc import Iterator
from itertools import groupby

import torch
from torch.nn import functional as F

from .configuration import RoFormerConfig
from .input_checks import can_be_read

# Padding per text, times hidden_size², from which on packed texts are faster: 8 tokens at width 256, 1 at 768.
LEAST_SAVED = 2**19


class Packing:
    """The position of each token of a padded batch in the packed one.

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
        known = lengths.tolist()  # the only values that the host waits for
        rows, self.columns = torch.nonzero_static(keep[order], size=sum(known)).unbind(1)
        self.rows = order[rows]
        self.cu_seqlens = F.pad(lengths.cumsum(dim=0), (1, 0)).to(torch.int32)
        self.buckets = [(len(list(texts)), length) for length, texts in groupby(known)]  # number of texts, length
        self.max_length = known[-1]

    def pack(self, padded: torch.Tensor) -> torch.Tensor:
        """Pack shape (b or 1, s, …) to (1, n, …)."""
        return padded.expand(self.batch_shape[0], *padded.shape[1:])[self.rows, self.columns][None]

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """Unpack shape (1, n, …) to (b, s, …), with zeros for the padding."""
        padded = packed.new_zeros(*self.batch_shape, *packed.shape[2:])
        return padded.index_put((self.rows, self.columns), packed[0])

    def by_length(self, *tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
        """Yield tensors of shape (1, n, …) in groups of texts of equal length: shape (texts, length, …)."""
        sizes = [count * length for count, length in self.buckets]
        for shape, *parts in zip(self.buckets, *(x.split(sizes, dim=1) for x in tensors), strict=True):
            yield [part.reshape(*shape, *part.shape[2:]) for part in parts]

    def attend(self, attention, module, query, key, value, **kwargs) -> torch.Tensor:
        """Compute attention within each text by one of transformers' functions.

        Args:
            attention: the function; flash attention takes all texts in one call, others those of one length per call.
            query, key, value: shape (1, h, n, d).

        Returns:
            Shape (1, n, h, d).
        """
        if "flash" in module.config._attn_implementation:
            kwargs |= {"cu_seq_lens_q": self.cu_seqlens, "cu_seq_lens_k": self.cu_seqlens}
            kwargs |= {"max_length_q": self.max_length, "max_length_k": self.max_length}
            return attention(module, query, key, value, None, **kwargs)[0]
        outputs = []
        for texts in self.by_length(*(x.transpose(1, 2) for x in (query, key, value))):
            texts = (x.transpose(1, 2) for x in texts)
            outputs.append(attention(module, *texts, None, **kwargs)[0].flatten(0, 1))
        return torch.cat(outputs)[None]


def can_pack(config: RoFormerConfig, implementation: str) -> bool:
    """Return whether the layers can compute packed texts.

    False with UniLM's mask or flex attention (neither takes packed texts), in an eager decoder (only its mask makes it
    causal), and with chunks of the feed-forward layer (they must divide the number of tokens).
    """
    if implementation == "eager" and config.is_decoder and config.attention_type == "softmax":
        return False
    return not (config.prefix_lm or config.chunk_size_feed_forward or implementation == "flex_attention")


def is_faster_packed(
    config: RoFormerConfig, implementation: str, device: torch.device, padding: int, texts: int
) -> bool:
    """Return whether to leave out that many tokens of padding saves more time than a call of attention per text costs.

    Otherwise, and on a device other than a CPU, only a kernel that takes all texts in one call is sure to gain.
    """
    if "flash" in implementation:
        return True
    # A token costs a multiple of the square of the width. The bound is measured by benchmarks/padding.py.
    return device.type == "cpu" and padding * config.hidden_size**2 >= LEAST_SAVED * texts


def unread_padding(attention_mask: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
    """Return where nothing reads the hidden states of padding, boolean, shape (b, s).

    They are read of a text that begins with padding, by classification heads and poolers, and where padding has a label.

    Args:
        attention_mask: shape (b, s), 0 for padding.
        labels: one per token, shape (b, s), -100 for none.
    """
    is_padding = attention_mask == 0
    is_unread = is_padding & ~is_padding[:, :1]
    return is_unread if labels is None else is_unread & (labels == -100).to(is_unread.device)


def zero_padding(
    hidden_states: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor | None = None
) -> torch.Tensor:
    """Return hidden states (b, s, hidden_size) with 0 at padding, as `Packing.unpack` does, unless it is read (see
    `unread_padding`)."""
    is_unread = unread_padding(attention_mask, labels).to(hidden_states.device)
    return hidden_states.masked_fill(is_unread[..., None], 0)


def up_to_last_label(labels: torch.Tensor) -> torch.Tensor:
    """Return a mask that keeps each row up to its last label; -100 means no label. Labels have the shape (b, t).

    ```python
    >>> up_to_last_label(torch.tensor([[7, -100, 8, -100]]))
    tensor([[True,  True,  True, False]])
    ```
    """
    return (labels != -100).flip(1).cummax(dim=1).values.flip(1)


def padding_is_read(attention_mask: object, labels: torch.Tensor | None = None) -> torch.Tensor | None:
    """Return whether hidden states of padding are read (see `unread_padding`), as a 0-d tensor, which the caller reads in
    its one device sync. None if the values cannot be read, and for masks of another shape."""
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.ndim != 2 or not can_be_read(attention_mask):
        return None
    if labels is not None and (labels.shape != attention_mask.shape or not can_be_read(labels)):
        return None
    return ((attention_mask == 0) & ~unread_padding(attention_mask, labels)).any()
