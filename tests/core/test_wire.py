"""The wire format: what is sent arrives, nothing else is accepted, and the sizes are what docs/wire-format.md says."""

import math
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.wire import HEADER, POSITIONS, VALUES, PositionCoding, ValueCoding


@st.composite
def updates(draw: st.DrawFn) -> gf.SparseUpdate:
    """Sparse, dense, empty; full precision, halves, ternary; any finite value."""
    dim = draw(st.one_of(st.integers(0, 200), st.sampled_from([2**20, 2**31 + 5, 2**32 - 1])))
    chosen = draw(st.sets(st.integers(0, max(0, dim - 1)), max_size=min(dim, 60)))
    if dim <= 60 and draw(st.booleans()):
        chosen = set(range(dim))
    indices = np.array(sorted(chosen), np.uint32)
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    halves = st.floats(width=16, allow_nan=False, allow_infinity=False)
    few = st.sampled_from([0.25, -0.25])
    values = draw(
        st.sampled_from([finite, halves, few]).flatmap(
            lambda s: st.lists(s, min_size=len(chosen), max_size=len(chosen))
        )
    )
    return gf.SparseUpdate(dim, indices, np.array(values, np.float32))


@given(updates())
def test_what_is_encoded_is_decoded_bit_for_bit(update: gf.SparseUpdate) -> None:
    payload = gf.encode(update)
    assert gf.decode(payload) == update
    assert gf.encode(gf.decode(payload)) == payload


@given(updates(), st.sampled_from(["rice", "bitmap", "raw"]))
def test_every_position_coding_carries_every_update(update: gf.SparseUpdate, coding: PositionCoding) -> None:
    if coding == "bitmap" and update.dim > 2**20:
        return  # half a gigabyte of bitmap
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


def forge(positions: PositionCoding, values: ValueCoding, dim: int, count: int, body: bytes, version: int = 1) -> bytes:
    """A message with a right checksum, whatever else it says."""
    kinds = POSITIONS.index(positions) | VALUES.index(values) << 4
    head = HEADER.pack(b"gF", version, kinds, dim, count, 0)[:12]
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


@given(
    st.sampled_from(POSITIONS), st.sampled_from(VALUES), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1),
    st.binary(max_size=60),
)  # fmt: skip
def test_a_forged_message_gives_its_one_update_or_a_wire_error(
    positions: PositionCoding, values: ValueCoding, dim: int, count: int, body: bytes
) -> None:
    payload = forge(positions, values, dim, count, body)
    try:
        update = gf.decode(payload)
    except gf.WireError:
        return
    assert update.dim == dim
    assert len(update) == count
    assert gf.encode(update, positions, values) == payload


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
    "an infinite magnitude": forge("raw", "ternary", 9, 1, struct.pack("<IHfB", 4, 1, math.inf, 0)),
    "no magnitude": forge("raw", "ternary", 9, 1, struct.pack("<IHB", 4, 0, 0)),
    "a negative magnitude": forge("raw", "ternary", 9, 1, struct.pack("<IHfB", 4, 1, -1.0, 0)),
    "set padding bits": forge("raw", "ternary", 9, 1, struct.pack("<IHfB", 4, 1, 1.0, 2)),
    "two runs of one magnitude": forge("raw", "ternary", 9, 2, struct.pack("<IIHffIB", 1, 2, 2, 1.0, 1.0, 1, 0)),
    "a Rice parameter of 200": forge("rice", "f32", 9, 1, bytes([200]) + bytes(30)),
    "a Rice parameter that is not the best": forge("rice", "f32", 9, 1, bytes([5, 0]) + ONE),
    "a unary code without end": forge("rice", "f32", 2**32 - 1, 1, bytes([0]) + b"\xff" * 40),
    "a unary code past the dimension": forge("rice", "f32", 9, 1, bytes([0]) + b"\xff\xff\x00" + ONE),
    "a Rice code that ends in the values": forge("rice", "f32", 2**32 - 1, 1, bytes([31, 0]) + ONE),
    "set bits after the last Rice code": forge("rice", "f32", 9, 1, bytes([0, 2]) + ONE),
    "runs out of order": forge("raw", "ternary", 9, 2, struct.pack("<IIHffIB", 1, 2, 2, 1.0, 2.0, 0, 0)),
    "a run from far away": forge("raw", "ternary", 9, 2, struct.pack("<IIHffIB", 1, 2, 2, 1.0, 2.0, 2**32 - 1, 0)),
    "a newer version": forge("raw", "f32", 9, 1, struct.pack("<If", 4, 1.0), version=2),
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
    "bitmap, ternary": gf.SparseUpdate(200_001, np.arange(200_000), np.ones(200_000)),
    "all, f16": gf.SparseUpdate(200_000, None, np.arange(200_000) % 1000),
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
    full = gf.SparseUpdate(1000, None, np.linspace(0.1, 1, 1000))
    assert len(gf.encode(full)) == HEADER.size + 4000  # no positions
    assert len(gf.encode(gf.SparseUpdate(0, [], []))) == HEADER.size
    assert len(gf.encode(gf.SparseUpdate(2**31, [], []))) == HEADER.size
    signs = np.where(np.arange(1000) % 3, 0.5, -0.5)
    assert len(gf.encode(gf.SparseUpdate(1000, None, signs))) == HEADER.size + 2 + 4 + 125


VERSION_1: dict[str, tuple[gf.SparseUpdate, PositionCoding, ValueCoding]] = {
    "67460101 e8030000 04000000 8f692c79 07 0684003f1e cdcccc3dcdcc4cbe9a99993e5f708930": (
        gf.SparseUpdate(1000, [3, 70, 71, 900], [0.1, -0.2, 0.3, 1e-9]), "rice", "f32",
    ),
    "67460122 14000000 04000000 2851cbcd 880108 0200 0000003f00000040 03000000 02": (
        gf.SparseUpdate(20, [3, 7, 8, 19], [0.5, -0.5, 0.5, 2]), "bitmap", "ternary",
    ),
    "67460113 ffffffff 02000000 b75afe3a 05000000feffffff 003800be": (
        gf.SparseUpdate(2**32 - 1, [5, 2**32 - 2], [0.5, -1.5]), "raw", "f16",
    ),
    "67460120 03000000 03000000 9ff3dfa6 0100 0000803f 02": (
        gf.SparseUpdate(3, None, [1, -1, 1]), "all", "ternary",
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", VERSION_1)
def test_the_bytes_of_version_1_stay_as_they_are(message: str) -> None:
    update, positions, values = VERSION_1[message]
    assert gf.encode(update, positions, values) == bytes.fromhex(message)
    assert gf.decode(bytes.fromhex(message)) == update


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
    positions = gf.encode(update, "rice", "f32")[HEADER.size : -4 * len(gaps)]
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
    positions = message[HEADER.size : -4 * gaps.size]
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
    body = bytearray(gf.encode(gf.SparseUpdate(2**31, indices, np.arange(count) * 1.1), "rice", "f32")[HEADER.size :])
    at = int(where * (len(body) - 4 * count))
    body[at : at + len(forged)] = forged
    payload = forge("rice", "f32", dim, count, bytes(body))
    try:
        update = gf.decode(payload)
    except gf.WireError:
        return
    assert update.indices[-1] < dim
    assert gf.encode(update, "rice", "f32") == payload


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
    positions = len(gf.encode(gf.SparseUpdate(dim, indices, values))) - HEADER.size - 4 * count
    assert positions <= 1.05 * entropy_bytes
