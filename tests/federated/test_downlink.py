"""The way down: whoever holds a view holds the server's, bit for bit, and gets there by the shortest way."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl import seeds
from gammafl.config.layers import make_config
from gammafl.core.arrays import Vector
from gammafl.federated import rounds
from gammafl.federated.downlink import Delivery, Downlink, ViewState, received, whole_bytes
from gammafl.federated.faults import carrier
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.server import ServerState
from gammafl.methods.ways import Way
from gammafl.runs.execute import execute
from gammafl.tasks.registry import settings_of
from tests import problems
from tests.conftest import repeatable
from tests.problems import METHODS, Quadratic, StoppedError, StoppingAt, plan_for

DIM = 3000
WAYS: dict[str, Way] = {
    "changes": "changes",
    "fedavg": gf.fedavg(),
    "top-k": gf.top_k(keep=0.01),
    "stc": gf.stc(keep=0.02),
    "γ-FedHT-Q": gf.gamma_fedht_q(keep=0.02),
    "rounded": gf.gamma_fedht(keep=0.3, values="f16"),
}
METHODS_DOWN = {name: way for name, way in WAYS.items() if way != "changes"}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def walk(rng: np.random.Generator, model: Vector) -> None:
    """A round's step of the model: some places, some far."""
    places = rng.integers(0, DIM, rng.choice([0, 3, 40, 900]))
    model[places] += rng.standard_normal(len(places)).astype(np.float32) * np.float32(rng.choice([1e-3, 1.0, 1e4]))


def after(view: Vector | None, delivery: Delivery, server: Downlink) -> Vector:
    """What a client holds after a delivery; a whole view comes as it is."""
    if delivery.kind == "whole":
        return server.view.copy()
    assert view is not None, "it builds on a view that the client does not have"
    return received(view, delivery)


