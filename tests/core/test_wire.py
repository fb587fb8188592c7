"""The wire format: what is sent arrives, nothing else is accepted, and the sizes are what docs/wire-format.md says."""

import math
import struct
import tracemalloc
import zlib
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core import blocks, drawn, rotation
from gammafl.core.codes import Blocks, Code, Rotated
from gammafl.core.interpolative import decode as interpolative_positions
from gammafl.core.interpolative import encode as encode_positions
from gammafl.core.interpolative import most_bytes
from gammafl.core.wire import (
    CHECKED,
    MARK,
    POSITIONS,
    VALUES,
    WHOLE,
    PositionCoding,
    ValueCoding,
    header_bytes,
    read_head,
)


@st.composite
def updates(draw: st.DrawFn) -> gf.SparseUpdate:
    """Sparse, dense, empty; full precision, halves, bfloats, ternary, coded; any finite value; some sent whole."""
    dim = draw(st.one_of(st.integers(0, 200), st.sampled_from([2**20, 2**31 + 5, 2**32 - 1])))
    chosen = draw(st.sets(st.integers(0, max(0, dim - 1)), max_size=min(dim, 60)))
    if dim <= 60 and draw(st.booleans()):
        chosen = set(range(dim))
    indices = np.array(sorted(chosen), np.uint32)
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    halves = st.floats(width=16, allow_nan=False, allow_infinity=False)
    few = st.sampled_from([0.25, -0.25])
    numbers = draw(
        st.sampled_from([finite, halves, few]).flatmap(
            lambda s: st.lists(s, min_size=len(chosen), max_size=len(chosen))
        )
    )
    values, key, coded = np.array(numbers, np.float32), None, None
    if draw(st.booleans()):
        key = draw(st.integers(0, 2**64 - 1))
        indices = drawn.positions(key, dim, len(chosen))
    if how := draw(st.sampled_from([None, None, 2, 4, 8, "bf16", "rotated"])):
        values, coded = in_code(values, how, draw(st.integers(1, 70)))
    update = gf.SparseUpdate(dim, indices, values, code=Code(key, coded))
    whole = np.array(draw(st.lists(finite, max_size=4)), np.float32)
    return update.with_whole(whole) if whole.size and dim < 2**32 - 5 else update


def in_code(values: Any, how: Any, number: int) -> tuple[Any, Blocks | Rotated | None]:
    """Values as they come out of a rounding of that kind; `number` is a block's length, or a key."""
    if how == "bf16":
        return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), None
    return rotation.rotated(values, number, "unbiased") if how == "rotated" else blocks.nearest(values, how, number)


@given(updates())
def test_what_is_encoded_is_decoded_bit_for_bit(update: gf.SparseUpdate) -> None:
    payload = gf.encode(update)
    assert gf.decode(payload) == update
    assert gf.encode(gf.decode(payload)) == payload


@given(updates(), st.sampled_from(["rice", "bitmap", "raw", "interpolative"]))
def test_every_position_coding_carries_every_update(update: gf.SparseUpdate, coding: PositionCoding) -> None:
    if coding in ("bitmap", "interpolative") and update.dim > 2**20:
        return  # half a gigabyte of bitmap, and more than the other coding takes
    payload = gf.encode(update, positions=coding)
    assert gf.decode(payload) == update
    assert len(gf.encode(update)) <= len(payload)


@given(updates())
def test_f32_is_never_smaller_than_what_auto_takes(update: gf.SparseUpdate) -> None:
    assert len(gf.encode(update)) <= len(gf.encode(update, values="f32"))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_an_update_or_a_wire_error(data: bytes) -> None:
    with pytest.raises(gf.WireError):
        gf.decode(data)


@given(updates(), st.data())
def test_a_damaged_message_is_refused(update: gf.SparseUpdate, data: st.DataObject) -> None:
    payload = bytearray(gf.encode(update))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(gf.WireError):
        gf.decode(payload)


@given(updates(), st.data())
def test_a_message_that_ends_early_or_goes_on_is_refused(update: gf.SparseUpdate, data: st.DataObject) -> None:
    payload = gf.encode(update)
    with pytest.raises(gf.WireError):
        gf.decode(payload[: data.draw(st.integers(0, len(payload) - 1))])
    with pytest.raises(gf.WireError):
        gf.decode(payload + b"\0")


