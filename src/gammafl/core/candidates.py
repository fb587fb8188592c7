"""The k largest of some candidates, exactly, and the others back to where they were.

Magnitudes are given by their bits, which order like |v|. A guess tells where the k-th largest is: only what is near is
counted, in bins that become narrower until one holds a single magnitude.
"""

from typing import Any

import numpy as np

from gammafl.core.jit import bits_set, compiled, trailing_zeros
from gammafl.core.kernels import BLOCK, MAGNITUDE, ONE
from gammafl.core.lanes import LANES, above, pack
from gammafl.core.scatter import drawn_places

BINS = 4096
"""Bins that magnitudes are counted in."""

UNIT, STEP = np.uint32(1), np.uint64(LANES)


@compiled
def chosen(ties: int, wanted: int, keyed: bool, key: Any) -> Any:
    """Which of `ties` equal magnitudes are taken, in order: one of each of `wanted` equal parts, or the first."""
    if keyed and 0 < wanted < ties:
        return drawn_places(np.uint64(wanted), np.uint64(ties), key)
    return np.arange(wanted)


@compiled
def _count_between(bits: Any, low: Any, high: Any, shift: Any, counts: Any) -> Any:
    """Counts the magnitudes above `low` and not above `high` in bins of 2^shift, and returns how many they are."""
    inside, whole = np.uint64(0), np.uint64(bits.size) // BLOCK * BLOCK
    counts[:] = 0
    for base in range(np.uint64(0), whole, BLOCK):
        between = np.uint64(0)
        for i in range(np.uint64(0), BLOCK, STEP):
            between |= (above(bits, base + i, low) & ~above(bits, base + i, high)) << i
        inside += bits_set(between)
        while between:
            counts[(np.uint32(bits[base + trailing_zeros(between)] & MAGNITUDE) - low - UNIT) >> shift] += UNIT
            between &= between - ONE
    for i in range(whole, np.uint64(bits.size)):
        magnitude = np.uint32(bits[i] & MAGNITUDE)
        if low < magnitude <= high:
            inside += ONE
            counts[(magnitude - low - UNIT) >> shift] += UNIT
    return np.int64(inside)


@compiled
def kth_between(bits: Any, low: Any, high: Any, number: Any) -> Any:
    """The first magnitude that remains when the `number` smallest are left out, by its bits.

    And how many equal it, and how many of these remain. All must be above `low`; `high` is a guess of where to look,
    right if the magnitude is not above it.
    """
    counts = np.empty(BINS, np.uint32)
    while True:
        shift = np.uint32(0)
        while (high - low - UNIT) >> shift >= np.uint32(BINS):
            shift += UNIT
        inside = _count_between(bits, low, high, shift, counts)
        if inside <= number:
            low, high, number = high, MAGNITUDE, number - inside
            continue
        bin_ = np.uint32(0)
        while counts[bin_] <= number:
            number -= counts[bin_]
            bin_ += UNIT
        low += bin_ << shift
        high = min(high, low + (UNIT << shift))
        if shift == 0:
            return high, counts[bin_], counts[bin_] - number


@compiled
def _separate(indices: Any, bits: Any, kth: Any, chosen: Any, residual: Any, others: Any, rest: Any) -> None:
    """Moves what is above `kth`, and the chosen of what is equal to it, to the front; the others into the residual.

    The values are given by their bits.
    """
    kept, returned, ties, taken = np.uint64(0), np.uint64(0), 0, 0
    whole = np.uint64(bits.size) // STEP * STEP
    for i in range(np.uint64(0), whole, STEP):
        keeps = above(bits, i, kth)
        equal = above(bits, i, kth - np.uint32(1)) & ~keeps
        while equal:
            if taken < chosen.size and chosen[taken] == ties:
                keeps |= equal & (~equal + ONE)
                taken += 1
            ties += 1
            equal &= equal - ONE
        pack(indices, i, ~keeps, others, returned)
        pack(bits, i, ~keeps, rest, returned)
        pack(indices, i, keeps, indices, kept)
        pack(bits, i, keeps, bits, kept)
        kept += bits_set(keeps)
        returned += STEP - bits_set(keeps)
    for i in range(whole, np.uint64(bits.size)):
        index, value = indices[i], bits[i]
        magnitude = np.uint32(value & MAGNITUDE)
        keeps_it = magnitude > kth
        if magnitude == kth:
            keeps_it = taken < chosen.size and chosen[taken] == ties
            taken += keeps_it
            ties += 1
        indices[kept], bits[kept] = index, value
        others[returned], rest[returned] = index, value
        kept += np.uint64(keeps_it)
        returned += np.uint64(not keeps_it)
    for i in range(returned):
        residual[others[i]] = rest[i]


@compiled
def keep(indices: Any, bits: Any, limits: Any, residual: Any, k: int, keyed: bool, key: Any) -> None:
    """Moves the k largest of these entries to the front; the others go back into the residual.

    They are more than k, and all above the first limit. Values and residual are given by their bits.
    """
    others = bits.size - k
    kth, ties, wanted = kth_between(bits, np.uint32(limits[0]), np.uint32(limits[1]), others)
    room = np.empty(others + LANES, np.uint32), np.empty(others + LANES, np.uint32)
    _separate(indices, bits, np.uint32(kth), chosen(ties, wanted, keyed, key), residual, room[0], room[1])
