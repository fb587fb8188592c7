"""Differential privacy: one client changes a round's sum by no more than C, and the sum has the noise that ε counts."""

import builtins
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.config.budget import Budgets
from gammafl.config.layers import make_config
from gammafl.config.optimizers import server_optimizer
from gammafl.config.privacy import LEAST_NOISE
from gammafl.config.schema import Faults
from gammafl.core.arrays import Vector
from gammafl.core.levels import RunLevel
from gammafl.core.wire import encode
from gammafl.federated import privacy as federated_privacy
from gammafl.federated import server_exchange
from gammafl.federated.endpoints import _closed, _opened
from gammafl.federated.faults import carrier
from gammafl.federated.privacy import seeded, total, unpredictable
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.rounds import run_rounds, start
from gammafl.runs.execute import execute
from gammafl.tasks.registry import settings_of
from tests.core.test_compressors import HOSTILE
from tests.methods.catalogue import REGISTERED
from tests.problems import METHODS, Quadratic, StoppedError, StoppingAt, blobs, plan_for, run
from tests.runs.test_faults import ALL_KINDS, Dyadic, computed
from tests.runs.test_faults import run as run_counting

pytest.importorskip("dp_accounting")

PRIVACY = gf.Privacy(clip=1.0, noise=1.0)
SCHEDULE = gf.Schedule(0.1, 100)
SLACK = 1e-9
"""By how much roundings in float64 may take the sum beyond C, as a share of it."""

PRIVATE = {
    text: method
    for text, method in REGISTERED.items()
    if not isinstance(method.memory, gf.Shifts) and not isinstance(method.level, RunLevel)
}
DIM = 60
VECTORS = {name: np.resize(vector, DIM) for name, vector in HOSTILE.items() if vector.size}


def no_noise(count: int) -> Any:
    return np.zeros(count)


# --- sensitivity ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PRIVATE)
def test_one_client_changes_a_rounds_sum_by_no_more_than_the_clip_whatever_its_residual_holds(text: str) -> None:
    """Residuals of many rounds, of vectors of all sizes: what counts is the message as the server decodes it."""
    method, clip = PRIVATE[text], 0.5
    server = gf.Server(method, SCHEDULE, like=DIM, privacy=gf.Privacy(clip=clip, noise=1.0))
    client, other = gf.Client("a", method, like=DIM), gf.Client("b", method, like=DIM)
    model, zero, sums = np.zeros(DIM, np.float32), np.zeros(DIM, np.float32), []
    for number in range(3):
        for vector in VECTORS.values():
            with np.errstate(over="ignore"):
                change = np.clip(vector, -1e30, 1e30) * np.float32(1 + number)
            for who, one, delta in (("a", client, change), ("b", other, np.ones(DIM, np.float32))):
                assert server.accept(who, one.encode(zero, zero - delta, server.offer(who)))
            with_it, without = ([x.update for x in server._exchange.arrivals][first:] for first in (0, 1))
            change_of_sum = float(np.linalg.norm(total(with_it, DIM) - total(without, DIM)))
            assert change_of_sum <= clip * (1 + SLACK)
            sums.append(change_of_sum)
            server.step(model)
    assert max(sums) > 0.5 * clip  # the bound is in use: residuals are much larger


@given(st.lists(st.floats(-(2.0**70), 2.0**70, width=32), min_size=4, max_size=4), st.sampled_from([1e-20, 1.0, 1e10]))
def test_a_client_that_lies_counts_within_the_clip_or_not_at_all(values: list[float], clip: float) -> None:
    privacy, model = gf.Privacy(clip=clip, noise=1.0), np.zeros(4, np.float32)
    server = gf.Server(gf.fedavg(), SCHEDULE, like=4, privacy=privacy)
    client = gf.Client("a", gf.fedavg(), like=4)
    answer, _ = _opened(client.encode(model, model, server.offer("a")))
    upload = _closed(answer, encode(gf.SparseUpdate(4, None, np.array(values, np.float32))))
    norm = float(np.linalg.norm(np.array(values, np.float32).astype(np.float64)))
    if norm <= clip:
        assert server.accept("a", upload)
    else:
        with pytest.raises(gf.WireError):
            server.accept("a", upload)


