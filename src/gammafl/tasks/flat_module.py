"""A torch module whose parameters are views of one flat vector: loading a model is one copy.

Parameters in half precision keep their own memory; the vector holds them in float32.
"""

import copy
from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import nn

from gammafl.core import kernels
from gammafl.core.arrays import Vector
from gammafl.core.device.torch_vectors import largest_of
from gammafl.core.errors import InputError, require

Buffers = Literal["refuse", "local", "travel"]
"""How running statistics are handled, such as those of batch normalisation. "refuse": the module is refused. "local":
they are switched off, so that every batch is normalised by itself. "travel": they are sent with the weights,
uncompressed."""


PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)

MOVES_BY_PARTS = "moves_by_parts"
"""A module that has this attribute as true does not read a parameter after its gradient is known."""


class FlatModule:
    """`module`, with its trainable parameters as views of `weights`, on their device.

    If statistics are sent, they are the end of `weights`. All other buffers keep their first values.
    """

    def __init__(self, module: nn.Module, buffers: Buffers = "refuse") -> None:
        self.module = module
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        device = _device_of(self.parameters)
        self.statistics = _statistics(module, buffers)
        self._tensors = [*self.parameters.values(), *self.statistics.values()]
        self._trained = list(self.parameters.values())
        size = sum(tensor.numel() for tensor in self._tensors)
        self.weights = torch.empty(size, dtype=torch.float32, device=device)
        self._apart: list[tuple[torch.Tensor, torch.Tensor]] = []
        """(tensor of another precision, its part of the weights)."""

        for tensor, part in zip(self._tensors, _parts(self.weights, self._tensors), strict=True):
            part.copy_(tensor.detach())
            if tensor.dtype == torch.float32:
                tensor.data = part
            else:
                self._apart.append((tensor, part))
        self._begun: torch.Tensor | None = None
        travelling = {id(tensor) for tensor in self.statistics.values()}
        self._fixed = [(buffer, buffer.clone()) for buffer in module.buffers() if id(buffer) not in travelling]

    @torch.no_grad()
    def load(self, model: Vector | torch.Tensor) -> None:
        """Loads `model`, and resets the other buffers: clients do not influence each other."""
        self.weights.copy_(model if isinstance(model, torch.Tensor) else torch.from_numpy(model))
        if self._apart:
            for tensor, part in self._apart:
                tensor.copy_(part)
            self.gather()
            self._begun = self.weights.clone()  # the rounded weights from which training starts
        self.reset_buffers()

    @property
    def is_exact(self) -> bool:
        """Whether all tensors that are sent are float32."""
        return not self._apart

    @torch.no_grad()
    def gather(self) -> None:
        """`weights` ← the values of the tensors."""
        for tensor, part in self._apart:
            part.copy_(tensor)

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Resets the buffers that are not sent to their first values."""
        for buffer, start in self._fixed:
            buffer.copy_(start)

    def step(self, loss: torch.Tensor, stepsize: float) -> None:
        """x ← x − γ·∇loss(x). Algorithm 1, line 8."""
        gradients = torch.autograd.grad(loss, self._trained, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(self._trained, gradients, strict=True):
                if gradient is not None:
                    parameter.sub_(gradient, alpha=stepsize)

    def step_by_parts(self, loss: torch.Tensor, stepsize: float) -> None:
        """As `step`, but each parameter moves as soon as its gradient is known: never are all gradients in memory.

        Only for modules with `moves_by_parts`. autograd knows a gradient when it has passed all uses of the parameter.
        But a module that also reads a parameter without a gradient, or has several backward passes, may need its old
        value later.
        """

        @torch.no_grad()
        def move(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=stepsize)
            parameter.grad = None

        handles = [parameter.register_post_accumulate_grad_hook(move) for parameter in self._trained]
        try:
            loss.backward()
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def difference(self, model: Vector, out: Vector) -> float:
        """out = model − weights. Returns its largest magnitude."""
        return kernels.difference(model, self.weights.numpy(), out)

    @torch.no_grad()
    def difference_on_device(self, model: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """The same with torch, on the module's device. The largest magnitude stays there too.

        For tensors in half precision, the difference is to the rounded model.
        """
        self.gather()
        torch.sub(model if self._begun is None else self._begun, self.weights, out=out)
        return largest_of(out)


def plain_copy(module: nn.Module) -> nn.Module:
    """A copy without `torch.compile`'s wrappers, which train what they wrap but put `_orig_mod.` into its names.

    Their compiled code can't be used by several threads, nor with parameters in other memory.
    """
    require(isinstance(module, nn.Module), f"the model must be a torch.nn.Module, got {type(module).__name__}")
    holder = nn.ModuleList([copy.deepcopy(module)])
    for part in reversed(list(holder.modules())):  # a wrapper may hold another
        for name, child in part._modules.items():
            if child is not None and _is_compiled(child):
                part._modules[name] = child._modules["_orig_mod"]
    return holder[0]


def _is_compiled(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch._dynamo") and "_orig_mod" in module._modules


def shapes(tensors: dict[str, nn.Parameter] | dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _parts(flat: torch.Tensor, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The part of `flat` that belongs to each tensor, in its shape."""
    start = 0
    return [flat[start : (start := start + tensor.numel())].view(tensor.shape) for tensor in tensors]


def _device_of(parameters: dict[str, nn.Parameter]) -> torch.device:
    """The device of all parameters."""
    if not parameters:
        raise InputError("the model has no trainable parameters")
    device = next(iter(parameters.values())).device
    for name, parameter in parameters.items():
        if parameter.dtype not in PRECISIONS or parameter.device != device:
            raise InputError(
                f"parameter {name!r} is {parameter.dtype} on {parameter.device}; parameters are float32, bfloat16 or"
                f" float16, and all on one device, here {device}"
            )
    return device


def _statistics(module: nn.Module, buffers: Buffers) -> dict[str, torch.Tensor]:
    """Name → running statistic, for those that are sent."""
    require(buffers in get_args(Buffers), f"buffers must be one of {', '.join(get_args(Buffers))}, got {buffers!r}")
    keepers = {name: part for name, part in module.named_modules() if getattr(part, "track_running_stats", False)}
    if keepers and buffers == "refuse":
        raise InputError(
            f"{next(iter(keepers)) or 'the model'} keeps running statistics, as batch normalisation does; choose:"
            " buffers='travel' sends them with the weights, buffers='local' switches them off"
        )
    if buffers == "travel":
        found = {f"{name}.{key}".lstrip("."): t for name, part in keepers.items() for key, t in part.named_buffers()}
        return {name: tensor for name, tensor in found.items() if tensor.is_floating_point()}
    for part in keepers.values():
        part.track_running_stats = False
        part.running_mean = part.running_var = None
    return {}
