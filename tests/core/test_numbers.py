"""Numbers at the edge of float32, through compressing, remembering and the wire: not a bit is different at the end."""

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.wire import PositionCoding
from tests.conftest import vectors
from tests.core.test_compressors import COMPRESSORS, HOSTILE, MOMENT, at, every_compressor, every_vector, remembering

MAX = np.float32(np.finfo(np.float32).max)
SMALLEST = np.float32(2.0**-149)
NORMAL = np.float32(np.finfo(np.float32).tiny)
EDGES = np.array([SMALLEST, -SMALLEST, NORMAL - SMALLEST, NORMAL, -0.0, 0.0, MAX, -MAX, 1.0], np.float32)
CODINGS: tuple[PositionCoding, ...] = ("auto", "rice", "bitmap", "raw", "interpolative")
ODD = (1, 2, 7, 31, 33, 63, 65, 127, 129, 1023, 1025, 4097, 65_537)
"""No multiple of any block that the loops work in."""


def bits(vector: Vector) -> bytes:
    """Equality of floats takes −0.0 for 0.0."""
    return vector.tobytes()


@every_compressor
@every_vector
def test_every_wire_format_gives_exactly_the_same_update(name: str, vector: Vector) -> None:
    update = COMPRESSORS[name](vector, MOMENT)
    for positions in CODINGS:
        assert gf.decode(gf.encode(update, positions)) == update
        assert gf.decode(gf.encode(update, positions, "f32")) == update


def test_the_edges_of_float32_arrive_bit_for_bit() -> None:
    for positions in CODINGS:
        arrived = gf.decode(gf.encode(gf.SparseUpdate(1000, np.arange(9) * 111, EDGES), positions))
        assert bits(arrived.values) == bits(EDGES)


def test_dense_sends_minus_zero_and_denormals_as_they_are() -> None:
    assert bits(gf.Dense()(EDGES).values) == bits(EDGES)


@pytest.mark.parametrize("magnitude", [SMALLEST, NORMAL, np.float32(0.1), MAX], ids=str)
def test_magnitudes_at_the_threshold_stay_and_the_next_float_above_goes(magnitude: np.float32) -> None:
    """All equal: the threshold is to be exceeded, so a round sends nothing of them or all."""
    signs = np.where(np.arange(129) % 2, 1, -1).astype(np.float32)
    memory = remembering(gf.HardThreshold(float(magnitude)), 129)
    assert len(memory.propose(magnitude * signs, at(1))) == 0
    assert bits(memory.residual) == bits(magnitude * signs)
    below = float(np.nextafter(magnitude, np.float32(0)))
    assert len(gf.HardThreshold(below)(magnitude * signs)) == 129


def test_denormals_are_remembered_until_they_matter() -> None:
    memory = remembering(gf.HardThreshold(float(10 * SMALLEST)), 65)
    for _ in range(10):
        assert len(memory.propose(np.full(65, SMALLEST), at(1))) == 0
    sent = memory.propose(np.full(65, SMALLEST), at(1))
    assert bits(sent.values) == bits(np.full(65, 11 * SMALLEST, np.float32))
    assert not memory.residual.any()


@pytest.mark.parametrize("dim", ODD)
@every_compressor
def test_lengths_that_fit_no_block_lose_nothing(name: str, dim: int) -> None:
    (vector,) = vectors(1, dim, seed=dim)
    memory = remembering(COMPRESSORS[name], dim)
    sent = gf.decode(gf.encode(memory.propose(vector, at(5)))).dense()
    np.testing.assert_array_equal(vector - sent, memory.residual)


def test_the_hostile_vectors_have_what_this_battery_is_about() -> None:
    assert {"denormals", "minus zeros", "largest floats", "equal magnitudes"} <= HOSTILE.keys()
