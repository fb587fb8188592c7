"""Which setting gives the paper's accuracy of FedAVG? Partition × sampler × #C, and four readings of a run.

The paper says neither how samples were drawn nor whether a number is a run's last, its best or a mean. FedAVG
compresses nothing, so only the setting can explain its distance to the paper.
"""

from functools import partial

import numpy as np

from gammafl.experiments.claims import Claim, Part, Place
from gammafl.experiments.columns import Column, GridTable, best
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.levels import USUALLY_QUICK, classes, methods, tasks
from gammafl.experiments.row_charts import intervals_of
from gammafl.experiments.rows import Rows, Samples, over_all
from gammafl.paper.printed import PAPER_ACCURACY, over_paper, printed
from gammafl.paper.shared import CNN
from gammafl.report.tables import PICKED

FACTORS = ("partition", "sampler")
CELL = ("classes", "method", *FACTORS)
READINGS = {
    "final": "final",
    "last_mean": "mean of the last",
    "averaged": "averaged model",
    "best": "best (picked on the test set)",
}


def _word(place: Place) -> str:
    counted = [f"#C={place['classes']}"] if "classes" in place else []
    return ", ".join([*counted, *(place[factor] for factor in FACTORS)])


def distances(rows: Rows, key: str) -> dict[str, Samples]:
    """Setting → seed → how many points this reading is from the paper, as a mean over #C."""
    made = {}
    for setting in rows.cells(*FACTORS):
        cells = rows.cells("classes", "method", **setting)
        known = [({**cell, **setting}, paper) for cell in cells if (paper := printed(rows, cell))]
        if far := over_all([over_paper(rows, key, cell, paper).each(abs) for cell, paper in known], np.mean):
            made[_word(setting)] = far
    return made


def _nearest(rows: Rows, key: str) -> list[Part]:
    """Compares the setting with the least mean distance with each of the others."""
    far = distances(rows, key)
    first = min(far, key=lambda setting: far[setting].mean, default="")
    others = {setting: samples for setting, samples in far.items() if setting != first}
    return [
        Part(f"{first} nearer than {setting}", samples - far[first], unit="points nearer")
        for setting, samples in others.items()
    ]


def _gaps(rows: Rows) -> list[Part]:
    """Our accuracy − the paper's, for every cell and reading."""
    known = [(cell, paper) for cell in rows.cells(*CELL) if (paper := printed(rows, cell))]
    return [
        Part(f"{_word(cell)}: {name}", over_paper(rows, key, cell, paper), unit=rows.unit)
        for key, name in READINGS.items()
        for cell, paper in known
    ]


def _reading(key: str) -> Column:
    """A column with mean and interval, and ✓ if the paper's number is within the interval, else ✗."""

    def show(rows: Rows, cell: Place) -> str:
        found, paper = (rows.scale * rows.by_seed(key, **cell)).interval, printed(rows, cell)
        if found.count < 2:
            return f"{found.mean:.2f} [one seed]" if found.count else "–"
        within = paper and (" ✓" if found.low <= paper.accuracy <= found.high else " ✗")
        return f"{found.text('.2f')}{within or ''}"

    return Column(best if key == "best" else READINGS[key], show)


SETTING = Study(
    "setting",
    "Which setting gives the paper's FedAVG? Partition × sampler, #C = 5, 2",
    (
        tasks(*CNN, further=("logistic-fmnist",)),
        classes(5, 2),
        Factor("partition", tuple(Level(s, {"partition": {"scheme": s}}) for s in ("cyclic", "niid-bench"))),
        Factor("sampler", tuple(Level(s, {"sampler": s}) for s in ("epochs-fixed", "replacement"))),
        methods("fedavg"),
    ),
    claims=tuple(
        Claim(f"One setting is the nearest to the paper, read as {name}", "ours", partial(_nearest, key=key))
        for key, name in READINGS.items()
    ),
    tables=(
        GridTable(
            CELL,
            (PAPER_ACCURACY, *map(_reading, READINGS)),
            "Accuracy of FedAVG in per cent, with the 95% interval of the mean over seeds. ✓: the paper's number is"
            f" within the interval; ✗: it is not. {PICKED}. Averaged model is the server's average over rounds. The"
            " nearest setting was picked on these seeds, so confirm it on others.",
            head="setting",
            name=_word,
        ),
    ),
    charts=(intervals_of("setting", "FedAVG, ours − the paper's", "ours − paper ({unit})", [Claim("", "", _gaps)]),),
    quick=USUALLY_QUICK,
)
