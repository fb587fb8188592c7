"""Runs and ServerApps that are killed at random instants, go on and are killed again: in the end as if left alone.

    python -m tests.campaigns.kill [--kills N] [--iterations T] [--seed S]

The processes are real, and so is SIGKILL. They are forked from one that has imported everything and run once, which
saves the seconds that an interpreter takes to start. A run is `gammafl run`. A ServerApp is a strategy in `Compressed`
with a checkpoint; its clients are in the same process, with their states on the disk, and die with it.
"""

import argparse
import json
import logging
import mmap
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy

import gammafl.flower
from gammafl.cli import main as cli
from gammafl.config.layers import make_config
from gammafl.files import atomic, tensor_files
from gammafl.runs import checkpoint, runner
from gammafl.runs import execute as runs
from gammafl.runs.directory import Ledger
from gammafl.runs.stores import OnDisk
from tests.campaigns.common import Ticker, say, verdict
from tests.conftest import repeatable
from tests.flower.grid import InProcessGrid
from tests.flower.test_strategies import DIM, NODES, app_with, record_of, vector_of

FAULTS = ("absent", "killed", "lost", "late", "repeated", "corrupted", "not_finite")
FLAVOURS: dict[str, list[str]] = {
    "plain": [],
    "with faults": [f"faults.{kind}=0.04" for kind in FAULTS],
    "residuals on disk": ["residual_memory_mb=0"],
    "both directions, with faults": [
        "downlink=gamma-fedht-q:keep=0.04",
        *(f"faults.{kind}=0.04" for kind in (*FAULTS, "forgetful")),
    ],
}
SERVERS: dict[str, tuple[Callable[[], Strategy], dict[str, Any]]] = {
    "FedAvg": (FedAvg, {"method": "top-k:keep=0.1"}),
    "FedAdam, both directions": (
        lambda: FedAdam(eta=0.3),
        {"method": "gamma-fedht-q:keep=0.1", "downlink": "top-k:keep=0.3"},
    ),
    "shifts, changes": (FedAvg, {"method": "gamma-fedht-s:keep=0.1,level=paper", "downlink": "changes"}),
    "momentum, a budget": (FedAvg, {"method": "dgc:keep=0.1", "budget": "40 B/upload"}),
}
BYTES = ("model.safetensors", "averaged-model.safetensors", "rounds.jsonl")
PHASES = ("starting", "in a round", "in the ledger", "in a tensor file", "in a rename", "finishing")
STARTING, ROUND, LEDGER, TENSORS, RENAME, FINISHING = range(len(PHASES))

phase = mmap.mmap(-1, 1)
"""Where the child stands: shared, so that it outlives the child."""


class Moment(NamedTuple):
    """When to kill: after so many seconds of the rounds, or of the whole process; None: never."""

    seconds: float | None
    in_rounds: bool = True


