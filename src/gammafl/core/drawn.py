"""Draws `count` different positions below `dim` from a key, in O(count), the same on every processor.

The key determines a permutation π of 0…dim − 1. The positions are π(0) … π(count − 1), sorted. π is a Feistel network
over the next power of two: it changes each half of a number's bits in turn by a hash of the other half and the key. A
result outside 0…dim − 1 is permuted again until it is inside.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.jit import compiled

ROUNDS = 8
FEWEST_BITS = 8
"""The fewest bits of a permuted number. With fewer, there would be too few permutations."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S30, S27, S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@compiled
def mixed(word: Any) -> Any:
    """splitmix64's last step: every bit of the result depends on every bit of `word`."""
    word = (word ^ (word >> S30)) * FIRST
    word = (word ^ (word >> S27)) * SECOND
    return word ^ (word >> S31)


@compiled
def hashed(key: Any, number: Any) -> Any:
    """64 random bits from the key and a number."""
    return mixed(key + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@compiled
def _draw(key: Any, dim: Any, bits: Any, indices: Any) -> None:
    low = np.uint64(bits // 2)
    low_mask = (np.uint64(1) << low) - np.uint64(1)
    high_mask = (np.uint64(1) << np.uint64(bits - bits // 2)) - np.uint64(1)
    keys = np.empty(ROUNDS, np.uint64)
    for turn in range(ROUNDS):
        keys[turn] = hashed(key, turn)
    for j in range(indices.size):
        place = np.uint64(j)
        while True:
            high, rest = place >> low, place & low_mask
            for turn in range(0, ROUNDS, 2):
                high ^= mixed(keys[turn] ^ rest) & high_mask
                rest ^= mixed(keys[turn + 1] ^ high) & low_mask
            place = high << low | rest
            if place < dim:
                break
        indices[j] = place


def positions(key: int, dim: int, count: int) -> NDArray[np.uint32]:
    """`count` positions below `dim`, sorted.

    key     64 random bits
    count   at most `dim`

    >>> positions(7, dim=10, count=10).tolist() == list(range(10))
    True
    >>> set(positions(7, dim=1000, count=3)) < set(positions(7, dim=1000, count=4))
    True
    """
    indices = np.empty(count, np.uint32)
    _draw(np.uint64(key), np.uint64(dim), max(FEWEST_BITS, (dim - 1).bit_length()), indices)
    indices.sort()
    return indices
