"""The runner of all runs, of the command line and of `gf.simulate`: rounds, checkpoints, progress, summary."""

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gammafl.core.errors import not_installed, require

try:
    import torch
except ModuleNotFoundError:
    raise not_installed("torch", "train") from None

from gammafl.core import threads
from gammafl.core.device.places import HOST_MEMORY
from gammafl.federated import rounds
from gammafl.federated.faults import carrier
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord, Summary
from gammafl.federated.residuals import ResidualStore, Room
from gammafl.federated.server import ServerState
from gammafl.federated.summary import summarise
from gammafl.federated.timing import Timing
from gammafl.runs import process_memory as memory
from gammafl.runs.progress import Progress, Status
from gammafl.runs.stores import Store

OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Resources:
    """How fast a run is and what memory it takes. No byte of what comes out depends on it.

    threads              clients that train at a time; None: one for each core
    residual_memory_mb   memory for the clients' residuals, further ones are on disk; None: all are in memory
    checkpoint_seconds   time between two checkpoints; 0: one after every round
    device_memory_mb     memory for residuals on the task's device, further ones are on the host; None: all are there
    """

    threads: int | None = None
    residual_memory_mb: float | None = None
    checkpoint_seconds: float = 10.0
    device_memory_mb: float | None = None


@dataclass(frozen=True)
class Names:
    """What a run is called: its task and its method in the summary, its label in the progress."""

    task: str
    method: str
    label: str


@dataclass(frozen=True)
class Finished:
    """What a run came to."""

    summary: Summary
    records: list[RoundRecord]
    state: ServerState


class Clock:
    """Seconds that the run took in all its sessions, and when the next checkpoint is due."""

    def __init__(self, began: float, every_seconds: float, timing: Timing) -> None:
        self.began = began
        self.every_seconds = every_seconds
        self.timing = timing
        self.due = time.perf_counter() + every_seconds

    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def readings(self) -> dict[str, Any]:
        """What a checkpoint keeps of the times."""
        return {"wall_seconds": self.seconds(), "phase_seconds": self.timing.seconds}

    def checkpoint_due(self) -> bool:
        return time.perf_counter() >= self.due

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """A checkpoint that takes long is made less often: at most a twentieth of the time goes into them."""
        began = time.perf_counter()
        yield
        ended = time.perf_counter()
        self.due = ended + (max(self.every_seconds, 20 * (ended - began)) if self.every_seconds else 0)


@contextmanager
def session(resources: Resources) -> Iterator[float]:
    """A stretch of work on one run, from loading its data on; yields when it began.

    The number of threads and torch's random state are afterwards as they were; that of a device is not.
    """
    began = time.perf_counter()
    memory.forget_peak()
    ours, torchs = threads.count(), torch.get_num_threads()
    if resources.threads is not None:
        threads.set_count(resources.threads)
    try:
        with torch.random.fork_rng(devices=[]), _old_objects_left_alone():
            yield began
    finally:
        threads.set_count(ours)
        torch.set_num_threads(torchs)


@contextmanager
def _old_objects_left_alone() -> Iterator[None]:
    """The garbage collector does not look at what was there before, such as torch's modules, again and again."""
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()


def run(
    plan: Plan,
    names: Names,
    store: Store,
    resources: Resources,
    progress: Progress,
    began: float,
    on_round: OnRound | None = None,
) -> Finished:
    """Runs `plan` from the state that `store` has to the end. `on_round` sees the record of each round that is run."""
    saved = store.start(plan, progress.say)
    clock = Clock(began - saved.wall_seconds, resources.checkpoint_seconds, Timing(dict(saved.phase_seconds)))
    clock.timing.seconds["setup"] += time.perf_counter() - began
    state, metric = saved.state, None
    residuals = _residuals(plan, store, resources)
    residuals.restore(saved.residuals, saved.lost, saved.paces, saved.others)
    for record in rounds.run_rounds(plan, state, carrier(plan, residuals, clock.timing), clock.timing):
        with clock.timing.phase("bookkeeping"):
            store.append(record)
            if store.durable and (clock.checkpoint_due() or state.round == plan.rounds):
                with clock.checkpointing():
                    store.save(replace(saved, **residuals.held(), **clock.readings()))
            for warning in record.warnings:
                progress.say(f"round {record.round}: {warning}")
            metric = record.metric if record.evaluated else metric
            progress.update(_status(plan, names, state, record, metric))
        if on_round is not None:
            on_round(record)
    records = store.records()
    summary = summarise(
        plan,
        state.totals,
        records,
        clock.seconds(),
        task=names.task,
        method=names.method,
        phase_seconds=clock.timing.seconds,
        peak_memory_bytes=memory.peak_bytes(),
    )
    store.finish(plan, state, summary)
    return Finished(summary, records, state)


def _residuals(plan: Plan, store: Store, resources: Resources) -> ResidualStore:
    place, budget = getattr(plan.task, "place", HOST_MEMORY), resources.device_memory_mb
    if not place.is_host and budget != 0:
        require(
            plan.method.on_device,
            f"{plan.method.name} has no form for a device: device_memory_mb=0 copies each update from {place} to the"
            " host, and compresses it there",
        )
    on_device = Room(place, math.inf if budget is None else 1e6 * budget)
    if resources.residual_memory_mb is None:
        return ResidualStore(plan.method, plan.dim, on_device=on_device)
    return ResidualStore(plan.method, plan.dim, 1e6 * resources.residual_memory_mb, store.scratch(), on_device)


def _status(plan: Plan, names: Names, state: ServerState, record: RoundRecord, metric: float | None) -> Status:
    return Status(
        run=names.label,
        round=state.round,
        rounds=plan.rounds,
        metric_name=plan.task.metric,
        metric=metric,
        kept_fraction=state.totals.kept / max(1, state.totals.uploads * plan.dim),
        uplink_bytes=state.totals.uplink_bytes,
        evaluated=record.evaluated,
    )
