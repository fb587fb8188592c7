"""Runs a study: reads finished runs, executes missing ones, and then the runs that depend on these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gammafl.config.presets import PRESET, check_preset
from gammafl.core.errors import DivergedError, InputError
from gammafl.experiments.grid import TASK, Study, StudyJob, Trial
from gammafl.experiments.levels import in_preset
from gammafl.experiments.rows import Row, Rows, levels_of
from gammafl.runs.progress import Overall, Progress

DIVERGED = "diverged.txt"
"""A file in the directory of a run that diverged: it says how, for later calls with --collect."""
Cell = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Options:
    """What the command line asks of a study. Results are in `out`, and runs in its directory `runs`."""

    out: Path
    seeds: tuple[int, ...] = ()
    quick: bool = False
    workers: int = 1
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    collect: bool = False
    data_dir: Path | None = None
    rows: Mapping[str, Row] = field(default_factory=dict)
    """Name of a run → its row in another study. A run of the same name is not run again."""

    track: Sequence[str] = ()
    """The names of the trackers that training runs are also written to."""

    @property
    def runs(self) -> Path:
        return self.out / "runs"


@dataclass
class Campaign:
    """The trials of a study and the jobs known so far. The job of a follower is known when its leader is done."""

    study: Study
    """The study with the levels that the user asks for."""
    whole: Study
    """The study with all its levels."""
    trials: Sequence[Trial]
    options: Options
    kept: Mapping[tuple[Cell, int], Row] = field(default_factory=dict)
    """The rows that the results have already."""
    jobs: dict[Trial, StudyJob] = field(default_factory=dict)
    ended: dict[Path, Row] = field(default_factory=dict)
    """Directory of a run → its row, also for runs that diverged."""

    @property
    def tasks(self) -> list[str]:
        """The tasks of the trials; one empty name if the study has no tasks."""
        return list(dict.fromkeys(_task(trial) for trial in self.trials))

    @property
    def diverged(self) -> dict[Path, str]:
        return {path: row.diverged for path, row in self.ended.items() if row.diverged}

    def ready(self) -> list[StudyJob]:
        """The jobs that can start now, were not handed out before and are not finished.

        They are in the order of their seeds, so that the whole grid has results early. Leaders come first.
        """
        from gammafl.experiments.trial_runs import TrainingJob, training_job

        make, new = self.study.make_job or training_job, []
        seeds = self.options.seeds
        for trial in sorted(self.trials, key=lambda trial: (seeds.index(trial.seed), trial.leader is not None)):
            leader = self._leader_row(trial)
            if trial in self.jobs or (trial.leader and (leader is None or leader.diverged)):
                continue
            job = make(trial, leader, self.options.runs, self.options.data_dir)
            if isinstance(job, TrainingJob):
                job = replace(job, track=self.options.track)
            handed_out = any(job.path == other.path for other in self.jobs.values())  # places may share a configuration
            self.jobs[trial] = job
            if job.path in self.ended:
                continue
            if (row := self._kept(trial, job) or job.finished()) is not None:
                self.ended[job.path] = row
            elif self.options.collect and (told := job.path / DIVERGED).exists():
                self.give_up(job, told.read_text("utf-8").strip())
            elif not handed_out:
                new.append(job)
        return new

    def follow(self, job: StudyJob, row: Row) -> list[StudyJob]:
        """Notes the row of a finished job. Returns the jobs that can start now."""
        self.ended[job.path] = row
        return self.ready()

    def give_up(self, job: StudyJob, why: str) -> None:
        self.ended[job.path] = Row(job.path.name, {}, 0, {}, diverged=why)

    def _row_of(self, job: StudyJob | None) -> Row | None:
        return self.ended.get(job.path) if job else None

    def _leader_row(self, trial: Trial) -> Row | None:
        """The row of a trial's leader, if it is known."""
        return self._row_of(self.jobs.get(Trial(trial.leader, trial.seed, {}))) if trial.leader else None

    def _kept(self, trial: Trial, job: StudyJob) -> Row | None:
        """The row of this run in the study's results, or else in those of another study.

        A row that was converted from version 0.1 has no digest, so its name decides. Version 0.1 had the words of a
        name in another order.
        """
        row = self.kept.get((trial.cell, trial.seed))
        if row is not None and not row.diverged:
            same_words = sorted(row.run.split("-")) == sorted(job.path.name.split("-"))
            if row.config == job.config_digest if row.config else same_words:
                return row
        other = self.options.rows.get(job.path.name)
        return other and replace(other, config=job.config_digest)

    def unfinished(self) -> int:
        """How many runs are left. A follower whose job is not known yet counts as one."""
        rows = {trial: self._row_of(self.jobs.get(trial)) for trial in self.trials}
        left = [trial for trial, row in rows.items() if row is None or row.diverged]
        return len({self.jobs[t].path if t in self.jobs else t for t in left})

    def rows(self, task: str) -> Rows:
        """The rows of a task."""
        rows = [row for t in self.trials if _task(t) == task if (row := self._row(t)) is not None]
        return Rows(
            self.study.name, levels_of(rows, order_of(self.study)), rows, self.options.quick, self.options.settings
        )

    def _row(self, trial: Trial) -> Row | None:
        """The row of a trial that has ended. If its leader diverged, the row says so."""
        row, leader = self._row_of(self.jobs.get(trial)), self._leader_row(trial)
        if row is None and leader is not None and leader.diverged:
            why = f"not run: it keeps as many entries as {leader.run}, which diverged"
            row = Row(f"follower of {leader.run}", {}, 0, {}, diverged=why)
        return replace(row, cell=dict(trial.cell), seed=trial.seed) if row else None


