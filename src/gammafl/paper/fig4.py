"""Fig. 4: how much better γ-FedHT is than Top-k, and γ-FedHT-Q than STC, over γ × k × n × #C."""

from collections.abc import Callable
from itertools import product

import numpy as np

from gammafl.experiments.claims import Claim, Part, Place, beats, lead
from gammafl.experiments.columns import READINGS, READINGS_NOTE, Column, GridTable
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.labels import label
from gammafl.experiments.levels import USUALLY_QUICK, classes, tasks
from gammafl.experiments.row_charts import title_of
from gammafl.experiments.rows import Rows, Samples, over_all
from gammafl.paper.shared import MINI, TASKS
from gammafl.report.charts import Chart
from gammafl.report.estimates import HeatCell, heat_map_panel

SETTING = ("stepsize", "keep", "clients", "classes")
NOMINAL, EQUAL = "at the same k", "at equal traffic"
Pair = tuple[str, str]
PLAIN, QUANTISED = ("gamma-fedht", "top-k"), ("gamma-fedht-q", "stc")
PAIRS = {
    PLAIN: NOMINAL,
    QUANTISED: NOMINAL,
    ("gamma-fedht", "top-k, equal traffic"): EQUAL,
    ("gamma-fedht-q", "stc, equal traffic"): EQUAL,
}


def ahead(rows: Rows, pair: Pair, cell: Place) -> Samples:
    """The lead of the first over the second in one setting."""
    return lead(rows, {"method": pair[0], **cell}, {"method": pair[1], **cell})


def _leads(rows: Rows, pair: Pair, combine: Callable[[list[float]], float], **fixed: str) -> Samples:
    """Combines the leads of all settings that agree with `fixed` into one number for each seed."""
    return over_all([ahead(rows, pair, cell) for cell in rows.cells(*SETTING, **fixed)], combine)


def _everywhere(pair: Pair) -> Claim:
    sentence = f"{label(pair[0])} is more accurate than {_name(pair[1])} {PAIRS[pair]} in all combinations"
    return beats(sentence, "caption of Fig. 4", *pair, by=SETTING, name=lambda a, b: _word(a))


def _larger(sentence: str, factor: str, more: str, less: str) -> Claim:
    """The lead, averaged over the rest of the grid, is larger at level `more` of `factor` than at `less`."""

    def parts(rows: Rows) -> list[Part]:
        made = []
        for pair in (PLAIN, QUANTISED):
            high, low = (_leads(rows, pair, np.mean, **{factor: level}) for level in (more, less))
            made.append(Part(f"lead over {_name(pair[1])}: {more} − {less}", high - low, unit="points"))
        return made

    return Claim(sentence, "Sec. V-B", parts)


def _quantiser(rows: Rows) -> list[Part]:
    larger = _leads(rows, QUANTISED, np.mean) - _leads(rows, PLAIN, np.mean)
    return [Part("lead of γ-FedHT-Q over STC − lead of γ-FedHT over Top-k", larger, unit="points")]


def _varies(rows: Rows) -> list[Part]:
    """For each seed: the variance of the leads over the grid at n = 100, over that at n = 10, as log10."""
    many, few = (_leads(rows, PLAIN, lambda x: np.log10(np.var(x) + 1e-12), clients=n) for n in ("100", "10"))
    return [Part("variance of the leads, n = 100 over n = 10", many - few, unit="log10")]


def _word(cell: Place) -> str:
    return f"{cell['stepsize']} γ, k={cell['keep']}, n={cell['clients']}, #C={cell['classes']}"


def _name(method: str) -> str:
    return label(method.partition(",")[0])


def _title(pair: Pair) -> str:
    return f"{label(pair[0])} − {_name(pair[1])} {PAIRS[pair]}"


def _heat(rows: Rows, pair: Pair, cell: Place) -> HeatCell:
    """The mean lead, NaN without runs. A star means that the 95% interval excludes 0."""
    found = ahead(rows, pair, cell).interval
    star = "*" if found.low > 0 or found.high < 0 else ""
    return HeatCell(f"{cell['stepsize']} γ, k = {cell['keep']}", f"#C={cell['classes']}", found.mean, star)


def _column(pair: Pair) -> Column:
    return Column(_title(pair), lambda rows, cell: _heat(rows, pair, cell).text)


def _chart(rows: Rows) -> Chart | None:
    panels = []
    for pair, n in product(PAIRS, rows.levels["clients"]):
        cells = [_heat(rows, pair, cell) for cell in rows.cells(*SETTING, clients=n)]
        if not all(np.isnan(cell.value) for cell in cells):
            panels.append(heat_map_panel(f"{_title(pair)}, n = {n}", "points of accuracy", cells))
    return Chart("fig4", title_of(rows, "lead (* the 95% interval excludes 0)"), panels) if panels else None


FIG4 = Study(
    "fig4",
    "Fig. 4: lead of γ-FedHT over Top-k and of γ-FedHT-Q over STC, over stepsize × k × n × #C",
    (
        tasks(*TASKS, further=(MINI,)),
        Factor("stepsize", tuple(Level(kind, {"stepsize": {"kind": kind}}) for kind in ("inverse", "exponential"))),
        Factor("keep", (Level("1%", {"keep": 0.01}), Level("0.1%", {"keep": 0.001})), quick=("1%",)),
        Factor("clients", (Level("10", {"clients": 10}), Level("100", {"clients": 100})), quick=("10",)),
        classes(2, 3, 5),
        Factor(
            "method",
            (
                *(Level(method, {"method": method}) for method in ("gamma-fedht", "gamma-fedht-q", "top-k", "stc")),
                Level("top-k, equal traffic", {"method": "top-k"}, follows="gamma-fedht"),
                Level("stc, equal traffic", {"method": "stc"}, follows="gamma-fedht-q"),
            ),
        ),
    ),
    claims=(
        *(_everywhere(pair) for pair in PAIRS),
        _larger("The more aggressive the compression, the larger the lead", "keep", "0.1%", "1%"),
        _larger("The more severe the non-IID problem, the larger the lead", "classes", "2", "5"),
        Claim("The quantiser enlarges the lead", "Sec. V-B", _quantiser),
        Claim("The leads vary more at n = 100 than at n = 10", "Sec. V-B", _varies),
    ),
    tables=(
        GridTable(
            SETTING,
            [_column(pair) for pair in PAIRS],
            "Points of accuracy, by the mean of the last evaluations. *: the 95% interval over seeds excludes 0.",
            head="setting",
            name=_word,
        ),
        GridTable(
            (*SETTING, "method"),
            READINGS,
            READINGS_NOTE,
            head="setting, method",
            name=lambda cell: f"{_word(cell)}, {label(cell['method'])}",
        ),
    ),
    charts=(_chart,),
    quick=USUALLY_QUICK,
)
