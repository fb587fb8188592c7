"""Charts: each has one specification, in Vega-Lite through Altair, for the figure of a page, the PNG and the SVG.

`lines.py` and `estimates.py` make panels from plain numbers. `save` writes them as files, and `page.py` puts them on a
page. Only the page has the layers named `HOVER`. Files show the first view of each panel.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gammafl.core.errors import not_installed

Spec = dict[str, Any]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""The palette of Okabe and Ito, which colour-blind readers can tell apart; without their yellow, which is too faint."""
GREY = "#777777"
MUTED = "#B5B5B5"
DASHES = {"solid": [1, 0], "dash": [6, 4], "dot": [2, 3], "dashdot": [8, 3, 2, 3]}

HOVER = "hover"
"""The name of the layers that react to the mouse."""
LEADERS = "leaders"
"""The name of layers that lead from lines to their names."""
WIDTH, HEIGHT = 430, 300
"""The size of a panel in a file, in pixels."""
CONFIG: Spec = {
    "background": "#ffffff",
    "font": "Liberation Sans, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {"gridColor": "#e4e7eb", "domainColor": "#9aa3ad", "tickColor": "#9aa3ad", "titleFontWeight": "normal"},
    "title": {"anchor": "start", "fontSize": 12, "fontWeight": "normal"},
    "legend": {"titleFontWeight": "normal"},
}


@dataclass(frozen=True)
class View:
    """One way to look at a panel: the buttons that choose it, and its specification."""

    buttons: tuple[str, ...]
    spec: Spec


@dataclass(frozen=True)
class Panel:
    """One figure of a page: views on the same data, and a description in words for readers who can't see it.

    `data` are records, which every layer without its own data shows. `legend` has the label, colour and dash of each
    line; a reader can hide each.
    """

    title: str
    words: str
    views: Sequence[View]
    data: Sequence[Mapping[str, Any]]
    legend: Sequence[tuple[str, str, str]] = ()
    wide: bool = False
    logs: bool = False
    """Whether a reader may make its axes logarithmic."""


@dataclass(frozen=True)
class Chart:
    """A picture of one or more panels; `name` is the stem of its files."""

    name: str
    title: str
    panels: Sequence[Panel]


def specification(chart: Any, height: int) -> Spec:
    """The Vega-Lite specification of a layered Altair chart. It has the name of its panel's data, not the data."""
    import altair  # loads a third of a second, and most commands don't need it

    with altair.data_transformers.enable(consolidate_datasets=False):
        whole = chart.properties(data=altair.NamedData("panel"), width=WIDTH, height=height)
        return dict(whole.to_dict(validate=True))


def save(chart: Chart, directory: Path) -> list[Path]:
    """Writes NAME.png for the screen and NAME.svg for papers; the same numbers give the same files."""
    import vl_convert

    spec = printed(chart)
    paths = [directory / f"{chart.name}.png", directory / f"{chart.name}.svg"]
    paths[0].write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    paths[1].write_text(_renumbered(vl_convert.vegalite_to_svg(spec)), "utf-8")
    return paths


def drawn(chart: Chart) -> Any:
    """`chart` as an Altair chart, which a notebook shows and which can be saved."""
    try:
        import altair
        import vl_convert  # noqa: F401 - saves the chart
    except ImportError as error:
        raise not_installed(str(error.name), "report") from None
    return altair.Chart.from_dict(printed(chart))


def _renumbered(svg: str) -> str:
    """Numbers the clips and gradients of a picture from 0. The converter counts them over all pictures that it drew."""
    names: dict[str, str] = {}
    return re.sub(r"\b(clip|gradient_)(\d+)\b", lambda m: names.setdefault(m[0], f"{m[1]}{len(names)}"), svg)


def printed(chart: Chart) -> Spec:
    """One specification of all panels in their first views, with their data and without layers for the mouse."""
    columns = min(2, len(chart.panels))
    panels, params = [], {}
    for panel in chart.panels:
        spec = {**panel.views[0].spec, "data": {"values": panel.data}}
        for param in spec.pop("params", []):
            params[param["name"]] = {key: value for key, value in param.items() if key != "bind"}  # without its menu
        layers = [layer for layer in spec["layer"] if layer.get("name") != HOVER]
        # panels share their layers' names, and Vega-Lite would share their data
        spec["layer"] = [{key: value for key, value in layer.items() if key != "name"} for layer in layers]
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
