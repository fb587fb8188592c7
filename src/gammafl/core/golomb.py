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
from gammafl.core.jit import compiled, trailing_zeros

MAX_PARAMETER = 32

ONE = np.uint64(1)
WORD = np.uint64(32)
ONES = np.uint64(0xFFFFFFFF)
"""The bits in a word that is written, and all of them set."""
READ = np.uint64(64)
ALL_ONES = ~np.uint64(0)
"""The same of a word that is read."""

WORDS = np.dtype("<u8")
"""As which a message is read."""


@compiled
def _coded_bits(indices: Any, parameter: int) -> Any:
    b = np.uint64(parameter)
    bits = np.uint64(indices.size) * (b + ONE) + (np.uint64(indices[0]) >> b)
    for j in range(1, indices.size):
        bits += (np.uint64(indices[j]) - np.uint64(indices[j - 1]) - ONE) >> b
    return bits


@compiled
def in_order(indices: Any) -> Any:
    """Whether the positions strictly increase."""
    increase = True
    for j in range(1, indices.size):
        increase &= indices[j] > indices[j - 1]
    return increase


@compiled
def plan(indices: Any) -> Any:
    """(whether the positions strictly increase, the parameter to code them with, and the size in bytes).

    The parameter is found going downhill from the best one for scattered positions.
    """
    if indices.size == 0 or not in_order(indices):
        return indices.size == 0, 0, 1
    mean_gap = (np.int64(indices[-1]) + 1 - indices.size) / indices.size
    parameter = min(MAX_PARAMETER, round(math.log2(mean_gap * math.log(2) + 1)))
    bits = _coded_bits(indices, parameter)
    for step in (-1, 1):
        while 0 <= parameter + step <= MAX_PARAMETER:
            fewer = _coded_bits(indices, parameter + step)
            if fewer >= bits:
                break
            parameter, bits = parameter + step, fewer
    return True, parameter, 1 + np.int64((bits + np.uint64(7)) >> np.uint64(3))


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
        quotient, low = gap >> b, gap & ((ONE << b) - ONE)
        while quotient >= WORD:
            at, pending, held = _put(ONES, WORD, out, at, pending, held)
            quotient -= WORD
        unary, length = (ONE << quotient) - ONE, quotient + ONE
        if length + b <= WORD:
            at, pending, held = _put(unary | low << length, length + b, out, at, pending, held)
        else:
            at, pending, held = _put(unary, length, out, at, pending, held)
            at, pending, held = _put(low, b, out, at, pending, held)
    for last in range(at, out.size):
        out[last] = pending
        pending >>= np.uint64(8)


@compiled
def _bits_from(bit: Any, words: Any) -> Any:
    """The 64 bits that start at `bit`."""
    word, within = bit >> np.uint64(6), bit & np.uint64(63)
    return words[word] >> within | words[word + ONE] << ONE << (np.uint64(63) - within)


@compiled
def _read(words: Any, size: int, parameter: int, dim: int, indices: Any) -> Any:
    """Fills `indices`; returns the bit after, or −1 for a code that runs past data or dimension.

    `words` hold the `size` bytes of data, followed by at least 64 zeros, which end any code.
    """
    b, bits, most = np.uint64(parameter), np.uint64(8 * size), np.uint64(dim >> parameter)
    low = (ONE << b) - ONE
    bit, position = np.uint64(0), np.uint64(0)
    for j in range(indices.size):
        window, quotient = _bits_from(bit, words), np.uint64(0)
        while window == ALL_ONES:
            quotient += READ
            bit += READ
            if bit > bits:
                return -1
            window = _bits_from(bit, words)
        ones = trailing_zeros(~window)
        quotient += ones
        bit += ones + ONE
        if bit + b > bits or quotient > most:
            return -1
        rest = window >> ones >> ONE if ones + b < READ else _bits_from(bit, words)
        position += (quotient << b) + (rest & low)
        if position >= np.uint64(dim):
            return -1
        indices[j] = position
        position += ONE
        bit += b
    return np.int64(bit)


def encode(indices: NDArray[np.uint32], parameter: int, size: int) -> bytes:
    """The parameter in a byte and the codes of the gaps, as long as `plan` says; the last byte is filled with zeros."""
    out = np.empty(size, np.uint8)
    _write(indices, parameter, out)
    return out.tobytes()


def decode(data: bytes, start: int, count: int, dim: int) -> tuple[NDArray[np.uint32], int]:
    """`count` positions below `dim` from `data[start:]` on, and where they end; only as `encode` and `plan` have it."""
    parameter, size = data[start] if start < len(data) else 0, len(data) - start - 1
    if parameter > MAX_PARAMETER:
        raise WireError(f"Rice parameter {parameter} is larger than {MAX_PARAMETER}")
    if count * (parameter + 1) > size * 8:
        raise WireError(f"{count} positions do not fit in {size} bytes")
    most = count * (parameter + 1) + (dim >> parameter)  # the quotients add up to less than dim / 2^b
    codes = data[start + 1 : start + 2 + most // 8]
    words = np.frombuffer(codes.ljust(len(codes) // 8 * 8 + 16, b"\0"), WORDS).astype(np.uint64, copy=False)
    indices = np.empty(count, np.uint32)
    bit = _read(words, len(codes), parameter, dim, indices)
    if bit < 0:
        raise WireError("positions run past the message or the dimension")
    _, best, length = plan(indices)
    end = start + length
    if parameter != best or end > len(data) or int(data[end - 1]) >> ((bit - 1) % 8 + 1):
        raise WireError(f"positions are not in their one form, with Rice parameter {best}")
    return indices, end
