"""TernGrad: every entry becomes −s, 0 or s at random, so that its mean is right."""

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from gammafl.core import kernels
from gammafl.core.arrays import Positions, Vector
from gammafl.core.compressors import Compressor, Scope
from gammafl.core.errors import require
from gammafl.core.inputs import is_number
from gammafl.core.jit import compiled
from gammafl.core.kernels import BLOCK, ONE
from gammafl.core.memory import NoMemory
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate
from gammafl.core.sums import standard_deviation
from gammafl.methods.promises import Promise, squared
from gammafl.methods.registry import register
from gammafl.methods.rounded import OneMagnitude
from gammafl.methods.scopes import parts_in, require_scope

EQUAL = 1e-6
"""A standard deviation below this part of the largest magnitude counts as rounding error."""


@dataclass(frozen=True)
class TernGrad(Compressor):
    """Sends s·sign(v_j) with probability |v_j|/s, else 0, where s is the largest magnitude of each part.

    With `clip` = c > 0, entries are first cut off at c standard deviations. Then s and the noise are smaller, but the
    part that is cut off is lost. Whether entry j is sent depends only on v_j/s, the moment's key and j.
    """

    scope: Scope = "global"
    clip: float = 0.0

    def __post_init__(self) -> None:
        require_scope(self.scope)
        valid = is_number(self.clip) and math.isfinite(self.clip) and self.clip >= 0
        require(valid, f"clip is a number of standard deviations, or 0 for none; got {self.clip!r}")

    def parts(self, dim: int, moment: Moment) -> tuple[int, ...]:
        return parts_in(self.scope, dim, moment)

    def magnitude(self, part: Vector) -> float:
        """s. If all entries are equal, as in a tensor with one element, nothing is cut off."""
        largest = kernels.largest_magnitude(part)
        deviation = standard_deviation(part) if self.clip else 0.0
        if deviation <= EQUAL * largest:
            return largest
        return float(np.float32(min(largest, self.clip * deviation)))

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        found = []
        for start, stop in pairwise(accumulate(self.parts(vector.size, moment), initial=0)):
            part = vector[start:stop]
            indices, values = _draw(part, self.magnitude(part), moment.key, start)
            found.append((indices + np.uint32(start), values))
        indices, values = (np.concatenate(column) for column in zip(*found, strict=True))
        return SparseUpdate.of_checked(vector.size, indices, values)


def _draw(part: Vector, magnitude: float, key: int, offset: int) -> tuple[Positions, Vector]:
    """Takes ±magnitude out of the entries that are drawn. `offset` is the position of the part in the whole vector."""

    def find(start: int, stop: int, indices: Positions, values: Vector) -> tuple[int, int]:
        return _draw_some(part, magnitude, np.uint64(key), np.uint64(offset), start, stop, indices, values)

    return kernels.collect(find, part.size)


@compiled
def _draw_some(
    part: Any, magnitude: Any, key: Any, offset: Any, start: int, stop: int, indices: Any, values: Any
) -> Any:
    """One uniform number in [0, 1) for each entry: splitmix64 of the key and its position, with 53 bits.

    It works block by block. First it draws which entries are sent; the compiler vectorises this. Then it writes every
    entry, and overwrites it with the next one if it was not drawn: a branch would be slower, since the processor can't
    predict it.
    """
    first, end, room, count = np.uint64(start), np.uint64(stop), np.uint64(indices.size), np.uint64(0)
    sent, drawn = np.float32(magnitude), np.empty(int(BLOCK), np.uint8)
    for base in range(first, end, BLOCK):
        size = min(BLOCK, end - base)
        for j in range(size):
            word = key + (offset + base + j + ONE) * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
            uniform = np.float64(np.int64(word >> np.uint64(11))) * 2.0**-53
            drawn[j] = uniform * magnitude < np.float64(abs(part[base + j]))
        for j in range(size):
            entry = part[base + j]
            value = np.copysign(sent, entry)
            indices[count] = base + j
            values[count] = value
            part[base + j] = entry - value if drawn[j] else entry
            count += np.uint64(drawn[j])
        if count + BLOCK > room:
            return base + size, count
    return end, count


def _clipped(method: Method, vector: Vector) -> Vector:
    """E C(v): the vector with entries cut off at s."""
    magnitude = method.compressor.magnitude(vector)  # type: ignore[attr-defined]
    return np.clip(vector, -magnitude, magnitude)


def _error(method: Method, vector: Vector) -> float:
    """s·‖w‖₁ − ‖w‖² + ‖v − w‖², where w is the vector with entries cut off at s."""
    cut = _clipped(method, vector)
    magnitude = method.compressor.magnitude(vector)  # type: ignore[attr-defined]
    return magnitude * float(np.abs(cut).sum(dtype=np.float64)) - squared(cut) + squared(vector - cut)


@register(
    "terngrad",
    label="TernGrad",
    colour="#44AA99",
    dash="dot",
    citation="Wen et al., NeurIPS 2017",
    cost="O(d): two passes, three with clip",
    promise=Promise(
        "unbiased, E‖C(v) − v‖² = s·‖v‖₁ − ‖v‖² ≤ (√d − 1)/2·‖v‖²; with clip biased by the part that is cut off",
        _error,
        _clipped,
    ),
    tuned="untuned: clip = 2.5 is its authors' choice for gradients; only without clipping it is unbiased",
    ranges={"clip": (0.0, 2.5)},
)
def terngrad(scope: Scope = "global", clip: float = 0.0) -> Method:
    """Every entry becomes −s, 0 or s at random, so that its mean is right. s is the largest magnitude; no memory.

    scope   "global": one s; "tensor": one for each tensor, as in its paper
    clip    entries are first cut off at this number of standard deviations, 2.5 in its paper; 0: no cut

    >>> terngrad(clip=2.5)
    Method(TernGrad(scope='global', clip=2.5), memory=NoMemory(), values=OneMagnitude(paper_bits=2))
    """
    return Method(TernGrad(scope, clip), memory=NoMemory(), values=OneMagnitude())
