"""Thresholds: the shape of λ_t, and the paper's Table II from its own settings."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.thresholds import calibrate

INVERSE = gf.InverseDecay(100, 1000)
EXPONENTIAL = gf.ExponentialDecay(0.1, 0.999, 5)

# Table II of the paper: (d, k, T) → λ, λ_0 with inverse γ, λ_0 with exponential γ.
TABLE_2 = {
    "VGG11s": (865_482, 0.001, 40_000, "1.70e-02", "3.35e-02", "6.28e-02"),
    "Logistic": (10_250, 0.01, 20_000, "4.94e-02", "8.70e-02", "9.41e-02"),
    "CNN": (235_690, 0.001, 40_000, "3.26e-02", "6.42e-02", "1.21e-01"),
}


@pytest.mark.parametrize("row", TABLE_2)
def test_calibration_gives_table_2_to_the_printed_digits(row: str) -> None:
    dim, keep, iterations, fixed, inverse, exponential = TABLE_2[row]
    by_inverse = calibrate(keep, dim, INVERSE, iterations)
    by_exponential = calibrate(keep, dim, EXPONENTIAL, iterations)
    assert f"{by_inverse.threshold:.2e}" == fixed
    assert f"{by_inverse.initial_threshold:.2e}" == inverse
    assert f"{by_exponential.initial_threshold:.2e}" == exponential


def test_table_2s_gpt2_row_follows_from_other_lengths_than_the_papers_1000_iterations() -> None:
    """docs/deviations.md: λ holds, λ_0 does not; T = 10,000 gives the inverse column."""
    at = {t: calibrate(0.001, 124_000_000, INVERSE, t) for t in (1_000, 10_000)}
    assert f"{at[1_000].threshold:.2e}" == "1.42e-03"
    assert f"{at[1_000].initial_threshold:.2e}" == "2.03e-03"  # the paper prints 2.29e-03
    assert f"{at[10_000].initial_threshold:.2e}" == "2.29e-03"
    long = calibrate(0.001, 124_000_000, EXPONENTIAL, 5 * 10_755)
    assert f"{long.initial_threshold:.2e}" == "9.02e-03"


def thresholds(compressor: gf.GammaFedHT, schedule: gf.Schedule, iterations: Iterable[float]) -> np.ndarray:
    return np.array([compressor.threshold(schedule.moment(int(t))) for t in iterations])


@given(st.floats(0.5, 3), st.sampled_from([INVERSE, EXPONENTIAL]), st.integers(100, 50_000))
def test_the_threshold_rises_then_falls_and_ends_where_it_began(
    alpha: float, stepsize: gf.InverseDecay, length: int
) -> None:
    values = thresholds(gf.GammaFedHT(1.0, alpha), gf.Schedule(stepsize, length), np.linspace(0, length, 200))
    peak = values.argmax()
    assert (np.diff(values[: peak + 1]) >= 0).all()
    assert (np.diff(values[peak:]) <= 0).all()
    assert values[0] == pytest.approx(values[-1], rel=1e-9)
    assert values.max() <= math.sqrt(0.5) + 1e-12


def test_the_formula_is_the_papers_line_11() -> None:
    initial, alpha, T, t = 0.3, 1.7, 5_000, 1_234  # noqa: N806
    g, g0, gT = INVERSE(t), INVERSE(0), INVERSE(T)  # noqa: N806
    expected = initial * math.sqrt(g**alpha * (g0 * gT) ** (alpha / 2) / (g ** (2 * alpha) + (g0 * gT) ** alpha))
    moment = gf.Schedule(INVERSE, T).moment(t)
    assert gf.GammaFedHT(initial, alpha).threshold(moment) == pytest.approx(expected, rel=1e-12)
    in_gradient_units = gf.GammaFedHT(initial, alpha, units="gradient").threshold(moment)
    assert in_gradient_units == pytest.approx(expected * g, rel=1e-12)


def test_with_a_constant_stepsize_the_matched_threshold_gives_back_the_fixed_one() -> None:
    initial = gf.matched_threshold(0.05, gf.Constant(0.1), iterations=1000)
    assert gf.GammaFedHT(initial).threshold(gf.Schedule(0.1, 1000).moment(500)) == pytest.approx(0.05)


@given(st.floats(0.5, 3), st.integers(2, 5000))
def test_matching_makes_the_mean_of_inverse_squares_equal(alpha: float, T: int) -> None:  # noqa: N803
    compressor = gf.GammaFedHT(gf.matched_threshold(0.05, INVERSE, T, alpha), alpha)
    budget = np.mean(1 / thresholds(compressor, gf.Schedule(INVERSE, T), range(T + 1)) ** 2)
    assert budget == pytest.approx(1 / 0.05**2, rel=1e-9)


def test_gradient_units_make_plain_ht_follow_the_stepsize_too() -> None:
    compressor = gf.HardThreshold(0.5, units="gradient")
    assert compressor.threshold(gf.Schedule(INVERSE, 1000).moment(700)) == pytest.approx(0.5 * INVERSE(700))


@pytest.mark.parametrize("method", [gf.gamma_fedht(level="paper"), gf.gamma_fedht(level="paper", alpha=2)], ids=str)
def test_the_papers_level_gives_a_shaped_threshold_the_budget_of_the_fixed_one(method: gf.Method) -> None:
    schedule, fixed = gf.Schedule(INVERSE, 2000), gf.hard_threshold(level="paper")
    scale = method.scale(10_250, schedule)
    assert isinstance(method.compressor, gf.GammaFedHT)
    values = [method.compressor.threshold(schedule.moment(t, scale)) for t in range(2001)]
    assert fixed.scale(10_250, schedule) == 0.0494
    assert np.mean(np.power(values, -2.0)) == pytest.approx(1 / 0.0494**2, rel=1e-9)


@pytest.mark.parametrize(("stepsize", "alpha"), [(gf.ExponentialDecay(0.1, 0.5, 1), 1.0), (INVERSE, 5000.0)])
def test_a_stepsize_that_leaves_the_range_of_numbers_is_refused(stepsize: gf.InverseDecay, alpha: float) -> None:
    with pytest.raises(gf.InputError, match="the stepsize"):
        gf.matched_threshold(0.05, stepsize, 10_000, alpha)


@pytest.mark.parametrize("bad", [-1e-9, float("nan"), float("inf")])
def test_a_threshold_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(gf.InputError, match="threshold"):
        gf.HardThreshold(bad)
    with pytest.raises(gf.InputError, match="threshold"):
        gf.GammaFedHT(bad)


@pytest.mark.parametrize(("keep", "dim"), [(0, 10), (1.5, 10), (0.1, 0)])
def test_threshold_for_refuses_a_fraction_or_dimension_out_of_range(keep: float, dim: int) -> None:
    with pytest.raises(gf.InputError):
        gf.threshold_for(keep, dim)
