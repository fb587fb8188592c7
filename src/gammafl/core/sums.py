"""Sums over a vector in float64. They do not depend on the number of threads.

Each piece of a fixed length is added up first; then the sums of the pieces are added up in order.
"""

import math
from typing import Any

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.jit import compiled_reordering
from gammafl.core.kernels import SLICE_AT_LEAST
from gammafl.core.threads import share_out

PIECE = 1 << 16


@compiled_reordering
def _sum_magnitudes(vector: Any) -> Any:
    total = 0.0
    for j in range(vector.size):
        total += np.float64(abs(vector[j]))
    return total, 0.0, 0.0


@compiled_reordering
def _sum_squares(vector: Any) -> Any:
    total, squares = 0.0, 0.0
    for j in range(vector.size):
        v = np.float64(vector[j])
        total += v
        squares += v * v
    return total, squares, 0.0


@compiled_reordering
def _sum_logarithms(vector: Any) -> Any:
    total, count = 0.0, 0
    for j in range(vector.size):
        if vector[j] != 0:
            total += math.log(np.float64(abs(vector[j])))
            count += 1
    return total, np.float64(count), 0.0


@compiled_reordering
def _sum_excesses(vector: Any, threshold: Any) -> Any:
    total, squares, count = 0.0, 0.0, 0
    for j in range(vector.size):
        magnitude = abs(vector[j])
        excess = np.float64(magnitude) - np.float64(threshold) if magnitude > threshold else 0.0
        total += excess
        squares += excess * excess
        count += magnitude > threshold
    return total, squares, np.float64(count)


def _over_pieces(work: Any, vector: Vector, *more: Any) -> list[float]:
    def pieces(start: int, stop: int) -> list[tuple[float, float, float]]:
        return [work(vector[first : min(first + PIECE, stop)], *more) for first in range(start, stop, PIECE)]

    if vector.size <= PIECE:
        return list(work(vector, *more))
    parts = share_out(pieces, vector.size, SLICE_AT_LEAST, PIECE)
    table: list[float] = np.sum([piece for part in parts for piece in part], axis=0).tolist()
    return table


def mean_magnitude(vector: Vector) -> float:
    """‖v‖₁/d; 0 for an empty vector.

    >>> mean_magnitude(np.array([1, -2, 0], np.float32))
    1.0
    """
    return _over_pieces(_sum_magnitudes, vector)[0] / max(1, vector.size)


def standard_deviation(vector: Vector) -> float:
    """√mean((v − mean v)²).

    >>> standard_deviation(np.array([1, 3], np.float32))
    1.0
    """
    total, squares, _ = _over_pieces(_sum_squares, vector)
    mean = total / max(1, vector.size)
    return math.sqrt(max(0.0, squares / max(1, vector.size) - mean * mean))


def mean_logarithm(vector: Vector) -> tuple[float, int]:
    """The mean of log |v_j| over all elements that are not zero, and their number.

    >>> mean_logarithm(np.array([1, 0, -1], np.float32))
    (0.0, 2)
    """
    total, count, _ = _over_pieces(_sum_logarithms, vector)
    return total / max(1.0, count), int(count)


def excesses(vector: Vector, threshold: float) -> tuple[int, float, float]:
    """How many |v_j| exceed the threshold, and the mean and the variance of |v_j| − threshold among them.

    >>> excesses(np.array([1, -2, 5], np.float32), 1.0)
    (2, 2.5, 2.25)
    """
    total, squares, count = _over_pieces(_sum_excesses, vector, np.float32(threshold))
    mean = total / max(1.0, count)
    return int(count), mean, max(0.0, squares / max(1.0, count) - mean * mean)
