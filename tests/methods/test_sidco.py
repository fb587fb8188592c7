"""SIDCo: its paper's thresholds, what its authors' code keeps, and the kept fraction on what it claims to fit."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.methods.sidco import Fit, Sidco, stage_shares
from tests.methods.proofs import recorded, reference

Doubles = NDArray[np.float64]
TOLERANCE = 0.2
"""ε_H = ε_L of its paper, section 4."""

COUNT = 4000
QUANTILES = (np.arange(COUNT) + 0.5) / COUNT
SHAPES = {
    "laplace": -np.log(1 - QUANTILES),
    "pareto": ((1 - QUANTILES) ** -0.3 - 1) / 0.3,
    "gamma": stats.gamma(0.7).ppf(QUANTILES),
    "normal": np.abs(stats.norm.ppf((1 + QUANTILES) / 2)),
}


def quantiles_of(shape: str) -> Vector:
    """A vector whose magnitudes are the quantiles of a distribution, in a mixed order."""
    mixed = SHAPES[shape][np.arange(COUNT) * 1597 % COUNT]
    return (mixed * np.where(np.arange(COUNT) % 3, 1, -1)).astype(np.float32)


def exponential(x: Doubles, share: float) -> float:
    return float(x.mean()) * math.log(1 / share)


def pareto(x: Doubles, share: float) -> float:
    ratio = x.mean() ** 2 / x.var()
    alpha, beta = 0.5 * (1 - ratio), 0.5 * x.mean() * (ratio + 1)
    return float(beta / alpha * (math.exp(-alpha * math.log(share)) - 1))


def gamma(x: Doubles, share: float) -> float:
    s = math.log(x.mean()) - np.log(x).mean()
    alpha = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    return float(-x.mean() / alpha * (math.log(share) + math.lgamma(alpha)))


FIRST = {"exponential": exponential, "pareto": pareto, "gamma": gamma}
LATER = {"exponential": exponential, "pareto": pareto, "gamma": pareto}


def papers_threshold(vector: Vector, fit: str, shares: list[float]) -> float:
    """Section 2 of the paper: a fit to all magnitudes, then to what exceeds the last threshold, moved to zero."""
    x = np.abs(vector.astype(np.float64))
    threshold = FIRST[fit](x, shares[0])
    for share in shares[1:]:
        threshold += LATER[fit](x[x > threshold] - threshold, share)
    return threshold


@reference("sidco")
@pytest.mark.parametrize("stages", [0, 1, 2, 5])
@pytest.mark.parametrize("keep", [0.3, 0.05, 0.002])
@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
def test_the_threshold_is_that_of_the_paper(fit: Fit, keep: float, stages: int) -> None:
    vector = np.random.default_rng(2).laplace(size=100_003).astype(np.float32)
    expected = papers_threshold(vector, fit, stage_shares(keep, stages))
    assert Sidco(keep, fit, stages).threshold(vector, keep) == pytest.approx(expected, rel=1e-4)


@reference("sidco")
def test_as_many_are_kept_as_by_the_authors_code() -> None:
    """Within one entry or 1%: later stages of that code start from the least kept magnitude, the paper's from λ."""
    for case in recorded("sidco")["cases"]:
        method = gf.sidco(case["keep"], case["fit"], case["stages"])
        assert len(method(quantiles_of(case["shape"]))) == pytest.approx(case["kept"], rel=0.01, abs=1), case


@pytest.mark.parametrize("keep", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
def test_the_kept_fraction_is_within_the_papers_tolerance_where_magnitudes_are_as_fitted(fit: Fit, keep: float) -> None:
    """Double exponential magnitudes are of all three families."""
    vector = np.random.default_rng(3).laplace(size=300_000).astype(np.float32)
    assert len(gf.sidco(keep, fit)(vector)) == pytest.approx(keep * vector.size, rel=TOLERANCE)


@pytest.mark.parametrize("keep", [0.1, 0.01])
@pytest.mark.parametrize("shape", SHAPES)
def test_by_default_it_is_within_the_tolerance_for_tails_heavier_and_lighter_than_exponential(
    shape: str, keep: float
) -> None:
    assert len(gf.sidco(keep)(quantiles_of(shape))) == pytest.approx(keep * COUNT, rel=TOLERANCE)


def test_several_stages_are_closer_than_one_where_the_fit_is_wrong() -> None:
    """The reason for stages: normal magnitudes fitted by an exponential."""
    vector, wanted = quantiles_of("normal"), 0.01 * COUNT
    one, many = (len(gf.sidco(0.01, "exponential", stages)(vector)) for stages in (1, 0))
    assert abs(many - wanted) < abs(one - wanted)


@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
@pytest.mark.parametrize("vector", [np.full(1000, 0.5), np.r_[np.zeros(999), 3.0]], ids=["all equal", "a spike"])
def test_where_nothing_exceeds_the_fitted_threshold_it_still_sends(vector: Vector, fit: Fit) -> None:
    assert 1 <= len(gf.sidco(0.01, fit)(vector.astype(np.float32))) <= 10


def test_a_count_is_the_fraction_that_it_is_of_the_vector() -> None:
    vector = quantiles_of("laplace")
    assert gf.sidco(k=40)(vector) == gf.sidco(keep=0.01)(vector)
    assert len(gf.sidco(k=0)(vector)) == 0


def test_the_shares_of_the_stages_multiply_to_keep() -> None:
    for keep in (1.0, 0.25, 0.2, 1 / 64, 0.001, 1e-9):
        for stages in (0, 1, 2, 7):
            assert math.prod(stage_shares(keep, stages)) == pytest.approx(keep)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"keep": 0.0}, "a fraction"),
        ({"k": -3}, "a count"),
        ({"fit": "normal"}, "fit must be one of exponential, pareto, gamma"),
        ({"stages": -1}, "stages must be from 1 to 20"),
        ({"stages": True}, "stages must be"),
    ],
)
def test_settings_that_can_not_be_right_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(gf.InputError, match=sentence):
        gf.sidco(**settings)  # type: ignore[arg-type]
