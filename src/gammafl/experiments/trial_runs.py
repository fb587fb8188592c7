"""The training run of a trial. The name of its directory says how its settings differ from those of its task.

Studies that ask for the same configuration share the run, as `table3`, `table4`, `fig3` and `averaging` do.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from gammafl.config.layers import make_config, result_settings
from gammafl.config.schema import RunConfig
from gammafl.experiments.grid import Trial
from gammafl.experiments.rows import Row, training_row
from gammafl.runs.directory import RunDirectory, file_digest, own_files
from gammafl.runs.progress import Progress
from gammafl.tasks.registry import settings_of


@dataclass(frozen=True)
class TrainingJob:
    """A training run of a study. A finished run is only read, and an unfinished one is resumed."""

    config: RunConfig
    path: Path
    data_dir: Path | None = None
    track: Sequence[str] = ()

    @property
    def config_digest(self) -> str:
        """A digest of the settings that are not the default, so a new setting in a later version does not change it."""
        usual = {**result_settings(make_config({"task": self.config.task, "iterations": 5})), "iterations": None}
        own = {key: value for key, value in result_settings(self.config).items() if value != usual.get(key)}
        text = json.dumps(own, sort_keys=True, default=str).encode()
        files = b"".join(file_digest(name) for name in own_files(self.config).values())
        return sha256(text + files).hexdigest()[:12]

    def run(self, progress: Progress) -> Row:
        from gammafl.runs.execute import execute  # loads torch
        from gammafl.runs.trackers import tracker_named

        trackers = [tracker_named(name) for name in self.track]
        execute(self.config, self.path, True, self.data_dir, progress, trackers, label=self.path.name)
        row = self.finished()
        assert row is not None
        return row

    def finished(self) -> Row | None:
        directory = RunDirectory(self.path)
        summary = directory.summary() if directory.holds(self.config) else None
        if summary is None:
            return None
        return replace(training_row(self.path.name, {}, summary, directory.records()), config=self.config_digest)


def training_job(trial: Trial, leader: Row | None, runs: Path, data_dir: Path | None) -> TrainingJob:
    """The run of `trial`. With a leader, it keeps as many entries per upload as the leader did on average."""
    config = trial_config(trial)
    if leader is not None:
        k = max(1, round(leader.figures["kept_per_upload"]))
        config = make_config(config.model_dump(exclude_none=True), {"compression": {"k": k}})
    return TrainingJob(config, runs / run_name(config), data_dir)


def trial_config(trial: Trial) -> RunConfig:
    """The configuration of `trial`: the settings of its task, then its own, and its seed."""
    return make_config(settings_of(trial.settings["task"]), trial.settings, {"seed": trial.seed})


def run_name(config: RunConfig) -> str:
    """The name of a run, such as 'cnn-cifar10-top-k-k733-tensor-classes3-seed0'.

    It has the task, the method, the settings that differ from the task's own, and the seed. Settings on which no result
    depends are left out: a run with another number of threads is the same run.
    """
    usual = result_settings(make_config(settings_of(config.task), {"task": config.task}))
    here = result_settings(config)
    parts = [
        _word(key, value)
        for key, value in here.items()
        if key not in ("task", "method", "seed") and value is not None and repr(value) != repr(usual.get(key))
    ]
    names = [Path(config.task).name, Path(config.method).name]
    return re.sub(r"[^0-9A-Za-z._-]+", "-", "-".join([*names, *parts, f"seed{config.seed}"]))


def _word(key: str, value: Any) -> str:
    last = key.rpartition(".")[2]
    if isinstance(value, bool):
        return last if value else f"no-{last}"
    if isinstance(value, str):
        return value
    return f"{last}{value:.6g}" if isinstance(value, float) else f"{last}{value}"
