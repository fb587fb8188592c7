"""The results of a study's runs, small enough to be committed: a row for each run, in one file of JSON lines.

    pandas.read_json("rows.jsonl", lines=True)      polars.read_ndjson("rows.jsonl")

A row has the levels of the factors, the seed, the key figures and the thinned curves of its run. Tables, charts and
verdicts are made from rows alone, never from run directories, so the file is enough to make them again.
"""

import json
import math
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field

from gammafl.config.presets import PRESET
from gammafl.experiments.intervals import Interval, interval
from gammafl.federated.records import RoundRecord, Summary
from gammafl.files.atomic import write_atomically
from gammafl.files.reading import Count, Facts, checked
from gammafl.report.tables import counts_of

FILE = "rows.jsonl"
Value = float | None
POINTS = 60
"""The largest number of points in a thinned curve."""
TENTHS = 10
"""The smallest number of points in a thinned curve, if the run has as many rounds."""
PACKAGES = ("gammafl", "numpy", "numba", "torch")


@dataclass(frozen=True)
class Row:
    """A run: its place in the grid (factor → level), its seed, its key figures and its curves.

    The curves are lists of equal length; `iteration` is the x of all of them. A run that `diverged` has no figures and
    no curves. `config` is a digest of the configuration; rows that were converted from an earlier version have none.
    """

    run: str
    cell: Mapping[str, str]
    seed: int
    figures: Mapping[str, Any]
    curve: Mapping[str, Sequence[float]] = field(default_factory=dict)
    diverged: str = ""
    config: str = ""
    versions: str = ""


Key = str | Callable[[Row], Value]
"""A figure by name, or computed from a row."""


class Samples(dict[int, float]):
    """Seed → number. Arithmetic pairs them by seed, because a seed fixes partition, batches and participants.

    >>> Samples({0: 5.0, 1: 7.0}) - Samples({1: 4.0, 2: 9.0})
    {1: 3.0}
    """

    def __sub__(self, other: "Samples") -> "Samples":
        return Samples({seed: self[seed] - other[seed] for seed in sorted(self.keys() & other.keys())})

    def __truediv__(self, other: "Samples") -> "Samples":
        return Samples({seed: self[seed] / other[seed] for seed in sorted(self.keys() & other.keys())})

    def __rmul__(self, factor: float) -> "Samples":
        return self.each(lambda value: factor * value)

    def each(self, change: Callable[[float], float]) -> "Samples":
        return Samples({seed: change(value) for seed, value in self.items()})

    @property
    def mean(self) -> float:
        """The mean over the seeds; NaN if there are none."""
        return mean(self.values()) if self else math.nan

    @property
    def interval(self) -> Interval:
        return interval(self.values())


