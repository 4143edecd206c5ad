"""The flash attention that is part of torch, as an attention implementation: it needs no package besides.

transformers' "flash_attention_2" needs `flash_attn`, which must be compiled, or kernels from the Hub.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

NAME = "torch_flash"


def attend(
    module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    max_length_q: int = 0,
    max_length_k: int = 0,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Compute attention of texts of one length, or of packed texts, whose ends are in `cu_seq_lens`."""
    if attention_mask is not None:
        raise ValueError("padding must be left out: this kernel takes no mask")
    causal = module.is_causal and query.shape[2] > 1
    if cu_seq_lens_q is None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = scaled_dot_product_attention(query, key, value, None, dropout, is_causal=causal, scale=scaling)
        return out.transpose(1, 2), None
    query, key, value = (x.transpose(1, 2)[0].contiguous() for x in (query, key, value))
    # What torch.nn.attention.varlen.varlen_attn calls, which has no dropout, and before torch 2.12 no scale.
    out, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k, dropout, causal, False,
        scale=scaling,
    )  # fmt: skip
    return out[None], None


def register() -> str:
    """Register it with transformers, and return its name."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
    return NAME
