"""A learnt bound on norms: hostile clients don't move it, honest ones keep within it, and nothing is lost by it."""

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.config.schema import Faults
from gammafl.federated.limits import SMALLEST_NORM, Limits
from gammafl.federated.norms import ENOUGH, ROUNDS, VOICES, WARM_UP, WILD, LearntNorm
from gammafl.runs.execute import execute
from gammafl.tasks.registry import settings_of
from tests.problems import METHODS, StoppedError, StoppingAt, plan_for
from tests.runs.test_faults import ALL_KINDS, Dyadic, computed, run

LEARNT = gf.Limits(learnt_norm=4.0)


def sent(norms: dict[Any, float]) -> dict[Any, gf.SparseUpdate]:
    """Uploads of these norms."""
    return {who: gf.SparseUpdate(3, [1], [norm]) for who, norm in norms.items()}


def learnt(*rounds: dict[Any, float], limits: Limits = LEARNT) -> LearntNorm:
    norms = LearntNorm(limits)
    for one in rounds:
        norms.observe(sent(one))
    return norms


# --- what moves the bound ---------------------------------------------------------------------------------

sizes = st.floats(2.0**-60, 2.0**60, width=32)


@given(
    honest=st.lists(sizes, min_size=2, max_size=9),
    hostile=st.lists(st.lists(st.one_of(st.just(0.0), sizes), min_size=1, max_size=8), min_size=1, max_size=12),
)
def test_fewer_than_half_of_the_clients_never_move_the_bound_beyond_what_the_others_send(
    honest: list[float], hostile: list[list[float]]
) -> None:
    """However often each of them sends, and whatever."""
    norms = LearntNorm(LEARNT)
    for attack in hostile:
        colluding = {f"hostile {i}": size for i, size in enumerate(attack[: len(honest) - 1])}
        norms.observe(sent({**colluding, **{f"honest {i}": size for i, size in enumerate(honest)}}))
        if norms.bound is not None:
            assert 4 * min(honest) <= norms.bound <= 4 * max(honest)


def test_a_fifth_that_always_sends_all_it_may_lifts_the_bound_to_a_higher_quantile_and_no_further() -> None:
    """From the median of the others to their ⅝ quantile, however long it goes on."""
    norms, rng, bounds = LearntNorm(LEARNT), np.random.default_rng(0), []
    for _ in range(300):
        honest = {f"honest {i}": size for i, size in enumerate(rng.lognormal(0, 0.5, 80))}
        norms.observe(sent({**honest, **{f"hostile {i}": norms.bound or 1e3 for i in range(20)}}))
        bounds += [] if norms.bound is None else [norms.bound]
    quantile = 4 * np.exp(0.5 * NormalDist().inv_cdf(5 / 8))
    assert abs(np.mean(bounds) / quantile - 1) < 0.05


@given(st.lists(st.lists(sizes, min_size=VOICES, max_size=6), min_size=1, max_size=12))
def test_in_a_round_the_bound_grows_by_the_factor_at_the_most(rounds: list[list[float]]) -> None:
    """Since what is beyond it does not count."""
    norms = learnt(*[{"a": 1.0, "b": 1.0, "c": 1.0}] * WARM_UP)
    for wanted in rounds:
        before = norms.bound
        assert before is not None
        norms.observe(sent({i: min(size, before) for i, size in enumerate(wanted)}))
        assert norms.bound is not None
        assert norms.bound <= 4 * before * (1 + 1e-6)


def test_nothing_is_known_before_enough_rounds_and_enough_clients() -> None:
    assert learnt(*[{"a": 1.0, "b": 1.0, "c": 1.0}] * (WARM_UP - 1)).bound is None
    assert learnt(*[{"a": 1.0, "b": 1.0}] * 50).bound is None
    assert learnt(*[{"a": 1.0, "b": 1.0, "c": 1.0}] * WARM_UP).bound == 4.0
    assert learnt(*[{"a": 1.0, "b": 1.0, "c": 1.0}] * 50, limits=gf.Limits()).bound is None


def test_empty_uploads_say_nothing_and_a_bound_is_never_zero() -> None:
    idle = {f"idle {i}": 0.0 for i in range(10)}
    assert learnt(*[{**idle, "a": 1.0, "b": 2.0, "c": 3.0}] * WARM_UP).bound == 8.0
    assert learnt(*[idle] * 50).bound is None
    assert learnt(*[dict.fromkeys("abc", 1e-44)] * WARM_UP).bound == SMALLEST_NORM


