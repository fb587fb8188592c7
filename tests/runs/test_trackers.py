"""Trackers are read back with the libraries that they write for: every value is there, once."""

import doctest
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gammafl as gf
from gammafl.core.errors import InputError
from gammafl.experiments.trial_runs import TrainingJob
from gammafl.runs import trackers
from gammafl.runs.directory import RunDirectory
from gammafl.runs.execute import execute
from gammafl.runs.progress import Silent
from gammafl.runs.trackers import TRACKERS, tracker_named
from tests.problems import OnRound
from tests.runs.test_callbacks import Hears
from tests.runs.test_resume import config, same
from tests.runs.test_simulate_out import simulated


def interrupt(round: gf.Round) -> None:
    if round.round == 6:
        raise KeyboardInterrupt


def expected(hears: Hears) -> dict[str, dict[int, Any]]:
    """Name → step → value, of what a run said."""
    found: dict[str, dict[int, Any]] = {}
    for step, scalars in hears.said:
        for name, value in scalars.items():
            found.setdefault(name, {})[step] = pytest.approx(value, rel=1e-6)
    return found


def points(directory: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard shows; a step that is there twice is an error."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    shown = {}
    for name in log.Tags()["scalars"]:
        steps = [event.step for event in log.Scalars(name)]
        assert len(set(steps)) == len(steps), name
        shown[name] = {event.step: event.value for event in log.Scalars(name)}
    return shown


def test_tensorboard_shows_what_the_run_said(tmp_path: Path) -> None:
    hears = Hears()
    result = simulated(tmp_path / "run", callbacks=[gf.TensorBoard(), hears])
    shown = points(tmp_path / "run" / "tensorboard")
    assert shown == expected(hears)
    assert [shown["evaluation/accuracy"][step] for step in (4, 8, 12)] == pytest.approx(
        [record.metric for record in result.rounds if record.evaluated]
    )
    assert shown["total/uplink bytes"][12] == result.summary.uplink_bytes
    assert {"round/threshold", "round/residual norm", "round/kept fraction", "client 0/uplink bytes"} <= shown.keys()


def test_tensorboard_has_no_point_twice_when_a_run_goes_on(tmp_path: Path) -> None:
    """Its last checkpoint is of round 0, so that six rounds are run again."""
    path, hears = tmp_path / "run", Hears()
    with pytest.raises(KeyboardInterrupt):
        simulated(path, callbacks=[gf.TensorBoard(), OnRound(interrupt)], checkpoint_seconds=1000)
    make_older(path / "tensorboard")
    simulated(path, callbacks=[gf.TensorBoard(), hears])
    assert hears.run.round == 0
    assert points(path / "tensorboard") == expected(hears)


def test_tensorboard_goes_on_where_the_checkpoint_is(tmp_path: Path) -> None:
    path, whole = tmp_path / "run", Hears()
    simulated(tmp_path / "whole", callbacks=[whole])
    with pytest.raises(KeyboardInterrupt):
        simulated(path, callbacks=[gf.TensorBoard(tmp_path / "logs"), OnRound(interrupt)])
    make_older(tmp_path / "logs")
    simulated(path, callbacks=[gf.TensorBoard(tmp_path / "logs")])
    assert points(tmp_path / "logs") == expected(whole)


def make_older(log: Path) -> None:
    """TensorBoard reads files by name, which has the second when it was made: these are of an earlier one."""
    for file in log.iterdir():
        before, _, after = file.name.partition("tfevents.")
        second, _, rest = after.partition(".")
        file.rename(file.with_name(f"{before}tfevents.{int(second) - 1:010d}.{rest}"))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No key, no network, nothing of the user's."""
    pytest.importorskip("wandb")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-own"))
    monkeypatch.setenv("NETRC", os.devnull)
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "300")  # a busy machine takes its time
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    import wandb

    wandb.teardown()


def history(directory: Path) -> tuple[list[str], dict[str, dict[int, float]], dict[str, Any]]:
    """(ids of the runs, name → step → value, the last summary) in W&B's own offline files; no point is there twice."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]
    from wandb.sdk.internal.datastore import DataStore

    wandb.teardown()  # its service has written all when it is gone
    ids, shown, summary = list[str](), dict[str, dict[int, float]](), dict[str, Any]()
    for file in sorted((directory / "wandb").glob("offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        store = DataStore()
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.append(record.run.run_id)
            elif kind == "summary":
                summary |= {item.key or item.nested_key[0]: item.value_json for item in record.summary.update}
            elif kind == "history":
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                step = items.pop("_step", record.history.step.num)
                for name, value in items.items():
                    if not name.startswith("_"):
                        assert step not in shown.setdefault(name, {}), (name, step)
                        shown[name][step] = value
        store.close()
    return ids, shown, summary


@pytest.mark.usefixtures("offline")
def test_weights_and_biases_has_what_the_run_said_without_network_or_key(tmp_path: Path) -> None:
    hears = Hears()
    simulated(tmp_path / "run", callbacks=[gf.WandB("thin-links"), hears])
    ids, shown, _ = history(tmp_path / "run")
    assert len(set(ids)) == 1
    assert shown == expected(hears)


@pytest.mark.usefixtures("offline")
def test_weights_and_biases_goes_on_with_the_same_run_and_no_point_twice(tmp_path: Path) -> None:
    path, hears = tmp_path / "run", Hears()
    with pytest.raises(KeyboardInterrupt):
        simulated(path, callbacks=[gf.WandB(), OnRound(interrupt)])
    simulated(path, callbacks=[gf.WandB(), hears])
    assert hears.run.round == 6
    whole = Hears()
    simulated(None, callbacks=[whole])
    ids, shown, _ = history(path)
    assert len(ids) >= 2
    assert len(set(ids)) == 1
    assert shown == expected(whole)


@pytest.mark.parametrize("name", TRACKERS)
@pytest.mark.usefixtures("offline")
def test_a_tracker_changes_nothing_of_a_run_of_the_command_line(name: str, tmp_path: Path) -> None:
    execute(config(), tmp_path / "alone")
    execute(config(), tmp_path / "tracked", callbacks=[tracker_named(name)])
    assert same(tmp_path / "alone", tmp_path / "tracked")
    assert RunDirectory(tmp_path / "tracked").summary() is not None


def test_trackers_have_names() -> None:
    with pytest.raises(InputError, match=r"there is no tracker 'tensorbord' \(did you mean 'tensorboard'\?\)"):
        tracker_named("tensorbord")


@pytest.mark.parametrize("module", ["tensorboard", "wandb"])
def test_a_missing_library_is_told_with_its_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"not installed: pip install 'gammafl\[{module}\]'"):
        simulated(None, callbacks=[tracker_named(module)])


def test_the_examples_are_right() -> None:
    assert doctest.testmod(trackers).failed == 0


def test_the_runs_of_a_comparison_are_tracked_each_in_its_directory(tmp_path: Path) -> None:
    execute(config(), tmp_path / "alone")
    row = TrainingJob(config(), tmp_path / "tracked", track=("tensorboard",)).run(Silent())
    assert same(tmp_path / "alone", tmp_path / "tracked")
    assert points(tmp_path / "tracked" / "tensorboard")["total/uplink bytes"][12] == row.figures["uplink_bytes"]
