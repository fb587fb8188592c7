"""Callbacks see what a run's ledger says, change nothing of it, and may end it early."""

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import gammafl as gf
from gammafl.core.compressors import Thresholding
from gammafl.experiments.trial_runs import TrainingJob
from gammafl.federated.callbacks import Watch
from gammafl.runs.directory import RunDirectory
from gammafl.runs.execute import execute
from gammafl.runs.progress import Silent
from tests.conftest import repeatable
from tests.problems import OnRound
from tests.runs.test_resume import config, same
from tests.runs.test_simulate_out import FILES, simulated, weights

ROUNDS = 12


class Hears(gf.Callback):
    """Keeps all that it is told, and looks at all of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.rounds: list[gf.Round] = []
        self.norms: list[dict[str, float | None]] = []
        self.evaluations: list[gf.Evaluated] = []
        self.said: list[tuple[int, dict[str, float]]] = []

    def on_start(self, run: gf.Run) -> str | None:
        self.calls.append("start")
        self.run = run
        return None

    def on_round(self, round: gf.Round) -> str | None:
        self.calls.append(f"round {round.round}")
        self.rounds.append(round)
        self.norms.append({name: round.residual_norm(name) for name in round.uploads})
        self.said.append((round.round, round.scalars()))
        round.model()["0.weight"][:] = np.nan  # a copy: it is no harm
        return None

    def on_evaluation(self, evaluation: gf.Evaluated) -> str | None:
        self.calls.append(f"evaluation {evaluation.round}")
        self.said.append((evaluation.round, evaluation.scalars()))
        self.evaluations.append(evaluation)
        return None

    def on_end(self, end: gf.Ended) -> None:
        self.calls.append("end")
        self.end = end


class Draws(gf.Callback):
    """Uses whatever random numbers it can get."""

    def on_round(self, round: gf.Round) -> str | None:
        torch.rand(100)
        np.random.rand(100)
        return None


class StopsAfter(gf.Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def on_round(self, round: gf.Round) -> str | None:
        return "it is enough" if round.round == self.number else None


class Spoils(gf.Callback):
    """Changes whatever it can get hold of."""

    def on_round(self, round: gf.Round) -> str | None:
        assert round.residual_of is not None
        vectors = [
            vector for upload in round.uploads.values() for vector in (upload.update.values, upload.update.indices)
        ]
        vectors += [*round.model().values(), *map(round.residual_of, round.uploads)]
        for vector in vectors:
            with suppress(ValueError):
                vector[...] = 0
        tables: Any = [round.refused, round.uploads, *([round.evaluation.values] if round.evaluation else [])]
        for table in tables:
            table.clear()
        return None


class BrokenError(Exception):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("callbacks") / "run"
    simulated(path)
    return path


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Hears, Any, Path]:
    path, hears = tmp_path_factory.mktemp("heard") / "run", Hears()
    return hears, simulated(path, callbacks=[Draws(), hears]), path


def test_calls_come_in_order_once_each(heard: tuple[Hears, Any, Path]) -> None:
    expected = ["start"]
    for number in range(1, ROUNDS + 1):
        expected += [f"round {number}"] + [f"evaluation {number}"] * (number % 4 == 0)
    assert heard[0].calls == [*expected, "end"]


def test_what_callbacks_see_is_what_the_ledger_says(heard: tuple[Hears, Any, Path]) -> None:
    hears, result, _ = heard
    for round, record in zip(hears.rounds, result.rounds, strict=True):
        seen = (round.round, round.iteration, round.asked, round.kept, round.uplink_bytes, round.downlink_bytes)
        said = (record.round, record.iteration, len(record.participants), record.kept, record.uplink_bytes)
        assert seen == (*said, record.downlink_bytes)
        assert (round.refused, round.train_loss) == (record.refused, record.train_loss)
        assert sum(upload.uplink_bytes for upload in round.uploads.values()) == record.uplink_bytes
        assert len(round.uploads) == len(record.participants) - record.missing
    assert any(round.refused for round in hears.rounds)
    evaluated = [record for record in result.rounds if record.evaluated]
    assert [(one.round, one.values["accuracy"], one.values["loss"]) for one in hears.evaluations] == [
        (record.round, record.metric, record.loss) for record in evaluated
    ]
    assert hears.evaluations[-1].values["averaged accuracy"] == result.summary.averaged
    last, summary = hears.rounds[-1], result.summary
    totals = (last.total_uplink_bytes, last.total_downlink_bytes, last.total_kept_fraction)
    assert totals == (summary.uplink_bytes, summary.downlink_bytes, summary.kept_fraction)
    assert hears.end.summary == summary
    assert (hears.end.stopped, hears.end.error, hears.end.round) == (None, None, ROUNDS)
    about = (hears.run.rounds, hears.run.round, hears.run.clients, hears.run.dim, hears.run.metric)
    assert about == (ROUNDS, 0, summary.clients, summary.dim, "accuracy")
    assert hears.run.settings["faults.lost"] == 0.1


def test_callbacks_change_no_byte_whatever_they_do(heard: tuple[Hears, Any, Path], whole: Path) -> None:
    _, result, path = heard
    for name in FILES:
        assert (path / name).read_bytes() == (whole / name).read_bytes()
    summaries = [repeatable(json.loads((folder / "summary.json").read_text())) for folder in (path, whole)]
    assert summaries[0] == summaries[1]
    assert weights(result) == weights(simulated(whole))


def test_what_callbacks_are_handed_is_not_the_runs_own() -> None:
    spoilt, left_alone = simulated(None, callbacks=[Spoils()]), simulated(None)
    assert weights(spoilt) == weights(left_alone)
    assert [record.table() for record in spoilt.rounds] == [record.table() for record in left_alone.rounds]
    assert any(record.refused for record in left_alone.rounds)


def test_the_model_of_the_last_round_is_the_result() -> None:
    class Keeps(gf.Callback):
        def on_evaluation(self, evaluation: gf.Evaluated) -> None:
            self.model = evaluation.model()

    keeps = Keeps()
    result = simulated(None, callbacks=[keeps])
    state = result.model.state_dict()
    assert keeps.model.keys() == state.keys()
    for name, tensor in keeps.model.items():
        np.testing.assert_array_equal(tensor, state[name])


def test_the_residuals_norm_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    from gammafl.files import tensor_files

    hears = Hears()
    simulated(tmp_path / "run", callbacks=[hears], faults=None, participation=1.0)
    _, tensors = tensor_files.read(tmp_path / "run" / "checkpoint" / "last.safetensors")
    stored = {name.split(".")[1]: np.linalg.norm(tensors[name]) for name in tensors if name.startswith("residual.")}
    assert hears.norms[-1] == pytest.approx(stored)
    said = {
        number: scalars["round/residual norm"] for number, scalars in hears.said if "round/residual norm" in scalars
    }
    assert said[ROUNDS] == pytest.approx(np.mean(list(stored.values())))
    assert list(said) == [4, 8, ROUNDS]  # it takes time, as an evaluation does


@pytest.mark.parametrize("level", ["upload", "paper"])
def test_the_threshold_parts_what_is_kept_from_what_is_not(level: Literal["upload", "paper"]) -> None:
    hears = Hears()
    simulated(None, callbacks=[hears], method=gf.gamma_fedht(keep=0.1, level=level), faults=None)
    for round in hears.rounds:
        smallest = [float(np.abs(one.update.values).min()) for one in round.uploads.values() if len(one.update)]
        assert round.threshold is not None
        if level == "upload":
            assert min(smallest) <= round.threshold <= max(smallest)
        else:
            assert round.method is not None
            assert round.moment is not None
            assert isinstance(round.method.compressor, Thresholding)
            assert all(one > round.threshold for one in smallest)
    if level == "paper":
        assert hears.rounds[0].threshold != hears.rounds[-1].threshold  # it follows γ_t


def test_methods_without_a_threshold_have_none() -> None:
    hears = Hears()
    simulated(None, callbacks=[hears], method="fedavg")
    assert {round.threshold for round in hears.rounds} == {None}


def test_a_callback_is_told_from_which_round_a_run_goes_on(tmp_path: Path, whole: Path) -> None:
    def interrupt(round: gf.Round) -> None:
        if round.round == 6:
            raise KeyboardInterrupt

    first, second = Hears(), Hears()
    with pytest.raises(KeyboardInterrupt):
        simulated(tmp_path / "run", callbacks=[first, OnRound(interrupt)])
    assert isinstance(first.end.error, KeyboardInterrupt)
    assert first.end.summary is None
    simulated(tmp_path / "run", callbacks=[second])
    assert second.run.round == 6
    assert [round.round for round in second.rounds] == list(range(7, ROUNDS + 1))
    assert [evaluation.round for evaluation in second.run.evaluations()] == [4, 8, 12]  # it reads the ledger of now
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()


def test_an_exception_in_a_callback_is_told_as_it_is_and_the_run_can_go_on(tmp_path: Path, whole: Path) -> None:
    class Breaks(gf.Callback):
        def on_evaluation(self, evaluation: gf.Evaluated) -> None:
            self.fail()

        def fail(self) -> None:
            raise BrokenError("of my own")

        def on_end(self, end: gf.Ended) -> None:
            raise RuntimeError("and again")

    hears = Hears()
    with pytest.raises(BrokenError, match="of my own") as caught:
        simulated(tmp_path / "run", callbacks=[Breaks(), hears])
    assert caught.traceback[-1].name == "fail"
    assert "and again" in caught.value.__notes__[0]
    assert hears.calls[-1] == "end"
    assert hears.end.error is caught.value
    assert simulated(tmp_path / "run").rounds == simulated(whole).rounds


def test_an_exception_at_the_end_comes_when_all_is_stored(tmp_path: Path) -> None:
    class Breaks(gf.Callback):
        def on_end(self, end: gf.Ended) -> None:
            raise BrokenError

    hears = Hears()
    with pytest.raises(BrokenError):
        simulated(tmp_path / "run", callbacks=[Breaks(), hears])
    assert hears.calls[-1] == "end"
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_run_that_is_stopped_says_so_and_is_not_finished(tmp_path: Path, whole: Path) -> None:
    path, hears = tmp_path / "run", Hears()
    result = simulated(path, callbacks=[StopsAfter(5), hears], checkpoint_seconds=1000)
    summary = result.summary
    assert (summary.stopped, summary.rounds, summary.planned_rounds) == ("it is enough", 5, ROUNDS)
    assert summary.iterations == 25
    assert summary.uplink_bytes == sum(record.uplink_bytes for record in result.rounds)
    assert len(result.rounds) == 5
    assert "5 of 12" in repr(result)
    assert (hears.calls[-1], hears.end.stopped, hears.end.summary) == ("end", "it is enough", summary)
    assert not (path / "summary.json").exists()
    assert RunDirectory(path).summary() is None
    assert json.loads((path / "stopped.json").read_text()) == summary.table()
    ledger = (whole / "rounds.jsonl").read_bytes()
    assert ledger.startswith((path / "rounds.jsonl").read_bytes())
    finished = simulated(path)
    assert not (path / "stopped.json").exists()
    assert weights(finished) == weights(simulated(whole))
    assert (path / "rounds.jsonl").read_bytes() == ledger
    assert finished.summary.stopped is None


def test_the_summary_of_a_stopped_run_is_of_the_model_that_it_returns(tmp_path: Path) -> None:
    """Round 5 has no evaluation: the summary's is made for it."""
    stopped = simulated(None, callbacks=[StopsAfter(5)])
    shorter = simulated(None, iterations=25, averaging="none")
    assert stopped.summary.final == shorter.summary.final
    assert not stopped.rounds[-1].evaluated