@every_way
@pytest.mark.parametrize("seed", range(3))
def test_all_clients_hold_the_view_bit_for_bit_whatever_they_missed(way: Way, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = rng.standard_normal(DIM).astype(np.float32)
    downlink, views = Downlink(way, ViewState.of(way, model)), dict[int, Vector]()
    chances = {0: 1.0, 1: 0.5, 2: 0.1, 3: 0.02}
    for t in range(120):
        walk(rng, model)
        downlink.move(model, gf.Moment(t=t, iterations=120, key=t))
        for client, chance in chances.items():
            if rng.random() < chance or t == 119:
                delivery = downlink.deliver(client)
                views[client] = after(views.get(client), delivery, downlink)
                assert views[client].tobytes() == downlink.view.tobytes()
                assert delivery.size <= whole_bytes(DIM)
            elif rng.random() < 0.02:
                downlink.forget(client)
                views.pop(client, None)


@every_way
def test_a_delivery_is_as_long_as_its_messages_and_the_shortest_of_three(way: Way) -> None:
    rng, model = np.random.default_rng(1), np.zeros(DIM, np.float32)
    downlink = Downlink(way, ViewState.of(way, model))
    kinds = set()
    for t in range(200):
        if t % 23 == 0:
            downlink.deliver(0)
        walk(rng, model)
        downlink.move(model, gf.Moment(key=t))
        delivery, base = downlink._delivery(downlink.state.held[0]), downlink.state.held[0]
        kinds.add(delivery.kind)
        count = len(delivery.payloads)
        lengths = sum(map(len, delivery.payloads)) + (4 * count if count > 1 else 0)
        assert delivery.size == (whole_bytes(DIM) if delivery.kind == "whole" else lengths)
        assert count == 1 or delivery.size <= min(whole_bytes(DIM), downlink._changes(base).size)
    assert "broadcasts" in kinds or way == "changes"


def test_where_nothing_is_compressed_the_view_is_the_model() -> None:
    rng, model = np.random.default_rng(2), np.zeros(DIM, np.float32)
    downlink = Downlink("changes", ViewState.of("changes", model))
    for _ in range(50):
        walk(rng, model)
        downlink.move(model, gf.Moment())
        assert downlink.view.tobytes() == model.tobytes()


@pytest.mark.parametrize("way", METHODS_DOWN.values(), ids=METHODS_DOWN)
def test_what_is_not_sent_is_sent_later(way: Way) -> None:
    """When the model stands still, the view comes to it."""
    model = np.random.default_rng(3).standard_normal(DIM).astype(np.float32)
    downlink = Downlink(way, ViewState.of(way, np.zeros(DIM, np.float32)))
    for t in range(400):
        downlink.move(model, gf.Moment(key=t))
    assert np.abs(downlink.view - model).max() < 0.01


def test_an_old_version_that_is_not_known_any_more_gets_the_changes_or_all() -> None:
    way, model = gf.top_k(keep=0.3), np.zeros(DIM, np.float32)
    downlink = Downlink(way, ViewState.of(way, model))
    downlink.deliver(0)
    for t in range(30):
        model += np.float32(t)
        downlink.move(model, gf.Moment())
    assert len(downlink.state.broadcasts) < 30
    assert sum(map(len, downlink.state.broadcasts.values())) <= whole_bytes(DIM)
    assert downlink.deliver(0).kind in ("changes", "whole")


def run(method: Any, way: Way, faults: dict[str, float] | None = None) -> tuple[ServerState, list[Any]]:
    plan = replace(plan_for(method), downlink=way)
    if faults:
        plan = replace(plan, faults=type(plan.faults)(**faults))
    state = rounds.start(plan)
    return state, list(rounds.run_rounds(plan, state, carrier(plan, ResidualStore(plan.method, plan.dim))))


@pytest.mark.parametrize("name", METHODS)
def test_sending_changes_alone_changes_nothing_but_the_bytes_that_go_down(name: str) -> None:
    (full, of_full), (changes, of_changes) = (run(METHODS[name], way) for way in ("full", "changes"))
    assert full.model.tobytes() == changes.model.tobytes()
    without = {"downlink_bytes"}
    assert [r.model_dump(exclude=without) for r in of_full] == [r.model_dump(exclude=without) for r in of_changes]
    assert {record.downlink_bytes for record in of_full} == {2 * whole_bytes(50)}
    assert changes.totals.downlink_bytes <= full.totals.downlink_bytes
    assert changes.totals.downlink_bytes == sum(record.downlink_bytes for record in of_changes)


def test_clients_train_from_the_view() -> None:
    """Nothing goes down after the first model if nothing is kept: everybody trains from it for ever."""
    state, records = run(gf.Dense(), gf.hard_threshold(threshold=1e30))
    assert state.down is not None
    plan = plan_for(gf.Dense())
    assert state.down.view.tobytes() == rounds.start(plan).model.tobytes()
    assert state.model.tobytes() != state.down.view.tobytes()
    assert records[-1].view_distance > 0


def test_a_client_that_is_absent_gets_nothing_and_one_that_forgot_gets_all() -> None:
    _, nobody = run(gf.Dense(), "full", {"absent": 1.0})
    assert {record.downlink_bytes for record in nobody} == {0}
    _, all_forget = run(gf.TopK(2), gf.top_k(keep=0.1), {"forgetful": 1.0})
    assert {record.downlink_bytes for record in all_forget} == {2 * whole_bytes(50)}


def logistic(**settings: Any) -> Any:
    return make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "iterations": 60}, settings)


