"""The geometry of a convolution with ReLU and pooling: all positions, and a proof that they are inside the arrays."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions.loops import APART
from gammafl.tasks.fast.convolutions.machine import Vectors
from gammafl.tasks.fast.convolutions.microkernels import Fixed

Table = NDArray[np.int32]
Chosen = NDArray[np.uint8]
CACHE = 16384
"""How many float32 numbers of the input are used at a time, so that they stay in the nearest caches."""
AT_ONCE = 25
"""How many images go through blocks at a time if nothing of them is kept, so that they stay in the cache."""
MOST = 0.6
"""If a larger share of a convolution's gradient is not zero, torch does the backward pass: skipping zeros would save
less time than the lists cost."""


@dataclass(frozen=True)
class Block:
    """Conv2d, then ReLU or not, then max-pooling over squares of `pool`×`pool` pixels (1: none)."""

    inputs: int
    outputs: int
    rows: int
    columns: int
    stride: int = 1
    padding: int = 0
    relu: bool = False
    pool: int = 1
    bias: bool = True

    @property
    def most(self) -> float:
        """The largest share of the gradient that may be other than zero; 1 if torch is never faster."""
        return 1.0 if self.pool > 1 or self.rows * self.columns == 1 else MOST

    def followed_by(self, relu: bool, pool: int) -> "Block":
        return replace(self, relu=relu, pool=pool)

    @property
    def reach(self) -> int:
        """How many neighbouring numbers in a row of the input belong to one pixel of the output."""
        return self.columns * self.inputs

    @property
    def window(self) -> int:
        return self.pool**2

    def result(self, height: int, width: int) -> tuple[int, int]:
        """The height and width of the output for images of this size; not positive if there is none."""
        pixels = ((size + 2 * self.padding - kernel) // self.stride + 1
                  for size, kernel in ((height, self.rows), (width, self.columns)))  # fmt: skip
        high, wide = (max(0, count) // self.pool for count in pixels)
        return high, wide


@dataclass(frozen=True)
class Images:
    """Images in a one-dimensional array: [count][height][width][channels] with a margin around each."""

    count: int
    height: int
    width: int
    channels: int
    margin: int = 0

    @property
    def row(self) -> int:
        return (self.width + 2 * self.margin) * self.channels

    @property
    def size(self) -> int:
        return self.count * (self.height + 2 * self.margin) * self.row

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape with the margin."""
        return self.count, self.height + 2 * self.margin, self.width + 2 * self.margin, self.channels

    def inner(self, array: Vector) -> torch.Tensor:
        """The images in `array` without their margin, in torch's shape: [count, channels, height, width]."""
        images = torch.from_numpy(array[: self.size]).view(self.shape).permute(0, 3, 1, 2)
        return images[:, :, self.margin : self.margin + self.height, self.margin : self.margin + self.width]

    def starts(self) -> Table:
        """The start of each pixel, image by image and row by row."""
        inner = slice(self.margin, -self.margin or None)
        return np.arange(self.size).reshape(self.shape)[:, inner, inner, 0].astype(np.int32).reshape(-1)


