"""Intervals over seeds: as wide as Student says, and never from one number."""

import math

import numpy as np
import pytest

from gammafl.experiments.intervals import interval, slope, t_quantile


@pytest.mark.parametrize(
    ("degrees", "printed"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)]
)
def test_quantiles_are_those_of_the_tables(degrees: int, printed: float) -> None:
    assert t_quantile(0.95, degrees) == pytest.approx(printed, abs=5e-4)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_the_interval_covers_the_true_mean_as_often_as_it_says(count: int) -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, (4000, count))
    covered = [found.low <= 3.0 <= found.high for found in (interval(list(row)) for row in draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 4000))


def test_one_value_says_nothing_about_the_mean() -> None:
    found = interval([0.5])
    assert (found.mean, found.low, found.high) == (0.5, -math.inf, math.inf)


def test_a_run_that_diverged_decides_nothing() -> None:
    found = interval([0.5, math.nan, 0.4])
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_the_slope_of_a_power_is_its_exponent() -> None:
    x = [1.0, 10.0, 50.0]
    assert slope(x, [3 * value**-0.5 for value in x]) == pytest.approx(-0.5)