def test_a_stop_in_the_last_round_is_none(tmp_path: Path) -> None:
    summary = simulated(tmp_path / "run", callbacks=[StopsAfter(ROUNDS)]).summary
    assert summary.stopped is None
    assert (tmp_path / "run" / "summary.json").exists()


def test_early_stopping_ends_at_the_same_round_when_the_same_call_goes_on(tmp_path: Path, whole: Path) -> None:
    settings: dict[str, Any] = {"callbacks": [gf.EarlyStopping(patience=1, least=2.0)]}  # nothing is better by 2
    first = simulated(tmp_path / "run", **settings)
    assert first.summary.rounds == 8
    assert re.match(r"patience=1 is over: accuracy was \S+ at best, in round 4$", first.summary.stopped or "")
    hears = Hears()
    again = simulated(tmp_path / "run", callbacks=[*settings["callbacks"], hears])
    assert hears.calls == ["start", "end"]
    assert repeatable(again.summary.table()) == repeatable(first.summary.table())
    assert weights_of_model(again) == weights_of_model(first)
    longer = simulated(tmp_path / "run", callbacks=[gf.EarlyStopping(patience=9, least=2.0)])
    assert weights(longer) == weights(simulated(whole))


def weights_of_model(result: Any) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in result.model.state_dict().values()]


