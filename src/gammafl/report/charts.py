"""Charts: each is specified once, in Vega-Lite through Altair, and gives a figure of the page, a PNG and an SVG.

A builder turns plain numbers into a `Panel`; `save` writes panels as files, `page.py` puts them on a page. Layers named
`HOVER` and parameters that a reader turns are for the page alone; what is printed is the first view.
"""

import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair

Spec = dict[str, Any]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Okabe and Ito's, without their yellow, which is faint on white: colour-blind readers can tell them apart."""
GREY = "#777777"
MUTED = "#B5B5B5"
DIVERGING = ["#2d004b", "#8073ac", "#d8daeb", "#f7f7f7", "#fee0b6", "#e08214", "#7f3b08"]
"""Purple to orange, which colour-blind readers can tell apart."""
DASHES = {"solid": [1, 0], "dash": [6, 4], "dot": [2, 3], "dashdot": [8, 3, 2, 3]}

HOVER = "hover"
WIDTH, HEIGHT = 430, 300
"""Pixels of a panel in print."""
MARKED = 12
"""A line of at most this many points has each of them marked."""
LABEL_GAP = 0.047
"""The least distance of two labels at the ends of lines, as a share of the height."""
CONFIG: Spec = {
    "background": "#ffffff",
    "font": "Liberation Sans, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {"gridColor": "#e4e7eb", "domainColor": "#9aa3ad", "tickColor": "#9aa3ad", "titleFontWeight": "normal"},
    "title": {"anchor": "start", "fontSize": 12, "fontWeight": "normal"},
    "legend": {"titleFontWeight": "normal"},
}


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


@dataclass(frozen=True)
class View:
    """One way to look at a panel: the buttons that lead to it, and what is drawn."""

    buttons: tuple[str, ...]
    spec: Spec


@dataclass(frozen=True)
class Panel:
    """What one figure of a page shows: views on the same data, and the same in words for those who can't see it.

    `legend` is label, colour, dash; a reader can hide each. `room` is for labels at the right, in pixels.
    """

    title: str
    words: str
    views: Sequence[View]
    datasets: Mapping[str, Sequence[Mapping[str, Any]]]
    legend: Sequence[tuple[str, str, str]] = ()
    wide: bool = False
    room: int = 0
    logs: bool = False
    """Whether a reader may make its axes logarithmic."""


@dataclass(frozen=True)
class Chart:
    """A picture of one or more panels; `name` is the stem of its files."""

    name: str
    title: str
    panels: Sequence[Panel]
    columns: int = 2


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval; `reference` is the paper's number."""

    label: str
    mean: float
    low: float
    high: float
    reference: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval: there is none of one seed."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def colour(self) -> str:
        return COLOURS[0] if self.low > 0 else COLOURS[1] if self.high < 0 else GREY


