"""What every registered method must be able to do, also at the ends of its ranges; a new one joins by its registration.

Hostile vectors, conservation and the wire are in tests/core/test_compressors.py, test_error_feedback.py and
test_numbers.py, which go through all of them too.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.core import kernels, sums, threads
from gammafl.core.arrays import Vector
from gammafl.core.moment import key_of
from gammafl.federated import exchange, in_process, rounds
from gammafl.methods.description import build, describe
from gammafl.methods.registry import OURS, entry_named, method_named
from gammafl.runs.execute import execute
from tests import problems
from tests.conftest import repeatable, vectors
from tests.core.test_compressors import HOSTILE
from tests.flower.problem import run as run_flower
from tests.methods.catalogue import NAMES, REGISTERED
from tests.methods.proofs import reference_tests
from tests.problems import Quadratic, StoppedError, StoppingAt, plan_for

every_method = pytest.mark.parametrize("expression", REGISTERED)
every_name = pytest.mark.parametrize("name", NAMES)
EPSILON = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize("name", OURS)
def test_every_method_of_ours_has_a_whole_card_and_a_reference(name: str) -> None:
    entry = entry_named(name)
    assert all((entry.what, entry.cost, entry.state, entry.promise, entry.tuned, entry.citation))
    assert name in reference_tests()
    for key, values in entry.ranges.items():
        assert len(values) > 1
        for value in values:
            entry.make({key: value})
    if "keep" in entry.parameters:
        assert next(iter(entry.ranges)) == "keep"


# --- what a method declares -------------------------------------------------------------------------------

DECLARED = [expression for expression in REGISTERED if entry_named(expression).promise]
PROMISED: dict[str, Vector] = {
    **{name: vector for name, vector in HOSTILE.items() if 0 < np.abs(vector).max(initial=0) < 1e15},
    "laplace": np.random.default_rng(4).laplace(size=3000).astype(np.float32),
}
DRAWS = 2000
UNSEEN = 7
"""What has a probability of so many in n may well not happen in n draws: once in e⁷."""


@pytest.mark.parametrize("expression", DECLARED)
@pytest.mark.parametrize("vector", PROMISED.values(), ids=PROMISED)
def test_the_error_is_at_most_what_the_card_says(expression: str, vector: Vector) -> None:
    """‖C(v) − v‖² ≤ (1 − δ)·‖v‖², or what else is declared; of a random method on average over its draws."""
    method, promise = REGISTERED[expression], entry_named(expression).promise
    assert promise is not None
    whole = vector.astype(np.float64)
    draws = 1 if promise.mean is None else 200
    errors = [np.square(_sent(method, vector, key_of(key)) - whole).sum() for key in range(draws)]
    luck = 5 * np.std(errors) / np.sqrt(draws) + UNSEEN / draws * max(errors) * (draws > 1)
    assert np.mean(errors) <= promise.error(method, vector) + luck + 1e-5 * np.square(whole).sum()


@pytest.mark.parametrize("expression", [e for e in DECLARED if entry_named(e).promise.mean is not None])  # type: ignore[union-attr]
@pytest.mark.parametrize("vector", [HOSTILE["normal"], HOSTILE["heavy tails"][:300]], ids=["normal", "heavy tails"])
def test_a_random_method_is_right_on_average(expression: str, vector: Vector) -> None:
    """Each entry within six standard errors, from as many draws."""
    method, promise = REGISTERED[expression], entry_named(expression).promise
    assert promise is not None
    assert promise.mean is not None
    draws = np.array([_sent(method, vector, key_of(key)) for key in range(DRAWS)])
    off = np.abs(draws.mean(0) - promise.mean(method, vector))
    largest = np.abs(draws).max()
    spread = np.sqrt(np.maximum(draws.var(0), largest**2 / DRAWS))  # what was never drawn may be drawn once
    assert (off <= 6 * spread / np.sqrt(DRAWS)).all()


def _sent(method: gf.Method, vector: Vector, key: int) -> Any:
    return method(vector, moment_of(method, vector.size, key)).dense().astype(np.float64)


def moment_of(method: gf.Method, dim: int, key: int = 0, **changes: Any) -> gf.Moment:
    """The only upload of a run, of a model of one tensor."""
    schedule = gf.Schedule(1.0, iterations=1)
    return schedule.moment(1, method.scale(dim, schedule), gf.Layout.flat(dim), key, **changes)


# --- one vector -------------------------------------------------------------------------------------------


@every_method
def test_what_is_not_finite_is_refused_and_changes_nothing(expression: str) -> None:
    method, (first, second) = REGISTERED[expression], vectors(2, 70)
    memory = method.memory.client(method, 70)
    memory.propose(first, moment_of(method, 70))
    before = {name: tensor.copy() for name, tensor in memory.state().items()}
    second[33] = np.nan
    with pytest.raises(gf.DivergedError, match="at position 33 of 70"):
        memory.propose(second, moment_of(method, 70))
    after = memory.state()
    assert {name: tensor.tobytes() for name, tensor in after.items()} == {n: t.tobytes() for n, t in before.items()}


@every_method
def test_an_accepted_message_encodes_to_the_same_bytes(expression: str) -> None:
    for vector in HOSTILE.values():
        message = gf.encode(REGISTERED[expression](vector, moment_of(REGISTERED[expression], max(1, vector.size))))
        assert gf.encode(gf.decode(message)) == message


@every_method
def test_one_thread_and_several_send_the_same(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SLICE_AT_LEAST", 1000)
    monkeypatch.setattr(sums, "SLICE_AT_LEAST", 1000)
    monkeypatch.setattr(sums, "PIECE", 512)
    method, deltas = REGISTERED[expression], vectors(3, 20_011)
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "_count", count)
        memory = method.memory.client(method, 20_011)
        sent = [gf.encode(memory.propose(delta, moment_of(method, 20_011, key=5))) for delta in deltas]
        found.append((sent, {name: tensor.tobytes() for name, tensor in memory.state().items()}))
    assert found[0] == found[1] == found[2]


@every_method
def test_a_key_and_a_vector_fix_what_is_sent(expression: str) -> None:
    method, (vector,) = REGISTERED[expression], vectors(1, 3000)
    once, again, other = (method(vector, moment_of(method, 3000, key)) for key in (7, 7, 8))
    assert once == again
    promise = entry_named(expression).promise
    assert promise is None or promise.mean is None or once != other


@every_method
def test_the_other_side_builds_the_same_method(expression: str) -> None:
    method = REGISTERED[expression]
    assert build(describe(method)) == method
    assert str(method_named(str(method))) == str(method)


FOLLOWING = [expression for expression, method in REGISTERED.items() if method.compressor.follows_keep]
WITHIN = 0.2
"""Of a method that fits a distribution; the others are exact."""


@pytest.mark.parametrize("expression", FOLLOWING)
def test_a_method_that_follows_a_budget_keeps_what_it_is_told(expression: str) -> None:
    vector, method = np.random.default_rng(6).laplace(size=40_000).astype(np.float32), REGISTERED[expression]
    counts = [len(method(vector, moment_of(method, 40_000, keep=keep))) for keep in (0.002, 0.01, 0.05)]
    assert counts == pytest.approx([80, 400, 2000], rel=WITHIN if "sidco" in expression else 0)


@pytest.mark.parametrize("name", [name for name in NAMES if "keep" in entry_named(name).ranges])
def test_a_larger_keep_keeps_more_and_about_as_many_as_it_says(name: str) -> None:
    (vector,), kept = vectors(1, 40_000), []
    for keep in map(float, entry_named(name).ranges["keep"]):  # type: ignore[arg-type]
        method = method_named(name, {"keep": keep})
        moment = moment_of(method, 40_000)
        kept.append(len(method(vector, moment)))
        planned = method.planned(moment)
        assert planned == keep
        assert moment.scale == 0 or kept[-1] == pytest.approx(keep * 40_000, rel=WITHIN)
    assert all(less < more for less, more in pairwise(kept))


# --- whole runs -------------------------------------------------------------------------------------------


@every_name
def test_a_run_that_is_stopped_and_resumed_ends_as_one_left_alone(name: str, tmp_path: Path) -> None:
    settings = {"task": "logistic-mini", "method": name, "iterations": 30, "keep": 0.02, "evaluation": {"every": 6}}
    config = make_config(settings, {"checkpoint": {"every_seconds": 0}})
    execute(config, tmp_path / "whole")
    with pytest.raises(StoppedError):
        execute(config, tmp_path / "stopped", progress=StoppingAt(4))
    execute(config, tmp_path / "stopped", resume=True)
    for file in ("model.safetensors", "rounds.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "stopped" / file).read_bytes()
    ends = [json.loads((tmp_path / run / "summary.json").read_text()) for run in ("whole", "stopped")]
    assert repeatable(ends[0]) == repeatable(ends[1])


@every_name
def test_flower_and_the_simulator_end_with_equal_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are by incarnation there and by seed here, so that random methods are given the same; clients are equal,
    since over Flower nobody knows their shares before."""
    monkeypatch.setattr(exchange, "key_of", lambda incarnation, number: key_of(number))
    monkeypatch.setattr(in_process, "key_of", _key_of_round)
    method, task = method_named(name, keep=0.1), Quadratic((25, 25, 25, 25))
    state, _, records = problems.run(plan_for(method, task, weights="normalized", iterations=150))
    strategy, _, model = run_flower(tmp_path, 30, Quadratic((25, 25, 25, 25)), method=method)
    assert model.tobytes() == state.model.tobytes()
    assert [record["uplink_bytes"] for record in strategy.history] == [record.uplink_bytes for record in records]


