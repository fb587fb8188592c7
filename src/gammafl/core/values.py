"""How kept values are rounded: not at all, to 16-bit floats, to whole numbers of few bits, to ±μ, or to rotated signs.

Each class has one function, `round`, which returns the rounded values. Rounding errors stay in the memory. A class that
draws random numbers, or whose values have a code in messages, has `sent` instead.
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
    """How the values of an update are rounded before they are sent. Derive from it to write your own.

    >>> class Signs(Values):
    ...     def round(self, update, sizes):
    ...         return np.sign(update.values)
    >>> Signs().round(SparseUpdate(3, None, [0.5, -2.0, 3.0]), [3]).tolist()
    [1.0, -1.0, 1.0]
    """

    exact: bool = False
    """Whether values are not rounded."""

    paper_bits: int = 32
    """The bits of one kept value in the paper's accounting, which does not count positions."""

    coding: ValueCoding = "f32"
    """A coding that can hold all results of `round`. "ternary": one magnitude in each part."""

    sends_zeros: bool = False
    """Whether zeros are rounded like other values if all positions are sent. Otherwise they are left out before."""

    @abstractmethod
    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        """The rounded values of `update`.

        sizes   the lengths of the parts that were compressed separately; their sum is the update's dimension
        """

    def sent(self, update: SparseUpdate, sizes: Sequence[int], key: int) -> SparseUpdate:
        """`update` with rounded values and their code. `key` is for random numbers."""
        return update.with_values(self.round(update, sizes))

    def most_bytes(self, count: int, parts: int = 1) -> int:
        """An upper bound of the bytes for `count` values that were rounded in `parts` parts."""
        if self.coding in ("f16", "bf16"):
            return 2 * count
        runs = min(count, parts)
        return min(4 * count, ternary_bytes(count, runs)) if self.coding == "ternary" and runs else 4 * count


class Coded(Values):
    """Values with a code in messages. Subclasses define `sent`; `round` calls it with the key 0."""

    sends_zeros = True

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        return self.sent(update, sizes, 0).values

    @abstractmethod
    def sent(self, update: SparseUpdate, sizes: Sequence[int], key: int) -> SparseUpdate: ...


@dataclass(frozen=True)
class Exact(Values):
    """32-bit floats, not rounded.

    >>> Exact().round(SparseUpdate(2, None, [0.5, -2.0]), [2]).tolist()
    [0.5, -2.0]
    """

    exact = True

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        return update.values


@dataclass(frozen=True)
class Half(Values):
    """16-bit floats, which need half the bytes.

    >>> Half().round(SparseUpdate(2, None, [1.0, 1.0001]), [2]).tolist()
    [1.0, 1.0]
    """

    paper_bits = 16
    coding = "f16"

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        return np.clip(update.values, -HALF_MAX, HALF_MAX).astype(np.float16).astype(np.float32)


@dataclass(frozen=True)
class Ternary(Values):
    """μ·sign, where μ is the mean magnitude of the kept values of each part: the quantiser of STC and γ-FedHT-Q.

    >>> Ternary().round(SparseUpdate(3, None, [1.0, -2.0, 3.0]), [3]).tolist()
    [2.0, -2.0, 2.0]
    """

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
    """bfloat16: the upper half of a 32-bit float, rounded to nearest, ties to even. It has the range of float32.

    >>> BFloat().round(SparseUpdate(3, None, [1.0, 1.01, -0.3]), [3]).tolist()
    [1.0, 1.0078125, -0.30078125]
    """

    paper_bits = 16
    coding = "bf16"
    sends_zeros = True

    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        words = update.values.view(np.uint32)
        rounded = words + (np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1)))
        beyond = rounded & np.uint32(0x7FFFFFFF) >= INFINITY  # the largest values would become infinite
        return (np.where(beyond, words, rounded) & UPPER).view(np.float32)


INFINITY, UPPER = np.uint32(0x7F800000), np.uint32(0xFFFF0000)


@dataclass(frozen=True)
class Bits(Coded):
    """Whole numbers of 8, 4 or 2 bits, rounded to the nearest, times a scale for each block of values.

    bits    8, 4 or 2
    block   the number of values that share a scale

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
    """QSGD: each value becomes one of the two nearest multiples of norm/levels, drawn so that its mean is right.

    levels   1 … 127: up to 1, a value takes 2 bits; up to 7, 4 bits; up to 127, 8 bits
    block    the number of values that share a norm
    norm     "max": the largest magnitude; "l2": the root of the sum of squares, as in the paper's analysis

    >>> ByChance(levels=1).sent(SparseUpdate(3, None, [2.0, 0.0, -2.0]), [3], key=0).values.tolist()
    [2.0, 0.0, -2.0]
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

    scale   "unbiased": the mean over keys is right; "nearest": the least squared error, for use with a memory

    >>> update = SparseUpdate(64, None, np.ones(64, np.float32))
    >>> len(Rotation().sent(update, [64], key=0).code.values.signs)
    8
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
"""With these, random numbers for rounding, rotations and positions are independent, though the moment has one key."""


def _require_block(block: int) -> None:
    fits = isinstance(block, int) and 1 <= block <= MAX_DIM
    require(fits, f"block must be a whole number of at least 1, got {block!r}")
