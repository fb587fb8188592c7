"""Sums over a vector: right, and the same to the last bit on any number of threads."""

import numpy as np
import pytest

from gammafl.core import sums, threads
from gammafl.core.arrays import Vector

VECTORS: dict[str, Vector] = {
    "normal": np.random.default_rng(0).standard_normal(10_007).astype(np.float32),
    "heavy tails": (np.random.default_rng(1).standard_cauchy(10_007) ** 3).astype(np.float32),
    "with zeros": np.where(np.arange(5000) % 3, np.float32(0.25), 0).astype(np.float32),
    "one": np.array([-2.5], np.float32),
    "empty": np.empty(0, np.float32),
}
every_vector = pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the vectors were long enough for several threads."""
    monkeypatch.setattr(sums, "PIECE", 64)
    monkeypatch.setattr(sums, "SLICE_AT_LEAST", 100)


@every_vector
@pytest.mark.usefixtures("short_pieces")
def test_sums_are_those_of_numpy_in_float64(vector: Vector) -> None:
    exact, magnitudes = vector.astype(np.float64), np.abs(vector.astype(np.float64))
    assert sums.mean_magnitude(vector) == pytest.approx(magnitudes.mean() if vector.size else 0)
    assert sums.standard_deviation(vector) == pytest.approx(exact.std() if vector.size else 0, rel=1e-9, abs=1e-12)
    there = magnitudes[magnitudes > 0]
    mean, count = sums.mean_logarithm(vector)
    assert count == there.size
    assert mean == pytest.approx(np.log(there).mean() if count else 0)
    for threshold in (0.0, 0.25, 1.5, 1e30):
        over = magnitudes[magnitudes > np.float32(threshold)] - np.float32(threshold)
        found = sums.excesses(vector, threshold)
        assert found[0] == over.size
        assert found[1:] == pytest.approx((over.mean(), over.var()) if over.size else (0, 0), rel=1e-9, abs=1e-12)


@every_vector
@pytest.mark.usefixtures("short_pieces")
def test_sums_do_not_depend_on_the_number_of_threads(vector: Vector, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for count in (1, 2, 3, 7):
        monkeypatch.setattr(threads, "_count", count)
        found.append(
            (
                sums.mean_magnitude(vector),
                sums.standard_deviation(vector),
                sums.mean_logarithm(vector),
                sums.excesses(vector, 0.3),
            )
        )
    assert all(one == found[0] for one in found)
