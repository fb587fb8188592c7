"""Pictures of studies as plots of a page: lines, heat maps and intervals in plotly's own terms."""

import math
from collections.abc import Sequence
from typing import Any

from gammafl.report.curves import Plot, panel_plot
from gammafl.report.pictures import Estimate, HeatMap, HeatMapPicture, LinePicture, Picture, signs

DIVERGING = ("#2d004b", "#8073ac", "#d8daeb", "#f7f7f7", "#fee0b6", "#e08214", "#7f3b08")
"""Purple to orange, as in the pictures for papers; readers who are colour-blind can tell them apart."""
ROW = 44
"""Pixels a row of an interval plot, its label above it."""


def plots_of(picture: Picture) -> list[Plot]:
    """The picture as plots, one a panel or map."""
    if isinstance(picture, LinePicture):
        return [panel_plot(panel, picture.title) for panel in picture.panels]
    if isinstance(picture, HeatMapPicture):
        return [_heat_map(one, picture.unit) for one in picture.maps]
    return [_intervals(picture.estimates, picture.x_label, picture.title)]


def _heat_map(one: HeatMap, unit: str) -> Plot:
    """The colours are around zero, as far as the values of this map reach."""
    limit = max([abs(v) for row in one.values for v in row if math.isfinite(v)] + [1e-9])
    marks = one.marks or [[""] * len(one.columns)] * len(one.rows)
    text = [[_cell(v, m) for v, m in zip(*row, strict=True)] for row in zip(one.values, marks, strict=True)]
    trace = {
        "type": "heatmap",
        "x": one.columns,
        "y": one.rows,
        "z": [[v if math.isfinite(v) else None for v in row] for row in one.values],
        "text": text,
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}, %{x}: %{text} " + unit.replace("%", "") + "<extra></extra>",
        "zmin": -limit,
        "zmax": limit,
        "colorscale": [[i / (len(DIVERGING) - 1), colour] for i, colour in enumerate(DIVERGING)],
        "colorbar": {"title": {"text": unit, "side": "right"}, "thickness": 12},
        "xgap": 2,
        "ygap": 2,
    }
    cells = [
        f"{row}, {c}: {t}"
        for row, line in zip(one.rows, text, strict=True)
        for c, t in zip(one.columns, line, strict=True)
    ]
    layout = {"height": 100 + 52 * len(one.rows), "yaxis": {"autorange": "reversed", "automargin": True}, "xaxis": {}}
    return Plot(one.title, f"{unit}; {'; '.join(cells)}", {"kind": "figure", "traces": [trace], "layout": layout})


def _cell(value: float, mark: str) -> str:
    return f"{value:+.2f}{mark}".replace("-", "−") if math.isfinite(value) else "–"


def _intervals(estimates: Sequence[Estimate], x_label: str, title: str) -> Plot:
    """Labels stand above their rows, not beside them: a phone has no room at the side."""
    rows = list(enumerate(reversed(estimates)))
    known = [(y, one) for y, one in rows if math.isfinite(one.mean)]
    ours = {
        "type": "scatter",
        "mode": "markers",
        "name": "ours: mean and 95% interval over seeds",
        "x": [one.mean for _, one in known],
        "y": [y for y, _ in known],
        "text": [one.label for _, one in known],
        "customdata": [_range(one) for _, one in known],
        "hovertemplate": "%{text}<br>%{x:.3g} %{customdata}<extra></extra>",
        "marker": {
            "size": 9,
            "color": [one.colour for _, one in known],
            "symbol": ["circle" if one.has_interval else "circle-open" for _, one in known],
        },
    }
    lines = [_reach(y, one) for y, one in known if one.has_interval]
    printed = [(y, one) for y, one in known if one.reference is not None]
    paper = {
        "type": "scatter",
        "mode": "markers",
        "name": "paper",
        "x": [one.reference for _, one in printed],
        "y": [y for y, _ in printed],
        "text": [one.label for _, one in printed],
        "hovertemplate": "%{text}<br>paper %{x:.3g}<extra></extra>",
        "marker": {"size": 10, "symbol": "diamond-open", "color": "#000000", "line": {"width": 2}},
    }
    layout = {
        "height": 90 + ROW * len(rows),
        "labels": [{"y": y, "text": one.label} for y, one in rows],
        "xaxis": {"title": {"text": x_label}, "zeroline": True},
        "yaxis": {"visible": False, "range": [-0.5, len(rows) - 0.3]},
    }
    words = "; ".join(f"{one.label} {one.mean:.3g} {_range(one)}" for one in estimates)
    traces = [*lines, ours, *([paper] if printed else [])]
    return Plot(
        f"{title} ({signs(estimates)})",
        f"{x_label}; {words}",
        {"kind": "figure", "traces": traces, "layout": layout},
        wide=True,
    )


def _reach(y: int, one: Estimate) -> dict[str, Any]:
    line = {"color": one.colour, "width": 3}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [one.low, one.high],
        "y": [y, y],
        "line": line,
        "hoverinfo": "skip",
    }


def _range(one: Estimate) -> str:
    return f"[{one.low:.3g}, {one.high:.3g}]" if one.has_interval else "[one seed]"
