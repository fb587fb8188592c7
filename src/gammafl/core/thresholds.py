"""Thresholds λ_t and their calibration.

    HT        λ_t = λ
    γ-FedHT   λ_t = λ_0 · √(γ_t^α (γ_0γ_T)^{α/2} / (γ_t^{2α} + (γ_0γ_T)^α))      Algorithm 1, line 11

With g = √(γ_0γ_T), the geometric mean of the first and the last stepsize, and r = γ_t / g, the second is
λ_0 / √(r^α + r^{−α}): it starts and ends at the same value and peaks at λ_0/√2 where γ_t = g.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from gammafl.core.errors import InputError, require
from gammafl.core.inputs import is_number
from gammafl.core.stepsizes import Stepsize, as_stepsize

Units = Literal["update", "gradient"]


def stepsize_aware(initial: float, gamma: float, first_gamma: float, last_gamma: float, alpha: float = 1.0) -> float:
    """λ_t of γ-FedHT. `initial` is λ_0, `gamma` is γ_t, `first_gamma` is γ_0 and `last_gamma` is γ_T.

    >>> stepsize_aware(1.0, gamma=0.1, first_gamma=0.1, last_gamma=0.1)
    0.7071067811865475
    """
    return initial / math.sqrt(spread_at(gamma, first_gamma, last_gamma, alpha))


def spread_at(gamma: float, first_gamma: float, last_gamma: float, alpha: float = 1.0) -> float:
    """r^α + r^{−α}: 1/λ_t² of γ-FedHT is proportional to it. It is 2 if γ is constant."""
    return float(_spread(gamma / _geometric_mean(first_gamma, last_gamma), alpha))


def mean_spread(stepsize: Stepsize, iterations: int, alpha: float = 1.0) -> float:
    """The mean of `spread_at` over the iterations 0…T, at a million points at most."""
    t = np.linspace(0, iterations, min(iterations, 1_000_000) + 1)
    ratios = stepsize(t) / _geometric_mean(float(stepsize(0)), float(stepsize(iterations)))
    with np.errstate(over="raise", divide="raise"):
        return float(np.mean(_spread(ratios, alpha)))


def threshold_for(kept_fraction: float, dim: int) -> float:
    """λ = 1 / (2√(dk)): the fixed threshold that the paper compares with Top-k.

    kept_fraction   k, as a fraction of the entries
    dim             d, the number of elements

    Returns λ.

    >>> threshold_for(0.01, dim=10_000)
    0.05
    """
    require_kept_fraction(kept_fraction)
    require(is_number(dim) and dim >= 1, f"dim must be at least 1, got {dim!r}")
    return 1 / (2 * math.sqrt(dim * kept_fraction))


def matched_threshold(threshold: float, stepsize: Stepsize | float, iterations: int, alpha: float = 1.0) -> float:
    """λ_0 such that ∫1/λ² dt = ∫1/λ_t² dt over t = 0…T: then γ-FedHT has the budget of HT with `threshold`.

    threshold    λ of HT
    stepsize     γ_t: a number or a function of t
    iterations   T
    alpha        α of γ-FedHT

    Returns λ_0.

    As 1/λ_t² = (r^α + r^{−α})/λ_0², this is λ_0² = λ²·mean(r^α + r^{−α}). The mean is over 0…T: this gives the digits
    in the paper's Table II.

    >>> round(matched_threshold(0.05, stepsize=0.1, iterations=1000), 4)
    0.0707
    """
    require_threshold(threshold)
    stepsize = as_stepsize(stepsize)
    require_alpha(alpha)
    whole = isinstance(iterations, int) and iterations >= 1
    require(whole, f"iterations must be a whole number of at least 1, got {iterations}")
    return threshold * math.sqrt(mean_spread(stepsize, iterations, alpha))


class Calibration(NamedTuple):
    """λ of HT, and the λ_0 of γ-FedHT with the same budget."""

    threshold: float
    initial_threshold: float


def calibrate(
    kept_fraction: float,
    dim: int,
    stepsize: Stepsize | float,
    iterations: int,
    alpha: float = 1.0,
    digits: int | None = 3,
) -> Calibration:
    """A model's row of Table II: `threshold_for`, then `matched_threshold`.

    The paper rounds λ to three digits before it computes λ_0. With `digits=None`, λ is not rounded.
    """
    threshold = rounded(threshold_for(kept_fraction, dim), digits)
    return Calibration(threshold, matched_threshold(threshold, stepsize, iterations, alpha))


def rounded(threshold: float, digits: int | None = 3) -> float:
    """λ as the paper prints it."""
    return threshold if digits is None else float(f"{threshold:.{digits - 1}e}")


def _geometric_mean(first_gamma: float, last_gamma: float) -> float:
    """√(γ_0γ_T)."""
    mean = math.sqrt(first_gamma) * math.sqrt(last_gamma)
    if not mean > 0:
        raise InputError(f"the stepsize falls to {last_gamma} by the last iteration; let it decay more slowly")
    return mean


def _spread(ratio: Any, alpha: float) -> Any:
    """r^α + r^{−α}, for a number or an array."""
    try:
        return ratio**alpha + ratio**-alpha
    except ArithmeticError:
        raise InputError(f"the stepsize changes too much for alpha = {alpha}; use a smaller one") from None


def require_threshold(value: float) -> None:
    """Raises an error if `value` is not a threshold."""
    valid = is_number(value) and math.isfinite(value) and value >= 0
    require(valid, f"a threshold must be a number of at least 0, got {value!r}")


def require_kept_fraction(keep: float) -> None:
    """Raises an error if `keep` is not a fraction of the entries."""
    valid = is_number(keep) and 0 < keep <= 1
    require(valid, f"keep, the kept fraction, must be a number in (0, 1], got {keep!r}")


def require_alpha(alpha: float) -> None:
    """Raises an error if `alpha` is not a valid α."""
    valid = is_number(alpha) and math.isfinite(alpha) and alpha > 0
    require(valid, f"alpha must be a positive number, got {alpha!r}")
