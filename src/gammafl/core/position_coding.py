"""Positions ↔ bytes: six codings. Each writes positions in exactly one way. docs/wire-format.md specifies them."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gammafl.core import drawn, golomb, interpolative
from gammafl.core.errors import WireError, require
from gammafl.core.reading import BYTES, U4, Bytes, part, require_zeros_after

PositionCoding = Literal["auto", "all", "rice", "bitmap", "raw", "drawn", "interpolative"]
POSITIONS: tuple[PositionCoding, ...] = ("all", "rice", "bitmap", "raw", "drawn", "interpolative")
"""The kinds of codings. Messages have a kind's index in this tuple."""
ALL, RICE, BITMAP, RAW, DRAWN, INTERPOLATIVE = range(len(POSITIONS))

KEY_BYTES = 8
Indices = NDArray[np.uint32]


Positions = tuple[Indices | None, int | None, int]
"""(positions, or None for all; the key that drew them; where in the message they end)."""


def encode(
    indices: Indices, dim: int, plan: tuple[bool, int, int], key: int | None, kind: int | None
) -> tuple[int, Bytes]:
    """The kind's number, and the bytes. With the kind None, the smallest.

    plan   the result of `golomb.plan`
    key    the key that draws the positions, if they are drawn
    """
    (increasing, parameter, rice_size), count = plan, len(indices)
    require(increasing, "indices must be strictly increasing")
    if kind is None:
        bitmap_size, raw_size = -(-dim // 8), 4 * count
        if count == dim:
            kind = ALL
        elif rice_size <= bitmap_size and rice_size <= raw_size:
            kind = RICE
        else:
            kind = BITMAP if bitmap_size <= raw_size else RAW
        if key is not None and kind != ALL and min(rice_size, bitmap_size, raw_size) > KEY_BYTES:
            kind = DRAWN
        if kind != ALL and dim <= interpolative.MOST_DIM and 0 < count <= interpolative.MOST_TRIED:
            size = KEY_BYTES if kind == DRAWN else min(rice_size, bitmap_size, raw_size)
            if (shorter := interpolative.encode(indices, dim, size - 1)) is not None:
                return INTERPOLATIVE, shorter
    if kind == INTERPOLATIVE:
        most = interpolative.MOST_DIM
        require(dim <= most, f"position coding 'interpolative' is for at most {most} elements, got {dim}")
        return kind, interpolative.encode(indices, dim) or b""
    if kind == RICE:
        return kind, golomb.encode(indices, parameter, rice_size)
    if kind == BITMAP:
        bits = np.zeros(dim, np.bool_)
        bits[indices] = True
        return kind, np.packbits(bits, bitorder="little").tobytes()
    if kind == RAW:
        return kind, indices.astype(U4, copy=False).tobytes()
    if kind == DRAWN:
        true = key is not None and np.array_equal(drawn.positions(key, dim, count), indices)
        require(true, "position coding 'drawn' is for positions that the key of the update's code draws")
        return kind, (key or 0).to_bytes(KEY_BYTES, "little")
    require(count == dim, "position coding 'all' is for updates of every position")
    return ALL, b""


def decode(kind: int, data: bytes, start: int, dim: int, count: int) -> Positions:
    """`count` positions below `dim`, from `start`."""
    if kind == RICE:
        indices, end = golomb.decode(data, start, count, dim)
        return indices, None, end
    if kind == ALL:
        if count != dim:
            raise WireError(f"{count} entries where all {dim} are announced")
        return None, None, start
    if kind == RAW:
        indices = part(data, start, U4, count).astype(np.uint32)
        if count and not (indices[-1] < dim and golomb.in_order(indices)):
            raise WireError(f"positions must increase and be below {dim}")
        return indices, None, start + 4 * count
    if kind == INTERPOLATIVE:
        indices, end = interpolative.decode(data, start, count, dim)
        return indices, None, end
    if kind == DRAWN:
        key, end = int.from_bytes(part(data, start, BYTES, KEY_BYTES).tobytes(), "little"), start + KEY_BYTES
        if count > 8 * (len(data) - end):  # a value takes at least one bit
            raise WireError(f"{count} values do not fit in {len(data) - end} bytes")
        return drawn.positions(key, dim, count), key, end
    bits = part(data, start, BYTES, -(-dim // 8))
    require_zeros_after(dim, bits)
    indices = np.flatnonzero(np.unpackbits(bits, count=dim, bitorder="little")).astype(np.uint32)
    if len(indices) != count:
        raise WireError(f"{len(indices)} positions where {count} are announced")
    return indices, None, start + len(bits)
