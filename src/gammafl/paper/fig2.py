"""Fig. 2: the full factorial, 16 settings. What HT keeps under a fixed threshold λ = 1, against iterations."""

import math
from dataclasses import replace
from itertools import product

import numpy as np

from gammafl.experiments.claims import Claim, Part, Place
from gammafl.experiments.columns import READINGS, READINGS_NOTE, Column, GridTable, titled
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.levels import tasks
from gammafl.experiments.row_charts import ITERATIONS, KEPT, mean_line, title_of
from gammafl.experiments.rows import TENTHS, Row, Rows
from gammafl.paper.shared import MINI, NON_IID, TASKS
from gammafl.report.charts import Chart
from gammafl.report.lines import Line, lines_panel

FACTORS = ("data", "stepsize", "E", "clients")
RISE, FALL = 1.2, 0.5
"""A curve rises if some tenth of the run keeps more than `RISE` times as much as the first tenth. It falls if the last
tenth keeps less than `FALL` times as much as the largest tenth."""


def tenths(row: Row) -> list[float]:
    """The kept fraction of each tenth of the run."""
    parts = np.array_split(np.asarray(row.curve["kept_fraction"], float), TENTHS)
    return [float(part.mean()) if part.size else 0.0 for part in parts]


def _above_nothing(row: Row) -> list[float]:
    """`tenths`, but never less than one entry in a thousand uploads: less counts as nothing."""
    return [max(kept, 1e-3 / float(row.figures["dim"])) for kept in tenths(row)]


def late_share(row: Row) -> float:
    """log10 of the last tenth's kept fraction over the largest one's. −1 means a tenth of the peak."""
    kept = _above_nothing(row)
    return math.log10(kept[-1] / max(kept))


def rises_then_falls(row: Row) -> float:
    """How clearly the curve rises and then falls, in log10. It is above 0 if and only if it does."""
    kept = _above_nothing(row)
    return min(math.log10(max(kept) / kept[0] / RISE), math.log10(FALL * max(kept) / kept[-1]))


def _word(cell: Place) -> str:
    return f"{cell['data']}, {cell['stepsize']} γ, E={cell['E']}, {cell['clients']}"


def _special(cell: Place) -> bool:
    return cell["data"] == "non-IID" and cell["stepsize"] == "decaying"


def _shape_parts(rows: Rows, special: bool) -> list[Part]:
    return [
        Part(_word(cell), rows.by_seed(rises_then_falls, **cell), "above" if special else "below", unit="log10")
        for cell in rows.cells(*FACTORS)
        if _special(cell) == special
    ]


def _more_aggressive(rows: Rows) -> list[Part]:
    parts = []
    for cell in filter(_special, rows.cells(*FACTORS)):
        late, other = (rows.by_seed(late_share, **{**cell, "stepsize": kind}) for kind in ("decaying", "fixed"))
        text = f"late share, decaying against fixed γ: E={cell['E']}, {cell['clients']}"
        parts.append(Part(text, late - other, "below", unit="log10"))
    return parts


def _kept(rows: Rows, cell: Place) -> np.ndarray:
    return np.mean([tenths(row) for row in rows.pick(**cell)], axis=0)


def _most(rows: Rows, cell: Place) -> str:
    kept = _kept(rows, cell)
    return f"{100 * kept.max():.3g} ({int(kept.argmax()) + 1})"


def _last_of_most(rows: Rows, cell: Place) -> str:
    return f"{100 * np.mean([10 ** late_share(row) for row in rows.pick(**cell)]):.3g}"


def _chart(rows: Rows) -> Chart:
    """All panels have the same scale. Where nothing is kept, there is no line."""
    colours = {"IID": "#0072B2", "non-IID": "#D55E00"}
    kept = [100 * value for row in rows.finished for value in row.curve["kept_fraction"] if value]
    below = max(3, len(rows.seeds))  # where one of n seeds keeps some entries, the mean is an n-th of that
    domain = (min(kept) / below, max(kept) * 1.5) if kept else None
    axis = replace(KEPT, label="entries kept (%; none: no line)", domain=domain)
    panels = []
    for e, clients in product(rows.levels["E"], rows.levels["clients"]):
        lines = []
        for data, kind in product(rows.levels["data"], rows.levels["stepsize"]):
            found = rows.pick(data=data, stepsize=kind, E=e, clients=clients)
            dash = "solid" if kind == "decaying" else "dash"
            lines.append(_where_any(mean_line(found, f"{data}, {kind} γ", colours.get(data, ""), dash)))
        panels.append(lines_panel(f"E = {e}, {clients} clients a round", lines, [ITERATIONS], [axis]))
    return Chart("fig2", title_of(rows, "what a fixed threshold λ = 1 keeps"), panels)


def _where_any(line: Line) -> Line:
    """The line without its points where nothing is kept, and without its band, whose lower end would often be 0."""
    values = {key: [v or math.nan for v in found] if key == KEPT.key else found for key, found in line.values.items()}
    return replace(line, values=values, low={}, high={})


FIG2 = Study(
    "fig2",
    "Fig. 2: what HT with λ = 1 keeps in 16 settings: data × stepsize × E × participation",
    (
        tasks(*TASKS, further=(MINI,)),
        Factor("data", (Level("IID", {"partition": {"kind": "iid"}}), Level("non-IID", where=NON_IID))),
        Factor(
            "stepsize",
            (
                Level("fixed", {"stepsize": {"kind": "constant", "value": 0.1}}),
                Level("decaying", {"stepsize": {"kind": "inverse"}}),
            ),
        ),
        Factor("E", (Level("1", {"local_steps": 1}), Level("5", {"local_steps": 5}))),
        Factor("clients", (Level("10/10", {"participation": 1.0}), Level("2/10", {"participation": 0.2}))),
    ),
    claims=(
        Claim(
            "With decaying γ on non-IID data, what HT keeps rises and then falls, whatever E and participation",
            "Sec. III-B",
            lambda rows: _shape_parts(rows, True),
        ),
        Claim("In no other setting does it rise and then fall", "Sec. III-B", lambda rows: _shape_parts(rows, False)),
        Claim(
            "On non-IID data, decaying γ makes HT more aggressive late in training than fixed γ does",
            "caption of Fig. 2",
            _more_aggressive,
        ),
    ),
    tables=(
        GridTable(
            FACTORS,
            (
                Column("kept %, first tenth", lambda r, c: f"{100 * _kept(r, c)[0]:.3g}"),
                Column("most (which tenth)", _most),
                Column("last tenth", lambda r, c: f"{100 * _kept(r, c)[-1]:.3g}"),
                Column("last of most, %", _last_of_most),
                *READINGS,
            ),
            f"Kept is the share of the entries that are sent. {READINGS_NOTE}",
            head="setting",
            name=_word,
            title=titled("HT with λ = 1", seeds=False),
        ),
    ),
    charts=(_chart,),
    settings={"method": "ht", "compression": {"threshold": 1.0}},
    quick={"iterations": 60, "evaluation": {"every": 20, "last": 3, "samples": 500}},
    note=f"A curve rises if some tenth of the run keeps more than {RISE}× as much as the first tenth. It falls if the"
    f" last tenth keeps less than {FALL}× as much as the largest tenth.",
)
