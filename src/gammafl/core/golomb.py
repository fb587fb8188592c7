"""Position coding: gaps between positions as Rice codes (Golomb codes whose parameter is a power of two).

A gap g with parameter b is written as g >> b in unary (that many ones, then a zero) and its low b bits, all
least significant bit first. For positions scattered at random a Rice code stays within a few per cent of
their entropy.

Bits that do not fill a byte yet are in `pending`, whose lowest `held` bits are in use. Short codes are written two or
four at a time, and read with a table of what the next bits mean.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.errors import WireError
from gammafl.core.jit import compiled, trailing_zeros

MAX_PARAMETER = 32

ONE, TWO, EIGHT = np.uint64(1), np.uint64(2), np.uint64(8)
WORD = np.uint64(32)
ONES = np.uint64(0xFFFFFFFF)
"""A word of a unary number with all bits set; before it, the number of its bits."""
LONGEST = np.uint64(56)
"""The most bits that are written at a time. With up to seven pending bits, they fit into eight bytes."""
GAPS, MOST_TOGETHER = np.uint64(64), np.uint64(4)
"""How many gaps are coded at a time, and how many short codes are written at a time."""
READ = np.uint64(64)
ALL_ONES = ~np.uint64(0)
"""A word that is read with all bits set; before it, the number of its bits."""

WORDS = np.dtype("<u8")
"""The type as which a message is read."""


@compiled
def _coded_bits(indices: Any, parameter: int) -> Any:
    """The total bits of the codes with this parameter, with the one below, and with the one above."""
    count, b = np.uint64(indices.size), np.uint64(parameter)
    less, more = max(b, ONE) - ONE, b + ONE
    first = np.uint64(indices[0])
    sums = first >> less, first >> b, first >> more
    for j in range(1, indices.size):
        gap = np.uint64(np.uint32(indices[j] - indices[j - 1] - np.uint32(1)))
        sums = sums[0] + (gap >> less), sums[1] + (gap >> b), sums[2] + (gap >> more)
    return count * (less + ONE) + sums[0], count * (b + ONE) + sums[1], count * (more + ONE) + sums[2]


@compiled
def in_order(indices: Any) -> Any:
    """Whether the positions strictly increase."""
    increase = True
    for j in range(1, indices.size):
        increase &= indices[j] > indices[j - 1]
    return increase


@compiled
def plan(indices: Any) -> Any:
    """(whether the positions strictly increase, the parameter for their codes, the size in bytes).

    The search for the parameter starts from the best one for randomly scattered positions, and goes downhill.
    """
    if indices.size == 0 or not in_order(indices):
        return indices.size == 0, 0, 1
    mean_gap = (np.int64(indices[-1]) + 1 - indices.size) / indices.size
    parameter = min(MAX_PARAMETER, round(math.log2(mean_gap * math.log(2) + 1)))
    below, bits, above = _coded_bits(indices, parameter)
    while parameter > 0 and below < bits:
        parameter -= 1
        below, bits, above = _coded_bits(indices, parameter)
    while parameter < MAX_PARAMETER and above < bits:
        parameter += 1
        below, bits, above = _coded_bits(indices, parameter)
    return True, parameter, 1 + np.int64((bits + np.uint64(7)) >> np.uint64(3))


@compiled
def put(code: Any, length: Any, out: Any, at: Any, pending: Any, held: Any) -> Any:
    """Appends a code of at most `LONGEST` bits while fewer than eight are pending. May write eight bytes ahead."""
    pending |= code << held
    held += length
    for byte in range(8):
        out[at + np.uint64(byte)] = pending >> np.uint64(8 * byte)
    whole = held >> np.uint64(3)
    return at + whole, pending >> (whole << np.uint64(3)), held & np.uint64(7)


@compiled
def _put_gap(gap: Any, b: Any, out: Any, at: Any, pending: Any, held: Any) -> Any:
    """Appends a gap of any size."""
    quotient, low = gap >> b, gap & ((ONE << b) - ONE)
    while quotient >= WORD:
        at, pending, held = put(ONES, WORD, out, at, pending, held)
        quotient -= WORD
    unary, length = (ONE << quotient) - ONE, quotient + ONE
    if length + b <= LONGEST:
        return put(unary | low << length, length + b, out, at, pending, held)
    at, pending, held = put(unary, length, out, at, pending, held)
    return put(low, b, out, at, pending, held)


@compiled
def _put_short(indices: Any, j: Any, b: Any, out: Any, at: Any, pending: Any, held: Any) -> Any:
    """Appends blocks of gaps from the j-th on, while all codes of a block are short. Also returns where it stopped.

    All gaps are coded first; then codes are joined in pairs and in fours. The compiler vectorises this.
    """
    lowest, codes, lengths = (ONE << b) - ONE, np.empty(GAPS, np.uint64), np.empty(GAPS, np.uint64)
    while j + GAPS <= np.uint64(indices.size):
        largest = np.uint64(0)
        for i in range(GAPS):
            gap = np.uint64(np.uint32(indices[j + i] - indices[j + i - ONE] - np.uint32(1)))
            quotient = gap >> b
            largest = max(largest, quotient)
            quotient &= np.uint64(63)
            codes[i] = ((ONE << quotient) - ONE) | (gap & lowest) << ONE << quotient
            lengths[i] = quotient + b + ONE
        longest, together = largest + b + ONE, ONE
        while longest * TWO <= LONGEST and together < MOST_TOGETHER:
            longest, together = longest * TWO, together * TWO
            for i in range(GAPS // together):
                codes[i] = codes[TWO * i] | codes[TWO * i + ONE] << lengths[TWO * i]
                lengths[i] = lengths[TWO * i] + lengths[TWO * i + ONE]
        if together == ONE:
            break
        for i in range(GAPS // together):
            at, pending, held = put(codes[i], lengths[i], out, at, pending, held)
        j += GAPS
    return j, at, pending, held


@compiled
def _write(indices: Any, parameter: int, out: Any) -> None:
    """`out` must have room for eight bytes more than the codes."""
    b, count = np.uint64(parameter), np.uint64(indices.size)
    out[0] = parameter
    j, at, pending, held, following = np.uint64(0), ONE, np.uint64(0), np.uint64(0), np.uint64(0)
    while j < count:
        if j:
            j, at, pending, held = _put_short(indices, j, b, out, at, pending, held)
            following = np.uint64(indices[j - ONE]) + ONE
        stop = min(j + GAPS, count)
        for i in range(j, stop):
            at, pending, held = _put_gap(np.uint64(indices[i]) - following, b, out, at, pending, held)
            following = np.uint64(indices[i]) + ONE
        j = stop


# --- reading ----------------------------------------------------------------------------------------------

LOOKED_AT, CODES, TURNS = 11, 6, 5
"""The bits that index a table, the most codes in them, and how often these bits fit into 64 bits."""

TABLED = 5
"""The largest parameter with a table. Up to it, the gaps in `LOOKED_AT` bits fit into a byte."""

MANY = 4096
"""For fewer codes, no table is made: it would not be worth its memory."""

NO_TABLE = np.empty(0, np.uint32), np.empty(0, np.uint8)
AHEAD, SEEN = np.uint64(CODES * TURNS), np.uint64((1 << LOOKED_AT) - 1)


@cache
def _table(parameter: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Steps and positions, for all values of the next bits.

    A step holds the number of whole codes, their bits, and the sum of their gaps, at bits 0, 4 and 8. Positions are
    those of the codes, relative to the start.
    """
    steps, positions = np.zeros(1 << LOOKED_AT, np.uint32), np.zeros((1 << LOOKED_AT, CODES), np.uint8)
    _fill(parameter, steps, positions)
    return steps, positions.ravel()


