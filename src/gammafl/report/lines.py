"""Plots of lines with bands, labelled at their ends. If there are several axes, the reader of the page chooses them."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gammafl.report.charts import (
    COLOURS,
    DASHES,
    HEIGHT,
    HOVER,
    LEADERS,
    MUTED,
    Panel,
    Spec,
    View,
    specification,
)

MARKED = 12
"""If a line has at most this many points, each of them is marked."""
LABEL_HEIGHT = 14
"""Pixels from the name of a line to the next name. The names are a column beside the plot."""
LEADER = 12
"""Pixels from the plot to the names."""


@dataclass(frozen=True)
class Axis:
    """A quantity on an axis: its key in the data, its label with the unit, and the word on a button."""

    key: str
    label: str
    log: bool = False
    scale: float = 1.0
    button: str = ""
    domain: tuple[float, float] | None = None


@dataclass(frozen=True)
class Line:
    """A line. `values` are its points: key → values, all of equal length. `low` and `high` are its band, by key.

    `muted` says which points are grey, by the key of the x axis. `hints` are texts for points under the mouse. If there
    are hints, only points with one are marked. `place` has the levels of the menus at which the line is shown.
    """

    label: str
    values: Mapping[str, Sequence[float]]
    colour: str = ""
    dash: str = "solid"
    low: Mapping[str, Sequence[float]] = field(default_factory=dict)
    high: Mapping[str, Sequence[float]] = field(default_factory=dict)
    measured: bool = True
    muted: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    hints: Sequence[str] = ()
    place: Mapping[str, str] = field(default_factory=dict)


def lines_panel(
    title: str,
    lines: Sequence[Line],
    across: Sequence[Axis],
    up: Sequence[Axis],
    menus: Mapping[str, Sequence[str]] | None = None,
    wide: bool = False,
) -> Panel:
    """A panel of lines with their names at their ends. A reader chooses among the axes.

    `menus` is factor → levels; of each factor, the panel shows one level at a time.

    >>> axes = [Axis("t", "iterations")], [Axis("loss", "loss")]
    >>> panel = lines_panel("", [Line("HT", {"t": [1, 2], "loss": [3.0, 2.5]})], *axes)
    >>> panel.words
    'loss against iterations; at the end: HT 2.5'
    """
    lines = coloured(lines)
    menus = menus or {}
    legend = list(dict.fromkeys((line.label, line.colour, line.dash) for line in lines))
    views = [
        View(
            tuple(axis.button for axes, axis in ((up, y), (across, x)) if len(axes) > 1),
            _lines_spec(lines, legend, x, y, menus),
        )
        for y in up
        for x in across
    ]
    first = up[0]
    ends = [f"{line.label} {_last(line, first)}" for line in lines]
    words = f"{first.label} against {across[0].label}; at the end: {'; '.join(ends)}"
    points = list(_points(lines, [*across, *up]))
    return Panel(title, words, views, points, legend, wide, logs=True)


def coloured(lines: Sequence[Line]) -> list[Line]:
    """Gives each label a colour and dash: its own if no two labels share them, else the next of the palette."""
    labels = list(dict.fromkeys(line.label for line in lines))
    own = {line.label: (line.colour, line.dash) for line in lines if line.colour}
    if len(set(own.values())) < len(own):
        own = {}
    free = [c for c in COLOURS if c not in {colour for colour, _ in own.values()}] or list(COLOURS)
    looks = dict(own)
    dashes = list(DASHES)
    for i, label in enumerate(label for label in labels if label not in own):
        dash = next(line.dash for line in lines if line.label == label)
        turn = i // len(free)
        looks[label] = (free[i % len(free)], dashes[turn % len(dashes)] if turn else dash)
    return [replace(line, colour=looks[line.label][0], dash=looks[line.label][1]) for line in lines]


def _points(lines: Sequence[Line], axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """A record for each point, with its value on every axis."""
    for number, line in enumerate(lines):
        count = max((len(values) for values in line.values.values()), default=0)
        shown = line.values.get(axes[-1].key, [math.nan] * count)
        there = [False, *map(math.isfinite, shown), False]
        for i in range(count):
            record: dict[str, Any] = {"line": line.label, "part": number, **line.place}
            for axis in axes:
                for suffix, source in (("", line.values), ("_low", line.low), ("_high", line.high)):
                    if axis.key in source:
                        record[axis.key + suffix] = _number(axis.scale * source[axis.key][i])
            alone = there[i : i + 3] == [False, True, False]
            record["dot"] = line.measured and (count <= MARKED or alone)
            record |= {f"muted_{key}": bool(flags[i]) for key, flags in line.muted.items()}
            if line.hints:
                record |= {"hint": line.hints[i], "dot": bool(line.hints[i])}
            yield record


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _lines_spec(
    lines: Sequence[Line], legend: Sequence[tuple[str, str, str]], x: Axis, y: Axis, menus: Mapping[str, Sequence[str]]
) -> Spec:
    import altair as alt

    names = [label for label, _, _ in legend]
    colour = alt.Color("line:N", legend=None, scale=alt.Scale(domain=names, range=[c for _, c, _ in legend]))
    dash = alt.StrokeDash("line:N", legend=None, scale=alt.Scale(domain=names, range=[DASHES[d] for _, _, d in legend]))
    across, up = _position("x", x), _position("y", y)
    base = _chosen(alt.Chart(), menus).encode(x=across, y=up, detail="part:N")
    grey = alt.condition(f"datum.muted_{x.key}", alt.value(MUTED), colour)
    marked = grey if any(line.muted for line in lines) else colour
    layers = []
    if any(y.key in line.low for line in lines):
        band = base.mark_area(opacity=min(0.13, 1 / len(lines)), line=False)
        layers.append(band.encode(y=_position("y", y, "_low"), y2=f"{y.key}_high", color=colour))
    layers.append(base.mark_line(strokeWidth=1.8, clip=True).encode(color=colour, strokeDash=dash))
    layers.append(base.mark_point(filled=True, size=34, opacity=1).transform_filter("datum.dot").encode(color=marked))
    ends = _chosen(alt.Chart(alt.Data(values=list(_ends(lines, x, y)))), menus).encode(color=colour)
    leader = ends.mark_rule(opacity=0.5, strokeWidth=0.7, x2Offset=LEADER).properties(name=LEADERS)
    layers.append(leader.encode(x=across, x2=alt.value("width"), y=_position("y", y, "_end"), y2=y.key))
    text = ends.mark_text(align="left", dx=LEADER + 2, fontSize=11).encode(x=alt.value("width"), y=up, text="line:N")
    shown = [alt.Tooltip("line:N", title=" ")]
    shown += [alt.Tooltip(f"{axis.key}:Q", title=axis.button or axis.label, format=",.4~g") for axis in (x, y)]
    shown += [alt.Tooltip("hint:N", title="setting")] if any(line.hints for line in lines) else []
    hover = base.mark_point(filled=True, size=110, opacity=0).encode(tooltip=shown).properties(name=HOVER)
    params = [alt.param(name="hidden", value=[])]
    for number, (factor, levels) in enumerate(menus.items()):
        choice = alt.binding_select(options=list(levels), name=f"{factor} ")
        params.append(alt.param(name=f"menu{number}", value=levels[0], bind=choice))
    return specification(alt.layer(*layers, text, hover).add_params(*params), _height(lines))


def _chosen(chart: Any, menus: Mapping[str, Sequence[str]]) -> Any:
    """`chart` without the lines that the reader hides, at the levels that the menus show."""
    chart = chart.transform_filter("indexof(hidden, datum.line) < 0")
    for number, factor in enumerate(menus):
        chart = chart.transform_filter(f"datum[{json.dumps(factor)}] == menu{number}")
    return chart


def _position(channel: str, axis: Axis, suffix: str = "") -> Any:
    import altair as alt

    domain: Any = list(axis.domain) if axis.domain else alt.Undefined
    kind = {"type": "log"} if axis.log else {"zero": False}
    scale = alt.Scale(**kind, nice=False, domain=domain)
    words = axis.label + (" (log scale)" if axis.log else "")
    look = alt.Axis(format="~s" if channel == "x" else ".4~g", tickCount=6, labelOverlap="greedy", titlePadding=8)
    return getattr(alt, channel.upper())(f"{axis.key}{suffix}:Q", title=words, scale=scale, axis=look)


def _ends(lines: Sequence[Line], x: Axis, y: Axis) -> Iterator[dict[str, Any]]:
    """Where lines end (`_end`), and the heights of their names beside the plot: near the ends, without overlap."""
    to = math.log10 if y.log else float
    for place in dict.fromkeys(tuple(line.place.items()) for line in lines):
        here = [line for line in lines if tuple(line.place.items()) == place]
        drawn = [v for line in here for source in (line.values, line.low, line.high) for v in source.get(y.key, ())]
        heights = [to(y.scale * v) for v in drawn if math.isfinite(v) and (v > 0 or not y.log)]
        ends = [(line, end) for line in here if (end := _last_point(line, x, y)) is not None]
        low, high = (to(v) for v in y.domain) if y.domain else (min(heights, default=0), max(heights, default=0))
        reach = (high - low) or 1.0
        apart = LABEL_HEIGHT / _height(lines)
        names = spread([(to(end[1]) - low) / reach for _, end in ends], apart)
        for (line, end), height in zip(ends, names, strict=True):
            at = low + reach * height
            where = {x.key: end[0], f"{y.key}_end": end[1], y.key: 10**at if y.log else at}
            yield {"line": line.label, **line.place, **{key: _number(value) for key, value in where.items()}}


def _height(lines: Sequence[Line]) -> int:
    """The height of a plot in pixels. It has room for the names of all lines that are visible at once."""
    seen = Counter(tuple(line.place.items()) for line in lines)
    return max(HEIGHT, LABEL_HEIGHT * max(seen.values(), default=0))


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """`heights` within 0 and 1, moved as little as possible so that each is `gap` from the next (least squares).

    >>> [round(height, 2) for height in spread([0.5, 0.5, 0.1], 0.1)]
    [0.45, 0.55, 0.1]
    """
    if not heights:
        return []
    from scipy.optimize import isotonic_regression

    order = np.argsort(heights, kind="stable")
    below = gap * np.arange(len(heights))  # without these gaps, the heights only have to be in order
    moved = np.empty(len(heights))
    moved[order] = isotonic_regression(np.array(heights)[order] - below).x.clip(0, max(0, 1 - below[-1])) + below
    return [float(height) for height in moved]


def _last_point(line: Line, x: Axis, y: Axis) -> tuple[float, float] | None:
    both = zip(line.values.get(x.key, ()), line.values.get(y.key, ()), strict=False)
    points = [(x.scale * a, y.scale * b) for a, b in both if math.isfinite(a) and math.isfinite(b)]
    points = [(a, b) for a, b in points if (a > 0 or not x.log) and (b > 0 or not y.log)]
    return max(points) if points else None


def _last(line: Line, axis: Axis) -> str:
    values = [value for value in line.values.get(axis.key, ()) if math.isfinite(value)]
    return f"{axis.scale * values[-1]:.4g}" if values else "–"
