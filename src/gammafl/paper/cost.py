"""The time of compression against d, and the exponent p of seconds ∝ d^p: the O(d) of the abstract.

This file has the claims, tables and charts. `benchmarks/cost.py`, which is not in the package, measures the times.
"""

from gammafl.experiments.claims import Claim, exponents, has_exponent, ratio_is
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.row_charts import warning_of
from gammafl.experiments.rows import Rows, Samples
from gammafl.report.charts import Chart
from gammafl.report.lines import Axis, Line, lines_panel
from gammafl.report.tables import TextTable

DIMS = ("10000", "100000", "1000000", "10000000", "100000000")
FUSED, OUR_TOP_K = "γ-FedHT, fused", "Top-k, ours, with error feedback"
NAIVE_TOP_K = "torch.topk with error feedback"
"""The contenders that the claims are about, as the results name them."""
LINEAR = 1.1
"""The largest exponent that counts as linear. It is above 1 because large vectors no longer fit into the caches."""


def _takes_longer(sentence: str, source: str, other: str, times: float = 1.0, last: int = 0) -> Claim:
    """`other` takes more than `times` as long as γ-FedHT, at each d or at the `last` ones."""

    def ratios(rows: Rows) -> dict[str, Samples]:
        levels = rows.levels["d"][-last:]
        return {f"times as long, d={int(d):,}": rows.by_seed(other, d=d) / rows.by_seed(FUSED, d=d) for d in levels}

    return ratio_is(sentence, source, ratios, "above", times)


def _milliseconds(rows: Rows) -> dict[str, list[float]]:
    """Contender → the mean of the repetitions at each d."""
    contenders = rows.finished[0].figures if rows.finished else ()
    return {name: [1e3 * seconds for seconds in rows.means(name, "d")] for name in contenders}


def _table(rows: Rows) -> TextTable:
    lines = [
        [name, *(f"{one:.3g}" for one in times), exponents(rows, name, "d").interval.text(".3f")]
        for name, times in _milliseconds(rows).items()
    ]
    columns = ["", *(f"d={int(d):,}" for d in rows.levels["d"]), "exponent p of d^p"]
    note = "Milliseconds: the mean over repetitions of the median over turns. One thread, 0.1% kept."
    return TextTable("cost: compression with error feedback", columns, lines, note)


def _chart(rows: Rows) -> Chart:
    dims = [float(d) for d in rows.levels["d"]]
    lines = [Line(name, {"d": dims, "milliseconds": times}) for name, times in _milliseconds(rows).items()]
    across, up = Axis("d", "d: elements", log=True), Axis("milliseconds", "milliseconds", log=True)
    text = f"compression with error feedback, one thread, 0.1% kept: mean of {len(rows.seeds)} repetitions"
    title = warning_of(rows) + text
    return Chart("cost", title, [lines_panel(title, lines, [across], [up], wide=True)])


COST = Study(
    "cost",
    "Compression time against d, with the fitted exponent",
    (Factor("d", tuple(Level(d, {"dim": int(d)}) for d in DIMS), quick=DIMS[:3]),),
    claims=(
        has_exponent(
            f"γ-FedHT's compression is O(d) (exponent below {LINEAR})",
            "abstract",
            lambda rows: exponents(rows, FUSED, "d"),
            f"exponent of {FUSED}",
            lambda rows: {"below": LINEAR},
        ),
        _takes_longer("Top-k with error feedback (torch.topk) takes longer", "Sec. I", NAIVE_TOP_K),
        _takes_longer("Our own, faster Top-k takes longer", "ours", OUR_TOP_K),
        _takes_longer(
            "Top-k takes up to hundreds of times as long: at least 100 times at the largest d",
            "Sec. I",
            NAIVE_TOP_K,
            100,
            last=1,
        ),
    ),
    tables=(_table,),
    charts=(_chart,),
    note="The times are those of the machine that measures. It should do nothing else meanwhile.",
    run_by="python -m benchmarks cost",
)
