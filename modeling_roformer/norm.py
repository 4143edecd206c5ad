"""Layer norms: BERT's, and RoFormer-V2's without mean, scale and shift (bert4keras' `RoFormerV2`)."""

import torch
from torch import nn

from .configuration import RoFormerConfig


class RMSNorm(nn.Module):
    """x / √(mean(x²) + ε), without parameters."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        wide = hidden_states.float() if hidden_states.dtype in (torch.float16, torch.bfloat16) else hidden_states
        return nn.functional.rms_norm(wide, (wide.shape[-1],), eps=self.eps).to(hidden_states.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


def make_norm(config: RoFormerConfig, size: int) -> nn.Module:
    """Return the norm of the config over a last dimension of `size`."""
    eps = config.layer_norm_eps
    return RMSNorm(eps) if config.norm_type == "rms_norm" else nn.LayerNorm(size, eps)