def test_two_servers_that_differ_in_one_client_differ_in_their_models_by_the_clip_at_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The divisor is the number of clients that were asked: a client that does not answer changes no other's part."""
    monkeypatch.setattr(server_exchange, "unpredictable", no_noise)
    models = []
    for answers in ("abc", "ab"):
        server = gf.Server(gf.fedavg(), SCHEDULE, like=DIM, privacy=PRIVACY)
        model = np.zeros(DIM, np.float32)
        offers = {who: server.offer(who) for who in "abc"}
        for number, who in enumerate(answers):
            delta = np.random.default_rng(number).standard_normal(DIM).astype(np.float32)
            server.accept(who, gf.Client(who, gf.fedavg(), like=DIM).encode(model, model - delta, offers[who]))
        server.step(model)
        models.append(model)
    assert 3 * np.linalg.norm(models[0] - models[1]) <= PRIVACY.clip * (1 + 1e-6)
    np.testing.assert_allclose(3 * np.linalg.norm(models[0] - models[1]), 1.0, rtol=1e-5)


@pytest.mark.parametrize("faults", [Faults(), ALL_KINDS], ids=["no faults", "faults"])
@pytest.mark.parametrize("name", METHODS)
def test_what_the_clip_holds_back_waits_at_the_client_and_nobody_honest_is_refused(name: str, faults: Faults) -> None:
    plan = plan_for(METHODS[name], Dyadic(), faults=faults, privacy=gf.Privacy(clip=0.3, noise=0.1))
    residuals, records, counted = run_counting(plan)
    reasons = [reason for record in records for reason in record.refused.values()]
    assert not [reason for reason in reasons if "norm" in reason]
    remembered = np.array([residuals.residual(client) for client in range(4)], np.float64)
    np.testing.assert_allclose(counted + remembered, computed(plan, records), atol=1e-3)


# --- noise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normal", [unpredictable, seeded(3, 7)], ids=["system", "seeded"])
def test_noise_is_standard_normal(normal: Any) -> None:
    """Within six standard errors: each of these fails once in 10⁸ runs where nothing is wrong."""
    count = 200_001
    numbers = normal(count)
    assert numbers.shape == (count,)
    assert abs(numbers.mean()) < 6 / math.sqrt(count)
    assert abs(numbers.var() - 1) < 6 * math.sqrt(2 / count)
    assert abs((numbers**4).mean() - 3) < 6 * math.sqrt(96 / count)
    half = count // 2
    assert abs((numbers[:half] * numbers[half : 2 * half]).mean()) < 6 / math.sqrt(half)
    for limit in (0.5, 1.0, 2.0, 3.0):
        share = math.erfc(limit / math.sqrt(2))
        assert abs((np.abs(numbers) > limit).mean() - share) < 6 * math.sqrt(share / count)


def test_the_systems_noise_is_never_the_same_and_a_simulated_one_is_that_of_seed_and_round() -> None:
    assert not np.array_equal(unpredictable(10), unpredictable(10))
    assert np.array_equal(seeded(1, 2)(10), seeded(1, 2)(10))
    for one, other in pairwise([seeded(1, 2), seeded(1, 3), seeded(2, 3)]):
        assert not np.array_equal(one(10), other(10))


@pytest.mark.parametrize("answers", ["abcd", "a", ""])
def test_a_servers_step_has_the_noise_that_is_asked_for_also_if_nobody_answers(answers: str) -> None:
    dim, privacy = 40_000, gf.Privacy(clip=2.0, noise=1.5)
    server = gf.Server(gf.top_k(keep=0.01), SCHEDULE, like=dim, privacy=privacy)
    model = np.zeros(dim, np.float32)
    offers = {who: server.offer(who) for who in "abcd"}
    for who in answers:
        client = gf.Client(who, gf.top_k(keep=0.01), like=dim)
        server.accept(who, client.encode(model, model + np.float32(1), offers[who]))
    server.step(model)
    assert abs(model.std() / (1.5 * 2.0 / 4) - 1) < 0.05


def test_a_simulated_step_has_the_noise_that_is_asked_for() -> None:
    class Wide(Quadratic):
        def __init__(self) -> None:
            super().__init__(dim=20_000)

    quiet, noisy = (
        run(plan_for(gf.top_k(keep=0.01), Wide(), iterations=5, privacy=gf.Privacy(clip=1.0, noise=noise)))[0].model
        for noise in (1e-9, 3.0)
    )
    assert abs((noisy - quiet).std() / (3.0 / 2) - 1) < 0.05  # two participants


def test_every_upload_counts_the_same_and_only_those_who_were_asked() -> None:
    server = gf.Server(gf.fedavg(), SCHEDULE, like=4, privacy=PRIVACY)
    model, client = np.zeros(4, np.float32), gf.Client("a", gf.fedavg(), like=4)
    upload = client.encode(model, model, server.offer("a"))
    with pytest.raises(gf.InputError, match="all uploads have the same weight"):
        server.accept("a", upload, weight=2.0)
    with pytest.raises(gf.WireError, match="not asked in this round"):
        server.accept("b", upload)
    assert server.accept("a", upload)


