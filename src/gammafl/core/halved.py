"""A vector in half the bytes: bfloat16, randomly rounded up or down, so that the mean stays right.

Rounding to the nearest would always drop an update that is small compared to its residual. With random rounding, the
residual sometimes moves by a full step, so that its mean is right.
"""

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.values import INFINITY, UPPER

PART = 1 << 20
"""Elements per step, so that the random numbers need little memory."""


def round_by_chance(vector: Vector, rng: np.random.Generator) -> None:
    """Rounds each element to one of its two neighbours in bfloat16, in place. Its mean is the element.

    >>> vector = np.full(100_000, 1 + 1 / 1024, np.float32)
    >>> round_by_chance(vector, np.random.default_rng(0))
    >>> sorted(set(vector.tolist())), round(float(vector.mean()), 4)
    ([1.0, 1.0078125], 1.001)
    """
    words = vector.view(np.uint32)
    for start in range(0, words.size, PART):
        part = words[start : start + PART]
        raised = part + rng.integers(0, 1 << 16, part.size, np.uint32)
        beyond = raised & np.uint32(0x7FFFFFFF) >= INFINITY  # the largest values would become infinite
        part[:] = np.where(beyond, part, raised) & UPPER


def to_halves(vector: Vector) -> NDArray[np.uint8]:
    """The upper half of each element, low byte first. If the vector was rounded, nothing is lost."""
    return (vector.view(np.uint32) >> np.uint32(16)).astype("<u2").view(np.uint8)


def from_halves(halves: NDArray[np.uint8]) -> Vector:
    """The vector from the bytes of `to_halves`."""
    return (halves.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
