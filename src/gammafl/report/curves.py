"""Training curves as a plot that a reader can turn: what is shown, against what, for which settings, on which axes.

`page.js` draws it; here is decided what it may choose from. Numbers that are not finite become null, as JSON wants.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gammafl.report.pictures import COLOURS, Panel

Curve = Mapping[str, Sequence[float]]
"""Lists of equal length by name; `iteration` is among them."""

IN_LEGEND = ("method", "curve")
"""Factors whose levels are compared within one plot, if a study has them."""
MOST_LINES = 8
DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}


@dataclass(frozen=True)
class Plot:
    """What `page.js` draws, and the same in words for those who can't see it."""

    title: str
    words: str
    spec: Mapping[str, Any]
    wide: bool = False


@dataclass(frozen=True)
class Series:
    """The runs of one place in the grid, a curve a seed. `cell` is factor → level."""

    cell: Mapping[str, str]
    seeds: Sequence[Curve]
    colour: str = ""
    dash: str = "solid"


@dataclass(frozen=True)
class Axis:
    """A quantity that can be shown: its name in the curves, on a button and on the axis."""

    key: str
    button: str
    label: str
    scale: float = 1.0
    unit: str = ""
    log: bool = False

    def option(self) -> dict[str, Any]:
        return {"key": self.key, "button": self.button, "label": self.label, "unit": self.unit, "log": self.log}


ACROSS = (
    Axis("iteration", "iterations", "iterations"),
    Axis("sent_bytes", "bytes sent", "uplink of a client in every round (bytes)", unit="B"),
)


def upwards(metric: str) -> tuple[Axis, ...]:
    """What a run measures, where its metric has this name."""
    measured = Axis("metric", metric, f"test {metric}")
    if metric == "accuracy":
        measured = Axis("metric", "accuracy", "test accuracy (%)", 100.0, "%")
    return (
        measured,
        Axis("loss", "loss", "loss on the test set"),
        Axis("kept_fraction", "kept", "entries kept (%)", 100.0, "%", log=True),
        Axis("error", "error", "error", log=True),
    )


def curves_plot(
    title: str, series: Sequence[Series], levels: Mapping[str, Sequence[str]], names: Mapping[str, str], metric: str
) -> Plot | None:
    """All curves in one plot; None if there are none. `names` is level → name in print."""
    measured = [one for one in series if any(len(curve.get("iteration", ())) for curve in one.seeds)]
    across = [axis for axis in ACROSS if _present(measured, axis.key)]
    up = [axis for axis in upwards(metric) if _present(measured, axis.key)]
    if not across or not up:
        return None
    used = {f: [x for x in all_ if any(s.cell.get(f) == x for s in measured)] for f, all_ in levels.items()}
    factors = {factor: chosen for factor, chosen in used.items() if len(chosen) > 1}
    spec = {
        "kind": "curves",
        "x": [axis.option() for axis in across],
        "y": [axis.option() for axis in up],
        "factors": _factors(factors),
        "palette": COLOURS,
        "series": [_one(one, factors, names, [*across, *up]) for one in measured],
    }
    ends = [f"{', '.join(names.get(x, x) for x in s.cell.values()) or 'run'} {_end(s, up[0])}" for s in measured]
    words = f"{up[0].label} against {across[0].label}; at the end: {'; '.join(ends)}"
    return Plot(title, words, spec, wide=True)


def panel_plot(panel: Panel, title: str) -> Plot:
    """A panel of a study's picture: one quantity against one other, which may be looked at on log axes."""
    x, y = _unlogged(panel.x_label), _unlogged(panel.y_label)
    series = [
        {
            "label": {"": line.label},
            "cell": {},
            "colour": line.colour or COLOURS[i % len(COLOURS)],
            "dash": DASHES.get(line.style, "solid"),
            "width": line.width,
            "values": {"x": _plain(line.x), "y": _plain(line.y)},
            "low": {},
            "high": {},
        }
        for i, line in enumerate(panel.lines)
    ]
    spec = {
        "kind": "curves",
        "x": [Axis("x", "", x, log=panel.log_x).option()],
        "y": [Axis("y", "", y, log=panel.log_y).option()],
        "factors": [],
        "palette": COLOURS,
        "series": series,
    }
    ends = [f"{line.label} {line.y[-1]:.4g}" for line in panel.lines if len(line.y)]
    return Plot(panel.title or title, f"{y} against {x}; at the end: {'; '.join(ends)}", spec)


def _factors(factors: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Each with the level chosen at first, "" for all: as many stay open as `MOST_LINES` allows.

    What the legend compares needs no menu.
    """
    chosen = dict.fromkeys(factors, "")
    count = math.prod(len(levels) for levels in factors.values())
    for factor in reversed([factor for factor in factors if factor not in IN_LEGEND]):
        if count > MOST_LINES:
            count //= len(factors[factor])
            chosen[factor] = factors[factor][0]
    return [
        {"name": name, "levels": levels, "chosen": chosen[name], "menu": name not in IN_LEGEND and len(factors) > 1}
        for name, levels in factors.items()
    ]


def _one(series: Series, factors: Mapping[str, Any], names: Mapping[str, str], axes: Sequence[Axis]) -> dict[str, Any]:
    shown = {factor: series.cell[factor] for factor in factors}
    values, low, high = {}, {}, {}
    for axis in axes:
        table = _table(series, axis)
        if table.size:
            values[axis.key] = _plain(table.mean(axis=0))
            if len(table) > 1 and axis not in ACROSS:
                low[axis.key], high[axis.key] = _plain(table.min(axis=0)), _plain(table.max(axis=0))
    fallback = ", ".join(names.get(level, level) for level in series.cell.values()) or "run"
    label = {f: names.get(level, f"{f} {level}") for f, level in shown.items()} or {"": fallback}
    return {
        "label": label,
        "cell": shown,
        "colour": series.colour,
        "dash": series.dash,
        "width": 2,
        "values": values,
        "low": low,
        "high": high,
        "seeds": len(series.seeds),
    }


def _table(series: Series, axis: Axis) -> np.ndarray:
    """A row a seed, cut to the shortest."""
    curves = [curve[axis.key] for curve in series.seeds if axis.key in curve]
    length = min(map(len, curves), default=0)
    return axis.scale * np.array([curve[:length] for curve in curves], float) if length else np.zeros((0, 0))


def _present(series: Sequence[Series], key: str) -> bool:
    return any(math.isfinite(value) for one in series for curve in one.seeds for value in curve.get(key, ()))


def _end(series: Series, axis: Axis) -> str:
    table = _table(series, axis)
    return f"{table[:, -1].mean():.4g}{axis.unit}" if table.size else "–"


def _plain(values: Sequence[float] | np.ndarray) -> list[float | None]:
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]


def _unlogged(label: str) -> str:
    """Without '(log scale)', which a reader of the page may switch off."""
    for words in (" (log scale)", ", log scale; none: no line", ", log scale"):
        label = label.replace(words, "")
    return label