@dataclass(frozen=True)
class Registers:
    """How a block's sums are divided among the registers, and how many zeros fill up its weights."""

    block: Block
    vectors: Vectors

    @cached_property
    def padded(self) -> int:
        """The output channels, filled up to whole vectors."""
        return -(-self.block.outputs // self.vectors.lanes) * self.vectors.lanes

    @cached_property
    def pixels(self) -> int:
        """The pixels of a tile. For 1×1 kernels, such as linear layers, the pixels are samples: often 8."""
        return min(8, self.vectors.pixels) if self.block.rows * self.block.columns == 1 else self.vectors.pixels

    @cached_property
    def tiles(self) -> int:
        """How many tiles of pixels make whole windows."""
        return lcm(self.pixels, self.block.window) // self.pixels

    @cached_property
    def gathered(self) -> tuple[int, int]:
        """(rows of a kernel, vectors of each) whose gradients are in registers at a time."""
        of_row = -(-self.block.reach // self.vectors.lanes)
        parts = -(-of_row // self.vectors.sums)
        vectors = -(-of_row // parts)
        fitting = [rows for rows in range(1, self.block.rows + 1)
                   if self.block.rows % rows == 0 and rows * vectors <= self.vectors.sums]  # fmt: skip
        return max(fitting), vectors

    @cached_property
    def width(self) -> int:
        """How many numbers of a row have their gradients in registers at a time."""
        return self.gathered[1] * self.vectors.lanes

    @cached_property
    def line(self) -> int:
        """`reach` filled up to whole widths."""
        return -(-self.block.reach // self.width) * self.width

    @cached_property
    def for_tiles(self) -> tuple[Fixed, Fixed, Fixed]:
        lanes, pixels = self.vectors.lanes, self.pixels
        return Fixed(lanes, pixels, 2), Fixed(lanes, pixels, 1), Fixed(lanes)

    @cached_property
    def for_gradients(self) -> tuple[Fixed, Fixed]:
        """For gradients by weights; and by the input, row by row, so that its sums have one order for all vectors."""
        rows, vectors = self.gathered
        return Fixed(self.vectors.lanes, rows, vectors), Fixed(self.vectors.lanes, 1, vectors)


class Plan:
    """A block on a batch of images, with the positions of `source`; `target` has the positions of the results."""

    def __init__(self, registers: Registers, source: Images, margin_of_target: int = 0) -> None:
        block = registers.block
        height, width = block.result(source.height, source.width)
        _must(source.margin == block.padding and source.channels == block.inputs and min(height, width) >= 1)
        self.registers, self.source = registers, source
        self.target = Images(source.count, height, width, block.outputs, margin_of_target)
        self.places = self.target.starts()
        self.pixels = _pixels(block, source, height, width, registers.pixels)
        of_image = height * width
        self.group = of_image * max(1, min(source.count, CACHE * source.count // source.size))
        """The number of windows in as many images as fit into the caches."""
        self._prove_bounds()

    @cached_property
    def for_forward(self) -> tuple[Any, ...]:
        """The numeric arguments of `loops.forward`."""
        block, registers = self.registers.block, self.registers
        numbers = block.rows, self.source.row, block.reach, block.outputs, block.window, registers.tiles
        return *numbers, block.relu, registers.vectors.lanes, registers.pixels, *registers.for_tiles

    @cached_property
    def for_backward(self) -> tuple[Any, ...]:
        """The numeric arguments of `loops.backward`."""
        block, registers = self.registers.block, self.registers
        sizes = block.rows, self.source.row, block.reach, registers.line, block.outputs, registers.padded, block.window
        at_once = self.group, registers.gathered[0], registers.width, block.most, registers.vectors.lanes
        return *sizes, *at_once, *registers.for_gradients, registers.for_tiles[2]

    def source_room(self) -> Vector:
        """An array for the images, or for their gradients."""
        return room(self.source.size, self.guard)

    def target_room(self) -> Vector:
        return room(self.target.size, self.guard)

    def chosen_room(self) -> Chosen:
        return room(len(self.places) * self.registers.padded, kind=np.uint8)

    def of_channels(self, chosen: Chosen) -> torch.Tensor:
        """`chosen` for each window, in torch's shape: [count, channels, height, width]."""
        shape = self.target.count, self.target.height, self.target.width, self.registers.padded
        return torch.from_numpy(chosen).view(shape)[..., : self.target.channels].permute(0, 3, 1, 2)

    @property
    def guard(self) -> int:
        """How many numbers after an array of images may be read, or overwritten with the same values."""
        return self.registers.line + self.registers.vectors.lanes

    def _prove_bounds(self) -> None:
        """Proves that all loops read and write inside their arrays, so that they need not check it."""
        block, registers = self.registers.block, self.registers
        last = int(self.pixels.max()) + (block.rows - 1) * self.source.row
        _must(last + block.reach <= self.source.size)
        _must(last + registers.line <= self.source.size + self.guard)
        _must(int(self.places.max()) + registers.padded <= self.target.size + registers.vectors.lanes)
        _must(int(min(self.pixels.min(), self.places.min())) >= 0)
        _must(max(self.source.size, self.target.size) + self.guard < 2**31)
        _must(registers.tiles * registers.pixels % block.window == 0)
        _must(self.pixels.size >= len(self.places) * block.window + registers.pixels - 1)


def _must(holds: bool) -> None:
    if not holds:
        raise AssertionError("a plan whose loops would leave their arrays")


def _pixels(block: Block, source: Images, height: int, width: int, at_once: int) -> Table:
    """The start of each pixel's part of the input, window by window; the last one is repeated a few times."""
    image, row, column = (np.arange(n) for n in (source.count, height * block.pool, width * block.pool))
    _, high, wide, channels = source.shape
    start = ((image[:, None, None] * high + block.stride * row[:, None]) * wide + block.stride * column) * channels
    windows = start.reshape(source.count, height, block.pool, width, block.pool).transpose(0, 1, 3, 2, 4).reshape(-1)
    return np.concatenate([windows, np.full(at_once, windows[-1])]).astype(np.int32)


def room(size: int, guard: int = 0, kind: Any = np.float32) -> Any:
    """Zeros that start at a cache line, followed by a guard."""
    raw = np.zeros((size + guard) * np.dtype(kind).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + (size + guard) * np.dtype(kind).itemsize].view(kind)


class Scratch:
    """The working memory of a block."""

    def __init__(self, plan: Plan) -> None:
        block, registers = plan.registers.block, plan.registers
        self.tmp: Vector = room(registers.tiles * registers.pixels * registers.padded)
        self.nothing: Chosen = room(0, kind=np.uint8)
        entries = (plan.group + APART) * block.outputs
        self.scales: Vector = room(entries)
        self.offsets: Table = room(entries, kind=np.int32)
        self.ends: NDArray[np.uint64] = room(max(block.outputs, plan.group * block.window), kind=np.uint64)
