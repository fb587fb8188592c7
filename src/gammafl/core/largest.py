"""The k entries of largest magnitude: exact, in O(d), and in one pass if a sample gives a good limit.

The result depends only on the vector, on k and on the key, not on the sample or the number of threads. Zeros are never
taken. Magnitudes are compared by their bits, so that all scales are treated alike.

    1. A keyed sample of |residual + delta| gives two limits: k entries and some more exceed the lower one, and fewer
       than k exceed the upper one.
    2. One fused pass adds, and takes out the entries above the lower limit: the candidates.
    3. Only candidates between the limits are counted to find the k-th. The k largest candidates are kept, the others
       return. Among equal magnitudes, the key chooses; without a key, the first are kept.

The rest of the vector is scanned again only if a limit was wrong, or if magnitudes are equal.
"""

import math
from typing import Any

import numpy as np

from gammafl.core import kernels
from gammafl.core.arrays import Positions, Vector
from gammafl.core.candidates import Key, chosen, keep, keep_few, kth_between, not_above
from gammafl.core.device.vectors import zeros_like
from gammafl.core.jit import compiled, trailing_zeros
from gammafl.core.kernels import BLOCK, MAGNITUDE, ONE, on_slices

SPARSE = 2
"""If k is less than one in this number of elements, a sample is used."""

FEW = 256
"""For a vector with fewer lines of memory than this, no sample is used."""

PLACES = 1024
"""The number of places in a sample. Each access to a new place takes time, so a sample reads several lines there."""

LINE, LINES = 16, 4
"""The elements of a line of memory, and the lines that are read at a place."""

MARGIN = 3
"""By how many standard deviations the sample's count of large elements may be wrong."""

DIGITS = ((20, 11), (9, 11), (0, 9))
"""The 31 magnitude bits in three digits: (shift, width)."""

NOTHING, LARGEST = np.uint32(0), MAGNITUDE

Found = tuple[Positions, Vector]


def take_largest(vector: Vector, k: int, key: int | None = None) -> Found:
    """`add_and_take_largest` with nothing to add."""
    return add_and_take_largest(zeros_like(vector), vector, k, key)


def add_and_take_largest(delta: Vector, residual: Vector, k: int, key: int | None = None) -> Found:
    """residual ← residual + delta. Takes out its k entries of largest magnitude, and returns (indices, values).

    They are exactly k, or all that are not zero if these are fewer. Among magnitudes equal to the smallest one taken,
    `key` chooses at random; without a key, the first positions are taken.

    >>> vector = np.array([1, -4, 3, 2], np.float32)
    >>> indices, values = add_and_take_largest(np.zeros(4, np.float32), vector, 2)
    >>> indices.tolist(), values.tolist(), vector.tolist()
    ([1, 2], [-4.0, 3.0], [1.0, 0.0, 0.0, 2.0])
    """
    if not isinstance(residual, np.ndarray):
        return residual.add_and_take_largest(residual.beside(delta), k, key)
    k = min(k, residual.size)
    if k == 0 or residual.size < max(SPARSE * k, LINE * FEW):
        residual += delta
        return _take_exactly(residual, k, key)
    limits = _likely_limits(delta, residual, k, key or 0)
    found = _take_likely(delta, residual, k, key, limits)
    missing = k - len(found[0])
    if missing == 0 or limits[0] == 0:
        return found
    return merged(found, _take_equal(residual, limits[0], missing, key) or _take_exactly(residual, missing, key))


def _take_likely(delta: Vector, residual: Vector, k: int, key: int | None, limits: tuple[int, int]) -> Found:
    """The fused pass: the k largest entries above the lower limit, or all of them if they are fewer."""
    find = kernels.adding_and_taking_above(delta, residual, _as_float(limits[0]))
    if residual.size <= kernels.ROOM:
        pieces = [kernels.find_all(find, residual.size)]
        indices, values = pieces[0]
        if indices.size > k:
            found = keep_few(indices, values.view(np.uint32), *limits, residual.view(np.uint32), k, *_drawn(key))
        else:
            found = kernels.joined(pieces)
    else:
        looked_at = kernels.collect_pieces(find, residual.size, lambda piece: _near(piece, limits[1]))
        pieces, near = [piece for piece, _ in looked_at], [bits for _, bits in looked_at]
        enough = sum(indices.size for indices, _ in pieces) > k
        found = keep(pieces, near, limits, residual, k, _drawn(key)) if enough else kernels.joined(pieces)
    kernels.leave(pieces)
    return found