@dataclass(frozen=True)
class HeatMap:
    """A matrix of numbers; NaN is left blank. `marks` are words in the cells beside the number."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    marks: Sequence[Sequence[str]]


def _altair() -> Any:
    import altair  # a third of a second, which most commands can do without

    return altair


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
    room = 12 + round(6.2 * max((len(line.label) for line in lines), default=0))
    points = list(_points(lines, [*across, *up]))
    return Panel(title, words, views, {"points": points}, legend, wide, room, logs=True)


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
    alt = _altair()
    names = [label for label, _, _ in legend]
    colour = alt.Color("line:N", legend=None, scale=alt.Scale(domain=names, range=[c for _, c, _ in legend]))
    dash = alt.StrokeDash("line:N", legend=None, scale=alt.Scale(domain=names, range=[DASHES[d] for _, _, d in legend]))
    across, up = _position("x", x), _position("y", y)
    base = alt.Chart(alt.NamedData("points")).encode(x=across, y=up, detail="part:N")
    marked = (
        alt.condition(f"datum.muted_{x.key}", alt.value(MUTED), colour) if any(line.muted for line in lines) else colour
    )
    layers = []
    if any(y.key in line.low for line in lines):
        band = base.mark_area(opacity=0.13, line=False)
        layers.append(band.encode(y=_position("y", y, "_low"), y2=f"{y.key}_high", color=colour))
    layers.append(base.mark_line(strokeWidth=1.8, clip=True).encode(color=colour, strokeDash=dash))
    layers.append(base.mark_point(filled=True, size=34, opacity=1).transform_filter("datum.dot").encode(color=marked))
    ends = alt.Chart(alt.Data(values=list(_ends(lines, x, y))))
    text = ends.mark_text(align="left", dx=6, fontSize=11).encode(x=across, y=up, text="label:N", color=colour)
    shown = [alt.Tooltip("line:N", title=" ")]
    shown += [alt.Tooltip(f"{axis.key}:Q", title=axis.button or axis.label, format=",.4~g") for axis in (x, y)]
    shown += [alt.Tooltip("hint:N", title="setting")] if any(line.hints for line in lines) else []
    hover = base.mark_point(filled=True, size=110, opacity=0).encode(tooltip=shown).properties(name=HOVER)
    hidden = alt.param(name="hidden", value=[])
    chart = alt.layer(*layers, text, hover).add_params(hidden).transform_filter("indexof(hidden, datum.line) < 0")
    for number, (factor, levels) in enumerate(menus.items()):
        choice = alt.binding_select(options=list(levels), name=f"{factor} ")
        chart = chart.add_params(alt.param(name=f"menu{number}", value=levels[0], bind=choice))
        chart = chart.transform_filter(f"datum[{json.dumps(factor)}] == menu{number}")
    return _spec(chart, HEIGHT)


def _position(channel: str, axis: Axis, suffix: str = "") -> Any:
    alt = _altair()
    domain: Any = list(axis.domain) if axis.domain else alt.Undefined
    scale = alt.Scale(type="log" if axis.log else "linear", zero=False, nice=not axis.log, domain=domain)
    words = axis.label + (" (log scale)" if axis.log else "")
    look = alt.Axis(format="~s" if channel == "x" else ".4~g", tickCount=6, labelOverlap="greedy", titlePadding=8)
    return getattr(alt, channel.upper())(f"{axis.key}{suffix}:Q", title=words, scale=scale, axis=look)


def _ends(lines: Sequence[Line], x: Axis, y: Axis) -> Iterator[dict[str, Any]]:
    """Where the lines' names stand: beside their last points, moved apart where they would overlap."""
    drawn = [source.get(y.key, ()) for line in lines for source in (line.values, line.low, line.high)]
    values = [y.scale * v for column in drawn for v in column if math.isfinite(v)]
    values = [value for value in values if value > 0 or not y.log]
    if not values:
        return
    low, high = y.domain or (min(values), max(values))
    to, back = (math.log10, lambda v: 10**v) if y.log else (float, float)
    gap = LABEL_GAP * ((to(high) - to(low)) or 1.0)
    places = {tuple(sorted(line.place.items())) for line in lines}
    for place in sorted(places):
        ends = []
        for line in lines:
            last = _last_point(line, x, y) if tuple(sorted(line.place.items())) == place else None
            if last is not None:
                ends.append([to(last[1]), last[0], line])
        ends.sort(key=lambda end: end[0])
        for below, above in pairwise(ends):
            above[0] = max(above[0], below[0] + gap)
        for height, at, line in ends:
            yield {
                "line": line.label,
                "label": line.label,
                **line.place,
                x.key: _number(at),
                y.key: _number(back(height)),
            }


def _last_point(line: Line, x: Axis, y: Axis) -> tuple[float, float] | None:
    both = zip(line.values.get(x.key, ()), line.values.get(y.key, ()), strict=False)
    points = [(x.scale * a, y.scale * b) for a, b in both if math.isfinite(a) and math.isfinite(b)]
    points = [(a, b) for a, b in points if (a > 0 or not x.log) and (b > 0 or not y.log)]
    return max(points) if points else None


def _last(line: Line, axis: Axis) -> str:
    values = [value for value in line.values.get(axis.key, ()) if math.isfinite(value)]
    return f"{axis.scale * values[-1]:.4g}" if values else "–"


def _spec(chart: "altair.LayerChart", height: int) -> Spec:
    return dict(chart.properties(width=WIDTH, height=height).to_dict(validate=True))


def intervals_panel(title: str, x_label: str, estimates: Sequence[Estimate]) -> Panel:
    """A row an estimate: mean and 95% interval, hollow for one seed; the paper's number as a diamond.

    Labels stand above their rows, not beside them: a phone has no room at the side.
    """
    alt = _altair()
    known = [one for one in estimates if math.isfinite(one.mean)]
    records = [
        {
            "row": i,
            "label": one.label,
            "mean": one.mean,
            "low": one.low if one.has_interval else None,
            "high": one.high if one.has_interval else None,
            "paper": one.reference,
            "colour": one.colour,
            "single": not one.has_interval,
            "range": _range(one),
        }
        for i, one in enumerate(known)
    ]
    base = alt.Chart(alt.NamedData("estimates")).encode(
        y=alt.Y("row:O", axis=None, scale=alt.Scale(paddingOuter=0.5)),
        color=alt.Color("colour:N", scale=None),
        tooltip=[
            alt.Tooltip("label:N", title=" "),
            alt.Tooltip("mean:Q", title="mean", format="+.3~g"),
            alt.Tooltip("range:N", title="95% interval"),
            *([alt.Tooltip("paper:Q", format="+.3~g")] if any(one.reference is not None for one in known) else []),
        ],
    )
    x = alt.X("mean:Q", title=x_label, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=7))
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color=GREY).encode(x="zero:Q")
    black = alt.value("#000000")
    layers = [
        zero,
        base.mark_rule(strokeWidth=2.5).encode(x=x, x2="high").transform_calculate(mean="datum.low"),
        base.mark_point(filled=True, size=55, opacity=1).encode(x=x).transform_filter("!datum.single"),
        base.mark_point(filled=False, size=55, opacity=1).encode(x=x).transform_filter("datum.single"),
        base.mark_point(shape="diamond", filled=False, size=75, opacity=1).encode(
            x=alt.X("paper:Q", title=x_label), color=black
        ),
        base.mark_text(align="left", dy=-13, fontSize=11).encode(x=alt.value(0), text="label:N", color=black),
    ]
    words = "; ".join(f"{one.label} {one.mean:.3g} {_range(one)}" for one in known)
    view = View((), _spec(alt.layer(*layers), 36 * len(known) + 16))
    return Panel(f"{title} ({signs(known)})", f"{x_label}; {words}", [view], {"estimates": records}, wide=True)


