"""Update ↔ bytes, and the only source of sizes. The format is specified in docs/wire-format.md.

`encode` is deterministic: it takes the smallest coding of the positions and of the values, losslessly.
`decode` trusts nobody: any bytes give an update of the stated dimension with strictly increasing positions
and finite values, in memory of at most 128 times the message, or a `WireError`. It accepts only what
`encode` writes: an accepted message encodes to the same bytes again.
"""

import struct
import zlib
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gammafl.core import golomb
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.jit import compiled
from gammafl.core.kernels import MAGNITUDE, Vector
from gammafl.core.sparse import SparseUpdate

MAGIC = b"gF"
VERSION = 1
HEADER = struct.Struct("<2sBBIII")  # magic, version, kinds, dimension, count, checksum
CHECKSUM = struct.Struct("<I")
CHECKED = 12  # the header's bytes before the checksum

PositionCoding = Literal["auto", "all", "rice", "bitmap", "raw"]
ValueCoding = Literal["auto", "f32", "f16", "ternary"]
POSITIONS: tuple[PositionCoding, ...] = ("all", "rice", "bitmap", "raw")
VALUES: tuple[ValueCoding, ...] = ("f32", "f16", "ternary")
"""A kind's number on the wire is its place in these tuples."""

MAX_RUNS = 65_535


def encode(update: SparseUpdate, positions: PositionCoding = "auto", values: ValueCoding = "auto") -> bytes:
    """The message for `update`; "auto" takes the smallest coding, a name insists on one."""
    if positions != "auto" and positions not in POSITIONS:
        raise InputError(f"no position coding {positions!r}; they are auto, {', '.join(POSITIONS)}")
    if values != "auto" and values not in VALUES:
        raise InputError(f"no value coding {values!r}; they are auto, {', '.join(VALUES)}")
    kinds, body = _encode_body(update, positions, values)
    head = HEADER.pack(MAGIC, VERSION, kinds, update.dim, len(update), 0)[:CHECKED]
    return head + CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


def decode(payload: bytes | bytearray | memoryview) -> SparseUpdate:
    """The update of a message made by `encode`, or `WireError`."""
    data = bytes(memoryview(payload))
    position_kind, value_kind, dim, count = _decode_header(data)
    body = memoryview(data)[HEADER.size :]
    indices, used = _decode_positions(position_kind, body, dim, count)
    try:
        update = SparseUpdate(dim, indices, _decode_values(value_kind, body[used:], count))
        _, again = _encode_body(update, position_kind, value_kind)
    except WireError:
        raise
    except InputError as error:
        raise WireError(str(error)) from None
    if again != data[HEADER.size :]:
        raise WireError("not the canonical form of its update")
    return update


def _encode_body(update: SparseUpdate, positions: PositionCoding, values: ValueCoding) -> tuple[int, bytes]:
    """(kinds, body). Only what `decode` gives back is encoded."""
    numbers = np.ascontiguousarray(update.values)
    magnitudes = _survey(numbers.view(np.uint32))
    require(magnitudes[0] <= FINITE, "an update with values that are not finite can't be sent")
    in_order = update.entire or golomb.increase(np.ascontiguousarray(update.indices))
    require(in_order, "indices must be strictly increasing")
    position_kind, position_bytes = _encode_positions(update, positions)
    value_kind, value_bytes = _encode_values(numbers, magnitudes, values)
    return POSITIONS.index(position_kind) | VALUES.index(value_kind) << 4, position_bytes + value_bytes


def _decode_header(data: bytes) -> tuple[PositionCoding, ValueCoding, int, int]:
    if len(data) < HEADER.size:
        raise WireError(f"{len(data)} bytes are shorter than the header of {HEADER.size}")
    magic, version, kinds, dim, count, checksum = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"does not start with {MAGIC!r}: not a gammafl message")
    if version != VERSION:
        raise WireError(f"message version {version}; this gammafl reads version {VERSION}")
    if zlib.crc32(memoryview(data)[HEADER.size :], zlib.crc32(data[:CHECKED])) != checksum:
        raise WireError("checksum differs: the message was damaged on its way")
    if kinds & 15 >= len(POSITIONS) or kinds >> 4 >= len(VALUES):
        raise WireError(f"unknown kinds {kinds:#04x}")
    if count > dim:
        raise WireError(f"{count} entries in a dimension of {dim}")
    return POSITIONS[kinds & 15], VALUES[kinds >> 4], dim, count


# --- positions --------------------------------------------------------------------------------------------