def _near(piece: kernels.Piece, upper: int) -> Positions:
    return not_above(piece[1].view(np.uint32), np.uint32(upper))


def _drawn(key: int | None) -> Key:
    return key is not None, np.uint64(key or 0)


def merged(found: Found, more: Found) -> Found:
    """Two sets of entries joined, in the order of their positions."""
    places = np.searchsorted(found[0], more[0])
    return np.insert(found[0], places, more[0]), np.insert(found[1], places, more[1])


# --- a sample ---------------------------------------------------------------------------------------------


@compiled
def _maxima(delta: Any, residual: Any, offset: Any, stride: Any, places: Any, looked_at: Any) -> Any:
    """The largest magnitude of residual + delta among the first elements of each line of the sample."""
    lines, line = np.uint64(LINES), np.uint64(LINE)
    maxima = np.empty(places * lines, np.uint32)
    for place in range(places):
        for number in range(lines):
            first = ((offset + place * stride) * lines + number) * line
            most = np.uint32(0)
            for j in range(first, first + looked_at):
                most = max(most, np.uint32(np.float32(residual[j] + delta[j]).view(np.uint32) & MAGNITUDE))
            maxima[place * lines + number] = most
    return maxima


@compiled
def _sampled_limits(
    delta: Any, residual: Any, offset: Any, stride: Any, places: Any, looked_at: Any, low: Any, high: Any
) -> Any:
    """The maxima at the ranks `low` and `high`."""
    maxima = _maxima(delta, residual, np.uint64(offset), np.uint64(stride), np.uint64(places), np.uint64(looked_at))
    zeros = maxima.size - np.count_nonzero(maxima)
    lowest = kth_between(maxima, NOTHING, LARGEST, low - zeros)[0] if low >= zeros else NOTHING
    highest = LARGEST
    if high < maxima.size:
        highest = kth_between(maxima, NOTHING, LARGEST, high - zeros)[0] if high >= zeros else NOTHING
    return np.uint32(lowest), np.uint32(highest)


