"""Update ↔ bytes, and the only source of sizes. The format is specified in docs/wire-format.md.

`encode` is deterministic: it takes the smallest coding of the positions and of the values, losslessly.
`decode` trusts nobody: any bytes give an update of the stated dimension with strictly increasing positions
and finite values, in memory of at most 128 times the message, or a `WireError`. It accepts only what
`encode` writes: each coding refuses any other form of what it reads, so that an accepted message encodes to the same
bytes again.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gammafl.core import golomb
from gammafl.core.arrays import Vector
from gammafl.core.checksum import crc32
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.jit import compiled
from gammafl.core.kernels import MAGNITUDE, largest_magnitude, on_slices
from gammafl.core.sparse import SparseUpdate

MAGIC = b"gF"
VERSION = 1
HEADER = struct.Struct("<2sBBIII")  # magic, version, kinds, dimension, count, checksum
CHECKED, CHECKSUM = struct.Struct("<2sBBII"), struct.Struct("<I")  # the header in two parts

PositionCoding = Literal["auto", "all", "rice", "bitmap", "raw"]
ValueCoding = Literal["auto", "f32", "f16", "ternary"]
POSITIONS: tuple[PositionCoding, ...] = ("all", "rice", "bitmap", "raw")
VALUES: tuple[ValueCoding, ...] = ("f32", "f16", "ternary")
"""A kind's number on the wire is its place in these tuples."""
ALL, RICE, BITMAP, RAW = range(len(POSITIONS))
F32, F16, TERNARY = range(len(VALUES))

BYTES, U2, U4, F2, F4 = map(np.dtype, ("u1", "<u2", "<u4", "<f2", "<f4"))
Bytes = bytes | memoryview
MAX_RUNS = 65_535
NO_POSITIONS = np.empty(0, np.uint32)


def encode(update: SparseUpdate, positions: PositionCoding = "auto", values: ValueCoding = "auto") -> bytes:
    """The message for `update`; "auto" takes the smallest coding, a name insists on one."""
    is_update = isinstance(update, SparseUpdate)
    require(is_update, f"encode takes a SparseUpdate, as a compressor returns it; got {type(update).__name__}")
    wanted_positions = None if positions == "auto" else _number(positions, POSITIONS, "position")
    wanted_values = None if values == "auto" else _number(values, VALUES, "value")
    entire = update.entire and wanted_positions in (None, ALL)
    indices = NO_POSITIONS if entire else update.indices
    plan, survey = _look_at(indices, update.values)
    position_kind, position_bytes = (
        (ALL, b"") if entire else _encode_positions(indices, update.dim, plan, wanted_positions)
    )
    value_kind, value_bytes = _encode_values(update.values, survey, wanted_values)
    head = CHECKED.pack(MAGIC, VERSION, position_kind | value_kind << 4, update.dim, len(update.values))
    checksum = crc32(value_bytes, crc32(position_bytes, crc32(head)))
    return b"".join((head, CHECKSUM.pack(checksum), position_bytes, value_bytes))


def decode(payload: bytes | bytearray | memoryview, dim: int | None = None) -> SparseUpdate:
    """The update of a message made by `encode`, or `WireError`; also if it is not of the dimension that is given."""
    data = payload if isinstance(payload, bytes) else _bytes_of(payload)
    kinds, dim, count = _decode_header(data, dim)
    indices, start = _decode_positions(kinds & 15, data, dim, count)
    values, end = _decode_values(kinds >> 4, data, start, count)
    if end != len(data):
        raise WireError(f"{len(data) - end} bytes after the end of the message")
    return SparseUpdate.of_checked(dim, indices, values)


def _bytes_of(payload: Any) -> bytes:
    try:
        return bytes(memoryview(payload))
    except (TypeError, ValueError, BufferError):
        raise InputError(f"decode takes the bytes of a message, got {type(payload).__name__}") from None


def _number(coding: str, codings: Sequence[str], name: str) -> int:
    if coding not in codings:
        raise InputError(f"no {name} coding {coding!r}; they are auto, {', '.join(codings)}")
    return codings.index(coding)


