"""Fig. 3: accuracy (perplexity) against iterations at #C=2."""

from functools import partial

import numpy as np

from gammafl.experiments.claims import Claim, Part, beats, saved
from gammafl.experiments.columns import READINGS, READINGS_NOTE, GridTable
from gammafl.experiments.grid import Study
from gammafl.experiments.labels import label
from gammafl.experiments.levels import USUALLY_QUICK, methods, tasks
from gammafl.experiments.row_charts import training_chart
from gammafl.experiments.rows import Row, Rows
from gammafl.paper.printed import paper_gap
from gammafl.paper.shared import CNN, MINI, TASKS, by_task

FASTER = {50: 3.75, 55: 4.25, 60: 8.15}
"""Accuracy → how many per cent fewer iterations than HT γ-FedHT needs to reach it, as the paper says for the CNN."""
TWO_CLASSES = {"partition": {"kind": "labels", "classes": 2}}


def iterations_to(row: Row, accuracy: float) -> float:
    """The first iteration where the mean of three neighbouring evaluations reaches `accuracy` (%); T if none does."""
    values = 100 * np.asarray(row.curve["metric"], float)
    smooth = np.convolve(values, np.ones(3) / 3, "valid") if len(values) >= 3 else values
    reached = np.flatnonzero(smooth >= accuracy)
    place = min(int(reached[0]) + 1, len(values) - 1) if reached.size else len(values) - 1
    return float(row.curve["iteration"][place])


def _faster_than_ht(rows: Rows) -> list[Part]:
    parts = []
    for accuracy, paper in FASTER.items():
        ours, theirs = (
            rows.by_seed(partial(iterations_to, accuracy=accuracy), method=method) for method in ("gamma-fedht", "ht")
        )
        parts.append(Part(f"iterations to {accuracy}% saved over HT", saved(ours, theirs), unit="%", paper=paper))
    return parts


FIG3 = Study(
    "fig3",
    "Fig. 3: accuracy (perplexity) against iterations, #C = 2",
    (
        tasks(
            *TASKS,
            further=("vgg11s-flickr", "vgg11s-pacs", "gpt2-wikitext2", "gpt2-tiny-sotu", MINI),
            where=by_task(TWO_CLASSES, TWO_CLASSES),
        ),
        methods("gamma-fedht", "ht", "top-k", "top-k per tensor", "fedavg"),
    ),
    claims=(
        *(
            beats(f"γ-FedHT ends better than {label(other)}", "Fig. 3", "gamma-fedht", other, paper=paper_gap)
            for other in ("ht", "top-k", "top-k per tensor")
        ),
        Claim("γ-FedHT reaches 50, 55 and 60% in fewer iterations than HT", "Sec. V-B", _faster_than_ht, CNN),
    ),
    tables=(GridTable(("method",), READINGS, READINGS_NOTE),),
    charts=(training_chart("fig3", "training curves"),),
    quick=USUALLY_QUICK,
)
