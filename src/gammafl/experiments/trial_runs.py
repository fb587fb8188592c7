"""From a place in a study's grid to a run in a directory whose name says in what it differs from its task's preset.

Two studies that ask for the same configuration share the run: `table3`, `table4`, `fig3` and `averaging` do.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gammafl.config.layers import make_config, result_settings
from gammafl.config.schema import RunConfig
from gammafl.experiments.compare import with_kept
from gammafl.experiments.costs import run_seconds
from gammafl.experiments.grid import Trial
from gammafl.experiments.pool import Job, Outcome
from gammafl.experiments.results import training_curve, training_figures
from gammafl.federated.records import Summary
from gammafl.runs.directory import RunDirectory
from gammafl.runs.progress import Progress
from gammafl.tasks.registry import settings_of


class StudyJob(Protocol):
    """What a study runs: something with a directory, that knows whether it is finished and what it will cost."""

    @property
    def path(self) -> Path: ...

    def run(self, progress: Progress) -> Outcome: ...

    def finished(self) -> Outcome | None: ...

    def seconds(self) -> float: ...

    def outcome(self, summary: Outcome) -> tuple[dict[str, Any], dict[str, list[float]]]:
        """Key figures and thinned curves."""
        ...


@dataclass(frozen=True)
class TrainingJob(Job):
    """A training run as part of a study."""

    def finished(self) -> Summary | None:
        directory = RunDirectory(self.path)
        return directory.summary() if directory.holds(self.config) else None

    def seconds(self) -> float:
        return run_seconds(self.config)

    def outcome(self, summary: Summary) -> tuple[dict[str, Any], dict[str, list[float]]]:
        records = RunDirectory(self.path).records()
        return training_figures(summary, records), training_curve(records, summary.dim)


def training_job(trial: Trial, leader: Summary | None, runs: Path, data_dir: Path | None) -> TrainingJob:
    """The run of `trial`; with a leader, keeping as many entries as the leader did."""
    config = trial_config(trial)
    if leader is not None:
        config = with_kept(config, leader)
    name = run_name(config)
    return TrainingJob(config, runs / name, data_dir, label=name)


def trial_config(trial: Trial) -> RunConfig:
    return make_config(settings_of(trial.task), {"task": trial.task}, trial.settings, {"seed": trial.seed})


def run_name(config: RunConfig) -> str:
    """'cnn-cifar10-top-k-k733-tensor-classes3-seed0': task, method, what is not the preset's, seed.

    Of the settings that results depend on: a run that was begun with other threads is the same run.
    """
    usual = result_settings(make_config(settings_of(config.task), {"task": config.task}))
    here = result_settings(config)
    parts = [
        _word(key, value)
        for key, value in here.items()
        if key not in ("task", "method", "seed") and value is not None and repr(value) != repr(usual.get(key))
    ]
    return "-".join([config.task, config.method, *parts, f"seed{config.seed}"])


def _word(key: str, value: Any) -> str:
    last = key.rpartition(".")[2]
    if isinstance(value, bool):
        return last if value else f"no-{last}"
    if isinstance(value, str):
        return value
    return f"{last}{value:.6g}" if isinstance(value, float) else f"{last}{value}"
