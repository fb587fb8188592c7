"""Where the time of a round of logistic regression goes: its phases, the loops of a step, the calls of an upload."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch
from numba import njit

from benchmarks import ours
from benchmarks.measure import medians, repeated, show_seconds
from benchmarks.peers.work import Work
from gammafl.core import aggregate, threads
from gammafl.core.jit import REORDERED
from gammafl.core.memory import Residual
from gammafl.core.wire import decode, encode
from gammafl.federated import rounds
from gammafl.federated.batch_draws import Streams
from gammafl.federated.in_process import InProcess
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.timing import Timing
from gammafl.report.tables import TextTable
from gammafl.tasks.fast import softmax_steps

BATCH, STEPS, CLASSES, FEATURES = 50, 5, 10, 1024
WARM_UP, ROUNDS = 100, 300
"""The rounds until the clients' residuals are full, and the rounds of one measurement."""
TIMES = 200
PHASES = {
    "sampling": "picking participants",
    "training": "drawing batches, local training",
    "compression": "compressing and encoding",
    "server": "decoding and aggregating",
    "rest": "anything else",
}


def tables(clients: Sequence[int], repeats: int) -> list[TextTable]:
    return [*(round_table(n, repeats) for n in clients), step_table(repeats), upload_table(repeats)]


