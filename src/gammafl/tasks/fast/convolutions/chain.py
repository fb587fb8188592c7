"""Local steps of a module of convolution blocks and linear layers, without a graph and without stored gradients.

In the backward pass, each layer makes its own step as soon as the gradient by its input is known.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import nn

from gammafl.core import kernels
from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions import loops
from gammafl.tasks.fast.convolutions.layer import Layer
from gammafl.tasks.fast.convolutions.machine import Vectors
from gammafl.tasks.fast.convolutions.plan import AT_ONCE, Block, Chosen, Images, Plan, Registers, Scratch
from gammafl.tasks.fast.convolutions.recognise import Parts, parts_of
from gammafl.tasks.flat_module import FlatModule
from gammafl.tasks.nested import Nested
from gammafl.tasks.objective import Objective

REMEMBERED = 4
"""For how many sizes of batches arrays are kept."""


class Rooms:
    """The arrays of consecutive layers, for batches of one size.

    Between two layers there is one array: the output of the first, with the margin that the second needs.
    """

    def __init__(self, layers: Sequence[Layer], count: int, height: int, width: int) -> None:
        self.layers = layers
        self.plans: list[Plan] = []
        blocks = [layer.registers.block for layer in layers]
        images = Images(count, height, width, blocks[0].inputs, blocks[0].padding)
        for layer, following in zip(layers, [*blocks[1:], None], strict=True):
            self.plans.append(Plan(layer.registers, images, following.padding if following else 0))
            images = self.plans[-1].target
        self.arrays = self._arrays()
        self.input, self.output = self.plans[0].source.inner(self.arrays[0]), images.inner(self.arrays[-1])
        self.scratch = [Scratch(plan) for plan in self.plans]

    def _arrays(self) -> list[Vector]:
        return [*(plan.source_room() for plan in self.plans), self.plans[-1].target_room()]

    @cached_property
    def gradients(self) -> list[Vector]:
        return self._arrays()

    @cached_property
    def input_gradient(self) -> torch.Tensor:
        return self.plans[0].source.inner(self.gradients[0])

    @cached_property
    def output_gradient(self) -> torch.Tensor:
        return self.plans[-1].target.inner(self.gradients[-1])

    @cached_property
    def chosen(self) -> list[Chosen]:
        return [plan.chosen_room() for plan in self.plans]

    def forward(self, inputs: torch.Tensor, keep: bool) -> torch.Tensor:
        """The outputs of the layers. With `keep`, a backward pass is possible."""
        self.input.view(inputs.shape).copy_(inputs)
        for number, layer in enumerate(self.layers):
            chosen = self.chosen[number] if keep else None
            x, out = self.arrays[number : number + 2]
            layer.forward(self.plans[number], self.scratch[number], x, out, chosen)
        return self.output

    def descend(self, gradient: torch.Tensor, stepsize: float, further: bool) -> None:
        """A step of each layer, from the `gradient` by the output. With `further`, computes that by the input too."""
        self.output_gradient.copy_(gradient.reshape(self.output_gradient.shape))
        for number in reversed(range(len(self.layers))):
            by_input, by_output = self.gradients[number : number + 2]
            arrays = self.arrays[number], self.chosen[number], by_output, by_input if number or further else None
            self.layers[number].descend(self.plans[number], self.scratch[number], *arrays, stepsize)


class Chain:
    """The module of `flat`, trained and evaluated part by part. The parts hold the weights during the work.

    A linear layer is a block too: a 1×1 convolution on images of one pixel, with its features as channels.
    """

    def __init__(self, flat: FlatModule, parts: Parts, vectors: Vectors) -> None:
        self.flat = flat
        linear = [Block(layer.in_features, layer.out_features, 1, 1, relu=relu, bias=layer.bias is not None)
                  for layer, relu in parts.linear]  # fmt: skip
        self._blocks = [Layer(Registers(found.block, vectors)) for found in parts.blocks]
        self._linear = [Layer(Registers(block, vectors)) for block in linear]
        self._of_images: dict[tuple[int, ...], Rooms] = {}
        self._of_features: dict[int, Rooms] = {}

    def load(self, model: Vector) -> None:
        for layer, weight, bias in self._parts(model):
            layer.take(weight, bias)

    def difference(self, model: Vector, out: Vector) -> float:
        """out = model − weights. Returns its largest magnitude."""
        for (layer, weight, bias), (_, *results) in zip(self._parts(model), self._parts(out), strict=True):
            layer.subtract_from(weight, bias, *results)
        return kernels.largest_magnitude(out)

    def _parts(self, vector: Vector) -> Iterator[tuple[Layer, Vector, Vector | None]]:
        """The parts of a flat vector that belong to each layer."""
        start = 0
        for layer in (*self._blocks, *self._linear):
            block, end = layer.registers.block, start + layer.weight.numel()
            start, weight = end + block.bias * block.outputs, vector[start:end]
            yield layer, weight, vector[end:start] if block.bias else None

    def _take(self, tensors: Sequence[torch.Tensor]) -> None:
        left = iter(tensors)
        for layer in (*self._blocks, *self._linear):
            layer.load(next(left), next(left) if layer.registers.block.bias else None)

    def _weights(self) -> list[torch.Tensor]:
        """The weights of the layers, in the order of the flat vector."""
        both = [(layer.weight, layer.bias) if layer.registers.block.bias else (layer.weight,)
                for layer in (*self._blocks, *self._linear)]  # fmt: skip
        return [tensor for tensors in both for tensor in tensors]

    @contextmanager
    def _in_module(self) -> Iterator[nn.Module]:
        """The module with the layers' weights. At the end, the layers take them back."""
        parameters = list(self.flat.parameters.values())
        with torch.no_grad():
            for parameter, weights in zip(parameters, self._weights(), strict=True):
                parameter.copy_(weights.view(parameter.shape) if parameter.dim() == 2 else weights)
        yield self.flat.module
        with torch.no_grad():
            self._take(parameters)

    def step(self, objective: Objective, inputs: Nested, targets: Nested, stepsize: float) -> float:
        """x ← x − γ·∇loss(x). Returns the loss. Inputs that the layers can't handle are left to the module."""
        if not self._takes(inputs):
            with self._in_module() as module:
                loss, _ = objective(module, inputs, targets)
                self.flat.step(loss, stepsize)
            return loss.item()
        with torch.no_grad():
            images = self._rooms_of_images(inputs)
            outputs = images.forward(inputs, keep=True)
            features = self._rooms_of_features(len(inputs)) if self._linear else None
            if features is not None:
                outputs = features.forward(outputs, keep=True)
            outputs = outputs.flatten(1)
        value, gradient = _slopes(objective, outputs, targets)
        if gradient is None:
            return value
        with torch.no_grad():
            if features is not None:
                features.descend(gradient, stepsize, further=True)
                gradient = features.input_gradient
            images.descend(gradient, stepsize, further=False)
        return value

    @torch.no_grad()
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The module's outputs."""
        if named or len(inputs) != 1 or not self._takes(inputs[0]):
            with self._in_module() as module:
                return module(*inputs, **named)
        parts = inputs[0].split(AT_ONCE)
        # copies a part's outputs before the next part uses the same array: for one pixel, `flatten` makes no copy
        made = [self._rooms_of_images(part).forward(part, keep=False).flatten(1).clone() for part in parts]
        outputs = torch.cat(made)
        if not self._linear:
            return outputs
        return self._rooms_of_features(len(outputs)).forward(outputs, keep=False).flatten(1).clone()

    def _rooms_of_images(self, images: torch.Tensor) -> Rooms:
        return _remembered(self._of_images, tuple(images.shape), self._blocks, len(images), *images.shape[2:])

    def _rooms_of_features(self, count: int) -> Rooms:
        return _remembered(self._of_features, count, self._linear, count, 1, 1)

    def _takes(self, inputs: Nested) -> bool:
        """Whether these are images with a possible size for each layer."""
        plain = isinstance(inputs, torch.Tensor) and inputs.dim() == 4 and inputs.dtype == torch.float32
        if not plain or len(inputs) == 0 or inputs.requires_grad:
            return False
        return tuple(inputs.shape) in self._of_images or self._fits(*inputs.shape[1:])

    def _fits(self, channels: int, height: int, width: int) -> bool:
        for layer in self._blocks:
            block = layer.registers.block
            if block.inputs != channels or min(block.result(height, width)) < 1:
                return False
            channels, (height, width) = block.outputs, block.result(height, width)
        features = channels * height * width
        for layer in self._linear:
            if layer.registers.block.inputs != features:
                return False
            features = layer.registers.block.outputs
        return True


