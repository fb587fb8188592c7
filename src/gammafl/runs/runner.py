"""The runner of all runs, of the command line and of `gf.simulate`: rounds, checkpoints, progress, summary."""

import gc
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gammafl.core.errors import not_installed, require

try:
    import torch
except ModuleNotFoundError:
    raise not_installed("torch", "train") from None

from gammafl.core import threads
from gammafl.core.device.places import HOST_MEMORY
from gammafl.federated import rounds
from gammafl.federated.callbacks import Callback, Run, Watch
from gammafl.federated.faults import carrier
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord, Summary
from gammafl.federated.residuals import ResidualStore, Room
from gammafl.federated.server import ServerState
from gammafl.federated.summary import summarise
from gammafl.federated.timing import Timing
from gammafl.runs import process_memory as memory
from gammafl.runs import watching
from gammafl.runs.progress import Progress, Shown
from gammafl.runs.stores import Store


@dataclass(frozen=True)
class Resources:
    """What decides about the speed and memory of a run. No byte of its results depends on it.

    threads              how many clients train at the same time; None: one for each core
    residual_memory_mb   MB of memory for the clients' residuals, further ones are on disk; None: all are in memory
    checkpoint_seconds   seconds between two checkpoints; 0: one after every round
    device_memory_mb     MB for residuals on the task's device, further ones are on the host; None: all on the device
    """

    threads: int | None = None
    residual_memory_mb: float | None = None
    checkpoint_seconds: float = 10.0
    device_memory_mb: float | None = None


@dataclass(frozen=True)
class Names:
    """The names of a run: its task and its method in the summary, its label in the progress.

    `settings` is the whole configuration for callbacks, as plain values. Tables are flat: "partition.classes".
    """

    task: str
    method: str
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """The results of a run. If a callback ended it, `summary.stopped` says why."""

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
        """The times that a checkpoint keeps."""
        return {"wall_seconds": self.seconds(), "phase_seconds": self.timing.seconds}

    def checkpoint_due(self) -> bool:
        return time.perf_counter() >= self.due

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Sets when the next checkpoint is due. Checkpoints take at most 5% of the time, so slow ones are rarer."""
        began = time.perf_counter()
        yield
        ended = time.perf_counter()
        self.due = ended + (max(self.every_seconds, 20 * (ended - began)) if self.every_seconds else 0)


@contextmanager
def session(resources: Resources) -> Iterator[float]:
    """A session of work on one run, which begins with loading its data. Yields the time at its beginning.

    At its end, the number of threads and torch's random state are as they were before. The random state of a device is
    not restored.
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
    """Keeps the garbage collector from checking older objects, such as torch's modules, again and again."""
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
    callbacks: Sequence[Callback] = (),
) -> Finished:
    """Runs `plan` from the state that `store` has to the end, or until one of `callbacks` ends it."""
    watch = Watch([Shown(progress, names.label), *callbacks])
    saved = store.start(plan, progress.say)
    clock = Clock(began - saved.wall_seconds, resources.checkpoint_seconds, Timing(dict(saved.phase_seconds)))
    clock.timing.seconds["setup"] += time.perf_counter() - began
    state, residuals = saved.state, _residuals(plan, store, resources)
    residuals.restore(saved.residuals, saved.lost, saved.paces, saved.others)
    about = _about(plan, names, store, state.round)

    def checkpoint() -> None:
        with clock.checkpointing():
            store.save(replace(saved, **residuals.held(), **clock.readings()))

    with watch.of(about):
        made = rounds.run_rounds(plan, state, carrier(plan, residuals, clock.timing), clock.timing)
        for record in made if watch.stopped is None else ():
            with clock.timing.phase("bookkeeping"):
                store.append(record)
                if store.durable and (clock.checkpoint_due() or state.round == plan.rounds):
                    checkpoint()
                watch.tell_round(watching.round_of(about, plan, state, residuals, record))
            if watch.stopped is not None:
                break
        if state.round == plan.rounds:
            watch.stopped = None
        elif store.durable:
            checkpoint()
        records = store.records()
        watch.summary = summarise(
            plan,
            state.totals,
            records if watch.stopped is None else _with_evaluation(plan, state, records, watch.stopped),
            clock.seconds(),
            task=names.task,
            method=names.method,
            phase_seconds=clock.timing.seconds,
            peak_memory_bytes=memory.peak_bytes(),
            stopped=watch.stopped,
        )
        store.finish(plan, state, watch.summary)
    return Finished(watch.summary, records, state)


def _about(plan: Plan, names: Names, store: Store, done: int) -> Run:
    """What callbacks see when the run begins, or continues after `done` rounds."""
    return Run(
        task=names.task,
        method=names.method,
        rounds=plan.rounds,
        local_steps=plan.local_steps,
        seed=plan.seed,
        clients=plan.clients,
        dim=plan.dim,
        metric=plan.task.metric,
        higher_is_better=plan.task.higher_is_better,
        round=done,
        directory=store.path,
        settings=names.settings,
        evaluations=partial(watching.evaluations_of, store.records, plan.task.metric),
    )


def _with_evaluation(
    plan: Plan, state: ServerState, records: Sequence[RoundRecord], stopped: str
) -> Sequence[RoundRecord]:
    """The records for the summary of a stopped run. If the last one has no evaluation, it gets one, but not on disk."""
    require(bool(records), f"a callback ended the run before its first round: {stopped}")
    if records[-1].evaluated:
        return records
    return [*records[:-1], records[-1].model_copy(update=rounds.evaluate(plan, state))]


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
