"""Theorems 1 and 2 on problems whose constants are known: measured rates, and the bounds beside them.

The proofs threshold the update at λ_t·γ_t ("gradient units"), Algorithm 1 at λ_t ("update units"): both are measured.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Factor, Level, Study, Trial
from gammafl.experiments.intervals import Interval, interval, slope
from gammafl.experiments.results import Results
from gammafl.federated.records import Summary
from gammafl.paper.comparisons import title_of
from gammafl.report.pictures import COLOURS, Line, LinePicture, Panel, Picture
from gammafl.report.tables import TextTable

if TYPE_CHECKING:
    from gammafl.paper.theory_run import TheoryJob

CONVEX, SMOOTH = "strongly-convex", "non-convex"
FEDAVG, HT, OURS = "FedAVG", "HT, update units", "γ-FedHT, update units"
HT_PROOF, OURS_PROOF = "HT, gradient units", "γ-FedHT, gradient units"
METHODS = {
    FEDAVG: {"method": "fedavg"},
    HT: {"method": "ht", "units": "update"},
    OURS: {"method": "gamma-fedht", "units": "update"},
    HT_PROOF: {"method": "ht", "units": "gradient"},
    OURS_PROOF: {"method": "gamma-fedht", "units": "gradient"},
}
DASHES = ("-", "-", "--", "-.", ":")
"""Of the methods in their order: what coincides shines through."""
LENGTHS = ("300", "1000", "3000", "10000", "30000", "100000")
RATE = {CONVEX: 1.0, SMOOTH: 0.5}
SLACK = 0.15
"""A slope counts as the rate if it is at most this much flatter: lengths are finite, and so is the noise."""
SETTLED = 3
"""Slopes are fitted over the last lengths, this many, where the start is forgotten."""


def lengths(results: Results) -> list[int]:
    return sorted({int(run.cell["T"]) for run in results.runs})


def errors(results: Results, method: str) -> dict[int, list[float]]:
    """Seed → the error at each length; only seeds that have them all."""
    each = [results.by_seed("error", method=method, T=str(t)) for t in lengths(results)]
    seeds = set.intersection(*(set(one) for one in each)) if each else set()
    return {seed: [one[seed] for one in each] for seed in sorted(seeds)}


def slopes(results: Results, method: str) -> dict[int, float]:
    """Seed → p of error ∝ T^p over the last lengths."""
    x = lengths(results)[-SETTLED:]
    if len(x) < 2:
        return {}
    return {seed: slope(x, row[-SETTLED:]) for seed, row in errors(results, method).items() if min(row) > 0}


def _rate(method: str) -> Claim:
    def parts(results: Results) -> list[Part]:
        rate = RATE[results.task]
        return [Part("slope of log error in log T", slopes(results, method), "below", SLACK - rate, paper=-rate)]

    source = "Li et al., the reference" if method == FEDAVG else "Theorems 1, 2"
    return Claim(f"{method}: the error falls like 1/T (like 1/√T where f is not convex)", source, parts)


def _floor(method: str) -> Claim:
    def parts(results: Results) -> list[Part]:
        return [Part("slope of log error in log T", slopes(results, method), "above", -SLACK)]

    return Claim(f"{method}: the error stops falling", "Sec. III", parts)


def _below_bound(method: str) -> Claim:
    def parts(results: Results) -> list[Part]:
        made = []
        for t in lengths(results):
            cell = {"method": method, "T": str(t)}
            error, bound = results.by_seed("error", **cell), results.by_seed("bound", **cell)
            ratio = {s: float(np.log10(error[s] / bound[s])) for s in error.keys() & bound.keys() if error[s] > 0}
            made.append(Part(f"log10 of error over bound, T={t}", ratio, "below"))
        return made

    return Claim(f"{method}: the measured error stays below the theorem's bound", "Theorems 1, 2", parts)


def _bound_rate(results: Results) -> list[Part]:
    """From the formula alone, at lengths far beyond what can be run."""
    from gammafl.paper.theory_run import TheoryJob

    job = TheoryJob("strongly-convex", 0, Path(), "gamma-fedht", 1000, "gradient")
    x = (10**8, 10**10)
    found = {0: slope(x, [job.bound_at(t) for t in x])}
    return [Part("slope of the bound for large T", found, "below", SLACK - 1, exact=True)]


def _make_job(trial: Trial, leader: Summary | None, runs: Path, data_dir: Path | None) -> "TheoryJob":
    from gammafl.paper.theory_run import TheoryJob

    return TheoryJob(trial.task, trial.seed, runs, **trial.settings)  # type: ignore[arg-type]


def _table(results: Results) -> list[TextTable]:
    what = "f(x_T) − f*" if results.task == CONVEX else "mean of ‖∇f(x_t)‖²"
    rows = []
    for method in results.levels["method"]:
        found = errors(results, method)
        if found:
            means = np.mean(list(found.values()), axis=0)
            fitted = _shown(interval(list(slopes(results, method).values())))
            rows.append([method, *(f"{value:.3g}" for value in means), fitted])
    rows += [[f"bound, {m}", *_bounds(results, m), "–"] for m in (FEDAVG, OURS_PROOF) if m in results.levels["method"]]
    columns = ["method", *(f"T={t:,}" for t in lengths(results)), f"slope of the last {SETTLED} [95%]"]
    note = f"n = 10, 5 a round, E = 5, d = 100; the rate claimed is T^−{RATE[results.task]:g}"
    title = f"theory: {results.task}, {what}, mean of {results.seeds_in_words()}"
    return [TextTable(title, columns, rows, note)]


def _shown(found: Interval) -> str:
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]" if found.count > 1 else "–"


def _bounds(results: Results, method: str) -> list[str]:
    each = [results.by_seed("bound", method=method, T=str(t)).values() for t in lengths(results)]
    return [f"{np.mean(list(values)):.3g}" if values else "–" for values in each]


def _pictures(results: Results) -> list[Picture]:
    """The errors beside the claimed rate, and once more far below their bounds."""
    x = [float(t) for t in lengths(results)]
    measured = [
        Line(method, x, np.mean(list(errors(results, method).values()), axis=0).tolist(), colour, dash)
        for dash, colour, method in zip(DASHES, COLOURS, results.levels["method"], strict=False)
        if errors(results, method)
    ]
    if not measured:
        return []
    rate, bounds = RATE[results.task], []
    for method, style in ((FEDAVG, ":"), (OURS_PROOF, "--")):
        values = [list(results.by_seed("bound", method=method, T=str(t)).values()) for t in lengths(results)]
        bounds += [
            Line(f"bound, {method}", x, [float(np.mean(v)) for v in values], "#777777", style, measured=False)
        ] * all(values)
    falling = [measured[0].y[0] * (t / x[0]) ** -rate for t in x]
    guide = Line("1/T" if rate == 1 else "1/√T", x, falling, "#AAAAAA", "-", 1.0, measured=False)
    y_label = "f(x_T) − f*" if results.task == CONVEX else "mean of ‖∇f(x_t)‖²"
    panels = [
        Panel(title, "iterations T (log scale)", f"{y_label} (log scale)", lines, log_x=True, log_y=True)
        for title, lines in (("measured", [*measured, guide]), ("with the theorem's bound", [*measured, *bounds]))
    ]
    return [LinePicture("theory", title_of(results, "convergence"), panels)]


THEORY = Study(
    "theory",
    "Theorems 1 and 2: measured rates and the bounds, in update and in gradient units",
    (CONVEX, SMOOTH),
    (
        Factor("method", tuple(Level(name, settings) for name, settings in METHODS.items())),
        Factor("T", tuple(Level(t, {"iterations": int(t)}) for t in LENGTHS), quick=LENGTHS[:2]),
    ),
    (
        *(_rate(method) for method in (FEDAVG, OURS_PROOF, OURS)),
        _floor(HT),
        *(_below_bound(method) for method in (FEDAVG, OURS_PROOF, OURS)),
        Claim("Theorem 1's bound itself falls like 1/T with λ_0 fixed", "Remark 1", _bound_rate, (CONVEX,)),
    ),
    _table,
    _pictures,
    make_job=_make_job,
    further_tasks=(),
    seeds=tuple(range(6)),
    note="λ_0 is the same at all T; in gradient units the threshold starts at the same value as in update units",
)
