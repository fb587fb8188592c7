"""What compression costs against d, and the exponent p of seconds ∝ d^p: the O(d) of the abstract.

Here are the claims, tables and pictures. The times are measured by `benchmarks/cost.py`, which is not in the package.
"""

import numpy as np

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.intervals import interval, slope
from gammafl.experiments.results import Results
from gammafl.paper.comparisons import warning_of
from gammafl.report.pictures import Line, LinePicture, Panel, Picture
from gammafl.report.tables import TextTable

DIMS = ("10000", "100000", "1000000", "10000000", "100000000")
QUICK_DIMS = ("10000", "100000", "1000000")
FUSED, OUR_TOP_K = "γ-FedHT, fused", "Top-k, ours, with error feedback"
NAIVE_TOP_K = "torch.topk with error feedback"
"""The contenders that the claims are about, as the results name them."""
LINEAR = 1.1
"""The exponent that still counts as linear: large vectors leave the caches, which costs more than a factor."""


def dims(results: Results) -> list[int]:
    return sorted({int(run.cell["d"]) for run in results.runs})


def exponents(results: Results, method: str) -> dict[int, float]:
    """Repetition → p of seconds ∝ d^p."""
    each = [results.by_seed(method, d=str(d)) for d in dims(results)]
    if len(each) < 2:
        return {}
    seeds = set.intersection(*(set(one) for one in each))
    return {seed: slope(dims(results), [one[seed] for one in each]) for seed in seeds}


def _linear(results: Results) -> list[Part]:
    return [Part(f"exponent of {FUSED}", exponents(results, FUSED), "below", LINEAR)]


def _cheaper(other: str, results: Results, times: float = 1.0) -> list[Part]:
    """At each d, `other` takes more than `times` as long; in log10, where ratios are nearly normal."""
    parts = []
    for d in dims(results):
        theirs, ours = (results.by_seed(method, d=str(d)) for method in (other, FUSED))
        ratio = {seed: float(np.log10(theirs[seed] / ours[seed])) for seed in ours.keys() & theirs.keys()}
        parts.append(Part(f"log10 of times as long, d={d:,}", ratio, "above", float(np.log10(times))))
    return parts


def _contenders(results: Results) -> list[str]:
    return list(results.runs[0].figures) if results.runs else []


def _table(results: Results) -> list[TextTable]:
    rows = []
    for name in _contenders(results):
        times = [np.mean(list(results.by_seed(name, d=str(d)).values())) for d in dims(results)]
        found = interval(list(exponents(results, name).values()))
        fitted = f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]" if found.count > 1 else "–"
        rows.append([name, *(f"{1e3 * seconds:.3g}" for seconds in times), fitted])
    columns = ["", *(f"d={d:,}" for d in dims(results)), "exponent p of d^p"]
    note = "milliseconds, median of the turns, mean of the repetitions; one thread, 0.1% kept"
    return [TextTable("cost: compression with error feedback", columns, rows, note)]


def _pictures(results: Results) -> list[Picture]:
    x = [float(d) for d in dims(results)]
    lines = [
        Line(name, x, [1e3 * float(np.mean(list(results.by_seed(name, d=str(d)).values()))) for d in dims(results)])
        for name in _contenders(results)
    ]
    panel = Panel("", "d: elements (log scale)", "milliseconds (log scale)", lines, log_x=True, log_y=True)
    title = f"compression with error feedback, one thread, 0.1% kept: mean of {len(results.seeds)} repetitions"
    return [LinePicture("cost", warning_of(results) + title, [panel])]


COST = Study(
    "cost",
    "Compression time against d, with the fitted exponent",
    (),
    (Factor("d", tuple(Level(d, {"dim": int(d)}) for d in DIMS), QUICK_DIMS),),
    (
        Claim(f"γ-FedHT's compression is O(d) (exponent below {LINEAR})", "abstract", _linear),
        Claim("Top-k with error feedback (torch.topk) takes longer", "Sec. I", lambda r: _cheaper(NAIVE_TOP_K, r)),
        Claim("Our own, faster Top-k takes longer", "ours", lambda r: _cheaper(OUR_TOP_K, r)),
        Claim(
            "Top-k takes up to hundreds of times as long: at least 100 times at the largest d",
            "Sec. I",
            lambda r: _cheaper(NAIVE_TOP_K, r, 100)[-1:],
        ),
    ),
    _table,
    _pictures,
    further_tasks=(),
    note="times are of this machine; let it do nothing else",
    run_by="python -m benchmarks cost",
)
