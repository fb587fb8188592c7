"""The server's averaged model against its last one, for every method: a gain without traffic, and is it the paper's?"""

from gammafl.experiments.claims import Claim, Part, Place, scale_of
from gammafl.experiments.columns import GridTable, spread
from gammafl.experiments.grid import Study
from gammafl.experiments.labels import label
from gammafl.experiments.levels import USUALLY_QUICK, classes, methods, tasks
from gammafl.experiments.row_charts import intervals_of
from gammafl.experiments.rows import Rows, difference
from gammafl.paper.printed import paper_column, printed
from gammafl.paper.shared import MINI, TASKS


def _word(place: Place) -> str:
    return f"{label(place['method'])}, #C={place['classes']}"


def _gains(rows: Rows) -> list[Part]:
    """Averaged − last: the raw model as the mean of its last evaluations, which is kinder to it than the final one."""
    scale, unit = scale_of(rows)
    sign = scale if unit == "points" else -1.0
    parts = []
    for place in rows.cells("classes", "method"):
        gained = difference(rows.by_seed("averaged", **place), rows.by_seed("last_mean", **place))
        parts.append(Part(_word(place), {seed: sign * value for seed, value in gained.items()}, unit=unit))
    return parts


def _nearer(rows: Rows) -> list[Part]:
    """|last − paper| − |averaged − paper|: above 0 where the averaged model is the nearer one."""
    parts = []
    for place in rows.cells("classes", "method"):
        if (paper := printed(rows.task, place["classes"], place["method"])) is not None:
            last, averaged = (
                {seed: abs(value - paper.accuracy / 100) for seed, value in rows.by_seed(key, **place).items()}
                for key in ("last_mean", "averaged")
            )
            nearer = {seed: 100 * value for seed, value in difference(last, averaged).items()}
            parts.append(Part(_word(place), nearer, unit="points nearer"))
    return parts


_FREE_GAIN = Claim("The averaged model is more accurate than the raw one, for every method and #C", "ours", _gains)

AVERAGING = Study(
    "averaging",
    "Ours: the averaged server model against the raw one, every method, #C = 2, 3, 5",
    (
        tasks(*TASKS, further=(MINI,)),
        classes(2, 3, 5),
        methods(
            "gamma-fedht", "gamma-fedht-q", "ht", "top-k", "top-k per tensor", "stc", "stc per tensor", "fedavg",
            quick=("gamma-fedht", "top-k", "fedavg"),
        ),
    ),
    claims=(
        _FREE_GAIN,
        Claim("The averaged model is nearer to the paper's accuracy than the raw one", "ours", _nearer),
    ),
    tables=(
        GridTable(
            ("classes", "method"),
            (
                spread("final", "final"),
                spread("last_mean", "mean of the last"),
                spread("averaged", "averaged model"),
                paper_column(lambda paper, method: f"{paper.accuracy:.2f}"),
            ),
            "averaged: mean of the server's models over the last tenth of the rounds; ± over seeds",
            head="method",
            name=_word,
        ),
    ),
    charts=(intervals_of("averaging", "averaged server model against the last ones", "gain ({unit})", _FREE_GAIN),),
    quick=USUALLY_QUICK,
)  # fmt: skip
