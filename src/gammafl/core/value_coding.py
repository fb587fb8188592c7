"""Values ↔ bytes: six codings, all lossless. docs/wire-format.md specifies them."""

import math
import struct
from typing import Any, Literal

import numpy as np

from gammafl.core import blocks, rotation, varints
from gammafl.core.arrays import Vector
from gammafl.core.codes import Blocks, Rotated
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.jit import compiled
from gammafl.core.kernels import MAGNITUDE, largest_magnitude, on_slices
from gammafl.core.reading import BYTES, F2, F4, U2, U4, Bytes, part, require_zeros_after

ValueCoding = Literal["auto", "f32", "f16", "ternary", "bf16", "bits", "rotated"]
VALUES: tuple[ValueCoding, ...] = ("f32", "f16", "ternary", "bf16", "bits", "rotated")
"""The kinds of codings. Messages have a kind's index in this tuple."""
F32, F16, TERNARY, BF16, BITS, ROTATED = range(len(VALUES))

KEY = struct.Struct("<Q")
FINITE = int(np.float32(np.finfo(np.float32).max).view(np.uint32))
HALF = int(np.float32(np.finfo(np.float16).max).view(np.uint32))
"""The bits of the largest 16-bit float, as a float32; before it, those of the largest finite float32."""

NO_MAGNITUDE = np.uint32(0xFFFFFFFF)


Coded = tuple[Vector, Blocks | Rotated | None, int]
"""(values, their code or None, where in the message they end)."""


# --- sizes ------------------------------------------------------------------------------------------------


