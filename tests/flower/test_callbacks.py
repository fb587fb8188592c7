"""Callbacks over Flower: they see the rounds that the simulator's see, change none, and may end a training."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, Result

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.arrays import Vector
from gammafl.federated.plan import Plan
from gammafl.runs.progress import Silent
from gammafl.runs.runner import Names, Resources, session
from gammafl.runs.runner import run as run_plan
from gammafl.runs.stores import InMemory
from tests.flower.grid import InProcessGrid, state_files
from tests.flower.problem import from_record, quadratic_app, strategy, to_record
from tests.flower.spoil import BAD_NODE, with_payload
from tests.flower.test_resumption import ROUNDS, play
from tests.flower.test_strategies import vector_of
from tests.problems import METHODS, Quadratic, plan_for
from tests.runs.test_trackers import points

TASK = Quadratic()


class Hears(gf.Callback):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.rounds: list[gf.Round] = []
        self.evaluations: list[gf.Evaluated] = []
        self.models: list[Vector] = []

    def on_start(self, run: gf.Run) -> None:
        self.calls.append(f"start {run.round}")
        self.run, self.before = run, list(run.evaluations())

    def on_round(self, round: gf.Round) -> None:
        self.calls.append(f"round {round.round}")
        self.rounds.append(round)
        self.models.append(np.concatenate([tensor.reshape(-1) for tensor in round.model().values()]))

    def on_evaluation(self, evaluation: gf.Evaluated) -> None:
        self.calls.append(f"evaluation {evaluation.round}")
        self.evaluations.append(evaluation)

    def on_end(self, end: gf.Ended) -> None:
        self.calls.append("end")
        self.end = end


class StopsAfter(gf.Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def on_round(self, round: gf.Round) -> str | None:
        return "it is enough" if round.round == self.number else None


def simulated(plan: Plan, callbacks: list[gf.Callback]) -> None:
    with session(Resources()):
        run_plan(plan, Names("quadratic", "", ""), InMemory(), Resources(), Silent(), time.perf_counter(), callbacks)


def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
    result = TASK.evaluate(from_record(arrays))
    return MetricRecord({"distance": result.metric, "loss": result.loss})


def deployed(
    folder: Path, callbacks: list[gf.Callback], rounds: int = 12, grid: InProcessGrid | None = None, **settings: Any
) -> tuple[gammafl.flower.Compressed, Result]:
    grid = grid or InProcessGrid(quadratic_app(Quadratic(), folder / "clients"), 4)
    chosen = strategy(callbacks=callbacks, **settings)
    start = to_record(TASK, TASK.initial_model(seeds.generator(0, "model")))
    return chosen, chosen.start(grid, start, rounds, train_config=ConfigRecord(), evaluate_fn=evaluate)


@pytest.mark.parametrize("downlink", ["full", gf.stc(keep=0.2)], ids=["full", "stc"])
@pytest.mark.parametrize("name", ["fedavg", "gamma-fedht", "top-k", "gamma-fedht-q"])
def test_the_same_rounds_are_told_as_in_the_simulator(name: str, downlink: Any, tmp_path: Path) -> None:
    """But for the bytes down, where Flower's arrays have headers."""
    there, here = Hears(), Hears()
    plan = plan_for(METHODS[name], iterations=60, weights="normalized", downlink=downlink, averaging=gf_none())
    simulated(plan, [here])
    deployed(tmp_path, [there], method=METHODS[name], downlink=downlink)
    assert len(here.rounds) == len(there.rounds) == 12
    for mine, other in zip(here.rounds, there.rounds, strict=True):
        for field in ("round", "iteration", "asked", "kept", "uplink_bytes", "kept_fraction"):
            assert getattr(mine, field) == getattr(other, field), (mine.round, field)
        for field in ("total_uplink_bytes", "total_kept_fraction", "stepsize", "threshold"):
            assert getattr(mine, field) == getattr(other, field), (mine.round, field)
        assert [len(one.update) for one in mine.uploads.values()] == [len(o.update) for o in other.uploads.values()]
        assert (mine.refused, mine.capped) == (other.refused, other.capped)
    for model, other_model in zip(here.models, there.models, strict=True):
        np.testing.assert_array_equal(model, other_model)
    last = here.evaluations[-1]
    over_flower = {evaluation.round: evaluation.values for evaluation in there.evaluations}[last.round]
    assert {key: last.values[key] for key in ("distance", "loss")} == over_flower


