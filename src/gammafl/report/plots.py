"""Pictures: accuracy against iterations and against what was sent."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gammafl.core.names import LABELS
from gammafl.report.pictures import METHOD_COLOURS
from gammafl.report.tables import count_of

Records = Sequence[Mapping[str, Any]]
Curve = NDArray[np.float64]

SMOOTHING = 15
"""Evaluations in the moving average of the bold lines."""


def plot_comparison(runs: Mapping[str, Sequence[Records]], metric: str, title: str, path: Path) -> None:
    """Two panels for `runs`, method → the records of each seed. Thin: evaluations; bold: moving average."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, constrained_layout=True)
    scale, unit = (100, " (%)") if metric == "accuracy" else (1, "")
    bottom: list[float] = []
    for method, seeds in runs.items():
        iterations, sent, values = mean_curve(seeds)
        smooth = moving_average(values)
        bottom.append(scale * float(smooth[len(smooth) // 10]))
        colour, line = METHOD_COLOURS[method], "--" if method == "fedavg" else "-"
        for axes, x in zip(panels, (iterations, sent), strict=True):
            axes.plot(x, scale * values, color=colour, linewidth=0.5, alpha=0.25)
            axes.plot(x, scale * smooth, color=colour, linestyle=line, linewidth=1.8, label=LABELS[method])
    _finish(panels[0], "iterations", f"test {metric}{unit}")
    _finish(panels[1], "uplink of a client that takes part in every round (bytes, log scale)", None)
    panels[1].set_xscale("log")
    if metric == "accuracy":
        panels[0].set_ylim(bottom=max(0.0, min(bottom) - 5))
    else:
        panels[0].set_ylim(top=1.1 * max(bottom))
    panels[0].legend(loc="lower right" if metric == "accuracy" else "upper right", frameon=False)
    averaged = count_of(max(map(len, runs.values())), "seed")
    explained = f"{title}\nmean of {averaged}; thin: evaluations, bold: their moving average"
    figure.suptitle(explained, fontsize=10, x=0.01, ha="left")
    figure.savefig(path, dpi=160)
    plt.close(figure)


def mean_curve(seeds: Sequence[Records]) -> tuple[Curve, Curve, Curve]:
    """(iteration, bytes sent so far by a participant, metric) at each evaluation, the mean over the seeds."""
    curves = []
    for records in seeds:
        sent = np.cumsum([record["uplink_bytes"] / len(record["participants"]) for record in records])
        curves.append([(r["iteration"], sent[i], r["metric"]) for i, r in enumerate(records) if "metric" in r])
    iterations, sent_mean, values = np.mean(np.array(curves, float), axis=0).T
    return iterations, sent_mean, values


def moving_average(values: Curve) -> Curve:
    """Mean over `SMOOTHING` evaluations around each, over fewer at both ends."""
    window = np.ones(min(SMOOTHING, len(values)))
    return np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")


def _finish(axes: Axes, x_label: str, y_label: str | None) -> None:
    axes.set_xlabel(x_label)
    if y_label:
        axes.set_ylabel(y_label)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