def _encode_positions(update: SparseUpdate, coding: PositionCoding) -> tuple[PositionCoding, bytes]:
    if coding == "all" or (coding == "auto" and len(update) == update.dim):
        require(len(update) == update.dim, "position coding 'all' is for updates of every position")
        return "all", b""
    indices = np.ascontiguousarray(update.indices)
    parameter, rice_size = golomb.best_parameter(indices)
    sizes: dict[PositionCoding, int] = {
        "rice": 1 + rice_size,
        "bitmap": -(-update.dim // 8),
        "raw": 4 * len(update),
    }
    kind = min(sizes, key=sizes.__getitem__) if coding == "auto" else coding
    if kind == "rice":
        return kind, bytes([parameter]) + golomb.encode(indices, parameter, rice_size)
    if kind == "bitmap":
        bits = np.zeros(update.dim, np.bool_)
        bits[indices] = True
        return kind, np.packbits(bits, bitorder="little").tobytes()
    return "raw", indices.astype("<u4").tobytes()


def _decode_positions(
    kind: PositionCoding, body: memoryview, dim: int, count: int
) -> tuple[NDArray[np.uint32] | None, int]:
    """The positions (None for all), and how many bytes of `body` they took."""
    if kind == "all":
        if count != dim:
            raise WireError(f"{count} entries where all {dim} are announced")
        return None, 0
    if kind == "rice":
        parameter = _part(body, 0, 1)[0]
        indices, used = golomb.decode(body[1:], parameter, count, dim)
        return indices, 1 + used
    if kind == "bitmap":
        size = -(-dim // 8)
        bits = np.unpackbits(np.frombuffer(_part(body, 0, size), np.uint8), count=dim, bitorder="little")
        indices = np.flatnonzero(bits).astype(np.uint32)
        if len(indices) != count:
            raise WireError(f"{len(indices)} positions where {count} are announced")
        return indices, size
    return np.frombuffer(_part(body, 0, 4 * count), "<u4").astype(np.uint32), 4 * count


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
    """Fills `bits`; False if the starts do not increase."""
    for run in range(magnitudes.size):
        start = np.int64(starts[run - 1]) if run else 0
        stop = np.int64(starts[run]) if run + 1 < magnitudes.size else bits.size
        if not start < stop <= bits.size:
            return False
        for j in range(start, stop):
            sign = (signs[j >> 3] >> np.uint8(j & 7)) & 1
            bits[j] = magnitudes[run] ^ (np.uint32(sign) << np.uint32(31))
    return True


def _encode_values(values: Vector, survey: tuple[int, int, int], coding: ValueCoding) -> tuple[ValueCoding, bytes]:
    """Lossless always: f16 only where every value is a 16-bit float, ternary where few magnitudes occur."""
    largest, occurring, runs = survey
    choices: dict[ValueCoding, int] = {"f32": 4 * len(values)}
    if occurring & 0x1FFF == 0 and largest <= HALF and _are_halves(values):  # most are told apart by their last bits
        choices["f16"] = 2 * len(values)
    if 1 <= runs <= MAX_RUNS:
        choices["ternary"] = 2 + 8 * runs - 4 + -(-len(values) // 8)
    kind = min(choices, key=choices.__getitem__) if coding == "auto" else coding
    require(kind in choices, f"these values can't be sent as {kind} without loss")
    if kind == "f16":
        return kind, values.astype("<f2").tobytes()
    if kind == "ternary":
        magnitudes, starts = np.empty(runs, np.uint32), np.empty(runs, np.uint32)
        signs = np.zeros(-(-len(values) // 8), np.uint8)
        _write_runs(values.view(np.uint32), magnitudes, starts, signs)
        numbers = magnitudes.astype("<u4").tobytes() + starts[1:].astype("<u4").tobytes()
        return kind, struct.pack("<H", runs) + numbers + signs.tobytes()
    return "f32", values.astype("<f4", copy=False).tobytes()


def _are_halves(values: Vector) -> bool:
    """Whether every value is a 16-bit float."""
    return values.astype(np.float16).astype(np.float32).tobytes() == values.tobytes()


def _decode_values(kind: ValueCoding, body: memoryview, count: int) -> Vector:
    if kind == "f16":
        return np.frombuffer(_part(body, 0, 2 * count), "<f2").astype(np.float32)
    if kind == "f32":
        return np.frombuffer(_part(body, 0, 4 * count), "<f4").astype(np.float32)
    (runs,) = struct.unpack("<H", _part(body, 0, 2))
    if not 1 <= runs <= count:
        raise WireError(f"{runs} magnitudes for {count} values")
    magnitudes = np.frombuffer(_part(body, 2, 4 * runs), "<u4").astype(np.uint32)
    starts = np.frombuffer(_part(body, 2 + 4 * runs, 4 * runs - 4), "<u4").astype(np.uint32)
    signs = np.frombuffer(_part(body, 8 * runs - 2, -(-count // 8)), np.uint8)
    values = np.empty(count, np.float32)
    if not _read_runs(magnitudes, starts, signs, values.view(np.uint32)):
        raise WireError("runs of magnitudes out of order")
    return values


def _part(body: memoryview, start: int, size: int) -> memoryview:
    if start + size > len(body):
        raise WireError(f"message ends {start + size - len(body)} bytes too early")
    return body[start : start + size]
