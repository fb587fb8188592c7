"""What is wrong with a training is said once, with what helps."""

import json
import logging
from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.layout import Layout
from gammafl.federated.client import SIZED, Outbox, Report
from gammafl.federated.health import FIRST, REPORTS, Health
from gammafl.federated.level import Sent
from gammafl.federated.task import LocalUpdate
from tests.core.test_largest import optimiser_like
from tests.problems import METHODS, plan_for, run

LAYOUT = Layout.of({"weights": (1000,)}, {"statistics": (50,)})
MOMENT = gf.Moment(layout=LAYOUT)
TOP = gf.top_k(keep=0.01)
RUN = gf.gamma_fedht(keep=0.01, level="run")


def looks(method: gf.Method, *rounds: list[Sent]) -> list[str]:
    """All warnings over these rounds."""
    health = Health(method, LAYOUT)
    return [warning for uploads in rounds for warning in health.look(MOMENT, uploads)]


def sized(ratio: float) -> Sent:
    return Sent(0.01, Report(None, 2.0, 2.0 * ratio))


GOOD: dict[str, list[list[Sent]]] = {
    "nothing at all": [[], []],
    "as planned": [[Sent(0.01)] * 5] * 20,
    "within a factor of two": [[Sent(0.0055)] * 5, [Sent(0.0195)] * 5] * 10,
    "too early to say": [[Sent(0.5)] * (FIRST - 1)],
    "one empty upload beside others": [[Sent(0.0), Sent(0.011), Sent(0.011), Sent(0.011)]] * 20,
    "large residuals at a small keep": [[sized(190.0)] * REPORTS],
    "one client that hardly moves": [[sized(1e9), *[sized(5.0)] * (REPORTS - 1)]],
}
BAD: dict[str, tuple[gf.Method, list[list[Sent]], str]] = {
    "empty below a threshold": (gf.hard_threshold(threshold=1.0), [[Sent(0.0)] * 3] * 4, 'use level="upload"'),
    "empty since updates are zero": (TOP, [[Sent(0.0)] * 3], "does the training change the model"),
    "too much": (RUN, [[Sent(0.021)] * FIRST] * 3, "keep 2.10% of the entries on average, but 1.00% are planned"),
    "too little": (TOP, [[Sent(0.004)] * FIRST] * 3, "a smaller keep"),
    "old residuals": (TOP, [[sized(250.0)] * REPORTS] * 3, "residuals are 250 times as large as an update"),
}


@pytest.mark.parametrize("rounds", GOOD.values(), ids=GOOD)
def test_a_training_that_is_well_gets_no_warning(rounds: list[list[Sent]]) -> None:
    assert looks(TOP, *rounds) == []


@pytest.mark.parametrize(("method", "rounds", "text"), BAD.values(), ids=BAD)
def test_each_thing_that_is_wrong_is_said_once_with_what_helps(
    method: gf.Method, rounds: list[list[Sent]], text: str
) -> None:
    found = looks(method, *rounds)
    assert len(found) == 1
    assert text in found[0]
    assert "\n" not in found[0]


def test_without_a_plan_nothing_is_off_the_plan() -> None:
    assert looks(gf.gamma_fedht(level="paper"), *[[Sent(0.3)] * FIRST] * 5) == []


def test_a_plan_of_less_than_one_entry_is_one_entry() -> None:
    health = Health(gf.gamma_fedht(keep=0.001), Layout.flat(100))
    assert health.look(gf.Moment(), [Sent(0.01)] * 2 * FIRST) == []


def test_what_limits_do_not_allow_is_not_planned() -> None:
    """Of 1,050 elements 50 are sent whole."""
    health = Health(gf.fedavg(), LAYOUT, gf.Limits(entries=150))
    assert health.look(MOMENT, [Sent(0.1)] * 2 * FIRST) == []
    assert health.look(MOMENT, [Sent(0.02)] * 20 * FIRST) != []


@pytest.mark.parametrize("when", [0, 1, 2, 3])
def test_what_was_said_is_not_said_again_after_a_restart(when: int) -> None:
    rounds = [[Sent(0.03)] * FIRST, [Sent(0.03)] * FIRST, [sized(500.0)] * REPORTS, [Sent(0.0)] * 3]
    health, warnings = Health(RUN, LAYOUT), []
    for number, uploads in enumerate(rounds):
        if number == when:
            restarted = Health(RUN, LAYOUT)
            restarted.restore(json.loads(json.dumps(health.state())))
            health = restarted
        warnings += health.look(MOMENT, uploads)
    assert warnings == looks(RUN, *rounds)
    assert len(warnings) == 3


@pytest.mark.parametrize("bad", [{"uploads": -1}, {"kept": "1"}, {"more": 1}, {"said": [1]}])
def test_a_state_that_is_none_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match="state of health"):
        Health(TOP, LAYOUT).restore(bad)


def test_the_simulator_writes_the_warning_into_the_record_of_its_round() -> None:
    records = run(plan_for(gf.hard_threshold(threshold=1e6)))[2]
    assert "empty" in records[0].warnings[0]
    assert not any(record.warnings for record in records[1:])


@pytest.mark.parametrize("name", METHODS)
def test_healthy_runs_have_no_warnings(name: str) -> None:
    assert not any(record.warnings for record in run(plan_for(METHODS[name]))[2])


def test_a_server_says_it_in_its_record_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    method, dim = gf.hard_threshold(threshold=1e6), 100
    server, client = gf.Server(method, gf.Schedule(0.1, 10), like=dim), gf.Client("a", method, like=dim)
    model, warnings = np.zeros(dim, np.float32), []
    with caplog.at_level(logging.WARNING):
        for t in range(3):
            server.accept("a", client.encode(model, model - optimiser_like("sgd", dim, t), server.offer("a")))
            warnings.append(server.step(model).warnings)
    assert ["empty" in said[0] for said in warnings[:1]] == [True]
    assert warnings[1:] == [[], []]
    assert "empty" in caplog.text


def test_sizes_are_told_now_and_then_and_are_about_right() -> None:
    method, dim = gf.top_k(keep=0.01), 20_000
    outbox, told = Outbox(method.memory.client(method, dim)), 0
    for key in range(40):
        outbox.settle(outbox.number)
        delta = optimiser_like("adamw", dim, key)
        outbox.send(LocalUpdate(delta, 0.0), gf.Moment(key=key))
        report, residual = outbox.report, outbox.memory.state()["residual"]
        if report.update_size is not None and report.residual_size is not None:
            told += 1
            assert report.update_size == pytest.approx(np.sqrt(np.mean(delta**2)), rel=0.1)
            assert report.residual_size == pytest.approx(np.sqrt(np.mean(residual**2)), rel=0.1)
    assert told == 40 // SIZED
