"""Estimates: intervals in rows, with the paper's number beside them, and heat maps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gammafl.report.charts import COLOURS, GREY, Panel, View, specification

DIVERGING = ["#2d004b", "#8073ac", "#d8daeb", "#f7f7f7", "#fee0b6", "#e08214", "#7f3b08"]
"""Purple to orange, which colour-blind readers can tell apart."""


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
        """Whether there is an interval. A single seed has none."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def colour(self) -> str:
        return COLOURS[0] if self.low > 0 else COLOURS[1] if self.high < 0 else GREY


class HeatCell(NamedTuple):
    """A number of a heat map, with a mark beside it; NaN is left blank."""

    row: str
    column: str
    value: float
    mark: str

    @property
    def text(self) -> str:
        return f"{self.value:+.2f}{self.mark}" if math.isfinite(self.value) else "–"


def intervals_panel(title: str, x_label: str, estimates: Sequence[Estimate]) -> Panel:
    """A row for each estimate: its mean and 95% interval. The dot of a single seed is hollow.

    The paper's number is a diamond. Labels are above their rows, because a phone has no room beside them.
    """
    import altair as alt

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
    base = alt.Chart().encode(
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
    view = View((), specification(alt.layer(*layers), 36 * len(known) + 16))
    return Panel(f"{title} ({signs(known)})", f"{x_label}; {words}", [view], records, wide=True)


def signs(estimates: Sequence[Estimate]) -> str:
    """What the signs of an interval plot mean."""
    single = "" if all(one.has_interval for one in estimates) else ", hollow: one seed"
    paper = ", diamond: paper" if any(one.reference is not None for one in estimates) else ""
    return f"dot: mean, line: 95% interval over seeds{single}{paper}"


def _range(one: Estimate) -> str:
    return f"[{one.low:.3g}, {one.high:.3g}]" if one.has_interval else "[one seed]"


def heat_map_panel(title: str, unit: str, numbers: Sequence[HeatCell]) -> Panel:
    """A heat map. Its colours are symmetric around zero and reach as far as its values."""
    import altair as alt

    known = [one.value if math.isfinite(one.value) else None for one in numbers]
    cells = [
        {"row": one.row, "column": one.column, "value": value, "text": one.text.replace("-", "−")}
        for one, value in zip(numbers, known, strict=True)
    ]
    limit = max([abs(value) for value in known if value is not None] + [1e-9])
    base = alt.Chart().encode(
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
    view = View((), specification(alt.layer(*layers), 46 * len({one.row for one in numbers})))
    return Panel(title, f"{unit}; {words}", [view], cells)