def _key_of_round(*numbers: int, key: int = 0) -> int:
    """(seed, round) → the key of the round, and the same for all clients."""
    return key_of(numbers[1] + 1) if len(numbers) > 1 else key


@every_name
def test_every_method_learns(name: str) -> None:
    """Of the distance to the optimum at least a third is gone; with half of the entries no method is too slow."""
    plan = plan_for(method_named(name, keep=0.5), participants=4)
    last = problems.run(plan)[2][-1].metric
    assert last is not None
    assert last < 0.67 * plan.task.evaluate(rounds.start(plan).model).metric


@pytest.mark.parametrize("name", [name for name in NAMES if type(method_named(name).memory) is gf.ErrorFeedback])
def test_with_error_feedback_what_was_computed_was_sent_or_is_remembered(name: str) -> None:
    """Over a whole run in the simulator: Σ updates = Σ sent + residual, up to float32's roundings."""
    task = Quadratic()
    plan = plan_for(method_named(name, keep=0.1), task, weights="normalized", participants=1)
    start = rounds.start(plan).model
    state, residuals, _ = problems.run(plan)
    computed = sum(delta.astype(np.float64) for _, delta in task.deltas)
    left = sum(residuals.residual(client).astype(np.float64) for client in range(4))
    sent = start.astype(np.float64) - state.model
    size = sum(np.abs(delta) for _, delta in task.deltas) + np.abs(start)
    assert (np.abs(computed - sent - left) <= 8 * EPSILON * size).all()