def test_what_is_long_ago_is_forgotten_and_who_comes_last_in_a_round_has_no_advantage() -> None:
    early, late = dict.fromkeys(range(50), 100.0), dict.fromkeys(range(50, 60), 1.0)
    assert learnt(early, *[late] * ROUNDS).bound == 4.0
    many = {**dict.fromkeys(range(800), 1.0), **dict.fromkeys(range(1000, 1000 + 2 * ENOUGH), 50.0)}
    assert learnt(*[many] * WARM_UP).bound == 4.0


def test_a_bound_and_a_given_norm_hold_together() -> None:
    norms = learnt(*[{"a": 1.0, "b": 1.0, "c": 1.0}] * WARM_UP)
    assert norms.within(gf.Limits(norm=3.0)).norm == 3.0
    assert norms.within(gf.Limits(norm=5.0, entries=7)) == gf.Limits(norm=4.0, entries=7)


@pytest.mark.parametrize("factor", [1.0, 0.0, -4.0, float("nan"), float("inf"), True, "4"])
def test_a_factor_is_a_number_above_one(factor: Any) -> None:
    with pytest.raises(gf.InputError, match="a factor above 1"):
        gf.Limits(learnt_norm=factor)


# --- the warm-up ------------------------------------------------------------------------------------------


def test_in_the_warm_up_a_round_is_its_own_measure() -> None:
    norms, usual = LearntNorm(LEARNT), {"a": 1.0, "b": 2.0, "c": 3.0}
    assert norms.outliers(sent({**usual, "d": 4 * WILD * 2.5, "e": 0.0})) == {}
    assert list(norms.outliers(sent({**usual, "d": 4 * WILD * 2.6}))) == ["d"]
    assert norms.outliers(sent({"a": 1.0, "d": 1e30})) == {}  # who is the outlier of two?
    assert LearntNorm(gf.Limits()).outliers(sent({**usual, "d": 1e30})) == {}


def test_what_does_not_count_in_the_warm_up_returns_to_its_client() -> None:
    method, model = gf.top_k(keep=0.5), np.zeros(4, np.float32)
    server = gf.Server(method, gf.Schedule(0.1, 100), like=4, limits=LEARNT)
    clients = {who: gf.Client(who, method, like=4) for who in "abcd"}
    for who, client in clients.items():
        change = np.float32(1e9 if who == "d" else 1.0)
        server.accept(who, client.encode(model, model - change, server.offer(who)))
    step = server.step(model)
    assert (step.clients, step.missing) == (["a", "b", "c"], 1)
    clients["d"].begin(model, server.offer("d"))
    assert clients["d"].residual.tolist() == [1e9] * 4


# --- honest clients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [Faults(), ALL_KINDS], ids=["no faults", "faults"])
@pytest.mark.parametrize("name", METHODS)
def test_honest_clients_are_never_refused_and_nothing_is_lost(name: str, faults: Faults) -> None:
    """Although one of them has much larger updates, and a factor near 1 holds all of them back."""

    class Uneven(Dyadic):
        def train(self, clients: Any, *args: Any) -> Any:
            for client, local in zip(clients, super().train(clients, *args), strict=True):
                if client == 3:
                    local.delta[:] *= 16
                yield local

    plan = plan_for(METHODS[name], Uneven(), faults=faults, upload_limits=gf.Limits(learnt_norm=1.1))
    residuals, records, counted = run(plan)
    bounds = [record.norm_limit for record in records]
    assert bounds[:WARM_UP] == [None] * WARM_UP
    assert all(bound is not None and bound > 0 for bound in bounds[2 * WARM_UP :])
    assert not [r for record in records for r in record.refused.values() if "norm" in r and record.norm_limit]
    remembered = np.array([residuals.residual(client) for client in range(4)], np.float64)
    np.testing.assert_allclose(counted + remembered, computed(plan, records), atol=2e-3)


