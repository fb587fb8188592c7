"""Keeps exactly the k largest of some candidates, and returns the others to the vector.

Magnitudes are given by their bits, whose order is that of |v|. A guess says where the k-th largest one is: only
magnitudes near it are counted, in bins that get narrower until one bin holds a single magnitude.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gammafl.core.arrays import Positions, Vector
from gammafl.core.jit import bits_set, compiled, trailing_zeros
from gammafl.core.kernels import BLOCK, MAGNITUDE, ONE, Piece
from gammafl.core.lanes import LANES, above, pack
from gammafl.core.scatter import drawn_places

BINS = 4096
"""The number of bins for counting magnitudes."""

Key = tuple[bool, np.uint64]
"""(whether there is a key, the key), for compiled code."""

UNIT, STEP = np.uint32(1), np.uint64(LANES)


@compiled
def chosen(ties: int, wanted: int, keyed: bool, key: Any) -> Any:
    """Which of `ties` equal magnitudes are taken: with a key, one from each of `wanted` equal parts; else the first."""
    if keyed and 0 < wanted < ties:
        return drawn_places(np.uint64(wanted), np.uint64(ties), key)
    return np.arange(wanted)


@compiled
def _count_between(bits: Any, low: Any, high: Any, shift: Any, counts: Any) -> Any:
    """Counts the magnitudes from above `low` up to `high` in bins of 2^shift, and returns their number."""
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
    """(the smallest magnitude without the `number` smallest, by its bits; how many equal it; how many of these remain).

    All magnitudes must be above `low`. `high` is a guess, which is right if the result is not above it.
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
def not_above(bits: Any, limit: Any) -> Any:
    """The magnitudes that are not above the limit, by their bits."""
    found, count, whole = np.empty(bits.size + LANES, np.uint32), np.uint64(0), np.uint64(bits.size) // STEP * STEP
    for i in range(np.uint64(0), whole, STEP):
        wanted = ~above(bits, i, limit)
        pack(bits, i, wanted, found, count)
        count += STEP - bits_set(~wanted)
    for i in range(whole, np.uint64(bits.size)):
        found[count] = bits[i]
        count += np.uint64(np.uint32(bits[i] & MAGNITUDE) <= limit)
    return found[:count]


@compiled
def _separate(
    indices: Any, bits: Any, kth: Any, chosen: Any, kept_indices: Any, kept_bits: Any, others: Any, rest: Any, done: Any
) -> None:
    """Copies entries above `kth`, and the chosen ones equal to it, to the kept entries; the rest to the others.

    The values are given by their bits. `done` has the numbers of entries so far: kept, returned, equal and chosen.
    """
    kept, returned, ties, taken = np.uint64(done[0]), np.uint64(done[1]), done[2], done[3]
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
        pack(indices, i, keeps, kept_indices, kept)
        pack(bits, i, keeps, kept_bits, kept)
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
        kept_indices[kept], kept_bits[kept] = index, value
        others[returned], rest[returned] = index, value
        kept += np.uint64(keeps_it)
        returned += np.uint64(not keeps_it)
    done[0], done[1], done[2], done[3] = kept, returned, ties, taken


@compiled
def _give_back(others: Any, rest: Any, residual: Any) -> None:
    for i in range(rest.size):
        residual[others[i]] = rest[i]


@compiled
def keep_few(indices: Any, bits: Any, low: Any, high: Any, residual: Any, k: int, keyed: bool, key: Any) -> Any:
    """`keep` for one piece, in one call. Values and residual are given by their bits."""
    left_out, done = bits.size - k, np.zeros(4, np.int64)
    kth, ties, wanted = kth_between(bits, np.uint32(low), np.uint32(high), left_out)
    kept_indices, kept_bits = np.empty(k + LANES, np.uint32), np.empty(k + LANES, np.float32)
    others, rest = np.empty(left_out + LANES, np.uint32), np.empty(left_out + LANES, np.uint32)
    picks = chosen(ties, wanted, keyed, key)
    _separate(indices, bits, np.uint32(kth), picks, kept_indices, kept_bits.view(np.uint32), others, rest, done)
    _give_back(others, rest[:left_out], residual)
    return kept_indices[:k], kept_bits[:k]


def keep(
    pieces: Sequence[Piece], near: Sequence[Positions], limits: tuple[int, int], residual: Vector, k: int, key: Key
) -> Piece:
    """The k largest entries of these pieces. The others return to the residual.

    There must be more than k entries, all above the first limit. `near` has the bits of those not above the second.
    """
    left_out, (low, high) = sum(indices.size for indices, _ in pieces) - k, limits
    nearest = near if sum(bits.size for bits in near) > left_out else [values.view(np.uint32) for _, values in pieces]
    kth, ties, wanted = kth_between(np.concatenate(nearest), np.uint32(low), np.uint32(high), left_out)
    picks, done = chosen(ties, wanted, *key), np.zeros(4, np.int64)
    indices, bits = np.empty(k + LANES, np.uint32), np.empty(k + LANES, np.uint32)
    others, rest = np.empty(left_out + LANES, np.uint32), np.empty(left_out + LANES, np.uint32)
    for places, values in pieces:
        _separate(places, values.view(np.uint32), np.uint32(kth), picks, indices, bits, others, rest, done)
    _give_back(others, rest[:left_out], residual.view(np.uint32))
    return indices[:k], bits[:k].view(np.float32)