def marked(function: Callable[..., Any], inside: int, after: int | None = None) -> Callable[..., Any]:
    """`function`, with the phase told while it runs; afterwards it is the one before, or `after`."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        before, phase[0] = phase[0], inside
        result = function(*args, **kwargs)
        phase[0] = before if after is None else after
        return result

    return wrapper


def mark_phases() -> None:
    runs.run = marked(runner.run, ROUND, FINISHING)  # type: ignore[attr-defined]
    OnDisk.finish = marked(OnDisk.finish, FINISHING)  # type: ignore[method-assign]
    gammafl.flower.Compressed.start = marked(gammafl.flower.Compressed.start, ROUND, FINISHING)  # type: ignore[method-assign]
    Ledger.append = marked(Ledger.append, LEDGER)  # type: ignore[method-assign]
    tensor_files.replace = marked(tensor_files.replace, TENSORS)
    os.replace = marked(os.replace, RENAME)
    atomic.sync_directory = marked(atomic.sync_directory, RENAME)


def arguments(path: Path, flavour: str, iterations: int) -> list[str]:
    """The command, as a user would type it; --resume where there is something to resume."""
    settings = [f"iterations={iterations}", "checkpoint.every_seconds=0", "evaluation.every=4", "threads=1"]
    settings += ["averaging.fraction=0.5", *FLAVOURS[flavour]]
    chosen = [word for setting in settings for word in ("--set", setting)]
    resume = ["--resume"] if (path / "config.toml").exists() else []
    return ["gammafl", "run", "logistic-mini", "--method", "gamma-fedht", *chosen, "--out", str(path), *resume]


def command_line(flavour: str, iterations: int, path: Path) -> None:
    """`gammafl run` as a user would type it."""
    sys.argv = arguments(path, flavour, iterations)
    cli.main()


def serve(flavour: str, rounds: int, path: Path) -> None:
    """A ServerApp's main function, and its clients."""
    make, settings = SERVERS[flavour]
    app = app_with([gammafl.flower.compress(path / "clients")])
    kept: dict[str, Any] = {"checkpoint": path / "server", "ledger": path / "rounds.jsonl"}
    path.mkdir(exist_ok=True)
    strategy = gammafl.flower.Compressed(make(), **settings, **kept)
    result = strategy.start(
        InProcessGrid(app, NODES), record_of(np.zeros(DIM, np.float32)), rounds, train_config=ConfigRecord({"lr": 0.2})
    )
    assert result.arrays is not None
    np.save(path / "model.npy", vector_of(result.arrays))


def run_in_child(work: Callable[[], None], moment: "Moment", messages: Path) -> tuple[int | None, float]:
    """(exit code or None if killed, seconds since `moment` began to count) of `work` in a process of its own."""
    phase[0] = STARTING
    child = os.fork()
    if child == 0:
        _do(work, messages)
    handle = os.pidfd_open(child)
    while moment.in_rounds and phase[0] == STARTING and not select.select([handle], [], [], 0.001)[0]:
        pass
    began = time.monotonic()
    select.select([handle], [], [], moment.seconds)
    os.close(handle)
    if moment.seconds is not None:
        os.kill(child, signal.SIGKILL)  # one that has ended is still there for us to wait for
    _, status = os.waitpid(child, 0)
    code = None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
    return code, time.monotonic() - began


def _do(work: Callable[[], None], messages: Path) -> None:
    """Never returns."""
    code = 70
    try:
        stream = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def differences(path: Path, other: Path) -> list[str]:
    """What of two finished runs is not the same: models, ledger, summary, all tensors of the last checkpoint."""
    found = [name for name in BYTES if (path / name).read_bytes() != (other / name).read_bytes()]
    summaries = [repeatable(json.loads((p / "summary.json").read_text())) for p in (path, other)]
    if summaries[0] != summaries[1]:
        found.append("summary.json")
    (facts, tensors), (other_facts, other_tensors) = (
        tensor_files.read(p / "checkpoint" / checkpoint.LAST) for p in (path, other)
    )
    for key in facts.keys() | other_facts.keys():
        if not key.endswith("_seconds") and facts.get(key) != other_facts.get(key):
            found.append(f"checkpoint: {key}")
    if list(tensors) != list(other_tensors):
        return [*found, "checkpoint: names of tensors"]
    return found + [f"checkpoint: {n}" for n in tensors if tensors[n].tobytes() != other_tensors[n].tobytes()]


def server_differences(path: Path, other: Path) -> list[str]:
    """What of two finished trainings is not the same: the model, and what the ledgers say of what counted."""
    found = [] if (path / "model.npy").read_bytes() == (other / "model.npy").read_bytes() else ["model.npy"]
    told = ("round", "iteration", "clients", "asked", "kept", "uplink_bytes")
    lines = [[json.loads(line) for line in (p / "rounds.jsonl").read_text().splitlines()] for p in (path, other)]
    ledgers = [[[line[key] for key in told] for line in ledger] for ledger in lines]
    return found if ledgers[0] == ledgers[1] else [*found, "rounds.jsonl"]


class Work(NamedTuple):
    """What is killed: what the process does in a folder, and how two folders are compared."""

    begin: Callable[[Path], None]
    differences: Callable[[Path, Path], list[str]]