@pytest.mark.parametrize("way", ["changes", "gamma-fedht-q:keep=0.04", "stc:keep=0.01"])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(way: str, tmp_path: Path) -> None:
    faults = {"absent": 0.1, "lost": 0.1, "forgetful": 0.1}
    config = logistic(method="gamma-fedht-q", downlink=way, faults=faults, checkpoint={"every_seconds": 0})
    whole = execute(config, tmp_path / "whole")

    with pytest.raises(StoppedError):
        execute(config, tmp_path / "stopped", progress=StoppingAt(7))
    resumed = execute(config, tmp_path / "stopped", resume=True)
    assert repeatable(resumed.table()) == repeatable(whole.table())
    for name in ("rounds.jsonl", "model.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


MISTAKES: dict[str, tuple[str, str]] = {
    "no method": ("fulll", "no method 'fulll'"),
    "steered level": ("gamma-fedht:level=run", "level 'run' steers what clients send"),
    "no setting": ("top-k:kep=0.1", "kep"),
}


@pytest.mark.parametrize(("way", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_way_that_can_not_be_is_named(way: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match=told):
        execute(logistic(downlink=way), tmp_path / "run")


def test_a_whole_view_counts_as_the_message_that_has_every_value() -> None:
    values = np.linspace(0.1, 0.9, 10, dtype=np.float32)
    assert whole_bytes(10) == len(gf.encode(gf.SparseUpdate(10, None, values), values="f32"))


def test_simulate_takes_a_way_down_by_name_and_as_a_value() -> None:
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    data = [TensorDataset(part, (part.sum(1) > 0).long()) for part in x.split(60)]

    model = torch.nn.Linear(4, 2, bias=False)

    def bytes_down(downlink: Any) -> int:
        return gf.simulate(
            model, data[:4], data[4], stepsize=0.1, iterations=50, downlink=downlink
        ).summary.downlink_bytes

    assert bytes_down("top-k:keep=0.1") == bytes_down(gf.top_k(keep=0.1)) < bytes_down("full") == 20 * whole_bytes(8)
    with pytest.raises(gf.InputError, match="no method 'chagnes'"):
        bytes_down("chagnes")


def test_stc_both_ways_is_its_authors_algorithm() -> None:
    """Sattler et al. 2019, Algorithm 2: W ← W + ΔW̃ on every client; on the server ΔW = R + mean of the clients' ΔW̃_i,
    ΔW̃ = STC(ΔW), R ← ΔW − ΔW̃. STC keeps the k largest of a vector, as their mean magnitude with their signs."""
    task = Quadratic(sizes=(10, 10, 10, 10))
    plan = plan_for(gf.stc(keep=0.1), task, downlink=gf.stc(keep=0.2), participants=4, iterations=150)

    def stc(vector: Any, k: int) -> Any:
        kept = np.argsort(-np.abs(vector), kind="stable")[:k]
        ternary = np.zeros_like(vector)
        ternary[kept] = np.sign(vector[kept]) * np.abs(vector[kept]).mean()
        return ternary

    reference = Quadratic(sizes=(10, 10, 10, 10))
    weights = task.initial_model(seeds.generator(0, "model")).astype(np.float64)  # W of every client
    rest, rests = np.zeros(50), np.zeros((4, 50))
    for number in range(plan.rounds):
        steps = np.array([plan.stepsize(5 * number + i) for i in range(5)], np.float32)
        for client in range(4):
            rng = seeds.generator(0, "batches", number, client)
            (local,) = reference.train([client], weights.astype(np.float32), steps, [rng])
            rests[client] -= local.delta
            update = stc(rests[client], 5)
            rests[client] -= update
            rest = rest + update / 4
        step = stc(rest, 10)
        rest, weights = rest - step, weights + step
    state, _, _ = problems.run(plan)
    assert state.down is not None
    np.testing.assert_allclose(state.down.view, weights, atol=1e-4)
    np.testing.assert_allclose(state.model, weights + rest, atol=1e-4)


def test_a_view_of_half_precision_comes_as_near_as_its_tensors_can_hold() -> None:
    """What is finer than they can hold is never chosen, or it would take the place of others for ever."""

    def half(vector: Vector) -> Vector:
        return vector.astype(np.float16).astype(np.float32)

    rng = np.random.default_rng(0)
    model = rng.standard_normal(1000).astype(np.float32) * np.where(np.arange(1000) < 50, 1000, 0.1).astype(np.float32)
    way = gf.top_k(keep=0.05)
    downlink = Downlink(way, ViewState.of(way, np.zeros(1000, np.float32)), rounding=half)
    for t in range(60):
        downlink.move(model, gf.Moment(key=t))
    assert downlink.view.tobytes() == half(model).tobytes()
