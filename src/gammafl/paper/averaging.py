"""The server's averaged model against its last ones, for every method.

Averaging costs no traffic. Two questions: how much does it gain, and is the averaged model nearer to the paper?
"""

from gammafl.experiments.claims import Claim, Part, Place, words_of
from gammafl.experiments.columns import READINGS, READINGS_NOTE, GridTable
from gammafl.experiments.grid import Study
from gammafl.experiments.labels import label
from gammafl.experiments.levels import USUALLY_QUICK, classes, methods, tasks
from gammafl.experiments.row_charts import intervals_of
from gammafl.experiments.rows import Rows
from gammafl.paper.printed import PAPER_ACCURACY, over_paper, printed
from gammafl.paper.shared import MINI, TASKS


def _word(place: Place) -> str:
    """'HT, #C=2', or 'HT' if #C is not varied."""
    return label(place["method"]) + words_of({factor: level for factor, level in place.items() if factor != "method"})


def _gains(rows: Rows) -> list[Part]:
    """Averaged − last. Last is the mean of the raw model's last evaluations: a stricter test than its final one."""
    return [
        Part(
            _word(at), rows.gain() * (rows.by_seed("averaged", **at) - rows.by_seed("last_mean", **at)), unit=rows.unit
        )
        for at in rows.cells("classes", "method")
    ]


def _nearer(rows: Rows) -> list[Part]:
    """|last − paper| − |averaged − paper|: above 0 where the averaged model is nearer to the paper."""
    parts = []
    for place in rows.cells("classes", "method"):
        if paper := printed(rows, place):
            last, averaged = (over_paper(rows, key, place, paper).each(abs) for key in ("last_mean", "averaged"))
            parts.append(Part(_word(place), last - averaged, unit="points nearer"))
    return parts


GAIN = Claim("The averaged model is more accurate than the raw one, for every method and #C", "ours", _gains)
CLAIMS = (
    GAIN,
    Claim("The averaged model is nearer to the paper's accuracy than the raw one", "ours", _nearer),
)
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
    claims=CLAIMS,
    tables=(
        GridTable(
            ("classes", "method"),
            (*READINGS, PAPER_ACCURACY),
            f"{READINGS_NOTE} The average is over the last tenth of the rounds.",
            head="method",
            name=_word,
        ),
    ),
    charts=(intervals_of("averaging", "averaged server model against the last ones", "gain ({unit})", CLAIMS),),
    quick=USUALLY_QUICK,
)  # fmt: skip
