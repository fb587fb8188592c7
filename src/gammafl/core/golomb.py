"""Position coding: gaps between positions as Rice codes (Golomb codes whose parameter is a power of two).

A gap g with parameter b is written as g >> b in unary (that many ones, then a zero) and its low b bits, all
least significant bit first. For positions scattered at random a Rice code stays within a few per cent of
their entropy.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.errors import WireError
from gammafl.core.jit import compiled

MAX_PARAMETER = 32


@compiled
def _gaps(indices: Any) -> Any:
    """First position, then the number of positions skipped before each next one."""
    gaps = np.empty(indices.size, np.uint32)
    next_free = np.int64(0)
    for j in range(indices.size):
        gaps[j] = indices[j] - next_free
        next_free = np.int64(indices[j]) + 1
    return gaps


@compiled
def _coded_bits(gaps: Any, parameter: int) -> Any:
    bits = np.uint64(gaps.size) * np.uint64(parameter + 1)
    for j in range(gaps.size):
        bits += np.uint64(gaps[j]) >> np.uint64(parameter)
    return bits


@compiled
def _write(gaps: Any, parameter: int, out: Any) -> None:
    bit = np.uint64(0)
    one, seven = np.uint64(1), np.uint64(7)
    for j in range(gaps.size):
        gap = np.uint64(gaps[j])
        for _ in range(gap >> np.uint64(parameter)):
            out[bit >> np.uint64(3)] |= np.uint8(one << (bit & seven))
            bit += one
        bit += one
        for b in range(parameter):
            if (gap >> np.uint64(b)) & one:
                out[bit >> np.uint64(3)] |= np.uint8(one << (bit & seven))
            bit += one


@compiled
def _read(data: Any, parameter: int, dim: int, indices: Any) -> int:
    """Fills `indices`; returns the bits read, or −1 for a code that runs past the data or the dimension."""
    bit, bits = 0, data.size * 8
    position = np.int64(-1)
    most = np.int64(dim) >> parameter
    for j in range(indices.size):
        quotient = np.int64(0)
        while bit < bits and (data[bit >> 3] >> (bit & 7)) & 1:
            quotient += 1
            bit += 1
            if quotient > most:
                return -1
        bit += 1
        if bit + parameter > bits:
            return -1
        gap = quotient << parameter
        for b in range(parameter):
            gap |= np.int64((data[bit >> 3] >> (bit & 7)) & 1) << b
            bit += 1
        position += gap + 1
        if position >= dim:
            return -1
        indices[j] = position
    return bit


def gaps_of(indices: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The gaps of strictly increasing positions."""
    return _gaps(indices)


def best_parameter(gaps: NDArray[np.uint32]) -> tuple[int, int]:
    """(parameter, coded size in bytes): downhill from the best parameter for scattered positions."""
    if not gaps.size:
        return 0, 0
    mean = float(gaps.mean())
    parameter = max(0, min(MAX_PARAMETER, round(math.log2(mean * math.log(2) + 1))))
    bits = int(_coded_bits(gaps, parameter))
    for step in (-1, 1):
        while 0 <= parameter + step <= MAX_PARAMETER and (fewer := int(_coded_bits(gaps, parameter + step))) < bits:
            parameter, bits = parameter + step, fewer
    return parameter, -(-bits // 8)


def encode(gaps: NDArray[np.uint32], parameter: int, size: int) -> bytes:
    """The Rice codes of `gaps`, padded with zeros to `size` bytes as given by `best_parameter`."""
    out = np.zeros(size, np.uint8)
    _write(gaps, parameter, out)
    return out.tobytes()


def decode(data: memoryview, parameter: int, count: int, dim: int) -> tuple[NDArray[np.uint32], int]:
    """`count` positions below `dim` from the start of `data`, and how many bytes they took."""
    if parameter > MAX_PARAMETER:
        raise WireError(f"Rice parameter {parameter} is larger than {MAX_PARAMETER}")
    if count * (parameter + 1) > len(data) * 8:
        raise WireError(f"{count} positions do not fit in {len(data)} bytes")
    indices = np.empty(count, np.uint32)
    bits = _read(np.frombuffer(data, np.uint8), parameter, dim, indices)
    if bits < 0:
        raise WireError("positions run past the message or the dimension")
    return indices, -(-bits // 8)
