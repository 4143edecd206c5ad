"""Rotary position embedding (RoPE): equations 12 to 16 and 34 of the RoFormer paper (arXiv:2104.09864).

This is the only place where positions enter. A query or key at position m is multiplied by the block-diagonal rotation
matrix of equation 15,

    R(m) = diag(R_1, …, R_{d/2}),   R_i = [[cos m·θ_i, −sin m·θ_i],
                                           [sin m·θ_i,  cos m·θ_i]],   θ_i = 10000^(−2(i−1)/d),

so that the product of a query at m and a key at n depends only on n − m (equation 16): R(m)ᵀ R(n) = R(n − m). The pairs
are dimensions (1, 2), (3, 4), … ("interleaved"), as in the original.

Dimensions in the shapes: b batch, s sequence length, h heads, d head_dim.
"""

import torch

THETA = 10000.0


def inverse_frequencies(head_dim: int, theta: float = THETA, device: torch.device | str | None = None) -> torch.Tensor:
    """Return θ_1, …, θ_{d/2} of equation 15, float64, shape (head_dim / 2,), in radians per position."""
    if device is not None and torch.device(device).type == "mps":  # has no float64
        device = "cpu"
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
    return 1.0 / torch.pow(theta, exponents)


def rotary_position_embeddings(position_ids: torch.Tensor, inv_freq: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute cosine and sine of the angles m·θ_i of equation 15, rounded once, to float32, whatever the model's dtype.

    Angles are computed in float64 for the given positions: there is no table and so no maximum length, and no drift
    with the position (in float32, angles at position 1,500 are off by up to 6e-5). A buffer would be garbage after
    `from_pretrained`, which creates modules on the meta device.

    Args:
        position_ids: integer positions, shape (b, s), or (1, s) if all texts share them.
        inv_freq: the frequencies, shape (d / 2,), or (b, d / 2) or (b, s, d / 2) if texts differ.

    Returns:
        cos and sin, float32, each of shape (b or 1, s, 1, d / 2): ready to multiply (b, s, h, d / 2).

    ```python
    >>> cos, sin = rotary_position_embeddings(torch.tensor([[0, 1, 2]]), inverse_frequencies(head_dim=4))
    >>> cos[0, :, 0]
    tensor([[ 1.0000,  1.0000],
            [ 0.5403,  0.9999],
            [-0.4161,  0.9998]])
    ```
    """
    device = position_ids.device
    if device.type == "mps":  # has no float64
        position_ids = position_ids.cpu()
    inv_freq = inv_freq.to(device=position_ids.device, dtype=torch.float64)
    inv_freq = inv_freq[:, None] if inv_freq.ndim == 2 else inv_freq
    angles = (position_ids.to(torch.float64)[..., None] * inv_freq)[..., None, :]
    # ONNX Runtime before 1.29 computes sines in float64, but no cosines: cos x = 1 − 2 sin² (x / 2).
    cos = 1 - 2 * (angles / 2).sin() ** 2 if torch.compiler.is_exporting() else angles.cos()
    return cos.to(device=device, dtype=torch.float32), angles.sin().to(device=device, dtype=torch.float32)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Multiply every head's vector by R(m) of its position (equation 34).

    Args:
        x: queries, keys or values, shape (b, s, h, d).
        cos, sin: from `rotary_position_embeddings`.

    Returns:
        A tensor of the shape and dtype of x. In half precision the products are formed in float32 and rounded once.
    """
    pairs = x.unflatten(-1, (-1, 2))  # (b, s, h, d / 2, 2)
    if x.device.type in ("cpu", "cuda") and not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
        # Equations 12 and 13: a pair is a complex number, and its rotation the product with e^(i·m·θ). One kernel is
        # several times faster than the five of the real form. Compilers fuse those, and cannot export complex numbers.
        pairs = pairs if x.dtype == torch.float64 else pairs.float()
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * torch.complex(cos, sin))
    else:
        even, odd = pairs.unbind(-1)  # x_1, x_3, … and x_2, x_4, …
        rotated = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return rotated.flatten(-2).to(x.dtype)