@compiled
def _fill(parameter: int, steps: Any, positions: Any) -> None:
    for bits in range(steps.size):
        codes, used, position = 0, 0, 0
        while codes < CODES:
            quotient = 0
            while (bits >> (used + quotient)) & 1:
                quotient += 1
            length = quotient + 1 + parameter
            if used + length > LOOKED_AT:
                break
            position += (quotient << parameter) + ((bits >> (used + quotient + 1)) & ((1 << parameter) - 1))
            positions[bits, codes] = position
            position += 1
            codes += 1
            used += length
        steps[bits] = codes | used << 4 | position << 8


@compiled
def bits_from(bit: Any, words: Any) -> Any:
    """The 64 bits that start at `bit`."""
    word, within = bit >> np.uint64(6), bit & np.uint64(63)
    return words[word] >> within | words[word + ONE] << ONE << (np.uint64(63) - within)


@compiled
def _read_many(words: Any, bits: Any, steps: Any, positions: Any, at: Any, indices: Any) -> Any:
    """Reads short codes with their table as far as possible, and returns where it stopped: (codes, bits, position).

    It stops before the data or the indices might end. It does not check whether the positions are too large.
    """
    j, bit, position = at
    while j + AHEAD <= np.uint64(indices.size) and bit + READ <= bits:
        window, before = bits_from(bit, words), j
        for _ in range(TURNS):
            seen = window & SEEN
            step = np.uint64(steps[seen])
            for code in range(np.uint64(CODES)):
                indices[j + code] = position + np.uint64(positions[seen * np.uint64(CODES) + code])
            used = (step >> np.uint64(4)) & np.uint64(15)
            j += step & np.uint64(15)
            position += step >> EIGHT
            bit += used
            window >>= used
        if j == before:
            break
    return j, bit, position


