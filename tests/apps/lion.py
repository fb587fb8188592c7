"""Lion (Chen et al., NeurIPS 2023): every element steps by ±lr, so that all magnitudes of a step are equal."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class Lion(torch.optim.Optimizer):
    """x ← x − lr·sign(β_1·m + (1 − β_1)·g), then m ← β_2·m + (1 − β_2)·g."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if (gradient := parameter.grad) is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                parameter.sub_(torch.lerp(gradient, momentum, first).sign(), alpha=group["lr"])
                momentum.lerp_(gradient, 1 - second)
