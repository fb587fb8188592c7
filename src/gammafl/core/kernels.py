"""The O(d) loops, compiled, and run on slices by a small pool of threads.

Form of the loops: constant blocks of 64 elements whose hit flags are OR-ed without a branch, so that the
compiler vectorises them; a block is looked at again only when something in it was hit. Each thread works on
a slice of its own and results are joined in the order of the slices, so a result does not depend on the
number of threads. The pool is Python's own with kernels that release the GIL: numba's threading layers
abort on concurrent use or break after a fork.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.jit import compiled

Vector = NDArray[np.float32]
Positions = NDArray[np.uint32]

BLOCK = 64
SLICE_AT_LEAST = 1 << 20
"""A slice shorter than this (4 MiB) is done before a second thread has woken up."""

MAGNITUDE = np.uint32(0x7FFFFFFF)
"""Mask of a float32's bits without the sign; as integers they order like |v|, with infinity and NaN last."""

_threads = os.cpu_count() or 1
_pool: tuple[int, ThreadPoolExecutor] | None = None


def set_threads(count: int) -> None:
    """Use at most `count` threads for one vector (default: all cores)."""
    global _threads
    _threads = max(1, count)


def _on_slices(work: Callable[[int, int], Any], size: int) -> list[Any]:
    """`work(start, stop)` for slices that cover 0…size in order; in threads where that pays."""
    global _pool
    parts = max(1, min(_threads, size // SLICE_AT_LEAST))
    if parts == 1:
        return [work(0, size)]
    if _pool is None or _pool[0] != os.getpid():  # a forked child has the object but not its threads
        _pool = (os.getpid(), ThreadPoolExecutor(os.cpu_count() or 1, "gammafl-kernel"))
    step = -(-size // parts // BLOCK) * BLOCK
    bounds = [(start, min(start + step, size)) for start in range(0, size, step)]
    return list(_pool[1].map(lambda bound: work(*bound), bounds))


def _join(parts: list[tuple[Positions, Vector]]) -> tuple[Positions, Vector]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


# --- largest magnitude: a guard that costs one read -------------------------------------------------------


@compiled
def _largest_bits(bits: Any) -> Any:
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & MAGNITUDE)
    return largest


def largest_magnitude(vector: Vector) -> float:
    """max |v_j|, 0 for an empty vector; infinite or NaN if any element is."""
    bits = vector.view(np.uint32)
    largest = max(_on_slices(lambda a, b: _largest_bits(bits[a:b]), vector.size))
    return float(np.uint32(largest).view(np.float32))


# --- hard threshold with error feedback -------------------------------------------------------------------


@compiled
def _emit_above(residual: Any, threshold: Any, first: Any, indices: Any, values: Any, count: int) -> int:
    for j in range(residual.size):
        v = residual[j]
        if not abs(v) <= threshold:
            indices[count] = first + j
            values[count] = v
            residual[j] = 0
            count += 1
    return count


@compiled
def _add_and_take_above(delta: Any, residual: Any, threshold: Any, start: int, indices: Any, values: Any) -> int:
    count = 0
    whole = residual.size - residual.size % BLOCK
    for base in range(0, whole, BLOCK):
        d = delta[base : base + BLOCK]
        r = residual[base : base + BLOCK]
        hit = False
        for j in range(BLOCK):
            v = r[j] + d[j]
            r[j] = v
            hit |= not abs(v) <= threshold
        if hit:
            count = _emit_above(r, threshold, start + base, indices, values, count)
    for j in range(whole, residual.size):
        residual[j] += delta[j]
    return _emit_above(residual[whole:], threshold, start + whole, indices, values, count)


def add_and_take_above(delta: Vector, residual: Vector, threshold: float) -> tuple[Positions, Vector]:
    """residual ← residual + delta; what exceeds `threshold` in magnitude is taken out and returned.

    One pass: reads both vectors, writes the residual, emits (indices, values). Algorithm 1, lines 12-13.
    """
    limit = np.float32(threshold)

    def work(start: int, stop: int) -> tuple[Positions, Vector]:
        # Room for the worst case; the system commits only the pages that are written.
        indices, values = np.empty(stop - start, np.uint32), np.empty(stop - start, np.float32)
        count = _add_and_take_above(delta[start:stop], residual[start:stop], limit, start, indices, values)
        return indices[:count].copy(), values[:count].copy()

    return _join(_on_slices(work, residual.size))


# --- exact top-k by radix select on the magnitude bits ----------------------------------------------------

DIGITS = ((20, 11), (9, 11), (0, 9))
"""The 31 magnitude bits in three digits: (shift, width)."""


@compiled
def _count_digits(bits: Any, prefix: Any, above: int, shift: int, width: int) -> Any:
    """How often each digit occurs among the magnitudes whose bits from `above` up equal `prefix`."""
    counts = np.zeros(1 << width, np.int64)
    mask = np.uint32((1 << width) - 1)
    for i in range(bits.size):
        key = bits[i] & MAGNITUDE
        if (np.uint64(key) >> np.uint64(above)) == prefix:
            counts[(key >> np.uint32(shift)) & mask] += 1
    return counts


def _kth_largest_bits(bits: NDArray[np.uint32], k: int) -> tuple[int, int]:
    """The bits of the k-th largest magnitude, and how many of that very magnitude belong to the k."""
    prefix, above, wanted = 0, 31, k
    for shift, width in DIGITS:
        parts = _on_slices(lambda a, b: _count_digits(bits[a:b], np.uint64(prefix), above, shift, width), bits.size)  # noqa: B023
        from_the_top = np.cumsum(sum(parts)[::-1])
        place = int(np.searchsorted(from_the_top, wanted))
        wanted -= int(from_the_top[place - 1]) if place else 0
        prefix, above = (prefix << width) | ((1 << width) - 1 - place), shift
    return prefix, wanted


@compiled
def _list_at_least(vector: Any, bits: Any, limit: Any, start: int, indices: Any, values: Any) -> int:
    count = 0
    for base in range(0, bits.size, BLOCK):
        b = bits[base : base + BLOCK]
        hit = False
        for j in range(b.size):
            hit |= (b[j] & MAGNITUDE) >= limit
        if hit:
            for j in range(b.size):
                if (b[j] & MAGNITUDE) >= limit:
                    indices[count] = start + base + j
                    values[count] = vector[base + j]
                    count += 1
    return count


def take_largest(vector: Vector, k: int) -> tuple[Positions, Vector]:
    """Takes the k entries of largest magnitude out of `vector` and returns (indices, values).

    Exact, O(d), never more than k: among equal magnitudes the first positions win. Zeros carry nothing
    and are not taken.
    """
    k = min(k, vector.size)
    if k == 0:
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    bits = vector.view(np.uint32)
    kth, ties = _kth_largest_bits(bits, k)
    limit = np.uint32(max(kth, 1))

    def work(start: int, stop: int) -> tuple[Positions, Vector]:
        indices, values = np.empty(stop - start, np.uint32), np.empty(stop - start, np.float32)
        count = _list_at_least(vector[start:stop], bits[start:stop], limit, start, indices, values)
        return indices[:count].copy(), values[:count].copy()

    indices, values = _join(_on_slices(work, vector.size))
    if len(indices) > k:
        tied = np.flatnonzero((values.view(np.uint32) & MAGNITUDE) == kth)
        indices, values = np.delete(indices, tied[ties:]), np.delete(values, tied[ties:])
    vector[indices] = 0
    return indices, values


# --- aggregation ------------------------------------------------------------------------------------------


@compiled
def subtract_scaled(model: Any, values: Any, weight: Any) -> None:
    """model ← model − weight · values."""
    for j in range(values.size):
        model[j] -= weight * values[j]


@compiled
def subtract_scaled_at(model: Any, indices: Any, values: Any, weight: Any) -> None:
    """model[indices] ← model[indices] − weight · values; the same rounding as `subtract_scaled`."""
    for j in range(values.size):
        model[indices[j]] -= weight * values[j]
