"""What a study is: base settings, factors whose levels make a grid, claims, and how its results are shown. All data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gammafl.config.layers import flat, merge
from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.experiments.claims import Claim
from gammafl.experiments.results import Results

if TYPE_CHECKING:
    from gammafl.experiments.trial_runs import StudyJob
    from gammafl.federated.records import Summary
    from gammafl.report.pictures import Picture
    from gammafl.report.tables import TextTable

Table = dict[str, Any]
STAND_IN = "logistic-mini"
"""The task that needs no download: every study of the logistic task runs on it too, to see the machinery work."""


def kin(task: str) -> str:
    """The task that `task` is treated like."""
    return "logistic-fmnist" if task == STAND_IN else task


@dataclass(frozen=True)
class Level:
    """One setting of a factor. `by_task` adds what depends on the task.

    `follows` names another level of the same factor: this one keeps as many entries an upload as that one did.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    follows: str | None = None

    def own_keys(self) -> set[str]:
        """The settings that are this level's, so that nothing else may change them."""
        tables = [self.settings, *self.by_task.values()]
        return {key for table in tables for key in flat(table)} | ({"compression.k"} if self.follows else set())

    def table(self, task: str) -> list[Mapping[str, Any]]:
        return [self.settings, self.by_task.get(kin(task), {})]


@dataclass(frozen=True)
class Factor:
    """What varies. `quick` are the levels of --quick; empty: all."""

    name: str
    levels: tuple[Level, ...]
    quick: tuple[str, ...] = ()

    def level(self, name: str) -> Level:
        for level in self.levels:
            if level.name == name:
                return level
        names = [level.name for level in self.levels]
        raise InputError(f"{self.name} has no level {name!r}{did_you_mean(name, names)}; it has {', '.join(names)}")

    def only(self, names: Sequence[str]) -> "Factor":
        chosen = [self.level(name) for name in names]
        for level in chosen:
            if level.follows and level.follows not in names:
                raise InputError(f"{level.name} keeps as many entries as {level.follows}: ask for both of them")
        return replace(self, levels=tuple(level for level in self.levels if level in chosen))


@dataclass(frozen=True)
class Trial:
    """A place in the grid with a seed: the run that belongs there, before its directory is known."""

    task: str
    cell: tuple[tuple[str, str], ...]
    seed: int
    settings: Table = field(compare=False)
    leader: tuple[tuple[str, str], ...] | None = None

    def __hash__(self) -> int:
        return hash((self.task, self.cell, self.seed))


Tables = Callable[[Results], "list[TextTable]"]
Pictures = Callable[[Results], "list[Picture]"]
MakeJob = Callable[[Trial, "Summary | None", Path, "Path | None"], "StudyJob"]


def _train(trial: Trial, leader: "Summary | None", runs: Path, data_dir: "Path | None") -> "StudyJob":
    from gammafl.experiments.trial_runs import training_job  # loads torch, which a list of studies does not need

    return training_job(trial, leader, runs, data_dir)


@dataclass(frozen=True)
class Study:
    """A figure or table of the paper, or a question of ours.

    `tasks` are run unless --task names others, out of `tasks` and `further_tasks`. `settings` are over the task's
    preset; `quick` are the settings of --quick, "" for all tasks. `make_job` turns a trial into something to run.
    `run_by` is the command that runs a study of which the package only reads results: it judges and draws them.
    """

    name: str
    title: str
    tasks: tuple[str, ...]
    factors: tuple[Factor, ...]
    claims: tuple[Claim, ...]
    tables: Tables
    pictures: Pictures
    make_job: MakeJob = _train
    further_tasks: tuple[str, ...] = (STAND_IN,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quick: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    quick_seeds: tuple[int, ...] = (0, 1)
    run_by: str = ""
    note: str = ""

    def check_tasks(self, names: Sequence[str]) -> tuple[str, ...]:
        known = (*self.tasks, *self.further_tasks)
        for name in names:
            if name not in known:
                raise InputError(
                    f"{self.name} has no task {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}"
                )
        return tuple(names) or self.tasks

    def check_changes(self, changes: Mapping[str, Any]) -> None:
        """Refuses a --set of what the study itself varies: its rows would not be what they are called."""
        if changes and (self.make_job is not _train or not self.factors):
            raise InputError(f"{self.name} trains no task, so that there is nothing to --set")
        for key in flat(changes):
            if key in ("seed", "task"):
                option = {"seed": "--seeds", "task": "--task"}[key]
                raise InputError(f"{self.name} takes {option}, not --set {key}")
            for factor in self.factors:
                if any(_overlap(key, own) for level in factor.levels for own in level.own_keys()):
                    names = ",".join(level.name for level in factor.levels[:2])
                    raise InputError(
                        f"{self.name} compares different settings of {key} ({factor.name}), so that --set can't change"
                        f" it; choose among them with --only {factor.name}={names}"
                    )

    def restricted(self, only: Mapping[str, Sequence[str]], quick: bool) -> "Study":
        """With the levels that `only` asks for (factor → levels), or those of --quick."""
        names = [factor.name for factor in self.factors]
        for name in only:
            if name not in names:
                raise InputError(f"{self.name} has no factor {name!r}{did_you_mean(name, names)}: {', '.join(names)}")
        chosen = {f.name: only.get(f.name) or (f.quick if quick else ()) for f in self.factors}
        return replace(self, factors=tuple(f.only(chosen[f.name]) if chosen[f.name] else f for f in self.factors))

    def trials(self, task: str, seeds: Sequence[int], quick: bool, changes: Mapping[str, Any]) -> Iterator[Trial]:
        """The whole grid for one task: factors × seeds, each with its merged settings."""
        hurried = [self.quick.get("", {}), self.quick.get(task, {})] if quick else []
        base: list[Mapping[str, Any]] = [self.settings, self.by_task.get(kin(task), {})]
        for levels in product(*(factor.levels for factor in self.factors)) if self.factors else ():
            cell = tuple((f.name, level.name) for f, level in zip(self.factors, levels, strict=True))
            layers = [*base, *(part for level in levels for part in level.table(task)), *hurried, changes]
            leader = next((_led(cell, level) for level in levels if level.follows), None)
            for seed in seeds:
                yield Trial(task, cell, seed, merged(layers), leader)


def _overlap(changed: str, own: str) -> bool:
    """Whether a change of one setting touches the other; a table of another kind replaces all that was in it."""
    table = changed.removesuffix("kind") if changed.endswith(".kind") else f"{changed}."
    return changed == own or own.startswith(table) or changed.startswith(f"{own}.")


def _led(cell: tuple[tuple[str, str], ...], level: Level) -> tuple[tuple[str, str], ...]:
    assert level.follows is not None
    return tuple((factor, level.follows if name == level.name else name) for factor, name in cell)


def merged(layers: Sequence[Mapping[str, Any]]) -> Table:
    """Tables of increasing priority into one."""
    return reduce(merge, layers, {})
