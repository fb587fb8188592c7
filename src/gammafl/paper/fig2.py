"""Fig. 2: the full factorial, 16 settings. What HT keeps under a fixed threshold λ = 1, against iterations."""

import math
from itertools import product

import numpy as np

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.results import TENTHS, Results, Run, difference
from gammafl.paper.comparisons import QUICK, curve, spread, title_of
from gammafl.report.pictures import Line, LinePicture, Panel, Picture
from gammafl.report.tables import TextTable

NON_IID = {
    "logistic-fmnist": {"partition": {"kind": "labels", "classes": 2}},
    "cnn-cifar10": {"partition": {"kind": "labels", "classes": 5}},
}
FACTORS = (
    Factor("data", (Level("IID", {"partition": {"kind": "iid"}}), Level("non-IID", by_task=NON_IID))),
    Factor(
        "stepsize",
        (
            Level("fixed", {"stepsize": {"kind": "constant", "value": 0.1}}),
            Level("decaying", {"stepsize": {"kind": "inverse"}}),
        ),
    ),
    Factor("E", (Level("1", {"local_steps": 1}), Level("5", {"local_steps": 5}))),
    Factor("clients", (Level("10/10", {"participation": 1.0}), Level("2/10", {"participation": 0.2}))),
)
RISE, FALL = 1.2, 0.5
"""A curve rises if some tenth of the run keeps `RISE` times what the first did, and falls if the last keeps `FALL`
times the most or less."""


def tenths(run: Run) -> list[float]:
    """The kept fraction of each tenth of the run."""
    parts = np.array_split(np.asarray(run.curve["kept_fraction"], float), TENTHS)
    return [float(part.mean()) if part.size else 0.0 for part in parts]


def late_share(run: Run) -> float:
    """log10 of the last tenth's kept fraction over the largest one's: −1 is a tenth of the peak."""
    kept = tenths(run)
    return math.log10(max(kept[-1], _floor(run)) / max(*kept, _floor(run)))


def rises_then_falls(run: Run) -> float:
    """Above 0 if and only if the curve rises and then falls; how clearly, in log10."""
    kept = tenths(run)
    top = max(*kept, _floor(run))
    rise = math.log10(top / max(kept[0], _floor(run)) / RISE)
    return min(rise, math.log10(FALL * top / max(kept[-1], _floor(run))))


def _floor(run: Run) -> float:
    """One entry in a thousand uploads: what counts as nothing."""
    return 1e-3 / float(run.figures["dim"])


def _settings(results: Results) -> list[dict[str, str]]:
    names = list(results.levels)
    return [dict(zip(names, levels, strict=True)) for levels in product(*results.levels.values())]


def _word(cell: dict[str, str]) -> str:
    return f"{cell['data']}, {cell['stepsize']} γ, E={cell['E']}, {cell['clients']}"


def _special(cell: dict[str, str]) -> bool:
    return cell["data"] == "non-IID" and cell["stepsize"] == "decaying"


def _shape_parts(results: Results, special: bool) -> list[Part]:
    side = "above" if special else "below"
    return [
        Part(_word(cell), results.by_seed(rises_then_falls, **cell), side, unit="log10")  # type: ignore[arg-type]
        for cell in _settings(results)
        if _special(cell) == special
    ]


def _more_aggressive(results: Results) -> list[Part]:
    parts = []
    for cell in _settings(results):
        if _special(cell):
            late, other = (results.by_seed(late_share, **{**cell, "stepsize": kind}) for kind in ("decaying", "fixed"))
            text = f"late share, decaying against fixed γ: E={cell['E']}, {cell['clients']}"
            parts.append(Part(text, difference(late, other), "below", unit="log10"))
    return parts


def _table(results: Results) -> list[TextTable]:
    rows = []
    for cell in _settings(results):
        runs = results.pick(**cell)
        if runs:
            kept = np.mean([tenths(run) for run in runs], axis=0)
            share = np.mean([10 ** late_share(run) for run in runs])
            rows.append(
                [
                    _word(cell),
                    f"{100 * kept[0]:.3g}",
                    f"{100 * kept.max():.3g} ({int(kept.argmax()) + 1})",
                    f"{100 * kept[-1]:.3g}",
                    f"{100 * share:.3g}",
                    spread(results, "last_mean", cell),
                ]
            )
    columns = ["setting", "kept %, first tenth", "most (which tenth)", "last tenth", "last of most, %", "accuracy %"]
    return [TextTable(f"fig2: {results.task}, HT with λ = 1", columns, rows, "kept: entries sent of all entries")]


def _pictures(results: Results) -> list[Picture]:
    styles = {"IID": "#0072B2", "non-IID": "#D55E00"}
    kept = [100 * value for run in results.runs for value in run.curve["kept_fraction"] if value]
    below = max(3, len(results.seeds))  # where one of n seeds keeps some entries, the mean is an n-th of that
    limits = (min(kept) / below, max(kept) * 1.5) if kept else (None, None)  # the same in all panels
    panels = []
    for e, clients in product(results.levels["E"], results.levels["clients"]):
        lines = []
        for data, kind in product(results.levels["data"], results.levels["stepsize"]):
            x, y = curve(results.pick(data=data, stepsize=kind, E=e, clients=clients), "kept_fraction", 100)
            dash = "-" if kind == "decaying" else "--"
            lines.append(Line(f"{data}, {kind} γ", x, [v or math.nan for v in y], styles[data], dash))
        title = f"E = {e}, {clients} clients a round"
        y_label = "entries kept (%, log scale; none: no line)"
        panels.append(Panel(title, "iterations", y_label, lines, log_y=True, y_limits=limits))
    return [LinePicture("fig2", title_of(results, "what a fixed threshold λ = 1 keeps"), panels)]


FIG2 = Study(
    "fig2",
    "Fig. 2: what HT with λ = 1 keeps in 16 settings: data × stepsize × E × participation",
    ("logistic-fmnist", "cnn-cifar10"),
    FACTORS,
    (
        Claim(
            "With decaying γ on non-IID data, what HT keeps rises and then falls, whatever E and participation",
            "Sec. III-B",
            lambda r: _shape_parts(r, True),
        ),
        Claim(
            "In no other setting does it rise and then fall",
            "Sec. III-B",
            lambda r: _shape_parts(r, False),
        ),
        Claim(
            "On non-IID data, decaying γ makes HT more aggressive late in training than fixed γ does",
            "caption of Fig. 2",
            _more_aggressive,
        ),
    ),
    _table,
    _pictures,
    settings={"method": "ht", "compression": {"threshold": 1.0}},
    quick=QUICK | {"": {"iterations": 60, "evaluation": {"every": 20, "last": 3, "samples": 500}}},
    note=f"rises: some tenth keeps {RISE}× the first; falls: the last keeps {FALL}× the most, or less",
)
