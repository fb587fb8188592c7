"""A vector in half the bytes: bfloat16, rounded up or down by chance, so that nothing is lost on average.

Rounding to the nearest would drop, every time, an update that is small beside the residual which it is added to. By
chance it counts in full once in a while, and the mean is right.
"""

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.values import INFINITY, UPPER

PART = 1 << 20
"""Elements at a time, so that random numbers take little memory."""


def round_by_chance(vector: Vector, rng: np.random.Generator) -> None:
    """Each element becomes one of its two neighbours in bfloat16, in place; the mean of both is the element.

    >>> vector = np.full(100_000, 1 + 1 / 1024, np.float32)
    >>> round_by_chance(vector, np.random.default_rng(0))
    >>> sorted(set(vector.tolist())), round(float(vector.mean()), 4)
    ([1.0, 1.0078125], 1.001)
    """
    words = vector.view(np.uint32)
    for start in range(0, words.size, PART):
        part = words[start : start + PART]
        raised = part + rng.integers(0, 1 << 16, part.size, np.uint32)
        beyond = raised & np.uint32(0x7FFFFFFF) >= INFINITY  # the largest ones would become infinite
        part[:] = np.where(beyond, part, raised) & UPPER


def to_halves(vector: Vector) -> NDArray[np.uint8]:
    """The upper half of each element, low byte first: all of it, where the vector was rounded."""
    return (vector.view(np.uint32) >> np.uint32(16)).astype("<u2").view(np.uint8)


def from_halves(halves: NDArray[np.uint8]) -> Vector:
    """The vector that `to_halves` was given, if it was rounded."""
    return (halves.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