def test_a_step_before_anybody_was_asked_changes_nothing() -> None:
    server, model = gf.Server(gf.fedavg(), SCHEDULE, like=4, privacy=PRIVACY), np.ones(4, np.float32)
    server.step(model)
    assert model.tolist() == [1, 1, 1, 1]


def test_in_the_simulator_sizes_of_data_have_no_effect() -> None:
    """Neither as weights, nor on what a method keeps (DAGC)."""
    models = []
    for sizes in ((10, 20, 30, 40), (1, 1, 1, 1000)):
        plan = plan_for(gf.dagc_r(keep=0.1), Quadratic(sizes), iterations=20, privacy=PRIVACY)
        models.append(run(plan)[0].model)
    assert np.array_equal(models[0], models[1])


@pytest.mark.parametrize("optimizer", ["none", "adam"])
def test_a_round_without_uploads_moves_the_model_too(optimizer: str) -> None:
    """Whether anybody answered must not show."""
    plan = plan_for(
        METHODS["top-k"], iterations=10, privacy=PRIVACY, faults=Faults(absent=1.0),
        server_optimizer=server_optimizer(optimizer),
    )  # fmt: skip
    state, before = start(plan), start(plan).model
    next(run_rounds(plan, state, carrier(plan, ResidualStore(plan.method, plan.dim))))
    assert not np.array_equal(state.model, before)


# --- what must be off -------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "level run": ({"method": gf.gamma_fedht(keep=0.1, level="run")}, "the level 'run' of gamma-fedht"),
    "shifts": ({"method": gf.ef21(keep=0.1, server="each")}, "without shifts"),
    "learnt limits": ({"limits": gf.Limits(learnt_norm=4.0)}, "a learnt norm is a function of what clients send"),
    "a run's budget": ({"budget": "1 MB/run"}, "give each upload a budget"),
}


@pytest.mark.parametrize(("settings", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_would_tell_of_clients_without_noise_is_refused(settings: dict[str, Any], reason: str) -> None:
    given = {"method": gf.top_k(keep=0.1), "like": 50, "privacy": PRIVACY, **settings}
    with pytest.raises(gf.InputError, match=reason):
        gf.Server(given.pop("method"), SCHEDULE, **given)


def test_the_simulator_refuses_the_same() -> None:
    cases: list[dict[str, Any]] = [
        {"method": gf.gamma_fedht(keep=0.1, level="run")},
        {"method": gf.ef21(keep=0.1)},
        {"upload_limits": gf.Limits(learnt_norm=4.0)},
        {"budgets": Budgets.of("1 MB/run", 4)},
    ]
    for settings in cases:
        with pytest.raises(gf.InputError, match="privacy: "):
            plan_for(settings.pop("method", METHODS["top-k"]), privacy=PRIVACY, **settings)

    class WithStatistics(Quadratic):
        def __init__(self) -> None:
            super().__init__()
            self.tensors, self.statistics = {"first": (40,)}, {"second": (10,)}

    with pytest.raises(gf.InputError, match="a variance with noise can be negative"):
        plan_for(METHODS["top-k"], WithStatistics(), weights="normalized", privacy=PRIVACY)


@pytest.mark.parametrize(
    "bad",
    [{"clip": 0}, {"noise": 0}, {"noise": 1e-320}, {"noise": float("nan")}, {"clip": -1}, {"delta": 1.0}],
)
def test_settings_that_promise_nothing_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(gf.InputError, match="privacy: "):
        gf.Privacy(**{"clip": 1.0, "noise": 1.0, **bad})


def test_without_the_accountant_a_private_run_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "dp_accounting":
            raise ModuleNotFoundError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(gf.InputError, match=r"pip install 'gammafl\[privacy\]'"):
        plan_for(METHODS["top-k"], privacy=PRIVACY)


# --- what it comes to -------------------------------------------------------------------------------------


def delta_by_hand(epsilon: float, noise: float, rounds: int) -> float:
    """δ(ε) of a Gaussian mechanism, μ = √T/z: Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)."""
    mu = math.sqrt(rounds) / noise

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (4.0, 100), (12.0, 400), (30.0, 400), (0.8, 3)])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_epsilon_is_the_one_that_can_be_derived_by_hand(noise: float, rounds: int, delta: float) -> None:
    """docs/privacy.md: the exact one by the normal distribution, and above it the one of zCDP, ρ + 2·√(ρ·ln(1/δ))."""
    epsilon = gf.Privacy(1.0, noise, delta).epsilon(rounds)
    assert math.isclose(delta_by_hand(epsilon, noise, rounds), delta, rel_tol=1e-6)
    rho = rounds / (2 * noise**2)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta)) <= 1.35 * epsilon


