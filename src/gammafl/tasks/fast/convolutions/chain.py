"""Local steps of a module of convolution blocks and linear layers, without a graph and without a gradient in memory.

Only the loss is torch's: all that is asked of it is its gradient by the module's outputs. From there the layers go back
by themselves, each one making its own step as soon as the gradient by its input is known.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions.layer import Layer
from gammafl.tasks.fast.convolutions.machine import Vectors
from gammafl.tasks.fast.convolutions.plan import Images, Plan, Registers, Scratch
from gammafl.tasks.fast.convolutions.recognise import Parts, parts_of
from gammafl.tasks.flat_module import FlatModule
from gammafl.tasks.nested import Nested
from gammafl.tasks.objective import Objective

AT_ONCE = 25
"""Images that go through the blocks at a time where nothing is kept of them: they stay in the cache."""
REMEMBERED = 4
"""Sizes of batches that rooms are kept for."""


class Chain:
    """The module of `flat`, trained and evaluated by its parts.

    The weights of convolutions are in their layers as long as the chain works with them, those of linear layers in `flat`.
    """

    def __init__(self, flat: FlatModule, parts: Parts, vectors: Vectors) -> None:
        self.flat = flat
        self._blocks = [
            (Layer(Registers(found.block, vectors)), found.convolution) for found in parts.blocks
        ]
        self._linear = [_Linear(layer, relu) for layer, relu in parts.linear]
        self._rooms: dict[tuple[int, ...], _Rooms | None] = {}

    def load(self, model: Vector) -> None:
        self.flat.load(model)
        self._take()

    def difference(self, model: Vector, out: Vector) -> float:
        """out = model − weights; returns its largest magnitude."""
        self._give_back()
        return self.flat.difference(model, out)

    @torch.no_grad()
    def _take(self) -> None:
        for layer, convolution in self._blocks:
            layer.load(convolution.weight, convolution.bias)

    @torch.no_grad()
    def _give_back(self) -> None:
        for layer, convolution in self._blocks:
            convolution.weight.copy_(layer.weight)
            if convolution.bias is not None:
                convolution.bias.copy_(layer.bias)

    def step(self, objective: Objective, inputs: Nested, targets: Nested, stepsize: float) -> float:
        """x ← x − γ·∇loss(x); returns the loss. What the chain can't take is the module's."""
        rooms = self._rooms_for(inputs)
        if rooms is None:
            self._give_back()
            loss, _ = objective(self.flat.module, inputs, targets)
            self.flat.step(loss, stepsize)
            self._take()
            return loss.item()
        outputs = self._forward(rooms, inputs).requires_grad_()
        loss, _ = objective(lambda _: outputs, inputs, targets)
        (gradient,) = torch.autograd.grad(loss, outputs, allow_unused=True)
        if gradient is not None:
            self._descend(rooms, gradient, stepsize)
        return loss.item()

    @torch.no_grad()
    def _forward(self, rooms: "_Rooms", inputs: torch.Tensor) -> torch.Tensor:
        rooms.sources[0].copy_(inputs)
        for number, (layer, _) in enumerate(self._blocks):
            layer.forward(rooms.plans[number], rooms.scratch[number], *rooms.arrays[number : number + 2],
                          rooms.chosen[number])  # fmt: skip
        features = rooms.result.flatten(1)
        for linear in self._linear:
            features = linear(features)
        return features

    @torch.no_grad()
    def _descend(self, rooms: "_Rooms", gradient: torch.Tensor, stepsize: float) -> None:
        for linear in reversed(self._linear):
            gradient = linear.descend(gradient, stepsize)
        rooms.result_gradient.copy_(gradient.view(rooms.result_gradient.shape))
        for number in reversed(range(len(self._blocks))):
            layer, plan, x = self._blocks[number][0], rooms.plans[number], rooms.arrays[number]
            by_output, by_input = rooms.gradients[number + 1], rooms.gradients[number] if number else None
            layer.backward(plan, rooms.scratch[number], x, rooms.chosen[number], by_output, by_input)
            layer.descend(stepsize)

    @torch.no_grad()
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The module's outputs, of which nothing is kept."""
        if named or len(inputs) != 1 or not self._takes(inputs[0]):
            self._give_back()
            return self.flat.module(*inputs, **named)
        features = torch.cat([self._features(part) for part in inputs[0].split(AT_ONCE)])
        for linear in self._linear:
            features = linear(features)
        return features

    def _features(self, images: torch.Tensor) -> torch.Tensor:
        rooms = self._rooms_for(images)
        assert rooms is not None
        rooms.sources[0].copy_(images)
        for number, (layer, _) in enumerate(self._blocks):
            layer.forward(rooms.plans[number], rooms.scratch[number], *rooms.arrays[number : number + 2], None)
        return rooms.result.flatten(1)

    def _rooms_for(self, inputs: Nested) -> "_Rooms | None":
        if not self._takes(inputs):
            return None
        shape = tuple(inputs.shape)
        if shape not in self._rooms:
            if len(self._rooms) >= REMEMBERED:
                self._rooms.clear()
            self._rooms[shape] = _Rooms([layer.registers for layer, _ in self._blocks], shape)
        return self._rooms[shape]

    def _takes(self, inputs: Nested) -> bool:
        """Whether these are images of a size that makes sense to each layer."""
        plain = isinstance(inputs, torch.Tensor) and inputs.dim() == 4 and inputs.dtype == torch.float32
        if not plain or len(inputs) == 0 or inputs.requires_grad:
            return False
        channels, size = inputs.shape[1], tuple(inputs.shape[2:])
        for layer, _ in self._blocks:
            block = layer.registers.block
            if block.inputs != channels:
                return False
            channels, size = block.outputs, block.result(*size)
            if min(size) < 1:
                return False
        features = channels * size[0] * size[1]
        for linear in self._linear:
            if linear.weight.shape[1] != features:
                return False
            features = linear.weight.shape[0]
        return True


