"""Blocks of a convolution, a ReLU and a pooling that are neighbours in a `Sequential`, in any module.

A single convolution is left to torch: its gradient has no known zeros, and torch is as fast.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions.layer import Layer, by_torch
from gammafl.tasks.fast.convolutions.machine import Vectors, vectors
from gammafl.tasks.fast.convolutions.plan import AT_ONCE, Block, Chosen, Images, Plan, Registers, Scratch
from gammafl.tasks.fast.convolutions.recognise import Found, block_at, is_plain, parts_of

Gradients = tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None]
REMEMBERED = 8
"""For how many sizes of images plans are kept."""


@dataclass(frozen=True)
class Kept:
    """What a forward call keeps for its backward pass."""

    x: Vector
    chosen: Chosen


class Worker:
    """A block with a plan for each size of images, and arrays that successive calls share."""

    def __init__(self, block: Block, of_machine: Vectors) -> None:
        self.layer = Layer(Registers(block, of_machine))
        self.block = block
        self.loaded = 0
        """How many times weights were loaded."""
        self._plans: dict[tuple[int, ...], tuple[Plan, Scratch, list[Kept]]] = {}

    def plan(self, shape: torch.Size) -> tuple[Plan, Scratch, list[Kept]]:
        """The plan for inputs of this shape, its working memory, and results of earlier calls that are free again."""
        key = tuple(shape)
        if key not in self._plans:
            if len(self._plans) >= REMEMBERED:
                self._plans.clear()
            count, channels, height, width = key
            plan = Plan(self.layer.registers, Images(count, height, width, channels, self.block.padding))
            self._plans[key] = plan, Scratch(plan), []
        return self._plans[key]

    def takes(self, x: Any) -> bool:
        """Whether `x` is a usual batch of images, in a usual computation."""
        usual = type(x) in (torch.Tensor, nn.Parameter) and x.dtype == torch.float32 and x.device.type == "cpu"
        if not usual or x.dim() != 4 or len(x) == 0 or x.shape[1] != self.block.inputs:
            return False
        special = _casts() or torch._C._get_tracing_state() is not None or torch.compiler.is_compiling()
        transformed = (
            torch._C._functorch.maybe_current_level() is not None or torch.autograd.forward_ad._current_level >= 0
        )
        return not special and not transformed and min(self.block.result(*x.shape[2:])) >= 1

    def load(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.layer.load(weight.detach(), None if bias is None else bias.detach())
        self.loaded += 1

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kept: Kept, keep: bool
    ) -> torch.Tensor:
        """The outputs, as a new tensor. With `keep`, `kept` gets what the backward pass needs."""
        plan, scratch, _ = self.plan(x.shape)
        self.load(weight, bias)
        plan.source.inner(kept.x).copy_(x.detach())
        out = torch.empty(plan.target.size + plan.guard).numpy()
        self.layer.forward(plan, scratch, kept.x, out, kept.chosen if keep else None)
        return plan.target.inner(out).detach()  # not a view for autograd, so that it may be changed in place

    def outputs(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The outputs, as a new tensor, without a backward pass."""
        parts = []
        for part in x.split(AT_ONCE):
            plan, _, free = self.plan(part.shape)
            parts.append(self.forward(part, weight, bias, Loan(plan, free).kept, keep=False))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def side_by_side(self, plan: Plan, images: torch.Tensor) -> Vector:
        """The images as an array, with the channels of each pixel next to each other, in whole vectors."""
        last = images.detach().permute(0, 2, 3, 1)
        if plan.registers.padded == plan.registers.block.outputs:
            return last.contiguous().view(-1).numpy()
        array = torch.empty(plan.target.size + plan.guard).numpy()
        plan.target.inner(array).copy_(images.detach())
        array[plan.target.size :] = 0
        return array

    def backward(self, gradient: torch.Tensor, shape: torch.Size, kept: Kept, by_input: bool) -> Gradients:
        """The gradients by input (if wanted), weight and bias. The weights must be loaded."""
        plan, scratch, _ = self.plan(shape)
        dx = torch.empty(plan.source.size + plan.guard).numpy() if by_input else None
        self.layer.backward(plan, scratch, kept.x, kept.chosen, self.side_by_side(plan, gradient), dx)
        found = self.layer.weight_gradient.clone(), self.layer.bias_gradient.clone() if self.block.bias else None
        return None if dx is None else plan.source.inner(dx), *found


