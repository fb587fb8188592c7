"""Runs a configuration of the command line in a run directory, from the start or from the last checkpoint."""

from collections.abc import Sequence
from pathlib import Path

from gammafl import seeds
from gammafl.config.layers import flat
from gammafl.config.schema import ConstantStepsize, ExponentialStepsize, RunConfig
from gammafl.core.errors import InputError
from gammafl.core.stepsizes import Constant, ExponentialDecay, InverseDecay, Stepsize
from gammafl.federated import partition
from gammafl.federated.callbacks import Callback
from gammafl.federated.limits import Limits
from gammafl.federated.plan import Plan
from gammafl.federated.records import Summary
from gammafl.methods.registry import label_of
from gammafl.runs.directory import RunDirectory
from gammafl.runs.progress import Progress, Silent
from gammafl.runs.runner import Names, Resources, run, session
from gammafl.runs.stores import on_disk
from gammafl.tasks.build import build_task
from gammafl.tasks.data.catalogue import Say


def execute(
    config: RunConfig,
    path: Path,
    resume: bool = False,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    label: str = "",
) -> Summary:
    """Runs `config` in `path` and returns its summary. If a callback ends the run, `summary.stopped` says why.

    config      the configuration
    path        the run directory
    resume      read a finished run, and continue an unfinished one from its last checkpoint: it ends with the same
                bytes as a run that was never interrupted. Without `resume`, an existing run is an error
    data_dir    where the data sets are, or will be
    progress    shows how far the run is
    callbacks   follow the run, and may end it
    label       the name of the run in the progress; by default its method and seed
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
    label = label or f"{label_of(config.method)} seed {config.seed}"
    names = Names(config.task, config.method, label, flat(config.model_dump()))
    resources = Resources(
        config.threads, config.residual_memory_mb, config.checkpoint.every_seconds, config.device_memory_mb
    )
    with session(resources) as began:
        plan = make_plan(config, data_dir, progress.say)
        with on_disk(directory, config, plan, progress.say) as store:
            return run(plan, names, store, resources, progress, began, callbacks).summary


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
        server_optimizer=config.server_optimizer,
        downlink=config.resolved_downlink(),
        link=config.resolved_link(),
        budgets=config.resolved_budgets(),
        privacy=config.privacy.resolved(),
    )


def make_stepsize(config: RunConfig) -> Stepsize:
    """The stepsize γ_t that `config` names."""
    settings = config.stepsize
    if isinstance(settings, ConstantStepsize):
        return Constant(settings.value)
    if isinstance(settings, ExponentialStepsize):
        return ExponentialDecay(config.stepsize_multiplier * settings.initial, settings.rate, config.local_steps)
    return InverseDecay(config.stepsize_multiplier * settings.scale, settings.offset)
