"""Values as whole numbers of 8, 4 or 2 bits, with one scale for each block of values.

A value is q·s in float32, one product: the same on every processor. q is symmetric about zero, so zero stays zero. The
sender chooses q and s: `nearest` makes the squared error small, `by_chance` is right on average.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.codes import Blocks
from gammafl.core.drawn import hashed
from gammafl.core.errors import WireError, require
from gammafl.core.jit import compiled

BITS = (2, 4, 8)
Norm = Literal["max", "l2"]

TURNS = 8
"""How many times `nearest` adjusts a scale at most."""

SMALLEST = np.float32(2.0**-149)
LARGEST = np.finfo(np.float32).max
MINUS_ZERO = np.uint32(1 << 31)
TO_UNIT = 2.0**-53


def most_of(bits: int) -> int:
    """The largest whole number that is sent."""
    return (1 << (bits - 1)) - 1


def blocks_of(count: int, block: int) -> int:
    return -(-count // block)


@compiled
def _largest_scale(most: int) -> Any:
    """The largest scale for which most·scale is finite."""
    scale = np.float32(LARGEST / most)
    if np.float32(most) * scale > LARGEST:
        scale = np.float32(scale * np.float32(1 - 2.0**-23))
    return scale


@compiled
def _nearest(values: Any, most: int, block: int, scales: Any, out: Any) -> None:
    bound = _largest_scale(most)
    for number in range(scales.size):
        start, stop = number * block, min((number + 1) * block, values.size)
        largest = np.float32(0)
        for j in range(start, stop):
            largest = max(largest, abs(values[j]))
        scale = np.float32(0)
        if largest > 0:
            scale = min(max(np.float32(largest / np.float32(most)), SMALLEST), bound)
            for _ in range(TURNS):  # the best scale for these numbers, then the best numbers for that scale
                product, square, per = 0.0, 0.0, 1.0 / np.float64(scale)
                for j in range(start, stop):
                    size = np.float64(abs(values[j]))
                    q = min(np.rint(size * per), np.float64(most))
                    product += q * size
                    square += q * q
                if square == 0:
                    break
                better = min(max(np.float32(product / square), SMALLEST), bound)
                if better == scale:
                    break
                scale = better
        scales[number] = scale
        one = 1.0 / np.float64(scale) if scale > 0 else 0.0
        for j in range(start, stop):
            q = min(max(np.rint(np.float64(values[j]) * one), np.float64(-most)), np.float64(most))
            out[j] = np.float32(np.int32(q)) * scale


@compiled
def _by_chance(values: Any, levels: int, block: int, by_max: bool, key: Any, scales: Any, out: Any) -> None:
    bound = _largest_scale(levels)
    for number in range(scales.size):
        start, stop = number * block, min((number + 1) * block, values.size)
        norm = 0.0
        for j in range(start, stop):
            size = np.float64(abs(values[j]))
            norm = max(norm, size) if by_max else norm + size * size
        norm = norm if by_max else np.sqrt(norm)
        scale = np.float32(norm / levels)
        if np.float64(scale) * levels < norm:  # so that no value exceeds the last level
            scale = np.float32(np.nextafter(scale, np.float32(np.inf)))
        scale = min(scale, bound)
        scales[number] = scale
        one = 1.0 / np.float64(scale) if scale > 0 else 0.0
        for j in range(start, stop):
            chance = np.float64(hashed(key, j) >> np.uint64(11)) * TO_UNIT
            q = min(np.floor(np.float64(abs(values[j])) * one + chance), np.float64(levels))
            out[j] = np.float32(np.int32(-q if values[j] < 0 else q)) * scale


def nearest(values: Vector, bits: int, block: int) -> tuple[Vector, Blocks]:
    """Each value as the nearest q·s, with a scale s of nearly the least squared error.

    s starts at the block's largest magnitude / most. Then s is set to the best scale for the numbers q, Σq·|v| / Σq²,
    and each q to the nearest number for s. This is repeated `TURNS` times, or until nothing changes. Each step makes
    the error smaller.
    """
    scales, out = np.empty(blocks_of(values.size, block), np.float32), np.empty(values.size, np.float32)
    _nearest(values, most_of(bits), block, scales, out)
    return out, Blocks(bits, block, scales)


def by_chance(values: Vector, levels: int, block: int, norm: Norm, key: int) -> tuple[Vector, Blocks]:
    """Each value as one of the two nearest multiples of s = norm/levels, drawn so that its mean is the value."""
    scales, out = np.empty(blocks_of(values.size, block), np.float32), np.empty(values.size, np.float32)
    _by_chance(values, levels, block, norm == "max", np.uint64(key), scales, out)
    return out, Blocks(bits_for(levels), block, scales)


def bits_for(levels: int) -> int:
    """The fewest bits that hold −levels … levels."""
    return next(bits for bits in BITS if levels <= most_of(bits))


def scaled(values: Vector, code: Blocks, factor: np.float32) -> tuple[Vector, Blocks]:
    """The same numbers with each scale times `factor`. A scale that would become 0 becomes the smallest float."""
    scales = np.where(code.scales > 0, np.maximum(code.scales * factor, SMALLEST), np.float32(0)).astype(np.float32)
    smaller = Blocks(code.bits, code.block, scales)
    return unpacked(packed(values, code), smaller, values.size), smaller


# --- bytes ------------------------------------------------------------------------------------------------


@compiled
def _pack(values: Any, words: Any, scales: Any, bits: int, block: int, out: Any) -> bool:
    """Fills `out`. False if a value is not a whole number of `bits` bits times its scale."""
    least, most, mask = np.float32(-(1 << (bits - 1))), np.float32((1 << (bits - 1)) - 1), (1 << bits) - 1
    together = 8 // bits
    for number in range(scales.size):
        scale = scales[number]
        for j in range(number * block, min((number + 1) * block, values.size)):
            ratio = np.rint(values[j] / scale) if scale > 0 else np.float32(0)
            if not least <= ratio <= most:
                return False
            q = np.int32(ratio)
            if np.float32(q) * scale != values[j] or words[j] == MINUS_ZERO:
                return False
            out[j // together] |= np.uint8((q & mask) << (bits * (j % together)))
    return True


@compiled
def _unpack(data: Any, scales: Any, bits: int, block: int, out: Any) -> bool:
    """Fills `out`. False if a block with the scale 0 has numbers other than 0."""
    together, mask, sign = 8 // bits, (1 << bits) - 1, 1 << (bits - 1)
    for number in range(scales.size):
        scale = scales[number]
        for j in range(number * block, min((number + 1) * block, out.size)):
            q = (np.int32(data[j // together]) >> (bits * (j % together))) & mask
            q = (q ^ sign) - sign
            if q and scale == 0:
                return False
            out[j] = np.float32(q) * scale
    return True


def packed(values: Vector, code: Blocks) -> NDArray[np.uint8]:
    """The whole numbers as bytes, 8/bits numbers per byte."""
    fits = code.scales.size == blocks_of(values.size, code.block)
    out = np.zeros(-(-values.size * code.bits // 8), np.uint8)
    true = fits and _pack(values, values.view(np.uint32), code.scales, code.bits, code.block, out)
    require(true, f"these values are not whole numbers of {code.bits} bits times the scales of their code")
    return out


def unpacked(data: NDArray[np.uint8], code: Blocks, count: int) -> Vector:
    """The `count` values. The scales must be finite and not negative; the values may be infinite."""
    values = np.empty(count, np.float32)
    if not _unpack(data, code.scales, code.bits, code.block, values):
        raise WireError("numbers other than zero, times zero")
    return values
