"""A convolution with ReLU and pooling on arrays: weights in the loops' order, forward pass, backward pass, step."""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import conv2d, max_pool2d, relu

from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions import loops
from gammafl.tasks.fast.convolutions.microkernels import DEAD
from gammafl.tasks.fast.convolutions.plan import Block, Chosen, Plan, Registers, Scratch, room

NOTHING = np.empty(0, np.float32)


class Layer:
    """The weights of a block, stored twice: as rows for the backward pass, and rearranged for the forward pass.

    `weight` is a view of the rows in torch's shape, [outputs, inputs, rows, columns]; so are the gradients.
    """

    def __init__(self, registers: Registers) -> None:
        block, self.registers = registers.block, registers
        self._rows: Vector = room(registers.padded * block.rows * registers.line)
        self._row_gradient: Vector = room(self._rows.size)
        guard = 2 * registers.vectors.lanes**2
        self._arranged: Vector = room(block.rows * block.reach * registers.padded, guard)
        self._bias, self._bias_gradient = room(registers.padded), room(registers.padded)
        self.bias, self.bias_gradient = (
            torch.from_numpy(part)[: block.outputs] for part in (self._bias, self._bias_gradient)
        )
        self._shape = block.outputs, block.inputs, block.rows, block.columns, registers.line
        self._arrangement = block.rows, block.reach, registers.line, registers.padded, registers.vectors.lanes
        self.weight, self.weight_gradient = self._in_shape(self._rows), self._in_shape(self._row_gradient)

    def _in_shape(self, rows: Vector) -> torch.Tensor:
        block, registers = self.registers.block, self.registers
        wide = torch.from_numpy(rows).view(registers.padded, block.rows, registers.line)
        real = wide[: block.outputs, :, : block.reach]
        return real.unflatten(2, (block.columns, block.inputs)).permute(0, 3, 1, 2)

    def load(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight.copy_(weight.view(self.weight.shape) if weight.dim() == 2 else weight)
        if bias is not None:
            self.bias.copy_(bias)
        self._arrange()

    def take(self, weight: Vector, bias: Vector | None) -> None:
        """The same from parts of a flat vector."""
        loops.take_weights(weight, *self._shape, self._rows)
        if bias is not None:
            self._bias[: bias.size] = bias
        self._arrange()

    def subtract_from(self, weight: Vector, bias: Vector | None, out: Any, out_of_bias: Any) -> None:
        """out ← weight − the layer's weights, and the same for the bias, for parts of a flat vector."""
        loops.subtract_weights(weight, self._rows, *self._shape, out)
        if bias is not None:
            np.subtract(bias, self._bias[: bias.size], out=out_of_bias)

    def _arrange(self) -> None:
        loops.arranged(self._rows, *self._arrangement, self._arranged, self.registers.for_tiles[2])

    def forward(self, plan: Plan, scratch: Scratch, x: Vector, out: Vector, chosen: Chosen | None) -> None:
        """out ← the block's output for x; `chosen` ← what the backward pass needs."""
        chosen = scratch.nothing if chosen is None else chosen
        loops.forward(x, plan.pixels, plan.places, self._arranged, self._bias, scratch.tmp, out, chosen,
                      *plan.for_forward)  # fmt: skip

    def backward(
        self, plan: Plan, scratch: Scratch, x: Vector, chosen: Chosen, gradient: Vector, dx: Vector | None
    ) -> None:
        """The gradients by weights and bias, from the gradient by the output; and by the input, if `dx` is given."""
        self._row_gradient[:] = 0
        into, to = NOTHING if dx is None else dx, self._row_gradient
        done = loops.backward(x, plan.pixels, plan.places, gradient, chosen, self._rows, into, to, self._bias_gradient,
                              np.float32(1), scratch.scales, scratch.offsets, scratch.ends,
                              *plan.for_backward)  # fmt: skip
        if not done:
            self._backward_by_torch(plan, x, chosen, gradient, dx)

    def descend(
        self, plan: Plan, scratch: Scratch, x: Vector, chosen: Chosen, gradient: Vector, dx: Vector | None, step: float
    ) -> None:
        """weights ← weights − step · gradient, without storing the gradient; dx ← the gradient by the input."""
        bias, into = self._bias if self.registers.block.bias else NOTHING, NOTHING if dx is None else dx
        done = loops.descend(x, plan.pixels, plan.places, gradient, chosen, self._rows, into, self._bias_gradient, bias,
                             np.float32(step), self._arranged, scratch.scales, scratch.offsets, scratch.ends,
                             *plan.for_backward)  # fmt: skip
        if not done:
            self._backward_by_torch(plan, x, chosen, gradient, dx)
            self.weight.sub_(self.weight_gradient, alpha=step)
            bias -= np.float32(step) * self._bias_gradient[: bias.size]
            self._arrange()

    def _backward_by_torch(self, plan: Plan, x: Vector, chosen: Chosen, gradient: Vector, dx: Vector | None) -> None:
        block, inputs = self.registers.block, (plan.source.inner(x), self.weight, self.bias)
        by_output = plan.target.inner(gradient)
        if block.window == 1:
            stopped = plan.of_channels(chosen) == DEAD
            wanted = dx is not None, True, True
            by = convolution_gradients(block, by_output.masked_fill(stopped, 0.0), *inputs, wanted)
        else:
            with torch.enable_grad():
                leaves = [part.detach().clone().requires_grad_() for part in inputs]
                by = torch.autograd.grad(by_torch(block, *leaves), leaves, by_output)
        parts = None if dx is None else plan.source.inner(dx), self.weight_gradient, self.bias_gradient
        for part, new in zip(parts, by, strict=True):
            if part is not None:
                part.copy_(new)


def convolution_gradients(
    block: Block,
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    wanted: tuple[bool, bool, bool],
) -> Any:
    """The gradients of a convolution by input, weight and bias, computed by torch."""
    stride, padding, one = [block.stride] * 2, [block.padding] * 2, [1, 1]
    sizes = None if bias is None else [block.outputs]
    function = torch.ops.aten.convolution_backward
    return function(gradient, x, weight, sizes, stride, padding, one, False, [0, 0], 1, wanted)


def by_torch(block: Block, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The block's output for x, computed by torch's operators."""
    y = conv2d(x, weight, bias, block.stride, block.padding)
    y = max_pool2d(y, block.pool) if block.pool > 1 else y
    return relu(y) if block.relu else y