def gf_none() -> Any:
    from gammafl.config.schema import NoAverage

    return NoAverage()


def test_calls_come_in_order_with_the_evaluation_before_the_first_round(tmp_path: Path) -> None:
    hears = Hears()
    deployed(tmp_path, [hears], rounds=3)
    expected = ["start 0", "evaluation 0"]
    expected += [f"{what} {number}" for number in (1, 2, 3) for what in ("round", "evaluation")]
    assert hears.calls == [*expected, "end"]
    assert (hears.end.stopped, hears.end.error, hears.end.round, hears.end.summary) == (None, None, 3, None)


def test_callbacks_change_no_byte(tmp_path: Path) -> None:
    results = []
    for folder, callbacks in ((tmp_path / "with", [Hears()]), (tmp_path / "without", [])):
        folder.mkdir()
        chosen, result = deployed(folder, [*callbacks], ledger=folder / "rounds.jsonl", downlink="changes")
        results.append((from_record(result.arrays).tobytes(), (folder / "rounds.jsonl").read_bytes()))
        assert chosen.stopped is None
    assert results[0] == results[1]


class Forgets(gf.Callback):
    def on_round(self, round: gf.Round) -> None:
        told: Any = round
        told.refused.clear()


def test_the_history_is_not_what_callbacks_are_handed(tmp_path: Path) -> None:
    def spoilt(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_payload(b"rubbish")(reply.content)
        return reply

    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path), 4, spoilt)
    chosen, _ = deployed(tmp_path, [Forgets()], rounds=2, grid=grid, fraction_train=1.0)
    assert [list(record["refused"]) for record in chosen.history] == [[str(BAD_NODE)]] * 2


def test_what_is_told_is_what_the_history_says(tmp_path: Path) -> None:
    hears = Hears()
    chosen, _ = deployed(tmp_path, [hears], ledger=tmp_path / "rounds.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert lines == chosen.history
    for round, line in zip(hears.rounds, lines, strict=True):
        assert list(round.uploads) == line["clients"]
        assert (round.uplink_bytes, round.downlink_bytes) == (line["uplink_bytes"], line["downlink_bytes"])
        assert "train-loss" in round.metrics
        assert "uplink-bytes" not in round.metrics  # it is there already, under our own name


@pytest.mark.parametrize("make", [FedAvg, FedAdam])
def test_a_server_that_dies_tells_from_where_it_goes_on(make: Any, tmp_path: Path) -> None:
    _, expected, grid = play(tmp_path / "alone", make, method="top-k:keep=0.1")
    hears = Hears()
    deaths = [grid.steps // 2, grid.steps + 3]
    chosen, result, _ = play(tmp_path / "killed", make, deaths, method="top-k:keep=0.1", callbacks=[hears])
    np.testing.assert_array_equal(vector_of(result.arrays), vector_of(expected.arrays))
    starts = [int(call.split()[1]) for call in hears.calls if call.startswith("start")]
    assert starts[0] == 0 < starts[1]
    told = [call for call in hears.calls if call.startswith("round")]
    assert set(told) == {f"round {number}" for number in range(1, ROUNDS + 1)}
    again = hears.calls[hears.calls.index(f"start {starts[-1]}", 1) :]
    assert not [call for call in again if call.startswith("round") and int(call.split()[1]) <= starts[-1]]
    assert hears.before
    assert hears.rounds[-1].total_uplink_bytes == sum(record["uplink_bytes"] for record in chosen.history)


def test_a_training_that_is_stopped_keeps_its_model_and_can_go_on(tmp_path: Path) -> None:
    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path / "clients"), 4)
    grid.ends = True
    settings: dict[str, Any] = {"method": "top-k:keep=0.1", "grid": grid}
    chosen, result = deployed(tmp_path, [StopsAfter(5)], checkpoint=tmp_path / "server", **settings)
    assert (chosen.stopped, len(chosen.history)) == ("it is enough", 5)
    assert {*result.train_metrics_clientapp} == set(range(1, 6))
    assert {*result.evaluate_metrics_serverapp} == set(range(6))  # also of the round that was the last
    assert state_files(tmp_path / "clients")
    (tmp_path / "other").mkdir()
    whole_hears = Hears()
    _, whole = deployed(tmp_path / "other", [whole_hears], method="top-k:keep=0.1")
    np.testing.assert_array_equal(from_record(result.arrays), whole_hears.models[4])
    again, same_result = deployed(tmp_path, [StopsAtOnce()], checkpoint=tmp_path / "server", **settings)
    assert len(again.history) == 5
    np.testing.assert_array_equal(from_record(same_result.arrays), from_record(result.arrays))
    last, finished = deployed(tmp_path, [], checkpoint=tmp_path / "server", **settings)
    assert last.stopped is None
    np.testing.assert_array_equal(from_record(finished.arrays), from_record(whole.arrays))
    assert not state_files(tmp_path / "clients")


class StopsAtOnce(gf.Callback):
    def on_start(self, run: gf.Run) -> str:
        return "it was enough"


def test_early_stopping_looks_at_what_the_app_evaluates(tmp_path: Path) -> None:
    stopping = gf.EarlyStopping("distance", patience=2, least=1e6, higher_is_better=False)
    chosen, _ = deployed(tmp_path, [stopping])
    assert len(chosen.history) == 2
    assert "distance was" in (chosen.stopped or "")


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("deadly", [1, 6])
def test_after_a_crash_no_evaluation_is_told_twice(deadly: int, tmp_path: Path) -> None:
    """An evaluation that is made again is not among those from before. EarlyStopping would count it twice."""

    def dies(message: Message, reply: Message) -> Message:
        if len(grid.sent) == deadly:
            raise BrokenError
        return reply

    settings: dict[str, Any] = {"checkpoint": tmp_path / "server", "rounds": 4}
    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path / "clients"), 4, dies)
    with pytest.raises(BrokenError):
        deployed(tmp_path, [], grid=grid, **settings)
    hears = Hears()
    deployed(tmp_path, [hears], **settings)
    told = [evaluation.round for evaluation in [*hears.before, *hears.evaluations]]
    assert told == [0, 1, 2, 3, 4]


def test_an_exception_in_a_callback_ends_the_training_and_nothing_is_lost(tmp_path: Path) -> None:
    class Breaks(gf.Callback):
        def on_round(self, round: gf.Round) -> None:
            if round.round == 4:
                raise BrokenError

    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path / "clients"), 4)
    hears = Hears()
    settings: dict[str, Any] = {"checkpoint": tmp_path / "server", "grid": grid, "method": "top-k:keep=0.1"}
    with pytest.raises(BrokenError) as caught:
        deployed(tmp_path, [Breaks(), hears], **settings)
    assert caught.traceback[-1].name == "on_round"
    assert hears.end.error is caught.value
    _, result = deployed(tmp_path, [], **settings)
    (tmp_path / "other").mkdir()
    _, whole = deployed(tmp_path / "other", [], method="top-k:keep=0.1")
    np.testing.assert_array_equal(from_record(result.arrays), from_record(whole.arrays))


def test_tensorboard_shows_a_training_over_flower(tmp_path: Path) -> None:
    hears = Hears()
    deployed(tmp_path, [gf.TensorBoard(), hears], checkpoint=tmp_path / "server", rounds=4)
    shown = points(tmp_path / "server" / "tensorboard")
    assert {step: shown["round/uplink bytes"][step] for step in (1, 2, 3, 4)} == {
        round.round: round.uplink_bytes for round in hears.rounds
    }
    assert list(shown["evaluation/distance"]) == [0, 1, 2, 3, 4]


def test_without_compression_callbacks_are_not_called_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hears = Hears()
    deployed(tmp_path, [hears], rounds=1, enabled=False)
    assert hears.calls == []
    assert "callbacks are not called" in caplog.text
