"""Residuals stored in bfloat16, compared with float32: accuracy and bytes on disk, over Flower's messages."""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg

import gammafl.flower
from benchmarks.hostile import ALL, ATTACKS, CLIENTS, STEPSIZE, app_with, task_of
from gammafl import seeds
from gammafl.experiments.intervals import interval
from gammafl.flower.disk import Residuals
from gammafl.report.tables import TextTable
from tests.flower.grid import InProcessGrid

KEEP = 0.01


def measured(residuals: Residuals, rounds: int, seed: int) -> tuple[float, float]:
    """The accuracy at the end, and the mean size of a client's state in bytes."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    task = task_of(seed)
    model = task.initial_model(seeds.generator(seed, "model"))
    with tempfile.TemporaryDirectory() as folder:
        chosen = gammafl.flower.Compressed(FedAvg(**ALL), method="top-k", keep=KEEP)
        grid = InProcessGrid(app_with(task, ATTACKS[0], seed, Path(folder), residuals), CLIENTS)
        config = ConfigRecord({"lr": STEPSIZE})
        result = chosen.start(grid, ArrayRecord({"model": Array(model)}), rounds, train_config=config)
        sizes = [path.stat().st_size for path in Path(folder).rglob("*.state")]
    assert result.arrays is not None
    return float(task.evaluate(np.asarray(result.arrays["model"].numpy(), np.float32)).metric), float(np.mean(sizes))


def table(rounds: int, run_seeds: Sequence[int]) -> TextTable:
    rows = []
    for residuals in get_args(Residuals):
        found = [measured(residuals, rounds, seed) for seed in run_seeds]
        one = interval([100 * accuracy for accuracy, _ in found])
        size = np.mean([size for _, size in found])
        rows.append([residuals, f"{one.mean:.1f} ± {one.high - one.mean:.1f}", f"{size / 1000:.1f} kB"])
    return TextTable(
        f"residuals on disk: Top-k, {100 * KEEP:g}% of the entries, {CLIENTS} clients, {rounds} rounds",
        ["residuals", "accuracy in percent", "a client's state"],
        rows,
        f"seeds {', '.join(map(str, run_seeds))}; ± half of the 95% interval",
    )
