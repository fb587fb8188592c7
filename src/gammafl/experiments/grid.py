"""What a study is: factors whose levels make a grid, claims, tables and charts. All data.

`compare`, `pareto` and the figures and tables of the paper are studies; the task is a factor like any other.
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
"""The factor whose levels have a directory of results each."""


@dataclass(frozen=True)
class Level:
    """One setting of a factor.

    where     level of another factor → further settings, in the cells that have both
    quick     further settings of --quick
    follows   another level of the same factor: this one keeps as many entries an upload as that one did
    """

    name: str
    settings: Settings = field(default_factory=dict)
    where: Mapping[str, Settings] = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    follows: str | None = None

    def own_keys(self) -> set[str]:
        """The settings that are this level's, so that nothing else may change them."""
        tables = [self.settings, *self.where.values()]
        return {key for table in tables for key in flat(table)} | ({"compression.k"} if self.follows else set())

    def layers(self, cell: Cell) -> list[Settings]:
        return [self.settings, *(table for name, table in self.where.items() if name in cell.values())]


@dataclass(frozen=True)
class Factor:
    """What varies. `usual` are the levels that are run unless others are asked for, `quick` those of --quick."""

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
        chosen = [self.level(name) for name in names]
        for level in chosen:
            if level.follows and level.follows not in names:
                raise InputError(f"{level.name} keeps as many entries as {level.follows}: ask for both of them")
        return replace(self, levels=tuple(level for level in self.levels if level in chosen))


@dataclass(frozen=True)
class Trial:
    """A place in the grid with a seed: the run that belongs there, before its directory is known."""

    cell: tuple[tuple[str, str], ...]
    seed: int
    settings: dict[str, Any] = field(compare=False)
    leader: tuple[tuple[str, str], ...] | None = None


class StudyJob(Protocol):
    """What a study runs: something with a directory, that knows whether it is finished. Rows have no cell yet."""

    @property
    def path(self) -> Path: ...

    @property
    def config_digest(self) -> str:
        """Of all that its result depends on."""
        ...

    def run(self, progress: Progress) -> Row: ...

    def finished(self) -> Row | None: ...


MakeJob = Callable[[Trial, Row | None, Path, Path | None], StudyJob]
"""Trial, its leader's row, directory of runs, directory of data → something to run."""


@dataclass(frozen=True)
class Study:
    """A question to a grid of runs: a figure or table of the paper, a comparison, or one of your own.

    settings   of all runs, over the task's preset; `quick` are those of --quick
    tables     rows → a table; None where there is nothing to show
    charts     likewise
    where      which cells are run; all by default
    make_job   turns a trial into something to run; None: a training run
    run_by     the command that runs a study of which the package only reads results
    alone      made on the command line: its results are in the very directory that was asked for, and replace others
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
        """The tasks that are run unless others are asked for."""
        factor = self.factor(TASK)
        return (factor.usual or tuple(factor.names)) if factor else ()

    def check_changes(self, changes: Settings) -> None:
        """Refuses a --set of what the study itself varies: its rows would not be what they are called."""
        if changes and self.make_job is not None:
            raise InputError(f"{self.name} trains no task, so that there is nothing to --set")
        for key in flat(changes):
            if key in ("seed", "task"):
                option = {"seed": "--seeds", "task": "--task"}[key]
                raise InputError(f"{self.name} takes {option}, not --set {key}")
            for factor in (factor for factor in self.factors if factor.name != TASK):
                if any(_overlap(key, own) for level in factor.levels for own in level.own_keys()):
                    raise InputError(
                        f"{self.name} compares different settings of {key} ({factor.name}), so that --set can't change"
                        f" it; choose among them with --only {factor.name}={','.join(factor.names[:2])}"
                    )

    def restricted(self, only: Mapping[str, Sequence[str]], quick: bool) -> "Study":
        """With the levels that `only` asks for (factor → levels), or those of --quick, or the usual ones."""
        names = [factor.name for factor in self.factors]
        for name in only:
            if name not in names:
                raise InputError(f"{self.name} has no factor {name!r}{did_you_mean(name, names)}: {', '.join(names)}")
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
    """Whether a change of one setting touches the other; a table of another kind replaces all that was in it."""
    table = changed.removesuffix("kind") if changed.endswith(".kind") else f"{changed}."
    return changed == own or own.startswith(table) or changed.startswith(f"{own}.")