@compiled
def _read(words: Any, size: int, parameter: int, dim: int, steps: Any, positions: Any, indices: Any) -> Any:
    """Fills `indices`. Returns the bit after the codes, or −1 if a code exceeds the data or the dimension.

    `words` hold the `size` bytes of data, followed by at least 64 zeros, which end any code.
    """
    b, bits, most = np.uint64(parameter), np.uint64(8 * size), np.uint64(dim >> parameter)
    low, count = (ONE << b) - ONE, np.uint64(indices.size)
    j, bit, position = np.uint64(0), np.uint64(0), np.uint64(0)
    while j < count:
        if steps.size:
            j, bit, position = _read_many(words, bits, steps, positions, (j, bit, position), indices)
            if position > np.uint64(dim):
                return -1
            if j == count:
                break
        window, quotient = bits_from(bit, words), np.uint64(0)
        while window == ALL_ONES:
            quotient += READ
            bit += READ
            if bit > bits:
                return -1
            window = bits_from(bit, words)
        ones = trailing_zeros(~window)
        quotient += ones
        bit += ones + ONE
        if bit + b > bits or quotient > most:
            return -1
        rest = window >> ones >> ONE if ones + b < READ else bits_from(bit, words)
        position += (quotient << b) + (rest & low)
        if position >= np.uint64(dim):
            return -1
        indices[j] = position
        position += ONE
        bit += b
        j += ONE
    return np.int64(bit)


def words_of(codes: bytes) -> NDArray[np.uint64]:
    """The bytes as words for `bits_from`, followed by at least 64 zero bits."""
    return np.frombuffer(codes.ljust(len(codes) // 8 * 8 + 16, b"\0"), WORDS).astype(np.uint64, copy=False)


def encode(indices: NDArray[np.uint32], parameter: int, size: int) -> memoryview:
    """The parameter as a byte, then the codes of the gaps, `size` bytes in all. Zeros fill the last byte."""
    out = np.empty(size + 8, np.uint8)
    _write(indices, parameter, out)
    return out[:size].data


def decode(data: bytes, start: int, count: int, dim: int) -> tuple[NDArray[np.uint32], int]:
    """`count` positions below `dim` from `data[start:]`, and where they end. Accepts only what `encode` writes."""
    parameter, size = data[start] if start < len(data) else 0, len(data) - start - 1
    if parameter > MAX_PARAMETER:
        raise WireError(f"Rice parameter {parameter} is larger than {MAX_PARAMETER}")
    if count * (parameter + 1) > size * 8:
        raise WireError(f"{count} positions do not fit in {size} bytes")
    most = count * (parameter + 1) + (dim >> parameter)  # the quotients add up to less than dim / 2^b
    codes = data[start + 1 : start + 2 + most // 8]
    indices = np.empty(count, np.uint32)
    table = _table(parameter) if parameter <= TABLED and count >= MANY else NO_TABLE
    bit = _read(words_of(codes), len(codes), parameter, dim, *table, indices)
    if bit < 0:
        raise WireError("positions run past the message or the dimension")
    _, best, length = plan(indices)
    end = start + length
    if parameter != best or end > len(data) or int(data[end - 1]) >> ((bit - 1) % 8 + 1):
        raise WireError(f"positions are not in their one form, with Rice parameter {best}")
    return indices, end