def forge(
    positions: PositionCoding, values: ValueCoding, dim: int, count: int, body: bytes, whole: int = 0, mark: int = MARK
) -> bytes:
    """A message with a right checksum, whatever else it says."""
    kinds = POSITIONS.index(positions) | VALUES.index(values) << 4 | (WHOLE if whole else 0)
    return sealed(bytes([mark, kinds]) + varint(dim) + varint(count) + (varint(whole) if whole else b"") + body)


def varint(number: int) -> bytes:
    """LEB128, as docs/wire-format.md words it: seven bits a byte, a bit more for "another follows"."""
    groups = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


def sealed(content: bytes) -> bytes:
    """`content` with its checksum."""
    return content[:CHECKED] + struct.pack("<I", zlib.crc32(content)) + content[CHECKED:]


@given(
    st.sampled_from(POSITIONS), st.sampled_from(VALUES), st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1)),
    st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1)),
    st.binary(max_size=60), st.sampled_from([0, 0, 1, 3]),
)  # fmt: skip
def test_a_forged_message_gives_its_one_update_or_a_wire_error(
    positions: PositionCoding, values: ValueCoding, dim: int, count: int, body: bytes, whole: int
) -> None:
    payload = forge(positions, values, dim, count, body, whole)
    try:
        update = gf.decode(payload)
    except gf.WireError:
        return
    assert update.dim == dim
    assert len(update) == count + whole
    assert gf.encode(update, positions, values) == payload


def old(kinds: int, dim: int, count: int, body: bytes) -> bytes:
    """A message of version 1 with a right checksum."""
    head = struct.pack("<2sBBII", b"gF", 1, kinds, dim, count)
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


