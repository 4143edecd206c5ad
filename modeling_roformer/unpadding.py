"""Batches of mixed length without their padding: one row of tokens, each text attending to itself alone.

Linear layers and norms see every token by itself, so they need no padding; attention goes text by text. At a quarter of
real tokens that is about a quarter of the work.

Dimensions in the shapes: b batch, s sequence length, n tokens of all texts together, h heads, d head_dim.
"""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from .configuration import RoFormerConfig
from .input_checks import can_be_read


class Packing:
    """Where each token of a padded batch lies in the packed one.

    Texts are packed in the order of their lengths, so that those of one length lie side by side and go through
    attention together. It takes the mask's place in the layers.

    Args:
        attention_mask: shape (b, s), not 0 for tokens, at least one in each row and anywhere in it.

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
        self.buckets = list(zip(count.tolist(), length.tolist(), strict=True))  # texts of one length, and that length
        self.max_length = self.buckets[-1][1]

    def pack(self, padded: torch.Tensor) -> torch.Tensor:
        """Shape (b or 1, s, …) to (1, n, …)."""
        return padded.expand(self.batch_shape[0], *padded.shape[1:])[self.rows, self.columns][None]

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """Shape (1, n, …) to (b, s, …), with zeros for the padding."""
        padded = packed.new_zeros(*self.batch_shape, *packed.shape[2:])
        return padded.index_put((self.rows, self.columns), packed[0])

    def by_length(self, *tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
        """Tensors of shape (1, n, …), those of all texts of one length after the other: shape (texts, length, …)."""
        sizes = [count * length for count, length in self.buckets]
        for shape, *parts in zip(self.buckets, *(x.split(sizes, dim=1) for x in tensors), strict=True):
            yield [part[0].unflatten(0, shape) for part in parts]

    def attend(self, attention, module, query, key, value, **kwargs) -> torch.Tensor:
        """Attention of each text to itself, by one of transformers' functions.

        Args:
            attention: the function; one for flash attention takes all texts in one call, others one length a call.
            query, key, value: shape (1, h, n, d).

        Returns:
            Shape (1, n, h, d).
        """
        if "flash" in module.config._attn_implementation:
            return attention(
                module,
                query,
                key,
                value,
                None,
                cu_seq_lens_q=self.cu_seqlens,
                cu_seq_lens_k=self.cu_seqlens,
                max_length_q=self.max_length,
                max_length_k=self.max_length,
                **kwargs,
            )[0]
        sizes = [count * length for count, length in self.buckets]
        outputs = []
        for (count, length), *parts in zip(
            self.buckets, *(x.split(sizes, dim=2) for x in (query, key, value)), strict=True
        ):
            texts = (x.transpose(1, 2).reshape(count, length, *x.shape[1::2]).transpose(1, 2) for x in parts)
            outputs.append(attention(module, *texts, None, **kwargs)[0].flatten(0, 1))
        return torch.cat(outputs)[None]


def can_be_unpadded(
    config: RoFormerConfig, implementation: str, attention_mask: torch.Tensor | None, shape: tuple[int, int]
) -> bool:
    """Whether a batch of that shape has padding to leave out, and all that is read comes out the same without it.

    A text that starts with padding is not unpadded, since classification heads and poolers read its first position.
    UniLM's mask, relative positions and flex attention are not made for packed texts, eager attention is causal by its
    mask alone, chunks of the feed-forward layer must divide the number of tokens, and compilers need shapes that do not
    depend on what a mask holds.
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
    """The mask of what a decoder has to read for labels of shape (b, t), of which -100 is none; it sees nothing later.

    ```python
    >>> up_to_last_label(torch.tensor([[7, -100, 8, -100]]))
    tensor([[True,  True,  True, False]])
    ```
    """
    return (labels != -100).flip(1).cummax(dim=1).values.flip(1)


def reads_padding(attention_mask: torch.Tensor | None, labels: torch.Tensor) -> bool:
    """Whether a label lies on padding: it is predicted from a hidden state that unpadding leaves out.

    Args:
        attention_mask: shape (b, s), 0 for padding; one of another shape is never unpadded.
        labels: of each token, shape (b, s), -100 for none.
    """
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.shape != labels.shape or not can_be_read(labels):
        return False
    return bool(((labels != -100) & (attention_mask == 0).to(labels.device)).any())
