"""How kept values become bits: as they are, as 16-bit floats, or as ±μ.

A rounding is written once, as `round`: the values as they will be sent. What rounding takes away stays in the memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import ValueCoding

HALF_MAX = float(np.finfo(np.float16).max)


class Values(ABC):
    """How the values of an update are rounded before they are sent."""

    exact: bool = False
    """Whether values are sent as they are."""

    paper_bits: int = 32
    """Bits of one kept value in the paper's own accounting, which counts no positions."""

    coding: ValueCoding = "f32"
    """A coding of the wire that can hold whatever `round` returns. "ternary": one magnitude in each part."""

    @abstractmethod
    def round(self, update: SparseUpdate, sizes: Sequence[int]) -> Vector:
        """The values of `update` as they will be sent. `sizes` are the lengths of the parts that were compressed each
        on its own; together they are the update's dimension."""


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