@dataclass(frozen=True)
class Rows:
    """The rows of one study, on one task where it has tasks. `levels` are factor → levels, in the order of tables."""

    study: str
    levels: Mapping[str, Sequence[str]]
    all: Sequence[Row]
    quick: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the command line changed for all runs."""

    @property
    def finished(self) -> list[Row]:
        return [row for row in self.all if not row.diverged]

    @property
    def task(self) -> str:
        """The task of these rows; empty if the study has none."""
        return next(iter(self.levels.get("task", ())), "")

    @property
    def about(self) -> str:
        """The task, and the preset if there is one: 'cnn-cifar10, dagc-code'."""
        return ", ".join(filter(None, [self.task, self.settings.get(PRESET)]))

    def pick(self, **cell: str) -> list[Row]:
        """The finished runs with these levels, by seed."""
        rows = [row for row in self.finished if all(row.cell.get(factor) == level for factor, level in cell.items())]
        return sorted(rows, key=lambda row: row.seed)

    def by_seed(self, key: Key, **cell: str) -> Samples:
        """Seed → figure of the one run in that place of the grid; seeds without the figure are left out."""
        read = key if callable(key) else lambda row: row.figures.get(key)
        values = ((row.seed, read(row)) for row in self.pick(**cell))
        return Samples({seed: float(value) for seed, value in values if value is not None})

    def means(self, key: Key, along: str, **cell: str) -> list[float]:
        """The mean over the seeds at each level of the factor `along`; NaN where there is no run."""
        return [self.by_seed(key, **cell, **{along: level}).mean for level in self.levels[along]]

    def cells(self, *names: str, **fixed: str) -> list[dict[str, str]]:
        """The places of the grid that these factors span, or all factors, as far as they agree with `fixed`."""
        chosen = [name for name in names or self.levels if name in self.levels]
        made = [dict(zip(chosen, place, strict=True)) for place in product(*(self.levels[name] for name in chosen))]
        return [cell for cell in made if all(cell.get(key, value) == value for key, value in fixed.items())]

    def figure(self, name: str) -> Any:
        """A figure that all runs share, such as the metric's name; None if there is no run."""
        return next((row.figures[name] for row in self.finished if name in row.figures), None)

    @property
    def unit(self) -> str:
        """The unit of differences: accuracies are shown in percentage points, other metrics in their own unit."""
        metric = self.figure("metric")
        return "points" if metric in (None, "accuracy") else str(metric)

    @property
    def scale(self) -> float:
        """The factor from the metric to the number that is shown."""
        return 100.0 if self.unit == "points" else 1.0

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher metric is better. Rows of versions before 0.2 do not say it, so its name decides there."""
        known = self.figure("higher_is_better")
        return self.unit not in ("perplexity", "loss") if known is None else bool(known)

    def gain(self, key: str = "last_mean") -> float:
        """The factor from a difference of this figure to a gain. It is negative where less is better, as for losses."""
        if key == "last_loss":
            return -1.0
        return self.scale if self.higher_is_better else -self.scale

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self.finished})

    def seeds_in_words(self) -> str:
        """'3 seeds', or '1 to 2 seeds' where some places of the grid have fewer."""
        return counts_of(Counter(tuple(sorted(row.cell.items())) for row in self.finished).values(), "seed")


def over_all(parts: Sequence[Samples], combine: Callable[[list[float]], float]) -> Samples:
    """For each seed that all `parts` have: what `combine` makes of its numbers."""
    seeds = set.intersection(*map(set, parts)) if parts else set()
    return Samples({seed: float(combine([part[seed] for part in parts])) for seed in sorted(seeds)})


def training_row(run: str, cell: Mapping[str, str], summary: Summary, records: Sequence[RoundRecord]) -> Row:
    """The row of a finished training run."""
    losses = [record.loss for record in records if record.loss is not None]
    figures = {key: value for key, value in summary.table().items() if key not in ("task", "method", "seed")}
    figures["last_loss"] = float(np.mean(losses[-summary.last_count :]))
    return Row(run, cell, summary.seed, figures, training_curve(records, summary.dim))


def training_curve(records: Sequence[RoundRecord], dim: float, points: int = POINTS) -> dict[str, list[float]]:
    """Thins a run's ledger to at most `points` points. Each stands for a stretch of rounds.

    There are about as many stretches as evaluations. If the distances between evaluations differ, the largest decides.
    The kept fraction is that of all rounds in the stretch, and bytes are those sent up to its end. Metric and loss are
    the mean of the evaluations in the stretch, or the last ones before it. Seconds are there if the run has a link.
    """
    ends = [0, *(number for number, record in enumerate(records, 1) if record.evaluated)]
    apart = max(np.diff(ends), default=len(records))
    stretches = min(points, len(records), max(TENTHS, -(-len(records) // int(apart))))
    timed = records[-1].link_seconds is not None
    down = any(record.downlink_bytes for record in records)
    keys = ["iteration", "kept_fraction", "sent_bytes", "metric", "loss"]
    keys += ["both_bytes"] * down + ["link_seconds"] * timed
    curve: dict[str, list[float]] = {key: [] for key in keys}
    sent, received, metric, loss = 0.0, 0.0, math.nan, math.nan
    for stretch in np.array_split(np.arange(len(records)), stretches):
        part = [records[i] for i in stretch]
        if evaluated := [(record.metric, record.loss) for record in part if record.evaluated]:
            metric, loss = (float(np.mean(np.array(column, float))) for column in zip(*evaluated, strict=True))
        uploads = sum(len(record.participants) for record in part)
        sent += sum(record.uplink_bytes / len(record.participants) for record in part)
        received += sum(record.downlink_bytes / len(record.participants) for record in part)
        kept = sum(record.kept for record in part) / (uploads * dim)
        row = [part[-1].iteration, kept, sent, metric, loss, *[sent + received] * down]
        row += [part[-1].link_seconds or math.nan] * timed
        for values, value in zip(curve.values(), row, strict=True):
            values.append(float(f"{value:.5g}"))
    return curve


class RowFacts(Facts):
    """The fields that each line of the file must have; others may have written it. Further fields are factors and
    figures."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=True)

    study: str
    quick: bool
    seed: Count
    run: str
    settings: dict[str, Any] = Field({})
    curves: dict[str, list[float | None]] = Field({})
    diverged: str = ""
    config: str = ""
    versions: str = ""


