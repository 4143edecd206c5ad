"""A stand-in for torch's kernel for packed texts, which needs a GPU: it computes text by text."""

import torch
from torch.nn.functional import scaled_dot_product_attention

HALF = (torch.float16, torch.bfloat16)


def attend_text_by_text(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, scale):
    """Compute attention of shape (n, h, d) in float32, and round it; raise an error for what the kernel refuses."""
    ends = cu_seq_q.tolist()
    lengths = cu_seq_q.diff().tolist()
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32 and cu_seq_q.is_contiguous() and cu_seq_k.is_contiguous()
    assert ends == cu_seq_k.tolist() and ends[0] == 0 and ends[-1] == len(query)
    assert type(max_q) is type(max_k) is int and max_q == max_k >= max(lengths)
    assert query.dtype == key.dtype == value.dtype and query.dtype in HALF
    assert query.ndim == 3 and query.shape == key.shape == value.shape and query.shape[-1] % 8 == 0
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    outputs = []
    for texts in zip(*(x.float().split(lengths) for x in (query, key, value)), strict=True):
        q, k, v = (x.transpose(0, 1) for x in texts)
        outputs.append(scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale).transpose(0, 1))
    return torch.cat(outputs).to(query.dtype)


def pack_any_padding(monkeypatch):
    """Have models leave out any padding that they can: small models gain nothing, and would compute it."""
    monkeypatch.setattr("modeling_roformer.unpadding.LEAST_SAVED", 1)


def use_packed_kernel(monkeypatch, signature="newer"):
    """Have `packed_kernel` return a stand-in on any device, with the signature of torch 2.10 ("older") or of 2.11 and
    later ("newer"). Returns a list of the options of its calls."""
    calls = []

    def older(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):
        calls.append({"is_causal": is_causal})
        return attend_text_by_text(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, None)

    def newer(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)
    ):
        # From torch 2.14 on, it would be computed by cuDNN without a window, or with one that is only causal.
        assert window_size not in ((-1, -1), (-1, 0))
        calls.append({"scale": scale, "window_size": window_size})
        left, right = (-1 if size >= max_k else size for size in window_size)  # as FlashAttention's C++ does
        assert left == -1 and right in (-1, 0)
        is_causal = right == 0
        return attend_text_by_text(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, scale)

    kernel = {"older": older, "newer": newer}[signature]
    monkeypatch.setattr("modeling_roformer.unpadding.packed_kernel", lambda device: kernel)
    pack_any_padding(monkeypatch)
    return calls
