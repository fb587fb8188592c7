"""Pictures: accuracy against iterations and against what was sent."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gammafl.federated.records import RoundRecord
from gammafl.methods.registry import colours_of, label_of
from gammafl.report.figures import plain_numbers
from gammafl.report.tables import count_of

Records = Sequence[RoundRecord]
Curve = NDArray[np.float64]

SMOOTHING = 15
"""Evaluations in the moving average of the bold lines, at the most."""


def plot_comparison(runs: Mapping[str, Sequence[Records]], metric: str, title: str, path: Path) -> None:
    """Writes the picture of `runs`, method → the records of each seed."""
    figure = comparison_figure(runs, metric, title)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def comparison_figure(runs: Mapping[str, Sequence[Records]], metric: str, title: str) -> Figure:
    """Two panels. Thin: evaluations; bold: their moving average, or in a short run the evaluations themselves."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 5), sharey=True, constrained_layout=True)
    scale, unit = {"accuracy": (100, " (%)"), "perplexity": (1, " (log scale)")}.get(metric, (1, ""))
    curves = {method: mean_curve(seeds) for method, seeds in runs.items()}
    even = {method: evened(*curve) for method, curve in curves.items()}
    window = 1 + 2 * max(reach(len(values)) for _, _, values in even.values())
    colours = colours_of(list(curves))
    for method, (iterations, sent, values) in curves.items():
        *even_x, even_values = even[method]
        smooth = moving_average(even_values)
        colour, line = colours[method], "--" if method == "fedavg" else "-"
        look: dict[str, Any] = {"linestyle": line, "linewidth": 1.8, "marker": "o" if window == 1 else "", "ms": 4}
        for axes, x, bold_x in zip(panels, (iterations, sent), even_x, strict=True):
            axes.plot(x, scale * values, color=colour, linewidth=0.5, alpha=0.25)
            axes.plot(bold_x, scale * smooth, color=colour, label=label_of(method), **look)
    if metric == "perplexity":
        panels[0].set_yscale("log")
        plain_numbers(panels[0])
    _finish(panels[0], "iterations", f"test {metric}{unit}")
    _finish(panels[1], "uplink of a client that takes part in every round (bytes, log scale)", None)
    panels[1].set_xscale("log")
    panels[0].legend(loc="lower right" if metric == "accuracy" else "upper right", frameon=False)
    averaged = count_of(max(map(len, runs.values())), "seed")
    lines = "dots: evaluations" if window == 1 else f"thin: evaluations, bold: their moving average over up to {window}"
    figure.suptitle(f"{title}\nmean of {averaged}; {lines}", fontsize=10, x=0.01, ha="left")
    return figure


def mean_curve(seeds: Sequence[Records]) -> tuple[Curve, Curve, Curve]:
    """(iteration, bytes sent so far by a participant, metric) at each evaluation, the mean over the seeds."""
    curves = []
    for records in seeds:
        sent = np.cumsum([record.uplink_bytes / len(record.participants) for record in records])
        curves.append([(r.iteration, sent[i], r.metric) for i, r in enumerate(records) if r.evaluated])
    iterations, sent_mean, values = np.mean(np.array(curves, float), axis=0).T
    return iterations, sent_mean, values


def evened(iterations: Curve, sent: Curve, values: Curve) -> tuple[Curve, Curve, Curve]:
    """A curve whose points are equally far apart: where evaluations are nearer than elsewhere, their means."""
    apart = np.diff(iterations, prepend=0).max()
    stretches = np.ceil(iterations / apart)
    groups = [stretches == stretch for stretch in np.unique(stretches)]

    def means(row: Curve) -> Curve:
        return np.array([row[group].mean() for group in groups])

    return means(iterations), means(sent), means(values)


def moving_average(values: Curve) -> Curve:
    """At each evaluation the mean of it and its neighbours: as many after it as before, so that a rise stays in place.

    So the first value is the first evaluation. Near the end, where fewer come after, the mean leans on those before.
    """
    count, smooth = len(values), np.empty(len(values))
    for i in range(count):
        before = min(i, reach(count))
        smooth[i] = values[i - before : i + before + 1].mean()
    return smooth


def reach(count: int) -> int:
    """Neighbours to either side: at most a tenth of the run, so of a short run none."""
    return min(SMOOTHING // 2, count // 10)


def _finish(axes: Axes, x_label: str, y_label: str | None) -> None:
    axes.set_xlabel(x_label)
    if y_label:
        axes.set_ylabel(y_label)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