ONE = struct.pack("<f", 1.0)
FORGED = {
    "a billion entries in 40 bytes": forge("rice", "f32", 2**31, 10**9, bytes(24)),
    "all of four billion": forge("all", "ternary", 2**32 - 1, 2**32 - 1, bytes(24)),
    "a bitmap of four billion": forge("bitmap", "f32", 2**32 - 1, 3, bytes(24)),
    "more entries than elements": forge("raw", "f32", 1, 2, bytes(16)),
    "an index beyond the dimension": forge("raw", "f32", 5, 1, struct.pack("<I", 5) + ONE),
    "indices out of order": forge("raw", "f32", 9, 2, struct.pack("<II", 4, 3) + ONE + ONE),
    "an index twice": forge("raw", "f32", 9, 2, struct.pack("<II", 4, 4) + ONE + ONE),
    "NaN": forge("raw", "f32", 9, 1, struct.pack("<If", 4, math.nan)),
    "infinity as a half": forge("raw", "f16", 9, 1, struct.pack("<Ie", 4, math.inf)),
    "an infinite magnitude": forge("raw", "ternary", 9, 1, struct.pack("<IBfB", 4, 1, math.inf, 0)),
    "no magnitude": forge("raw", "ternary", 9, 1, struct.pack("<IBB", 4, 0, 0)),
    "a negative magnitude": forge("raw", "ternary", 9, 1, struct.pack("<IBfB", 4, 1, -1.0, 0)),
    "set padding bits": forge("raw", "ternary", 9, 1, struct.pack("<IBfB", 4, 1, 1.0, 2)),
    "two runs of one magnitude": forge("raw", "ternary", 9, 2, struct.pack("<IIBffIB", 1, 2, 2, 1.0, 1.0, 1, 0)),
    "a Rice parameter of 200": forge("rice", "f32", 9, 1, bytes([200]) + bytes(30)),
    "a Rice parameter that is not the best": forge("rice", "f32", 9, 1, bytes([5, 0]) + ONE),
    "a unary code without end": forge("rice", "f32", 2**32 - 1, 1, bytes([0]) + b"\xff" * 40),
    "a unary code past the dimension": forge("rice", "f32", 9, 1, bytes([0]) + b"\xff\xff\x00" + ONE),
    "a Rice code that ends in the values": forge("rice", "f32", 2**32 - 1, 1, bytes([31, 0]) + ONE),
    "set bits after the last Rice code": forge("rice", "f32", 9, 1, bytes([0, 2]) + ONE),
    "runs out of order": forge("raw", "ternary", 9, 2, struct.pack("<IIBffIB", 1, 2, 2, 1.0, 2.0, 0, 0)),
    "a run from far away": forge("raw", "ternary", 9, 2, struct.pack("<IIBffIB", 1, 2, 2, 1.0, 2.0, 2**32 - 1, 0)),
    "a newer version": forge("raw", "f32", 9, 1, struct.pack("<If", 4, 1.0), mark=MARK + 1),
    "a dimension in more bytes than it needs": sealed(bytes([MARK, 0, 0x80, 0, 0])),
    "a dimension of 35 bits": sealed(bytes([MARK, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0, 0])),
    "a number without end": sealed(bytes([MARK, 1]) + b"\xff" * 9),
    "nothing sent whole": sealed(bytes([MARK, WHOLE, 0, 0, 0])),
    "more sent whole than there is": forge("all", "f32", 3, 0, bytes(16), whole=4),
    "entries where others are sent whole": forge("raw", "f32", 3, 2, struct.pack("<IIff", 0, 1, 1, 1) + ONE * 2, 2),
    "NaN among those that are sent whole": forge("raw", "f32", 3, 0, struct.pack("<f", math.nan), whole=1),
    "infinity as a bfloat": forge("all", "bf16", 1, 1, struct.pack("<H", 0x7F80)),
    "a key that draws a billion": forge("drawn", "f32", 2**31, 10**9, bytes(24)),
    "a key that draws a billion signs": forge("drawn", "ternary", 2**31, 10**9, bytes(8) + bytes([1]) + ONE + bytes(9)),
    "interpolative positions that end early": forge("interpolative", "f32", 2**20, 1, bytes(2)),
    "interpolative positions that end in the values": forge("interpolative", "f32", 2**20, 1, bytes(2) + ONE),
    "bits after the last interpolative position": forge("interpolative", "f32", 9, 1, bytes([0x10]) + ONE),
    "interpolative positions among two million": forge("interpolative", "f32", 2**20 + 1, 0, b""),
    "a million interpolative positions": forge("interpolative", "ternary", 2**20, 10**6, bytes(24)),
    "a key that ends early": forge("drawn", "f32", 9, 0, bytes(7)),
    "three bits": forge("all", "bits", 1, 1, bytes([3, 1]) + ONE + b"\1"),
    "blocks of none": forge("all", "bits", 1, 1, bytes([8, 0]) + ONE + b"\1"),
    "a scale that is negative": forge("all", "bits", 1, 1, bytes([8, 1]) + struct.pack("<fB", -1.0, 1)),
    "a scale that is minus zero": forge("all", "bits", 1, 1, bytes([8, 1]) + struct.pack("<fB", -0.0, 0)),
    "a number times zero": forge("all", "bits", 1, 1, bytes([8, 1]) + struct.pack("<fB", 0.0, 1)),
    "a product that is infinite": forge("all", "bits", 1, 1, bytes([8, 1]) + struct.pack("<fB", 3e38, 127)),
    "bits after the last number": forge("all", "bits", 1, 1, bytes([2, 1]) + struct.pack("<fB", 1.0, 0x10)),
    "a billion numbers of two bits": forge("all", "bits", 10**9, 10**9, bytes([2, 255, 1]) + bytes(30)),
    "a billion rotated signs": forge("all", "rotated", 10**9, 10**9, bytes(40)),
    "a rotation whose scale is NaN": forge("all", "rotated", 64, 64, bytes(8) + struct.pack("<f", math.nan) + bytes(8)),
    "a rotation that is infinite": forge("all", "rotated", 64, 64, bytes(8) + struct.pack("<f", 3e38) + bytes(8)),
    "version 3 of the first form": b"gF\3" + bytes(20),
    "a coding that version 1 has not": old(0x04, 1, 1, bytes(12)),
}


@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
def test_a_hostile_message_is_refused(payload: bytes) -> None:
    with pytest.raises(gf.WireError):
        gf.decode(payload)


