"""The server's update: line 19, the same for sparse and dense updates."""

from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.core import aggregate
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
