"""How kept values become bits: as they are, as 16-bit floats, as whole numbers of few bits, as ±μ, or as rotated signs.

A rounding is written once, as `round`: the values as they will be sent. What rounding takes away stays in the memory.
One that draws random numbers, or whose values the wire writes by a code, has `sent` in its place.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

import numpy as np

from gammafl.core import blocks, rotation
from gammafl.core.arrays import Vector
from gammafl.core.errors import require
from gammafl.core.moment import key_of
from gammafl.core.sparse import MAX_DIM, SparseUpdate
from gammafl.core.value_coding import ValueCoding, blocks_bytes, rotated_bytes, ternary_bytes

HALF_MAX = float(np.finfo(np.float16).max)


class Values(ABC):
    """How the values of an update are rounded before they are sent."""

    exact: bool = False
    """Whether values are sent as they are."""

    paper_bits: int = 32
    """Bits of one kept value in the paper's own accounting, which counts no positions."""

    coding: ValueCoding = "f32"
    """A coding of the wire that can hold whatever `round` returns. "ternary": one magnitude in each part."""

    sends_zeros: bool = False
    """Whether zeros of an update of every position are values like others. Else they are left out before rounding."""

    @abstractmethod
    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        """The values of `update` as they will be sent. `sizes` are the lengths of the parts that were compressed each
        on its own; together they are the update's dimension."""

    def sent(self, update: SparseUpdate, sizes: Sequence[int], key: int) -> SparseUpdate:
        """`update` with its values as they will be sent, and their code. `key` is for random numbers."""
        return update.with_values(self.round(update, sizes))

    def most_bytes(self, count: int, parts: int = 1) -> int:
        """No `count` values that were rounded in `parts` parts take more in a message."""
        if self.coding in ("f16", "bf16"):
            return 2 * count
        runs = min(count, parts)
        return min(4 * count, ternary_bytes(count, runs)) if self.coding == "ternary" and runs else 4 * count


class Coded(Values):
    """Values that the wire writes by a code: a subclass has `sent`, and `round` is what that makes with the key 0."""

    sends_zeros = True

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        return self.sent(update, sizes, 0).values

    @abstractmethod
    def sent(self, update: SparseUpdate, sizes: Sequence[int], key: int) -> SparseUpdate: ...


@dataclass(frozen=True)
class Exact(Values):
    """32-bit floats, as they are."""

    exact = True

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        return update.values


@dataclass(frozen=True)
class Half(Values):
    """16-bit floats, which the wire sends in half the space."""

    paper_bits = 16
    coding = "f16"

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        return np.clip(update.values, -HALF_MAX, HALF_MAX).astype(np.float16).astype(np.float32)


@dataclass(frozen=True)
class Ternary(Values):
    """μ·sign, where μ is the mean magnitude of the kept values (of each part): the quantiser of STC and γ-FedHT-Q."""

    paper_bits = 2
    coding = "ternary"

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        magnitudes = np.abs(update.values)
        bounds = np.searchsorted(update.indices, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
        for start, stop in pairwise(bounds):
            if stop > start:
                magnitudes[start:stop] = magnitudes[start:stop].mean(dtype=np.float64)
        return np.copysign(magnitudes, update.values)


@dataclass(frozen=True)
class BFloat(Values):
    """bfloat16: the upper half of a 32-bit float, rounded to nearest, ties to even. The range of float32, 8 bits of it.

    >>> BFloat().round(SparseUpdate(3, None, [1.0, 1.01, -0.3]), [3]).tolist()
    [1.0, 1.0078125, -0.30078125]
    """

    paper_bits = 16
    coding = "bf16"
    sends_zeros = True

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        words = update.values.view(np.uint32)
        rounded = words + (np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1)))
        beyond = rounded & np.uint32(0x7FFFFFFF) >= INFINITY  # the largest ones would become infinite
        return (np.where(beyond, words, rounded) & UPPER).view(np.float32)