def _task(trial: Trial) -> str:
    return dict(trial.cell).get(TASK, "")


def order_of(study: Study) -> dict[str, list[str]]:
    """Factor → levels, in the order of tables."""
    return {factor.name: factor.names for factor in study.factors}


def plan_campaign(study: Study, options: Options) -> Campaign:
    """The trials of `study` that `options` ask for."""
    from gammafl.experiments.store import kept_rows

    if study.run_by:
        raise InputError(f"{study.name} is not run by the package; in a clone of the repository, run: {study.run_by}")
    seeds = options.seeds or (study.quick_seeds if options.quick else study.seeds)
    changes = {**options.settings}
    preset = changes.pop(PRESET, None)
    study.check_changes(changes)
    chosen = (in_preset(study, preset) if preset else study).restricted(options.only, options.quick)
    trials = list(chosen.trials(seeds, options.quick, changes))
    campaign = Campaign(chosen, study, trials, replace(options, seeds=tuple(seeds)))
    for task in campaign.tasks:
        check_preset(preset, task)
    kept = [row for task in campaign.tasks for row in kept_rows(study, task, campaign.options).all]
    campaign.kept = {(tuple(row.cell.items()), row.seed): row for row in kept}
    return campaign


def run_campaign(campaign: Campaign, progress: Progress) -> int:
    """Runs what is not finished. Returns how many runs these were."""
    jobs, options, left = campaign.ready(), campaign.options, campaign.unfinished()
    total = len(campaign.trials)
    rest = f"{left} to run, {options.workers} at a time" if left else "nothing to run"
    progress.say(f"{campaign.study.name}: {total} runs, {total - left} finished; {rest}")
    if not jobs or options.collect:
        return 0
    from gammafl.experiments.pool import run_jobs

    overall = Overall(progress, left)

    def give_up(job: StudyJob, error: DivergedError) -> None:
        campaign.give_up(job, str(error))
        (job.path / DIVERGED).write_text(f"{error}\n", "utf-8")
        overall.say(f"{job.path.name} diverged and is left out: {error}")

    run_jobs(jobs, campaign.follow, options.workers, overall, give_up)
    return left