class Loan:
    """Lends a call its `Kept`. It is free again when the call is deleted, after any number of backward passes."""

    def __init__(self, plan: Plan, free: list[Kept]) -> None:
        self._free = free
        self.kept = free.pop() if free else Kept(plan.source_room(), plan.chosen_room())

    def __del__(self) -> None:
        self._free.append(self.kept)


class FusedFunction(torch.autograd.Function):
    """A block, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, worker: Worker) -> Any:
        plan, _, free = worker.plan(x.shape)
        ctx.loan, ctx.worker = Loan(plan, free), worker
        ctx.save_for_backward(x, weight, bias)
        out = worker.forward(x, weight, bias, ctx.loan.kept, keep=True)
        ctx.loaded = worker.loaded
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *differentiable(ctx, gradients[0]), None
        worker: Worker = ctx.worker
        if worker.loaded != ctx.loaded:  # another call has loaded other weights since then
            worker.load(weight, bias)
            ctx.loaded = worker.loaded
        return *worker.backward(gradients[0], x.shape, ctx.loan.kept, ctx.needs_input_grad[0]), None


def differentiable(ctx: Any, gradient: torch.Tensor) -> list[Any]:
    """The gradients with torch's operators, so that they have gradients themselves."""
    inputs = ctx.saved_tensors
    wanted = [part for part, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(by_torch(ctx.worker.block, *inputs), wanted, gradient, create_graph=True))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[:3]]


class Fused:
    """Some layers of a `Sequential`, computed as one block."""

    def __init__(self, layers: list[nn.Module], found: Found, of_machine: Vectors) -> None:
        self._layers, self._convolution = layers, found.convolution
        self._worker = Worker(found.block, of_machine)

    def __call__(self, x: Any) -> Any:
        weight, bias = self._convolution.weight, self._convolution.bias
        if not self._worker.takes(x):
            for layer in self._layers:
                x = layer(x)
            return x
        if torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (x, weight, bias)):
            return FusedFunction.apply(x, weight, bias, self._worker)
        return self._worker.outputs(x, weight, bias)


class FusedSequential(nn.Sequential):
    """A `Sequential` that computes some of its layers together. By index or in a loop, it has the usual layers."""

    def forward(self, input: Any) -> Any:
        fused = False
        for part in self.__dict__.get("runs", self):  # a slice has none
            if fused and not isinstance(part, Fused):
                input = input.contiguous()  # torch's layers get what torch would give them
            fused, input = isinstance(part, Fused), part(input)
        return input.contiguous() if fused else input


def use_blocks(module: nn.Module, of_machine: Vectors) -> None:
    """Makes `module` compute convolutions together with a following ReLU or pooling in a `Sequential`, in place."""
    for part in list(module.modules()):
        if isinstance(part, nn.Sequential) and is_plain(part, nn.Sequential):
            runs = _runs(list(part), of_machine)
            if any(isinstance(run, Fused) for run in runs):
                part.__class__ = FusedSequential
                part.__dict__["runs"] = runs


def _casts() -> bool:
    """Whether torch computes in another precision than its inputs have."""
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled()


def has_compiled(module: nn.Module) -> bool:
    """Whether compiled loops compute some of its layers on this machine."""
    sequences = [
        list(part) for part in module.modules() if isinstance(part, nn.Sequential) and is_plain(part, nn.Sequential)
    ]
    blocks = (block_at(layers[start:]) for layers in sequences for start in range(len(layers)))
    return vectors() is not None and (parts_of(module) is not None or any(blocks))


def _runs(layers: list[nn.Module], of_machine: Vectors) -> list[Any]:
    """The layers, with those of a block as one."""
    runs: list[Any] = []
    while layers:
        found = block_at(layers)
        count = 1 if found is None else found.layers
        runs.append(layers[0] if found is None else Fused(layers[:count], found, of_machine))
        layers = layers[count:]
    return runs
