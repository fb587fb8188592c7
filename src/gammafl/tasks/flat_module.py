"""A torch module whose parameters, and whose gradients, are views of one flat vector each.

Loading a model is one copy, a step of SGD one operation, and reading the update no copy at all.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

import torch
from torch import nn

from gammafl.core.errors import InputError, require
from gammafl.core.kernels import Vector

Buffers = Literal["refuse", "local", "travel"]
"""What becomes of running statistics, such as those of batch normalisation: the module is refused; they are
switched off, so that every batch is normalised by its own; or they travel with the weights, uncompressed."""


class FlatModule:
    """`module`, with its trainable parameters moved into `weights` and their gradients into `gradient`.

    Where statistics travel, they are the end of `weights`; all other buffers stay as the module came with them.
    """

    def __init__(self, module: nn.Module, buffers: Buffers = "refuse") -> None:
        self.module = module
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        _refuse_unsupported(self.parameters)
        self.statistics = _statistics(module, buffers)
        size = _count(self.parameters.values())
        self.gradient = torch.zeros(size)
        self.weights = torch.empty(size + _count(self.statistics.values()))
        self._trained = self.weights[:size]
        for tensor, part in _parts(self.weights, [*self.parameters.values(), *self.statistics.values()]):
            part.copy_(tensor.detach())
            tensor.data = part
        for parameter, part in _parts(self.gradient, self.parameters.values()):
            parameter.grad = part
        travelling = {id(tensor) for tensor in self.statistics.values()}
        self._fixed = [(buffer, buffer.clone()) for buffer in module.buffers() if id(buffer) not in travelling]

    def load(self, model: Vector) -> None:
        """The weights of `model`, and the other buffers as they came: nothing leaks between clients."""
        self.weights.copy_(torch.from_numpy(model))
        for buffer, start in self._fixed:
            buffer.copy_(start)

    def step(self, loss: torch.Tensor, stepsize: float) -> None:
        """x ← x − γ·∇loss(x). Algorithm 1, line 8."""
        self.gradient.zero_()
        loss.backward()
        self._trained.sub_(self.gradient, alpha=stepsize)


def shapes(tensors: dict[str, nn.Parameter] | dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _count(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _parts(flat: torch.Tensor, tensors: Iterable[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each tensor with its own part of `flat`, in its shape."""
    start = 0
    for tensor in tensors:
        yield tensor, flat[start : (start := start + tensor.numel())].view(tensor.shape)


def _refuse_unsupported(parameters: dict[str, nn.Parameter]) -> None:
    if not parameters:
        raise InputError("the model has no trainable parameters")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise InputError(f"parameter {name!r} is {parameter.dtype} on {parameter.device}; need float32 on cpu")


def _statistics(module: nn.Module, buffers: Buffers) -> dict[str, torch.Tensor]:
    """The running statistics that travel."""
    require(buffers in get_args(Buffers), f"buffers must be one of {', '.join(get_args(Buffers))}, got {buffers!r}")
    keepers = {name: part for name, part in module.named_modules() if getattr(part, "track_running_stats", False)}
    if keepers and buffers == "refuse":
        raise InputError(
            f"{next(iter(keepers)) or 'the model'} keeps running statistics, as batch normalisation does; say what"
            " becomes of them: buffers='travel' sends them with the weights, buffers='local' switches them off"
        )
    if buffers == "travel":
        found = {f"{name}.{key}".lstrip("."): t for name, part in keepers.items() for key, t in part.named_buffers()}
        return {name: tensor for name, tensor in found.items() if tensor.is_floating_point()}
    for part in keepers.values():
        part.track_running_stats = False
        part.running_mean = part.running_var = None
    return {}