def test_early_stopping_knows_which_way_is_better() -> None:
    run = gf.Run("mine", "top-k", rounds=100, local_steps=5, metric="perplexity", higher_is_better=False)
    for name, values, stops in (
        (None, (9.0, 8.0, 7.0), False),
        (None, (7.0, 8.0, 9.0), True),
        ("loss", (3.0, 2.0, 1.0), False),
        ("accuracy", (0.5, 0.6, 0.7), False),
        ("accuracy", (0.7, 0.6, 0.5), True),
        ("accuracy", (math.nan, 0.5, 0.6), False),
        ("loss", (math.nan, 2.0, 1.0), False),
        ("accuracy", (0.5, math.nan, math.nan), True),
        ("accuracy", (math.nan, math.nan, math.nan), True),
    ):
        stopping = gf.EarlyStopping(name, patience=2)
        stopping.on_start(run)
        told = [stopping.on_evaluation(gf.Evaluated(i, i, {name or "perplexity": v})) for i, v in enumerate(values)]
        assert (told[-1] is not None) == stops
    with pytest.raises(gf.InputError, match=r"EarlyStopping watches 'f1', but an evaluation has accuracy"):
        simulated(None, callbacks=[gf.EarlyStopping("f1")], metric="accuracy")


def test_a_stop_before_the_first_round_is_refused_in_one_line() -> None:
    class Never(gf.Callback):
        def on_start(self, run: gf.Run) -> str | None:
            return "not today"

    with pytest.raises(gf.InputError, match="a callback ended the run before its first round: not today"):
        simulated(None, callbacks=[Never()])


