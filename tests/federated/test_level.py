"""Level `run`: the server finds one scale for all in a warm-up, and steers it by what counted."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.core.lengths import MessageForm
from gammafl.federated.allowance import Allowance
from gammafl.federated.client import Report
from gammafl.federated.exchange import Answer
from gammafl.federated.level import EXPONENT, FACTOR, Controller, Sent
from gammafl.runs.execute import execute
from gammafl.tasks.registry import settings_of
from tests.conftest import repeatable
from tests.core.test_largest import optimiser_like
from tests.problems import METHODS, plan_for, run

DIM, ROUNDS = 1000, 50
SCHEDULE = gf.Schedule(gf.InverseDecay(10, 10), ROUNDS)
METHOD = gf.Method(gf.GammaFedHT(), level=gf.RunLevel(0.01, warmup=3))


def controller(method: gf.Method = METHOD) -> Controller:
    return Controller(method, DIM, SCHEDULE, ROUNDS)


def shape(t: int) -> float:
    return gf.GammaFedHT().threshold(SCHEDULE.moment(t))


def observe(level: Controller, t: int, *uploads: tuple[float, float | None]) -> None:
    level.observe(SCHEDULE.moment(t, level.scale), [Sent(kept, Report(smallest)) for kept, smallest in uploads])


def warmed_up(scale: float = 0.5) -> Controller:
    level = controller()
    for t in (1, 2, 3):
        observe(level, t, (0.01, scale * shape(t)))
    return level


def test_the_warm_up_ends_with_the_median_of_what_uploads_had_as_threshold() -> None:
    level = controller()
    for t, sizes in enumerate([(1.0, 7.0), (2.0, 6.0), (3.0,)], start=1):
        assert level.scale == 0
        observe(level, t, *((0.01, size * shape(t)) for size in sizes))
    assert level.scale == pytest.approx(3.0)


def test_a_warm_up_without_a_word_goes_on() -> None:
    """As where all updates are zero: nobody knows the scale."""
    level = controller()
    for t in range(1, 10):
        observe(level, t, (0.0, None), (0.0, 0.0))
    assert level.scale == 0
    observe(level, 10, (0.01, shape(10)))
    assert level.scale == pytest.approx(1.0)


def test_uploads_in_the_warm_up_keep_what_is_planned_and_later_ones_what_exceeds_the_threshold() -> None:
    vector = optimiser_like("sgd", DIM, 0)
    assert len(METHOD(vector, SCHEDULE.moment(3, scale=0.0))) == 10
    moment = SCHEDULE.moment(5, scale=0.002)
    assert METHOD(vector, moment) == gf.GammaFedHT(0.002)(vector, SCHEDULE.moment(5))
    assert len(METHOD(vector)) == 10  # alone it is a run of one upload


@given(st.lists(st.floats(0, 1), max_size=12), st.integers(4, 40))
def test_one_round_moves_the_scale_by_a_small_factor_towards_the_plan(kept: list[float], t: int) -> None:
    level = warmed_up()
    before = level.scale
    observe(level, t, *((one, None) for one in kept))
    factor = level.scale / before
    assert FACTOR**-EXPONENT * (1 - 1e-9) <= factor <= FACTOR**EXPONENT * (1 + 1e-9)
    if kept and min(kept) > 0.01:
        assert factor > 1
    if kept and max(kept) < 0.01:
        assert factor < 1


@given(st.lists(st.floats(0, 1e38), min_size=4, max_size=4), st.permutations(range(9)))
def test_fewer_than_half_of_the_clients_cant_take_the_scale_beyond_what_the_others_say(
    lies: list[float], order: list[int]
) -> None:
    honest = [0.4, 0.5, 0.6, 0.7, 0.8]
    told = [*honest, *lies]
    level = controller(gf.Method(gf.HardThreshold(), level=gf.RunLevel(0.01, warmup=1)))
    observe(level, 1, *((0.01, told[i]) for i in order))
    assert min(honest) <= level.scale <= max(honest)


def test_one_client_that_sends_everything_moves_the_scale_no_more_than_one_that_sends_four_times_the_plan() -> None:
    everything, much = warmed_up(), warmed_up()
    observe(everything, 4, (1.0, None), (0.01, None), (0.01, None))
    observe(much, 4, (0.04, None), (0.01, None), (0.01, None))
    assert everything.state() == much.state()


HOSTILE = {
    "everything": (1.0, 80_000),
    "everything in few bytes": (1.0, 300),
    "nothing": (0.0, 20),
    "bytes": (1e-4, 80_000),
}
"""What one client in five sends in each round: the kept fraction of 20,000 entries, and bytes."""


@pytest.mark.parametrize("sent", HOSTILE)
@pytest.mark.parametrize("target", ["keep", "bytes", "bytes at level run"])
def test_one_hostile_client_in_five_leaves_the_others_about_five_eighths_to_five_fourths_of_the_plan(
    target: str, sent: str
) -> None:
    """h of the clients that count four times the others leave them 1/(1 + 3h), and 1/(1 − h) if they send nothing."""
    dim, rounds, (kept, size) = 20_000, 1000, HOSTILE[sent]
    method = gf.top_k(keep=0.01) if target == "bytes" else gf.gamma_fedht(keep=0.01, level="run")
    schedule, form = gf.Schedule(0.1, rounds), MessageForm(dim)
    plan = 600 if "bytes" in target else 0.01
    budget = Allowance(5 * rounds * 600, [1.0] * rounds, form, 5) if "bytes" in target else None
    level = Controller(method, dim, schedule, rounds, budget)
    others: list[float] = []
    for t in range(1, rounds + 1):
        told = 0.01 if level.scale == 0 else 0.01 * level.scale**-2.0  # fewer entries exceed a higher threshold
        one = told if level.keep is None else level.keep
        honest = Sent(min(one, 1.0), Report(1.0), form.smallest + round(3 * one * dim))
        others.append(honest.payload_bytes if "bytes" in target else honest.kept)
        level.observe(schedule.moment(t, level.scale), [*[honest] * 4, Sent(kept, Report(1.0), size)])
    share = float(np.mean(others)) / plan
    assert 1 / (1 + 3 / 5) - 0.03 < share < 1 / (1 - 1 / 5) + 0.03


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "0.5", True])
def test_a_report_that_is_no_size_is_refused_with_its_upload(bad: Any) -> None:
    who = {"name": "a", "incarnation": "b", "round": 1}
    for field in ("smallest", "update_size", "residual_size"):
        with pytest.raises(ValueError, match=field):
            Answer.model_validate({**who, field: bad})


@given(st.integers(1, 12), st.lists(st.floats(0, 0.5), min_size=14, max_size=14))
def test_a_controller_goes_on_from_its_stored_state(when: int, kept: list[float]) -> None:
    whole, first, second = controller(), controller(), controller()
    for t, one in enumerate(kept, start=1):
        observe(whole, t, (one, 0.1 + one), (0.01, None))
        observe(first if t <= when else second, t, (one, 0.1 + one), (0.01, None))
        if t == when:
            second.restore(json.loads(json.dumps(first.state())))
    assert second.state() == whole.state()


@pytest.mark.parametrize(
    "bad",
    [
        None, {}, {"scale": -1.0}, {"scale": math.nan}, {"scale": "1"}, {"scale": 1.0, "more": 1},
        {"scale": 1.0, "found": [-1.0]},
    ],
)  # fmt: skip
def test_a_state_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(gf.InputError, match="the stored level"):
        controller().restore(bad)


@pytest.mark.parametrize("name", METHODS)
def test_at_other_levels_there_is_nothing_to_steer_and_nothing_to_remember(name: str) -> None:
    level = controller(METHODS[name])
    before = level.scale
    observe(level, 1, (0.9, 5.0))
    assert (level.scale, level.state()) == (before, None)
    level.restore(None)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: gf.RunLevel(0.01, warmup=0), "warmup must be a whole number"),
        (lambda: gf.RunLevel(2.0), "keep, the kept fraction"),
        (lambda: gf.Method(gf.HardThreshold(2.0), level=gf.RunLevel(0.1)), "value has no effect at level 'run'"),
        (lambda: gf.Method(gf.TopK(3), level=gf.RunLevel(0.1)), "TopK has no threshold"),
        (lambda: gf.gamma_fedht(level="run", profile="gamma"), "profile has no effect at level 'run'"),
    ],
)
def test_what_has_no_meaning_is_refused(make: Any, named: str) -> None:
    with pytest.raises(gf.InputError, match=named):
        make()


def logistic(method: str, **settings: Any) -> Any:
    return make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "method": method}, settings)


@pytest.mark.parametrize("method", ["gamma-fedht:level=run", "gamma-fedht-q:level=run,alpha=2", "ht:level=run"])
def test_a_run_of_400_rounds_keeps_what_was_planned(method: str, tmp_path: Path) -> None:
    summary = execute(logistic(method, evaluation={"every": 400}), tmp_path / "run")
    assert summary.kept_fraction == pytest.approx(0.01, rel=0.05)


def test_a_resumed_run_ends_with_the_same_bytes_whether_it_was_stopped_in_the_warm_up_or_later(tmp_path: Path) -> None:
    class StopHereError(Exception):
        pass

    class Stopping:
        def __init__(self, when: int) -> None:
            self.when = when

        def say(self, text: str) -> None: ...

        def update(self, status: Any) -> None:
            if status.round == self.when:
                raise StopHereError

    config = logistic("gamma-fedht:level=run", iterations=200, checkpoint={"every_seconds": 0})
    whole = execute(config, tmp_path / "whole")
    for when in (7, 20, 33):
        path = tmp_path / str(when)
        with pytest.raises(StopHereError):
            execute(config, path, progress=Stopping(when))
        assert repeatable(execute(config, path, resume=True).table()) == repeatable(whole.table())
        for file in ("rounds.jsonl", "model.safetensors"):
            assert (path / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_server_warms_up_steers_and_goes_on_from_its_state() -> None:
    method = gf.Method(gf.GammaFedHT(), values=gf.Ternary(), level=gf.RunLevel(0.02, warmup=3))
    server = gf.Server(method, SCHEDULE, like=DIM)
    clients = [gf.Client(name, method, like=DIM) for name in "abc"]
    model, kept, scales = np.zeros(DIM, np.float32), [], []
    for t in range(8):
        offers = {client.name: server.offer(client.name) for client in clients}
        scales.append(offers["a"].scale)
        for number, client in enumerate(clients):
            after = model - optimiser_like("sgd", DIM, 10 * t + number)
            server.accept(client.name, client.encode(model, after, offers[client.name]))
        kept.append(server.step(model).kept)
        other = gf.Server(method, SCHEDULE, like=DIM)
        other.load_state_dict(json.loads(json.dumps(server.state_dict())))
        server = other
    assert scales[:3] == [0.0] * 3
    assert min(scales[3:]) > 0
    assert len(set(scales[3:])) == 5  # steered after every round
    assert kept[:3] == [60] * 3


def test_reports_are_of_values_before_they_are_rounded() -> None:
    """γ-FedHT-Q sends ±μ, the mean of what it keeps; its level is the smallest."""
    plain, rounded = (
        gf.Method(gf.HardThreshold(), values=values, level=gf.RunLevel(0.1, warmup=1))
        for values in (gf.Exact(), gf.Ternary())
    )
    offers, vector = {}, optimiser_like("sgd", DIM, 3)
    for method in (plain, rounded):
        server, client = gf.Server(method, SCHEDULE, like=DIM), gf.Client("a", method, like=DIM)
        server.accept("a", client.encode(np.zeros(DIM, np.float32), -vector, server.offer("a")))
        server.step(np.zeros(DIM, np.float32))
        offers[method] = server.offer("a").scale
    smallest = np.sort(np.abs(vector))[-100]
    assert offers[plain] == smallest
    assert offers[rounded] == pytest.approx(smallest, rel=1e-6)


def test_a_simulated_run_knows_its_level_afterwards() -> None:
    state, _, records = run(plan_for(gf.Method(gf.HardThreshold(), level=gf.RunLevel(0.1, warmup=4))))
    assert state.level is not None
    assert state.level["scale"] > 0
    assert [record.kept for record in records[:4]] == [10] * 4