def all_work(iterations: int) -> dict[str, Work]:
    """By name."""
    own = {f"run, {name}": Work(partial(command_line, name, iterations), differences) for name in FLAVOURS}
    rounds = max(4, iterations // 10)
    return own | {f"ServerApp, {name}": Work(partial(serve, name, rounds), server_differences) for name in SERVERS}


class Campaign:
    """Kills and resumes the `works` in `folder`, and counts."""

    def __init__(self, folder: Path, works: dict[str, Work], seed: int) -> None:
        self.folder = folder
        self.works = works
        self.rng = random.Random(seed)
        self.landed: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.failures: list[str] = []
        self.finished = 0
        self.whole_seconds: dict[str, float] = {}

    def leave_alone(self, name: str) -> None:
        """The one that others are compared with."""
        code, seconds = self._attempt(self._alone(name), name, Moment(None))
        if code != 0:
            raise SystemExit(f"kill: {name}, left alone, ended with {code}: {self._messages()}")
        self.whole_seconds[name] = seconds

    def _alone(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-")

    def kill_until_done(self, number: int, name: str, most: int) -> None:
        """Once, killed at most `most` times."""
        path, kills = self.folder / f"killed-{number}", 0
        while True:
            code, _ = self._attempt(path, name, self._moment(name) if kills < most else Moment(None))
            if code is not None:
                break
            kills += 1
            self.landed[PHASES[phase[0]]] += 1
            self.killed[name.split(",")[0]] += 1
        text = f"{number} ({name}, {kills} kills)"
        if code != 0:
            self.failures.append(f"{text} ended with {code}: {self._messages()}")
        elif different := self.works[name].differences(path, self._alone(name)):
            self.failures.append(f"{text} differs in {', '.join(different)}")
        else:
            shutil.rmtree(path)
        self.finished += 1

    def _moment(self, name: str) -> Moment:
        """At random; nine times out of ten the kill waits for the first round."""
        return Moment(self.rng.uniform(0, self.whole_seconds[name]), in_rounds=self.rng.random() < 0.9)

    def kills(self) -> int:
        return sum(self.landed.values())

    def _attempt(self, path: Path, name: str, moment: Moment) -> tuple[int | None, float]:
        return run_in_child(lambda: self.works[name].begin(path), moment, self.folder / "messages")

    def _messages(self) -> str:
        return (self.folder / "messages").read_text().strip()[-500:]


def main() -> None:
    parser = argparse.ArgumentParser(description="kill runs and ServerApps, and let them go on")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ticker = Ticker("kill")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    with tempfile.TemporaryDirectory() as folder:
        works = all_work(options.iterations)
        campaign = Campaign(Path(folder), works, options.seed)
        warm = make_config({"task": "logistic-mini", "iterations": 20, "threads": 1})
        runs.execute(warm, Path(folder) / "warm")
        for flavour in SERVERS:
            serve(flavour, 2, Path(folder) / f"warm-{flavour}")
        mark_phases()
        for name in works:
            campaign.leave_alone(name)
        while campaign.kills() < options.kills and not campaign.failures:
            name = list(works)[campaign.finished % len(works)]
            campaign.kill_until_done(campaign.finished, name, options.kills - campaign.kills())
            ticker.tick(f"{campaign.kills()} of {options.kills} kills, {campaign.finished} ended")
    landed = ", ".join(f"{campaign.landed[name]} {name}" for name in PHASES)
    killed = ", ".join(f"{count} of a {name}" for name, count in sorted(campaign.killed.items()))
    for failure in campaign.failures:
        say(f"  {failure}")
    text = f"{campaign.kills()} kills, {campaign.finished} compared, {len(campaign.failures)} that differ"
    where = f"{killed}; landed: {landed}; seed {options.seed}"
    verdict("kill", not campaign.failures, f"{text}; {where}; {ticker.elapsed():.0f} s")


if __name__ == "__main__":
    main()