def _remembered(known: dict[Any, Rooms], key: Any, layers: Sequence[Layer], *size: int) -> Rooms:
    if key not in known:
        if len(known) >= REMEMBERED:
            known.clear()
        known[key] = Rooms(layers, *size)
    return known[key]


def _slopes(objective: Objective, outputs: torch.Tensor, targets: Nested) -> tuple[float, torch.Tensor | None]:
    """The loss, and its gradient by the outputs."""
    usual = objective.loss is nn.functional.cross_entropy and isinstance(targets, torch.Tensor)
    if usual and targets.dtype == torch.int64 and targets.shape == outputs.shape[:1]:
        slopes = torch.empty_like(outputs)
        loss = loops.cross_entropy(outputs.numpy(), targets.numpy(), slopes.numpy())
        if loss != loops.NO_CLASS:
            return loss, slopes
    leaf = outputs.detach().requires_grad_()
    own = leaf.clone()  # a loss may keep or change it
    mean, _ = objective(lambda _: own, leaf, targets)
    return mean.item(), torch.autograd.grad(mean, leaf, allow_unused=True)[0]


def chain_of(flat: FlatModule, vectors: Vectors | None) -> Chain | None:
    """The module of `flat` as a chain; None if it is not one."""
    parts = None if vectors is None else parts_of(flat.module)
    return None if parts is None or vectors is None else Chain(flat, parts, vectors)
