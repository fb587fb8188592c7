"""DAGC: k_i ∝ p_i^⅔ and λ_i ∝ p_i^−⅔, by the client's part of the data."""

import logging
import math

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.shares import Shares
from gammafl.methods import dagc
from gammafl.methods.dagc import ThresholdByShare, factor_of
from tests.conftest import vectors
from tests.methods.proofs import recorded, reference
from tests.problems import Quadratic, plan_for, run


def moment(sizes: list[int], client: int, **changes: float) -> gf.Moment:
    return gf.Moment(share=Shares(sizes).of(client), **changes)  # type: ignore[arg-type]


@reference("dagc-r", "dagc-a")
@pytest.mark.parametrize("sizes", [[1, 8, 27], [5, 5, 5], [100, 1], [7]])
def test_factors_are_the_papers(sizes: list[int]) -> None:
    p = np.array(sizes) / sum(sizes)
    expected = len(p) * p ** (2 / 3) / np.sum(p ** (2 / 3))
    np.testing.assert_allclose([factor_of(moment(sizes, i)) for i in range(len(p))], expected)


@reference("dagc-a")
def test_thresholds_are_those_of_the_authors_code() -> None:
    for case in recorded("dagc")["cases"]:
        compressor = ThresholdByShare(case["average"])
        found = [compressor.threshold(moment(case["sizes"], i)) for i in range(len(case["sizes"]))]
        np.testing.assert_allclose(found, case["threshold"])


@reference("dagc-r")
def test_kept_fractions_are_in_the_proportions_of_the_authors_code() -> None:
    """Between all clients but the one of the least data, which that code gives as much as the next."""
    for case in recorded("dagc")["cases"]:
        count = len(case["sizes"]) - 1
        found = np.array([factor_of(moment(case["sizes"], i)) for i in range(count)])
        np.testing.assert_allclose(found / found[0], np.array(case["k"])[:count] / case["k"][0])


def test_a_client_keeps_in_proportion_to_its_share_and_all_together_what_is_asked_for() -> None:
    sizes, (vector,) = [10, 20, 40, 80], vectors(1, 20_000)
    kept = [len(gf.dagc_r(keep=0.01)(vector, moment(sizes, i))) for i in range(4)]
    expected = 200 * 4 * np.array(sizes) ** (2 / 3) / np.sum(np.array(sizes) ** (2 / 3))
    np.testing.assert_allclose(kept, expected, atol=1)
    assert gf.dagc_r(keep=0.01)(vector, moment(sizes, 3)) == gf.top_k(k=kept[3])(vector)
    assert len(gf.dagc_r(keep=0.9)(vector, moment([1, 99], 1))) == 20_000


def test_a_budget_moves_all_clients_in_proportion() -> None:
    (vector,) = vectors(1, 10_000)
    kept = [len(gf.dagc_r(keep=0.5)(vector, moment([1, 8], i, keep=0.1))) for i in range(2)]
    np.testing.assert_allclose(kept, [400, 1600], atol=1)


def test_with_a_threshold_the_client_with_more_data_has_the_lower_one() -> None:
    (vector,) = vectors(1, 1000)
    update = gf.dagc_a(threshold=0.8)(vector, moment([1, 8], 1))
    assert update == gf.HardThreshold(0.5)(vector)


def test_clients_with_equally_much_data_are_those_of_top_k() -> None:
    task = Quadratic((25, 25, 25, 25))
    equal, plain = (run(plan_for(method, task))[0].model for method in (gf.dagc_r(keep=0.1), gf.top_k(keep=0.1)))
    assert equal.tobytes() == plain.tobytes()


def test_in_the_simulator_clients_know_their_shares() -> None:
    _, _, records = run(plan_for(gf.dagc_r(keep=0.1), Quadratic((1, 1, 1, 97)), iterations=5, participants=4))
    root = 97 ** (2 / 3)
    small, large = (4 * power / (3 + root) for power in (1, root))
    assert records[0].kept == 3 * math.ceil(5 * small) + math.ceil(5 * large)


def test_where_nobody_knows_the_shares_all_are_alike_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    dagc._say_unknown.cache_clear()
    (vector,) = vectors(1, 1000)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert gf.dagc_r(keep=0.1)(vector) == gf.top_k(keep=0.1)(vector)
            assert gf.dagc_a(threshold=0.5)(vector) == gf.hard_threshold(threshold=0.5)(vector)
    assert [record.message for record in caplog.records] == [
        "dagc: it is not known how much data each client has, so all clients are compressed in the same way"
    ]


def test_a_level_at_which_the_threshold_has_no_effect_is_refused() -> None:
    with pytest.raises(gf.InputError, match="level must be 'run' or 'paper', got 'upload'"):
        gf.dagc_a(level="upload")  # type: ignore[arg-type]
