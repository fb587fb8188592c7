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

WORDS = np.dtype("<u8")
"""As which a message is read."""

TRAILING_ONES = np.array([f"{byte:09b}"[::-1].index("0") for byte in range(256)], np.uint64)
"""How many ones a byte ends in."""


@compiled
def _coded_bits(indices: Any, parameter: int) -> Any:
    b = np.uint64(parameter)
    bits = np.uint64(indices.size) * (b + ONE) + (np.uint64(indices[0]) >> b)
    for j in range(1, indices.size):
        bits += (np.uint64(indices[j]) - np.uint64(indices[j - 1]) - ONE) >> b
    return bits


@compiled
def plan(indices: Any) -> Any:
    """(whether the positions strictly increase, the parameter to code them with, and the size in bytes).

    The parameter is found going downhill from the best one for scattered positions.
    """
    in_order = True
    for j in range(1, indices.size):
        in_order &= indices[j] > indices[j - 1]
    if indices.size == 0 or not in_order:
        return in_order, 0, 1
    mean_gap = (np.int64(indices[-1]) + 1 - indices.size) / indices.size
    parameter = min(MAX_PARAMETER, round(math.log2(mean_gap * math.log(2) + 1)))
    bits = _coded_bits(indices, parameter)
    for step in (-1, 1):
        while 0 <= parameter + step <= MAX_PARAMETER:
            fewer = _coded_bits(indices, parameter + step)
            if fewer >= bits:
                break
            parameter, bits = parameter + step, fewer
    return in_order, parameter, 1 + np.int64((bits + np.uint64(7)) >> np.uint64(3))


@compiled
def _put(code: Any, length: Any, out: Any, at: int, pending: Any, held: Any) -> Any:
    """Appends a code of at most a word, where less than a word is pending."""
    pending |= code << held
    held += length
    if held >= WORD:
        for byte in range(4):
            out[at + byte] = pending >> np.uint64(8 * byte)
        return at + 4, pending >> WORD, held - WORD
    return at, pending, held


@compiled
def _write(indices: Any, parameter: int, out: Any) -> None:
    b = np.uint64(parameter)
    out[0] = parameter
    at, pending, held = 1, np.uint64(0), np.uint64(0)
    following = np.uint64(0)
    for j in range(indices.size):
        gap = np.uint64(indices[j]) - following
        following = np.uint64(indices[j]) + ONE
        quotient = gap >> b
        while quotient >= WORD:
            at, pending, held = _put(ONES, WORD, out, at, pending, held)
            quotient -= WORD
        at, pending, held = _put((ONE << quotient) - ONE, quotient + ONE, out, at, pending, held)
        at, pending, held = _put(gap & ((ONE << b) - ONE), b, out, at, pending, held)
    for last in range(at, out.size):
        out[last] = pending
        pending >>= np.uint64(8)


@compiled
def _bits_from(bit: Any, words: Any) -> Any:
    """The 64 bits that start at `bit`."""
    word, within = bit >> np.uint64(6), bit & np.uint64(63)
    return words[word] >> within | words[word + ONE] << ONE << (np.uint64(63) - within)


@compiled
def _read(words: Any, start: int, size: int, parameter: int, dim: int, indices: Any) -> Any:
    """Fills `indices` from byte `start`; returns the byte after, or −1 for a code that runs past data or dimension.

    `words` hold the `size` bytes of data, followed by at least 64 zeros.
    """
    b, bits, most = np.uint64(parameter), np.uint64(8 * size), np.uint64(dim >> parameter)
    bit, position = np.uint64(8 * start), np.uint64(0)
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


def encode(indices: NDArray[np.uint32], parameter: int, size: int) -> bytes:
    """The parameter in a byte and the codes of the gaps, as long as `plan` says; the last byte is filled with zeros."""
    out = np.empty(size, np.uint8)
    _write(indices, parameter, out)
    return out.tobytes()


def decode(data: bytes, start: int, count: int, dim: int) -> tuple[NDArray[np.uint32], int]:
    """`count` positions below `dim` from `data[start:]` on, and where they end."""
    parameter, size = data[start] if start < len(data) else 0, len(data) - start - 1
    if parameter > MAX_PARAMETER:
        raise WireError(f"Rice parameter {parameter} is larger than {MAX_PARAMETER}")
    if count * (parameter + 1) > size * 8:
        raise WireError(f"{count} positions do not fit in {size} bytes")
    words = np.frombuffer(data.ljust(len(data) // 8 * 8 + 16, b"\0"), WORDS).astype(np.uint64, copy=False)
    indices = np.empty(count, np.uint32)
    end = _read(words, start + 1, len(data), parameter, dim, indices)
    if end < 0:
        raise WireError("positions run past the message or the dimension")
    return indices, end
