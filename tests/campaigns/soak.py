"""A hundred thousand rounds in one process: memory and open files stay flat, and the ledger can be read meanwhile.

    python -m tests.campaigns.soak [--rounds N]

All of `gammafl run` but the training is at work: ledger, checkpoints, residuals, progress. The task is a quadratic in
fifty dimensions, with faults, so that a round takes a fraction of a millisecond.
"""

import argparse
import json
import math
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.config.schema import Faults, RunConfig
from gammafl.core.arrays import Vector
from gammafl.federated.plan import Plan
from gammafl.federated.task import LocalUpdate
from gammafl.runs import execute as runs
from gammafl.runs.progress import Status
from gammafl.tasks.data.catalogue import Say
from tests.campaigns.common import Ticker, open_files, own_bytes, resident_bytes, say, verdict
from tests.campaigns.mutations import compile_all
from tests.problems import Quadratic

SAMPLES = 400
WARM_UP = 0.2
"""Of the rounds: caches fill and the allocator finds its size."""

Numbers = Sequence[float] | NDArray[np.int64]

BLOCKS = 10
T_975 = 2.306
"""Student's t for 95% with 8 degrees of freedom: a line through ten means."""

NOISE_BYTES = 1 << 20
"""What the allocator and the kernel may do to a process that holds nothing more."""


class Forgetful(Quadratic):
    """Keeps no list of its updates, which would be the leak that we look for."""

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        for update in super().train(clients, model, stepsizes, rngs):
            self.deltas.clear()
            yield update


class Gauge:
    """A `Progress` that reads the process's memory and open files every so many rounds.

    The table of readings is there from the start: a list of them would grow by half a byte a round.
    """

    def __init__(self, rounds: int) -> None:
        self.every = max(1, rounds // SAMPLES)
        self.ticker = Ticker("soak")
        self.readings = np.full((rounds // self.every, 4), -1, np.int64)
        """A row each: round, resident bytes, own bytes, open files."""

    def say(self, text: str) -> None:
        say(text)

    def update(self, status: Status) -> None:
        if status.round % self.every == 0:
            row = self.readings[status.round // self.every - 1]
            row[:] = status.round, resident_bytes(), own_bytes(), open_files()
            self.ticker.tick(f"{status.round:,} of {status.rounds:,} rounds, {row[1] / 2**20:.1f} MiB")


def slope_with_interval(rounds: Numbers, values: Numbers) -> tuple[float, float]:
    """Growth a round and half of its 95% interval, from the means of ten blocks, since neighbouring readings agree."""
    x = np.array([block.mean() for block in np.array_split(np.asarray(rounds, float), BLOCKS)])
    y = np.array([block.mean() for block in np.array_split(np.asarray(values, float), BLOCKS)])
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - slope * centred
    error = math.sqrt(float(rest @ rest) / (BLOCKS - 2) / float(centred @ centred))
    return slope, T_975 * error


def follow(path: Path, rounds: int, results: Any) -> None:
    """Reads the ledger while it is written: every line whole, and every round in its turn."""
    expected, reads, tail, began = 1, 0, b"", time.monotonic()
    while not path.exists() and time.monotonic() - began < 60:
        time.sleep(0.01)
    with path.open("rb") as stream:
        while expected <= rounds:
            piece = stream.read()
            reads += bool(piece)
            *lines, tail = (tail + piece).split(b"\n")
            for line in lines:
                if json.loads(line)["round"] != expected:
                    results.put((reads, f"round {expected} is {line[:60]!r}"))
                    return
                expected += 1
            if piece:
                began = time.monotonic()
            elif time.monotonic() - began > 120:
                results.put((reads, f"nothing after round {expected - 1}"))
                return
            time.sleep(0.002)
    results.put((reads, "" if not tail else f"half a line at the end: {tail[:60]!r}"))


def soak(rounds: int, folder: Path, gauge: Gauge) -> None:
    """Runs `rounds` rounds as `gammafl run` would, but of our own task."""
    config = make_config(
        {"task": "logistic-mini", "iterations": rounds, "local_steps": 1, "checkpoint": {"every_seconds": 0.2}}
    )
    stepsize = gf.InverseDecay(20, 100)

    def make_plan(config: RunConfig, data_dir: Path | None, say: Say) -> Plan:
        return Plan(
            task=Forgetful(),
            method=gf.gamma_fedht(initial_threshold=0.1),
            stepsize=stepsize,
            iterations=rounds,
            local_steps=1,
            participants=2,
            seed=0,
            faults=Faults(lost=0.1, repeated=0.05, corrupted=0.05),
        )

    runs.make_plan = make_plan
    runs.execute(config, folder / "run", progress=gauge)


def judge(gauge: Gauge, rounds: int) -> tuple[list[str], str]:
    """What is not flat is a failure; and the figures in a few words. Prints all of them."""
    settled = gauge.readings[gauge.readings[:, 0] > WARM_UP * rounds]
    at, resident, own, files = settled.T
    failures, figures = [], []
    for name, memory in (("resident memory", resident), ("memory of its own", own)):
        slope, half = slope_with_interval(at, memory)
        say(f"  {name} {memory[0] / 2**20:.2f} → {memory[-1] / 2**20:.2f} MiB over {len(settled)} readings:")
        figures.append(f"{name} {slope:+.3f} ± {half:.3f} bytes a round (95%)")
        zero = "0 is within" if abs(slope) <= half else "0 is not within"
        say(
            f"    slope {slope:+.3f} ± {half:.3f} bytes a round (95%; {zero}), {slope * rounds / 2**10:+.0f} KiB in all"
        )
        if (slope - half) * rounds > NOISE_BYTES:
            failures.append(f"{name} grows by at least {(slope - half) * rounds:.0f} bytes")
    say(f"  open files {min(files)} to {max(files)}")
    files_slope, files_half = slope_with_interval(at, files)
    figures.append(f"{min(files)} to {max(files)} open files")
    failures += ["open files grow"] if (files_slope - files_half) * rounds > 1 else []
    return failures, ", ".join(figures)


def main() -> None:
    parser = argparse.ArgumentParser(description="run for very long")
    parser.add_argument("--rounds", type=int, default=120_000)
    options = parser.parse_args()
    ticker = Ticker("soak")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledger = folder / "run/rounds.jsonl"
        reader = context.Process(target=follow, args=(ledger, options.rounds, results), daemon=True)
        reader.start()
        compile_all()
        gauge = Gauge(options.rounds)
        soak(options.rounds, folder, gauge)
        reads, problem = results.get(timeout=180)
    failures, figures = judge(gauge, options.rounds)
    say(f"  another process read the ledger {reads:,} times meanwhile: {problem or 'every line whole'}")
    failures += [problem] if problem else []
    for failure in failures:
        say(f"  {failure}")
    text = f"{options.rounds:,} rounds, {len(failures)} failures; {figures}; ledger read {reads:,} times"
    verdict("soak", not failures, f"{text}; {ticker.elapsed():.0f} s")


if __name__ == "__main__":
    main()
