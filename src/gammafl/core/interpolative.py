"""Position coding: first the middle position, then the positions before and after it, each in its remaining range.

If positions gather, as in some rows of a tensor, the ranges become narrow and the codes short, without any parameter
(A. Moffat, L. Stuiver: Binary Interpolative Coding for Effective Index Compression, Information Retrieval 3, 2000).

The code of one of `slack` + 1 places has width = bits of `slack`; 2^width − slack − 1 codes have one bit less. These
belong to the places nearest to both ends, next to a known position.

Every sequence of bits is the code of exactly one sequence of positions. So a decoder only has to check the bits after
the code.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core import golomb
from gammafl.core.errors import WireError
from gammafl.core.golomb import ONE, bits_from, put, words_of
from gammafl.core.jit import compiled_with, leading_zeros
from gammafl.core.reading import BYTES, part, require_zeros_after

MOST_DIM = 1 << 20
"""The longest vector for this coding."""
MOST_TRIED = 1 << 14
"""`encode` tries this coding for at most this many positions, since it takes ten times as long as a Rice code."""

ZERO, WORD = np.uint64(0), np.uint64(64)
DEPTH = MOST_DIM.bit_length()
"""How many times a range of positions can be halved at most."""


@compiled_with(golomb)
def _write(indices: Any, dim: int, most: int, out: Any) -> Any:
    """The size in bits, or −1 if it is more than `most`. `out` must have room for eight bytes more than `most` bits."""
    later = np.empty((DEPTH, 4), np.uint64)
    first, stop, low, high = ZERO, np.uint64(indices.size), ZERO, np.uint64(dim)
    at, pending, held, depth = ZERO, ZERO, ZERO, 0
    while True:
        slack = (high - low) - (stop - first)
        if first == stop or slack == ZERO:
            if depth == 0:
                bits = np.int64(at << np.uint64(3) | held)
                return bits if bits <= most else -1
            depth -= 1
            first, stop, low, high = later[depth, 0], later[depth, 1], later[depth, 2], later[depth, 3]
            continue
        middle = (first + stop) >> ONE
        place = np.uint64(indices[middle])
        width = WORD - leading_zeros(slack)
        short = (ONE << width) - slack - ONE
        number = place - low - (middle - first) + (short >> ONE)
        if number > slack:
            number -= slack + ONE
        if number < short:
            at, pending, held = put(number, width - ONE, out, at, pending, held)
        else:
            number += short
            code = number >> ONE | (number & ONE) << (width - ONE)
            at, pending, held = put(code, width, out, at, pending, held)
        if np.int64(at << np.uint64(3)) > most:
            return -1
        later[depth, 0], later[depth, 1], later[depth, 2], later[depth, 3] = middle + ONE, stop, place + ONE, high
        depth += 1
        stop, high = middle, place


@compiled_with(golomb)
def _read(words: Any, bits: int, dim: int, indices: Any) -> Any:
    """Fills `indices`. Returns the bit after the code, or −1 if `words` hold too few bits: they hold `bits`."""
    later = np.empty((DEPTH, 4), np.uint64)
    first, stop, low, high = ZERO, np.uint64(indices.size), ZERO, np.uint64(dim)
    bit, depth = ZERO, 0
    while True:
        slack = (high - low) - (stop - first)
        if first == stop or slack == ZERO:
            for j in range(first, stop):
                indices[j] = low + (np.uint64(j) - first)
            if depth == 0:
                return np.int64(bit)
            depth -= 1
            first, stop, low, high = later[depth, 0], later[depth, 1], later[depth, 2], later[depth, 3]
            continue
        middle = (first + stop) >> ONE
        width = WORD - leading_zeros(slack)
        short = (ONE << width) - slack - ONE
        window = bits_from(bit, words)
        number = window & ((ONE << (width - ONE)) - ONE)
        bit += width - ONE
        if number >= short:
            number = (number << ONE | window >> (width - ONE) & ONE) - short
            bit += ONE
        if np.int64(bit) > bits:
            return -1
        number += slack + ONE - (short >> ONE)
        if number > slack:
            number -= slack + ONE
        place = low + number + (middle - first)
        indices[middle] = place
        later[depth, 0], later[depth, 1], later[depth, 2], later[depth, 3] = middle + ONE, stop, place + ONE, high
        depth += 1
        stop, high = middle, place


def encode(indices: NDArray[np.uint32], dim: int, most: int | None = None) -> memoryview | None:
    """The codes of strictly increasing positions below `dim`, or None if they take more than `most` bytes.

    Zeros fill the last byte.

    >>> bytes(encode(np.array([3, 4, 900], np.uint32), 1000)).hex()
    '10ae0e'
    """
    most = most_bytes(dim, indices.size) if most is None else most
    out = np.empty(most + 16, np.uint8)
    bits = _write(indices, dim, 8 * most, out)
    return None if bits < 0 else out[: (bits + 7) // 8].data


def most_bytes(dim: int, count: int) -> int:
    """An upper bound of the bytes for `count` positions below `dim`.

    The halves of a range share its slack s, and their numbers of positions differ by at most one. So there are levels
    of 1, 2, 4, … ranges, and the last level has the rest. The slacks of the n ranges of a level add up to at most
    S = dim − count. A range takes at most ⌈log2(s + 1)⌉ bits. Since the logarithm is concave, n ranges take less than
    n·(log2(S/n + 1) + 1) bits.
    """
    slack, left, row, bits = dim - count, count, 1, 0.0
    while left:
        row = min(row, left)
        bits += row * (math.log2(slack / row + 1) + 1)
        left, row = left - row, 2 * row
    return math.ceil(bits / 8)


def decode(data: bytes, start: int, count: int, dim: int) -> tuple[NDArray[np.uint32], int]:
    """`count` positions below `dim` from `data[start:]`, and where they end. `count` is at most `dim`."""
    if dim > MOST_DIM:
        raise WireError(f"interpolative positions in a dimension of {dim}, above {MOST_DIM}")
    if count > 8 * (len(data) - start):  # a value takes at least one bit
        raise WireError(f"{count} values do not fit in {len(data) - start} bytes")
    codes = data[start : start + most_bytes(dim, count) + 1]
    indices = np.empty(count, np.uint32)
    bit = _read(words_of(codes), 8 * len(codes), dim, indices)
    if bit < 0:
        raise WireError("positions run past the message")
    end = start + (bit + 7) // 8
    require_zeros_after(bit, part(data, start, BYTES, end - start))
    return indices, end
