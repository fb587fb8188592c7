"""The bounds say what the paper's formulas say, checked where they can be worked out by hand."""

import math

import pytest

from gammafl.core.stepsizes import Constant
from gammafl.core.theory import (
    Constants,
    convex_bound,
    convex_offset,
    convex_stepsize,
    descent_factor,
    non_convex_bound,
    stepsize_allowed,
)
from gammafl.experiments.intervals import slope

QUIET = Constants(1.0, 1.0, 0.0, 0.0, 0.0, [1.0], 1, 1)
BUSY = Constants(2.0, 0.5, 1.5, 3.0, 0.7, [0.1] * 10, 5, 5)


def test_without_noise_drift_and_compression_only_the_start_is_left() -> None:
    """κ = 1, b = 11: κ/(T+b) · μ(1+b)/2 · Δ_1 = 6Δ_1/(T+11)."""
    assert convex_bound(QUIET, 10, 0.0, 89, distance=2.0) == pytest.approx(6 * 2.0 / 100)


def test_the_compression_term_is_the_theorems() -> None:
    """κ = μ = 1, b = 11, γ_0 = 3/11, γ_T = 3/100: 1/100 · 9 · (1/2 + 2·√(100/11)·11/3) · 4dλ_0²."""
    without, with_it = (convex_bound(QUIET, 10, initial, 89, distance=0.0) for initial in (0.0, 0.2))
    expected = 9 / 100 * (0.5 + 2 * math.sqrt(100 / 11) * 11 / 3) * 4 * 10 * 0.04
    assert without == 0
    assert with_it == pytest.approx(expected)


def test_b_has_all_four_terms() -> None:
    """E = 5, S = 5, n = 10: B = σ²/10 + 6LΓ + 8·16·G² + 4/5·25·G²."""
    b = 1.5**2 / 10 + 6 * 2.0 * 0.7 + 8 * 16 * 9.0 + 4 / 5 * 25 * 9.0
    offset, first = 12 * 4 - 1, 3 / (0.5 * (12 * 4 - 1))
    expected = 4 / (1000 + offset) * 9 / 0.5 * (1 + first * 0.5 / 2) * b
    assert convex_bound(BUSY, 10, 0.0, 1000, distance=0.0) == pytest.approx(expected)


def test_the_first_counted_step_is_as_large_as_the_lemma_allows() -> None:
    assert convex_stepsize(2.0, 0.5, 5)(1) == pytest.approx(1 / (4 * 2.0))
    assert convex_offset(1.0, 1.0, local_steps=50) == 49


@pytest.mark.parametrize(("initial", "rate"), [(0.0, -1.0), (0.1, -0.5)])
def test_with_a_fixed_threshold_the_bound_falls_like_one_over_the_root_of_t(initial: float, rate: float) -> None:
    lengths = (10**10, 10**12)
    bounds = [convex_bound(BUSY, 100, initial, t, distance=1.0) for t in lengths]
    assert slope(lengths, bounds) == pytest.approx(rate, abs=0.01)


def test_the_bound_on_gradients_of_a_quiet_problem_is_the_descent_alone() -> None:
    """σ = Γ_n = λ_0 = 0: (f_0 − f*)/(c·γ·R·E)."""
    stepsize, rounds = 0.01, 50
    expected = 3.0 / (descent_factor(QUIET, stepsize) * stepsize * rounds)
    assert non_convex_bound(QUIET, 10, 0.0, Constant(stepsize), rounds, start=3.0) == pytest.approx(expected)


def test_compression_adds_its_term_to_the_bound_on_gradients() -> None:
    """With constant γ: 2Ldλ_0²/γ · Rγ³ / (cγRE) = 2Ldλ_0²γ/(cE)."""
    stepsize = 0.01
    bounds = [non_convex_bound(QUIET, 10, initial, Constant(stepsize), 50, start=0.0) for initial in (0.0, 0.5)]
    expected = 2 * 10 * 0.25 * stepsize / descent_factor(QUIET, stepsize)
    assert bounds == pytest.approx([0.0, expected])


def test_where_the_stepsize_is_too_large_the_theorem_is_silent() -> None:
    limit = 1 / (8 * BUSY.smoothness * BUSY.local_steps)
    assert stepsize_allowed(BUSY, limit / 4)
    assert not stepsize_allowed(BUSY, 1.01 * limit)
    assert non_convex_bound(BUSY, 10, 0.0, Constant(1.01 * limit), 50, start=1.0) == math.inf
