"""A run that is killed at any instant and resumed ends with the same bytes as one left alone."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.config.layers import flat, make_config
from gammafl.config.schema import ONLY_SPEED, RunConfig
from gammafl.experiments.pages import run_sections
from gammafl.experiments.trial_runs import run_name
from gammafl.files import tensor_files
from gammafl.runs.directory import RunDirectory
from gammafl.runs.execute import execute
from tests.conftest import repeatable

SETTINGS = {
    "task": "logistic-mini",
    "method": "gamma-fedht",
    "iterations": 60,
    "seed": 7,
    "evaluation": {"every": 4, "last": 2},
    "averaging": {"kind": "tail", "fraction": 0.5},
    "checkpoint": {"every_seconds": 0},
}

KILLER = """
import json, os, signal, sys
from pathlib import Path
from gammafl.config.layers import make_config
from gammafl.runs.progress import Silent
from gammafl.files import tensor_files
from gammafl.runs.execute import execute
from gammafl.runs.directory import Ledger

settings, path, where, when = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
calls = 0

def killing(function):
    def wrapper(*args, **kwargs):
        global calls
        calls += 1
        if calls == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return wrapper

if where == "ledger":
    Ledger.append = killing(Ledger.append)
elif where == "half a line":
    append = Ledger.append
    def half(self, record):
        global calls
        calls += 1
        if calls == when:
            self.stream.write(json.dumps(record.table()).encode()[:40])
            self.stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, record)
    Ledger.append = half
elif where == "writing a checkpoint":
    tensor_files.replace = killing(tensor_files.replace)
elif where == "renaming":
    os.replace = killing(os.replace)
