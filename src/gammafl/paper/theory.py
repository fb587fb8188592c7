"""Theorems 1 and 2 on problems whose constants are known: measured rates, compared with the bounds.

The proofs threshold the update at λ_t·γ_t ("gradient units"), Algorithm 1 does it at λ_t ("update units"). Both are
measured.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from gammafl.experiments.claims import Claim, Part, exponents, has_exponent, ratio_is
from gammafl.experiments.grid import TASK, Factor, Level, Study, Trial
from gammafl.experiments.intervals import slope
from gammafl.experiments.row_charts import title_of
from gammafl.experiments.rows import Row, Rows, Samples
from gammafl.report.charts import COLOURS, GREY, Chart
from gammafl.report.lines import Axis, Line, lines_panel
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
DASHES = ("solid", "solid", "dash", "dashdot", "dot")
"""The dashes of the methods, in their order: they show lines that lie on top of each other."""
LENGTHS = ("300", "1000", "3000", "10000", "30000", "100000")
RATE = {CONVEX: 1.0, SMOOTH: 0.5}
MEASURED = {CONVEX: "f(x_T) − f*", SMOOTH: "mean of ‖∇f(x_t)‖²"}
SLACK = 0.15
"""A slope counts as the rate if it is at most this much flatter, because runs are finite and noisy."""
SETTLED = 3
"""Slopes are fitted over this number of the largest lengths, where the start no longer matters."""
SLOPE = "slope of log error in log T"


def _rate(method: str) -> Claim:
    return has_exponent(
        f"{method}: the error falls like 1/T (like 1/√T where f is not convex)",
        "Li et al., the reference" if method == FEDAVG else "Theorems 1, 2",
        lambda rows: exponents(rows, "error", "T", SETTLED, method=method),
        SLOPE,
        lambda rows: {"below": SLACK - RATE[rows.task]},
        paper=lambda rows: -RATE[rows.task],
    )


def _below_bound(method: str) -> Claim:
    def ratios(rows: Rows) -> dict[str, Samples]:
        places = {f"error over bound, T={t}": {"method": method, "T": t} for t in rows.levels["T"]}
        return {name: rows.by_seed("error", **at) / rows.by_seed("bound", **at) for name, at in places.items()}

    return ratio_is(f"{method}: the measured error stays below the theorem's bound", "Theorems 1, 2", ratios, "below")


def _bound_rate(rows: Rows) -> list[Part]:
    """The slope of the bound, from the formula alone, at lengths that are too large to run."""
    from gammafl.paper.problems import Separable
    from gammafl.paper.theory_run import TheoryJob

    x = (10**8, 10**10)
    jobs = [TheoryJob("strongly-convex", 0, Path(), "gamma-fedht", t, "gradient") for t in x]
    fit = slope(x, [job.bound(Separable(job.problem)) for job in jobs])
    return [Part("slope of the bound for large T", {0: fit}, "below", SLACK - 1, exact=True)]


def _make_job(trial: Trial, leader: Row | None, runs: Path, data_dir: Path | None) -> "TheoryJob":
    from gammafl.paper.theory_run import TheoryJob

    return TheoryJob(seed=trial.seed, runs=runs, **trial.settings)


def _table(rows: Rows) -> TextTable:
    def cells(key: str, method: str) -> list[str]:
        return [f"{mean:.3g}" if math.isfinite(mean) else "–" for mean in rows.means(key, "T", method=method)]

    lines = []
    for method in rows.levels["method"]:
        fit = exponents(rows, "error", "T", SETTLED, method=method).interval
        lines.append([method, *cells("error", method), fit.text(".2f")])
    lines += [[f"bound, {method}", *cells("bound", method), "–"] for method in _bounded(rows)]
    columns = ["method", *(f"T={int(t):,}" for t in rows.levels["T"]), f"slope of the last {SETTLED} [95%]"]
    note = f"n = 10, 5 clients a round, E = 5, d = 100. The claimed rate is T^−{RATE[rows.task]:g}."
    title = f"theory: {rows.task}, {MEASURED[rows.task]}, mean of {rows.seeds_in_words()}"
    return TextTable(title, columns, lines, note)


def _bounded(rows: Rows) -> dict[str, str]:
    """Method → dash of its bound's line."""
    return {m: dash for m, dash in ((FEDAVG, "dot"), (OURS_PROOF, "dash")) if m in rows.levels["method"]}


def _chart(rows: Rows) -> Chart:
    """Two panels: the errors with the claimed rate, and the errors with their bounds."""
    x, rate = [float(t) for t in rows.levels["T"]], RATE[rows.task]

    def line(name: str, y: list[float], colour: str, dash: str = "solid", measured: bool = False) -> Line:
        return Line(name, {"T": x, "error": y}, colour, dash, measured=measured)

    measured = [
        line(method, rows.means("error", "T", method=method), colour, dash, True)
        for dash, colour, method in zip(DASHES, COLOURS, METHODS, strict=False)
        if method in rows.levels["method"]
    ]
    bounds = [line(f"bound, {m}", rows.means("bound", "T", method=m), GREY, dash) for m, dash in _bounded(rows).items()]
    falling = [measured[0].values["error"][0] * (t / x[0]) ** -rate for t in x]
    guide = line("1/T" if rate == 1 else "1/√T", falling, "#AAAAAA")
    across, up = Axis("T", "iterations T", log=True), Axis("error", MEASURED[rows.task], log=True)
    panels = [
        lines_panel(title, lines, [across], [up])
        for title, lines in (("measured", [*measured, guide]), ("with the theorem's bound", [*measured, *bounds]))
    ]
    return Chart("theory", title_of(rows, "convergence"), panels)


THEORY = Study(
    "theory",
    "Theorems 1 and 2: measured rates and the bounds, in update and in gradient units",
    (
        Factor(TASK, (Level(CONVEX, {"problem": CONVEX}), Level(SMOOTH, {"problem": SMOOTH}))),
        Factor("method", tuple(Level(name, settings) for name, settings in METHODS.items())),
        Factor("T", tuple(Level(t, {"iterations": int(t)}) for t in LENGTHS), quick=LENGTHS[:2]),
    ),
    claims=(
        *(_rate(method) for method in (FEDAVG, OURS_PROOF, OURS)),
        has_exponent(
            f"{HT}: the error stops falling",
            "Sec. III",
            lambda rows: exponents(rows, "error", "T", SETTLED, method=HT),
            SLOPE,
            lambda rows: {"above": -SLACK},
        ),
        *(_below_bound(method) for method in (FEDAVG, OURS_PROOF, OURS)),
        Claim("Theorem 1's bound itself falls like 1/T with λ_0 fixed", "Remark 1", _bound_rate, (CONVEX,)),
    ),
    tables=(_table,),
    charts=(_chart,),
    make_job=_make_job,
    seeds=tuple(range(6)),
    note="λ_0 is the same at all T. In gradient units the threshold starts at the same value as in update units.",
)
