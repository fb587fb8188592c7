"""Fig. 4: how much better γ-FedHT is than Top-k, and γ-FedHT-Q than STC, over γ × k × n × #C."""

from itertools import product

import numpy as np

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.intervals import interval
from gammafl.experiments.levels import classes, label
from gammafl.experiments.results import Results, difference, mean_of
from gammafl.paper.comparisons import QUICK, gain, title_of
from gammafl.report.pictures import HeatMap, HeatMapPicture, Picture
from gammafl.report.tables import TextTable

NOMINAL, EQUAL = "at the same k", "at equal traffic"
METHODS = Factor(
    "method",
    (
        Level("gamma-fedht", {"method": "gamma-fedht"}),
        Level("gamma-fedht-q", {"method": "gamma-fedht-q"}),
        Level("top-k", {"method": "top-k"}),
        Level("stc", {"method": "stc"}),
        Level("top-k, equal traffic", {"method": "top-k"}, follows="gamma-fedht"),
        Level("stc, equal traffic", {"method": "stc"}, follows="gamma-fedht-q"),
    ),
)
PLAIN, QUANTISED = ("gamma-fedht", "top-k"), ("gamma-fedht-q", "stc")
PAIRS = {
    PLAIN: NOMINAL,
    QUANTISED: NOMINAL,
    ("gamma-fedht", "top-k, equal traffic"): EQUAL,
    ("gamma-fedht-q", "stc, equal traffic"): EQUAL,
}
Pair = tuple[str, str]
Samples = dict[int, float]


def cells(results: Results, **fixed: str) -> list[dict[str, str]]:
    """The places of the grid, apart from the method, that agree with `fixed`."""
    names = [name for name in results.levels if name != "method"]
    made = [dict(zip(names, levels, strict=True)) for levels in product(*(results.levels[name] for name in names))]
    return [cell for cell in made if all(cell[key] == value for key, value in fixed.items())]


def lead(results: Results, pair: Pair, cell: dict[str, str]) -> Samples:
    return gain(results, {"method": pair[0], **cell}, {"method": pair[1], **cell})


def _everywhere(pair: Pair) -> Claim:
    def parts(results: Results) -> list[Part]:
        return [Part(_word(cell), lead(results, pair, cell), unit="points") for cell in cells(results)]

    text = f"{label(pair[0])} is more accurate than {_name(pair[1])} {PAIRS[pair]} in all combinations"
    return Claim(text, "caption of Fig. 4", parts)


def _larger(results: Results, factor: str, more: str, less: str) -> list[Part]:
    """The lead, averaged over the rest of the grid, is larger at level `more` of `factor` than at `less`."""
    parts = []
    for pair in (PLAIN, QUANTISED):
        at = [
            mean_of([lead(results, pair, cell) for cell in cells(results, **{factor: level})]) for level in (more, less)
        ]
        parts.append(Part(f"lead over {_name(pair[1])}: {more} − {less}", difference(at[0], at[1]), unit="points"))
    return parts


def _quantiser(results: Results) -> list[Part]:
    leads = [mean_of([lead(results, pair, cell) for cell in cells(results)]) for pair in (QUANTISED, PLAIN)]
    return [Part("lead of γ-FedHT-Q over STC − lead of γ-FedHT over Top-k", difference(*leads), unit="points")]


def _varies(results: Results) -> list[Part]:
    """log10 of the ratio of the variances of the leads over the grid, n = 100 over n = 10, seed by seed."""
    spreads = []
    for n in ("100", "10"):
        leads = [lead(results, PLAIN, cell) for cell in cells(results, clients=n)]
        seeds = set.intersection(*(set(one) for one in leads)) if leads else set()
        spreads.append({seed: float(np.log10(np.var([one[seed] for one in leads]) + 1e-12)) for seed in seeds})
    return [Part("variance of the leads, n = 100 over n = 10", difference(*spreads), unit="log10")]


def _word(cell: dict[str, str]) -> str:
    return f"{cell['stepsize']} γ, k={cell['keep']}, n={cell['clients']}, #C={cell['classes']}"


def _name(method: str) -> str:
    return label(method.partition(",")[0])


def _table(results: Results) -> list[TextTable]:
    rows = []
    for cell in cells(results):
        found = [lead(results, pair, cell) for pair in PAIRS]
        if any(found):
            rows.append([_word(cell), *(_shown(samples) for samples in found)])
    columns = ["setting", *(f"{label(a)} − {_name(b)} {how}" for (a, b), how in PAIRS.items())]
    note = "points of accuracy, mean of the last evaluations; * the 95% interval over seeds excludes 0"
    return [TextTable(f"fig4: {results.task}, {results.seeds_in_words()}", columns, rows, note)]


def _shown(samples: Samples) -> str:
    if not samples:
        return "–"
    return f"{np.mean(list(samples.values())):+.2f}{_star(samples)}"


def _star(samples: Samples) -> str:
    found = interval(list(samples.values()))
    return "*" if found.low > 0 or found.high < 0 else ""


def _pictures(results: Results) -> list[Picture]:
    rows = list(product(results.levels["stepsize"], results.levels["keep"]))
    columns = results.levels["classes"]
    maps = []
    for (pair, how), n in product(PAIRS.items(), results.levels["clients"]):
        places = [[{"stepsize": s, "keep": k, "clients": n, "classes": c} for c in columns] for s, k in rows]
        grid = [[lead(results, pair, place) for place in row] for row in places]
        if any(samples for row in grid for samples in row):
            values = [[float(np.mean(list(one.values()))) if one else float("nan") for one in row] for row in grid]
            marks = [[_star(one) for one in row] for row in grid]
            title = f"{label(pair[0])} − {_name(pair[1])} {how}, n = {n}"
            names = [f"{s} γ, k = {k}" for s, k in rows]
            maps.append(HeatMap(title, names, [f"#C={c}" for c in columns], values, marks))
    return (
        [HeatMapPicture("fig4", title_of(results, "lead (* the 95% interval excludes 0)"), "points of accuracy", maps)]
        if maps
        else []
    )


FIG4 = Study(
    "fig4",
    "Fig. 4: lead of γ-FedHT over Top-k and of γ-FedHT-Q over STC, over stepsize × k × n × #C",
    ("logistic-fmnist", "cnn-cifar10"),
    (
        Factor(
            "stepsize",
            (
                Level("inverse", {"stepsize": {"kind": "inverse"}}),
                Level("exponential", {"stepsize": {"kind": "exponential"}}),
            ),
        ),
        Factor(
            "keep",
            (Level("1%", {"keep": 0.01}), Level("0.1%", {"keep": 0.001})),
            quick=("1%",),
        ),
        Factor("clients", (Level("10", {"clients": 10}), Level("100", {"clients": 100})), quick=("10",)),
        classes(2, 3, 5, quick=("2",)),
        METHODS,
    ),
    (
        *(_everywhere(pair) for pair in PAIRS),
        Claim(
            "The more aggressive the compression, the larger the lead",
            "Sec. V-B",
            lambda r: _larger(r, "keep", "0.1%", "1%"),
        ),
        Claim(
            "The more severe the non-IID problem, the larger the lead",
            "Sec. V-B",
            lambda r: _larger(r, "classes", "2", "5"),
        ),
        Claim("The quantiser enlarges the lead", "Sec. V-B", _quantiser),
        Claim("The leads vary more at n = 100 than at n = 10", "Sec. V-B", _varies),
    ),
    _table,
    _pictures,
    quick=QUICK,
)