def _work(clients: int, thread_count: int) -> Work:
    return Work("logistic", clients, clients // 2, STEPS, BATCH, thread_count)


# --- a round ----------------------------------------------------------------------------------------------


def round_table(clients: int, repeats: int) -> TextTable:
    """The phases on one thread, and the whole round on all of them."""
    alone, _ = _phases(clients, 1, repeats)
    together, whole = _phases(clients, threads.CORES, repeats)
    uploads, total = clients // 2, sum(alone.values())
    rows = [
        [PHASES[phase], show_seconds(value), show_seconds(value / uploads), f"{100 * value / total:.1f}%"]
        for phase, value in alone.items()
    ]
    rows.append(["a round", show_seconds(total), show_seconds(total / uploads), "100%"])
    rows.append([f"a round, {threads.CORES} threads", show_seconds(whole), show_seconds(whole / uploads), ""])
    waiting = show_seconds(together["training"])
    return TextTable(
        f"logistic regression, {uploads} of {clients} clients a round, one thread",
        ["phase", "a round", "a client", "share"],
        rows,
        f"With {threads.CORES} threads, the main thread also compresses and aggregates; it spends {waiting} training or"
        " waiting.",
    )


def _phases(clients: int, thread_count: int, repeats: int) -> tuple[dict[str, float], float]:
    """Median seconds of each phase of a round, and of the round."""
    spec, before = _work(clients, thread_count), threads.count()
    threads.set_count(thread_count)
    try:
        plan, timing = _plan(spec), Timing()
        carrier = InProcess(plan, ResidualStore(plan.method, plan.dim), timing)
        running = rounds.run_rounds(plan, rounds.start(plan), carrier, timing)
        _run(running, WARM_UP)
        found: dict[str, list[float]] = {phase: [] for phase in PHASES}
        for _ in range(repeats):
            timing.seconds.clear()
            seconds = _run(running, ROUNDS)
            spent = {phase: timing.seconds[phase] for phase in PHASES if phase != "rest"}
            for phase, value in {**spent, "rest": seconds - sum(spent.values())}.items():
                found[phase].append(value / ROUNDS)
    finally:
        threads.set_count(before)
    whole = median(map(sum, zip(*found.values(), strict=True)))
    return {phase: median(values) for phase, values in found.items()}, whole


def _plan(spec: Work) -> Plan:
    task = ours.make_task(spec)
    return ours.make_plan(task, ours.THRESHOLDS["logistic"], spec.participants, STEPS, ours.ROUNDS)


def _run(running: Any, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        next(running)
    return time.perf_counter() - began


# --- a local step -----------------------------------------------------------------------------------------


measured = njit(fastmath=REORDERED)
"""Without the compiler's cache, which does not notice changes in loops that are merged into others."""


@measured
def _logits(times: int, data: Any, chosen: Any, scale: Any, shift: Any, weights: Any, bias: Any, slopes: Any) -> None:
    for _ in range(times):
        softmax_steps._logits(data, chosen, scale, shift, weights, bias, slopes)


@measured
def _softmax(times: int, slopes: Any, labels: Any, chosen: Any, room: Any) -> None:
    for _ in range(times):
        softmax_steps._loss_and_slopes(slopes, labels, chosen, chosen.size, np.float32(1e-6), room)


@measured
def _update(times: int, data: Any, chosen: Any, scale: Any, shift: Any, slopes: Any, weights: Any, bias: Any) -> None:
    for _ in range(times):
        softmax_steps._descend(data, chosen, scale, shift, slopes, weights, bias)


def _loops() -> dict[str, Callable[[], object]]:
    """The loops of a step, each done `TIMES` times, and as many whole steps of one client, all on the same batch."""
    random = np.random.default_rng(0)
    data = random.integers(0, 256, (BATCH, FEATURES), np.uint8)
    labels, chosen = random.integers(0, CLASSES, BATCH, np.uint8), np.arange(BATCH)
    scale, shift = np.full(1, 1 / 64, np.float32), np.full(1, 2, np.float32)
    model, slopes = softmax_steps._aligned(CLASSES * (FEATURES + 1)), np.zeros((CLASSES, BATCH), np.float32)
    model[:] = 0
    weights, bias = model[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), model[CLASSES * FEATURES :]
    rows, stepsizes = np.tile(chosen, TIMES)[None], np.full(TIMES, 1e-6, np.float32)
    results = np.empty((1, model.size), np.float32), np.empty(1), np.empty(1, np.float32)

    def train() -> None:
        counts = np.zeros(1, np.int64), np.zeros(1, np.int64)
        softmax_steps.train(data, labels, rows, scale, shift, model, stepsizes, *results, *counts, 1)

    return {
        "logits": lambda: _logits(TIMES, data, chosen, scale, shift, weights, bias, slopes),
        "softmax and loss": lambda: _softmax(TIMES, slopes, labels, chosen, np.empty((2, BATCH), np.float32)),
        "update of the weights": lambda: _update(TIMES, data, chosen, scale, shift, slopes, weights, bias),
        "a step": train,
    }


def step_table(repeats: int) -> TextTable:
    """The loops of a step, on data in the cache, with one thread."""
    products, square = FEATURES * CLASSES * BATCH, torch.ones(FEATURES, FEATURES)
    peak = f"{products:,} products at the speed of torch.mm"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = medians({**_loops(), peak: lambda: torch.mm(square, square)}, repeats)
    finally:
        torch.set_num_threads(before)
    seconds = {name: value / TIMES for name, value in found.items()}
    seconds[peak] = found[peak] * products / FEATURES**3
    return TextTable(
        f"a local step: batch {BATCH}, {FEATURES:,} features, {CLASSES} classes, one thread",
        ["part", "time"],
        [[name, show_seconds(value)] for name, value in seconds.items()],
        "The logits and the update take this number of products each.",
    )


# --- an upload --------------------------------------------------------------------------------------------


def upload_table(repeats: int) -> TextTable:
    """The calls for one upload, many times. All their data are then in the cache, unlike in a round."""
    plan = _plan(_work(100, 1))
    participants = list(range(plan.participants))
    streams = Streams(0, "batches", 0, participants)
    below = [plan.task.client_sizes[client] for client in participants]
    random, dim = np.random.default_rng(0), plan.dim
    delta = random.standard_normal(dim, np.float32)
    delta *= np.float32(ours.THRESHOLDS["logistic"] / np.quantile(np.abs(delta), 0.99))
    memory, turns = Residual(plan.method, dim), [delta, -delta]
    moment = plan.moment(0, plan.method.scale(dim, plan.schedule))
    update = memory.propose(delta, moment)
    memory.residual[:] = 0
    payload, model = encode(update), np.zeros(dim, np.float32)

    def compress() -> None:
        turns.reverse()
        memory.propose(turns[0], moment, 1.0)

    calls: dict[str, Callable[[], object]] = {
        f"compressing {dim:,} elements": repeated(compress, TIMES),
        f"encoding {len(update)} entries": repeated(lambda: encode(update), TIMES),
        "decoding them": repeated(lambda: decode(payload, dim), TIMES),
        "aggregating them": repeated(lambda: aggregate.subtract(model, [update], [0.1]), TIMES),
    }
    found = medians(calls, repeats)
    drawing = f"drawing {STEPS * BATCH} samples, {len(participants)} clients at a time"
    drawn = medians({drawing: repeated(lambda: streams.integers(below, STEPS * BATCH), TIMES)}, repeats)
    found = {drawing: drawn[drawing] / len(participants), **found}
    return TextTable(
        "an upload, many times",
        ["part", "time"],
        [[name, show_seconds(value / TIMES)] for name, value in found.items()],
        "In a round, the same calls find less of their data in the cache.",
    )
