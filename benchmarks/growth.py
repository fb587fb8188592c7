"""The cost of a round as the number of clients grows, while ten of them take part in each round.

Each number of clients runs in a new process, so that its memory can be measured. All share the same data: a client has
20 rows of one array of images.
"""

import multiprocessing as mp
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measure import show_seconds, verdict
from benchmarks.ours import make_plan
from gammafl.config.schema import Input
from gammafl.core import threads
from gammafl.federated import rounds
from gammafl.federated.in_process import InProcess
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.units import show_bytes
from gammafl.report.tables import TextTable
from gammafl.runs import process_memory as memory
from gammafl.tasks.build import normaliser
from gammafl.tasks.models import logistic
from gammafl.tasks.samples import ImageShards
from gammafl.tasks.torch_task import TorchTask

IMAGES, EACH, PARTICIPANTS, THRESHOLD = 60_000, 20, 10, 0.05
BUDGET = 20_000_000


@dataclass(frozen=True)
class Cost:
    """Seconds per round; resident bytes before and after the clients are made, and after the rounds; participants."""

    round_seconds: float
    before: int
    made: int
    after: int
    took_part: int


def table(sizes: Sequence[int], rounds_each: int) -> TextTable:
    costs = {(n, budget): _measured(n, rounds_each, budget) for n in sizes for budget in _budgets(n, sizes)}
    smallest = next(iter(costs.values())).round_seconds
    rows = [
        [
            f"{n:,}" + (f", {show_bytes(budget)} for residuals" if budget else ""),
            show_seconds(cost.round_seconds),
            verdict(cost.round_seconds / smallest, 2, at_most=True),
            show_bytes(max(0, cost.made - cost.before)),
            f"{cost.took_part:,}",
            show_bytes(max(0, cost.after - cost.made)),
        ]
        for (n, budget), cost in costs.items()
    ]
    return TextTable(
        f"logistic regression, {PARTICIPANTS} participants a round, {rounds_each:,} rounds, one thread",
        ["clients", "a round", "of the first", "memory to make them", "took part", "memory of the rounds"],
        rows,
        "Only clients that took part have residuals. Residuals beyond a memory budget are on disk.",
    )


def _budgets(n: int, sizes: Sequence[int]) -> list[int | None]:
    return [None, BUDGET] if n == max(sizes) else [None]


def _measured(n: int, rounds_each: int, budget: int | None) -> Cost:
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (n, rounds_each, budget))


def _run(n: int, rounds_each: int, budget: int | None) -> Cost:
    threads.set_count(1)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (IMAGES, 1, 32, 32), np.uint8)
    labels = random.integers(0, 10, IMAGES, np.uint8)
    normalise = normaliser(Input(), 1)
    before = memory.resident_bytes()
    clients = ImageShards(images, labels, normalise, list(random.integers(0, IMAGES, (n, EACH))))
    task = TorchTask("logistic", logistic(), clients, clients[0], batch_size=50)
    plan = make_plan(task, THRESHOLD, PARTICIPANTS, local_steps=5, rounds_made=rounds_each)
    state, made, seconds = rounds.start(plan), memory.resident_bytes(), []
    with TemporaryDirectory() as folder:
        store = ResidualStore(plan.method, plan.dim, budget or float("inf"), Path(folder))
        running = rounds.run_rounds(plan, state, InProcess(plan, store))
        for _ in range(rounds_each):
            began = time.perf_counter()
            next(running)
            seconds.append(time.perf_counter() - began)
        took_part = len(store.residuals())
        after = memory.resident_bytes()
    return Cost(median(seconds), before, made, after, took_part)