@pytest.mark.parametrize(
    ("dim", "indices", "values", "problem"),
    [
        (5, [5], [1], "from 0 to 4"),
        (5, [-1], [1], "from 0 to 4"),
        (5, [2**32 + 1], [1], "from 0 to 4"),
        (5, [1.5], [1], "whole numbers"),
        (5, [1, 2], [1], "2 indices for values of shape"),
        (5, None, [1], "5 indices for values of shape"),
        (5, [1], [[1]], "values must be a vector"),
        (2**32, [1], [1], "dim must be"),
        (-1, [], [], "dim must be"),
    ],
)
def test_an_update_that_is_none_can_not_be_made(dim: int, indices: Any, values: Any, problem: str) -> None:
    with pytest.raises(gf.InputError, match=problem):
        gf.SparseUpdate(dim, indices, values)


def test_an_update_that_could_not_be_decoded_is_not_encoded() -> None:
    with pytest.raises(gf.InputError, match="strictly increasing"):
        gf.encode(gf.SparseUpdate(5, [1, 1], [1, 2]))
    with pytest.raises(gf.InputError, match="not finite"):
        gf.encode(gf.SparseUpdate(5, [1], [math.nan]))
    with pytest.raises(gf.InputError, match="no position coding 'golomb'"):
        gf.encode(gf.SparseUpdate(5, [1], [1]), positions="golomb")  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match="can't be sent as f16 without loss"):
        gf.encode(gf.SparseUpdate(5, [1], [1.0001]), values="f16")
    with pytest.raises(gf.InputError, match="for at most 1048576 elements, got 1048577"):
        gf.encode(gf.SparseUpdate(2**20 + 1, [1], [1]), positions="interpolative")


@given(st.lists(st.builds(math.ldexp, st.integers(-4096, 4096).map(float), st.integers(-30, 8)), max_size=5))
@example([65504.0])
@example([65536.0])
@example([2.0**-24, -0.0])
@example([2.0**-25])
def test_f16_is_for_those_values_that_are_16_bit_floats(values: list[float]) -> None:
    update = gf.SparseUpdate(len(values), None, values)
    with np.errstate(over="ignore"):
        exact = bool((update.values.astype(np.float16) == update.values).all())
    if exact:
        assert gf.decode(gf.encode(update, values="f16")) == update
    else:
        with pytest.raises(gf.InputError, match="can't be sent as f16 without loss"):
            gf.encode(update, values="f16")


DEMANDING = {
    "all, ternary": gf.SparseUpdate(200_000, None, np.where(np.arange(200_000) % 2, 1, -1)),
    "rice, ternary": gf.SparseUpdate(250_000, np.arange(200_000), np.ones(200_000)),
    "interpolative, ternary": gf.SparseUpdate(250_000, np.arange(10_000), np.ones(10_000)),
    "bitmap, ternary": gf.SparseUpdate(200_001, np.arange(200_000), np.ones(200_000)),
    "all, f16": gf.SparseUpdate(200_000, None, np.arange(200_000) % 1000),
    "drawn, ternary": gf.SparseUpdate(2**31, drawn.positions(1, 2**31, 200_000), np.ones(200_000), code=Code(1)),
    "all, two bits": gf.SparseUpdate(200_000, None, np.arange(200_000) % 3 - 1.0).with_values(
        *blocks.nearest((np.arange(200_000) % 3 - 1.0).astype(np.float32), 2, 10**6)
    ),
    "all, rotated": gf.SparseUpdate(65_537, None, np.ones(65_537)).with_values(
        *rotation.rotated(np.ones(65_537, np.float32), 3, "nearest")
    ),
    "drawn, rotated": gf.SparseUpdate(
        2**31, drawn.positions(1, 2**31, 70_000), np.ones(70_000), code=Code(1)
    ).with_values(*rotation.rotated(np.arange(70_000, dtype=np.float32), 3, "nearest")),
    "rice, f32, four billion elements": gf.SparseUpdate(2**32 - 1, np.arange(1000) * 4_000_000, np.arange(1000) * 1.1),
}


