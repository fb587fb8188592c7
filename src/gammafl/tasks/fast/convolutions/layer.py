"""A convolution with ReLU and pooling on arrays: weights as the loops want them, forward, backward, a step."""

import numpy as np
import torch

from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions import loops
from gammafl.tasks.fast.convolutions.plan import Plan, Registers, Room, room


class Layer:
    """The weights of a block, twice: as rows for the backward pass, and arranged for the forward pass.

    `weight` is a view of the rows in torch's shape, [outputs, inputs, rows, columns].
    """

    def __init__(self, registers: Registers) -> None:
        block, line = registers.block, registers.line
        self.registers = registers
        self.rows: Vector = room(block.outputs * block.rows * line)
        self.arranged: Vector = room(block.rows * block.reach * registers.padded)
        self._bias: Vector = room(registers.padded)
        self.bias = torch.from_numpy(self._bias)[: block.outputs]
        self.row_gradient: Vector = room(self.rows.size)
        self._bias_gradient: Vector = room(registers.padded)
        self.bias_gradient = torch.from_numpy(self._bias_gradient)[: block.outputs]
        self.weight, self.weight_gradient = self._in_shape(self.rows), self._in_shape(self.row_gradient)

    def _in_shape(self, rows: Vector) -> torch.Tensor:
        block, line = self.registers.block, self.registers.line
        wide = torch.from_numpy(rows).view(block.outputs, block.rows, line)[:, :, : block.reach]
        return wide.unflatten(2, (block.columns, block.inputs)).permute(0, 3, 1, 2)

    def load(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight.copy_(weight)
        if bias is not None:
            self.bias.copy_(bias)
        self._arrange()

    def _arrange(self) -> None:
        block, registers = self.registers.block, self.registers
        loops.arranged(self.rows, block.rows, block.reach, registers.line, block.outputs, registers.padded,
                       registers.vectors.lanes, self.arranged)  # fmt: skip

    def forward(self, plan: Plan, own: Room, x: Vector, out: Vector, keep: bool) -> None:
        """out ← what the block makes of x; with `keep`, `own` remembers what the backward pass needs of it."""
        block, registers = self.registers.block, self.registers
        loops.forward(x, plan.pixels, plan.places, self.arranged, self._bias, own.tmp, out, own.chosen, block.rows,
                      plan.source.row, block.reach, block.outputs, block.window, registers.tiles, block.relu, keep,
                      registers.vectors.lanes, registers.vectors.pixels, *registers.for_tiles)  # fmt: skip

    def find_weight_gradient(self, plan: Plan, own: Room, x: Vector, gradient: Vector) -> None:
        """Of what `gradient` is the gradient of, by weights and bias."""
        block, registers = self.registers.block, self.registers
        loops.weight_gradient(x, plan.pixels, plan.places, gradient, own.chosen, self.row_gradient, self._bias_gradient,
                              own.scales, own.offsets, own.counts, block.rows, plan.source.row, registers.line,
                              block.outputs, registers.padded, block.window, plan.group, registers.gathered[0],
                              registers.width, registers.for_gradients)  # fmt: skip

    def find_input_gradient(self, plan: Plan, own: Room, gradient: Vector, dx: Vector) -> None:
        """The same by the input."""
        block, registers = self.registers.block, self.registers
        loops.input_gradient(self.rows, plan.pixels, plan.places, gradient, own.chosen, dx, own.scales, own.offsets,
                             own.counts, block.rows, plan.source.row, registers.line, block.outputs, registers.padded,
                             block.window, plan.group, registers.gathered[0], registers.width,
                             registers.for_gradients)  # fmt: skip

    def descend(self, stepsize: float) -> None:
        """A step along the gradient that was found last."""
        loops.descend(self.rows, self.row_gradient, self._bias, self._bias_gradient, np.float32(stepsize),
                      self.registers.block.reach, self.registers.line)  # fmt: skip
        self._arrange()
