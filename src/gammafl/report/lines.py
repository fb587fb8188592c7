"""Lines over one axis or several, labelled at their ends, with bands; a reader of the page chooses the axes."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gammafl.report.charts import COLOURS, DASHES, HEIGHT, HOVER, MUTED, Panel, Spec, View, altair_module, specification

MARKED = 12
"""A line of at most this many points has each of them marked."""
LABEL_GAP = 0.047
"""The least distance of two labels at the ends of lines, as a share of the height."""
LABEL_WIDTH = 0.3
"""Labels further apart than this share of the width do not meet."""


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
    """A line with its points: key → values of equal length. `low` and `high` are its band, by the same keys.

    `muted` are points in grey, by the key of the x axis. `hints` are told of points under the mouse; where there are
    some, a point without one is not marked. `place` are the levels of menus that it belongs to.
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
    """Lines, labelled at their ends; a reader chooses among the axes. `menus` are factor → levels, one shown at a time.

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
    return Panel(title, words, views, {"points": points}, legend, wide, logs=True)


def coloured(lines: Sequence[Line]) -> list[Line]:
    """Each label with a colour: its own where these tell all labels apart, else one by its place in the palette."""
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
    """A record a point: whatever axes may show of it."""
    for number, line in enumerate(lines):
        count = max((len(values) for values in line.values.values()), default=0)
        there = [_there(line, axes, i) for i in range(count)]
        for i in range(count):
            record: dict[str, Any] = {"line": line.label, "part": number, **line.place}
            for axis in axes:
                for suffix, source in (("", line.values), ("_low", line.low), ("_high", line.high)):
                    if axis.key in source and i < len(source[axis.key]):
                        record[axis.key + suffix] = _number(axis.scale * source[axis.key][i])
            alone = there[i] and not any(there[max(0, i - 1) : i]) and not any(there[i + 1 : i + 2])
            record["dot"] = line.measured and (count <= MARKED or alone)
            record |= {f"muted_{key}": bool(flags[i]) for key, flags in line.muted.items()}
            if line.hints:
                record |= {"hint": line.hints[i], "dot": bool(line.hints[i])}
            yield record


def _there(line: Line, axes: Sequence[Axis], i: int) -> bool:
    """Whether there is a point to draw, on the last axis at least."""
    values = line.values.get(axes[-1].key, ())
    return i < len(values) and math.isfinite(values[i])


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _lines_spec(
    lines: Sequence[Line], legend: Sequence[tuple[str, str, str]], x: Axis, y: Axis, menus: Mapping[str, Sequence[str]]
) -> Spec:
    alt = altair_module()
    names = [label for label, _, _ in legend]
    colour = alt.Color("line:N", legend=None, scale=alt.Scale(domain=names, range=[c for _, c, _ in legend]))
    dash = alt.StrokeDash("line:N", legend=None, scale=alt.Scale(domain=names, range=[DASHES[d] for _, _, d in legend]))
    across, up = _position("x", x), _position("y", y)
    base = _chosen(alt.Chart(alt.NamedData("points")), menus).encode(x=across, y=up, detail="part:N")
    marked = (
        alt.condition(f"datum.muted_{x.key}", alt.value(MUTED), colour) if any(line.muted for line in lines) else colour
    )
    layers = []
    if any(y.key in line.low for line in lines):
        band = base.mark_area(opacity=0.13, line=False)
        layers.append(band.encode(y=_position("y", y, "_low"), y2=f"{y.key}_high", color=colour))
    layers.append(base.mark_line(strokeWidth=1.8, clip=True).encode(color=colour, strokeDash=dash))
    layers.append(base.mark_point(filled=True, size=34, opacity=1).transform_filter("datum.dot").encode(color=marked))
    ends = _chosen(alt.Chart(alt.Data(values=list(_ends(lines, x, y)))), menus)
    text = ends.mark_text(align="left", dx=6, fontSize=11).encode(x=across, y=up, text="line:N", color=colour)
    shown = [alt.Tooltip("line:N", title=" ")]
    shown += [alt.Tooltip(f"{axis.key}:Q", title=axis.button or axis.label, format=",.4~g") for axis in (x, y)]
    shown += [alt.Tooltip("hint:N", title="setting")] if any(line.hints for line in lines) else []
    hover = base.mark_point(filled=True, size=110, opacity=0).encode(tooltip=shown).properties(name=HOVER)
    params = [alt.param(name="hidden", value=[])]
    for number, (factor, levels) in enumerate(menus.items()):
        choice = alt.binding_select(options=list(levels), name=f"{factor} ")
        params.append(alt.param(name=f"menu{number}", value=levels[0], bind=choice))
    return specification(alt.layer(*layers, text, hover).add_params(*params), HEIGHT)


def _chosen(chart: Any, menus: Mapping[str, Sequence[str]]) -> Any:
    """Without the lines that a reader hid, and at the levels that the menus show."""
    chart = chart.transform_filter("indexof(hidden, datum.line) < 0")
    for number, factor in enumerate(menus):
        chart = chart.transform_filter(f"datum[{json.dumps(factor)}] == menu{number}")
    return chart


def _position(channel: str, axis: Axis, suffix: str = "") -> Any:
    alt = altair_module()
    domain: Any = list(axis.domain) if axis.domain else alt.Undefined
    scale = alt.Scale(type="log", nice=False, domain=domain) if axis.log else alt.Scale(zero=False, domain=domain)
    words = axis.label + (" (log scale)" if axis.log else "")
    look = alt.Axis(format="~s" if channel == "x" else ".4~g", tickCount=6, labelOverlap="greedy", titlePadding=8)
    return getattr(alt, channel.upper())(f"{axis.key}{suffix}:Q", title=words, scale=scale, axis=look)


@dataclass
class _End:
    """Where a line's name stands: its height on the y axis' scale."""

    height: float
    x: float
    line: Line


def _ends(lines: Sequence[Line], x: Axis, y: Axis) -> Iterator[dict[str, Any]]:
    """Where the lines' names stand: beside their last points, moved apart where they would overlap."""
    drawn = [source.get(y.key, ()) for line in lines for source in (line.values, line.low, line.high)]
    values = [y.scale * v for column in drawn for v in column if math.isfinite(v)]
    values = [value for value in values if value > 0 or not y.log]
    if not values:
        return
    low, high = y.domain or (min(values), max(values))
    to = math.log10 if y.log else float
    gap = LABEL_GAP * ((to(high) - to(low)) or 1.0)
    along = math.log10 if x.log else float
    widths = [along(x.scale * v) for line in lines for v in line.values.get(x.key, ()) if v > 0 or not x.log]
    width = max(widths, default=0.0) - min(widths, default=0.0)
    places = {tuple(sorted(line.place.items())) for line in lines}
    for place in sorted(places):
        ends: list[_End] = []
        for line in lines:
            last = _last_point(line, x, y) if tuple(sorted(line.place.items())) == place else None
            if last is not None:
                ends.append(_End(to(last[1]), last[0], line))
        ends.sort(key=lambda end: end.height)
        for i, end in enumerate(ends):
            for below in ends[:i]:
                if abs(along(end.x) - along(below.x)) < LABEL_WIDTH * (width or 1.0):
                    end.height = max(end.height, below.height + gap)
        for end in ends:
            at = {x.key: _number(end.x), y.key: _number(10**end.height if y.log else end.height)}
            yield {"line": end.line.label, **end.line.place, **at}


def _last_point(line: Line, x: Axis, y: Axis) -> tuple[float, float] | None:
    both = zip(line.values.get(x.key, ()), line.values.get(y.key, ()), strict=False)
    points = [(x.scale * a, y.scale * b) for a, b in both if math.isfinite(a) and math.isfinite(b)]
    points = [(a, b) for a, b in points if (a > 0 or not x.log) and (b > 0 or not y.log)]
    return max(points) if points else None


def _last(line: Line, axis: Axis) -> str:
    values = [value for value in line.values.get(axis.key, ()) if math.isfinite(value)]
    return f"{axis.scale * values[-1]:.4g}" if values else "–"
