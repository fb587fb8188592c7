"""Update ↔ bytes. All sizes in gammafl are measured here. docs/wire-format.md specifies the format.

`encode` is deterministic and lossless: it chooses the smallest coding of the positions and of the values. `decode`
checks everything. Any bytes give either a `WireError`, or an update of the stated dimension with strictly increasing
positions and finite values, in memory of at most 128 times the message. It accepts only what `encode` writes: an
accepted message encodes to the same bytes again. (Messages of version 1 are accepted too; `encode` writes version 2.)

In every coding, a value takes at least one bit. So a forged key or count can't demand memory for values that the
message does not hold. A decoded entry takes 8 bytes of memory, and at most 8 more during decoding.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gammafl.core import golomb, position_coding, value_coding, varints
from gammafl.core.checksum import crc32
from gammafl.core.codes import Code
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.jit import compiled_with
from gammafl.core.position_coding import ALL
from gammafl.core.position_coding import POSITIONS as POSITIONS
from gammafl.core.position_coding import PositionCoding as PositionCoding
from gammafl.core.reading import F4, U2, part
from gammafl.core.sparse import SparseUpdate
from gammafl.core.value_coding import F32, TERNARY
from gammafl.core.value_coding import VALUES as VALUES
from gammafl.core.value_coding import ValueCoding as ValueCoding

MARK = 0xF2
"""The first byte of version 2."""

START = struct.Struct("<BBI")
"""Mark, kinds, checksum. Then follow the dimension, the count, and how many elements are sent whole, if any."""

WHOLE = 8
"""The bit in the kinds that is set if the last elements are sent whole."""

CHECKED, CHECKSUM = 2, struct.Struct("<I")
"""The checksum comes after CHECKED bytes. It covers all bytes except its own."""

NO_POSITIONS = np.empty(0, np.uint32)


class Head(NamedTuple):
    """The beginning of a message."""

    positions: int
    values: int
    dim: int
    entries: int
    """The number of entries before those that are sent whole."""

    whole: int
    end: int


def header_bytes(dim: int, count: int, whole: int = 0) -> int:
    """The length of a message without its positions and values. `count` excludes entries that are sent whole.

    >>> header_bytes(10_250, 103), header_bytes(10_000_000, 10_000)
    (9, 12)
    """
    return START.size + varints.size(dim) + varints.size(count) + (varints.size(whole) if whole else 0)


def encode(update: SparseUpdate, positions: PositionCoding = "auto", values: ValueCoding = "auto") -> bytes:
    """The message for `update`.

    update      a SparseUpdate, as compressors return it
    positions   "auto" chooses the smallest coding of the positions; a name of docs/wire-format.md demands that one
    values      the same for the coding of the values

    Returns bytes.

    >>> payload = encode(SparseUpdate(1000, [3, 500], [0.5, -0.5]))
    >>> len(payload), decode(payload).values.tolist()
    (16, [0.5, -0.5])
    """
    if not isinstance(update, SparseUpdate):
        raise InputError(f"encode takes a SparseUpdate, as a compressor returns it; got {type(update).__name__}")
    wanted_positions = None if positions == "auto" else _number(positions, POSITIONS, "position")
    wanted_values = None if values == "auto" else _number(values, VALUES, "value")
    entire, whole = update.entire and wanted_positions in (None, ALL), update.whole
    dim, key, coded, tail = update.dim, None, None, b""
    indices, sent = NO_POSITIONS if entire else update.indices, update.values
    if whole:
        tail, dim = _whole(sent[len(sent) - whole :]), dim - whole
        indices, sent = indices[: max(0, len(indices) - whole)], sent[: len(sent) - whole]
    if update.code is not None:
        key, coded = update.code.drawn, update.code.values
    plan, survey = _look_at(indices, sent)
    position_kind, position_bytes = (
        (ALL, b"") if entire else position_coding.encode(indices, dim, plan, key, wanted_positions)
    )
    value_kind, value_bytes = value_coding.encode(sent, survey, coded, wanted_values)
    kinds = position_kind | value_kind << 4
    numbers = varints.written(update.dim) + varints.written(len(sent))
    if whole:
        kinds, numbers = kinds | WHOLE, numbers + varints.written(whole)
    start = bytes((MARK, kinds))
    checksum = crc32(value_bytes, crc32(position_bytes, zlib.crc32(start + numbers)))
    if whole:
        checksum = crc32(tail, checksum)
    return b"".join((start, CHECKSUM.pack(checksum), numbers, position_bytes, value_bytes, tail))


def decode(payload: bytes | bytearray | memoryview, dim: int | None = None) -> SparseUpdate:
    """The update in a message of `encode`. A `WireError` if the message is malformed.

    payload   the bytes of the message
    dim       the expected dimension. A message with another one is a `WireError` too

    Returns a SparseUpdate.

    >>> decode(encode(SparseUpdate(3, [1], [2.0])), dim=3).dense().tolist()
    [0.0, 2.0, 0.0]
    """
    data = payload if isinstance(payload, bytes) else _bytes_of(payload)
    if data[:2] == OLD_MAGIC:
        return _decode_old(data, dim)
    kinds, size, count, whole, start = _read_head(data)
    if crc32(memoryview(data)[START.size :], zlib.crc32(data[:CHECKED])) != CHECKSUM.unpack_from(data, CHECKED)[0]:
        raise WireError("checksum differs: the message was damaged on its way")
    if dim is not None:
        _require_dim(size, dim)
    before = size - whole
    if count > before:
        raise WireError(f"{count} entries in a dimension of {before}")
    indices, key, start = position_coding.decode(kinds & 7, data, start, before, count)
    values, coded, end = value_coding.decode(kinds >> 4, data, start, count)
    if whole:
        tail, _, end = value_coding.decode(F32, data, end, whole)
        values = np.concatenate([values, tail])
        if indices is not None:
            indices = np.concatenate([indices, np.arange(before, size, dtype=np.uint32)])
    if end != len(data):
        _require_end(data, end)
    code = None if key is None and coded is None else Code(key, coded)
    return SparseUpdate.of_checked(size, indices, values, whole, code)


def read_head(data: bytes) -> Head:
    """The beginning of a message of version 2, not checked against the rest."""
    kinds, *others = _read_head(data)
    return Head(kinds & 7, kinds >> 4, *others)


def _read_head(data: bytes) -> tuple[int, int, int, int, int]:
    """(kinds, dimension, entries, whole, where they end)."""
    if len(data) < START.size + 2:
        raise WireError(f"{len(data)} bytes are shorter than the header of any message")
    kinds = data[1]
    if data[0] != MARK:
        raise WireError(f"starts with {data[:2]!r}: not a gammafl message of version 1 or 2")
    if kinds & 7 >= len(POSITIONS) or kinds >> 4 >= len(VALUES):
        raise WireError(f"unknown kinds {kinds:#04x}")
    dim, at = varints.read(data, START.size)
    count, at = varints.read(data, at)
    if not kinds & WHOLE:
        return kinds, dim, count, 0, at
    whole, at = varints.read(data, at)
    if not 1 <= whole <= dim:
        raise WireError(f"{whole} of {dim} elements are sent whole")
    return kinds, dim, count, whole, at


def _whole(values: Any) -> bytes:
    require(bool(np.isfinite(values).all()), "an update with values that are not finite can't be sent")
    return values.astype(F4, copy=False).tobytes()


@compiled_with(golomb, value_coding)
def _look_at(indices: Any, values: Any) -> Any:
    """All facts for the choice of codings, in one call."""
    return golomb.plan(indices), value_coding.survey(values.view(np.uint32))


def _bytes_of(payload: Any) -> bytes:
    try:
        return bytes(memoryview(payload))
    except (TypeError, ValueError, BufferError):
        raise InputError(f"decode takes the bytes of a message, got {type(payload).__name__}") from None


def _number(coding: str, codings: Sequence[str], name: str) -> int:
    if coding not in codings:
        raise InputError(f"no {name} coding {coding!r}; they are auto, {', '.join(codings)}")
    return codings.index(coding)


def _require_dim(dim: int, expected: int | None) -> None:
    if expected not in (None, dim):
        raise WireError(f"an update of {dim} elements for a model of {expected}")


def _require_end(data: bytes, end: int) -> None:
    if end != len(data):
        raise WireError(f"{len(data) - end} bytes after the end of the message")


# --- version 1 --------------------------------------------------------------------------------------------

OLD_MAGIC = b"gF"
OLD_HEADER = struct.Struct("<2sBBIII")
"""Magic, version, kinds, dimension, count, checksum."""
OLD_KINDS = 4, 3
"""The numbers of codings of positions and of values in version 1."""


def _decode_old(data: bytes, expected_dim: int | None) -> SparseUpdate:
    if len(data) < OLD_HEADER.size:
        raise WireError(f"{len(data)} bytes are shorter than the header of {OLD_HEADER.size}")
    _, version, kinds, dim, count, checksum = OLD_HEADER.unpack_from(data)
    if version != 1:
        raise WireError(f"message version {version}; this gammafl reads versions 1 and 2")
    if crc32(memoryview(data)[OLD_HEADER.size :], crc32(data[: OLD_HEADER.size - CHECKSUM.size])) != checksum:
        raise WireError("checksum differs: the message was damaged on its way")
    if kinds & 15 >= OLD_KINDS[0] or kinds >> 4 >= OLD_KINDS[1]:
        raise WireError(f"unknown kinds {kinds:#04x}")
    _require_dim(dim, expected_dim)
    if count > dim:
        raise WireError(f"{count} entries in a dimension of {dim}")
    indices, _, start = position_coding.decode(kinds & 15, data, OLD_HEADER.size, dim, count)
    if kinds >> 4 == TERNARY:
        runs = int(part(data, start, U2, 1)[0])
        values, _, end = value_coding.decode_ternary(data, start + U2.itemsize, count, runs)
    else:
        values, _, end = value_coding.decode(kinds >> 4, data, start, count)
    _require_end(data, end)
    return SparseUpdate.of_checked(dim, indices, values)
