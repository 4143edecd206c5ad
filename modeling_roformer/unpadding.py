"""Batches of texts of different lengths without padding: all tokens in one row, and attention within each text.

Linear layers and norms treat each token on its own, so they need no padding. If a quarter of a batch is tokens and the
rest padding, the work shrinks to about a quarter.

Dimensions in the shapes: b batch, s sequence length, n tokens of all texts together, h heads, d head_dim.
"""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from .configuration import RoFormerConfig
from .input_checks import can_be_read


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
        rows, self.columns = keep[order].nonzero(as_tuple=True)
        self.rows = order[rows]
        self.cu_seqlens = F.pad(lengths.cumsum(dim=0), (1, 0)).to(torch.int32)
        length, count = lengths.unique_consecutive(return_counts=True)
        self.buckets = list(zip(count.tolist(), length.tolist(), strict=True))  # number of texts, length
        self.max_length = self.buckets[-1][1]

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
            yield [part[0].unflatten(0, shape) for part in parts]

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


def can_be_unpadded(
    config: RoFormerConfig, implementation: str, attention_mask: torch.Tensor | None, shape: tuple[int, int]
) -> bool:
    """Return whether a batch of that shape has padding that can be removed without changing what is read of the output.

    False if a text starts with padding (classification heads and poolers read the first position), with UniLM's mask or
    flex attention (neither takes packed texts), in an eager decoder (only its mask makes it causal), with chunks of the
    feed-forward layer (they must divide the number of tokens), and in a compiler (shapes must not depend on values).
    """
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.shape != shape or not can_be_read(attention_mask):
        return False
    if implementation == "eager" and config.is_decoder and config.attention_type == "softmax":
        return False
    if config.prefix_lm or config.chunk_size_feed_forward or implementation == "flex_attention":
        return False
    keep = attention_mask != 0
    return bool(keep[:, 0].all() & ~keep.all())


def up_to_last_label(labels: torch.Tensor) -> torch.Tensor:
    """Return a mask that keeps each row up to its last label; -100 means no label. Labels have the shape (b, t).

    ```python
    >>> up_to_last_label(torch.tensor([[7, -100, 8, -100]]))
    tensor([[True,  True,  True, False]])
    ```
    """
    return (labels != -100).flip(1).cummax(dim=1).values.flip(1)


def reads_padding(attention_mask: torch.Tensor | None, labels: torch.Tensor) -> bool:
    """Return whether a label lies on padding, where unpadding would leave out the hidden state that predicts it.

    Args:
        attention_mask: shape (b, s), 0 for padding; a mask of another shape is never unpadded.
        labels: one per token, shape (b, s), -100 for none.
    """
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.shape != labels.shape or not can_be_read(labels):
        return False
    return bool(((labels != -100) & (attention_mask == 0).to(labels.device)).any())