INFINITY, UPPER = np.uint32(0x7F800000), np.uint32(0xFFFF0000)


@dataclass(frozen=True)
class Bits(Coded):
    """Whole numbers of 8, 4 or 2 bits, times a scale for each block of `block` values: the nearest ones.

    >>> sent = Bits(4).sent(SparseUpdate(4, None, [0.7, -0.29, 0.0, 0.1]), [4], key=0)
    >>> [round(float(value), 3) for value in sent.values]
    [0.696, -0.298, 0.0, 0.099]
    """

    bits: int
    block: int = 256

    def __post_init__(self) -> None:
        require(self.bits in blocks.BITS, f"Bits takes 2, 4 or 8 bits, got {self.bits!r}")
        _require_block(self.block)

    @property
    def paper_bits(self) -> int:  # type: ignore[override]
        return self.bits

    coding = "bits"

    def sent(self, update: SparseUpdate, sizes: Sequence[int], key: int) -> SparseUpdate:
        return update.with_values(*blocks.nearest(update.values, self.bits, self.block))

    def most_bytes(self, count: int, parts: int = 1) -> int:
        return min(4 * count, blocks_bytes(count, self.bits, self.block))


@dataclass(frozen=True)
class ByChance(Coded):
    """QSGD: one of the two multiples of norm/levels beside a value, drawn so that it is right on average.

    levels   1 … 127: with up to 1, 7, 127 a value takes 2, 4, 8 bits
    block    values that share a norm
    norm     "max": the largest magnitude; "l2": the root of the sum of squares, as in the paper's analysis
    """

    levels: int = 7
    block: int = 512
    norm: blocks.Norm = "max"

    coding = "bits"

    def __post_init__(self) -> None:
        fits = isinstance(self.levels, int) and 1 <= self.levels <= blocks.most_of(8)
        require(fits, f"levels must be a whole number from 1 to {blocks.most_of(8)}, got {self.levels!r}")
        require(self.norm in get_args(blocks.Norm), f"norm must be 'max' or 'l2', got {self.norm!r}")
        _require_block(self.block)

    @property
    def paper_bits(self) -> int:  # type: ignore[override]
        return blocks.bits_for(self.levels)

    def sent(self, update: SparseUpdate, sizes: Sequence[int], key: int) -> SparseUpdate:
        drawn_by = key_of(ROUNDING_KEY, key=key)
        return update.with_values(*blocks.by_chance(update.values, self.levels, self.block, self.norm, drawn_by))

    def most_bytes(self, count: int, parts: int = 1) -> int:
        return min(4 * count, blocks_bytes(count, self.paper_bits, self.block))


@dataclass(frozen=True)
class Rotation(Coded):
    """DRIVE: the signs of the randomly rotated values, one bit each, and a scale (`core/rotation.py`).

    scale   "unbiased": right on average over keys; "nearest": of least squared error, for a memory
    """

    scale: rotation.ScaleRule = "unbiased"

    paper_bits = 1
    coding = "rotated"

    def __post_init__(self) -> None:
        known = get_args(rotation.ScaleRule)
        require(self.scale in known, f"scale must be one of {', '.join(known)}, got {self.scale!r}")

    def sent(self, update: SparseUpdate, sizes: Sequence[int], key: int) -> SparseUpdate:
        return update.with_values(*rotation.rotated(update.values, key_of(ROTATION_KEY, key=key), self.scale))

    def most_bytes(self, count: int, parts: int = 1) -> int:
        return min(4 * count, rotated_bytes(count))


ROUNDING_KEY, ROTATION_KEY = 1, 2
"""What is drawn by them has nothing to do with each other, nor with positions that the moment's key draws."""


def _require_block(block: int) -> None:
    fits = isinstance(block, int) and 1 <= block <= MAX_DIM
    require(fits, f"block must be a whole number of at least 1, got {block!r}")
