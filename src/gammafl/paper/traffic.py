"""Tables III and IV: accuracy and traffic at equal traffic, #C = 2, 3, 5."""

from typing import Any

from gammafl.experiments.claims import Place, beats, close_to, sends_less
from gammafl.experiments.columns import READINGS, READINGS_NOTE, Column, GridTable, size, spread
from gammafl.experiments.grid import Study
from gammafl.experiments.levels import USUALLY_QUICK, classes, methods, tasks
from gammafl.experiments.row_charts import intervals_of
from gammafl.experiments.rows import Rows
from gammafl.paper.printed import PAPER_ACCURACY, kept_by_paper, paper_column, paper_gap, paper_saving
from gammafl.paper.shared import CNN, MINI, TASKS, by_task

MIB = 1 << 20
LARGEST_GAP = by_task(logistic=0.11, cnn=1.24)
"""The paper's own largest gap between γ-FedHT and FedAVG, in points."""
QUANTISER_GAP = by_task(logistic=0.13, cnn=1.04)
"""The paper's own largest gap between γ-FedHT-Q and γ-FedHT, in points."""
AT_EACH: dict[str, Any] = {"by": ("classes",), "paper": paper_gap}
HEADLINE = 7.42
"""The paper's lead over Top-k at #C=3, in points."""


def _reduced(rows: Rows, cell: Place) -> str:
    sent, dense = (rows.by_seed(f"{kind}_bytes_per_client", **cell).mean for kind in ("uplink", "dense"))
    return f"{100 * sent / dense:.3f}"


TABLE = GridTable(
    ("classes", "method"),
    (
        READINGS[0],
        PAPER_ACCURACY,
        *READINGS[1:],
        spread("kept_fraction", "kept %", 100, 3),
        paper_column(lambda paper, method: f"{kept_by_paper(paper, method):g}"),
        spread("value_bytes_per_client", "values only MiB", 1 / MIB),
        paper_column(lambda paper, method: f"{paper.traffic:g}"),
        size("uplink_bytes_per_client", "measured uplink"),
        Column("reduced to %", _reduced),
    ),
    f"{READINGS_NOTE} "
    "Values only is the paper's accounting, without positions. Measured uplink is the length of the encoded "
    "messages. Both are for a client that takes part in every round. Top-k keeps as many entries as γ-FedHT, and STC "
    "as many as γ-FedHT-Q.",
    head="#C, method",
)
_CLAIMS_3 = (
    beats(
        "γ-FedHT is more accurate than Top-k (of the whole model) at equal traffic", "Sec. V-C",
        "gamma-fedht", "top-k", **AT_EACH,
    ),
    beats(
        "γ-FedHT is more accurate than Top-k per tensor at equal traffic", "Sec. V-C, the other reading of Top-k",
        "gamma-fedht", "top-k per tensor", **AT_EACH,
    ),
    beats(
        f"The lead over Top-k at #C=3 is large: at least half of the paper's {HEADLINE} points, in both readings of"
        " Top-k", "abstract",
        "gamma-fedht", "top-k", "top-k per tensor",
        only={"classes": "3"}, more_than=HEADLINE / 2, tasks=CNN, **AT_EACH,
    ),
    beats(
        "γ-FedHT is more accurate than HT", "Sec. V-C",
        "gamma-fedht", "ht", **AT_EACH,
    ),
    sends_less(
        "γ-FedHT sends less than HT in nearly all cases", "Sec. V-C",
        "gamma-fedht", "ht", by=("classes",), paper=paper_saving,
    ),
    close_to(
        "γ-FedHT loses no more to FedAVG than the paper's largest gap", "Table III",
        "gamma-fedht", "fedavg", LARGEST_GAP, **AT_EACH,
    ),
)  # fmt: skip
TABLE3 = Study(
    "table3",
    "Table III: accuracy and traffic of Top-k, HT, γ-FedHT and FedAVG, #C = 2, 3, 5",
    (
        tasks(*TASKS, further=(MINI,)),
        classes(2, 3, 5),
        methods("gamma-fedht", "ht", "top-k", "top-k per tensor", "fedavg"),
    ),
    claims=_CLAIMS_3,
    tables=(TABLE,),
    charts=(intervals_of("table3", "differences in accuracy", "difference ({unit})", _CLAIMS_3),),
    quick=USUALLY_QUICK,
)

_CLAIMS_4 = (
    beats(
        "γ-FedHT-Q is more accurate than STC (of the whole model) at equal traffic", "Table IV",
        "gamma-fedht-q", "stc", **AT_EACH,
    ),
    beats(
        "γ-FedHT-Q is more accurate than STC per tensor at equal traffic", "Table IV, STC as its authors' code does it",
        "gamma-fedht-q", "stc per tensor", **AT_EACH,
    ),
    close_to(
        "The quantiser costs γ-FedHT no more than in the paper", "Sec. V-C",
        "gamma-fedht-q", "gamma-fedht", QUANTISER_GAP, **AT_EACH,
    ),
)  # fmt: skip
TABLE4 = Study(
    "table4",
    "Table IV: accuracy and traffic of STC and γ-FedHT-Q, #C = 2, 3, 5",
    (
        tasks(*TASKS, further=(MINI,)),
        classes(2, 3, 5),
        methods("gamma-fedht-q", "stc", "stc per tensor", "gamma-fedht"),
    ),
    claims=_CLAIMS_4,
    tables=(TABLE,),
    charts=(intervals_of("table4", "differences in accuracy", "difference ({unit})", _CLAIMS_4),),
    quick=USUALLY_QUICK,
)