execute(make_config(settings), path, resume=True, progress=Silent())
"""


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    execute(config(), path)
    return path


def config(**changes: object) -> RunConfig:
    return make_config(SETTINGS, changes)


def same(path: Path, other: Path) -> bool:
    """The model, the averaged model, the ledger; and of the summary all that does not depend on the machine."""
    files = ("model.safetensors", "averaged-model.safetensors", "rounds.jsonl")
    summaries = [repeatable(json.loads((p / "summary.json").read_text())) for p in (path, other)]
    return all((path / f).read_bytes() == (other / f).read_bytes() for f in files) and summaries[0] == summaries[1]


def tensors_of(path: Path) -> dict[str, bytes]:
    """Of the last checkpoint: models, residuals, lost uploads."""
    _, tensors = tensor_files.read(path / "checkpoint" / "last.safetensors")
    return {name: tensors[name].tobytes() for name in tensors}


def kill(path: Path, where: str, when: int) -> None:
    command = [sys.executable, "-c", KILLER, json.dumps(SETTINGS), str(path), where, str(when)]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("where", "when"),
    [
        ("ledger", 1),
        ("ledger", 9),
        ("half a line", 6),
        ("writing a checkpoint", 5),
        ("renaming", 1),
        ("renaming", 10),
        ("renaming", 11),
    ],
)
def test_killed_and_resumed_is_the_same_as_left_alone(where: str, when: int, tmp_path: Path, unkilled: Path) -> None:
    path = tmp_path / "run"
    kill(path, where, when)
    assert not (path / "summary.json").exists()
    execute(config(), path, resume=True)
    assert same(path, unkilled)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, unkilled: Path) -> None:
    path = tmp_path / "run"
    kill(path, "ledger", 9)
    last = path / "checkpoint" / "last.safetensors"
    content = bytearray(last.read_bytes())
    content[-5] ^= 1
    last.write_bytes(content)
    execute(config(), path, resume=True)
    assert same(path, unkilled)


def test_killed_again_after_a_damaged_checkpoint_it_still_resumes(tmp_path: Path, unkilled: Path) -> None:
    path = tmp_path / "run"
    kill(path, "ledger", 9)
    (path / "checkpoint" / "last.safetensors").write_bytes(b"?")
    kill(path, "renaming", 2)
    execute(config(), path, resume=True)
    assert same(path, unkilled)


def test_a_checkpoint_whose_facts_were_changed_is_damaged_too(tmp_path: Path, unkilled: Path) -> None:
    path = tmp_path / "run"
    kill(path, "ledger", 9)
    last = path / "checkpoint" / "last.safetensors"
    content = last.read_bytes()
    assert b'\\"round\\": 8' in content
    last.write_bytes(content.replace(b'\\"round\\": 8', b'\\"round\\": 3'))
    execute(config(), path, resume=True)
    assert same(path, unkilled)


@pytest.mark.parametrize("name", ["model", "residual.1"])
@pytest.mark.parametrize("wrong", [np.zeros(9, np.float32), np.zeros(10_250, np.uint8)], ids=["length", "type"])
def test_a_checkpoint_whose_tensors_do_not_fit_together_is_passed_over(
    name: str, wrong: Any, tmp_path: Path, unkilled: Path
) -> None:
    path = tmp_path / "run"
    kill(path, "ledger", 9)
    last = path / "checkpoint" / "last.safetensors"
    facts, tensors = tensor_files.read(last)
    tensor_files.replace(last, {**tensors, name: wrong}, facts)
    execute(config(), path, resume=True)
    assert same(path, unkilled)


def test_a_whole_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    kill(path, "ledger", 9)
    last = path / "checkpoint" / "last.safetensors"
    facts, tensors = tensor_files.read(last)
    tensor_files.replace(last, {name: np.zeros(9, np.float32) for name in tensors}, facts)
    with pytest.raises(gf.InputError, match="is of another model"):
        execute(config(), path, resume=True)


FASTER = {"threads": 2, "residual_memory_mb": 0, "device_memory_mb": 0, "checkpoint": {"every_seconds": 1000}}


def test_only_speed_is_what_the_settings_for_speed_change(tmp_path: Path, unkilled: Path) -> None:
    """Each of them, and all that a checkpoint holds."""
    assert set(flat(FASTER)) == ONLY_SPEED
    for name, value in FASTER.items():
        execute(config(**{name: value}), tmp_path / name)
        assert same(tmp_path / name, unkilled)
        assert tensors_of(tmp_path / name) == tensors_of(unkilled)


@pytest.mark.parametrize("when", [3, 9])
def test_a_run_may_go_on_with_other_threads_memory_and_checkpoints(when: int, tmp_path: Path, unkilled: Path) -> None:
    path = tmp_path / "run"
    kill(path, "ledger", when)
    before = (path / "config.toml").read_bytes()
    execute(config(**FASTER), path, resume=True)
    assert same(path, unkilled)
    assert tensors_of(path) == tensors_of(unkilled)
    assert (path / "config.toml").read_bytes() == before


def test_a_finished_run_is_shown_whatever_speed_is_asked_for(unkilled: Path) -> None:
    assert execute(config(**FASTER), unkilled, resume=True).table() == json.loads(
        (unkilled / "summary.json").read_text()
    )


def test_runs_that_differ_in_speed_alone_have_one_name_and_one_curve(tmp_path: Path) -> None:
    assert run_name(config(**FASTER)) == run_name(config())
    assert run_name(config(batch_size=7)) != run_name(config())
    for seed, changes in enumerate(({}, FASTER)):
        execute(config(iterations=20, seed=seed, **changes), tmp_path / str(seed))
    (section,) = run_sections([tmp_path / "0", tmp_path / "1"])
    assert [row[0] for row in section.tables[0].rows] == ["γ-FedHT"]


def test_only_one_process_runs_in_a_directory(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    with directory.claimed(config()), pytest.raises(gf.InputError, match="another process runs in"):
        execute(config(), tmp_path / "run", resume=True)


def test_a_count_of_one_and_all_of_it_are_different_runs(tmp_path: Path) -> None:
    short = {"iterations": 5, "method": "top-k"}
    execute(config(**short, compression={"k": 1}), tmp_path / "run")
    with pytest.raises(gf.InputError, match=r"compression\.k = 1 there, 1\.0 asked for"):
        execute(config(**short, compression={"k": 1.0}), tmp_path / "run", resume=True)


def test_half_precision_sends_half_of_the_values_and_learns(tmp_path: Path, unkilled: Path) -> None:
    summary = execute(config(compression={"values": "f16"}), tmp_path / "run")
    full = json.loads((unkilled / "summary.json").read_text())
    assert 0.5 < summary.uplink_bytes / full["uplink_bytes"] < 0.7  # values halve, positions stay
    assert summary.final == pytest.approx(full["final"], abs=0.05)


def test_when_no_checkpoint_is_whole_the_run_says_so_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    kill(path, "ledger", 9)
    for name in ("last", "previous"):
        (path / "checkpoint" / f"{name}.safetensors").write_bytes(b"rubbish")
    before = (path / "rounds.jsonl").read_bytes()
    with pytest.raises(gf.InputError, match=r"no checkpoint in .* can be used"):
        execute(config(), path, resume=True)
    assert (path / "rounds.jsonl").read_bytes() == before


def test_a_finished_run_is_read_and_not_run_again(unkilled: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in unkilled.rglob("*")}
    assert execute(config(), unkilled, resume=True).table() == json.loads((unkilled / "summary.json").read_text())
    assert {p: p.stat().st_mtime_ns for p in unkilled.rglob("*")} == before


def test_without_resume_an_existing_run_is_left_alone(unkilled: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in unkilled.rglob("*")}
    with pytest.raises(gf.InputError, match="--resume"):
        execute(config(), unkilled)
    with pytest.raises(gf.InputError, match="seed = 7 there, 8 asked for"):
        execute(config(seed=8), unkilled, resume=True)
    assert {p: p.stat().st_mtime_ns for p in unkilled.rglob("*")} == before


def test_the_written_configuration_runs_again_as_it_is(tmp_path: Path, unkilled: Path) -> None:
    from gammafl.config.layers import read_toml

    execute(make_config(read_toml(unkilled / "config.toml")), tmp_path / "again")
    assert same(tmp_path / "again", unkilled)


@pytest.mark.parametrize("positions", ["rice", "bitmap", "raw"])
def test_the_wire_format_does_not_change_the_model(positions: str, tmp_path: Path, unkilled: Path) -> None:
    execute(config(wire={"positions": positions}), tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == (unkilled / "model.safetensors").read_bytes()


def test_the_summary_has_every_key_of_the_design(unkilled: Path) -> None:
    keys = """task method seed dim iterations rounds clients participants metric final last_mean best averaged
    evaluations kept_fraction uplink_bytes uplink_bytes_per_client value_bytes_per_client dense_bytes_per_client
    wall_seconds"""
    summary = json.loads((unkilled / "summary.json").read_text())
    assert set(keys.split()) <= summary.keys()
    records = [json.loads(line) for line in (unkilled / "rounds.jsonl").read_text().splitlines()]
    assert summary["uplink_bytes"] == sum(record["uplink_bytes"] for record in records)
    assert summary["uplink_bytes_per_client"] == summary["uplink_bytes"] / 5
    assert summary["value_bytes_per_client"] == 4 * sum(record["kept"] for record in records) / 5
    assert summary["dense_bytes_per_client"] == 4 * 10_250 * 12
    assert summary["averaged"] == records[-1]["averaged_metric"]


@pytest.mark.parametrize("sampler", ["epochs", "epochs-fixed"])
def test_passes_over_the_samples_go_on_where_a_killed_run_was(sampler: str, tmp_path: Path, unkilled: Path) -> None:
    settings = {**SETTINGS, "sampler": sampler}
    execute(make_config(settings), tmp_path / "whole")
    command = [sys.executable, "-c", KILLER, json.dumps(settings), str(tmp_path / "run"), "ledger", "9"]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    execute(config(sampler=sampler), tmp_path / "run", resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")
    assert not same(tmp_path / "run", unkilled)


@pytest.mark.parametrize("budget", [0, 0.1])  # none of them in memory, or two
def test_residuals_on_disk_do_not_change_the_model(budget: float, tmp_path: Path, unkilled: Path) -> None:
    execute(config(residual_memory_mb=budget), tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == (unkilled / "model.safetensors").read_bytes()
    assert not (tmp_path / "run/residuals").exists()


def test_a_resumed_run_brings_its_residuals_back_to_disk(tmp_path: Path, unkilled: Path) -> None:
    settings = {**SETTINGS, "residual_memory_mb": 0}
    command = [sys.executable, "-c", KILLER, json.dumps(settings), str(tmp_path / "run"), "ledger", "9"]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert list((tmp_path / "run/residuals").iterdir())
    execute(config(residual_memory_mb=0), tmp_path / "run", resume=True)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (unkilled / "model.safetensors").read_bytes()
