"""Pictures drawn for papers: each as PNG and SVG."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gammafl.report.pictures import COLOURS, Estimate, HeatMap, HeatMapPicture, Line, LinePicture, Panel, Picture, signs

DIVERGING = "PuOr_r"
"""Orange to purple, which colour-blind readers can tell apart."""


FEW = 12
"""Points of a line that are each marked."""


def draw(picture: Picture, directory: Path) -> list[Path]:
    """Writes `picture` into `directory`; returns the files."""
    stem = directory / picture.name
    if isinstance(picture, LinePicture):
        return draw_lines(picture.panels, picture.title, stem)
    if isinstance(picture, HeatMapPicture):
        return draw_heat_maps(picture.maps, picture.unit, picture.title, stem)
    return draw_intervals(picture.estimates, picture.x_label, picture.title, stem)


def draw_lines(panels: Sequence[Panel], title: str, stem: Path, columns: int = 2) -> list[Path]:
    """Panels side by side."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(6.4 * columns, 4.2 * rows), squeeze=False, constrained_layout=True
    )
    for place, panel in zip(axes.flat, panels, strict=False):
        _draw_panel(place, panel)
    for place in list(axes.flat)[len(panels) :]:
        place.set_visible(False)
    return _save(figure, title, stem)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    drawn: list[tuple[Line, str]] = []
    for i, line in enumerate(panel.lines):
        if len(line.x):
            colour = line.colour or COLOURS[i % len(COLOURS)]
            axes.plot(line.x, line.y, color=colour, linestyle=line.style, linewidth=line.width, label=line.label)
            x, y = np.asarray(line.x, float), np.asarray(line.y, float)
            marked = np.isfinite(y) if len(x) <= FEW else _alone(y)
            if line.measured:
                axes.plot(x[marked], y[marked], ".", color=colour)
            drawn.append((line, colour))
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.set_ylim(*panel.y_limits)
    axes.set_title(_in_print(panel.title), fontsize=10, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(_in_print(panel.y_label))
    if panel.log_y:
        plain_numbers(axes)
    _plain(axes)
    _label_ends(axes, drawn)


def _alone(y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points have no neighbour that a line could lead to."""
    there = np.isfinite(y)
    beside = np.zeros_like(there)
    beside[1:] |= there[:-1]
    beside[:-1] |= there[1:]
    return there & ~beside


def plain_numbers(axes: Axes) -> None:
    """0.6 instead of 6 × 10⁻¹ on an axis of less than two decades."""
    low, high = axes.get_ylim()
    if high / low >= 100:
        return
    shown = "123456789" if high / low < 4 else "125"
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in shown else "")


def _label_ends(axes: Axes, lines: Sequence[tuple[Line, str]]) -> None:
    """Each line's name beside its last point, moved apart where they would overlap."""
    axes.get_figure().canvas.draw()  # type: ignore[union-attr]
    low, high = axes.get_window_extent().y0, axes.get_window_extent().y1
    wanted = []
    for line, colour in lines:
        last = next((y for y in reversed(list(line.y)) if np.isfinite(y)), None)
        if last is not None:
            pixel = axes.transData.transform((line.x[-1], last))[1]
            wanted.append([min(max(pixel, low), high) if np.isfinite(pixel) else low, line.label, colour])
    wanted.sort(key=lambda entry: entry[0])
    gap = 12.5 * axes.get_figure().dpi / 100  # type: ignore[union-attr]
    for below, above in pairwise(wanted):
        above[0] = max(above[0], below[0] + gap)
    for pixel, label, colour in wanted:
        height = (pixel - low) / max(high - low, 1)
        axes.annotate(
            _in_print(label),
            (1.01, height),
            xycoords="axes fraction",
            color=colour,
            fontsize=8,
            va="center",
            annotation_clip=False,
        )


def draw_heat_maps(maps: Sequence[HeatMap], unit: str, title: str, stem: Path, columns: int = 2) -> list[Path]:
    """Heat maps, each with a colour scale of its own around zero."""
    columns = min(columns, len(maps))
    rows = -(-len(maps) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5.6 * columns, 3.4 * rows), squeeze=False, constrained_layout=True
    )
    for place, one in zip(axes.flat, maps, strict=False):
        values = np.array(one.values, float)
        limit = max(np.nanmax(np.abs(values)), 1e-9)
        image = place.imshow(values, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
        place.set_title(one.title, fontsize=10, loc="left")
        place.set_xticks(range(len(one.columns)), one.columns, fontsize=8)
        place.set_yticks(range(len(one.rows)), one.rows, fontsize=8)
        for (i, j), value in np.ndenumerate(values):
            number = f"{value:+.2f}".replace("-", "−")
            text = number + (f"\n{one.marks[i][j]}" if one.marks else "") if np.isfinite(value) else "–"
            dark = np.isfinite(value) and abs(value) > 0.6 * limit
            place.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
        figure.colorbar(image, ax=place, label=unit, shrink=0.8)
    for place in list(axes.flat)[len(maps) :]:
        place.set_visible(False)
    return _save(figure, title, stem)


def draw_intervals(estimates: Sequence[Estimate], x_label: str, title: str, stem: Path) -> list[Path]:
    """A row an estimate: mean and 95% interval, or a hollow dot for one seed; the paper's number as a diamond."""
    figure, axes = plt.subplots(figsize=(7.5, 1.3 + 0.32 * len(estimates)), constrained_layout=True)
    for y, estimate in enumerate(reversed(estimates)):
        if estimate.has_interval:
            axes.plot([estimate.low, estimate.high], [y, y], color=estimate.colour, linewidth=2)
        filled = estimate.colour if estimate.has_interval else "none"
        axes.plot(estimate.mean, y, "o", color=estimate.colour, markerfacecolor=filled, markersize=6)
        if estimate.reference is not None:
            axes.plot(estimate.reference, y, "D", color="black", markerfacecolor="none", markersize=6)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(estimates)), [_in_print(estimate.label) for estimate in reversed(estimates)], fontsize=8)
    axes.set_xlabel(f"{x_label}\n{signs(estimates)}", fontsize=9)
    _plain(axes)
    return _save(figure, title, stem)


def _in_print(text: str) -> str:
    """λ_0 → λ₀ where Unicode has the index, and x_T as mathematics."""
    return text.replace("_0", "₀").replace("_t", "ₜ").replace("x_T", "$x_T$")


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, title: str, stem: Path) -> list[Path]:
    """PNG for the screen, SVG for papers; the same numbers give the same files."""
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    paths = [stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")]
    with matplotlib.rc_context({"svg.hashsalt": "gammafl"}):
        figure.savefig(paths[0], dpi=160)
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths
