"""Clients and networks that fail: nothing that was computed is lost, and nothing counts twice."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gammafl as gf
from gammafl import seeds
from gammafl.config.layers import make_config
from gammafl.config.schema import Faults
from gammafl.core.arrays import Vector
from gammafl.federated import rounds, server
from gammafl.federated.client import Upload
from gammafl.federated.downlink import Downlink
from gammafl.federated.faults import carrier, draw
from gammafl.federated.in_process import InProcess
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.task import LocalUpdate
from gammafl.runs.execute import execute
from gammafl.tasks.registry import settings_of
from tests.conftest import repeatable
from tests.problems import METHODS, Quadratic, StoppedError, StoppingAt, plan_for

KINDS = ("absent", "killed", "lost", "late", "repeated", "corrupted", "not_finite")
ALL_KINDS = Faults(**dict.fromkeys(KINDS, 0.3 / len(KINDS)))
EXACT = [name for name in METHODS if name not in ("stc", "gamma-fedht-q")]


class Dyadic(Quadratic):
    """Updates that are multiples of 1/64, so that sums in float32 are exact."""

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        for client, rng in zip(clients, rngs, strict=True):
            delta = (rng.integers(-32, 33, model.size) / 64).astype(np.float32)
            self.deltas.append((client, delta))
            yield LocalUpdate(delta, 0.0)


def run(plan: Plan) -> tuple[ResidualStore, list[RoundRecord], NDArray[np.float64]]:
    """The clients' residuals, the records, and what the server counted of each client."""
    residuals, state = ResidualStore(plan.method, plan.dim), rounds.start(plan)
    counted = np.zeros((plan.clients, plan.dim))
    apply = server.apply

    def apply_and_count(state: Any, accepted: Any, weights: Any, *rest: Any) -> None:
        for upload, update in accepted:
            counted[upload.client] += update.dense()
        apply(state, accepted, weights, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "apply", apply_and_count)
        records = list(rounds.run_rounds(plan, state, carrier(plan, residuals)))
    return residuals, records, counted


def computed(plan: Plan, records: Sequence[RoundRecord]) -> NDArray[np.float64]:
    """What each client computed, without what was spoilt on purpose."""
    sums, deltas = np.zeros((plan.clients, plan.dim)), iter(plan.task.deltas)  # type: ignore[attr-defined]
    for number, record in enumerate(records):
        drawn = draw(plan.faults, plan.participants, seeds.generator(plan.seed, "faults", number))
        fates = dict(zip(record.participants, drawn, strict=True))
        present = {client for client, fate in fates.items() if fate != "absent"}
        for client, delta in sorted(islice(deltas, len(present)), key=itemgetter(0)):
            present.remove(client)  # each trained once
            sums[client] += delta if fates[client] != "not_finite" else 0
    return sums


