"""The server's update: line 19, the same for sparse and dense updates."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core import aggregate
from gammafl.core.aggregate import LARGEST_MODEL
from tests.conftest import vectors


def test_the_update_is_line_19() -> None:
    model, first, second = vectors(3, 200)
    updates = [gf.TopK(20)(first), gf.Dense()(second)]
    shares, n = [0.1, 0.3], 10
    expected = model - n / 2 * (0.1 * updates[0].dense() + 0.3 * updates[1].dense())
    aggregate.subtract(model, updates, aggregate.weights(shares, n))
    np.testing.assert_allclose(model, expected, rtol=1e-6, atol=1e-6)


def test_a_sparse_update_of_every_position_does_what_the_entire_one_does() -> None:
    start, delta = vectors(2, 333)
    sparse, entire = start.copy(), start.copy()
    aggregate.subtract(sparse, [gf.SparseUpdate(333, np.arange(333), delta)], [0.7])
    aggregate.subtract(entire, [gf.SparseUpdate(333, None, delta)], [0.7])
    assert sparse.tobytes() == entire.tobytes()


def test_paper_weights_are_unbiased_and_normalized_weights_sum_to_one() -> None:
    shares = [0.5, 0.3, 0.2]
    every_pair = [[0, 1], [0, 2], [1, 2]]
    totals = np.zeros(3)
    for pair in every_pair:
        totals[pair] += aggregate.weights([shares[i] for i in pair], 3)
        assert sum(aggregate.weights([shares[i] for i in pair], 3, "normalized")) == pytest.approx(1)
    np.testing.assert_allclose(totals / len(every_pair), shares)


def test_an_update_for_another_model_is_refused() -> None:
    with pytest.raises(gf.InputError, match="5 elements for a model of 4"):
        aggregate.subtract(np.zeros(4, np.float32), [gf.SparseUpdate(5, [4], [1.0])], [1.0])


@pytest.mark.parametrize("weighting", ["paper", "normalized"])
def test_an_update_counts_the_same_whether_or_not_one_of_equal_share_arrives(weighting: Any) -> None:
    three, four = aggregate.weights([0.2] * 3, 5, weighting, picked=4), aggregate.weights([0.2] * 4, 5, weighting)
    assert three == pytest.approx(four[:3])


positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)


@given(shares=st.lists(positive, min_size=1, max_size=6), missing=st.integers(0, 5))
def test_normalized_weights_of_any_positive_shares_are_finite_and_ordered_and_sum_to_what_arrived(
    shares: list[float], missing: int
) -> None:
    """Also where a share is the smallest or the largest number there is."""
    picked = len(shares) + missing
    weights = aggregate.weights(shares, 99, "normalized", picked)
    assert all(0 <= weight <= 1 for weight in weights)
    assert sum(weights) == pytest.approx(len(shares) / picked)
    assert [w for _, w in sorted(zip(shares, weights, strict=True))] == sorted(weights)


@pytest.mark.parametrize(
    ("shares", "weighting"),
    [
        ([-0.1], "paper"),
        ([2.0], "paper"),
        ([np.nan], "normalized"),
        ([np.inf, 1], "normalized"),
        ([0, 0], "normalized"),
    ],
)
def test_shares_that_are_none_are_refused(shares: list[float], weighting: Any) -> None:
    with pytest.raises(gf.InputError, match="share"):
        aggregate.weights(shares, 10, weighting)


@pytest.mark.parametrize("weighting", ["paper", "normalized"])
@given(
    start=st.floats(0, LARGEST_MODEL, width=32),
    shares=st.lists(st.floats(0, 1, exclude_min=True), min_size=1, max_size=5),
    signs=st.lists(st.sampled_from([-1, 1]), min_size=5, max_size=5),
)
def test_updates_as_large_as_they_may_be_leave_a_finite_model_within_its_bounds(
    weighting: Any, start: float, shares: list[float], signs: list[int]
) -> None:
    """Whatever they weigh; and the next round may be the same."""
    model = np.array([start, -start, 0], np.float32)
    weights = aggregate.weights(shares, 20, weighting)
    largest = np.float32(aggregate.largest_value(sum(weights)))
    updates = [gf.SparseUpdate(3, None, np.full(3, sign * largest)) for sign in signs[: len(shares)]]
    for _ in range(3):
        aggregate.subtract(model, updates, weights)
        assert np.isfinite(model).all()
        aggregate.clamp(model)
        assert np.abs(model).max() <= LARGEST_MODEL


def test_clamping_changes_nothing_within_the_bounds() -> None:
    model = np.array([LARGEST_MODEL, -LARGEST_MODEL, 0.1, 1e30], np.float32)
    before = model.tobytes()
    aggregate.clamp(model)
    assert model.tobytes() == before