@pytest.mark.parametrize("wrong", [Hears(), [print], [Hears]], ids=["no list", "a function", "a class"])
def test_what_is_no_list_of_callbacks_is_refused(wrong: Any) -> None:
    with pytest.raises(gf.InputError, match=r"callbacks must be a list of gf\.Callback, got"):
        simulated(None, callbacks=wrong)


def test_a_callback_that_returns_something_else_than_a_reason_is_refused() -> None:
    with pytest.raises(gf.InputError, match="returned True; to end the run, return the reason as text"):
        simulated(None, callbacks=[OnRound(lambda round: True)])  # type: ignore[arg-type, return-value]


def test_the_command_line_s_runs_have_the_same_callbacks(tmp_path: Path) -> None:
    hears = Hears()
    execute(config(), tmp_path / "alone")
    hears.on_round = lambda round: hears.rounds.append(round)  # type: ignore[method-assign]
    summary = execute(config(), tmp_path / "watched", callbacks=[hears])
    assert same(tmp_path / "alone", tmp_path / "watched")
    assert len(hears.rounds) == summary.rounds
    assert hears.run.settings["stepsize.kind"]
    assert hears.run.directory == tmp_path / "watched"


class Says(gf.Callback):
    def __init__(self, reason: str | None) -> None:
        self.reason = reason

    def on_start(self, run: gf.Run) -> str | None:
        return self.reason


@pytest.mark.parametrize(("reasons", "stopped"), [(["", None], None), ([None, ""], None), (["", "enough"], "enough")])
def test_an_empty_reason_is_none_whoever_is_asked_first(reasons: list[str | None], stopped: str | None) -> None:
    watch = Watch([Says(reason) for reason in reasons])
    with watch.of(gf.Run("mine", "top-k", rounds=10, local_steps=5)):
        assert watch.stopped == stopped


def test_nothing_is_prepared_where_nobody_watches() -> None:
    assert not Watch()
    assert Watch([Hears()])


def test_a_study_goes_on_with_a_run_that_was_stopped(tmp_path: Path) -> None:
    execute(config(), tmp_path / "whole")
    stopped = execute(config(), tmp_path / "run", callbacks=[StopsAfter(5)])
    assert stopped.stopped == "it is enough"
    job = TrainingJob(config(), tmp_path / "run")
    assert job.finished() is None
    assert job.run(Silent()).figures["rounds"] == stopped.planned_rounds
    assert same(tmp_path / "whole", tmp_path / "run")