@pytest.mark.parametrize("update", DEMANDING.values(), ids=DEMANDING)
def test_decoding_takes_at_most_128_times_the_messages_length(update: gf.SparseUpdate) -> None:
    payload = gf.encode(update)
    gf.decode(payload)
    tracemalloc.start()
    gf.decode(payload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 128 * len(payload)


def test_sizes_are_those_of_the_specification() -> None:
    numbers, head = np.random.default_rng(0).standard_normal(1000).astype(np.float32), 1 + 1 + 4 + 2 + 2
    full = gf.SparseUpdate(1000, None, numbers)
    assert len(gf.encode(full)) == head + 4000  # no positions
    assert len(gf.encode(gf.SparseUpdate(0, [], []))) == 1 + 1 + 4 + 1 + 1
    assert len(gf.encode(gf.SparseUpdate(2**31, [], []))) == 1 + 1 + 4 + 5 + 1
    signs = np.where(np.arange(1000) % 3, 0.5, -0.5)
    assert len(gf.encode(gf.SparseUpdate(1000, None, signs))) == head + 1 + 4 + 125
    assert len(gf.encode(full.with_values(*in_code(numbers, "bf16", 0)))) == head + 2000
    assert len(gf.encode(full.with_values(*in_code(numbers, 4, 100)))) == head + 1 + 1 + 4 * 10 + 500
    assert len(gf.encode(full.with_values(*in_code(numbers, 2, 1000)))) == head + 1 + 2 + 4 * 1 + 250
    assert len(gf.encode(full.with_values(*in_code(numbers, "rotated", 7)))) == head + 8 + 4 * 1 + 128
    drawn_by_key = gf.SparseUpdate(10**6, drawn.positions(3, 10**6, 1000), numbers, code=Code(3))
    assert len(gf.encode(drawn_by_key)) == 1 + 1 + 4 + 3 + 2 + 8 + 4000
    assert len(gf.encode(drawn_by_key.with_whole(numbers[:200]))) == 1 + 1 + 4 + 3 + 2 + 2 + 8 + 4000 + 800


def test_a_small_message_has_a_header_of_at_most_12_bytes() -> None:
    for dim, share in product([10, 1000, 10_250, 235_690, 2**21 - 1], [0.001, 0.01, 0.1]):
        assert header_bytes(dim, round(share * dim)) <= 12


@given(updates())
def test_what_a_header_says_is_what_the_update_is(update: gf.SparseUpdate) -> None:
    head = read_head(gf.encode(update))
    assert (head.dim, head.entries, head.whole) == (update.dim, len(update) - update.whole, update.whole)
    assert head.end == header_bytes(update.dim, len(update) - update.whole, update.whole)


def test_values_that_are_sent_whole_change_neither_the_coding_of_the_others_nor_their_positions() -> None:
    ternary = gf.SparseUpdate(5000, np.arange(0, 5000, 50), np.where(np.arange(100) % 3, 0.5, -0.5))
    statistics = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    assert len(gf.encode(ternary.with_whole(statistics))) == len(gf.encode(ternary)) + 1 + 4 * 64


def test_a_code_that_is_not_true_is_refused() -> None:
    values = np.linspace(-1, 1, 100).astype(np.float32)
    other = gf.SparseUpdate(5000, np.arange(100), values, code=Code(3))
    with pytest.raises(gf.InputError, match="positions that the key"):
        gf.encode(other, positions="drawn")
    for how, problem in ((8, "whole numbers of 8 bits"), ("rotated", "not those of the rotation")):
        _, coded = in_code(values, how, 5)
        with pytest.raises(gf.InputError, match=problem):
            gf.encode(gf.SparseUpdate(100, None, values, code=Code(None, coded)))


def test_positions_that_a_key_drew_can_be_sent_without_it() -> None:
    update = gf.SparseUpdate(5000, drawn.positions(3, 5000, 100), np.arange(100) * 1.1, code=Code(3))
    arrived = gf.decode(gf.encode(update, positions="rice"))
    assert arrived == update
    assert arrived.code is None
    assert gf.decode(gf.encode(update)).code is not None


def test_the_last_entries_are_whole_only_at_the_last_positions() -> None:
    gf.SparseUpdate(9, [0, 7, 8], [1, 2, 3], whole=2)
    for indices, whole in (([0, 6, 8], 2), ([0, 7, 8], 4), ([0, 7, 8], -1), ([], 1)):
        with pytest.raises(gf.InputError, match="not the last positions"):
            gf.SparseUpdate(9, indices, np.ones(len(indices)), whole=whole)


VERSION_1 = {
    "67460101 e8030000 04000000 8f692c79 07 0684003f1e cdcccc3dcdcc4cbe9a99993e5f708930": gf.SparseUpdate(
        1000, [3, 70, 71, 900], [0.1, -0.2, 0.3, 1e-9]
    ),
    "67460122 14000000 04000000 2851cbcd 880108 0200 0000003f00000040 03000000 02": gf.SparseUpdate(
        20, [3, 7, 8, 19], [0.5, -0.5, 0.5, 2]
    ),
    "67460113 ffffffff 02000000 b75afe3a 05000000feffffff 003800be": gf.SparseUpdate(
        2**32 - 1, [5, 2**32 - 2], [0.5, -1.5]
    ),
    "67460120 03000000 03000000 9ff3dfa6 0100 0000803f 02": gf.SparseUpdate(3, None, [1, -1, 1]),
    "67460121 2c010000 05000000 faf868fc 05 0000f4fe30 0200 0000c03f0000803e 02000000 12": gf.SparseUpdate(
        300, [0, 1, 2, 50, 299], [1.5, -1.5, 0.25, 0.25, -0.25]
    ),
    "67460100 02000000 02000000 6c1d6126 cdcccc3de6b161ff": gf.SparseUpdate(2, None, [0.1, -3e38]),
    "67460111 70110100 03000000 8758973f 0ef7ff0300b845 003c00c0ff7b": gf.SparseUpdate(
        70_000, [65_535, 65_536, 69_999], [1, -2, 65_504]
    ),
    "67460101 00000080 00000000 b2285693 00": gf.SparseUpdate(2**31, [], []),
    "67460102 09000000 02000000 a76be85c 0101 0100000000000080": gf.SparseUpdate(9, [0, 8], [1e-45, -0.0]),
}
"""Recorded from gammafl 0.1."""


@pytest.mark.parametrize("message", VERSION_1)
def test_messages_of_version_1_are_read(message: str) -> None:
    assert gf.decode(bytes.fromhex(message)) == VERSION_1[message]


@pytest.mark.parametrize("message", VERSION_1)
@given(data=st.data())
def test_a_damaged_message_of_version_1_is_refused(message: str, data: st.DataObject) -> None:
    payload = bytearray.fromhex(message)
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(gf.WireError):
        gf.decode(payload)


VERSION_2 = {
    "f201 78cedbb8 e807 04 07 0684003f1e cdcccc3dcdcc4cbe9a99993e5f708930": gf.SparseUpdate(
        1000, [3, 70, 71, 900], [0.1, -0.2, 0.3, 1e-9]
    ),
    "f221 a3448853 14 04 02 3626 01 0000003f 0a": gf.SparseUpdate(20, [3, 7, 8, 19], [0.5, -0.5, 0.5, -0.5]),
    "f204 5d3e5a8a ac02 14 0500000000000080 6666f6c06666d6c06666b6c0666696c0cdcc6cc0cdcc2cc09a99d9bf333333bf9a99993e"
    "6666a63f33331340333353409a9989409a99a9409a99c9409a99e940cdcc0441cdcc1441cdcc2441cdcc3441": gf.SparseUpdate(
        300,
        [22, 26, 30, 37, 52, 64, 95, 112, 140, 159, 184, 199, 218, 225, 230, 236, 240, 248, 265, 282],
        np.arange(20) - 7.7,
    ),
    "f240 cf012ca5 05 05 04 03 9ebdcb3d5cd9673d d72009": gf.SparseUpdate(
        5, None, [0.6963793039321899, -0.29844826459884644, 0.0, 0.11320754885673523, -0.3962264060974121]
    ),
    "f250 bd8aa880 07 07 6300000000000000 5e43193e e0e0e0e0e0e0e0e0": gf.SparseUpdate(
        7, None, np.float32(0.14967105) * np.array([-16, -16, 16, 16, 48, 16, 16], np.float32)
    ),
    "f225 fa3d37e9 e807 0d 2fa2f59a0e17a8e41c 00010000803f0000": gf.SparseUpdate(
        1000, [3, 40, 41, 42, 44, 45, 47, 60, 61, 400, 402, 403, 900], np.ones(13)
    ),
    "f238 afcabc82 04 03 01 3d1e177280bf cdcccc3d": gf.SparseUpdate(
        4, None, [1.0005576689441423e-20, 2.990863134913479e30, -1.0, 0.1]
    ),
}
"""Rice, ternary, a key, 4 bits in blocks of 3, a rotation, interpolative, bfloats before an element sent whole."""


@pytest.mark.parametrize("message", VERSION_2)
def test_the_bytes_of_version_2_stay_as_they_are_on_every_processor(message: str) -> None:
    payload = bytes.fromhex(message)
    arrived, head = gf.decode(payload), read_head(payload)
    assert arrived == VERSION_2[message]
    assert gf.encode(arrived, POSITIONS[head.positions], VALUES[head.values]) == payload
    assert len(gf.encode(arrived)) <= len(payload)


def rice(gaps: list[int], b: int) -> bytes:
    """The codes as docs/wire-format.md words them, a bit a character."""
    codes = ["1" * (gap >> b) + "0" + "".join(str(gap >> bit & 1) for bit in range(b)) for gap in gaps]
    bits = "".join(codes)
    return bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))