class _Rooms:
    """What the blocks of a chain need for batches of one shape.

    Between two blocks there is one array: what the first one makes of its images, with the margin that the second wants.
    """

    def __init__(self, registers: Sequence[Registers], shape: tuple[int, ...]) -> None:
        count, channels, height, width = shape
        self.plans: list[Plan] = []
        images = Images(count, height, width, channels, registers[0].block.padding)
        for own, following in zip(registers, [*registers[1:], None], strict=True):
            self.plans.append(Plan(own, images, following.block.padding if following else 0))
            images = self.plans[-1].target
        last = self.plans[-1]
        self.arrays = [*(plan.source_room() for plan in self.plans), last.target_room()]
        self.gradients = [*(plan.source_room() for plan in self.plans), last.target_room()]
        self.scratch = [Scratch(plan) for plan in self.plans]
        self.chosen = [plan.chosen_room() for plan in self.plans]
        self.sources = [plan.source.inner(array) for plan, array in zip(self.plans, self.arrays, strict=False)]
        self.result, self.result_gradient = last.target.inner(self.arrays[-1]), last.target.inner(self.gradients[-1])


class _Linear:
    """A linear layer whose weights are torch's."""

    def __init__(self, layer: nn.Linear, relu: bool) -> None:
        self.weight, self.bias, self.relu = layer.weight, layer.bias, relu
        self._inputs = self._outputs = torch.empty(0)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = nn.functional.linear(inputs, self.weight, self.bias)
        self._inputs, self._outputs = inputs, outputs.relu_() if self.relu else outputs
        return self._outputs

    def descend(self, gradient: torch.Tensor, stepsize: float) -> torch.Tensor:
        """A step, where `gradient` is by the last outputs; returns that by the inputs."""
        if self.relu:
            gradient = torch.ops.aten.threshold_backward(gradient, self._outputs, 0)
        by_inputs = gradient @ self.weight
        self.weight.addmm_(gradient.t(), self._inputs, alpha=-stepsize)
        if self.bias is not None:
            self.bias.sub_(gradient.sum(0), alpha=stepsize)
        return by_inputs


def chain_of(flat: FlatModule, vectors: Vectors | None) -> Chain | None:
    """The module of `flat` as a chain, where it is one."""
    parts = None if vectors is None else parts_of(flat.module)
    return None if parts is None or vectors is None else Chain(flat, parts, vectors)
