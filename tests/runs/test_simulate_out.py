"""gf.simulate(out=…): a run directory that survives its process, and that no other run takes for its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl.core import threads
from gammafl.experiments.pages import run_sections, write_page
from gammafl.runs.simulate import Result
from tests.conftest import repeatable
from tests.problems import OnRound, blobs

SETTINGS: dict[str, Any] = {
    "stepsize": gf.InverseDecay(50, 500),
    "iterations": 60,
    "keep": 0.1,
    "batch_size": 10,
    "evaluate_every": 4,
    "faults": {"lost": 0.1, "corrupted": 0.1},
    "checkpoint_seconds": 0,
}
FILES = ("model.safetensors", "averaged-model.safetensors", "rounds.jsonl")

KILLED = """
import os, signal, sys
from pathlib import Path
from gammafl.runs.directory import Ledger
from tests.runs.test_simulate_out import simulated

append, left = Ledger.append, int(sys.argv[2])

def killing(self, record):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, record)

Ledger.append = killing
simulated(Path(sys.argv[1]))
"""


def network(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def simulated(out: Path | None, model: nn.Module | None = None, clients: Any = None, **changes: Any) -> Result:
    usual, test = blobs()
    return gf.simulate(model or network(), clients or usual, test, out=out, **{**SETTINGS, **changes})


def weights(result: Result) -> list[bytes]:
    assert result.averaged_model is not None
    modules = (result.model, result.averaged_model)
    return [tensor.numpy().tobytes() for module in modules for tensor in module.state_dict().values()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "run"
    simulated(path)
    return path


def test_a_run_in_a_directory_is_the_run_in_memory(whole: Path) -> None:
    in_memory, stored = simulated(None), simulated(whole)
    assert stored.rounds == in_memory.rounds
    assert weights(stored) == weights(in_memory)
    assert repeatable(stored.summary.table()) == repeatable(in_memory.summary.table())
    assert in_memory.summary.missing_uploads > 0


def test_a_finished_run_is_read_and_not_run_again(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    result = simulated(whole, callbacks=[OnRound(lambda round: pytest.fail("a round was run"))])
    assert result.summary.table() == json.loads((whole / "summary.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


@pytest.mark.parametrize("when", [1, 2, 8])
def test_killed_and_called_again_it_ends_with_the_same_bytes(when: int, tmp_path: Path, whole: Path) -> None:
    path = tmp_path / "run"
    process = subprocess.run([sys.executable, "-c", KILLED, str(path), str(when)], capture_output=True)
    assert process.returncode == -signal.SIGKILL
    assert not (path / "summary.json").exists()
    run: list[int] = []
    result = simulated(
        path, threads=2, residual_memory_mb=0, callbacks=[OnRound(lambda round: run.append(round.round))]
    )
    assert run == list(range(when, 13))
    for name in FILES:
        assert (path / name).read_bytes() == (whole / name).read_bytes()
    assert weights(result) == weights(simulated(whole))
    summaries = [repeatable(json.loads((folder / "summary.json").read_text())) for folder in (path, whole)]
    assert summaries[0] == summaries[1]
    assert not (path / "residuals").exists()


def test_a_run_that_its_caller_ends_goes_on_with_the_next_call(tmp_path: Path, whole: Path) -> None:
    def stop(round: gf.Round) -> None:
        if round.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulated(tmp_path / "run", callbacks=[OnRound(stop)])
    assert simulated(tmp_path / "run").rounds == simulated(whole).rounds


def other_data() -> list[TensorDataset]:
    return [TensorDataset(2 * inputs, labels) for inputs, labels in (client.tensors for client in blobs()[0])]


class StopsAtOnce(gf.Callback):
    def on_start(self, run: gf.Run) -> str:
        return "not yet"


@pytest.mark.parametrize("method", ["gamma-fedht-s", "gamma-fedht:level=run"])
def test_a_run_that_a_callback_ended_before_its_first_round_can_go_on(method: str, tmp_path: Path) -> None:
    """Nothing steers the level yet: no state of it is stored."""
    with pytest.raises(gf.InputError, match="not yet"):
        simulated(tmp_path / "run", method=method, callbacks=[StopsAtOnce()])
    assert simulated(tmp_path / "run", method=method).summary is not None


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seed": 8}, "seed = 0 there, 8 asked for"),
        ({"keep": 0.2}, "method = gamma-fedht:keep=0.1 there, gamma-fedht:keep=0.2 asked for"),
        ({"method": gf.TopK(3)}, r"method = .* there, TopK\(k=3, scope='global'\) asked for"),
        ({"stepsize": 0.1}, r"stepsize = InverseDecay\(.*\) there, Constant\(value=0.1\) asked for"),
        ({"stepsize": lambda t: 0.1}, "stepsize = .* asked for"),
        ({"faults": {"lost": 0.2}}, "faults.lost = 0.1 there, 0.2 asked for"),
        ({"limits": gf.Limits(entries=5)}, "limits.entries = None there, 5 asked for"),
        ({"loss": nn.functional.mse_loss, "metric": "loss"}, "loss = cross_entropy there, mse_loss asked for"),
        ({"clients": other_data()}, "other data"),
        ({"model": network(2)}, "a model with other layers or initial weights"),
        ({"model": nn.Sequential(*list(network())[:2], nn.Dropout(0.5), network()[3])}, "a model with other layers"),
    ],
    ids=range(11),
)
def test_another_run_is_refused_in_a_line_that_names_the_difference(
    changes: dict[str, Any], difference: str, whole: Path
) -> None:
    with pytest.raises(gf.InputError, match=f"holds another run.*{difference}.*; choose another out=$"):
        simulated(whole, **changes)


def test_functions_that_are_stepsizes_are_told_apart_by_their_values(tmp_path: Path) -> None:
    simulated(tmp_path / "run", stepsize=lambda t: 0.1 / (t + 1))
    simulated(tmp_path / "run", stepsize=lambda t: 0.1 / (1 + t))
    with pytest.raises(gf.InputError, match="stepsize"):
        simulated(tmp_path / "run", stepsize=lambda t: 0.2 / (t + 1))


def test_a_directory_of_the_command_line_is_another_run_and_so_is_the_reverse(tmp_path: Path, whole: Path) -> None:
    from gammafl.config.layers import make_config
    from gammafl.runs.execute import execute

    config = make_config({"task": "logistic-mini", "iterations": 5})
    execute(config, tmp_path / "run")
    with pytest.raises(gf.InputError, match="holds a run of gammafl run"):
        simulated(tmp_path / "run")
    with pytest.raises(gf.InputError, match=r"holds a run of gf\.simulate"):
        execute(config, whole, resume=True)


def test_a_stored_model_that_can_not_be_used_is_named_and_made_again(tmp_path: Path, whole: Path) -> None:
    simulated(tmp_path / "run")
    for spoil in (lambda path: path.write_bytes(b"?"), lambda path: path.unlink()):
        spoil(tmp_path / "run/model.safetensors")
        with pytest.raises(gf.InputError, match=r"model\.safetensors can't be used .* remove .*summary\.json"):
            simulated(tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    assert weights(simulated(tmp_path / "run")) == weights(simulated(whole))


def test_threads_are_afterwards_as_they_were(tmp_path: Path) -> None:
    before = threads.count(), torch.get_num_threads()
    simulated(None, threads=before[0] + 1)
    assert (threads.count(), torch.get_num_threads()) == before


def test_residuals_that_do_not_fit_into_memory_change_nothing(whole: Path) -> None:
    assert weights(simulated(None, residual_memory_mb=0)) == weights(simulated(whole))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"threads": 0}, "threads"),
        ({"threads": "two"}, "threads"),
        ({"residual_memory_mb": -1}, "residual_memory_mb"),
        ({"checkpoint_seconds": None}, "checkpoint_seconds"),
        ({"limits": 5}, r"limits must be gf\.Limits"),
        ({"faults": {"lots": 0.1}}, r"faults\.lots.*did you mean 'lost'"),
        ({"faults": {"lost": 0.6, "late": 0.6}}, "add up to at most 1"),
        ({"faults": "lost"}, "faults"),
        ({"name": 3}, "name must be text, got 3"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(gf.InputError, match=problem):
        simulated(None, **wrong)


class Own(gf.Compressor):
    """Sends the first half."""

    def take(self, vector: Any, moment: gf.Moment) -> gf.SparseUpdate:
        half = vector.size // 2
        values = vector[:half].copy()
        vector[:half] = 0
        return gf.SparseUpdate(vector.size, range(half), values)


def test_a_report_shows_simulations_with_their_curves_whatever_the_method(tmp_path: Path, whole: Path) -> None:
    for seed in (0, 1):
        simulated(tmp_path / f"own{seed}", method=gf.Method(Own()), seed=seed, model=network(seed))
    (section,) = run_sections([whole, tmp_path / "own0", tmp_path / "own1"])
    names = [row[0] for row in section.tables[0].rows]
    assert len(names) == 2
    assert names[0] == "γ-FedHT, keep=0.1"
    assert "Own" in names[1]
    assert [row[1] for row in section.tables[0].rows] == ["1", "2"]
    assert section.panels
    write_page([whole, tmp_path / "own0"], tmp_path / "page.html", {})
    assert "γ-FedHT" in (tmp_path / "page.html").read_text()


def test_the_same_seed_on_other_data_is_a_curve_of_its_own(tmp_path: Path, whole: Path) -> None:
    simulated(tmp_path / "other", clients=other_data())
    (section,) = run_sections([whole, tmp_path / "other"])
    assert [row[0] for row in section.tables[0].rows] == ["γ-FedHT, keep=0.1", "γ-FedHT, keep=0.1, other"]


class Converts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.float())


@pytest.mark.parametrize("place", [0, 2, "test"])
def test_float64_samples_are_named_unless_the_model_converts_them(place: Any) -> None:
    clients, test = blobs()
    sets = [*clients, test]
    where = len(clients) if place == "test" else place
    inputs, labels = sets[where].tensors
    sets[where] = TensorDataset(inputs.double(), labels)
    settings: dict[str, Any] = {"stepsize": 0.1, "iterations": 5}
    name = "test_dataset" if place == "test" else rf"client_datasets\[{place}\]"
    with pytest.raises(gf.InputError, match=rf"{name} holds float64 numbers.*astype\(np\.float32\)"):
        gf.simulate(nn.Linear(8, 3), sets[:-1], sets[-1], **settings)
    gf.simulate(Converts(), sets[:-1], sets[-1], **settings)


def test_numpy_samples_of_float64_are_named() -> None:
    clients, test = blobs()
    pairs: Any = [[(x.double().numpy(), int(y)) for x, y in zip(*client.tensors, strict=True)] for client in clients]
    with pytest.raises(gf.InputError, match=r"client_datasets\[0\] holds float64 numbers"):
        gf.simulate(nn.Linear(8, 3), pairs, test, stepsize=0.1, iterations=5)