GAPS = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 300), st.integers(0, 20_000)), min_size=1, max_size=80)


@given(GAPS)
@example([2, 1, 0, 0])  # found by going down from the first guess
@example([21, 0, 29, 83, 23])  # found by going up
@example([0] * 2000 + [31, 32, 33, 63, 64, 65, 200, 0, 7])  # unary codes around and beyond a word
def test_the_rice_code_is_that_of_the_specification_with_the_cheapest_parameter(gaps: list[int]) -> None:
    indices = np.cumsum(np.array(gaps) + 1) - 1
    update = gf.SparseUpdate(int(indices[-1]) + 1, indices, np.arange(len(gaps)) * 1.1)
    positions = gf.encode(update, "rice", "f32")[header_bytes(update.dim, len(gaps)) : -4 * len(gaps)]
    assert positions[1:] == rice(gaps, positions[0])
    assert len(positions) == 1 + min(len(rice(gaps, b)) for b in range(33))


def many_gaps(kept: float, seed: int) -> np.ndarray:
    """So many that they are coded by the block and read by a table; some are longer than any word."""
    rng = np.random.default_rng(seed)
    gaps = rng.geometric(kept, 5000) - 1
    gaps[rng.integers(0, gaps.size, 4)] = rng.integers(50, 3000, 4)
    return gaps


