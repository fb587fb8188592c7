"""Table II: λ and λ_0 from the paper's formulas beside the paper's digits. Nothing is trained."""

import math

from gammafl.core.stepsizes import ExponentialDecay, InverseDecay
from gammafl.core.thresholds import calibrate
from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Study
from gammafl.experiments.results import Results
from gammafl.paper.printed import TABLE_II, Calibrated
from gammafl.report.pictures import Picture
from gammafl.report.tables import TextTable

INVERSE, EXPONENTIAL = InverseDecay(100, 1000), ExponentialDecay(0.1, 0.999, 5)


def calibrated(row: Calibrated) -> tuple[float, float, float]:
    """λ, λ_0 for the inverse and for the exponential stepsize."""
    inverse = calibrate(row.keep, row.dim, INVERSE, row.iterations)
    exponential = calibrate(row.keep, row.dim, EXPONENTIAL, row.iterations)
    return inverse.threshold, inverse.initial_threshold, exponential.initial_threshold


def _table(results: Results) -> list[TextTable]:
    rows = []
    for name, row in TABLE_II.items():
        printed = (row.threshold, row.inverse, row.exponential)
        pairs = [text for ours, paper in zip(calibrated(row), printed, strict=True) for text in _pair(ours, paper)]
        rows.append([name, f"{row.dim:,}", f"{100 * row.keep:g}%", f"{row.iterations:,}", *pairs])
    columns = ["model@data", "d", "k", "T", "λ", "paper", "λ_0, inverse γ", "paper", "λ_0, exponential γ", "paper"]
    return [TextTable("table2: thresholds", columns, rows, "λ = 1/(2√(dk)), rounded as printed; ∫1/λ² = ∫1/λ_t²")]


def _pair(ours: float, paper: float) -> tuple[str, str]:
    return f"{ours:.2e}", f"{paper:.2e}"


def _digits(name: str) -> Claim:
    """Every number of the row, rounded to three digits, is the printed one."""

    def parts(results: Results) -> list[Part]:
        row = TABLE_II[name]
        printed = {"λ": row.threshold, "λ_0, inverse γ": row.inverse, "λ_0, exponential γ": row.exponential}
        return [
            Part(f"{label} off by", {0: _units_off(ours, paper)}, "below", 0.5, "in the last digit", exact=True)
            for ours, (label, paper) in zip(calibrated(row), printed.items(), strict=True)
        ]

    return Claim(f"The printed λ and λ_0 of {name} follow from the formulas", "Table II", parts)


def _units_off(ours: float, paper: float) -> float:
    """How many units of the third digit the two differ by, both as printed."""
    unit = 10.0 ** (math.floor(math.log10(paper)) - 2)
    return round(abs(float(f"{ours:.2e}") - paper) / unit)


def _pictures(results: Results) -> list[Picture]:
    return []


TABLE2 = Study(
    "table2",
    "Table II: calibrated λ and λ_0 (no runs)",
    (),
    (),
    tuple(_digits(name) for name in TABLE_II),
    _table,
    _pictures,
    further_tasks=(),
)
