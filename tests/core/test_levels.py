"""Level `upload`: every upload keeps its planned number of entries, for any optimiser, model and scale."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.memory import Residual
from tests.core.test_largest import KINDS, every_kind, optimiser_like

DIM = 20_011
SCHEDULES = {
    "constant": gf.Schedule(0.1, 1000),
    "inverse": gf.Schedule(gf.InverseDecay(100, 100), 1000),
    "exponential": gf.Schedule(gf.ExponentialDecay(0.1, 0.99, 5), 1000),
}
FAMILY: dict[str, Any] = {
    "gamma-fedht": gf.gamma_fedht,
    "gamma-fedht-q": gf.gamma_fedht_q,
    "ht": gf.hard_threshold,
    "by hand": lambda **settings: gf.Method(gf.HardThreshold(), level=gf.UploadLevel(**settings)),
}
every_method = pytest.mark.parametrize("name", FAMILY)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


def sequence(method: gf.Method, kind: str, rounds: int, scale: float = 1.0) -> list[int]:
    """How many entries each upload of a client keeps, with error feedback."""
    schedule = gf.Schedule(gf.InverseDecay(100, 100), rounds)
    begin, memory = method.scale(DIM, schedule), Residual(method, DIM)
    return [
        len(memory.propose(scaled(optimiser_like(kind, DIM, t), scale), schedule.moment(t + 1, begin, key=t)))
        for t in range(rounds)
    ]


def scaled(vector: Vector, factor: float) -> Vector:
    return vector * np.float32(factor)


@every_method
@pytest.mark.parametrize("kind", ["sgd", "heavy tails", "lion", "adamw", "embedding"])
@pytest.mark.parametrize("rounds", [6, 40, 200])
def test_every_upload_of_a_long_sequence_keeps_what_was_planned(name: str, kind: str, rounds: int) -> None:
    assert set(sequence(FAMILY[name](keep=0.005), kind, rounds)) == {100}


@every_method
@given(st.sampled_from(KINDS), st.floats(1e-3, 1), st.integers(-30, 12), st.integers(1, 5000), st.integers(0, 9))
def test_the_first_upload_keeps_its_share_at_any_scale(
    name: str, kind: str, keep: float, power: int, dim: int, key: int
) -> None:
    vector = scaled(optimiser_like(kind, dim, key), 10.0**power)
    vector = np.where(np.isfinite(vector), vector, 0).astype(np.float32)
    update = FAMILY[name](keep=keep)(vector, gf.Moment(key=key))
    assert len(update) == min(max(1, round(keep * dim)), np.count_nonzero(vector))


@every_kind
@pytest.mark.parametrize("power", [-6, 6])
def test_the_size_of_updates_changes_no_count(kind: str, power: int) -> None:
    method = gf.gamma_fedht(keep=0.002)
    assert sequence(method, kind, 10, 10.0**power) == sequence(method, kind, 10)


@every_kind
def test_with_values_as_they_are_the_threshold_methods_keep_what_top_k_keeps(kind: str) -> None:
    """γ-FedHT, HT and Top-k send the same magnitudes; the same positions where no two magnitudes are equal."""
    vector = optimiser_like(kind, DIM, 1)
    top = gf.top_k(k=200)(vector)
    for method in (gf.gamma_fedht(keep=200 / DIM), gf.hard_threshold(keep=200 / DIM)):
        update = method(vector)
        np.testing.assert_array_equal(np.sort(np.abs(update.values)), np.sort(np.abs(top.values)))
        if len(np.unique(np.abs(vector))) == DIM:
            assert update == top


def test_methods_state_how_much_they_plan_to_keep() -> None:
    moment = gf.Moment(layout=gf.Layout.of({"a": (400,)}, {"statistics": (100,)}))
    plans = {
        gf.fedavg(): 1.0,
        gf.top_k(keep=0.02): 0.02,
        gf.top_k(k=20): 0.05,
        gf.stc(k=9999): 1.0,
        gf.gamma_fedht(keep=0.03): 0.03,
        gf.gamma_fedht(keep=0.03, level="paper"): None,
        gf.hard_threshold(threshold=0.1): None,
    }
    assert {method: method.planned(moment) for method in plans} == plans
    assert gf.top_k(k=20).planned(gf.Moment()) is None


def test_tensors_that_are_sent_whole_do_not_count() -> None:
    layout = gf.Layout.of({"a": (400,)}, {"statistics": (100,)})
    update = gf.gamma_fedht(keep=0.05)(optimiser_like("sgd", 500, 0), gf.Moment(layout=layout))
    assert len(update) == 20 + 100


@every_schedule
def test_a_profile_has_the_mean_that_was_asked_for(schedule: gf.Schedule) -> None:
    method = gf.gamma_fedht(keep=0.01, profile="gamma")
    scale = method.scale(DIM, schedule)
    plans = [method.planned(schedule.moment(t, scale)) or 0 for t in range(schedule.iterations + 1)]
    assert np.mean(plans) == pytest.approx(0.01, rel=1e-9)


def test_a_profile_keeps_more_where_the_threshold_of_gamma_fedht_is_low_and_is_constant_where_gamma_is() -> None:
    schedule, method = SCHEDULES["inverse"], gf.gamma_fedht(keep=0.01, profile="gamma")
    scale, shape = method.scale(DIM, schedule), gf.GammaFedHT(1.0)
    moments = [schedule.moment(t, scale) for t in range(0, 1001, 50)]
    budgets = [(method.planned(m) or 0) * shape.threshold(replace(m, scale=1.0)) ** 2 for m in moments]
    np.testing.assert_allclose(budgets, budgets[0])
    flat = SCHEDULES["constant"]
    assert method.planned(flat.moment(7, method.scale(DIM, flat))) == pytest.approx(0.01, rel=1e-12)


def test_a_profile_that_would_keep_more_than_everything_is_refused() -> None:
    method = gf.gamma_fedht(keep=0.9, profile="gamma")
    with pytest.raises(gf.InputError, match="choose a smaller keep"):
        method.scale(DIM, SCHEDULES["exponential"])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: gf.gamma_fedht(alpha=2), "alpha has no effect at level 'upload'"),
        (lambda: gf.gamma_fedht(units="gradient"), "units has no effect"),
        (lambda: gf.hard_threshold(units="gradient"), "units has no effect"),
        (lambda: gf.Method(gf.HardThreshold(0.1), level=gf.UploadLevel(0.1)), "value has no effect"),
        (lambda: gf.Method(gf.TopK(3), level=gf.UploadLevel(0.1)), "TopK has no threshold"),
        (lambda: gf.Method(gf.TopK(3), level=gf.PaperLevel(0.1)), "TopK has no threshold"),
        (lambda: gf.Method(gf.HardThreshold(), level="upload"), "must be a level such as"),  # type: ignore[arg-type]
        (lambda: gf.gamma_fedht(level="paper", profile="gamma"), "profile has no effect at level 'paper'"),
        (lambda: gf.gamma_fedht(level="other"), "level must be one of"),  # type: ignore[arg-type]
        (lambda: gf.gamma_fedht(profile="other"), "profile must be one of"),  # type: ignore[arg-type]
        (lambda: gf.gamma_fedht(keep=0.0), "keep, the kept fraction"),
        (lambda: gf.UploadLevel(1.5), "keep, the kept fraction"),
    ],
)
def test_what_has_no_effect_or_no_meaning_is_refused(make: Any, named: str) -> None:
    with pytest.raises(gf.InputError, match=named):
        make()


def test_a_threshold_of_ones_own_goes_without_a_level() -> None:
    assert gf.gamma_fedht(initial_threshold=0.1, alpha=2).level is None
    assert gf.hard_threshold(threshold=0.1, units="gradient").level is None


def test_a_method_that_is_called_alone_is_told_what_a_run_would_tell_it() -> None:
    vector = optimiser_like("sgd", 1000, 0)
    for method in (gf.gamma_fedht(keep=0.1, profile="gamma"), gf.gamma_fedht(keep=0.1, level="paper")):
        schedule = gf.Schedule(1.0, 1)
        assert method(vector) == method(vector, schedule.moment(1, method.scale(1000, schedule)))
    assert len(gf.gamma_fedht(keep=0.1)(vector)) == 100
