"""Position coding: gaps between positions as Rice codes (Golomb codes whose parameter is a power of two).

A gap g with parameter b is written as g >> b in unary (that many ones, then a zero) and its low b bits, all
least significant bit first. For positions scattered at random a Rice code stays within a few per cent of
their entropy. Codes are written and read in whole words: what does not fill one yet waits in `pending`, whose
lowest `held` bits are in use.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.errors import WireError
from gammafl.core.jit import compiled

MAX_PARAMETER = 32

ONE = np.uint64(1)
WORD = np.uint64(32)
ONES = np.uint64(0xFFFFFFFF)
"""The bits in a word that is written, and all of them set."""

TRAILING_ONES = np.array([f"{byte:09b}"[::-1].index("0") for byte in range(256)], np.uint64)
"""How many ones a byte ends in."""


@compiled
def _increase(indices: Any) -> bool:
    in_order = True
    for j in range(1, indices.size):
        in_order &= indices[j] > indices[j - 1]
    return in_order


@compiled
def _coded_bits(indices: Any, parameter: int) -> Any:
    b = np.uint64(parameter)
    bits = np.uint64(indices.size) * (b + ONE) + (np.uint64(indices[0]) >> b)
    for j in range(1, indices.size):
        bits += (np.uint64(indices[j]) - np.uint64(indices[j - 1]) - ONE) >> b
    return bits


@compiled
def _downhill(indices: Any, parameter: int) -> Any:
    """The parameter with the fewest coded bits near the given one, and these bits."""
    bits = _coded_bits(indices, parameter)
    for step in (-1, 1):
        while 0 <= parameter + step <= MAX_PARAMETER:
            fewer = _coded_bits(indices, parameter + step)
            if fewer >= bits:
                break
            parameter, bits = parameter + step, fewer
    return parameter, bits


@compiled
def _put(code: Any, length: Any, words: Any, at: int, pending: Any, held: Any) -> Any:
    """Appends a code of at most a word, where less than a word is pending."""
    pending |= code << held
    held += length
    if held >= WORD:
        words[at] = pending & ONES
        return at + 1, pending >> WORD, held - WORD
    return at, pending, held


@compiled
def _write(indices: Any, parameter: int, words: Any) -> None:
    b = np.uint64(parameter)
    at, pending, held = 0, np.uint64(0), np.uint64(0)
    following = np.uint64(0)
    for j in range(indices.size):
        gap = np.uint64(indices[j]) - following
        following = np.uint64(indices[j]) + ONE
        quotient = gap >> b
        while quotient >= WORD:
            at, pending, held = _put(ONES, WORD, words, at, pending, held)
            quotient -= WORD
        at, pending, held = _put((ONE << quotient) - ONE, quotient + ONE, words, at, pending, held)
        at, pending, held = _put(gap & ((ONE << b) - ONE), b, words, at, pending, held)
    words[at] = pending


@compiled
def _bits_from(bit: Any, words: Any) -> Any:
    """The 64 bits that start at `bit`."""
    word, within = bit >> np.uint64(6), bit & np.uint64(63)
    return words[word] >> within | words[word + ONE] << ONE << (np.uint64(63) - within)


@compiled
def _read(words: Any, size: int, parameter: int, dim: int, indices: Any) -> Any:
    """Fills `indices`; returns the bytes read, or −1 for a code that runs past the data or the dimension.

    `words` hold the `size` bytes of data, followed by at least 64 zeros.
    """
    b, bits, most = np.uint64(parameter), np.uint64(8 * size), np.uint64(dim >> parameter)
    bit, position = np.uint64(0), np.uint64(0)
    for j in range(indices.size):
        quotient = np.uint64(0)
        while True:
            ones = TRAILING_ONES[_bits_from(bit, words) & np.uint64(255)]
            quotient += ones
            bit += ones
            if ones < 8 or bit > bits:
                break
        bit += ONE
        if bit + b > bits or quotient > most:
            return -1
        position += (quotient << b) + (_bits_from(bit, words) & ((ONE << b) - ONE))
        if position >= np.uint64(dim):
            return -1
        indices[j] = position
        position += ONE
        bit += b
    return np.int64((bit + np.uint64(7)) >> np.uint64(3))


def increase(indices: NDArray[np.uint32]) -> bool:
    """Whether the positions are strictly increasing."""
    return _increase(indices)


def best_parameter(indices: NDArray[np.uint32]) -> tuple[int, int]:
    """(parameter, coded size in bytes): downhill from the best parameter for scattered positions."""
    count = len(indices)
    if not count:
        return 0, 0
    mean_gap = (int(indices[-1]) + 1 - count) / count
    start = max(0, min(MAX_PARAMETER, round(math.log2(mean_gap * math.log(2) + 1))))
    parameter, bits = _downhill(indices, start)
    return parameter, -(-bits // 8)


def encode(indices: NDArray[np.uint32], parameter: int, size: int) -> bytes:
    """The Rice codes of the gaps, padded with zeros to `size` bytes as given by `best_parameter`."""
    words = np.empty(size // 4 + 1, np.uint32)
    _write(indices, parameter, words)
    return words.astype("<u4", copy=False).tobytes()[:size]


def decode(data: memoryview, parameter: int, count: int, dim: int) -> tuple[NDArray[np.uint32], int]:
    """`count` positions below `dim` from the start of `data`, and how many bytes they took."""
    if parameter > MAX_PARAMETER:
        raise WireError(f"Rice parameter {parameter} is larger than {MAX_PARAMETER}")
    if count * (parameter + 1) > len(data) * 8:
        raise WireError(f"{count} positions do not fit in {len(data)} bytes")
    words = np.zeros(len(data) // 8 + 2, "<u8")
    words.view(np.uint8)[: len(data)] = data
    indices = np.empty(count, np.uint32)
    size = _read(words.astype(np.uint64, copy=False), len(data), parameter, dim, indices)
    if size < 0:
        raise WireError("positions run past the message or the dimension")
    return indices, size
