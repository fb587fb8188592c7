"""The six methods of the paper's tables, each against its equation in plain numpy."""

import math

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.arrays import Vector
from tests.conftest import vectors
from tests.methods.proofs import reference

SCHEDULE = gf.Schedule(gf.InverseDecay(100, 1000), iterations=1000)
TIMES = (0, 5, 90, 500, 1000)


def papers_threshold(initial: float, t: int, alpha: float = 1.0) -> float:
    """Algorithm 1, line 11, as it is printed."""
    gamma, first, last = (100 / (t + 1000), 100 / 1000, 100 / 2000)
    mean = first * last
    return initial * math.sqrt(gamma**alpha * mean ** (alpha / 2) / (gamma ** (2 * alpha) + mean**alpha))


def above(vector: Vector, threshold: float) -> Vector:
    return np.where(np.abs(vector) > threshold, vector, 0)


def ternary(kept: Vector) -> Vector:
    """±μ, μ the mean magnitude of what is not zero: STC's Algorithm 1."""
    return np.abs(kept[kept != 0]).mean() * np.sign(kept) if kept.any() else kept


def largest(vector: Vector, k: int) -> Vector:
    order = np.argsort(-np.abs(vector), kind="stable")[:k]
    return np.where(np.isin(np.arange(vector.size), order), vector, 0)


@reference("ht")
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.5])
def test_ht_keeps_what_exceeds_its_threshold(threshold: float) -> None:
    (vector,) = vectors(1, 5000)
    np.testing.assert_array_equal(gf.hard_threshold(threshold=threshold)(vector).dense(), above(vector, threshold))


@reference("gamma-fedht")
@pytest.mark.parametrize("alpha", [1.0, 2.0])
@pytest.mark.parametrize("t", TIMES)
def test_gamma_fedht_keeps_what_exceeds_the_threshold_of_line_11(t: int, alpha: float) -> None:
    (vector,) = vectors(1, 5000)
    sent = gf.gamma_fedht(initial_threshold=1.5, alpha=alpha)(vector, SCHEDULE.moment(t)).dense()
    np.testing.assert_array_equal(sent, above(vector, papers_threshold(1.5, t, alpha)))


@reference("gamma-fedht-q")
@pytest.mark.parametrize("t", TIMES)
def test_gamma_fedht_q_rounds_that_as_stc_does(t: int) -> None:
    (vector,) = vectors(1, 5000)
    sent = gf.gamma_fedht_q(initial_threshold=1.5)(vector, SCHEDULE.moment(t)).dense()
    np.testing.assert_allclose(sent, ternary(above(vector, papers_threshold(1.5, t))), rtol=1e-6)


@reference("top-k")
@pytest.mark.parametrize("k", [1, 50, 4999])
def test_top_k_keeps_the_k_largest(k: int) -> None:
    (vector,) = vectors(1, 5000)
    np.testing.assert_array_equal(gf.top_k(k=k)(vector).dense(), largest(vector, k))


@reference("stc")
@pytest.mark.parametrize("k", [1, 50, 4999])
def test_stc_rounds_the_k_largest_to_their_mean_magnitude(k: int) -> None:
    (vector,) = vectors(1, 5000)
    np.testing.assert_allclose(gf.stc(k=k)(vector).dense(), ternary(largest(vector, k)), rtol=1e-6)


@reference("fedavg")
def test_fedavg_sends_everything() -> None:
    (vector,) = vectors(1, 5000)
    assert gf.fedavg()(vector).dense().tobytes() == vector.tobytes()
    np.testing.assert_array_equal(gf.fedavg(values="f16")(vector).dense(), vector.astype(np.float16))