def _decode_header(data: bytes, expected_dim: int | None) -> tuple[int, int, int]:
    """(kinds, dimension, count)."""
    if len(data) < HEADER.size:
        raise WireError(f"{len(data)} bytes are shorter than the header of {HEADER.size}")
    magic, version, kinds, dim, count, checksum = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"does not start with {MAGIC!r}: not a gammafl message")
    if version != VERSION:
        raise WireError(f"message version {version}; this gammafl reads version {VERSION}")
    if crc32(memoryview(data)[HEADER.size :], crc32(data[: CHECKED.size])) != checksum:
        raise WireError("checksum differs: the message was damaged on its way")
    if kinds & 15 >= len(POSITIONS) or kinds >> 4 >= len(VALUES):
        raise WireError(f"unknown kinds {kinds:#04x}")
    if expected_dim not in (None, dim):
        raise WireError(f"an update of {dim} elements for a model of {expected_dim}")
    if count > dim:
        raise WireError(f"{count} entries in a dimension of {dim}")
    return kinds, dim, count


# --- positions --------------------------------------------------------------------------------------------


def _encode_positions(
    indices: NDArray[np.uint32], dim: int, plan: tuple[bool, int, int], kind: int | None
) -> tuple[int, Bytes]:
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
    if kind == RICE:
        return kind, golomb.encode(indices, parameter, rice_size)
    if kind == BITMAP:
        bits = np.zeros(dim, np.bool_)
        bits[indices] = True
        return kind, np.packbits(bits, bitorder="little").tobytes()
    if kind == RAW:
        return kind, indices.astype(U4, copy=False).tobytes()
    require(count == dim, "position coding 'all' is for updates of every position")
    return ALL, b""