@pytest.mark.parametrize("kept", [0.01, 0.02, 0.05, 0.1, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("seed", range(5))
def test_many_gaps_are_coded_as_few_are(kept: float, seed: int) -> None:
    gaps = many_gaps(kept, seed)
    indices = np.cumsum(gaps + 1) - 1
    update = gf.SparseUpdate(int(indices[-1]) + 1, indices, np.arange(gaps.size) * 1.1)
    message = gf.encode(update, "rice", "f32")
    positions = message[header_bytes(update.dim, gaps.size) : -4 * gaps.size]
    assert positions[1:] == rice(gaps.tolist(), positions[0])
    assert gf.decode(message) == update


@given(
    st.sampled_from([0.02, 0.1, 0.3, 0.6]), st.integers(0, 9), st.floats(0, 1), st.binary(min_size=1, max_size=20),
    st.sampled_from([0, 1, 2, -1, -5000]),
)  # fmt: skip
def test_many_forged_codes_give_their_one_update_or_a_wire_error(
    kept: float, seed: int, where: float, forged: bytes, off: int
) -> None:
    indices = np.cumsum(many_gaps(kept, seed) + 1) - 1
    dim, count = max(1, int(indices[-1]) + 1 + off), indices.size
    whole_message = gf.encode(gf.SparseUpdate(2**31, indices, np.arange(count) * 1.1), "rice", "f32")
    body = bytearray(whole_message[header_bytes(2**31, count) :])
    at = int(where * (len(body) - 4 * count))
    body[at : at + len(forged)] = forged
    payload = forge("rice", "f32", dim, count, bytes(body))
    try:
        update = gf.decode(payload)
    except gf.WireError:
        return
    assert update.indices[-1] < dim
    assert gf.encode(update, "rice", "f32") == payload


def interpolative(indices: list[int], low: int, high: int) -> str:
    """The codes as docs/wire-format.md words them, of positions from `low` to below `high`, a bit a character."""
    slack, middle = high - low - len(indices), len(indices) // 2
    if not indices or not slack:
        return ""
    width = slack.bit_length()
    short = 2**width - slack - 1
    number = (indices[middle] - low - middle + short // 2) % (slack + 1)
    if number < short:
        code = "".join(str(number >> bit & 1) for bit in range(width - 1))
    else:
        code = "".join(str(number + short >> bit & 1) for bit in [*range(1, width), 0])
    before, after = indices[:middle], indices[middle + 1 :]
    return code + interpolative(before, low, indices[middle]) + interpolative(after, indices[middle] + 1, high)


@given(GAPS, st.integers(0, 3000))
@example([0], 0)
@example([0] * 80, 1)
@example([2**20 - 1], 0)
def test_the_interpolative_code_is_that_of_the_specification(gaps: list[int], behind: int) -> None:
    indices = np.cumsum(np.array(gaps) + 1) - 1
    update = gf.SparseUpdate(int(indices[-1]) + 1 + behind, indices, np.arange(len(gaps)) * 1.1)
    if update.dim > 2**20:
        return
    message = gf.encode(update, "interpolative", "f32")
    bits = interpolative(indices.tolist(), 0, update.dim)
    codes = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    assert message[header_bytes(update.dim, len(gaps)) : -4 * len(gaps)] == codes


@given(st.integers(1, 400), st.data())
def test_any_bits_are_interpolative_positions_and_no_others_have_them(dim: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, dim))
    codes = data.draw(st.binary(min_size=most_bytes(dim, count), max_size=most_bytes(dim, count)))
    with suppress(gf.WireError):  # bits that are set after the last position
        indices, end = interpolative_positions(codes + bytes(count), 0, count, dim)
        assert (indices < dim).all()
        assert (indices[1:] > indices[:-1]).all()
        assert bytes(encode_positions(indices, dim) or b"") == codes[:end]


def gathered(count: int) -> np.ndarray:
    """As in an update whose rows differ: runs of places among longer runs without any."""
    rng = np.random.default_rng(count)
    rows = np.repeat(rng.random(200) ** 4, 500) * rng.random(100_000)
    return np.sort(np.argsort(-rows)[:count])


@pytest.mark.parametrize("count", [30, 300, 3000, 2**14])
def test_positions_that_gather_are_written_by_the_shorter_interpolative_code(count: int) -> None:
    update = gf.SparseUpdate(100_000, gathered(count), np.ones(count))
    payload = gf.encode(update)
    assert POSITIONS[read_head(payload).positions] == "interpolative"
    assert len(payload) < 0.9 * min(len(gf.encode(update, coding)) for coding in ("rice", "bitmap", "raw"))
    assert gf.decode(payload) == update


def test_what_takes_long_to_try_is_not_tried_unasked() -> None:
    long = gf.SparseUpdate(2**20 + 1, gathered(3000), np.ones(3000))
    many = gf.SparseUpdate(100_000, gathered(2**14 + 1), np.ones(2**14 + 1))
    assert {POSITIONS[read_head(gf.encode(update)).positions] for update in (long, many)} == {"rice"}
    assert gf.decode(gf.encode(many, "interpolative")) == many


def where_neighbours_tie(b: int) -> float:
    """The kept fraction at which the parameters b and b + 1 cost the same: the worst one near it.

    Scattered positions have geometric gaps, P(gap ≥ g) = q^g with q = 1 − kept, and cost b + 1 + x/(1 − x) bits
    each, x = q^(2^b). So b and b + 1 tie where x/(1 − x) = 1 + x²/(1 − x²), that is x + x² = 1.
    """
    return 1 - ((math.sqrt(5) - 1) / 2) ** 2.0**-b


TIES = [where_neighbours_tie(b) for b in range(1, 13)]


@pytest.mark.parametrize("kept", [1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.3, *TIES], ids=lambda kept: f"{kept:.2g}")
def test_scattered_positions_cost_at_most_5_percent_more_than_their_entropy(kept: float) -> None:
    count = 20_000
    indices = np.cumsum(np.random.default_rng(3).geometric(kept, count)) - 1
    dim = int(indices[-1]) + 1
    p = count / dim
    entropy_bytes = dim * -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) / 8
    values = np.random.default_rng(4).standard_normal(count)
    positions = len(gf.encode(gf.SparseUpdate(dim, indices, values))) - header_bytes(dim, count) - 4 * count
    assert positions <= 1.05 * entropy_bytes
