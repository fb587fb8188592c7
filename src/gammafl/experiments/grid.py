"""A study as data: factors whose levels make a grid, claims, tables and charts.

`compare`, `pareto` and the figures and tables of the paper are studies. The task is a factor like any other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from gammafl.config.layers import flat, merge
from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.experiments.claims import Claim
from gammafl.experiments.rows import Row, Rows
from gammafl.report.charts import Chart
from gammafl.report.tables import TextTable
from gammafl.runs.progress import Progress

Settings = Mapping[str, Any]
Cell = Mapping[str, str]
"""Factor → level."""
TASK = "task"
"""The name of the task's factor. Each of its levels has its own directory of results."""


@dataclass(frozen=True)
class Level:
    """One setting of a factor.

    where     level of another factor → further settings, in the cells that have both levels
    quick     further settings of --quick
    follows   another level of the same factor; this level keeps as many entries per upload as that one did
    """

    name: str
    settings: Settings = field(default_factory=dict)
    where: Mapping[str, Settings] = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    follows: str | None = None

    def own_keys(self) -> set[str]:
        """The keys that this level sets. Nothing else may change them."""
        tables = [self.settings, *self.where.values()]
        return {key for table in tables for key in flat(table)} | ({"compression.k"} if self.follows else set())

    def layers(self, cell: Cell) -> list[Settings]:
        """The settings of this level in `cell`, in the order in which they are merged."""
        return [self.settings, *(table for name, table in self.where.items() if name in cell.values())]


@dataclass(frozen=True)
class Factor:
    """What a study varies. `usual` are the levels that run by default (empty: all), `quick` those of --quick."""

    name: str
    levels: tuple[Level, ...]
    usual: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [level.name for level in self.levels]

    def level(self, name: str) -> Level:
        if name not in self.names:
            hint = did_you_mean(name, self.names)
            raise InputError(f"{self.name} has no level {name!r}{hint}; it has {', '.join(self.names)}")
        return self.levels[self.names.index(name)]

    def only(self, names: Sequence[str]) -> "Factor":
        """The factor with these levels only. A level that follows another one needs that one too."""
        chosen = [self.level(name) for name in names]
        for level in chosen:
            if level.follows and level.follows not in names:
                raise InputError(f"{level.name} keeps as many entries as {level.follows}; ask for both of them")
        return replace(self, levels=tuple(level for level in self.levels if level in chosen))


@dataclass(frozen=True)
class Trial:
    """A run of the grid before its directory is known: its cell, its seed, and its leader's cell if it has a leader."""

    cell: tuple[tuple[str, str], ...]
    seed: int
    settings: dict[str, Any] = field(compare=False)
    leader: tuple[tuple[str, str], ...] | None = None


class StudyJob(Protocol):
    """A run of a study, with its directory. The rows that it returns have no cell yet."""

    @property
    def path(self) -> Path: ...

    @property
    def config_digest(self) -> str:
        """A digest of everything that the result depends on."""
        ...

    def run(self, progress: Progress) -> Row:
        """Runs the job to its end, from its last checkpoint if it has one."""
        ...

    def finished(self) -> Row | None:
        """The row of the finished run, or None."""
        ...


MakeJob = Callable[[Trial, Row | None, Path, Path | None], StudyJob]
"""(trial, row of its leader, directory of runs, directory of data) → the job."""


@dataclass(frozen=True)
class Study:
    """A question to a grid of runs: a figure or table of the paper, a comparison, or one of your own.

    settings   settings of all runs, which win over the task's own; `quick` are further ones of --quick
    tables     functions from rows to a table, or to None if there is nothing to show
    charts     the same for charts
    where      whether a cell is run; by default all are
    make_job   makes the job of a trial; None: a training run
    run_by     the command that runs the study, if the package only reads its results
    alone      whether the study is made on the command line: then its results go into --out itself and replace others
    """

    name: str
    title: str
    factors: tuple[Factor, ...]
    claims: tuple[Claim, ...] = ()
    tables: tuple[Callable[[Rows], TextTable | None], ...] = ()
    charts: tuple[Callable[[Rows], Chart | None], ...] = ()
    settings: Settings = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    quick_seeds: tuple[int, ...] = (0, 1)
    where: Callable[[Cell], bool] = lambda cell: True
    make_job: MakeJob | None = None
    run_by: str = ""
    alone: bool = False
    note: str = ""

    def factor(self, name: str) -> Factor | None:
        return next((factor for factor in self.factors if factor.name == name), None)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that run by default."""
        factor = self.factor(TASK)
        return (factor.usual or tuple(factor.names)) if factor else ()

    def check_changes(self, changes: Settings) -> None:
        """Refuses a --set of a setting that the study itself varies: its rows would have wrong names."""
        if changes and self.make_job is not None:
            raise InputError(f"{self.name} trains no task, so it has no settings; leave out --set and --preset")
        for key in flat(changes):
            if key in ("seed", "task"):
                option = {"seed": "--seeds", "task": "--task"}[key]
                raise InputError(f"{self.name} takes {option}, not --set {key}")
            for factor in (factor for factor in self.factors if factor.name != TASK):
                if any(_overlap(key, own) for level in factor.levels for own in level.own_keys()):
                    raise InputError(
                        f"{self.name} compares different settings of {key} ({factor.name}), so --set can't change it;"
                        f" choose among them with --only {factor.name}={','.join(factor.names[:2])}"
                    )

    def restricted(self, only: Mapping[str, Sequence[str]], quick: bool) -> "Study":
        """The study with fewer levels: those of `only` (factor → levels), else of --quick, else the usual ones."""
        names = [factor.name for factor in self.factors]
        for name in only:
            if name not in names:
                raise InputError(
                    f"{self.name} has no factor {name!r}{did_you_mean(name, names)}; it has {', '.join(names)}"
                )
        chosen = {f.name: only.get(f.name) or (quick and f.quick) or f.usual for f in self.factors}
        return replace(self, factors=tuple(f.only(chosen[f.name]) if chosen[f.name] else f for f in self.factors))

    def trials(self, seeds: Sequence[int], quick: bool = False, changes: Settings | None = None) -> Iterator[Trial]:
        """The whole grid: factors × seeds, each with its merged settings."""
        for levels in product(*(factor.levels for factor in self.factors)):
            cell = {f.name: level.name for f, level in zip(self.factors, levels, strict=True)}
            if not self.where(cell):
                continue
            hurried = [self.quick, *(level.quick for level in levels)] if quick else []
            layers = [self.settings, *(part for level in levels for part in level.layers(cell)), *hurried]
            led = [{**cell, f.name: x.follows} for f, x in zip(self.factors, levels, strict=True) if x.follows]
            leader = tuple(led[0].items()) if led else None
            for seed in seeds:
                yield Trial(tuple(cell.items()), seed, reduce(merge, [*layers, changes or {}], {}), leader)


def _overlap(changed: str, own: str) -> bool:
    """Whether changing the key `changed` affects the key `own`. A new `kind` replaces its whole table."""
    table = changed.removesuffix("kind") if changed.endswith(".kind") else f"{changed}."
    return changed == own or own.startswith(table) or changed.startswith(f"{own}.")
