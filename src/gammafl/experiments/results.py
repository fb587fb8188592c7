"""What a study's runs came to, small enough to be committed: key figures and thinned curves.

Tables, pictures and verdicts are made from this alone, never from run directories, so that a study.json is enough to
make them again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gammafl.federated.records import RoundRecord, Summary
from gammafl.report.tables import count_of

Value = float | None
POINTS = 60
"""Points of a thinned curve, at the most."""
TENTHS = 10
"""Points at the least, where there are as many rounds."""


@dataclass(frozen=True)
class Run:
    """A finished run: its place in the grid, its seed, its key figures and its curves.

    `cell` is factor → level. The curves are lists of equal length; `iteration` is the x of all of them.
    """

    name: str
    cell: Mapping[str, str]
    seed: int
    figures: Mapping[str, Any]
    curve: Mapping[str, Sequence[float]] = field(default_factory=dict)


Key = str | Callable[[Run], Value]
"""A figure by name, or computed from a run."""


@dataclass(frozen=True)
class Results:
    """The runs of one study on one task."""

    study: str
    task: str
    quick: bool
    levels: Mapping[str, Sequence[str]]
    runs: Sequence[Run]
    diverged: Mapping[str, str] = field(default_factory=dict)
    """Run → what happened to it; it is not among `runs`, and neither are those that were to keep as much as it."""

    def pick(self, **cell: str) -> list[Run]:
        """The runs with these levels, by seed."""
        found = [run for run in self.runs if all(run.cell.get(factor) == level for factor, level in cell.items())]
        return sorted(found, key=lambda run: run.seed)

    def by_seed(self, key: Key, **cell: str) -> dict[int, float]:
        """Seed → figure of the one run in that place of the grid; seeds without the figure are left out."""
        values = {run.seed: _value(run, key) for run in self.pick(**cell)}
        return {seed: value for seed, value in values.items() if value is not None}

    def has(self, **cell: str) -> bool:
        return bool(self.pick(**cell))

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def seeds_in_words(self) -> str:
        """'3 seeds', or '1 to 2 seeds' where some places of the grid have fewer."""
        counts = Counter(tuple(sorted(run.cell.items())) for run in self.runs).values() or [0]
        fewest, most = min(counts), max(counts)
        return count_of(most, "seed") if fewest == most else f"{fewest} to {count_of(most, 'seed')}"


def _value(run: Run, key: Key) -> Value:
    found = key(run) if callable(key) else run.figures.get(key)
    return None if found is None else float(found)


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """first − second of each seed that both have: paired, since a seed fixes partition, batches and participants."""
    return {seed: first[seed] - second[seed] for seed in first.keys() & second.keys()}


def mean_of(parts: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean over `parts` of each seed that all of them have."""
    seeds = set.intersection(*(set(part) for part in parts)) if parts else set()
    return {seed: float(np.mean([part[seed] for part in parts])) for seed in seeds}


def mean_curves(runs: Sequence[Run], y: str) -> tuple[np.ndarray, np.ndarray]:
    """(iterations, the mean over the seeds) of a curve."""
    made = [run for run in runs if y in run.curve]
    if not made:
        return np.zeros(0), np.zeros(0)
    length = min(len(run.curve["iteration"]) for run in made)
    values = np.array([run.curve[y][:length] for run in made], float)
    return np.array(made[0].curve["iteration"][:length], float), values.mean(axis=0)


def training_curve(records: Sequence[RoundRecord], dim: float, points: int = POINTS) -> dict[str, list[float]]:
    """A run's ledger in at most `points` stretches of rounds, about as many as there are evaluations.

    Where some evaluations are nearer to each other than others, as many as if all were as far apart as the farthest.
    Kept fraction and bytes are of all rounds in a stretch; metric and loss are the mean of its evaluations, or the
    last ones before it.
    """
    ends = [0, *(number for number, record in enumerate(records, 1) if record.evaluated)]
    apart = max(np.diff(ends), default=len(records))
    stretches = min(points, len(records), max(TENTHS, -(-len(records) // int(apart))))
    curve: dict[str, list[float]] = {key: [] for key in ("iteration", "kept_fraction", "sent_bytes", "metric", "loss")}
    sent, metric, loss = 0.0, float("nan"), float("nan")
    for stretch in np.array_split(np.arange(len(records)), stretches):
        part = [records[i] for i in stretch]
        if evaluated := [(record.metric, record.loss) for record in part if record.evaluated]:
            metric, loss = (float(np.mean(np.array(column, float))) for column in zip(*evaluated, strict=True))
        uploads = sum(len(record.participants) for record in part)
        sent += sum(record.uplink_bytes / len(record.participants) for record in part)
        row = (part[-1].iteration, sum(record.kept for record in part) / (uploads * dim), sent, metric, loss)
        for values, value in zip(curve.values(), row, strict=True):
            values.append(float(f"{value:.5g}"))
    return curve


def training_figures(summary: Summary, records: Sequence[RoundRecord]) -> dict[str, Any]:
    """The summary without what the grid says already, and the loss as the mean of the last evaluations."""
    losses = [record.loss for record in records if record.loss is not None]
    figures = {key: value for key, value in summary.table().items() if key not in ("task", "method", "seed")}
    return figures | {"last_loss": float(np.mean(losses[-summary.last_count :]))}
