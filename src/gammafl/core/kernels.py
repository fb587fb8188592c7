"""The O(d) loops: compiled, and run on slices by a small pool of threads.

The loops work on blocks of 64 elements. They join the hit flags of a block with OR and without a branch, so that the
compiler vectorises them. Only blocks with a hit are scanned again. That scan packs the hit flags into a 64-bit word and
iterates over its set bits. Indices are unsigned, which avoids a test for negative ones. Each thread works on its own
slice, and results are joined in the order of the slices. So a result does not depend on the number of threads.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from gammafl.core import threads
from gammafl.core.arrays import Positions, Vector
from gammafl.core.errors import require
from gammafl.core.freed_memory import keep_freed_memory
from gammafl.core.jit import compiled, trailing_zeros

ONE = np.uint64(1)
BLOCK = np.uint64(64)
SLICE_AT_LEAST = 1 << 20
"""A shorter slice (4 MiB) is finished before a second thread starts."""

ROOM = 1 << 16
"""The most entries that are collected at a time. So memory is used for the hits, not for the worst case."""

KEPT_ROOMS = 32
"""How many rooms are kept for the next call (16 MiB). New memory for each call would cost more than the entries."""

MAGNITUDE = np.uint32(0x7FFFFFFF)
"""Mask of a float32's bits without the sign. As integers, their order is that of |v|, with infinity and NaN last."""


def on_slices(work: Callable[[int, int], Any], size: int) -> list[Any]:
    """`work(start, stop)` for slices that cover 0…size, in order. Long slices run in threads."""
    return threads.share_out(work, size, SLICE_AT_LEAST, int(BLOCK))


Find = Callable[[int, int, Positions, Vector], tuple[int, int]]
Room = tuple[Positions, Vector]
Piece = tuple[Positions, Vector]
"""The entries of a room. After reading them, give the room back with `leave`."""

Looked = TypeVar("Looked")
_free_rooms: list[Room] = []
"""Rooms that are not in use. Threads take and return whole rooms, which is atomic for a list."""


def collect(find: Find, size: int) -> tuple[Positions, Vector]:
    """All entries that `find(start, stop, indices, values)` writes, one room at a time.

    `find` returns (where it stopped, how many entries it found). It stops when the next block's entries might not fit.
    """
    if size <= ROOM:
        room = _enter()
        _, count = find(0, size, *room)
        found = room[0][:count].copy(), room[1][:count].copy()
        _leave([room])
        return found
    pieces = [piece for piece, _ in collect_pieces(find, size, len)]
    found = joined(pieces)
    leave(pieces)
    return found


def find_all(find: Find, size: int) -> Piece:
    """All entries of a vector of at most `ROOM` elements."""
    indices, values = _enter()
    _, count = find(0, size, indices, values)
    return indices[:count], values[:count]


def collect_pieces(find: Find, size: int, look: Callable[[Piece], Looked]) -> list[tuple[Piece, Looked]]:
    """As `collect`, but in pieces, in order, each with the result of `look`. The thread that wrote a piece calls it."""
    _keep_memory()

    def work(start: int, stop: int) -> list[tuple[Piece, Looked]]:
        pieces = []
        while start < stop:
            indices, values = _enter()
            start, count = find(start, stop, indices, values)
            piece = indices[:count], values[:count]
            pieces.append((piece, look(piece)))
        return pieces

    return [piece for part in on_slices(work, size) for piece in part]


def joined(pieces: Sequence[Piece]) -> tuple[Positions, Vector]:
    """All entries, copied to new memory."""
    if len(pieces) == 1:
        return pieces[0][0].copy(), pieces[0][1].copy()
    return np.concatenate([indices for indices, _ in pieces]), np.concatenate([values for _, values in pieces])


def leave(pieces: Sequence[Piece]) -> None:
    """Gives the rooms of these pieces back."""
    _leave([cast(Room, (indices.base, values.base)) for indices, values in pieces])


def _leave(rooms: list[Room]) -> None:
    _free_rooms.extend(rooms)
    del _free_rooms[KEPT_ROOMS:]


@cache
def _keep_memory() -> None:
    """Calls `keep_freed_memory` once: the entries of long vectors need about the same memory each time."""
    keep_freed_memory()


def _enter() -> Room:
    """A room that is not in use."""
    try:
        return _free_rooms.pop()
    except IndexError:
        return np.empty(ROOM + int(BLOCK), np.uint32), np.empty(ROOM + int(BLOCK), np.float32)


# --- largest magnitude: a check that costs one read, or nothing if the vector is written anyway -----------