def test_less_noise_never_has_a_smaller_epsilon() -> None:
    """However little it is: of noise that is next to none no accountant may say that it hides everything."""
    noises = [30.0, 1.0, 1e-3, 1e-20, LEAST_NOISE]
    for rounds in (1, 10**6, 2**62):
        epsilons = [gf.Privacy(clip=1.0, noise=noise).epsilon(rounds) for noise in noises]
        assert epsilons == sorted(epsilons)
        assert math.isfinite(epsilons[-1])


def test_the_noise_for_an_epsilon_gives_it() -> None:
    privacy = gf.Privacy.within(8.0, rounds=400, clip=0.5, delta=1e-6)
    assert (privacy.clip, privacy.delta) == (0.5, 1e-6)
    assert math.isclose(privacy.epsilon(400), 8.0, rel_tol=1e-6)
    assert privacy.epsilon(0) == 0


def test_a_server_tells_its_epsilon_after_each_round() -> None:
    server, model = gf.Server(gf.fedavg(), SCHEDULE, like=4, privacy=PRIVACY), np.zeros(4, np.float32)
    told = []
    for _ in range(3):
        server.offer("a")
        server.step(model)
        told.append(server.epsilon())
    assert told == [PRIVACY.epsilon(rounds) for rounds in (1, 2, 3)]
    restarted = gf.Server(gf.fedavg(), SCHEDULE, like=4, privacy=PRIVACY)
    restarted.load_state_dict(server.state_dict())
    assert restarted.epsilon() == told[-1]
    assert gf.Server(gf.fedavg(), SCHEDULE, like=4).epsilon() is None


# --- runs -------------------------------------------------------------------------------------------------


def test_a_private_run_tells_its_epsilon_and_is_the_same_when_killed_and_resumed(tmp_path: Path) -> None:
    table = {"task": "logistic-mini", "iterations": 100, "privacy": {"clip": 0.5, "noise": 2.0}}
    config = make_config(settings_of("logistic-mini"), table | {"checkpoint": {"every_seconds": 0}})
    summary = execute(config, tmp_path / "whole")
    assert summary.epsilon == gf.Privacy(0.5, 2.0).epsilon(20)
    assert summary.essentials()["privacy"].startswith("ε = ")
    with pytest.raises(StoppedError):
        execute(config, tmp_path / "stopped", progress=StoppingAt(11))
    execute(config, tmp_path / "stopped", resume=True)
    assert (tmp_path / "stopped/rounds.jsonl").read_bytes() == (tmp_path / "whole/rounds.jsonl").read_bytes()
    assert "epsilon" in json.loads((tmp_path / "whole/summary.json").read_text())


def test_simulate_takes_privacy_and_without_it_a_summary_has_none() -> None:
    clients, test = blobs()
    settings: dict[str, Any] = {"stepsize": 0.1, "iterations": 20, "method": "top-k", "keep": 0.5}
    private = gf.simulate(torch.nn.Linear(8, 3), clients, test, privacy=PRIVACY, **settings)
    assert private.summary.epsilon == PRIVACY.epsilon(4)
    plain = gf.simulate(torch.nn.Linear(8, 3), clients, test, **settings)
    assert plain.summary.epsilon is None
    assert not {"epsilon", "delta"} & plain.summary.table().keys()
    with pytest.raises(gf.InputError, match=r"privacy must be gf\.Privacy"):
        gf.simulate(torch.nn.Linear(8, 3), clients, test, privacy=1.0, **settings)  # type: ignore[arg-type]


def test_one_of_clip_and_noise_alone_is_refused() -> None:
    with pytest.raises(gf.InputError, match="needs both clip and noise"):
        make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "privacy": {"clip": 1.0}})


def test_the_sum_is_made_in_float64() -> None:
    """So that what other clients sent hardly rounds what one client changes."""
    updates: list[Vector] = [np.full(3, value, np.float32) for value in (1e7, 0.1, -1e7)]
    summed = total([gf.SparseUpdate(3, None, values) for values in updates], 3)
    np.testing.assert_allclose(summed, float(np.float32(0.1)), rtol=1e-7)
    assert federated_privacy.total([], 3).tolist() == [0, 0, 0]