@pytest.mark.parametrize("faults", [ALL_KINDS, *(Faults(**{kind: 0.6}) for kind in KINDS)], ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_what_was_computed_is_counted_once_or_remembered_exactly(name: str, faults: Faults) -> None:
    plan = plan_for(METHODS[name], Dyadic(), faults=faults)
    residuals, records, counted = run(plan)
    remembered = np.array([residuals.residual(client) for client in range(4)], np.float64)
    assert np.array_equal(counted + remembered, computed(plan, records))


@pytest.mark.parametrize("name", ["stc", "gamma-fedht-q"])
def test_with_rounded_values_it_is_so_up_to_the_roundings(name: str) -> None:
    plan = plan_for(METHODS[name], Dyadic(), faults=ALL_KINDS)
    residuals, records, counted = run(plan)
    remembered = np.array([residuals.residual(client) for client in range(4)], np.float64)
    np.testing.assert_allclose(counted + remembered, computed(plan, records), atol=1e-4)


def test_an_update_counts_the_same_whoever_else_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is the first one minus what was counted of each client, times (n/|S|)·p_i, S being those picked."""
    plan, states, apply = plan_for(METHODS["top-k"], Dyadic(), faults=ALL_KINDS), [], server.apply

    def apply_and_look(state: server.ServerState, accepted: Any, weights: Any, *rest: Any) -> None:
        apply(state, accepted, weights, *rest)
        states.append(state)

    monkeypatch.setattr(server, "apply", apply_and_look)
    _, records, counted = run(plan)
    assert any(record.missing for record in records)
    shares = np.array(plan.task.client_sizes) / plan.samples
    expected = rounds.start(plan).model - plan.clients / plan.participants * shares @ counted
    np.testing.assert_allclose(states[-1].model, expected, rtol=1e-5, atol=1e-5)


def test_a_client_that_lost_an_upload_trains_on_from_it() -> None:
    """A single client, everything sent: it computes what it would compute without losses, and never the same twice."""
    whole, lossy = Quadratic((10,)), Quadratic((10,))
    run(plan_for(METHODS["fedavg"], whole, participants=1))
    _, records, _ = run(plan_for(METHODS["fedavg"], lossy, participants=1, faults=Faults(lost=0.2, corrupted=0.2)))
    assert any(record.missing for record in records)
    got, expected = ([delta for _, delta in task.deltas] for task in (lossy, whole))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_without_confirmation_updates_are_lost() -> None:
    plan = plan_for(METHODS["top-k"], Dyadic(), faults=ALL_KINDS.model_copy(update={"confirmed": False}))
    residuals, records, counted = run(plan)
    remembered = np.array([residuals.residual(client) for client in range(4)], np.float64)
    assert np.abs(counted + remembered - computed(plan, records)).max() > 0.1


def test_faults_happen_as_often_as_they_are_asked_for() -> None:
    drawn = Counter(draw(ALL_KINDS, 20_000, np.random.default_rng(0)))
    for kind in KINDS:
        expected = 20_000 * 0.3 / len(KINDS)
        assert abs(drawn[kind] - expected) < 6 * expected**0.5


def test_records_say_how_many_uploads_did_not_count_and_why() -> None:
    plan = plan_for(METHODS["top-k"], faults=Faults(corrupted=0.5))
    _, records, _ = run(plan)
    missing = sum(record.missing for record in records)
    assert missing == sum(len(record.refused) for record in records) > 0
    assert any("checksum" in reason for record in records for reason in record.refused.values())


def test_a_round_in_which_nobody_answers_leaves_the_model() -> None:
    plan = plan_for(METHODS["top-k"], faults=Faults(lost=1.0))
    state = rounds.start(plan)
    before = state.model.copy()
    records = list(rounds.run_rounds(plan, state, carrier(plan, ResidualStore(plan.method, plan.dim))))
    assert np.array_equal(state.model, before)
    assert state.round == plan.rounds
    assert {record.missing for record in records} == {plan.participants}


def test_within_its_limits_a_client_sends_what_it_may_and_keeps_the_rest() -> None:
    plan = plan_for(METHODS["fedavg"], Dyadic(), upload_limits=Limits(entries=4))
    residuals, records, counted = run(plan)
    assert all(record.kept == 4 * plan.participants and not record.refused for record in records)
    remembered = np.array([residuals.residual(client) for client in range(4)], np.float64)
    assert np.array_equal(counted + remembered, computed(plan, records))


@pytest.mark.parametrize(
    ("faults", "why"),
    [({"lost": 1.0}, "none arrived"), ({"corrupted": 1.0}, "all were refused, the last because")],
)
def test_a_run_in_which_no_upload_counted_is_no_success(faults: dict[str, float], why: str, tmp_path: Path) -> None:
    settings = {"faults": faults, "iterations": 20}
    config = make_config(settings_of("logistic-mini"), {"task": "logistic-mini"}, settings)
    for resume in (False, True):
        with pytest.raises(gf.InputError, match=f"no upload counted in 4 rounds.*{why}"):
            execute(config, tmp_path / "run", resume=resume)
    assert not (tmp_path / "run/summary.json").exists()
    assert not (tmp_path / "run/model.safetensors").exists()


def test_a_run_with_faults_is_a_function_of_its_seed_and_resumes(tmp_path: Path) -> None:
    settings = {"faults": dict.fromkeys(KINDS, 0.04), "iterations": 60, "method": "fedavg"}
    config = make_config(settings_of("logistic-mini"), {"task": "logistic-mini"}, settings)
    whole = execute(config, tmp_path / "whole")
    assert whole.missing_uploads > 0

    often = make_config(config.model_dump(), {"checkpoint": {"every_seconds": 0}})
    with pytest.raises(StoppedError):
        execute(often, tmp_path / "stopped", progress=StoppingAt(7))
    resumed = execute(often, tmp_path / "stopped", resume=True)
    assert repeatable(resumed.table()) == repeatable(whole.table())
    assert (tmp_path / "stopped/rounds.jsonl").read_bytes() == (tmp_path / "whole/rounds.jsonl").read_bytes()


def test_the_training_loss_counts_each_client_once() -> None:
    losses = [1.0, 5.0]

    class Repeats(InProcess):
        def exchange(
            self,
            participants: Sequence[int],
            downlink: Downlink,
            round_number: int,
            moment: gf.Moment,
            most: Limits = NO_LIMITS,
        ) -> Iterator[Upload]:
            first, second = super().exchange(participants, downlink, round_number, moment)
            yield from [first._replace(loss=losses[0])] * 2 + [second._replace(loss=losses[1])]

    plan = replace(plan_for(METHODS["ht"]), participants=2)
    records = rounds.run_rounds(plan, rounds.start(plan), Repeats(plan, ResidualStore(plan.method, plan.dim)))
    assert next(records).train_loss == 3.0


def test_shares_that_add_up_to_more_than_one_are_refused() -> None:
    with pytest.raises(gf.InputError, match="add up to at most 1"):
        make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "faults": {"lost": 0.6, "late": 0.6}})