def versions() -> str:
    """The versions of the programs that make a row: 'python 3.11.7, gammafl 0.2.0, …'."""
    made = [f"python {platform.python_version()}", platform.machine()]
    for package in PACKAGES:
        try:
            made.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(made)


def write_rows(path: Path, rows: Rows) -> None:
    """Writes rows.jsonl into the directory `path`."""
    lines = [json.dumps(_line(row, rows), ensure_ascii=False, allow_nan=False) for row in rows.all]
    write_atomically(path / FILE, ("\n".join(lines) + "\n").encode())


def _line(row: Row, rows: Rows) -> dict[str, Any]:
    """The fields of a line, factors first. A figure with the name of a factor is left out."""
    further = {"settings": dict(rows.settings), "diverged": row.diverged, "config": row.config}
    return {
        "study": rows.study,
        "quick": rows.quick,
        **row.cell,
        "seed": row.seed,
        **{key: _plain(value) for key, value in row.figures.items() if key not in row.cell},
        "run": row.run,
        **{key: value for key, value in further.items() if value},
        "versions": row.versions or versions(),
        "curves": {key: [_plain(value) for value in values] for key, values in row.curve.items()},
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path, factors: Callable[[str], Mapping[str, Sequence[str]]]) -> Rows:
    """Reads the rows in the directory `path`; `factors` is study → factor → levels in the order of tables.

    Raises a `ValueError` if the file lacks a field that it must have, or mixes studies.
    """
    lines = [line for line in (path / FILE).read_text("utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError("it has no rows")
    facts = [checked(RowFacts, json.loads(line)) for line in lines]
    first = facts[0]
    if any((one.study, one.quick, one.settings) != (first.study, first.quick, first.settings) for one in facts):
        raise ValueError("its rows belong to more than one study")
    order = factors(first.study)
    rows = [_row(one, list(order)) for one in facts]
    return Rows(first.study, levels_of(rows, order), rows, first.quick, first.settings)


def _row(facts: RowFacts, factors: Sequence[str]) -> Row:
    further = dict(facts.model_extra or {})
    cell = {factor: further.pop(factor) for factor in factors if factor in further}
    if wrong := [factor for factor in factors if not isinstance(cell.get(factor), str)]:
        raise ValueError(f"a row has no level of the factor {wrong[0]}")
    curve = {key: [math.nan if value is None else value for value in values] for key, values in facts.curves.items()}
    return Row(facts.run, cell, facts.seed, further, curve, facts.diverged, facts.config, facts.versions)


def levels_of(rows: Iterable[Row], order: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The levels that have a row, in the given order. Levels that `order` does not name come last."""
    made = {}
    for factor, known in order.items():
        there = dict.fromkeys(row.cell[factor] for row in rows)
        made[factor] = [*(level for level in known if level in there), *(x for x in there if x not in known)]
    return made


def joined(before: Rows, now: Rows, order: Mapping[str, Sequence[str]]) -> Rows:
    """The rows of both, in the order of the grid. Where both have a row of a place and seed, that of `now` counts."""
    places = {(tuple(row.cell.items()), row.seed): row for row in [*before.all, *now.all]}
    levels = levels_of(places.values(), order)
    rank = {factor: {level: i for i, level in enumerate(known)} for factor, known in levels.items()}
    rows = sorted(places.values(), key=lambda row: ([rank[f][row.cell[f]] for f in levels], row.seed))
    return replace(now, levels=levels, all=rows)