@compiled
def _largest_bits(bits: Any) -> Any:
    largest = np.uint32(0)
    for j in range(bits.size):
        largest = max(largest, np.uint32(bits[j] & MAGNITUDE))
    return largest


@compiled
def _largest(bits: Any) -> Any:
    """The same as a number, in one call for short vectors."""
    return np.uint32(_largest_bits(bits)).view(np.float32)


@compiled
def subtract_into(before: Any, after: Any, out: Any) -> Any:
    """`difference` for compiled code. Returns the bits of the largest magnitude."""
    largest = np.uint32(0)
    for j in range(out.size):
        v = np.float32(before[j] - after[j])
        out[j] = v
        largest = max(largest, np.uint32(np.float32(v).view(np.uint32) & MAGNITUDE))
    return largest


def largest_magnitude(vector: Vector) -> float:
    """max |v_j|, 0 for an empty vector; infinite or NaN if any element is."""
    if not isinstance(vector, np.ndarray):
        return vector.largest_magnitude()
    bits = vector.view(np.uint32)
    if bits.size < SLICE_AT_LEAST:
        return float(_largest(bits))
    return _as_float(on_slices(lambda start, stop: _largest_bits(bits[start:stop]), vector.size))


def difference(before: Vector, after: Vector, out: Vector) -> float:
    """out ← before − after, for float32 vectors of the same length, in one pass. Returns the largest magnitude."""
    require(before.shape == after.shape == out.shape, "difference needs vectors of one length")
    if not isinstance(out, np.ndarray):
        return out.difference(before, after)

    def work(start: int, stop: int) -> int:
        return subtract_into(before[start:stop], after[start:stop], out[start:stop])

    return _as_float(on_slices(work, out.size))


def _as_float(bits: list[int]) -> float:
    return float(np.uint32(max(bits)).view(np.float32))


# --- hard threshold with error feedback -------------------------------------------------------------------


@compiled
def _emit_above(residual: Any, threshold: Any, base: Any, size: Any, indices: Any, values: Any, count: Any) -> Any:
    """Takes the entries above the threshold out of a block."""
    hits = np.uint64(0)
    for j in range(size):
        hits |= np.uint64(not abs(residual[base + j]) <= threshold) << j
    while hits:
        j = base + trailing_zeros(hits)
        hits &= hits - ONE
        indices[count] = j
        values[count] = residual[j]
        residual[j] = 0
        count += ONE
    return count


@compiled
def _add_and_take_above(
    delta: Any, residual: Any, threshold: Any, start: int, stop: int, indices: Any, values: Any
) -> Any:
    first, end, room, count = np.uint64(start), np.uint64(stop), np.uint64(indices.size), np.uint64(0)
    whole = end - (end - first) % BLOCK
    for base in range(first, whole, BLOCK):
        hit = False
        for j in range(base, base + BLOCK):
            v = residual[j] + delta[j]
            residual[j] = v
            hit |= not abs(v) <= threshold
        if hit:
            count = _emit_above(residual, threshold, base, BLOCK, indices, values, count)
            if count + BLOCK > room:
                return base + BLOCK, count
    for j in range(whole, end):
        residual[j] += delta[j]
    return end, _emit_above(residual, threshold, whole, end - whole, indices, values, count)


def add_and_take_above(delta: Vector, residual: Vector, threshold: float) -> tuple[Positions, Vector]:
    """residual ← residual + delta. Takes out the entries above `threshold` in magnitude, and returns them.

    One pass reads both vectors, writes the residual, and writes (indices, values). Algorithm 1, lines 12-13.
    """
    if not isinstance(residual, np.ndarray):
        return residual.add_and_take_above(residual.beside(delta), threshold)
    return collect(adding_and_taking_above(delta, residual, threshold), residual.size)


def adding_and_taking_above(delta: Vector, residual: Vector, threshold: float) -> Find:
    """The pass of `add_and_take_above`, for `collect`."""
    limit = np.float32(threshold)

    def find(start: int, stop: int, indices: Positions, values: Vector) -> tuple[int, int]:
        return _add_and_take_above(delta, residual, limit, start, stop, indices, values)

    return find


# --- aggregation ------------------------------------------------------------------------------------------


@compiled
def subtract_scaled(model: Any, values: Any, weight: Any) -> None:
    """model ← model − weight · values."""
    for j in range(values.size):
        model[j] -= weight * values[j]


@compiled
def subtract_scaled_at(model: Any, indices: Any, values: Any, weight: Any) -> None:
    """model[indices] ← model[indices] − weight · values, with the same rounding as `subtract_scaled`."""
    for j in range(values.size):
        model[indices[j]] -= weight * values[j]
