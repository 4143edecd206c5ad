"""What linear attention keeps from one step of generation to the next: two sums a layer, of constant size."""

from collections.abc import Callable

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from .configuration import RoFormerConfig
from .linear_state import RunningSums


class LinearAttentionLayerCache(CacheLayerMixin):
    """The sums of one layer over all tokens so far, in `sums`; None before the first."""

    is_compileable = False
    supports_early_init = False

    def __init__(self):
        super().__init__()
        self.reset()

    def extend(self, sums: RunningSums, tokens: int) -> None:
        """Take the sums over so many more tokens."""
        self.sums, self.length = sums, self.length + tokens
        self.is_initialized = True

    def reset(self) -> None:
        self.sums: RunningSums | None = None
        self.length = 0
        self.is_initialized = False

    def get_seq_length(self) -> int:
        """How many tokens have been added up."""
        return self.length

    def get_max_length(self) -> int:
        return -1  # there is none

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Let text i go on from what text `beam_idx[i]` was."""
        self._replace(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._replace(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._replace(lambda x: x[indices.to(x.device)])

    @property
    def is_croppable(self) -> bool:
        return False

    def crop(self, tokens_to_remove: int) -> None:
        """Raises a ValueError: what has been added up cannot be told apart."""
        raise ValueError(
            "a model with linear attention keeps sums over all tokens, from which none can be taken back: begin again "
            "with a new cache, and leave out assisted decoding and prompt_lookup_num_tokens"
        )

    def update(self, *args, **kwargs):
        raise ValueError("linear attention keeps sums, not keys and values")

    def lazy_initialization(self, *args, **kwargs) -> None:
        """Nothing to prepare."""

    def offload(self) -> None:
        """Nothing worth it: the sums of a layer are no larger than one of its weights."""

    def prefetch(self) -> None:
        """See `offload`."""

    def _replace(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        if self.sums is not None:
            self.sums = RunningSums(*(None if x is None else change(x) for x in self.sums))


class LinearAttentionCache(Cache):
    """transformers' `Cache` for a decoder with linear attention, whose size does not depend on the length of the text.

    Made by the model where `use_cache` is set, and by `generate()`. Passed on from call to call it is changed in place.
    """

    def __init__(self, config: RoFormerConfig):
        super().__init__(layers=[LinearAttentionLayerCache() for _ in range(config.num_hidden_layers)])