def ternary_bytes(count: int, runs: int) -> int:
    """The bytes of `count` values in `runs` runs, each with one magnitude."""
    return varints.size(runs) + 8 * runs - 4 + -(-count // 8)


def blocks_bytes(count: int, bits: int, block: int) -> int:
    """The bytes of `count` values of `bits` bits, with one scale per block."""
    return 1 + varints.size(block) + 4 * blocks.blocks_of(count, block) + -(-count * bits // 8)


def rotated_bytes(count: int) -> int:
    """The bytes of `count` rotated values."""
    return KEY.size + 4 * rotation.blocks_of(count) + rotation.signs_size(count)


def coded_bytes(count: int, code: Blocks | Rotated) -> int:
    return blocks_bytes(count, code.bits, code.block) if isinstance(code, Blocks) else rotated_bytes(count)


# --- facts for the choice of a coding ---------------------------------------------------------------------


@compiled
def survey(bits: Any) -> Any:
    """(bits of the largest magnitude, bits that are set in any magnitude, number of runs of equal magnitude)."""
    largest, occurring, runs, last = np.uint32(0), np.uint32(0), 0, NO_MAGNITUDE
    for j in range(bits.size):
        magnitude = np.uint32(bits[j] & MAGNITUDE)
        largest = max(largest, magnitude)
        occurring = np.uint32(occurring | magnitude)
        runs += magnitude != last
        last = magnitude
    return largest, occurring, runs


def _are_halves(values: Vector) -> bool:
    """Whether a 16-bit float can hold every value exactly."""
    return values.astype(np.float16).astype(np.float32).tobytes() == values.tobytes()


def encode(
    values: Vector, seen: tuple[int, int, int], code: Blocks | Rotated | None, kind: int | None
) -> tuple[int, Bytes]:
    """The kind's number, and the bytes. With the kind None, the smallest. `seen` is the result of `survey`."""
    (largest, occurring, runs), count = seen, len(values)
    require(largest <= FINITE, "an update with values that are not finite can't be sent")
    ternary_size = ternary_bytes(count, runs) if runs else math.inf
    halves = occurring & 0x1FFF == 0 and largest <= HALF and _are_halves(values)  # most values use their last bits
    half_size = 2 * count if halves else math.inf
    brief = occurring & 0xFFFF == 0
    if kind is None:
        kind = F32 if 4 * count <= min(half_size, ternary_size) else F16 if half_size <= ternary_size else TERNARY
        size = (4 * count, half_size, ternary_size)[kind]
        if brief and 2 * count < size:
            kind, size = BF16, 2 * count
        if code is not None and coded_bytes(count, code) < size:
            kind = BITS if isinstance(code, Blocks) else ROTATED
    if kind == F32:
        return kind, values.astype(F4, copy=False).view(BYTES).data
    if kind == TERNARY and runs:
        return kind, _encode_ternary(values, runs)
    if kind == F16 and halves:
        return kind, values.astype(F2).tobytes()
    if kind == BF16 and brief:
        return kind, (values.view(np.uint32) >> np.uint32(16)).astype(U2).tobytes()
    if kind == BITS and isinstance(code, Blocks):
        return kind, _encode_blocks(values, code)
    if kind == ROTATED and isinstance(code, Rotated):
        return kind, _encode_rotated(values, code)
    raise InputError(f"these values can't be sent as {VALUES[kind]} without loss")


def decode(kind: int, data: bytes, start: int, count: int) -> Coded:
    """`count` values from `start`."""
    if kind in (F32, F16):
        sent, values = part(data, start, F4 if kind == F32 else F2, count), np.empty(count, np.float32)
        on_slices(lambda first, end: np.copyto(values[first:end], sent[first:end]), count)
        return _finite(values), None, start + sent.nbytes
    if kind == BF16:
        words = part(data, start, U2, count).astype(np.uint32)
        words <<= np.uint32(16)
        return _finite(words.view(np.float32)), None, start + 2 * count
    if kind == TERNARY:
        runs, start = varints.read(data, start)
        return decode_ternary(data, start, count, runs)
    return _decode_blocks(data, start, count) if kind == BITS else _decode_rotated(data, start, count)


def _finite(values: Vector) -> Vector:
    if not largest_magnitude(values) < math.inf:
        raise WireError("values that are not finite")
    return values


def _scales(data: bytes, start: int, count: int) -> Vector:
    words = part(data, start, U4, count).astype(np.uint32)
    if count and words.max() > FINITE:
        raise WireError("magnitudes must be finite, without a sign")
    return words.view(np.float32)


# --- few magnitudes ---------------------------------------------------------------------------------------


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
    """Fills `bits`. False if the starts do not increase, or if a run could be joined with the previous one."""
    for run in range(magnitudes.size):
        start = np.int64(starts[run - 1]) if run else 0
        stop = np.int64(starts[run]) if run + 1 < magnitudes.size else bits.size
        if not start < stop <= bits.size or (run and magnitudes[run] == magnitudes[run - 1]):
            return False
        for j in range(start, stop):
            sign = (signs[j >> 3] >> np.uint8(j & 7)) & 1
            bits[j] = magnitudes[run] ^ (np.uint32(sign) << np.uint32(31))
    return True


def _encode_ternary(values: Vector, runs: int) -> bytes:
    magnitudes, starts = np.empty(runs, np.uint32), np.empty(runs, np.uint32)
    signs = np.zeros(-(-len(values) // 8), np.uint8)
    _write_runs(values.view(np.uint32), magnitudes, starts, signs)
    numbers = magnitudes.astype(U4, copy=False).tobytes() + starts[1:].astype(U4, copy=False).tobytes()
    return varints.written(runs) + numbers + signs.tobytes()


def decode_ternary(data: bytes, start: int, count: int, runs: int) -> Coded:
    """`count` values in `runs` runs. The magnitudes begin at `start`."""
    if not 1 <= runs <= count:
        raise WireError(f"{runs} magnitudes for {count} values")
    magnitudes = _scales(data, start, runs).view(np.uint32)
    starts = part(data, start + 4 * runs, U4, runs - 1).astype(np.uint32)
    signs = part(data, start + 8 * runs - 4, BYTES, -(-count // 8))
    require_zeros_after(count, signs)
    values = np.empty(count, np.float32)
    if not _read_runs(magnitudes, starts, signs, values.view(np.uint32)):
        raise WireError("runs of magnitudes out of order, or not as long as they could be")
    return values, None, start + 8 * runs - 4 + len(signs)


# --- whole numbers with scales, and rotated signs ---------------------------------------------------------


def _encode_blocks(values: Vector, code: Blocks) -> bytes:
    numbers = blocks.packed(values, code)
    head = bytes([code.bits]) + varints.written(code.block)
    return head + code.scales.astype(F4, copy=False).tobytes() + numbers.tobytes()


def _decode_blocks(data: bytes, start: int, count: int) -> Coded:
    bits = int(part(data, start, BYTES, 1)[0])
    block, start = varints.read(data, start + 1)
    if bits not in blocks.BITS or block == 0:
        raise WireError(f"values of {bits} bits in blocks of {block}")
    number, size = blocks.blocks_of(count, block), -(-count * bits // 8)
    packed = part(data, start + 4 * number, BYTES, size)
    code = Blocks(bits, block, _scales(data, start, number))
    require_zeros_after(count * bits, packed)
    return _finite(blocks.unpacked(packed, code, count)), code, start + 4 * number + size


def _encode_rotated(values: Vector, code: Rotated) -> bytes:
    true = rotation.is_code_of(code, values)
    require(true, "these values are not those of the rotation that their code names")
    return KEY.pack(code.key) + code.scales.astype(F4, copy=False).tobytes() + code.signs.tobytes()


def _decode_rotated(data: bytes, start: int, count: int) -> Coded:
    number, size = rotation.blocks_of(count), rotation.signs_size(count)
    after = start + KEY.size + 4 * number
    signs = part(data, after, BYTES, size).copy()
    (key,) = KEY.unpack_from(data, start)
    code = Rotated(key, _scales(data, start + KEY.size, number), signs)
    return _finite(rotation.restored(code, count)), code, after + size
