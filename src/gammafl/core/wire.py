"""Update ↔ bytes, and the only source of sizes. The format is specified in docs/wire-format.md.

`encode` is deterministic: it takes the smallest coding of the positions and of the values, losslessly.
`decode` trusts nobody: any bytes give an update of the stated dimension with strictly increasing positions
and finite values, in memory of at most 128 times the message, or a `WireError`. It accepts only what
`encode` writes: an accepted message encodes to the same bytes again.
"""

import struct
import zlib
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gammafl.core import golomb
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.kernels import Vector
from gammafl.core.sparse import SparseUpdate

MAGIC = b"gF"
VERSION = 1
HEADER = struct.Struct("<2sBBIII")  # magic, version, kinds, dimension, count, checksum
CHECKED = 12  # the header's bytes before the checksum

PositionCoding = Literal["auto", "all", "rice", "bitmap", "raw"]
ValueCoding = Literal["auto", "f32", "f16", "ternary"]
POSITIONS: tuple[PositionCoding, ...] = ("all", "rice", "bitmap", "raw")
VALUES: tuple[ValueCoding, ...] = ("f32", "f16", "ternary")
"""A kind's number on the wire is its place in these tuples."""

MAX_RUNS = 65_535


def encode(update: SparseUpdate, positions: PositionCoding = "auto", values: ValueCoding = "auto") -> bytes:
    """The message for `update`; "auto" takes the smallest coding, a name insists on one."""
    require(
        positions in ("auto", *POSITIONS), f"no position coding {positions!r}; they are auto, {', '.join(POSITIONS)}"
    )
    require(values in ("auto", *VALUES), f"no value coding {values!r}; they are auto, {', '.join(VALUES)}")
    _check(update)
    position_kind, position_bytes = _encode_positions(update, positions)
    value_kind, value_bytes = _encode_values(update.values, values)
    kinds = POSITIONS.index(position_kind) | VALUES.index(value_kind) << 4
    head = HEADER.pack(MAGIC, VERSION, kinds, update.dim, len(update), 0)[:CHECKED]
    body = position_bytes + value_bytes
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


def decode(payload: bytes | bytearray | memoryview) -> SparseUpdate:
    """The update of a message made by `encode`, or `WireError`."""
    data = memoryview(payload).cast("B")
    position_kind, value_kind, dim, count = _decode_header(data)
    body = data[HEADER.size :]
    indices, used = _decode_positions(position_kind, body, dim, count)
    try:
        update = SparseUpdate(dim, indices, _decode_values(value_kind, body[used:], count))
        again = encode(update, position_kind, value_kind)
    except WireError:
        raise
    except InputError as error:
        raise WireError(str(error)) from None
    if again != data:
        raise WireError("not the canonical form of its update")
    return update


def _check(update: SparseUpdate) -> None:
    """Only what `decode` gives back may be encoded."""
    require(bool(np.isfinite(update.values).all()), "an update with values that are not finite can't be sent")
    if not update.entire:
        indices = update.indices
        require(bool((indices[1:] > indices[:-1]).all()), "indices must be strictly increasing")


def _decode_header(data: memoryview) -> tuple[PositionCoding, ValueCoding, int, int]:
    if len(data) < HEADER.size:
        raise WireError(f"{len(data)} bytes are shorter than the header of {HEADER.size}")
    magic, version, kinds, dim, count, checksum = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"does not start with {MAGIC!r}: not a gammafl message")
    if version != VERSION:
        raise WireError(f"message version {version}; this gammafl reads version {VERSION}")
    if zlib.crc32(data[HEADER.size :], zlib.crc32(data[:CHECKED])) != checksum:
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
    indices = update.indices
    gaps = golomb.gaps_of(indices)
    parameter, rice_size = golomb.best_parameter(gaps)
    sizes: dict[PositionCoding, int] = {
        "rice": 1 + rice_size,
        "bitmap": -(-update.dim // 8),
        "raw": 4 * len(update),
    }
    kind = min(sizes, key=lambda name: sizes[name]) if coding == "auto" else coding
    if kind == "rice":
        return kind, bytes([parameter]) + golomb.encode(gaps, parameter, rice_size)
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


def _encode_values(values: Vector, coding: ValueCoding) -> tuple[ValueCoding, bytes]:
    """Lossless always: f16 only where every value is a 16-bit float, ternary where few magnitudes occur."""
    choices: dict[ValueCoding, int] = {"f32": 4 * len(values)}
    if _are_halves(values[:64]) and _are_halves(values):  # most updates are told apart by the first few
        choices["f16"] = 2 * len(values)
    starts = _run_starts(values)
    if 1 <= len(starts) <= MAX_RUNS:
        choices["ternary"] = 2 + 8 * len(starts) - 4 + -(-len(values) // 8)
    kind = min(choices, key=lambda name: choices[name]) if coding == "auto" else coding
    require(kind in choices, f"these values can't be sent as {kind} without loss")
    if kind == "f16":
        return kind, values.astype("<f2").tobytes()
    if kind == "ternary":
        magnitudes = np.abs(values[starts]).astype("<f4").tobytes()
        signs = np.packbits(np.signbit(values), bitorder="little").tobytes()
        return kind, struct.pack("<H", len(starts)) + magnitudes + starts[1:].astype("<u4").tobytes() + signs
    return "f32", values.astype("<f4").tobytes()


def _are_halves(values: Vector) -> bool:
    """Whether every value is a 16-bit float."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32).tobytes() == values.tobytes()


def _run_starts(values: Vector) -> NDArray[np.int64]:
    """Where runs of equal magnitude start: one run for one μ, one a tensor for a μ per tensor."""
    if not len(values):
        return np.empty(0, np.int64)
    magnitudes = np.abs(values)
    return np.concatenate([[0], np.flatnonzero(magnitudes[1:] != magnitudes[:-1]) + 1])


def _decode_values(kind: ValueCoding, body: memoryview, count: int) -> Vector:
    if kind == "f16":
        return np.frombuffer(_part(body, 0, 2 * count), "<f2").astype(np.float32)
    if kind == "f32":
        return np.frombuffer(_part(body, 0, 4 * count), "<f4").astype(np.float32)
    (runs,) = struct.unpack("<H", _part(body, 0, 2))
    if not 1 <= runs <= count:
        raise WireError(f"{runs} magnitudes for {count} values")
    magnitudes = np.frombuffer(_part(body, 2, 4 * runs), "<f4")
    starts = np.frombuffer(_part(body, 2 + 4 * runs, 4 * runs - 4), "<u4").astype(np.int64)
    lengths = np.diff(starts, prepend=0, append=count)
    if (lengths <= 0).any():
        raise WireError("runs of magnitudes out of order")
    signs = np.frombuffer(_part(body, 8 * runs - 2, -(-count // 8)), np.uint8)
    values = np.repeat(magnitudes, lengths).astype(np.float32, copy=False)
    negative = np.unpackbits(signs, count=count, bitorder="little").view(np.bool_)
    return np.negative(values, out=values, where=negative)


def _part(body: memoryview, start: int, size: int) -> memoryview:
    if start + size > len(body):
        raise WireError(f"message ends {start + size - len(body)} bytes too early")
    return body[start : start + size]
