"""Dropout that keeps a byte, not a float, for each element until the backward pass."""

import torch
from torch import nn


class Dropout(nn.Dropout):
    """`nn.Dropout`, by the one of torch's two functions whose mask is boolean; on a CPU the other's is floating."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return hidden_states
        return torch.native_dropout(hidden_states, self.p, train=True)[0]
