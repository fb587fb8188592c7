"""Runs that are killed at random instants, resumed and killed again: in the end the bytes of a run left alone.

    python -m tests.campaigns.kill [--kills N] [--iterations T] [--seed S]

The processes are real, `gammafl run` each, and so is SIGKILL. They are forked from one that has imported everything
and run once, which saves the seconds that an interpreter takes to start.
"""

import argparse
import json
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
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gammafl.cli import main as cli
from gammafl.config.layers import make_config
from gammafl.files import atomic, tensor_files
from gammafl.runs import checkpoint, runner
from gammafl.runs import execute as runs
from gammafl.runs.directory import Ledger
from gammafl.runs.stores import OnDisk
from tests.campaigns.common import Ticker, say, verdict
from tests.conftest import repeatable

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


def run_in_child(command: list[str], moment: "Moment", messages: Path) -> tuple[int | None, float]:
    """(exit code or None if killed, seconds since `moment` began to count) of the command in a process of its own."""
    phase[0] = STARTING
    child = os.fork()
    if child == 0:
        _be_the_command(command, messages)
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


def _be_the_command(command: list[str], messages: Path) -> None:
    """Never returns."""
    code = 70
    try:
        stream = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        sys.argv = command
        cli.main()
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


class Campaign:
    """Kills and resumes runs in `folder`, and counts."""

    def __init__(self, folder: Path, iterations: int, seed: int) -> None:
        self.folder = folder
        self.iterations = iterations
        self.rng = random.Random(seed)
        self.landed: Counter[str] = Counter()
        self.failures: list[str] = []
        self.finished = 0
        self.whole_seconds: dict[str, float] = {}

    def leave_alone(self, flavour: str) -> None:
        """The run that others are compared with."""
        path = self.folder / flavour.replace(" ", "-")
        code, seconds = self._attempt(path, flavour, Moment(None))
        if code != 0:
            raise SystemExit(f"kill: the run left alone ended with {code}: {self._messages()}")
        self.whole_seconds[flavour] = seconds

    def kill_until_done(self, number: int, flavour: str, most: int) -> None:
        """One run, killed at most `most` times."""
        path, kills = self.folder / f"run-{number}", 0
        while True:
            code, _ = self._attempt(path, flavour, self._moment(flavour) if kills < most else Moment(None))
            if code is not None:
                break
            kills += 1
            self.landed[PHASES[phase[0]]] += 1
        name = f"run {number} ({flavour}, {kills} kills)"
        if code != 0:
            self.failures.append(f"{name} ended with {code}: {self._messages()}")
        elif different := differences(path, self.folder / flavour.replace(" ", "-")):
            self.failures.append(f"{name} differs in {', '.join(different)}")
        else:
            shutil.rmtree(path)
        self.finished += 1

    def _moment(self, flavour: str) -> Moment:
        """At random; nine times out of ten the kill waits for the first round."""
        return Moment(self.rng.uniform(0, self.whole_seconds[flavour]), in_rounds=self.rng.random() < 0.9)

    def kills(self) -> int:
        return sum(self.landed.values())

    def _attempt(self, path: Path, flavour: str, moment: Moment) -> tuple[int | None, float]:
        return run_in_child(arguments(path, flavour, self.iterations), moment, self.folder / "messages")

    def _messages(self) -> str:
        return (self.folder / "messages").read_text().strip()[-500:]


def main() -> None:
    parser = argparse.ArgumentParser(description="kill runs and resume them")
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ticker = Ticker("kill")
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), options.iterations, options.seed)
        warm = make_config({"task": "logistic-mini", "iterations": 20, "threads": 1})
        runs.execute(warm, Path(folder) / "warm")
        mark_phases()
        for flavour in FLAVOURS:
            campaign.leave_alone(flavour)
        while campaign.kills() < options.kills and not campaign.failures:
            flavour = list(FLAVOURS)[campaign.finished % len(FLAVOURS)]
            campaign.kill_until_done(campaign.finished, flavour, options.kills - campaign.kills())
            ticker.tick(f"{campaign.kills()} of {options.kills} kills, {campaign.finished} runs ended")
    landed = ", ".join(f"{campaign.landed[name]} {name}" for name in PHASES)
    say(f"  seed {options.seed}; kills landed: {landed}")
    for failure in campaign.failures:
        say(f"  {failure}")
    text = f"{campaign.kills()} kills, {campaign.finished} runs compared, {len(campaign.failures)} that differ"
    verdict("kill", not campaign.failures, f"{text}, {ticker.elapsed():.0f} s")


if __name__ == "__main__":
    main()