def signs(estimates: Sequence[Estimate]) -> str:
    """What the signs of an interval plot mean."""
    single = "" if all(one.has_interval for one in estimates) else ", hollow: one seed"
    paper = ", diamond: paper" if any(one.reference is not None for one in estimates) else ""
    return f"dot: mean, line: 95% interval over seeds{single}{paper}"


def _range(one: Estimate) -> str:
    return f"[{one.low:.3g}, {one.high:.3g}]" if one.has_interval else "[one seed]"


def heat_map_panel(one: HeatMap, unit: str) -> Panel:
    """The colours are around zero, as far as the values of this map reach."""
    alt = _altair()
    cells = [
        {
            "row": row,
            "column": column,
            "value": value if math.isfinite(value) else None,
            "text": f"{value:+.2f}{mark}".replace("-", "−") if math.isfinite(value) else "–",
        }
        for row, values, marks in zip(one.rows, one.values, one.marks, strict=True)
        for column, value, mark in zip(one.columns, values, marks, strict=True)
    ]
    limit = max([abs(cell["value"]) for cell in cells if cell["value"] is not None] + [1e-9])
    base = alt.Chart(alt.NamedData("cells")).encode(
        x=alt.X("column:O", title=None, sort=None, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:O", title=None, sort=None, axis=alt.Axis(labelLimit=140)),
        tooltip=["row:N", "column:N", alt.Tooltip("text:N", title=unit)],
    )
    scale = alt.Scale(domain=[-limit, limit], range=DIVERGING)
    legend = alt.Legend(title=unit, orient="bottom", direction="horizontal", gradientLength=160, tickCount=5)
    dark = alt.condition(f"abs(datum.value) > {0.6 * limit}", alt.value("#ffffff"), alt.value("#000001"))
    layers = (
        base.mark_rect(stroke="#ffffff").encode(color=alt.Color("value:Q", scale=scale, legend=legend)),
        base.mark_text(fontSize=11).encode(text="text:N", color=dark),
    )
    words = "; ".join(f"{cell['row']}, {cell['column']}: {cell['text']}" for cell in cells)
    view = View((), _spec(alt.layer(*layers), 46 * len(one.rows)))
    return Panel(one.title, f"{unit}; {words}", [view], {"cells": cells})


def save(chart: Chart, directory: Path) -> list[Path]:
    """Writes NAME.png for the screen and NAME.svg for papers; the same numbers give the same files."""
    import vl_convert

    spec = printed(chart)
    paths = [directory / f"{chart.name}.png", directory / f"{chart.name}.svg"]
    paths[0].write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    paths[1].write_text(vl_convert.vegalite_to_svg(spec), "utf-8")
    return paths


def printed(chart: Chart) -> Spec:
    """One specification of all panels in their first views, with their data, without what is for a reader's mouse."""
    columns = min(chart.columns, len(chart.panels))
    panels, params = [], {}
    for panel in chart.panels:
        spec = _with_data(panel.views[0].spec, panel.datasets)
        params.update({param["name"]: _unbound(param) for param in spec.pop("params", [])})
        spec["layer"] = [layer for layer in spec["layer"] if layer.get("name") != HOVER]
        if len(chart.panels) > 1 and panel.title:
            spec["title"] = {"text": panel.title, "offset": 8}
        if len(chart.panels) == 1:
            spec["width"] = round(1.4 * WIDTH)
        panels.append({key: value for key, value in spec.items() if key not in ("$schema", "config")})
    title = textwrap.wrap(chart.title, 78 if columns == 1 else 150)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": {**CONFIG, "concat": {"spacing": 28}},
        "title": {"text": title, "fontSize": 13, "offset": 14},
        "params": list(params.values()),
        "concat": panels,
        "columns": columns,
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }


def _unbound(param: Mapping[str, Any]) -> Spec:
    """A parameter without its menu."""
    return {key: value for key, value in param.items() if key != "bind"}


def _with_data(spec: Mapping[str, Any], datasets: Mapping[str, Any]) -> Spec:
    """`spec` with the data in the place of their names."""

    def walk(part: Any) -> Any:
        if isinstance(part, dict):
            name = part.get("data", {}).get("name") if isinstance(part.get("data"), dict) else None
            made = {key: walk(value) for key, value in part.items()}
            return made | {"data": {"values": list(datasets[name])}} if name in datasets else made
        return [walk(one) for one in part] if isinstance(part, list) else part

    made: Spec = walk(spec)
    named = made.pop("datasets", {})  # altair puts what is inline into names of its own
    return _with_data(made, named) if named else made
