"""Whole runs with optimisers of clients and server, and with metrics of one's own: repeated, resumed, refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gammafl as gf
from gammafl import seeds
from gammafl.config.layers import make_config
from gammafl.config.optimizers import server_optimizer
from gammafl.files import tensor_files
from gammafl.runs import checkpoint
from gammafl.runs.directory import RunDirectory
from gammafl.runs.execute import execute
from gammafl.runs.progress import Silent, Status
from tests.problems import OnRound, Quadratic, blobs, plan_for
from tests.runs.forging import forge
from tests.runs.stopped import stopped_run
from tests.tasks.test_metrics import f1
from tests.tasks.test_own import EXAMPLE
from tests.test_cli import gammafl

SETTINGS = {
    "task": "logistic-mini",
    "method": "top-k",
    "iterations": 60,
    "evaluation": {"every": 4, "last": 2},
    "checkpoint": {"every_seconds": 0},
    "stepsize": {"kind": "constant", "value": 0.002},
    "proximal": 0.1,
}
FILES = ("rounds.jsonl", "model.safetensors", "averaged-model.safetensors")


class Stopping(Silent):
    """Ends the run after some rounds, as Ctrl-C does."""

    def update(self, status: Status) -> None:
        if status.round == 7:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["momentum", "adam", "yogi", "adagrad"])
@pytest.mark.parametrize("local", [{"kind": "adamw", "weight_decay": 0.1}, {"kind": "sgd", "momentum": 0.9}])
def test_interrupted_and_resumed_is_the_same_as_left_alone(local: Any, kind: str, tmp_path: Path) -> None:
    config = make_config(SETTINGS, {"optimizer": local, "server_optimizer": {"kind": kind, "lr": 0.05}})
    execute(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(config, tmp_path / "run", progress=Stopping())
    assert not (tmp_path / "run/summary.json").exists()
    execute(config, tmp_path / "run", resume=True)
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def simulated(**settings: Any) -> Any:
    torch.manual_seed(0)
    clients, test = blobs()
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
    chosen: dict[str, Any] = {"stepsize": 0.01, "iterations": 60, "batch_size": 10, "evaluate_every": 2} | settings
    return gf.simulate(model, clients, test, **chosen)


def weights(result: Any) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in result.model.state_dict().items()}


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, "sgd:momentum=0.9,nesterov=true", "rmsprop"], ids=str)
def test_results_do_not_depend_on_threads(optimizer: Any) -> None:
    settings: dict[str, Any] = {"optimizer": optimizer, "proximal": 0.1, "server_optimizer": "yogi", "metric": f1}
    runs = [simulated(threads=threads, **settings) for threads in (1, 2, 3)]
    assert runs[0].rounds == runs[1].rounds == runs[2].rounds
    assert weights(runs[0]) == weights(runs[1]) == weights(runs[2])
    assert weights(simulated(seed=1, **settings)) != weights(runs[0])


def test_what_changes_nothing_changes_no_byte() -> None:
    plain = simulated()
    settings: list[dict[str, Any]] = [
        {"optimizer": "sgd:momentum=0"},
        {"optimizer": lambda params, lr: torch.optim.SGD(params, lr=lr)},
        {"proximal": 0},
        {"server_optimizer": "momentum:lr=1,momentum=0"},
        {"server_optimizer": "none"},
    ]
    for chosen in settings:
        same = simulated(**chosen)
        assert (same.rounds, weights(same)) == (plain.rounds, weights(plain))


def test_one_client_with_everything_sent_is_adamw_by_hand_made_anew_each_round() -> None:
    (data, *_), test = blobs()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    result = gf.simulate(
        model, [data], test, method=gf.fedavg(), stepsize=gf.InverseDecay(1, 100), iterations=20, local_steps=4,
        batch_size=10, participation=1, optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr, weight_decay=0.1),
    )  # fmt: skip
    by_hand, iteration = model, 0
    for round_number in range(5):
        rows = torch.from_numpy(seeds.generator(0, "batches", round_number, 0).integers(len(data), size=40))
        optimizer = torch.optim.AdamW(by_hand.parameters(), weight_decay=0.1)
        for batch in rows.split(10):
            for group in optimizer.param_groups:
                group["lr"] = 1 / (iteration + 100)
            optimizer.zero_grad()
            nn.functional.cross_entropy(by_hand(data.tensors[0][batch]), data.tensors[1][batch]).backward()
            optimizer.step()
            iteration += 1
    for name, tensor in by_hand.state_dict().items():
        np.testing.assert_allclose(result.model.state_dict()[name], tensor, atol=1e-5)


def test_a_run_goes_on_with_the_same_optimisers_and_metrics_alone(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"optimizer": torch.optim.AdamW, "server_optimizer": "adam", "metric": {"f1": f1}}

    def stop(round: gf.Round) -> None:
        if round.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulated(**settings, out=tmp_path / "run", checkpoint_seconds=0, callbacks=[OnRound(stop)])
    others: dict[str, Any] = {
        "optimizer": lambda params, lr: torch.optim.AdamW(params, lr=lr, weight_decay=0.5),
        "server_optimizer": "adam:lr=0.2",
        "proximal": 0.5,
        "metric": {"f1": f1, "loss": "loss"},
        "higher_is_better": False,
    }
    for name, other in others.items():
        with pytest.raises(gf.InputError, match=name):
            simulated(**settings | {name: other}, out=tmp_path / "run")
    resumed, whole = simulated(**settings, out=tmp_path / "run"), simulated(**settings)
    assert (resumed.rounds, weights(resumed)) == (whole.rounds, weights(whole))


def test_further_metrics_are_in_the_ledger_and_in_the_summary(tmp_path: Path) -> None:
    result = simulated(metric={"accuracy": "accuracy", "f1": f1, "loss": "loss"}, out=tmp_path / "run")
    last = result.rounds[-1]
    assert result.summary.metric == "accuracy"
    assert list(last.metrics) == ["f1", "loss"]
    assert last.metrics["loss"] == last.loss
    assert (result.summary.metrics, result.summary.averaged_metrics) == (last.metrics, last.averaged_metrics)
    lines = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert lines[-1]["metrics"] == last.metrics
    assert "metrics" not in lines[0]
    assert RunDirectory(tmp_path / "run").records() == result.rounds


def test_the_best_of_an_error_is_the_least() -> None:
    def error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs.argmax(1) != targets).float().mean()

    result = simulated(metric=error, higher_is_better=False)
    assert result.summary.best == min(record.metric for record in result.rounds if record.evaluated)
    assert result.summary.metric == "error"


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("optimizer.kind=adamv", "no optimizer 'adamv' (did you mean"),
        ("optimizer.momntum=0.9", "optimizer 'sgd' has no setting 'momntum' (did you mean 'momentum'"),
        ("optimizer.lr=0.1", "the learning rate is the run's stepsize"),
        ("optimizer.momentum=nan", "optimizer.momentum must be a finite number"),
        ("optimizer.momentum=-1", "Invalid momentum value"),
        ("optimizer=adamw", "optimizer is a table: set one of its keys, such as optimizer.kind"),
        ("proximal=-1", "proximal"),
        ("server_optimizer.kind=adm", "server_optimizer.kind must be one of none, momentum, adam, yogi, adagrad"),
        ("server_optimizer.lr=1", "unknown key 'server_optimizer.lr'"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(
    setting: str, problem: str, in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = gammafl("run", "logistic-mini", "--set", setting, capsys=capsys)
    assert (code, problem in err, len(err.splitlines())) == (2, True, 1), err
    assert not (in_tmp / "runs").exists()


def test_a_task_of_ones_own_trains_as_the_command_line_says(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that says nothing, one that passes the setting on, and one that has an optimiser of its own."""
    variants = {"plain": "", "passing": ", optimizer=config.optimizer", "own": ", optimizer='sgd:momentum=0.5'"}
    for name, extra in variants.items():
        call = "batch_size=config.batch_size"
        (in_tmp / f"{name}.py").write_text(EXAMPLE.replace(call, call + extra))
    chosen = ["--set", "iterations=20", "--set", "optimizer.kind=adamw", "--set", "stepsize.scale=1"]
    for name in ("plain", "passing"):
        assert gammafl("run", f"{name}.py:build", *chosen, "--out", name, capsys=capsys)[0] == 0
    assert (in_tmp / "plain/rounds.jsonl").read_bytes() == (in_tmp / "passing/rounds.jsonl").read_bytes()
    code, _, err = gammafl("run", "own.py:build", *chosen, capsys=capsys)
    assert (code, "own.py:build sets optimizer= itself" in err) == (2, True)
    assert gammafl("run", "own.py:build", "--set", "iterations=20", "--out", "own", capsys=capsys)[0] == 0


