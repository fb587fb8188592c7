"""Fig. 3: accuracy (perplexity) against iterations at #C=2."""

import numpy as np

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Study
from gammafl.experiments.levels import colour, label, methods
from gammafl.experiments.results import Results, Run
from gammafl.paper.comparisons import QUICK, better, curve, scale_of, spread, title_of
from gammafl.report.pictures import Line, LinePicture, Panel, Picture
from gammafl.report.tables import PICKED, TextTable, best_of

LEVELS = (50, 55, 60)
FASTER = {50: 3.75, 55: 4.25, 60: 8.15}
"""By how many per cent of the iterations γ-FedHT is ahead of HT at these accuracies, as the paper says of CNN."""


def iterations_to(run: Run, accuracy: float) -> float:
    """The first iteration at which the mean of three neighbouring evaluations reaches `accuracy` (%); else T."""
    values = 100 * np.asarray(run.curve["metric"], float)
    smooth = np.convolve(values, np.ones(3) / 3, "valid") if len(values) >= 3 else values
    reached = np.flatnonzero(smooth >= accuracy)
    place = min(int(reached[0]) + 1, len(values) - 1) if reached.size else len(values) - 1
    return float(run.curve["iteration"][place])


def _faster_than_ht(results: Results) -> list[Part]:
    parts = []
    for level in LEVELS:
        ours = results.by_seed(lambda run: iterations_to(run, level), method="gamma-fedht")  # noqa: B023
        theirs = results.by_seed(lambda run: iterations_to(run, level), method="ht")  # noqa: B023
        saved = {seed: 100 * (1 - ours[seed] / theirs[seed]) for seed in ours.keys() & theirs.keys()}
        parts.append(Part(f"iterations to {level}% saved over HT", saved, unit="%", paper=FASTER[level]))
    return parts


def _table(results: Results) -> list[TextTable]:
    scale, unit = scale_of(results)
    rows = [
        [label(m), *(spread(results, key, {"method": m}, scale) for key in ("last_mean", "final", "best", "averaged"))]
        for m in results.levels["method"]
    ]
    metric = "accuracy %" if unit == "points" else unit
    columns = [
        "method",
        f"{metric}, last",
        "final",
        best_of(run.figures.get("evaluations") for run in results.runs),
        "averaged model",
    ]
    return [TextTable(f"fig3: {results.task}, {results.seeds_in_words()}", columns, rows, f"{PICKED}; ± over seeds")]


def _pictures(results: Results) -> list[Picture]:
    scale, unit = scale_of(results)
    y_label = "test accuracy (%)" if unit == "points" else f"validation {unit}"
    panels = []
    for x_key, x_label in (
        ("iteration", "iterations"),
        ("sent_bytes", "sent so far by a client that takes part in every round (MB, log scale)"),
    ):
        lines = []
        for method in results.levels["method"]:
            runs = results.pick(method=method)
            _, y = curve(runs, "metric", scale)
            x = curve(runs, x_key)[1] if x_key != "iteration" else curve(runs, "metric")[0]
            shown = [value / 1e6 for value in x] if x_key == "sent_bytes" else x
            lines.append(Line(label(method), shown, y, colour(method), "--" if method == "fedavg" else "-"))
        panels.append(Panel("", x_label, y_label, lines, log_x=x_key == "sent_bytes", log_y=unit != "points"))
    return [LinePicture("fig3", title_of(results, "training curves"), panels)]


FIG3 = Study(
    "fig3",
    "Fig. 3: accuracy (perplexity) against iterations, #C = 2",
    ("logistic-fmnist", "cnn-cifar10"),
    (methods("gamma-fedht", "ht", "top-k", "top-k per tensor", "fedavg"),),
    (
        Claim("γ-FedHT ends better than HT", "Fig. 3", lambda r: better(r, "gamma-fedht", "ht")),
        Claim("γ-FedHT ends better than Top-k", "Fig. 3", lambda r: better(r, "gamma-fedht", "top-k")),
        Claim(
            "γ-FedHT ends better than Top-k per tensor",
            "Fig. 3",
            lambda r: better(r, "gamma-fedht", "top-k per tensor"),
        ),
        Claim(
            "γ-FedHT reaches 50, 55 and 60% in fewer iterations than HT", "Sec. V-B", _faster_than_ht, ("cnn-cifar10",)
        ),
    ),
    _table,
    _pictures,
    further_tasks=("vgg11s-flickr", "vgg11s-pacs", "gpt2-wikitext2", "gpt2-tiny-sotu", "logistic-mini"),
    by_task={task: {"partition": {"kind": "labels", "classes": 2}} for task in ("logistic-fmnist", "cnn-cifar10")},
    quick=QUICK,
)
