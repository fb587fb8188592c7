"""Samples of a vector: one random place in each of several equal parts.

Because of the parts, the sample represents all layers of a model. A key determines the places.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.device.vectors import DeviceVector
from gammafl.core.jit import compiled, compiled_reordering

ONE = np.uint64(1)
ENOUGH = 1024
"""A sample of this size tells the size of a vector within a few per cent."""

SHORT = 1 << 15
"""A vector up to this length is read as a whole, which is as fast as a sample."""


@compiled
def drawn_places(parts: Any, size: Any, key: Any) -> Any:
    """`places` for compiled code, with splitmix64. All numbers are unsigned."""
    places = np.empty(parts, np.int64)
    for number in range(parts):
        first, end = number * size // parts, (number + ONE) * size // parts
        word = key + number * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word ^= word >> np.uint64(31)
        places[number] = first + word % (end - first)
    return places


def places(parts: int, size: int, key: int) -> NDArray[np.int64]:
    """One place in each of `parts` equal parts of 0…size, in order.

    >>> places(3, 9, key=5) // 3
    array([0, 1, 2])
    """
    return drawn_places(np.uint64(parts), np.uint64(size), np.uint64(key))


def root_mean_square(vector: Vector, key: int) -> float:
    """√mean(v²); for a long vector an estimate from a sample.

    >>> root_mean_square(np.full(5000, 3, np.float32), key=0)
    3.0
    """
    whole = vector.size <= SHORT and not isinstance(vector, DeviceVector)  # from a device, only a sample is copied
    found = vector if whole else vector[places(min(ENOUGH, vector.size), vector.size, key)]
    return math.sqrt(sum_of_squares(found) / found.size) if found.size else 0.0


@compiled_reordering
def sum_of_squares(vector: Any) -> Any:
    """Σ v², added up in float64."""
    total = 0.0
    for j in range(vector.size):
        total += np.float64(vector[j]) * np.float64(vector[j])
    return total
