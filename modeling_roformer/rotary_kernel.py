"""Rotation of query and key by one Triton kernel, for NVIDIA GPUs: each is read once and written once.

The complex form of rotary.py starts a kernel for each cast and each product, and writes float32 copies between them.
Here, too, products are formed in float32 and rounded once, to the dtype of the input.

No model uses the kernel unless `use_rotary_kernel` is called: it has run in Triton's interpreter only, on no GPU yet.
Triton comes with torch for CUDA.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim, which is even.
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportIndexIssue=false
from functools import cache

import torch
from torch.autograd.forward_ad import unpack_dual
from torch.utils._python_dispatch import _get_current_dispatch_mode

from . import rotary
from .inputs import is_traced, is_transformed

try:
    import triton
    from triton import language as tl
except ImportError:
    triton = None

DEVICE = "cuda"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
BLOCK = 2048  # elements of query and of key in one program

if triton is not None:

    @triton.jit
    def rotate_heads(x, out, head_stride, dim_stride, cos, sin, h, d, HEADS: tl.constexpr, WIDTH: tl.constexpr):
        """Rotate HEADS of the heads of one token."""
        heads = (tl.program_id(1) * HEADS + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        dims = tl.arange(0, WIDTH).to(tl.int64)[None, :]
        inside = (heads < h) & (dims < d)
        loaded = tl.load(x + heads * head_stride + dims * dim_stride, mask=inside).to(tl.float32)
        even, odd = tl.split(loaded.reshape(HEADS, WIDTH // 2, 2))
        rotated = tl.join(even * cos - odd * sin, odd * cos + even * sin).reshape(HEADS, WIDTH)
        tl.store(out + heads * d + dims, rotated, mask=inside)

    @triton.jit
    def rotate_token(
        query,
        key,
        rotation,
        query_out,
        key_out,
        query_strides,
        key_strides,
        rotation_strides,
        direction,
        s,
        h,
        d,
        HEADS: tl.constexpr,
        WIDTH: tl.constexpr,
    ):
        """Rotate query and key of one token by `direction` times its angles, into contiguous tensors."""
        token = tl.program_id(0)
        text, place = (token // s).to(tl.int64), (token % s).to(tl.int64)  # int64 as tensors may exceed 2^31 elements
        pairs = tl.arange(0, WIDTH // 2).to(tl.int64)
        rotation += text * rotation_strides[0] + place * rotation_strides[1] + pairs * rotation_strides[3]
        cos = tl.load(rotation, mask=pairs < d // 2)
        sin = tl.load(rotation + rotation_strides[4], mask=pairs < d // 2) * direction
        query += text * query_strides[0] + place * query_strides[1]
        key += text * key_strides[0] + place * key_strides[1]
        query_out += token.to(tl.int64) * h * d
        key_out += token.to(tl.int64) * h * d
        rotate_heads(query, query_out, query_strides[2], query_strides[3], cos, sin, h, d, HEADS, WIDTH)
        rotate_heads(key, key_out, key_strides[2], key_strides[3], cos, sin, h, d, HEADS, WIDTH)


class Rotation(torch.autograd.Function):
    """Product of query and key with R(m), or with its inverse for direction −1: each is the other's gradient."""

    @staticmethod
    def forward(ctx, query, key, rotation, direction):
        ctx.save_for_backward(rotation)
        ctx.direction = direction
        b, s, h, d = query.shape
        width = triton.next_power_of_2(d)
        heads = min(triton.next_power_of_2(h), max(BLOCK // width, 1))
        outs = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key)]
        rotation = rotation.expand(b, s, 1, d // 2, 2)  # stride 0 where texts share positions
        strides = [x.stride() for x in (query, key, rotation)]
        with torch.cuda.device_of(query):  # Triton launches on the current device
            grid = (b * s, triton.cdiv(h, heads))
            rotate_token[grid](query, key, rotation, *outs, *strides, direction, s, h, d, HEADS=heads, WIDTH=width)
        return tuple(outs)

    @staticmethod
    def backward(ctx, query_gradient, key_gradient):
        return *Rotation.apply(query_gradient, key_gradient, *ctx.saved_tensors, -ctx.direction), None, None


@cache
def works_on(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the kernel compiles and launches there, and computes what complex numbers do, on one token."""
    if triton is None or torch.version.hip:
        return False
    x = torch.linspace(-1, 1, 24, device=device, dtype=dtype).view(1, 1, 4, 6)
    rotation = x.float().view(4, 3, 2)[:1].view(1, 1, 1, 3, 2)
    expected = torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * torch.view_as_complex(rotation)
    try:
        found, _ = Rotation.apply(x, x, rotation, 1.0)
        return torch.allclose(found.float(), torch.view_as_real(expected).flatten(-2), atol=0.02)
    except Exception:  # there is no C compiler, or Triton does not know the GPU or its driver
        return False


def rotate_by_kernel(
    query: torch.Tensor, key: torch.Tensor, rotation: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Multiply every head's query and key by R(m) of its position (equation 34), in one launch.

    Args:
        query, key: shape (b, s, h, d), of any strides.
        rotation: cosines and sines in the last dimension, float32, shape (b or 1, s, 1, d / 2, 2).

    Returns:
        Two contiguous tensors of the shape and dtype of query and key; or None where the complex form is to compute
        them: on other devices, in float64, where torch follows or transforms its own operations, for trained
        frequencies, and where the kernel does not work.
    """
    if is_traced() or is_transformed() or _get_current_dispatch_mode() is not None:
        return None
    tensors = (query, key, rotation)
    if any(type(x) is not torch.Tensor or x.device != query.device for x in tensors):
        return None
    if query.device.type != DEVICE or query.dtype not in DTYPES or (query.dtype, query.shape) != (key.dtype, key.shape):
        return None
    if rotation.requires_grad or any(unpack_dual(x).tangent is not None for x in tensors):
        return None
    return Rotation.apply(*tensors, 1.0) if works_on(query.device, query.dtype) else None


def use_rotary_kernel(use: bool = True) -> None:
    """Turn the kernel on or off, for all models of this process. Where it cannot be used, nothing changes.

    ```python
    >>> use_rotary_kernel()
    >>> model = RoFormerModel.from_pretrained(folder, dtype=torch.bfloat16).to("cuda")
    ```
    """
    rotary.rotate_by_kernel = rotate_by_kernel if use else None
