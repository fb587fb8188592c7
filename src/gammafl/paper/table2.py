"""Table II: λ and λ_0 from the paper's formulas, compared with the printed digits. Nothing is trained."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gammafl.core.stepsizes import ExponentialDecay, InverseDecay
from gammafl.core.thresholds import calibrate
from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.columns import Column, GridTable, mean_of_seeds
from gammafl.experiments.grid import Factor, Level, Study, Trial
from gammafl.experiments.rows import Row, Rows, Samples
from gammafl.paper.printed import TABLE_II
from gammafl.runs.progress import Progress

FIGURES = {"λ": "threshold", "λ_0, inverse γ": "inverse", "λ_0, exponential γ": "exponential"}
"""Heading → key, both in the printed table and in ours."""


@dataclass(frozen=True)
class Calibration:
    """A row of the table. It is computed whenever it is read, so it is always finished."""

    model: str
    path: Path
    config_digest: str = ""

    def finished(self) -> Row:
        row = TABLE_II[self.model]
        inverse = calibrate(row.keep, row.dim, InverseDecay(100, 1000), row.iterations)
        exponential = calibrate(row.keep, row.dim, ExponentialDecay(0.1, 0.999, 5), row.iterations)
        figures = {"dim": row.dim, "keep": row.keep, "iterations": row.iterations, "threshold": inverse.threshold}
        figures |= {"inverse": inverse.initial_threshold, "exponential": exponential.initial_threshold}
        return Row(self.model, {}, 0, figures)

    def run(self, progress: Progress) -> Row:
        return self.finished()


def _make_job(trial: Trial, leader: Row | None, runs: Path, data_dir: Path | None) -> Calibration:
    model = dict(trial.cell)["model"]
    return Calibration(model, runs / model)


def _beside_the_papers(heading: str, key: str) -> tuple[Column, Column]:
    return (
        mean_of_seeds(key, heading, "{:.2e}".format),
        Column("paper", lambda rows, cell: f"{getattr(TABLE_II[cell['model']], key):.2e}"),
    )


def _digits(model: str) -> Claim:
    """The claim that every number of the row, rounded to three digits, is the printed one."""

    def off(rows: Rows, key: str) -> Samples:
        return rows.by_seed(key, model=model).each(lambda ours: _units_off(ours, getattr(TABLE_II[model], key)))

    def parts(rows: Rows) -> list[Part]:
        shown: dict[str, Any] = {"side": "below", "limit": 0.5, "unit": "in the last digit", "exact": True}
        return [Part(f"{heading} off by", off(rows, key), **shown) for heading, key in FIGURES.items()]

    return Claim(f"The printed λ and λ_0 of {model} follow from the formulas", "Table II", parts)


def _units_off(ours: float, paper: float) -> float:
    """By how many units of the third digit the two numbers differ, both rounded to three digits."""
    unit = 10.0 ** (math.floor(math.log10(paper)) - 2)
    return round(abs(float(f"{ours:.2e}") - paper) / unit)


TABLE2 = Study(
    "table2",
    "Table II: calibrated λ and λ_0 (no runs)",
    (Factor("model", tuple(Level(model) for model in TABLE_II)),),
    claims=tuple(_digits(model) for model in TABLE_II),
    tables=(
        GridTable(
            ("model",),
            (
                mean_of_seeds("dim", "d", "{:,.0f}".format),
                mean_of_seeds("keep", "k", lambda keep: f"{100 * keep:g}%"),
                mean_of_seeds("iterations", "T", "{:,.0f}".format),
                *(column for heading, key in FIGURES.items() for column in _beside_the_papers(heading, key)),
            ),
            "λ = 1/(2√(dk)), rounded as the paper prints it. λ_0 follows from ∫1/λ² = ∫1/λ_t².",
            head="model@data",
            title="table2: thresholds",
        ),
    ),
    seeds=(0,),
    quick_seeds=(0,),
    make_job=_make_job,
)
