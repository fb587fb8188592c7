"""A configuration → a finished run directory, from the start or from where it was left."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gammafl import seeds
from gammafl.config.schema import ConstantStepsize, ExponentialStepsize, RunConfig
from gammafl.core import threads
from gammafl.core.errors import InputError
from gammafl.core.layout import Layout
from gammafl.core.stepsizes import Constant, ExponentialDecay, InverseDecay, Stepsize
from gammafl.federated import partition, rounds
from gammafl.federated.faults import carrier
from gammafl.federated.limits import Limits
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.rounds import Record
from gammafl.federated.server import ServerState
from gammafl.federated.summary import summarise
from gammafl.federated.timing import Timing
from gammafl.files import private_files, tensor_files
from gammafl.files.disk_errors import storing
from gammafl.methods.registry import label_of
from gammafl.runs import checkpoint
from gammafl.runs import process_memory as memory
from gammafl.runs.checkpoint import Saved
from gammafl.runs.directory import RunDirectory
from gammafl.runs.progress import Progress, Silent, Status
from gammafl.tasks.build import build_task
from gammafl.tasks.data.catalogue import Say


def execute(
    config: RunConfig,
    path: Path,
    resume: bool = False,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs `config` in `path` and returns its summary.

    With `resume`, a finished run is only read and an unfinished one goes on from its last checkpoint; it
    ends with the same bytes as one that was never interrupted. Without, an existing run is an error.
    """
    progress = progress or Silent()
    directory = RunDirectory(path)
    if directory.holds(config):
        if not resume:
            raise InputError(
                f"{path} holds this run already; continue or show it with --resume, or choose another --out"
            )
        if (summary := directory.summary()) is not None:
            return summary
    began = time.perf_counter()
    memory.forget_peak()
    if config.threads is not None:
        threads.set_count(config.threads)
    plan = make_plan(config, data_dir, progress.say)
    with directory.claimed(config):
        saved = _load_or_start(plan, directory, progress.say)
        clock = Clock(began - saved.wall_seconds, config.checkpoint.every_seconds, Timing(dict(saved.phase_seconds)))
        clock.timing.seconds["setup"] += time.perf_counter() - began
        _run(config, plan, directory, saved, clock, progress)
        _save_models(plan.layout, directory.path, saved.state)
        summary = {"task": config.task, "method": config.method, "seed": config.seed}
        summary |= summarise(plan, saved.state.totals, directory.records(), clock.seconds())
        summary |= {f"{phase}_seconds": seconds for phase, seconds in clock.timing.seconds.items()}
        summary["peak_memory_bytes"] = memory.peak_bytes()
        directory.finish(summary)
    return summary


def _load_or_start(plan: Plan, directory: RunDirectory, say: Say) -> Saved:
    """The last checkpoint that can be used; without one, the state before the first round."""
    saved = checkpoint.load(directory.checkpoints, plan, directory.ledger_file, say)
    return saved or Saved(rounds.start(plan), {}, fingerprint=plan.task.fingerprint())


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


def _run(
    config: RunConfig, plan: Plan, directory: RunDirectory, saved: Saved, clock: Clock, progress: Progress
) -> None:
    """The rounds that are left, with ledger and checkpoints; `saved.state` becomes the last state."""
    state = saved.state
    budget = float("inf") if config.residual_memory_mb is None else 1e6 * config.residual_memory_mb
    residuals = ResidualStore(plan.method, plan.dim, budget, directory.path / "residuals")
    residuals.restore(saved.residuals, saved.lost)
    metric = None
    with directory.open_ledger(saved.ledger_bytes) as ledger:
        for record in rounds.run_rounds(plan, state, carrier(plan, residuals, clock.timing), clock.timing):
            with clock.timing.phase("bookkeeping"):
                ledger.append(record)
                if clock.checkpoint_due() or state.round == plan.rounds:
                    with clock.checkpointing():
                        now = replace(saved, ledger_bytes=ledger.sync(), **residuals.held(), **clock.readings())
                        checkpoint.save(directory.checkpoints, now)
                metric = record.get("metric", metric)
                progress.update(_status(config, plan, state, record, metric))
    shutil.rmtree(directory.path / "residuals", ignore_errors=True)


def _status(config: RunConfig, plan: Plan, state: ServerState, record: Record, metric: float | None) -> Status:
    return Status(
        run=f"{label_of(config.method)} seed {config.seed}",
        round=state.round,
        rounds=plan.rounds,
        metric_name=plan.task.metric,
        metric=metric,
        kept_fraction=state.totals.kept / max(1, state.totals.uploads * plan.dim),
        uplink_bytes=state.totals.uplink_bytes,
        evaluated="metric" in record,
    )


def make_plan(config: RunConfig, data_dir: Path | None, say: Say) -> Plan:
    """The task, the method and the stepsize that `config` names."""
    rng = seeds.generator(config.seed, "partition")
    task = build_task(
        config,
        lambda facts: partition.split(facts, config.clients, config.partition, rng),
        data_dir,
        say,
    )
    return Plan(
        task=task,
        method=config.resolved_method(),
        stepsize=make_stepsize(config),
        iterations=config.iterations,
        local_steps=config.local_steps,
        participants=config.participants,
        seed=config.seed,
        weights=config.weights,
        positions=config.wire.positions,
        averaging=config.averaging,
        evaluation=config.evaluation,
        faults=config.faults,
        upload_limits=Limits(**config.limits.model_dump()),
        sampler=config.sampler,
    )


def make_stepsize(config: RunConfig) -> Stepsize:
    settings = config.stepsize
    if isinstance(settings, ConstantStepsize):
        return Constant(settings.value)
    if isinstance(settings, ExponentialStepsize):
        return ExponentialDecay(config.stepsize_multiplier * settings.initial, settings.rate, config.local_steps)
    return InverseDecay(config.stepsize_multiplier * settings.scale, settings.offset)


def _save_models(layout: Layout, path: Path, state: ServerState) -> None:
    """The trained model by tensor names, for whoever wants to use it: the raw one and the averaged one."""
    models = {"model.safetensors": state.model, "averaged-model.safetensors": state.average}
    for name, model in models.items():
        if model is not None:
            with storing(path / name):
                tensor_files.replace(path / name, layout.split(model), mode=private_files.PUBLIC_FILE)