def test_as_long_as_most_have_more_to_send_than_they_may_the_bound_grows() -> None:
    """From whatever a majority of hostile clients made of it in the warm-up."""
    norms = learnt(*[dict.fromkeys("abc", 1e-29)] * WARM_UP)
    rounds = 0
    while norms.bound is not None and norms.bound < 1.0:
        norms.observe(sent(dict.fromkeys("abc", norms.bound)))
        rounds += 1
    assert rounds <= np.ceil(np.log(1e29) / np.log(4))


def test_an_upload_that_is_sent_again_after_the_bound_fell_is_refused_once_and_then_counts() -> None:
    """It was within the bound of the round that it was made in. What it holds returns, and is cut to the new bound."""
    method, dim = gf.fedavg(), 4
    server = gf.Server(method, gf.Schedule(0.1, 100), like=dim, limits=gf.Limits(learnt_norm=1.5))
    clients = {who: gf.Client(who, method, like=dim) for who in "abcd"}
    model, zero = np.zeros(dim, np.float32), np.zeros(dim, np.float32)

    def play(size: float, names: str) -> None:
        for who in names:
            server.accept(who, clients[who].encode(zero, zero - np.float32(size / 2), server.offer(who)))
        server.step(model)

    for _ in range(WARM_UP):
        play(1.0, "abc")
    made = clients["d"].encode(zero, zero - np.float32(0.75), server.offer("d"))
    server.step(model)  # it is on its way for long
    for _ in range(3):
        play(0.1, "abc")
    state = server.state_dict()
    state["receipts"]["at"].append(["d", "d", "another"])  # the server can't tell what it has of d
    server.load_state_dict(state)
    again = clients["d"].encode(zero, zero, server.offer("d"))
    assert again[-10:] == made[-10:]
    with pytest.raises(gf.WireError, match=r"an update of norm 1.* is allowed"):
        server.accept("d", again)
    server.step(model)
    offer, sums = server.offer("d"), np.zeros(dim)
    for _ in range(200):
        upload = clients["d"].encode(zero, zero, offer)
        assert server.accept("d", upload)
        before = model.copy()
        server.step(model)
        sums += before - model
        offer = server.offer("d")
    np.testing.assert_allclose(sums, 0.75, rtol=1e-5)


# --- state ------------------------------------------------------------------------------------------------


def test_the_state_outlives_the_process_and_forged_ones_are_refused() -> None:
    norms = learnt(*[{"a": 1.0, 7: 2.0, "c": 3.0}] * WARM_UP)
    again = LearntNorm(LEARNT)
    again.restore(json.loads(json.dumps(norms.state())))
    assert (again.bound, again.state()) == (8.0, norms.state())
    for bad in ({"rounds": -1}, {"voices": [{"address": "a", "round": 1, "norm": float("nan")}]}, {"more": 1}):
        with pytest.raises(gf.InputError, match="the stored norms can't be used"):
            LearntNorm(LEARNT).restore({**(norms.state() or {}), **bad})
    for limits, saved in ((LEARNT, None), (gf.Limits(), norms.state())):
        with pytest.raises(gf.InputError, match="belong to other limits"):
            LearntNorm(limits).restore(saved)


def test_a_run_that_was_killed_and_resumed_is_the_same(tmp_path: Path) -> None:
    table = {"task": "logistic-mini", "iterations": 100, "limits": {"learnt_norm": 1.2}}
    config = make_config(settings_of("logistic-mini"), table | {"checkpoint": {"every_seconds": 0}})
    execute(config, tmp_path / "whole")
    with pytest.raises(StoppedError):
        execute(config, tmp_path / "stopped", progress=StoppingAt(11))
    execute(config, tmp_path / "stopped", resume=True)
    ledger = (tmp_path / "whole/rounds.jsonl").read_bytes()
    assert (tmp_path / "stopped/rounds.jsonl").read_bytes() == ledger
    assert b"norm_limit" in ledger


@pytest.mark.parametrize("seed", range(20))
def test_an_update_that_is_scaled_down_is_within_the_norm_however_far_it_was_beyond(seed: int) -> None:
    """Also where the factor is near float32's smallest number: or its client would be refused for ever."""
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(50) * 10.0 ** rng.uniform(20, 37)).astype(np.float32)
    limits = gf.Limits(norm=10.0 ** rng.uniform(-12, -2))
    limits.check_update(limits.fit(gf.SparseUpdate(50, None, values)))
