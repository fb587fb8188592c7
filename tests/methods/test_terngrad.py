"""TernGrad: s·sign(v)·Bernoulli(|v|/s), drawn by the moment's key and the place of an entry."""

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.moment import key_of
from gammafl.methods.terngrad import TernGrad
from tests.conftest import vectors
from tests.methods.proofs import recorded, reference

WORD = 2**64 - 1


def uniform(key: int, place: int) -> float:
    """splitmix64 of key and place, as a number in [0, 1)."""
    word = (key + (place + 1) * 0x9E3779B97F4A7C15) & WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return ((word ^ word >> 31) >> 11) / 2**53


def papers_gradient(vector: Vector, key: int, clip: float, first: int = 0) -> Vector:
    """Equations 1 to 3 and 9 of the paper, with `uniform` as its random numbers."""
    v = vector.astype(np.float64)
    if clip:
        v = np.clip(v, -clip * v.std(), clip * v.std())
    s = np.abs(v).max(initial=0)
    b = [uniform(key, first + j) * s < abs(x) for j, x in enumerate(v)]
    return s * np.sign(v) * np.array(b, float)


@reference("terngrad")
@pytest.mark.parametrize("clip", [0.0, 2.5, 0.5])
@pytest.mark.parametrize("key", [0, 1, 2**64 - 1, key_of(3, 4)])
def test_it_is_the_papers_equation(key: int, clip: float) -> None:
    (vector,) = vectors(1, 1000)
    sent = gf.terngrad(clip=clip)(vector, gf.Moment(key=key)).dense()
    np.testing.assert_allclose(sent, papers_gradient(vector, key, clip), rtol=1e-6)


@reference("terngrad")
def test_magnitude_and_mean_are_those_of_grace() -> None:
    """Which draws other random numbers; its mean over many draws is known within some standard errors."""
    for case in recorded("terngrad")["cases"]:
        vector = np.array(case["vector"], np.float32)
        compressor = TernGrad(clip=2.5)
        assert compressor.magnitude(vector) == pytest.approx(case["magnitude"], rel=1e-6)
        if "mean" in case:
            draws = np.mean([compressor(vector, gf.Moment(key=key_of(i))).dense() for i in range(4000)], axis=0)
            error = case["magnitude"] / 2 * np.sqrt(1 / 4000 + 1 / case["draws"])
            np.testing.assert_allclose(draws, case["mean"], atol=5 * error)


def test_tensors_have_magnitudes_of_their_own_and_an_entry_is_drawn_by_its_place_in_the_whole() -> None:
    first, second = vectors(2, 50)
    vector, layout = np.concatenate([first, 100 * second]), gf.Layout.of({"first": (50,), "second": (5, 10)})
    sent = gf.terngrad(scope="tensor")(vector, gf.Moment(key=9, layout=layout)).dense()
    expected = [papers_gradient(first, 9, 0), papers_gradient(100 * second, 9, 0, first=50)]
    np.testing.assert_allclose(sent, np.concatenate(expected), rtol=1e-6)


def test_what_was_not_drawn_is_not_remembered() -> None:
    method, (vector, other) = gf.terngrad(), vectors(2, 100)
    memory = method.memory.client(method, 100)
    memory.propose(vector, gf.Moment(key=1))
    assert not memory.state()
    assert memory.propose(other, gf.Moment(key=2)) == method(other, gf.Moment(key=2))


def test_clipping_makes_the_magnitude_smaller_and_more_entries_are_sent() -> None:
    vector = np.random.default_rng(0).standard_t(2, 5000).astype(np.float32)
    plain, clipped = (gf.terngrad(clip=clip)(vector) for clip in (0.0, 2.5))
    assert np.abs(clipped.values).max() < np.abs(plain.values).max()
    assert len(clipped) > len(plain)


@pytest.mark.parametrize("size", [1, 1000])
def test_where_all_entries_are_equal_nothing_is_cut_off(size: int) -> None:
    """Else a tensor of one entry would never be sent: its standard deviation is zero."""
    vector = np.full(size, -0.3, np.float32)
    np.testing.assert_array_equal(gf.terngrad(clip=2.5)(vector).dense(), vector)


@pytest.mark.parametrize("clip", [-1.0, float("nan"), float("inf"), True])
def test_a_clip_that_is_no_number_of_deviations_is_refused(clip: float) -> None:
    with pytest.raises(gf.InputError, match="clip is a number of standard deviations"):
        gf.terngrad(clip=clip)
