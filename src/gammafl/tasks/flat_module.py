"""A torch module whose parameters, and whose gradients, are views of one flat vector each.

Loading a model is one copy, a step of SGD one operation, and reading the update no copy at all.
"""

from collections.abc import Iterator

import torch
from torch import nn

from gammafl.core.errors import InputError
from gammafl.core.kernels import Vector


class FlatModule:
    """`module`, with its trainable parameters moved into `weights` and their gradients into `gradient`."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        _refuse_unsupported(module, self.parameters)
        size = sum(p.numel() for p in self.parameters.values())
        self.weights = torch.empty(size)
        self.gradient = torch.zeros(size)
        start = 0
        for parameter in self.parameters.values():
            part = slice(start, start := start + parameter.numel())
            self.weights[part] = parameter.detach().reshape(-1)
            parameter.data = self.weights[part].view(parameter.shape)
            parameter.grad = self.gradient[part].view(parameter.shape)
        self._buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(p.shape) for name, p in self.parameters.items()}

    def load(self, model: Vector) -> None:
        """The weights of `model`, and the buffers as the module came with them: nothing leaks between clients."""
        self.weights.copy_(torch.from_numpy(model))
        for buffer, start in self._buffers:
            buffer.copy_(start)

    def step(self, loss: torch.Tensor, stepsize: float) -> None:
        """x ← x − γ·∇loss(x). Algorithm 1, line 8."""
        self.gradient.zero_()
        loss.backward()
        self.weights.sub_(self.gradient, alpha=stepsize)


def _refuse_unsupported(module: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    if not parameters:
        raise InputError("the model has no trainable parameters")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise InputError(f"parameter {name!r} is {parameter.dtype} on {parameter.device}; need float32 on cpu")
    for name in _running_statistics(module):
        raise InputError(
            f"the model keeps statistics outside of its parameters ({name!r}, as batch normalisation does);"
            " these are not federated: use GroupNorm or LayerNorm, or track_running_stats=False"
        )


def _running_statistics(module: nn.Module) -> Iterator[str]:
    for prefix, part in module.named_modules():
        if getattr(part, "track_running_stats", False):
            yield f"{prefix}.running_mean"
