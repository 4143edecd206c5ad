"""Optimizer with Muon for the matrices of the layers and AdamW for all other parameters."""

from collections.abc import Collection

import torch
from torch import nn


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for the weights of linear layers in the encoder, AdamW for the rest: embeddings, the
    MLM head, norms and biases.

    Muon's update is the momentum with equal singular values. It is scaled to the size of AdamW's updates
    (arXiv:2502.16982), so that both use one learning rate.

    Args:
        model: its parameters that need a gradient are trained.
        decayed: names of the parameters with weight decay.
        lr, weight_decay: for both.
        betas, eps: for AdamW.
    """

    def __init__(
        self,
        model: nn.Module,
        decayed: Collection[str],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
    ):
        named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        weights = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
        matrices, groups = [], [{"params": [], "weight_decay": weight_decay}, {"params": [], "weight_decay": 0.0}]
        for name, parameter in named.items():
            if ".encoder." in name and id(parameter) in weights:
                matrices.append(parameter)
            else:
                groups[name not in decayed]["params"].append(parameter)
        self.parts = [torch.optim.AdamW([group for group in groups if group["params"]], lr, betas, eps)]
        if matrices:
            self.parts.append(torch.optim.Muon(matrices, lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"))
        super().__init__(self._groups(), {})

    def _groups(self) -> list[dict]:
        """Return the groups of both optimizers themselves, so that a scheduler changes the ones that they read."""
        return [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = self._groups()