def _decode_positions(kind: int, data: bytes, dim: int, count: int) -> tuple[NDArray[np.uint32] | None, int]:
    """The positions (None for all), and where in `data` they end."""
    if kind == ALL:
        if count != dim:
            raise WireError(f"{count} entries where all {dim} are announced")
        return None, HEADER.size
    if kind == RICE:
        return golomb.decode(data, HEADER.size, count, dim)
    if kind == RAW:
        indices = _part(data, HEADER.size, U4, count).astype(np.uint32)
        if count and not (indices[-1] < dim and golomb.in_order(indices)):
            raise WireError(f"positions must increase and be below {dim}")
        return indices, HEADER.size + 4 * count
    bits = _part(data, HEADER.size, BYTES, -(-dim // 8))
    _require_zeros_after(dim, bits)
    indices = np.flatnonzero(np.unpackbits(bits, count=dim, bitorder="little")).astype(np.uint32)
    if len(indices) != count:
        raise WireError(f"{len(indices)} positions where {count} are announced")
    return indices, HEADER.size + len(bits)


# --- values -----------------------------------------------------------------------------------------------

FINITE = int(np.float32(np.finfo(np.float32).max).view(np.uint32))
HALF = int(np.float32(np.finfo(np.float16).max).view(np.uint32))
"""Bits of the largest finite float32, and of the largest 16-bit float."""

NO_MAGNITUDE = np.uint32(0xFFFFFFFF)


@compiled
def _survey(bits: Any) -> Any:
    """(bits of the largest magnitude, bits set in any magnitude, runs of equal magnitude)."""
    largest, occurring, runs, last = np.uint32(0), np.uint32(0), 0, NO_MAGNITUDE
    for j in range(bits.size):
        magnitude = np.uint32(bits[j] & MAGNITUDE)
        largest = max(largest, magnitude)
        occurring = np.uint32(occurring | magnitude)
        runs += magnitude != last
        last = magnitude
    return largest, occurring, runs


@compiled
def _look_at(indices: Any, values: Any) -> Any:
    """All that the choice of codings depends on, in one call."""
    return golomb.plan(indices), _survey(values.view(np.uint32))


@compiled
def _write_runs(bits: Any, magnitudes: Any, starts: Any, signs: Any) -> None:
    """Fills each run's magnitude and start, and sets the bits of negative values in `signs`."""
    run, last = -1, NO_MAGNITUDE
    for j in range(bits.size):
        magnitude = np.uint32(bits[j] & MAGNITUDE)
        if magnitude != last:
            run, last = run + 1, magnitude
            magnitudes[run] = magnitude
            starts[run] = j
        signs[j >> 3] |= np.uint8((bits[j] >> np.uint32(31)) << np.uint32(j & 7))


@compiled
def _read_runs(magnitudes: Any, starts: Any, signs: Any, bits: Any) -> bool:
    """Fills `bits`; False if the starts do not increase, or if a run could be joined with the one before."""
    for run in range(magnitudes.size):
        start = np.int64(starts[run - 1]) if run else 0
        stop = np.int64(starts[run]) if run + 1 < magnitudes.size else bits.size
        if not start < stop <= bits.size or (run and magnitudes[run] == magnitudes[run - 1]):
            return False
        for j in range(start, stop):
            sign = (signs[j >> 3] >> np.uint8(j & 7)) & 1
            bits[j] = magnitudes[run] ^ (np.uint32(sign) << np.uint32(31))
    return True


def _encode_values(values: Vector, survey: tuple[int, int, int], kind: int | None) -> tuple[int, Bytes]:
    """Lossless always: f16 only where every value is a 16-bit float, ternary where few magnitudes occur."""
    (largest, occurring, runs), count = survey, len(values)
    require(largest <= FINITE, "an update with values that are not finite can't be sent")
    ternary_size = 2 + 8 * runs - 4 + -(-count // 8) if 1 <= runs <= MAX_RUNS else math.inf
    halves = occurring & 0x1FFF == 0 and largest <= HALF and _are_halves(values)  # most differ in their last bits
    half_size = 2 * count if halves else math.inf
    if kind is None:
        kind = F32 if 4 * count <= min(half_size, ternary_size) else F16 if half_size <= ternary_size else TERNARY
    if kind == F32:
        return kind, values.astype(F4, copy=False).view(BYTES).data
    possible = halves if kind == F16 else ternary_size < math.inf
    require(possible, f"these values can't be sent as {VALUES[kind]} without loss")
    if kind == F16:
        return kind, values.astype(F2).tobytes()
    magnitudes, starts = np.empty(runs, np.uint32), np.empty(runs, np.uint32)
    signs = np.zeros(-(-count // 8), np.uint8)
    _write_runs(values.view(np.uint32), magnitudes, starts, signs)
    numbers = magnitudes.astype(U4, copy=False).tobytes() + starts[1:].astype(U4, copy=False).tobytes()
    return kind, struct.pack("<H", runs) + numbers + signs.tobytes()


def _are_halves(values: Vector) -> bool:
    """Whether every value is a 16-bit float."""
    return values.astype(np.float16).astype(np.float32).tobytes() == values.tobytes()


def _decode_values(kind: int, data: bytes, start: int, count: int) -> tuple[Vector, int]:
    """The values, and where in `data` they end."""
    if kind != TERNARY:
        sent, values = _part(data, start, F4 if kind == F32 else F2, count), np.empty(count, np.float32)
        on_slices(lambda first, end: np.copyto(values[first:end], sent[first:end]), count)
        if not largest_magnitude(values) < math.inf:
            raise WireError("values that are not finite")
        return values, start + sent.nbytes
    runs = int(_part(data, start, U2, 1)[0])
    if not 1 <= runs <= count:
        raise WireError(f"{runs} magnitudes for {count} values")
    magnitudes = _part(data, start + 2, U4, runs).astype(np.uint32)
    starts = _part(data, start + 2 + 4 * runs, U4, runs - 1).astype(np.uint32)
    signs = _part(data, start + 8 * runs - 2, BYTES, -(-count // 8))
    if magnitudes.max() > FINITE:
        raise WireError("magnitudes must be finite, without a sign")
    _require_zeros_after(count, signs)
    values = np.empty(count, np.float32)
    if not _read_runs(magnitudes, starts, signs, values.view(np.uint32)):
        raise WireError("runs of magnitudes out of order, or not as long as they could be")
    return values, start + 8 * runs - 2 + len(signs)


def _require_zeros_after(used: int, in_bytes: NDArray[np.uint8]) -> None:
    """Of the bits in these bytes only the first `used` may be set."""
    if used % 8 and in_bytes[-1] >> (used % 8):
        raise WireError("bits that are not in use are set")


def _part(data: bytes, start: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """`count` numbers of `data`."""
    missing = start + count * dtype.itemsize - len(data)
    if missing > 0:
        raise WireError(f"message ends {missing} bytes too early")
    return np.frombuffer(data, dtype, count, start)
