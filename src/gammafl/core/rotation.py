"""One bit per value with a random rotation: the signs of Rx, and a scale (DRIVE, Vargaftik et al., NeurIPS 2021).

R = H·D/√n: random signs D, then a Hadamard transform H of n values, where n is a power of two. A vector is filled with
zeros up to a multiple of 64. It is cut into blocks of 2¹⁶ values; the rest is cut into blocks of 2¹⁵, 2¹⁴, …, at most
one of each, by the bits of its length. Each block is rotated separately and has its own scale.

The decoder computes R⁻¹(S·signs) = c·D·H·signs with c = S/√n. H·signs are sums of ±1. As whole numbers they are exact
in any order, so that all processors get the same bits.
"""

from typing import Any, Literal

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.codes import Rotated
from gammafl.core.drawn import hashed
from gammafl.core.jit import compiled

LONGEST, SHORTEST = 1 << 16, 1 << 6
"""The lengths of blocks: the longest fits into a processor's cache, the shortest fills one word with signs."""

ScaleRule = Literal["unbiased", "nearest"]
ONE, WORD = np.uint64(1), 64
LARGEST = float(np.finfo(np.float32).max)


def padded(count: int) -> int:
    """The number of values in all blocks, with the zeros.

    >>> padded(64), padded(65), padded(10_250), blocks_of(10_250)
    (64, 128, 10304, 3)
    """
    return -(-count // SHORTEST) * SHORTEST


def blocks_of(count: int) -> int:
    """The number of blocks for `count` values."""
    whole, rest = divmod(padded(count), LONGEST)
    return whole + rest.bit_count()


@compiled
def _length(left: Any) -> Any:
    """The length of the next block, if `left` values are left."""
    size = LONGEST
    while size > left:
        size >>= 1
    return size


@compiled
def _transform(work: Any) -> None:
    """work ← H·work, without a factor."""
    half = 1
    while half < work.size:
        for start in range(0, work.size, 2 * half):
            for j in range(start, start + half):
                first, second = work[j], work[j + half]
                work[j] = first + second
                work[j + half] = first - second
        half *= 2


@compiled
def _flips(key: Any, word: Any) -> Any:
    """D for 64 values: a bit that is set means −1."""
    return hashed(key, word)


@compiled
def _restore(signs: Any, key: Any, start: Any, sums: Any) -> Any:
    """sums ← D·H·signs of the block at `start`. Returns the largest magnitude."""
    for j in range(sums.size):
        at = start + j
        sums[j] = 1 - 2 * np.int32((signs[at >> 3] >> np.uint8(at & 7)) & 1)
    _transform(sums)
    largest = np.int32(0)
    for word in range(sums.size // WORD):
        flips = _flips(key, start // WORD + word)
        for j in range(WORD):
            at = word * WORD + j
            largest = max(largest, abs(sums[at]))
            if (flips >> np.uint64(j)) & ONE:
                sums[at] = -sums[at]
    return largest


@compiled
def _rotate(values: Any, key: Any, unbiased: bool, scales: Any, signs: Any, out: Any) -> None:
    start, work, sums = 0, np.empty(LONGEST, np.float64), np.empty(LONGEST, np.int32)
    for number in range(scales.size):
        size = _length(8 * signs.size - start)
        block, square = work[:size], 0.0
        for word in range(size // WORD):
            flips = _flips(key, start // WORD + word)
            for j in range(WORD):
                at = word * WORD + j
                value = np.float64(values[start + at]) if start + at < values.size else 0.0
                square += value * value
                block[at] = -value if (flips >> np.uint64(j)) & ONE else value
        _transform(block)
        total = 0.0
        for j in range(size):
            total += abs(block[j])
            signs[(start + j) >> 3] |= np.uint8((block[j] < 0) << ((start + j) & 7))
        largest = _restore(signs, key, start, sums[:size])
        scale = 0.0
        if total > 0:
            scale = square / total if unbiased else total / (np.float64(size) * size)
        scales[number] = np.float32(min(scale, LARGEST * (1 - 2.0**-23) / largest))
        for j in range(min(size, values.size - start)):
            out[start + j] = np.float32(sums[j]) * scales[number]
        start += size


@compiled
def _restore_all(signs: Any, key: Any, scales: Any, out: Any) -> None:
    start, sums = 0, np.empty(min(LONGEST, 8 * signs.size), np.int32)
    for number in range(scales.size):
        size = _length(8 * signs.size - start)
        _restore(signs, key, start, sums[:size])
        for j in range(min(size, out.size - start)):
            out[start + j] = np.float32(sums[j]) * scales[number]
        start += size


@compiled
def _is_restored(signs: Any, key: Any, scales: Any, bits: Any) -> bool:
    """Whether `_restore_all` gives values with these bits."""
    start, sums = 0, np.empty(min(LONGEST, 8 * signs.size), np.int32)
    value = np.empty(1, np.float32)
    seen = value.view(np.uint32)
    for number in range(scales.size):
        size = _length(8 * signs.size - start)
        _restore(signs, key, start, sums[:size])
        for j in range(min(size, bits.size - start)):
            value[0] = np.float32(sums[j]) * scales[number]
            if seen[0] != bits[start + j]:
                return False
        start += size
    return True


def rotated(values: Vector, key: int, rule: ScaleRule) -> tuple[Vector, Rotated]:
    """`values` as the decoder will restore them, and their code.

    rule   "unbiased": S = ‖x‖²/‖Rx‖₁, so that the mean over keys is right; "nearest": S = ‖Rx‖₁/n, with the least
           squared error
    """
    scales, signs = np.empty(blocks_of(values.size), np.float32), np.zeros(padded(values.size) // 8, np.uint8)
    out = np.empty(values.size, np.float32)
    _rotate(values, np.uint64(key), rule == "unbiased", scales, signs, out)
    return out, Rotated(key, scales, signs)


def restored(code: Rotated, count: int) -> Vector:
    """The `count` values of a code."""
    out = np.empty(count, np.float32)
    _restore_all(code.signs, np.uint64(code.key), code.scales, out)
    return out


def is_code_of(code: Rotated, values: Vector) -> bool:
    """Whether `restored` gives these values, bit for bit."""
    fits = code.scales.size == blocks_of(values.size) and code.signs.size == signs_size(values.size)
    return fits and bool(_is_restored(code.signs, np.uint64(code.key), code.scales, values.view(np.uint32)))


def signs_size(count: int) -> int:
    """The bytes of the signs of `count` values."""
    return padded(count) // 8