def _likely_limits(delta: Vector, residual: Vector, k: int, key: int) -> tuple[int, int]:
    """The bits of two magnitudes. k elements of residual + delta and some more exceed the first, fewer the second.

    This holds if the sample is representative. A line counts once, by its maximum. If large elements are neighbours,
    this makes the limits lower, never higher. If most lines would have a large element, one per line is used.
    """
    size = residual.size
    places = min(PLACES, size // 1024)
    count = places * LINES
    stride = (size // (LINE * LINES) // places - 1) | 1  # odd, so that it reaches all columns of most matrices
    looked_at = LINE if LINE * k <= size else 1
    expected = count * (1 - (1 - k / size) ** looked_at)
    margin = MARGIN * math.sqrt(expected) + MARGIN
    low, high = count - math.ceil(expected + margin), count - math.floor(expected - margin)
    return _sampled_limits(delta, residual, key % stride, stride, places, looked_at, low, high)


# --- the exact choice -------------------------------------------------------------------------------------


def _take_exactly(vector: Vector, k: int, key: int | None) -> Found:
    """The k largest of all elements, with a radix select on the magnitude bits: four passes."""
    if k == 0:
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    kth = _kth_largest_bits(vector.view(np.uint32), k)
    above = _list_above(vector, kth)
    vector[above[0]] = 0
    equal = _take_equal(vector, kth, k - len(above[0]), key) if kth else None
    return above if equal is None else merged(above, equal)


@compiled
def _emit_above(bits: Any, limit: Any, base: Any, size: Any, indices: Any, found: Any, count: Any) -> Any:
    """Lists the entries above the limit in a block."""
    hits = np.uint64(0)
    for j in range(size):
        hits |= np.uint64(np.uint32(bits[base + j] & MAGNITUDE) > limit) << j
    while hits:
        j = base + trailing_zeros(hits)
        hits &= hits - ONE
        indices[count] = j
        found[count] = bits[j]
        count += ONE
    return count


@compiled
def _find_above(bits: Any, limit: Any, start: int, stop: int, indices: Any, found: Any) -> Any:
    first, end, room, count = np.uint64(start), np.uint64(stop), np.uint64(indices.size), np.uint64(0)
    whole = end - (end - first) % BLOCK
    for base in range(first, whole, BLOCK):
        hit = False
        for j in range(base, base + BLOCK):
            hit |= np.uint32(bits[j] & MAGNITUDE) > limit
        if hit:
            count = _emit_above(bits, limit, base, BLOCK, indices, found, count)
            if count + BLOCK > room:
                return base + BLOCK, count
    return end, _emit_above(bits, limit, whole, end - whole, indices, found, count)


def _list_above(vector: Vector, limit: int) -> Found:
    """The entries above the magnitude whose bits are `limit`."""
    bits, highest = vector.view(np.uint32), np.uint32(limit)

    def find(start: int, stop: int, indices: Positions, values: Vector) -> tuple[int, int]:
        return _find_above(bits, highest, start, stop, indices, values.view(np.uint32))

    return kernels.collect(find, vector.size)


@compiled
def _count_digits(bits: Any, prefix: Any, above: int, shift: int, width: int) -> Any:
    """How often each digit occurs among the magnitudes whose bits from bit `above` on equal `prefix`."""
    counts = np.zeros(1 << width, np.int64)
    mask = np.uint32((1 << width) - 1)
    for i in range(bits.size):
        key = bits[i] & MAGNITUDE
        if (np.uint64(key) >> np.uint64(above)) == prefix:
            counts[(key >> np.uint32(shift)) & mask] += 1
    return counts


def _kth_largest_bits(bits: Positions, k: int) -> int:
    """The bits of the k-th largest magnitude."""
    prefix, above, wanted = 0, 31, k
    for shift, width in DIGITS:
        parts = on_slices(lambda a, b: _count_digits(bits[a:b], np.uint64(prefix), above, shift, width), bits.size)  # noqa: B023
        from_the_top = np.cumsum(sum(parts)[::-1])
        place = int(np.searchsorted(from_the_top, wanted))
        wanted -= int(from_the_top[place - 1]) if place else 0
        prefix, above = (prefix << width) | ((1 << width) - 1 - place), shift
    return prefix


# --- equal magnitudes -------------------------------------------------------------------------------------


@compiled
def _count_equal(bits: Any, wanted: Any, counts: Any) -> Any:
    """Counts the magnitudes in each block of 64 that equal `wanted`; returns the sum."""
    total = np.int64(0)
    for block in range(counts.size):
        count = np.uint32(0)
        for j in range(64 * block, min(64 * block + 64, bits.size)):
            count += np.uint32((bits[j] & MAGNITUDE) == wanted)
        counts[block] = count
        total += count
    return total


@compiled
def _pick_equal(vector: Any, bits: Any, wanted: Any, counts: Any, chosen: Any, indices: Any, values: Any) -> None:
    """Takes out the chosen entries of equal magnitude, which are numbered in the order of their positions."""
    number, taken = 0, 0
    for block in range(counts.size):
        if taken == chosen.size:
            return
        if chosen[taken] >= number + counts[block]:
            number += counts[block]
            continue
        for j in range(64 * block, min(64 * block + 64, bits.size)):
            if bits[j] & MAGNITUDE == wanted:
                if taken < chosen.size and chosen[taken] == number:
                    indices[taken], values[taken] = j, vector[j]
                    vector[j] = 0
                    taken += 1
                number += 1


def _take_equal(vector: Vector, magnitude: int, wanted: int, key: int | None) -> Found | None:
    """Takes `wanted` of the entries with this magnitude, given by its bits. None if there are fewer."""
    bits, counts = vector.view(np.uint32), np.empty(-(-vector.size // 64), np.uint8)
    ties = _count_equal(bits, np.uint32(magnitude), counts)
    if ties < wanted:
        return None
    found = np.empty(wanted, np.uint32), np.empty(wanted, np.float32)
    _pick_equal(vector, bits, np.uint32(magnitude), counts, chosen(ties, wanted, *_drawn(key)), *found)
    return found


def _as_float(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))
