"""Intervals over seeds: as wide as Student says, and never from one number."""

import math

import numpy as np
import pytest

from gammafl.experiments.intervals import holm, interval, p_value, slope


@pytest.mark.parametrize(
    ("degrees", "printed"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)]
)
def test_quantiles_are_those_of_the_tables(degrees: int, printed: float) -> None:
    values = [*[0.0] * degrees, 1.0]
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    found = interval(values)
    assert (found.high - found.mean) / error == pytest.approx(printed, abs=5e-4)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_the_interval_covers_the_true_mean_as_often_as_it_says(count: int) -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, (4000, count))
    covered = [found.low <= 3.0 <= found.high for found in (interval(list(row)) for row in draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 4000))


@pytest.mark.parametrize("limit", [-1.0, 0.3, 0.9, 2.0])
def test_a_test_rejects_what_the_interval_does_not_cover(limit: float) -> None:
    values = [0.1, 0.8, 1.1, 0.4]
    found = interval(values)
    assert (p_value(values, limit, "above") < 0.05) == (limit < found.low)
    assert (p_value(values, limit, "below") < 0.05) == (limit > found.high)


def test_a_test_of_one_value_or_of_a_run_that_diverged_says_nothing() -> None:
    for values in ([0.5], [0.5, math.nan], []):
        assert p_value(values, 0.0, "above") == p_value(values, 1.0, "below") == 1.0


def test_holm_lies_between_no_correction_and_bonferronis_and_keeps_the_order() -> None:
    p = np.random.default_rng(0).uniform(0, 0.2, 20).tolist()
    corrected = holm(p)
    assert all(a <= b <= min(1.0, len(p) * a) for a, b in zip(p, corrected, strict=True))
    assert min(corrected) == pytest.approx(len(p) * min(p))
    assert [b for _, b in sorted(zip(p, corrected, strict=True))] == sorted(corrected)


def test_one_value_says_nothing_about_the_mean() -> None:
    found = interval([0.5])
    assert (found.mean, found.low, found.high) == (0.5, -math.inf, math.inf)


def test_a_run_that_diverged_decides_nothing() -> None:
    found = interval([0.5, math.nan, 0.4])
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_the_slope_of_a_power_is_its_exponent() -> None:
    x = [1.0, 10.0, 50.0]
    assert slope(x, [3 * value**-0.5 for value in x]) == pytest.approx(-0.5)