def test_a_task_that_trains_by_itself_takes_no_optimiser(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_tmp / "mine.py").write_text(
        "from tests.problems import Quadratic\nSETTINGS = {'iterations': 20, 'clients': 4}\n"
        "def build(config):\n    return Quadratic()\n"
    )
    code, _, err = gammafl("run", "mine.py:build", "--set", "optimizer.momentum=0.9", capsys=capsys)
    assert (code, "optimizer and proximal are for tasks that gf.torch_task makes" in err) == (2, True)


@pytest.mark.parametrize(
    "forged",
    [
        {"moment.squares": None},
        {"moment.squares": np.full(50, -1, np.float32)},
        {"moment.squares": np.zeros(9, np.float32)},
        {"moment.momentum": np.zeros(50, np.float32)},
    ],
    ids=["one less", "negative squares", "too short", "one more"],
)
def test_a_checkpoint_whose_moments_make_no_sense_is_passed_over(forged: dict[str, Any], tmp_path: Path) -> None:
    plan = plan_for(gf.top_k(keep=0.1), Quadratic(), server_optimizer=server_optimizer("adam"))
    directory = stopped_run(plan, tmp_path, 3)
    last, said = directory.checkpoints / checkpoint.LAST, list[str]()
    facts, tensors = tensor_files.read(last)
    forge(last, facts, {name: tensor for name, tensor in {**tensors, **forged}.items() if tensor is not None})
    found = checkpoint.load(directory.checkpoints, plan, directory.ledger_file, said.append)
    assert found is not None
    assert (found.state.round, len(said)) == (2, 1)
