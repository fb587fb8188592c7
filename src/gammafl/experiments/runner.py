"""A study, run: what is finished is read, what is not is run, what follows from a run follows; then it is shown."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gammafl.core.errors import DivergedError, InputError
from gammafl.experiments.costs import PROCESS
from gammafl.experiments.grid import Study, Trial
from gammafl.experiments.results import Results, Run
from gammafl.federated.units import show_duration
from gammafl.runs.progress import Overall, Progress

if TYPE_CHECKING:
    from gammafl.experiments.pool import Outcome
    from gammafl.experiments.trial_runs import StudyJob

DIVERGED = "diverged.txt"
"""What became of a run that diverged, in its directory: it is told again when nothing is run."""


@dataclass(frozen=True)
class Options:
    """What the command line asks of a study."""

    out: Path
    tasks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    quick: bool = False
    workers: int = 1
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    collect: bool = False
    data_dir: Path | None = None


@dataclass
class Campaign:
    """The trials of a study, with the jobs that are known so far: a follower's is known when its leader is done."""

    study: Study
    trials: Sequence[Trial]
    options: Options
    jobs: "dict[Trial, StudyJob]" = field(default_factory=dict)
    done: "dict[Path, Outcome]" = field(default_factory=dict)
    diverged: dict[str, str] = field(default_factory=dict)
    """Run → what happened."""

    def __post_init__(self) -> None:
        self._followers: dict[Trial, list[Trial]] = defaultdict(list)
        self._asked: set[Path] = set()
        for trial in self.trials:
            if trial.leader is not None:
                self._followers[replace(trial, cell=trial.leader, leader=None)].append(trial)

    def ready(self) -> "list[StudyJob]":
        """The jobs that can start now and are not finished."""
        return [job for trial in self.trials if trial.leader is None for job in self._begin(trial, None)]

    def follow(self, job: "StudyJob", summary: "Outcome") -> "list[StudyJob]":
        """The jobs that `job` makes possible."""
        self.done[job.path] = summary
        freed = [trial for trial, known in self.jobs.items() if known.path == job.path]
        return [further for trial in freed for further in self._begin_followers(trial, summary)]

    def _begin(self, trial: Trial, leader: "Outcome | None") -> "list[StudyJob]":
        job = self.study.make_job(trial, leader, self.options.out / "runs", self.options.data_dir)
        self.jobs[trial] = job
        if job.path not in self.done and (summary := job.finished()) is not None:
            self.done[job.path] = summary
        if job.path in self.done:
            return self._begin_followers(trial, self.done[job.path])
        if self.options.collect and (told := job.path / DIVERGED).exists():
            self.diverged[job.path.name] = told.read_text("utf-8").strip()
        new = job.path not in self._asked  # two places of the grid may be one configuration
        self._asked.add(job.path)
        return [job] if new else []

    def _begin_followers(self, trial: Trial, summary: "Outcome") -> "list[StudyJob]":
        followers = self._followers[replace(trial, leader=None)]
        return [job for follower in followers for job in self._begin(follower, summary)]

    def unfinished(self) -> list[Trial]:
        return [t for t in self.trials if t not in self.jobs or self.jobs[t].path not in self.done]

    def remaining(self) -> list[float]:
        """Seconds of one core of each run that is not finished; a follower costs what its leader does."""
        seconds = {}
        for trial in self.unfinished():
            job = self._known(trial)
            seconds[job.path, None if trial in self.jobs else trial.cell] = job.seconds()
        return list(seconds.values())

    def _known(self, trial: Trial) -> "StudyJob":
        if trial in self.jobs or trial.leader is None:
            return self.jobs[trial]
        return self.jobs[replace(trial, cell=trial.leader, leader=None)]

    def results(self, task: str) -> Results:
        """What the finished runs of a task came to."""
        runs = []
        for trial, job in self.jobs.items():
            if trial.task == task and job.path in self.done:
                figures, curve = job.outcome(self.done[job.path])
                runs.append(Run(job.path.name, dict(trial.cell), trial.seed, figures, curve))
        levels = {factor.name: [level.name for level in factor.levels] for factor in self.study.factors}
        of_task = {job.path.name for trial, job in self.jobs.items() if trial.task == task}
        diverged = {name: why for name, why in self.diverged.items() if name in of_task}
        return Results(self.study.name, task, self.options.quick, levels, runs, diverged)


def plan_campaign(study: Study, options: Options) -> Campaign:
    """The trials of `study` that `options` ask for."""
    if study.run_by:
        raise InputError(f"{study.name} is not run by the package; in a clone of the repository, run: {study.run_by}")
    tasks = study.check_tasks(options.tasks) or ("",)
    seeds = options.seeds or (study.quick_seeds if options.quick else study.seeds)
    study.check_changes(options.settings)
    chosen = study.restricted(options.only, options.quick)
    trials = [t for task in tasks for t in chosen.trials(task, seeds, options.quick, options.settings)]
    return Campaign(chosen, trials, replace(options, tasks=tasks, seeds=tuple(seeds)))


def run_campaign(campaign: Campaign, progress: Progress) -> int:
    """Runs what is not finished; returns how many runs that was."""
    from gammafl.experiments.pool import run_jobs

    jobs, options = campaign.ready(), campaign.options
    remaining = campaign.remaining()
    progress.say(cost_line(campaign, remaining))
    if not jobs or options.collect:
        return 0
    overall = Overall(progress, sum(remaining), len(remaining))
    for job in jobs:
        overall.expected[job.path.name] = job.seconds()

    def follow(job: "StudyJob", summary: "Outcome") -> "list[StudyJob]":
        further = campaign.follow(job, summary)
        overall.expected.update({job.path.name: job.seconds() for job in further})
        return further

    def give_up(job: "StudyJob", error: DivergedError) -> None:
        campaign.diverged[job.path.name] = str(error)
        (job.path / DIVERGED).write_text(f"{error}\n", "utf-8")
        overall.say(f"{job.path.name} diverged and is left out: {error}")

    run_jobs(jobs, follow, options.workers, overall, give_up)
    return len(remaining)


def cost_line(campaign: Campaign, remaining: Sequence[float]) -> str:
    """'table3: 45 runs, 12 finished; the rest takes about 3.2 h of one core, 1.6 h with 2 jobs'."""
    workers, trials, left, seconds = campaign.options.workers, len(campaign.trials), len(remaining), sum(remaining)
    head = f"{campaign.study.name}: {trials} runs, {trials - left} finished"
    if not left:
        return f"{head}; nothing to run"
    wall = seconds / min(workers, left) + (PROCESS if workers > 1 else 0)
    shared = f", {show_duration(wall)} with {workers} jobs" if workers > 1 else ""
    return f"{head}; the rest takes about {show_duration(seconds)} of one core{shared} (measured unit costs)"
